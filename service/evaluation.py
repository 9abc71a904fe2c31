"""Answers of queries that must be evaluated: everything except a single atom.

In: a pinned snapshot and a prepared query. Out: a page of its distinct rows. Always: the rows and their order depend
only on the epoch and the query, so a chain of pages is stable: another process, or this one after the answer has left
the cache, computes the same rows again. The event loop reads the tuples that can contribute
(engine/database/reading.py); a worker thread evaluates, in kernels that release the interpreter's lock.

An answer is kept as codes, in the order of the codes, and each page is decoded by itself. Strings that the query
computed come after the snapshot's symbols, in their own order. Cost: one evaluation for each chain of pages as long as
the cache holds the answer.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
from fastapi import Request

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple
from engine.database.query import PreparedQuery, evaluate, prepare
from engine.database.reading import read
from engine.errors import BudgetExceededError, EvaluationCancelledError
from engine.language.parser import parse_query
from engine.language.schema import Column, ColumnType
from engine.maintenance.placement import Budget
from engine.storage.rows import sort_order
from engine.storage.snapshot import Snapshot
from engine.storage.snapshot_symbols import TextsNotReadError
from service.projection import RowCache
from service.settings import Settings

DERIVATIONS_PER_SECOND: Final = 200_000_000
"""More derivations than one thread can enumerate in a second. A query that needs more than its time allows is refused
before it starts, because one call of a kernel cannot be interrupted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """A whole answer. codes: int64[n, columns], ascending. new: the symbols that the query computed."""

    codes: Codes
    new: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)


class Evaluator:
    """Evaluates queries, as many at a time as the settings allow. One for each app."""

    def __init__(self, settings: Settings) -> None:
        self._tuples = settings.query_tuples
        self.workers = asyncio.Semaphore(settings.query_workers)
        self._answers: RowCache[FoundRows] = RowCache(settings.query_cache_rows)
        self._loaded = False

    async def load(self) -> None:
        """Load the compiled kernels, which takes a second or two, once; called at the start, so that the first query
        does not have to wait."""
        if not self._loaded:
            await asyncio.to_thread(_load)
            self._loaded = True

    async def page(
        self,
        snapshot: Snapshot,
        query: PreparedQuery,
        digest: str,
        limit: int,
        start: int,
        deadline: Deadline,
    ) -> tuple[list[Tuple], int | None]:
        """Up to `limit` rows from the row with the number `start`, and the number of the next one if there is one.

        Raises:
            BudgetExceededError, EvaluationError, EvaluationCancelledError: from the evaluation.
        """
        key = (snapshot.token, digest)
        rows = self._answers.get(key)
        if rows is None:
            rows = await self._evaluate(snapshot, query, deadline)
            self._answers.put(key, rows)
        page = rows.codes[start : start + limit]
        following = start + limit
        tuples = await snapshot.decode(page, query.columns, rows.new)
        return tuples, following if following < len(rows) else None

    async def _evaluate(self, snapshot: Snapshot, query: PreparedQuery, deadline: Deadline) -> FoundRows:
        await self.load()
        deadline.begin()
        cancelled = threading.Event()
        try:
            async with asyncio.timeout(deadline.left()):
                try:
                    running = await self._start(snapshot, query, deadline, cancelled, query.computes_texts)
                    # The answer does not wait for a thread that is told to end.
                    return await asyncio.shield(running)
                except TextsNotReadError:
                    running = await self._start(snapshot, query, deadline, cancelled, True)
                    return await asyncio.shield(running)
        except TimeoutError:
            raise deadline.passed() from None
        except BudgetExceededError as error:
            match error.detail.get("budget"):
                case "seconds":
                    raise deadline.passed() from None
                case "derivations":
                    raise deadline.hopeless() from None
            raise
        finally:
            cancelled.set()

    async def _start(
        self,
        snapshot: Snapshot,
        query: PreparedQuery,
        deadline: Deadline,
        cancelled: threading.Event,
        complete: bool,
    ) -> asyncio.Future[FoundRows]:
        """Read the tuples and begin to evaluate when a worker is free. The worker stays busy until the thread has
        ended, because the thread holds the tuples."""
        await self.workers.acquire()
        try:
            facts = await read(query, snapshot, self._tuples)
            symbols = await snapshot.symbols(query.constants, complete=complete)
        except BaseException:
            self.workers.release()
            raise
        budget = Budget(
            derivations=int(DERIVATIONS_PER_SECOND * deadline.seconds),
            tuples=self._tuples,
            seconds=deadline.left(),
            cancelled=cancelled.is_set,
        )
        work = partial(_rows, query, facts, symbols, snapshot.symbol_count, budget)
        running = asyncio.ensure_future(asyncio.to_thread(work))
        running.add_done_callback(self._ended)
        return running

    def _ended(self, running: asyncio.Future[FoundRows]) -> None:
        self.workers.release()
        if not running.cancelled():
            # Perhaps nobody waits for it any more, and for what it failed of.
            running.exception()


