"""Who waits for a transaction or an epoch is woken by the publication itself.

One background task per client follows the stream `published` (a blocking read, so a publication is heard
within a fraction of a millisecond) and, for all those who wait at once, fetches the outcomes that have come
in one round trip. A stream, unlike publish/subscribe, loses nothing over a reconnection.

When Redis goes away everybody who waits is told so; the task goes on trying, so that later waits work again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, cast

import orjson
import redis.asyncio

from engine.errors import StorageUnavailableError
from engine.storage.connection import storage_errors
from engine.storage.head import FIELDS, Head
from engine.storage.keys import Keys
from engine.storage.outcome import Outcome

_BLOCK_MS = 5_000
_FIRST_DELAY, _LAST_DELAY = 0.02, 1.0

StreamId = tuple[int, int]


def stream_id(text: str) -> StreamId | None:
    """A transaction id as two comparable integers, or None when it is no such id."""
    left, dash, right = text.partition("-")
    if not (dash and left.isdecimal() and right.isdecimal() and text.isascii()):
        return None
    parts = int(left[:21]), int(right[:21])
    return parts if max(parts) < 2**64 else None


class Announcements:
    """The waits of one client."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = keys
        self._task: asyncio.Task[None] | None = None
        self._head: Head | None = None
        self._outcomes: dict[str, list[asyncio.Future[Outcome | None]]] = {}
        self._epochs: list[tuple[int, asyncio.Future[bool]]] = []

    async def outcomes(self, ids: Sequence[str]) -> list[Outcome | None]:
        """The outcomes that are kept, in order."""
        if not ids:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for transaction_id in ids:
            pipeline.xrange(self._keys.results, transaction_id, transaction_id, count=1)
        with storage_errors():
            answers = await pipeline.execute()
        return [_outcome(entries) for entries in answers]

    async def wait_outcome(self, transaction_id: str, timeout: float) -> Outcome | None:
        """The outcome as soon as it is published; None when it is not in time, or was and is no longer
        kept."""
        future: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._outcomes.setdefault(transaction_id, []).append(future)
        try:
            await self._listen(transaction_id)
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return None
        finally:
            waiting = self._outcomes.get(transaction_id, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._outcomes.pop(transaction_id, None)

    async def wait_epoch(self, epoch: int, timeout: float) -> bool:
        """Whether the epoch is published in time."""
        wait = (epoch, asyncio.get_running_loop().create_future())
        self._epochs.append(wait)
        try:
            await self._listen(None)
            return await asyncio.wait_for(wait[1], timeout)
        except TimeoutError:
            return False
        finally:
            if wait in self._epochs:
                self._epochs.remove(wait)

    async def close(self) -> None:
        """End the background task; who waits is told."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._fail(StorageUnavailableError("the client has been closed"))

    async def _listen(self, transaction_id: str | None) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="zedlog announcements")
        elif self._head is not None:
            # It may have been published between the caller's look and its wait.
            await self._settle(self._head, [transaction_id] if transaction_id else [])

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while True:
            try:
                last = await self._last_announcement()
                await self._announce()
                delay = _FIRST_DELAY
                while True:
                    with storage_errors():
                        answer = await self._redis.xread({self._keys.published: last}, block=_BLOCK_MS)
                    if answer:
                        last = cast(list[Any], answer)[0][1][-1][0]
                        await self._announce()
            except StorageUnavailableError as error:
                self._head = None
                self._fail(error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LAST_DELAY)

    async def _last_announcement(self) -> Any:
        with storage_errors():
            newest = await self._redis.xrevrange(self._keys.published, count=1)
        return newest[0][0] if newest else "0-0"

    async def _announce(self) -> None:
        with storage_errors():
            fields = await self._redis.hmget(self._keys.head, list(FIELDS))
        head = Head.decode(cast(list[bytes | None], fields))
        if head is not None:
            self._head = head
            await self._settle(head, list(self._outcomes))

    async def _settle(self, head: Head, candidates: list[str]) -> None:
        for epoch, waiting in self._epochs:
            if epoch <= head.epoch and not waiting.done():
                waiting.set_result(True)
        last = stream_id(head.last_id)
        assert last is not None
        ids = [name for name in candidates if (known := stream_id(name)) is not None and known <= last]
        for name, outcome in zip(ids, await self.outcomes(ids), strict=True):
            for future in self._outcomes.get(name, ()):
                if not future.done():
                    future.set_result(outcome)

    def _fail(self, error: StorageUnavailableError) -> None:
        for future in [f for futures in self._outcomes.values() for f in futures]:
            if not future.done():
                future.set_exception(error)
        for _, waiting in self._epochs:
            if not waiting.done():
                waiting.set_exception(error)


def _outcome(entries: list[tuple[bytes, dict[bytes, bytes]]]) -> Outcome | None:
    if not entries:
        return None
    fields = entries[0][1]
    status = fields[b"status"].decode()
    assert status in ("committed", "dry_run", "refused"), status
    return Outcome(status, orjson.loads(fields[b"body"]))  # type: ignore[arg-type]  # one of the three
