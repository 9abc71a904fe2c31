"""The epochs, read once for all listeners of this process.

Always: what is kept here is bounded, by epochs and by tuples; what is not kept is read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from engine.errors import EpochNotRetainedError, GapError
from engine.storage.client import DatabaseClient
from engine.storage.snapshot import ChangedRows, Snapshot

_EPOCHS = 128
# Changes of more tuples are read by each who needs them, in parts; so many are kept in all.
_SHARED_TUPLES, _KEPT_TUPLES = 100_000, 200_000

K = TypeVar("K")
V = TypeVar("V")


class Shared(Generic[K, V]):
    """Values that several tasks want: each is made once, whoever leaves meanwhile; the newest stay, at least one. A
    failure is told to those who wait, and not kept. size: what a value counts towards `most`."""

    def __init__(self, entries: int, most: int, size: Callable[[V], int]) -> None:
        self._entries, self._most, self._size = entries, most, size
        self._made: OrderedDict[K, asyncio.Task[V]] = OrderedDict()
        self._sizes: OrderedDict[K, int] = OrderedDict()
        self._total = 0

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(_awaited(make()))
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    def clear(self) -> None:
        self._made.clear()
        self._sizes.clear()
        self._total = 0

    def _done(self, key: K, task: asyncio.Task[V]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if self._made.get(key) is not task:
            return
        if failed:
            del self._made[key]
            return
        self._sizes[key] = self._size(task.result())
        self._total += self._sizes[key]
        while len(self._sizes) > 1 and (len(self._sizes) > self._entries or self._total > self._most):
            oldest, size = self._sizes.popitem(last=False)
            self._total -= size
            del self._made[oldest]


async def _awaited(work: Awaitable[V]) -> V:
    return await work


class Epochs:
    """See the module."""

    def __init__(self, client: DatabaseClient) -> None:
        self._client = client
        self._incarnation = ""
        self._snapshots: Shared[int, Snapshot] = Shared(_EPOCHS, _EPOCHS, lambda _: 1)
        self._changed: Shared[tuple[int, str], list[ChangedRows]] = Shared(
            4 * _EPOCHS, _KEPT_TUPLES, lambda parts: sum(len(part.codes) for part in parts)
        )

    async def newest(self) -> Snapshot:
        snapshot = await self._client.snapshot()
        self._check(snapshot)
        return snapshot

    async def snapshot(self, epoch: int) -> Snapshot:
        """Raises EpochNotRetainedError, GapError: it is one of another database."""
        snapshot = await self._snapshots.get(epoch, lambda: self._client.snapshot(epoch))
        self._check(snapshot)
        return snapshot

    async def before(self, epoch: int) -> Snapshot | None:
        """The epoch before; None if it is no longer kept."""
        try:
            return await self.snapshot(epoch - 1)
        except EpochNotRetainedError:
            return None

    async def changed(self, snapshot: Snapshot, relation: str) -> AsyncIterator[ChangedRows]:
        """What the snapshot's epoch changed in a relation."""
        if snapshot.changed_count(relation) > _SHARED_TUPLES:
            async for part in snapshot.changed_rows(relation):
                yield part
            return

        async def read() -> list[ChangedRows]:
            return [part async for part in snapshot.changed_rows(relation)]

        for part in await self._changed.get((snapshot.epoch, relation), read):
            yield part

    def forget(self) -> None:
        """The database was set back: what was read may be about other epochs with the same numbers."""
        self._incarnation = ""
        self._snapshots.clear()
        self._changed.clear()

    def _check(self, snapshot: Snapshot) -> None:
        incarnation = snapshot.token.partition("-")[2]
        if self._incarnation not in ("", incarnation):
            self.forget()
            raise GapError(
                "the database has been replaced by another one; begin again with the state (snapshot=true)",
                newest=snapshot.epoch,
                token=snapshot.token,
            )
        self._incarnation = incarnation