@dataclass(slots=True)
class Deadline:
    """The time that a query has; it starts when the service begins to work on the query."""

    seconds: float
    _end: float | None = None

    def begin(self) -> None:
        if self._end is None:
            self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        assert self._end is not None, "the time has begun"
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> BudgetExceededError:
        """The error for a query that has run out of time."""
        return BudgetExceededError(
            f"the query takes more than the {self.seconds:g} seconds allowed; make it more selective, or give it "
            'more time with "timeout"',
            budget="seconds",
            timeout=self.seconds,
        )

    def hopeless(self) -> BudgetExceededError:
        """The error for a query that is known beforehand to need more time than it has."""
        return BudgetExceededError(
            f"the query would take more than the {self.seconds:g} seconds allowed: its joins produce more combinations "
            "of tuples than can be enumerated in that time; make it more selective, or give it more time with "
            '"timeout"',
            budget="seconds",
            timeout=self.seconds,
        )

    async def hold(self, work: Awaitable[T]) -> T:
        """The work's result, if it is ready in time.

        Raises:
            BudgetExceededError: it is not ready in time.
        """
        self.begin()
        try:
            async with asyncio.timeout(self.left()):
                return await work
        except TimeoutError:
            raise self.passed() from None


async def until_gone(request: Request, work: Awaitable[T]) -> T:
    """The work's result; the work is cancelled when the client disconnects. The request's body must have been read.

    Raises:
        EvaluationCancelledError: the client has disconnected.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise EvaluationCancelledError("the client has closed the connection, so its query was cancelled")
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _load() -> None:
    importlib.import_module("engine.resident.placement")
    # The first evaluation of a process loads the grammar and the rest of the code; no client should wait for that.
    evaluate(prepare(parse_query("n = 1 + 1"), {}), {}, SymbolTable(), Budget())


def _rows(
    query: PreparedQuery, facts: dict[str, list[Codes]], symbols: SymbolTable, count: int, budget: Budget
) -> FoundRows:
    codes = evaluate(query, facts, symbols, budget)
    codes, new = _settled(codes, query.columns, symbols, count)
    return FoundRows(codes[sort_order(codes)], new)


def _settled(
    codes: Codes, columns: Sequence[Column], symbols: SymbolTable, count: int
) -> tuple[Codes, tuple[str, ...]]:
    """The codes with the new symbols (from `count` on) numbered in the order of their texts, whatever order they were
    made in; only symbols that occur in the answer are kept."""
    places = [i for i, column in enumerate(columns) if column.type is ColumnType.SYMBOL]
    new = np.unique(codes[:, places][codes[:, places] >= count])
    if not len(new):
        return codes, ()
    texts = symbols.texts(new)
    order = sorted(range(len(new)), key=texts.__getitem__)
    codes_after = np.empty(len(new), np.int64)
    codes_after[order] = count + np.arange(len(new))
    codes = codes.copy()
    for place in places:
        column = codes[:, place]
        moved = column >= count
        column[moved] = codes_after[np.searchsorted(new, column[moved])]
    return codes, tuple(texts[i] for i in order)
