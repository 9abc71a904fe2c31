"""The store of one service, kept with the epochs of its database.

In: pinned snapshots that a query or an update must not be older than. Out: answers, each with the epoch that it is
about. Always: the store is at an epoch that was published; a fork sees one epoch as a whole. The store is made when it
is first asked for, follows every epoch while it is there, is filled anew where the changes are no longer kept or are
more than what is there, and goes when nobody has asked for it for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.data.codes import Codes
from engine.errors import (
    BudgetExceededError,
    EpochNotRetainedError,
    SparqlUnavailableError,
    SparqlUnsupportedError,
    ZedlogError,
)
from engine.language.schema import ColumnType, Schema
from engine.storage.client import DatabaseClient
from engine.storage.snapshot import Snapshot
from service.sparql.lines import Lines, LineWriter
from service.sparql.remote import StoreProcess
from service.sparql.terms import Row

TRIPLE: Final = "triple"
"""The relation that is seen as a graph."""

_BYTES_OF_A_TRIPLE: Final = 1_000
"""About what one takes in the store; more, rather than less."""
_WAIT_SECONDS, _AWAY_SECONDS = 10.0, 0.5
# Tuples that are sent at a time.
_PART: Final = 500_000
# Epochs that are read in one round trip; changes that are followed, not filled anew, however small the store is.
_EPOCHS, _FEW = 64, 20_000


@dataclass(frozen=True, slots=True)
class Limits:
    """bytes: the most memory of the store; 0: there is none. fork_bytes: what a query may take beside it. idle: seconds
    after which a store that nobody asks goes. wait: seconds to wait for it."""

    bytes: int
    fork_bytes: int
    idle: float
    wait: float


@dataclass(slots=True)
class Stats:
    """What the store is and did. state: absent, filling or ready; epoch: -1 while it is absent. bytes: the memory of
    its process. filled, followed: how often it was filled, and epochs that were followed."""

    state: str = "absent"
    epoch: int = -1
    triples: int = 0
    skipped: int = 0
    bytes: int = 0
    fill_seconds: float = 0.0
    filled: int = 0
    followed: int = 0


class Follower:
    """See the module."""

    def __init__(self, client: DatabaseClient, limits: Limits) -> None:
        self._client, self._limits = client, limits
        self._process: StoreProcess | None = None
        self._retired: list[StoreProcess] = []
        self._token = ""
        self._changes = 0
        self._advancing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._used = 0.0
        self.stats = Stats()

    async def ask(
        self, command: bytes, request: Mapping[str, Any], snapshot: Snapshot, seconds: float
    ) -> tuple[str, dict[str, Any], bytes]:
        """The token of the epoch, which is that of the snapshot or a later one, and the answer of a query or an update
        (process.py).

        Raises:
            SparqlUnavailableError, SparqlUnsupportedError, BudgetExceededError; ZedlogError: what the work raises.
        """
        await self._reach(snapshot)
        process = self._process
        if process is None:
            raise SparqlUnavailableError("the SPARQL store has just been dropped; ask again")
        sent = {**request, "seconds": seconds, "memory": self._limits.fork_bytes}
        try:
            async with asyncio.timeout(seconds):
                epoch, header, data = await process.fork(command, sent)
        except TimeoutError:
            raise BudgetExceededError(
                f"it takes more than the {seconds:g} seconds allowed; make it more selective, or give it more "
                'time with "timeout"',
                budget="seconds",
                timeout=seconds,
            ) from None
        except MemoryError:
            raise BudgetExceededError(
                f"it needs more than the {self._limits.fork_bytes / 2**20:,.0f} MiB of memory that a query may take; "
                "make it more selective",
                budget="memory",
                limit=self._limits.fork_bytes,
            ) from None
        return f"{epoch}-{self._token.partition('-')[2]}", header, data

    async def close(self) -> None:
        """End it, and what works on it."""
        for task in (*self._work, *((self._task,) if self._task else ())):
            task.cancel()
        await asyncio.gather(*self._work, *((self._task,) if self._task else ()), return_exceptions=True)
        self._drop()
        for process in self._retired:
            process.kill()

    # ---- getting there

    async def _reach(self, snapshot: Snapshot) -> None:
        self._used = time.monotonic()
        _check_schema(snapshot)
        if self._limits.bytes == 0:
            raise SparqlUnsupportedError("this service has no SPARQL store: its setting sparql_bytes is 0")
        if self._is_at(snapshot):
            return
        # It goes on when the one who asked for it has gone.
        work = asyncio.create_task(self._advance(snapshot), name="zedlog sparql store")
        self._work.add(work)
        work.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._limits.wait):
                await asyncio.shield(work)
        except TimeoutError:
            raise SparqlUnavailableError(
                f"the SPARQL store is being filled, and was not ready within {self._limits.wait:g} s; try again later",
                state=self.stats.state,
            ) from None

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._work.discard(work)
        if not work.cancelled():
            work.exception()

    def _is_at(self, snapshot: Snapshot) -> bool:
        process = self._process
        return (
            process is not None
            and process.is_alive
            and self._token.partition("-")[2] == snapshot.token.partition("-")[2]
            and self.stats.epoch >= snapshot.epoch
        )

    async def _advance(self, snapshot: Snapshot) -> None:
        """Bring the store to an epoch that is not older."""
        async with self._advancing:
            if self._process is not None and not self._process.is_alive:
                self._drop()
            if self._is_at(snapshot):
                return
            if not await self._follow(snapshot):
                await self._fill(snapshot)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._stay(), name="zedlog sparql follower")

    async def _follow(self, snapshot: Snapshot) -> bool:
        """Apply the changes of the epochs up to the snapshot's; False if the store must be filled."""
        process, at = self._process, self.stats.epoch
        if process is None or self._token.partition("-")[2] != snapshot.token.partition("-")[2]:
            return False
        try:
            while at < snapshot.epoch:
                until = min(at + _EPOCHS, snapshot.epoch)
                between = await self._client.snapshots(range(at + 1, until))
                epochs = [
                    *between,
                    snapshot if until == snapshot.epoch else await self._client.snapshot(until),
                ]
                if [one.epoch for one in epochs] != list(range(at + 1, until + 1)):
                    return False
                count = sum(one.changed_count(TRIPLE) for one in epochs)
                self._changes += count
                # What is removed stays in memory, so after that many changes a new store is smaller.
                if self._changes > max(_FEW, self.stats.triples):
                    return False
                changes = [change for one in epochs for change in await _changes(one)] if count else []
                self._tell(
                    await process.call(b"D", {"changes": changes, "skipped": 0, "epoch": until}), epochs[-1]
                )
                self.stats.followed += len(epochs)
                at = until
        except (EpochNotRetainedError, SparqlUnavailableError):
            return False
        return self.stats.bytes <= self._limits.bytes

    async def _fill(self, snapshot: Snapshot) -> None:
        self._drop()
        count = snapshot.counts(TRIPLE).all if TRIPLE in snapshot.schemas else 0
        if count * _BYTES_OF_A_TRIPLE > self._limits.bytes:
            raise self._too_large(count, count * _BYTES_OF_A_TRIPLE)
        began = time.monotonic()
        self.stats.state = "filling"
        process = await asyncio.to_thread(StoreProcess)
        try:
            varied: list[Row] = []
            skipped = 0
            async for lines in _lines(snapshot):
                sizes = {"sizes": [len(lines.plain), len(lines.blank)]}
                await process.call(b"L", sizes, lines.plain, lines.blank)
                varied += lines.varied
                skipped += lines.skipped
            # A variant is told from what is there already, so all else comes first.
            changes = [(1, row) for row in varied]
            told = await process.call(b"D", {"changes": changes, "skipped": skipped, "epoch": snapshot.epoch})
            self._tell(told, snapshot)
        except BaseException:
            process.kill()
            self.stats = Stats(filled=self.stats.filled, followed=self.stats.followed)
            raise
        if self.stats.bytes > self._limits.bytes:
            process.kill()
            self.stats, taken = (
                Stats(filled=self.stats.filled, followed=self.stats.followed),
                self.stats.bytes,
            )
            raise self._too_large(count, taken)
        self._process, self._changes = process, 0
        self.stats.state = "ready"
        self.stats.fill_seconds = time.monotonic() - began
        self.stats.filled += 1

    def _too_large(self, count: int, taken: int) -> BudgetExceededError:
        most = self._limits.bytes
        return BudgetExceededError(
            f"a SPARQL store of {count:,} triples takes about {taken / 2**20:,.0f} MiB, more than the "
            f"{most / 2**20:,.0f} MiB allowed; the setting is sparql_bytes",
            budget="bytes",
            limit=most,
        )

    def _tell(self, told: Mapping[str, Any], snapshot: Snapshot) -> None:
        self._token = snapshot.token
        self.stats.epoch = told["epoch"]
        self.stats.triples, self.stats.skipped = told["triples"], told["skipped"]
        self.stats.bytes = told["bytes"]

    def _drop(self) -> None:
        process, self._process = self._process, None
        self._retired = [one for one in self._retired if one.is_alive]
        if process is not None:
            # What is asked of it now is still answered.
            process.retire()
            self._retired.append(process)
        self.stats = Stats(filled=self.stats.filled, followed=self.stats.followed)

    # ---- staying there

    async def _stay(self) -> None:
        """Follow each epoch as it comes, until the store has not been used for a while."""
        while self._process is not None:
            left = self._used + self._limits.idle - time.monotonic()
            if left <= 0:
                async with self._advancing:
                    self._drop()
                return
            try:
                newest = await self._client.beyond(self.stats.epoch, min(left, _WAIT_SECONDS))
                if newest is None:
                    continue
                snapshot = await self._client.snapshot()
                if newest < self.stats.epoch:
                    # Redis came back with an older state: epochs with the same numbers will be other ones.
                    async with self._advancing:
                        self._drop()
                    return
                _check_schema(snapshot)
                async with self._advancing:
                    if not self._is_at(snapshot) and not await self._follow(snapshot):
                        # Who asks next pays for a new one.
                        self._drop()
            except ZedlogError:
                await asyncio.sleep(_AWAY_SECONDS)


