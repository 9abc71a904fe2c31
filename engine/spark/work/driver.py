"""The work on a stratum while it is small: in the driver, in the resident placement's own structures.

For each relation there are two arrangements without indexes: one holds the tuples that are touched as they were, one as
they are. A tuple's old supports are looked up on the executors when it is first touched, in one query for all that a
height touches. Where the relation's layers are in the driver too, no query is needed. Settling a height needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import Start
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, Array, array_of, codes_of, column, columns
from engine.data.codes import Codes
from engine.resident.changes import described
from engine.resident.folds import distinct_rows
from engine.resident.layout import I32, NONE
from engine.resident.relation import PushOverflow, Relation
from engine.spark.changes import Changes, count_fitting
from engine.spark.frames import REL, WEIGHT, padded, united
from engine.spark.supports import Subject, Supports
from engine.spark.version import Change, layer
from engine.spark.work.work import HandedOver, NewVersion, Seen, Worker, begun

BATCH = "in_batch"


class LocalWork(Worker):
    """See the module."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        versions, tables = subject.versions, subject.tables
        self.pushed: dict[str, list[Change]] = {name: [] for name in versions}
        self.entered: dict[str, list[Change]] = {name: [] for name in versions}
        self.rows = 0
        self._folds = subject.stratum.in_place
        self._tables = tables
        self._before = {
            name: Relation(name, version.arity, fold=version.fold) for name, version in versions.items()
        }
        self._now = {
            name: Relation(name, version.arity, fold=self._folds.get(name))
            for name, version in versions.items()
        }
        self._asked = {name: Relation(name, version.arity) for name, version in versions.items()}
        self._schedule: dict[int, dict[str, list[I32]]] = {}
        for name, version in versions.items():
            for part in version.local:
                self._know(name, part)
            stored = version.stored_frame() if subject.rebuilt else None
            if stored is not None:
                self._know(name, tables.collect(stored))

    # ---- supports

    def push(self, supports: Supports) -> None:
        table = supports.table.local
        assert table is not None, "large work is kept on the executors"
        rel = array_of(table, REL)
        parts = {}
        for number, name in enumerate(self.subject.names):
            at = np.flatnonzero((rel == number) & (array_of(table, WEIGHT) != 0))
            if len(at):
                part = table.take(pa.array(at))
                codes = codes_of(part, self.subject.versions[name].arity)
                parts[name] = codes, array_of(part, HEIGHT).astype(np.int32), array_of(part, WEIGHT)
        self._look_up({name: codes for name, (codes, _, _) in parts.items()})
        for name, (codes, heights, weights) in parts.items():
            try:
                rows = self._now[name].push(codes, heights, weights)
            except PushOverflow as stop:
                raise stop.error from None
            self.pushed[name].append((codes, heights, weights))
            self.rows += len(rows)
            self._look_later(name, rows, heights)

    def _look_up(self, tuples: Mapping[str, Codes]) -> None:
        """Get the old supports of tuples that are touched for the first time."""
        if self.subject.rebuilt:
            return
        asked = []
        for name, codes in tuples.items():
            if self.subject.versions[name].stored:
                fold = self._folds.get(name)
                if fold is not None:
                    # A fold in place looks at all tuples of a group: one stands for it.
                    codes = codes.copy()
                    codes[:, fold.place] = 0
                    codes = distinct_rows(codes)
                new = np.flatnonzero(self._asked[name].rows_of(codes) == NONE)
                if len(new):
                    self._asked[name].push(codes[new], np.zeros(1, np.int32), np.ones(1, np.int64))
                    asked.append((name, self.subject.rows(name, codes[new])))
        if not asked:
            return
        keys = self._tables.local(pa.concat_tables([table for _, table in asked])).frame
        found = self._tables.collect(united([self._known(name, keys) for name, _ in asked]))
        rel = array_of(found, REL)
        for name, _ in asked:
            self._know(name, found.take(pa.array(np.flatnonzero(rel == self.subject.names.index(name)))))

    def _known(self, name: str, keys: DataFrame) -> DataFrame:
        """The stored rows of the tuples in `keys`."""
        version = self.subject.versions[name]
        number = self.subject.names.index(name)
        stored = version.stored_frame()
        assert stored is not None, "the caller asked"
        rows = stored.select(
            F.lit(number).alias(REL), *padded(version.arity, self.subject.width), HEIGHT, SUPPORT, ENTRY
        )
        fold = self._folds.get(name)
        key = [REL, *(column(c) for c in (range(version.arity) if fold is None else fold.group))]
        wanted = keys.where(F.col(REL) == number).select(*key).distinct()
        return rows.join(F.broadcast(wanted), key, "left_semi").select(*rows.columns)

    def _know(self, name: str, rows: pa.Table) -> None:
        """Take old supports and entries into both arrangements; in a rebuilt stratum only into that of the past."""
        arity = self.subject.versions[name].arity
        codes, heights = codes_of(rows, arity), array_of(rows, HEIGHT).astype(np.int32)
        supports, entries = array_of(rows, SUPPORT), array_of(rows, ENTRY)
        for relation in (
            [self._before[name]] if self.subject.rebuilt else [self._before[name], self._now[name]]
        ):
            some = np.flatnonzero(supports)
            known = relation.push(np.ascontiguousarray(codes[some]), heights[some], supports[some])
            some = np.flatnonzero(entries)
            ids = relation.push(np.ascontiguousarray(codes[some]), heights[some], np.zeros(1, np.int64))
            if relation is self._now[name]:
                relation.group(np.concatenate((known, ids)))
            for height in np.unique(heights[some]).tolist():
                at = np.flatnonzero(heights[some] == height)
                # A layer may take away what an earlier one brought, and then nothing is left.
                for place in _distinct(ids[at]):
                    here = at[place]
                    relation.change_entries(ids[here], entries[some][here], height, len(here))

    def _look_later(self, name: str, rows: I32, heights: I32) -> None:
        for height in np.unique(heights).tolist():
            at = rows[heights == height] if heights.size > 1 else rows
            self._schedule.setdefault(height, {}).setdefault(name, []).append(np.ascontiguousarray(at))

    # ---- heights

    def next_height(self) -> int | None:
        return min(self._schedule, default=None)

    def settle(self, height: int) -> LocalBatch | None:
        batch: dict[str, Change] = {}
        for name, rows in sorted(self._schedule.pop(height, {}).items()):
            relation = self._now[name]
            changed, weights, removals, later, heights = relation.settle(
                np.concatenate(rows), height, self.subject.stratum.signed
            )
            if len(later):
                self._look_later(name, later, heights)
            if len(changed):
                relation.change_entries(changed, weights, height, removals)
                batch[name] = relation.codes(changed), np.full(len(changed), height, np.int32), weights
        if not batch:
            return None
        earlier = {name: list(parts) for name, parts in self.entered.items()}
        for name, change in batch.items():
            self.entered[name].append(change)
            self.rows += len(change[0])
        return LocalBatch(self, height, batch, earlier)

    # ---- the end

    def finish(self) -> dict[str, NewVersion]:
        outcomes = {}
        for name, version in self.subject.versions.items():
            seen = compared(self._before[name], self._now[name])
            table = self._tables.put(layer(version.arity, self.pushed[name], self.entered[name]))
            counts = seen.counts(version.counts)
            old = begun(version, self.subject.rebuilt, self.subject.stratum)
            outcomes[name] = NewVersion(old.with_layer(table, counts), seen.change())
        return outcomes

    def release(self) -> None:
        """Nothing is stored on the executors."""

    def handed_over(self) -> HandedOver:
        """What a worker on the executors needs to go on with the work."""
        pushed, entered = (
            [
                self.subject.rows(name, codes, height=heights, weight=weights)
                for name in self.subject.names
                for codes, heights, weights in changes[name]
            ]
            for changes in (self.pushed, self.entered)
        )
        return HandedOver(_concatenated(pushed), _concatenated(entered), self._scheduled())

    def _scheduled(self) -> pa.Table | None:
        parts = []
        for height, by_name in self._schedule.items():
            for name, rows in by_name.items():
                codes = self._now[name].codes(np.unique(np.concatenate(rows)))
                parts.append(self.subject.rows(name, codes, next=np.full(1, height, np.int32)))
        return _concatenated(parts)


