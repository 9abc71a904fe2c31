"""Cursors: the opaque texts with which a reader asks for the next page.

A cursor carries the token of the epoch it reads, a digest of the query it belongs to, and the position after the last
row. So a chain of pages reads one epoch, whatever was committed meanwhile, and no service has to remember anything. A
checksum detects damage; a cursor is not secret and grants no access.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from engine.errors import InvalidCursorError

_CHECKSUM_BYTES = 6
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page starts: after `position` (JSON-ready), in the epoch that `token` names."""

    token: str
    position: list[Any]

    @property
    def epoch(self) -> int:
        return int(self.token.partition("-")[0])


def query_digest(*parts: Any) -> str:
    """A short digest that is equal for equal queries (limits are not part of it)."""
    return hashlib.blake2b(orjson.dumps(parts, option=orjson.OPT_NON_STR_KEYS), digest_size=8).hexdigest()


def encode_cursor(cursor: Cursor, digest: str) -> str:
    payload = orjson.dumps([_VERSION, cursor.token, digest, cursor.position])
    checksum = hashlib.blake2b(payload, digest_size=_CHECKSUM_BYTES).digest()
    return base64.urlsafe_b64encode(checksum + payload).rstrip(b"=").decode()


def decode_cursor(text: str, digest: str) -> Cursor:
    """The inverse of `encode_cursor`, for the query with that digest.

    Raises:
        InvalidCursorError: the text is damaged, or belongs to another query.
    """
    damaged = InvalidCursorError("the cursor is damaged; start again without a cursor")
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise damaged from None
    checksum, payload = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
    if hashlib.blake2b(payload, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise damaged
    version, token, found, position = orjson.loads(payload)
    if version != _VERSION:
        raise InvalidCursorError(
            "the cursor comes from another version of this service; start again without a cursor"
        )
    if found != digest:
        raise InvalidCursorError(
            "the cursor belongs to another query; use a cursor only to continue the query that returned it, with the "
            "same relation, columns, domain and goal"
        )
    return Cursor(token, position)
