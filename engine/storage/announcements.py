"""Waiting for a transaction or an epoch: the publication itself wakes those who wait.

One background task per client follows the streams `published` and `results` (a blocking read, so a publication is
noticed within a fraction of a millisecond). One publication adds to both in one step, so the answer brings the outcomes
too; only what it does not bring is looked up. A stream, unlike publish/subscribe, loses nothing over a reconnection.

When Redis becomes unreachable, everyone who waits gets an error; the task keeps trying, so that later waits work again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import orjson
import redis.asyncio

from engine.errors import StorageUnavailableError
from engine.storage.connection import storage_errors
from engine.storage.head import FIELDS, Head
from engine.storage.keys import Keys
from engine.storage.log import START
from engine.storage.outcome import Outcome

_BLOCK_MS = 5_000
# Of each stream in one answer: what a client that was away has missed is not to fill its memory.
_ENTRIES = 1_000
_FIRST_DELAY, _LAST_DELAY = 0.02, 1.0

StreamId = tuple[int, int]


def stream_id(text: str) -> StreamId | None:
    """A transaction id as two comparable integers, or None if the text is not such an id."""
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
        # The newest epoch and the last processed log id, while the task is connected.
        self._reached: tuple[int, StreamId] | None = None
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
        return [_outcome(entries[0][1]) if entries else None for entries in answers]

    async def wait_outcome(self, transaction_id: str, timeout: float) -> Outcome | None:
        """The outcome as soon as it is published; None if that is not in time, or if the outcome is no longer kept."""
        future: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._outcomes.setdefault(transaction_id, []).append(future)
        try:
            self._listen()
            if self._reached is None:
                # Not connected yet, or not now: a command of its own says whether Redis is there.
                outcome = (await self.outcomes([transaction_id]))[0]
                if outcome is not None:
                    return outcome
            else:
                await self._settle([transaction_id])
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return None
        finally:
            _discard(future)
            waiting = self._outcomes[transaction_id]
            waiting.remove(future)
            if not waiting:
                del self._outcomes[transaction_id]

    async def wait_epoch(self, epoch: int, timeout: float) -> bool:
        """Whether the epoch is published in time."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        wait = (epoch, future)
        self._epochs.append(wait)
        try:
            self._listen()
            if self._reached is not None and self._reached[0] >= epoch:
                return True
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False
        finally:
            _discard(future)
            self._epochs.remove(wait)

    async def beyond(self, epoch: int, timeout: float) -> int | None:
        """The newest published epoch, as soon as it is not `epoch`; None if that is not in time. It is smaller than
        `epoch` where Redis came back with an older state."""
        if self._reached is not None and self._reached[0] != epoch:
            return self._reached[0]
        if not await self.wait_epoch(epoch + 1, timeout):
            return None
        return self._reached[0] if self._reached is not None else epoch + 1

    async def close(self) -> None:
        """End the background task; everyone who waits gets an error."""
        if self._task is not None:
            # Python 3.11 loses a cancellation that meets the end of an inner wait, so it is repeated until it works.
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=0.1)
            self._task = None
        self._fail(StorageUnavailableError("the client has been closed"))

    def _listen(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="zedlog announcements")

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while True:
            try:
                # First the place in the stream, then the head: what comes in between is announced again.
                places: dict[Any, Any] = {self._keys.published: await self._last_announcement()}
                places[self._keys.results] = await self._catch_up()
                delay = _FIRST_DELAY
                while True:
                    with storage_errors():
                        answer = await self._redis.xread(places, count=_ENTRIES, block=_BLOCK_MS)
                    new = {name.decode(): entries for name, entries in cast(list[Any], answer or [])}
                    places |= {name: entries[-1][0] for name, entries in new.items()}
                    for name, fields in new.get(self._keys.results, ()):
                        if (transaction_id := name.decode()) in self._outcomes:
                            self._tell(transaction_id, _outcome(fields))
                    for _, fields in new.get(self._keys.published, ())[-1:]:
                        await self._arrive(int(fields[b"epoch"]), fields[b"last_id"].decode())
            except StorageUnavailableError as error:
                self._reached = None
                self._fail(error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LAST_DELAY)

    async def _last_announcement(self) -> Any:
        with storage_errors():
            newest = await self._redis.xrevrange(self._keys.published, count=1)
        return newest[0][0] if newest else "0-0"

    async def _catch_up(self) -> str:
        """The last processed log id, after what was published until now has arrived."""
        with storage_errors():
            fields = await self._redis.hmget(self._keys.head, list(FIELDS))
        head = Head.decode(cast(list[bytes | None], fields))
        last_id = START if head is None else head.last_id
        await self._arrive(-1 if head is None else head.epoch, last_id)
        return last_id

    async def _arrive(self, epoch: int, last_id: str) -> None:
        """A publication: those who waited for it get what they waited for."""
        last = stream_id(last_id)
        assert last is not None
        self._reached = epoch, last
        for wanted, waiting in self._epochs:
            if wanted <= epoch and not waiting.done():
                waiting.set_result(True)
        await self._settle(list(self._outcomes))

    async def _settle(self, candidates: list[str]) -> None:
        """Look up the outcomes that were published, but have not arrived."""
        assert self._reached is not None
        last = self._reached[1]
        ids = [
            name
            for name in candidates
            if (known := stream_id(name)) is not None
            and known <= last
            and not all(future.done() for future in self._outcomes.get(name, ()))
        ]
        for name, outcome in zip(ids, await self.outcomes(ids), strict=True):
            self._tell(name, outcome)

    def _tell(self, name: str, outcome: Outcome | None) -> None:
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


def _discard(future: asyncio.Future[Any]) -> None:
    """Nobody will look at it any more: an error in it is not to be reported as forgotten."""
    if not future.cancel() and not future.cancelled():
        future.exception()


def _outcome(fields: dict[bytes, bytes]) -> Outcome:
    status = fields[b"status"].decode()
    assert status in ("committed", "dry_run", "refused"), status
    return Outcome(status, orjson.loads(fields[b"body"]))  # type: ignore[arg-type]  # one of the three