@dataclass
class LocalBatch:
    """The changes of one height, in the driver. For a query that reads them, one local relation holds them and all
    earlier ones of the epoch."""

    work: LocalWork
    height: int
    batch: Mapping[str, Change]
    past: Mapping[str, list[Change]]
    _all: DataFrame | None = None
    _earlier: dict[str, DataFrame] = field(default_factory=dict)
    _changes: dict[str, Changes] = field(init=False)

    def __post_init__(self) -> None:
        self._changes = {name: self._changed(name, change) for name, change in self.batch.items()}

    def _changed(self, name: str, change: Change) -> Changes:
        arity = self.work.subject.versions[name].arity
        return Changes(arity, lambda: change, lambda: self._frame(name, True))

    def net(self) -> Mapping[str, int]:
        return {name: int(weights.sum()) for name, (_, _, weights) in self.batch.items()}

    def fitting(self, start: Start) -> int:
        change = self.batch.get(start.relation)
        return 0 if change is None else count_fitting(change[0], start, self.work.subject.encode)

    def of(self, relation: str) -> Changes | None:
        return self._changes.get(relation)

    def earlier(self, relation: str) -> DataFrame | None:
        if not self.past[relation]:
            return None
        if relation not in self._earlier:
            self._earlier[relation] = self._frame(relation, False)
        return self._earlier[relation]

    def _frame(self, relation: str, in_batch: bool) -> DataFrame:
        arity = self.work.subject.versions[relation].arity
        mine = (F.col(REL) == self.work.subject.names.index(relation)) & (F.col(BATCH) == in_batch)
        return self._rows().where(mine).select(*columns(arity), HEIGHT, WEIGHT)

    def _rows(self) -> DataFrame:
        if self._all is None:
            parts = []
            for name in self.work.subject.names:
                for flag, changes in (
                    (False, self.past[name]),
                    (True, [self.batch[name]] if name in self.batch else []),
                ):
                    for codes, heights, weights in changes:
                        parts.append(
                            self.work.subject.rows(
                                name, codes, height=heights, weight=weights, in_batch=np.full(1, flag)
                            )
                        )
            self._all = self.work._tables.local(pa.concat_tables(parts)).frame
        return self._all


def _concatenated(tables: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables) if tables else None


def compared(before: Relation, now: Relation) -> Seen:
    """All tuples of either arrangement, as they were and as they are."""
    codes = now.codes(now.all_rows())
    gone = before.codes(before.all_rows())
    gone = gone[now.rows_of(gone) == NONE] if len(gone) else gone
    codes = np.concatenate((codes, gone))
    return Seen(codes, described(before, codes), described(now, codes), now.fold)


def _distinct(ids: I32) -> list[Array]:
    """Positions of `ids` in groups, so that none stands twice in a group."""
    groups = []
    left = np.arange(len(ids))
    while len(left):
        _, first = np.unique(ids[left], return_index=True)
        groups.append(left[np.sort(first)])
        left = np.delete(left, first)
    return groups
