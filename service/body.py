"""Request bodies: from bytes of the request to JSON values.

In: a request whose body may have any size and content. Out: decoded values, or a typed error. Always: no more than the
limit is ever held in memory, even if Content-Length is wrong, and integers keep all their digits. Bodies over
`THREAD_BYTES` are processed in a thread, so that other requests go on.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import anyio.to_thread
import orjson
from fastapi import Request

from engine.errors import BodyTooLargeError, InvalidValueError, shown
from service.problems import MalformedJsonError, UnsupportedMediaTypeError

THREAD_BYTES: Final = 128 * 1024

JSON_TYPES: Final = ("application/json",)

# orjson reads an integer beyond 64 bits as a float. A run of 19 digits is the shortest that may be one; a table
# that maps each digit to 0 makes it a fixed text, which is found twenty times faster than by a regular expression.
_ZERO_DIGITS: Final = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_NUMBER: Final = b"0" * 19

# What Python and others write for a float that JSON has no word for.
_NOT_FINITE: Final = re.compile("NaN|Infinity")

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLargeError: it has more than `limit` bytes; reading stops there.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is larger than the limit of {limit} bytes; send it as several transactions", limit=limit
    )


def media_type(request: Request, accepted: Sequence[str] = JSON_TYPES) -> str:
    """The body's media type, which is one of `accepted`; without a Content-Type it is the first of them.

    Raises:
        UnsupportedMediaTypeError: the type is another one, the charset is not UTF-8, or the body is compressed.
    """
    header = request.headers.get("content-type")
    kind, _, parameters = (header or accepted[0]).partition(";")
    kind = kind.strip().lower()
    if kind not in accepted:
        raise UnsupportedMediaTypeError(
            f"this call accepts bodies of the type {' or '.join(accepted)}, not {shown(kind)}",
            accepted=list(accepted),
        )
    charset = re.search(r"""charset\s*=\s*"?([^\s;"]+)""", parameters, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaTypeError(
            f"a body must be in UTF-8, not in {shown(charset[1])}", accepted=list(accepted)
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaTypeError(
            f"a body must not be compressed; its Content-Encoding is {shown(encoding)}",
            accepted=list(accepted),
        )
    return kind


def decode_json(body: bytes) -> Any:
    """The JSON value in `body`, with exact integers.

    Raises:
        MalformedJsonError: it is not JSON, or nested too deeply.
        InvalidValueError: a number is NaN or infinite (which is not JSON, but some programs write it), or is too large
            for a float, or has more digits than any number of 64 bits could need.
    """
    if not body:
        raise MalformedJsonError("the body is empty; it must be a JSON document")
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = {"line": error.lineno, "column": error.colno}
        where = f"line {error.lineno}, column {error.colno}"
        number = _NOT_FINITE.match(error.doc, error.pos)
        if number or "infinity" in error.msg:
            found = number[0] if number else "a number that 64 bits cannot hold"
            raise InvalidValueError(
                f"a float must be finite, but the body contains {found}: {where}", **place
            ) from None
        raise MalformedJsonError(f"the body is not JSON: {error.msg}: {where}", **place) from None
    if _LONG_NUMBER not in body.translate(_ZERO_DIGITS):
        return decoded
    try:
        # What orjson accepts, the slower decoder accepts too, except for absurdly long integers.
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"the body contains a number that cannot be read: {error}") from None


def decode_text(body: bytes) -> str:
    """The text in `body`.

    Raises:
        InvalidValueError: it is not UTF-8.
    """
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """`work()`, in a thread if `size` bytes of input would block the event loop for too long."""
    if size <= THREAD_BYTES:
        return work()
    return await anyio.to_thread.run_sync(_without_collection, work)


def _without_collection(work: Callable[[], T]) -> T:
    """`work()` with the garbage collector off: it would scan the new lists again and again, and find nothing.

    Without it, decoding a million tuples takes a quarter of the time, and does not stall other requests.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if enabled:
            gc.enable()


async def read_json(request: Request, limit: int) -> Any:
    """The decoded JSON body of a request."""
    media_type(request)
    body = await read_body(request, limit)
    return await off_loop(len(body), lambda: decode_json(body))