def _check_schema(snapshot: Snapshot) -> None:
    schema = snapshot.schemas.get(TRIPLE)
    if schema is not None and (
        schema.arity != 3 or any(column.type not in (ColumnType.SYMBOL, None) for column in schema.columns)
    ):
        raise SparqlUnsupportedError(
            f"SPARQL reads {TRIPLE} as triples of subject, predicate and object, so it must have three columns of "
            f"symbols, but it is {schema}",
            relation=TRIPLE,
        )


def _is_rdf(schema: Schema) -> bool:
    return schema.arity == 3 and all(column.type is ColumnType.SYMBOL for column in schema.columns)


async def _changes(snapshot: Snapshot) -> list[tuple[int, tuple[Any, ...]]]:
    found: list[tuple[int, tuple[Any, ...]]] = []
    async for rows in snapshot.changed_rows(TRIPLE):
        if _is_rdf(rows.schema):
            tuples = await snapshot.decode(rows.codes, rows.schema.columns)
            found += zip(rows.signs.tolist(), tuples, strict=True)
    return found


async def _lines(snapshot: Snapshot) -> AsyncIterator[Lines]:
    """The relation, in at least one part."""
    schema = snapshot.schemas.get(TRIPLE)
    if schema is None or not _is_rdf(schema):
        yield Lines(b"", b"", [], 0)
        return
    codes: Codes = await snapshot.codes(TRIPLE)
    symbols = await asyncio.to_thread(np.unique, codes)
    writer = await asyncio.to_thread(LineWriter, symbols, await snapshot.texts(symbols))
    for start in range(0, max(1, len(codes)), _PART):
        yield await asyncio.to_thread(writer.lines, codes[start : start + _PART])
