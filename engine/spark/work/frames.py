"""The work on a stratum when it is large: on the executors, as DataFrames.

A height is settled by one aggregation over the epoch's pushed supports, its entry changes and the relations' old
layers. It gives for each touched tuple the supports below and up to the height, the entry that it has there, and the
next height at which it is to be looked at. Where few tuples are touched, the old layers are cut down to them first.

The parts that an epoch collects are united when they are many, so that the plan of a height stays small however many
heights came before it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns
from engine.resident.changes import described_as
from engine.spark.frames import REL, WEIGHT, long, padded, united
from engine.spark.plans.settling import NEXT, TOUCHED, Settling
from engine.spark.supports import Subject, Supports
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.version import Version, empty_layer, summed
from engine.spark.work.frame_batch import FrameBatch, Measures
from engine.spark.work.work import HandedOver, NewVersion, Seen, Worker, begun

NEW = "new"
PARTS = 8
"""Parts from which they are united."""


@dataclass
class _Parts:
    """What was collected so far. `looks` says how many of its rows ask for a look at each height."""

    frames: list[DataFrame] = field(default_factory=list)
    looks: dict[int, int] = field(default_factory=dict)

    def add(self, frame: DataFrame, looks: Mapping[int, int]) -> None:
        self.frames.append(frame)
        for height, number in looks.items():
            self.looks[height] = self.looks.get(height, 0) + number


class OnExecutors(Worker):
    """What both strategies on the executors have in common: the tables that are held until the end, and how the layers
    that remain become the outcome."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._tables = subject, subject.tables
        self._measures = Measures(subject.stratum, subject.names, subject.encode)
        self._key = [REL, *columns(subject.width)]
        self._held: list[Table] = []

    def release(self) -> None:
        for table in self._held:
            self._tables.release(table)
        self._held.clear()

    def _keep(self, table: Table) -> DataFrame:
        self._held.append(table)
        return table.frame

    def finish(self) -> dict[str, NewVersion]:
        return {name: self._finish(number, name) for number, name in enumerate(self._subject.names)}

    def _finish(self, number: int, name: str) -> NewVersion:
        subject, version = self._subject, self._subject.versions[name]
        layers = self._layers(number, version)
        try:
            whole = layers[0] if len(layers) == 1 else self._together(layers, version.arity)
            seen, whole.rows = compared(version, whole, subject.rebuilt, subject.stratum, self._tables)
        except BaseException:
            for layer in layers:
                self._tables.release(layer)
            raise
        made = replace(begun(version, subject.rebuilt, subject.stratum), counts=seen.counts(version.counts))
        for layer in layers:
            if layer.rows:
                made = made.with_layer(layer, made.counts)
            else:
                self._tables.release(layer)
        return NewVersion(made, seen.change())

    def _together(self, layers: Sequence[Table], arity: int) -> Table:
        """All layers as one table, which owns no storage. There may be no layer at all: a stratum that is made anew may
        come out empty."""
        if not layers:
            return self._tables.local(empty_layer(arity))
        return Table(sum(layer.rows for layer in layers), None, united([layer.frame for layer in layers]))

    @abstractmethod
    def _layers(self, number: int, version: Version) -> list[Table]:
        """What the epoch adds to a relation. Where it is a single layer, `rows` need only be an upper bound."""


