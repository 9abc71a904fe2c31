"""Feeds of queries: a view of the answer is kept up to date while someone listens.

The view is in this process, not in the engine: a reader's query can neither slow the writer down nor make it fail. It
is loaded from the snapshot of the epoch after which a feed begins, and follows with the changes of each epoch, which it
gets as codes. All who listen to the same query share it, at whatever epoch they are: what the last epochs changed in
the answer is kept. One who comes back from further behind gets a view of his own, until he has caught up.

Always: the answer after each epoch is the one that `POST /v1/query` gives for that epoch. Where that would be refused,
because a relation is gone or a computation has no value, say, the feed ends with the same error. Budgets are those of
queries: for all tuples that the view holds, and for the time of each step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.data.codes import Codes
from engine.database.query import prepare
from engine.database.view import Delta, View, difference
from engine.errors import (
    BudgetExceededError,
    EngineUnavailableError,
    LimitReachedError,
    ListenerTooSlowError,
    StorageUnavailableError,
    ZedlogError,
)
from engine.language.syntax import Query
from engine.maintenance.placement import Budget
from engine.storage.snapshot import Snapshot
from service.evaluation import DERIVATIONS_PER_SECOND, Deadline, Evaluator
from service.feeds.epochs import Epochs
from service.feeds.events import ANSWER, Event
from service.feeds.selections import CHUNK, Chunk, change_event, too_large
from service.formats import describe_columns
from service.settings import Settings

# What the last epochs changed in an answer is kept for those who come a little later: so many epochs and tuples.
_KEPT_EPOCHS, _KEPT_TUPLES = 256, 20_000
# A view that is not the furthest one, and that nobody has used for so long, is dropped.
_UNUSED_SECONDS = 5.0

T = TypeVar("T")


@dataclass(slots=True)
class _Line:
    """A view at `epoch`, and what the epochs after `first` up to there changed. failure: why it goes no further."""

    view: View
    epoch: int
    first: int
    changes: OrderedDict[int, Event | ZedlogError | None] = field(default_factory=OrderedDict)
    tuples: int = 0
    step: asyncio.Task[None] | None = None
    used: float = field(default_factory=time.monotonic)

    failure: ZedlogError | None = None

    def add(self, event: Event | ZedlogError | None) -> None:
        self.epoch += 1
        self.changes[self.epoch] = event
        self.tuples += _size(event)
        while len(self.changes) > _KEPT_EPOCHS or (self.tuples > _KEPT_TUPLES and len(self.changes) > 1):
            self.first, gone = self.changes.popitem(last=False)
            self.tuples -= _size(gone)


class QueryState:
    """The answer as it is now; it can be read later."""

    def __init__(self, view: View) -> None:
        self._view, self._codes = view, view.rows()
        view.readers.add(self)

    async def chunks(self) -> AsyncIterator[Chunk]:
        for start in range(0, max(len(self._codes), 1), CHUNK):
            rows = self._view.decode(self._codes[start : start + CHUNK])
            yield ANSWER, self._view.query.columns, rows

    def close(self) -> None:
        self._view.readers.discard(self)


@dataclass(slots=True)
class Views:
    """How many views there are in this process."""

    most: int
    count: int = 0

    def add(self) -> None:
        if self.count >= self.most:
            raise LimitReachedError(
                f"this service keeps {self.most:,} queries up to date already, which is the most; try again later, or "
                "listen to relations",
                limit=self.most,
            )
        self.count += 1


class QuerySource:
    """A source of changes: a query."""

    def __init__(
        self, epochs: Epochs, query: Query, evaluator: Evaluator, settings: Settings, views: Views
    ) -> None:
        self._epochs, self._query, self._evaluator = epochs, query, evaluator
        self._tuples, self._seconds = settings.query_tuples, settings.query_timeout
        self._most, self._views = settings.feed_tuples, views
        self._lines: list[_Line] = []
        self._loading: dict[int, asyncio.Task[_Line]] = {}
        self._cancelled = threading.Event()

    async def begin(self, after: int | None, state: bool) -> tuple[int, QueryState | None]:
        """Have a view after an epoch, or after the newest; which one that is, and the answer there if it is wanted.

        Raises:
            ZedlogError: the query does not fit the relations, or cannot be evaluated; the epoch is no longer kept.
        """
        if after is None:
            return await self._begin_now((await self._epochs.newest()).epoch, state)
        epoch = after
        while True:
            for line in self._lines:
                if line.epoch == epoch:
                    return epoch, QueryState(line.view) if state else None
                if line.first <= epoch < line.epoch and not state:
                    return epoch, None
            await self._load(epoch)

    async def _begin_now(self, newest: int, state: bool) -> tuple[int, QueryState | None]:
        while True:
            line = next((line for line in self._lines if line.failure is None), None)
            if line is None:
                line = await self._load(newest)
            while line.epoch < newest and line.failure is None:
                try:
                    await self._advance(line)
                except ZedlogError:
                    # What an epoch in between is refused with is nothing to one who begins after it.
                    if line.failure is None:
                        raise
            if line.failure is None:
                # It may have gone further than the newest was a moment ago.
                return line.epoch, QueryState(line.view) if state else None

    async def change(self, epoch: int) -> Event | None:
        """What an epoch changed in the answer; None if nothing.

        Raises:
            ListenerTooSlowError: it is no longer kept.
            ZedlogError: the query cannot be answered at this epoch.
        """
        while True:
            now = time.monotonic()
            for line in self._lines:
                if epoch in line.changes:
                    line.used = now
                    self._let_go(now)
                    found = line.changes[epoch]
                    if isinstance(found, ZedlogError):
                        raise found
                    return found
            behind = max((one for one in self._lines if one.epoch < epoch), key=_epoch, default=None)
            if behind is not None and behind.failure is not None:
                raise behind.failure
            if behind is None:
                raise ListenerTooSlowError(
                    f"what epoch {epoch} changed in the answer is no longer at hand; come back with the last position",
                    epoch=epoch,
                )
            await self._advance(behind)

    async def close(self) -> None:
        """Nobody listens any more."""
        self._cancelled.set()
        steps = [*self._loading.values(), *(line.step for line in self._lines if line.step is not None)]
        await asyncio.gather(*steps, return_exceptions=True)
        self._views.count -= len(self._lines)
        self._lines.clear()

    def _let_go(self, now: float) -> None:
        """All listeners go over to the view that is furthest; another one that nobody has used for a while is not
        needed."""
        furthest = max(self._lines, key=_epoch)
        for line in list(self._lines):
            if line is not furthest and now - line.used > _UNUSED_SECONDS and line.step is None:
                self._lines.remove(line)
                self._views.count -= 1

    # ---- loading

    async def _load(self, epoch: int) -> _Line:
        task = self._loading.get(epoch)
        if task is None:
            task = self._loading[epoch] = asyncio.ensure_future(self._loaded(epoch))
            task.add_done_callback(lambda done: self._ended(done, epoch))
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[_Line], epoch: int) -> None:
        self._loading.pop(epoch, None)
        _seen(task)

    async def _loaded(self, epoch: int) -> _Line:
        self._views.add()
        try:
            snapshot = await self._epochs.snapshot(epoch)
            view = await self._view(snapshot, None)
        except BaseException:
            self._views.count -= 1
            raise
        line = _Line(view, epoch, epoch)
        self._lines.append(line)
        # The one that is furthest is the one that all others join.
        self._lines.sort(key=lambda one: -one.epoch)
        return line

    async def _view(self, snapshot: Snapshot, before: View | None) -> View:
        query = prepare(self._query, snapshot.schemas)
        view = View(query, before)
        facts: dict[str, list[Codes]] = {}
        left = self._tuples
        for relation, bindings in query.reads.items():
            for bound in bindings:
                codes = await snapshot.codes(relation, bound, left + 1)
                left -= len(codes)
                if left < 0:
                    raise BudgetExceededError(
                        f"the query reads more than the {self._tuples:,} tuples allowed: it reached the limit in "
                        f"{relation}; make it more selective, for example with constants in its atoms",
                        budget="tuples",
                        relation=relation,
                    )
                facts.setdefault(relation, []).append(await self._own(snapshot, view, relation, codes))
        await self._work(lambda budget: view.load(facts, budget))
        return view

    # ---- following

    async def _advance(self, line: _Line) -> None:
        """By one epoch; all who wait for it wait for the same step."""
        if line.step is None:
            line.step = asyncio.ensure_future(self._follow(line))
            line.step.add_done_callback(_seen)
        await asyncio.shield(line.step)

    async def _follow(self, line: _Line) -> None:
        try:
            snapshot = await self._epochs.snapshot(line.epoch + 1)
            line.add(await self._changed(line, snapshot))
        except (StorageUnavailableError, EngineUnavailableError):
            # The view is where it was, and goes on when Redis is back.
            raise
        except ZedlogError as error:
            # Those who listen now are told of it; whoever comes later begins with another view.
            line.failure = error
            raise
        finally:
            line.step = None

    async def _changed(self, line: _Line, snapshot: Snapshot) -> Event | ZedlogError | None:
        view = line.view
        if any(_types(view, name) != _types_of(snapshot, name) for name in view.query.reads):
            return await self._replaced(line, snapshot)
        changes: dict[str, Delta] = {}
        for relation in view.query.reads:
            if snapshot.changed_count(relation):
                changes[relation] = await self._delta(snapshot, view, relation)
        changed = await self._work(lambda budget: view.apply(changes, budget))
        if not len(changed):
            return None
        if len(changed) > self._most:
            return too_large(snapshot, self._most)
        rows = await _threaded(len(changed), lambda: view.decode(changed.codes))
        signs = changed.signs.tolist()
        inserted = [row for row, sign in zip(rows, signs, strict=True) if sign > 0]
        deleted = [row for row, sign in zip(rows, signs, strict=True) if sign < 0]
        return change_event(snapshot, {ANSWER: {"inserted": inserted, "deleted": deleted}}, {})

    async def _replaced(self, line: _Line, snapshot: Snapshot) -> Event | ZedlogError | None:
        """The types of what is read changed: the answer is computed anew, and compared."""
        before = line.view
        # Both have the same symbols, and neither may forget one of the other's.
        comparing = object()
        before.readers.add(comparing)
        try:
            after = await self._view(snapshot, before)
            inserted, deleted = await asyncio.to_thread(difference, before, after)
        finally:
            before.readers.discard(comparing)
        line.view = after
        columns: dict[str, Any] = {}
        if before.query.columns != after.query.columns:
            columns[ANSWER] = describe_columns(after.query.columns)
        if len(inserted) + len(deleted) > self._most:
            return too_large(snapshot, self._most)
        if not inserted and not deleted and not columns:
            return None
        changes = {ANSWER: {"inserted": inserted, "deleted": deleted}} if inserted or deleted else {}
        return change_event(snapshot, changes, columns)

    async def _delta(self, snapshot: Snapshot, view: View, relation: str) -> Delta:
        """What an epoch changed in a relation, as far as the query reads it."""
        codes, signs = [], []
        async for rows in self._epochs.changed(snapshot, relation):
            mask = np.zeros(len(rows.codes), np.bool_)
            for bound in view.query.reads[relation]:
                wanted = np.ones(len(rows.codes), np.bool_)
                for column, value in bound.items():
                    code = await snapshot.code(rows.schema, column, value)
                    wanted &= False if code is None else rows.codes[:, column] == code
                mask |= wanted
            codes.append(await self._own(snapshot, view, relation, rows.codes[mask]))
            signs.append(rows.signs[mask])
        if not codes:
            return Delta(
                np.empty((0, len(view.query.schemas[relation].columns)), np.int64), np.empty(0, np.int8)
            )
        return Delta(np.concatenate(codes), np.concatenate(signs))

    async def _own(self, snapshot: Snapshot, view: View, relation: str, codes: Codes) -> Codes:
        unknown = await _threaded(len(codes), lambda: view.unknown(relation, codes))
        if len(unknown):
            view.learn(unknown, await snapshot.texts(unknown))
        return await _threaded(len(codes), lambda: view.own(relation, codes))

    async def _work(self, work: Callable[[Budget], T]) -> T:
        """A step of a view, in a thread, within the budget of a query."""
        await self._evaluator.load()
        deadline = Deadline(self._seconds)
        async with self._evaluator.workers:
            deadline.begin()
            budget = Budget(
                derivations=int(DERIVATIONS_PER_SECOND * deadline.seconds),
                tuples=self._tuples,
                seconds=deadline.left(),
                cancelled=self._cancelled.is_set,
            )
            return await asyncio.to_thread(partial(work, budget))


async def _threaded(size: int, work: Callable[[], T]) -> T:
    return work() if size < 10_000 else await asyncio.to_thread(work)


def _epoch(line: _Line) -> int:
    return line.epoch


def _seen(task: asyncio.Task[Any]) -> None:
    """Perhaps nobody waits for it any more: an error in it is not to be reported as forgotten."""
    if not task.cancelled():
        task.exception()


def _size(event: Event | ZedlogError | None) -> int:
    return event.tuples if isinstance(event, Event) else 0


def _types(view: View, relation: str) -> list[Any]:
    return [column.type for column in view.query.schemas[relation].columns]


def _types_of(snapshot: Snapshot, relation: str) -> list[Any] | None:
    schema = snapshot.schemas.get(relation)
    return None if schema is None else [column.type for column in schema.columns]
