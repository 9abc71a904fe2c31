"""Writes the file in a request's body to disk, where the engine's jobs find it.

Always: the file is never in memory as a whole. It appears under its final name, which is made from its SHA-256, only
when it is complete; so the same file sent twice is stored once, and a broken connection leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from engine.bulk.batches import sync_folder, unwritable
from engine.errors import BodyTooLargeError, InvalidRequestError

_PORTION = 1 << 20


async def receive(request: Request, folder: Path, name: str, limit: int) -> tuple[str, int, str]:
    """(upload, bytes, SHA-256) of the body, written below `folder`.

    Raises:
        BodyTooLargeError: it has more than `limit` bytes; nothing is left of it.
        InvalidRequestError: it is empty, or the connection broke.
        BulkStorageError: it cannot be written.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    partial = folder / f".{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        size, digest = await _write(request, partial, limit)
        if not size:
            raise InvalidRequestError("the body is empty; it must be the file")
        upload = f"{digest}/{name}"
        (folder / digest).mkdir(exist_ok=True)
        os.replace(partial, folder / upload)
        sync_folder(folder / digest)
        return upload, size, digest
    except OSError as error:
        raise unwritable(folder, error) from error
    except ClientDisconnect as error:
        raise InvalidRequestError("the connection broke before the file was complete") from error
    finally:
        # Where the folder could not be made there is nothing to remove.
        with suppress(OSError):
            partial.unlink()


async def _write(request: Request, path: Path, limit: int) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    waiting = bytearray()
    with path.open("wb") as file:

        def flush() -> None:
            digest.update(waiting)
            file.write(waiting)
            waiting.clear()

        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            waiting += chunk
            if len(waiting) >= _PORTION:
                await anyio.to_thread.run_sync(flush)
        flush()
        file.flush()
        await anyio.to_thread.run_sync(os.fsync, file.fileno())
    return size, digest.hexdigest()


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the file is larger than the limit of {limit} bytes; put it into the engine's import root instead",
        limit=limit,
    )