class FrameWork(OnExecutors):
    """The general strategy, which the module describes. The query that counts a height's changes also tells how many of
    them fit each starting atom of a plan."""

    def __init__(self, subject: Subject, before: HandedOver | None = None) -> None:
        """before: the state of the work, where another worker has begun it."""
        super().__init__(subject)
        stratum = subject.stratum
        by_number = {subject.names.index(name): fold for name, fold in stratum.in_place.items()}
        self._settling = Settling(subject.width, by_number, stratum.signed, self._tables.partitions)
        self._pushed, self._entered, self._later = _Parts(), _Parts(), _Parts()
        self._rows = 0
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: HandedOver) -> None:
        if before.pushed is not None:
            self._pushed.add(self._put(before.pushed), {})
            self._rows += before.pushed.num_rows
        if before.entered is not None:
            self._entered.add(self._put(before.entered), {})
        if before.scheduled is not None:
            heights, numbers = np.unique(array_of(before.scheduled, NEXT), return_counts=True)
            looks = dict(zip(heights.tolist(), numbers.tolist(), strict=True))
            self._later.add(self._put(before.scheduled), looks)

    # ---- supports

    def push(self, supports: Supports) -> None:
        self._held.append(supports.table)
        if supports.changed:
            changed = supports.table.frame.where(F.col(WEIGHT) != 0)
            self._pushed.add(changed.select(*self._key, HEIGHT, WEIGHT), supports.changed)
            self._rows += sum(supports.changed.values())
            self._unite(self._pushed, [*self._key, HEIGHT])

    def _put(self, rows: pa.Table) -> DataFrame:
        return self._keep(self._tables.put(rows))

    def _unite(self, parts: _Parts, key: list[str]) -> None:
        if len(parts.frames) >= PARTS:
            rows = united(parts.frames).groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
            parts.frames = [self._keep(self._tables.checkpoint(rows.where(F.col(WEIGHT) != 0)))]

    # ---- heights

    def next_height(self) -> int | None:
        return min([*self._pushed.looks, *self._later.looks], default=None)

    def settle(self, height: int) -> FrameBatch | None:
        looks = self._pushed.looks.pop(height, 0) + self._later.looks.pop(height, 0)
        settled = self._settled(height, self._tables.small(looks))
        table, found = self._tables.measured(settled, [REL, NEXT], self._measures.columns(WEIGHT))
        self._held.append(table)
        nexts = _rows_by(found, NEXT)
        if nexts:
            self._later.add(table.frame.where(F.col(NEXT).isNotNull()).select(*self._key, NEXT), nexts)
            if len(self._later.frames) >= PARTS:
                ahead = united(self._later.frames).where(F.col(NEXT) > height).distinct()
                self._later.frames = [self._keep(self._tables.checkpoint(ahead))]
        measured = self._measures.read(found)
        if not any(measured.changed.values()):
            return None
        changes = table.frame.where(F.col(WEIGHT) != 0).drop(NEXT)
        batch = FrameBatch(self._subject.versions, height, changes, list(self._entered.frames), measured)
        self._entered.add(changes, {})
        self._unite(self._entered, [*self._key, HEIGHT])
        return batch

    def _settled(self, height: int, few: bool) -> DataFrame:
        """(rel, c0 .., weight, next): what to add to the entry at `height`, and where to look next."""
        touched = [f.where(F.col(HEIGHT) == height).select(*self._key) for f in self._pushed.frames]
        touched += [f.where(F.col(NEXT) == height).select(*self._key) for f in self._later.frames]
        sources = []
        for frame in self._pushed.frames:
            sources.append(self._row(frame, F.col(HEIGHT), F.col(WEIGHT), long(0), F.col(HEIGHT) == height))
        for frame in self._later.frames:
            here = frame.where(F.col(NEXT) == height)
            sources.append(self._row(here, F.lit(height), long(0), long(0), F.lit(True)))
        old = [
            self._row(f, F.col(HEIGHT), long(0), F.col(WEIGHT), F.lit(False)) for f in self._entered.frames
        ]
        if not self._subject.rebuilt:
            for number, version in enumerate(self._subject.versions.values()):
                rows = version.frame()
                if rows is not None:
                    wide = rows.select(
                        F.lit(number).alias(REL),
                        *padded(version.arity, self._subject.width),
                        HEIGHT,
                        SUPPORT,
                        ENTRY,
                    )
                    old.append(self._row(wide, F.col(HEIGHT), F.col(SUPPORT), F.col(ENTRY), F.lit(False)))
        if few:
            spots = F.broadcast(self._settling.spots(united(touched)).distinct())
            old = [self._settling.at_spots(frame, spots) for frame in old]
        return self._settling.settled(united([*sources, *old]), height)

    def _row(
        self, frame: DataFrame, height: Column, support: Column, entry: Column, touched: Column
    ) -> DataFrame:
        return frame.select(
            *self._key,
            height.alias(HEIGHT),
            support.alias(SUPPORT),
            entry.alias(ENTRY),
            touched.alias(TOUCHED),
        )

    # ---- the end

    def _layers(self, number: int, version: Version) -> list[Table]:
        key = columns(version.arity)
        mine = F.col(REL) == number
        supports = [F.col(WEIGHT).alias(SUPPORT), long(0).alias(ENTRY)]
        entries = [long(0).alias(SUPPORT), F.col(WEIGHT).alias(ENTRY)]
        rows = [f.where(mine).select(*key, HEIGHT, *supports) for f in self._pushed.frames]
        rows += [f.where(mine).select(*key, HEIGHT, *entries) for f in self._entered.frames]
        if not rows:
            return []
        spread = united(rows).repartition(self._tables.partitions, *key) if key else united(rows)
        return [self._tables.checkpoint(summed(spread, version.arity), self._rows)]


def compared(
    version: Version, layer: Table, rebuilt: bool, stratum: Stratum, tables: Tables
) -> tuple[Seen, int]:
    """What the tuples of a layer over `version` were and are, and how many rows the layer has. rebuilt: the layer
    replaces the version, so all tuples of both are told."""
    key = columns(version.arity)
    parts = [layer.frame.withColumns({NEW: long(1), TOUCHED: F.lit(True)})]
    rows = version.frame()
    if rows is not None:
        if not rebuilt and tables.small(layer.rows) and key:
            wanted = F.broadcast(layer.frame.select(*key).distinct())
            rows = rows.join(wanted, key, "left_semi").select(*rows.columns)
        parts.append(rows.withColumns({NEW: long(0), TOUCHED: F.lit(rebuilt)}))
    old, at = F.col(NEW) == 0, F.col(HEIGHT)
    sides = {"was": old, "is": ~old if rebuilt else F.lit(True)}
    split = {
        f"{side}_{name}": F.when(flag, F.col(name)).otherwise(0)
        for side, flag in sides.items()
        for name in (SUPPORT, ENTRY)
    }
    told = united(parts).withColumns(split)
    signed = version.signed or stratum.signed
    if signed:
        # An entry of one layer may take back that of another.
        told = told.groupBy(*key, HEIGHT).agg(
            *(F.sum(name).alias(name) for name in split),
            F.max(TOUCHED).alias(TOUCHED),
            F.sum(NEW).alias(NEW),
        )
    values = {}
    for side in sides:
        support, entry = f"{side}_{SUPPORT}", f"{side}_{ENTRY}"
        values[f"{side}_asserted"] = _sum_if(at == 0, support)
        values[f"{side}_derived"] = _sum_if(at > 0, support)
        values[f"{side}_present"] = F.sum(entry)
        last = F.max(F.when(F.col(entry) > 0, at))
        # A tuple that has one entry is there from its height on.
        values[f"{side}_height"] = F.coalesce(last, long(0)) if signed else F.sum(at * F.col(entry))
    summary = told.groupBy(*key).agg(
        *(value.alias(name) for name, value in values.items()),
        F.max(TOUCHED).alias(TOUCHED),
        F.sum(NEW).alias(NEW),
    )
    compared_rows = layer.rows + (version.rows if rebuilt else 0)
    table = tables.collect(summary.where(TOUCHED), small=tables.small(compared_rows))
    fold = stratum.in_place.get(version.name)
    was, now = (
        described_as(own, *(array_of(table, name) for name in values if name.startswith(side)))
        for side, own in (("was", version.fold), ("is", fold))
    )
    seen = Seen(codes_of(table, version.arity), was, now, fold)
    return seen, int(array_of(table, NEW).sum())


def _rows_by(found: pa.Table, column: str) -> dict[int, int]:
    """How many ROWS have each value of a column that is not null."""
    known = found.filter(found.column(column).is_valid())
    values, rows = array_of(known, column), array_of(known, ROWS)
    return {value: int(rows[values == value].sum()) for value in np.unique(values).tolist()}


def _sum_if(condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, F.col(name)).otherwise(0))
