"""The work on a stratum when it is large: on the executors, as DataFrames.

A height is settled by one aggregation over the epoch's pushed supports, its entry changes and the relations' old
layers: for each touched tuple the supports below and up to the height, the entry that it has there, and the next
height at which it is to be looked at. Where few tuples are touched, the old layers are cut down to them first.

The parts that an epoch collects are united when they are many, so that the plan of a height stays small however many
heights came before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns
from engine.circuit.circuit import Stratum
from engine.circuit.plan import Start
from engine.placement import Encode
from engine.spark.frames import DERIVATIONS, REL, WEIGHT, long, padded, united
from engine.spark.lowering import fits
from engine.spark.settling import NEXT, TOUCHED, Settling
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.version import Version, empty_layer, summed
from engine.spark.work import MARKS, Outcome, Seen, Supports, begun, in_place

CHANGED, NEW = "changed", "new"
PARTS = 8
"""Parts from which they are united."""


@dataclass
class _Parts:
    """What was collected so far; `looks`: how many of its rows ask for a look at each height."""

    frames: list[DataFrame] = field(default_factory=list)
    looks: dict[int, int] = field(default_factory=dict)

    def add(self, frame: DataFrame, looks: Mapping[int, int]) -> None:
        self.frames.append(frame)
        for height, number in looks.items():
            self.looks[height] = self.looks.get(height, 0) + number


class FrameWork:
    """See the module. `versions`, `rebuilt` and `stratum` are as in `LocalWork`. One query tells which of the plans'
    starting atoms have nothing to start from."""

    def __init__(
        self,
        versions: Mapping[str, Version],
        rebuilt: bool,
        stratum: Stratum,
        tables: Tables,
        encode: Encode,
    ) -> None:
        self.versions = versions
        self.rebuilt = rebuilt
        self.names = list(versions)
        self.width = max(version.arity for version in versions.values())
        self.encode = encode
        starts = [plan.start for rule in stratum.rules for plan in rule.plans]
        self.starts = list(dict.fromkeys(start for start in starts if start.relation in versions))
        self._stratum = stratum
        by_number = {self.names.index(name): fold for name, fold in in_place(stratum).items()}
        self._settling = Settling(self.width, by_number, stratum.signed, tables.partitions)
        self._tables = tables
        self._key = [REL, *columns(self.width)]
        self._pushed, self._entered, self._later = _Parts(), _Parts(), _Parts()
        self._held: list[Table] = []
        self._rows = 0

    def release(self) -> None:
        for table in self._held:
            self._tables.release(table)
        self._held.clear()

    # ---- supports

    @staticmethod
    def measures() -> list[Column]:
        """What `push` must know of supports, by height."""
        changed = F.sum((F.col(WEIGHT) != 0).cast("long"))
        marks = F.collect_set(F.when(F.col(REL) < 0, F.col(REL)))
        return [changed.alias(CHANGED), F.sum(DERIVATIONS).alias(DERIVATIONS), marks.alias(MARKS)]

    def push(self, supports: Supports) -> int:
        self._held.append(supports.table)
        found = supports.by_height
        looks = dict(zip(array_of(found, HEIGHT).tolist(), array_of(found, CHANGED).tolist(), strict=True))
        looks = {height: number for height, number in looks.items() if number}
        if looks:
            changed = supports.table.frame.where(F.col(WEIGHT) != 0)
            self._pushed.add(changed.select(*self._key, HEIGHT, WEIGHT), looks)
            self._rows += sum(looks.values())
            self._unite(self._pushed, [*self._key, HEIGHT])
        return supports.derivations

    def take_over(self, pushed: pa.Table, entered: pa.Table | None, scheduled: pa.Table | None) -> None:
        """Go on with work that was done elsewhere: what it pushed and entered, and what it was about to look at."""
        self._pushed.add(self._put(pushed), {})
        self._rows += pushed.num_rows
        if entered is not None:
            self._entered.add(self._put(entered), {})
        if scheduled is not None:
            heights, numbers = np.unique(array_of(scheduled, NEXT), return_counts=True)
            self._later.add(self._put(scheduled), dict(zip(heights.tolist(), numbers.tolist(), strict=True)))

    def _put(self, rows: pa.Table) -> DataFrame:
        table = self._tables.put(rows)
        self._held.append(table)
        return table.frame

    def _unite(self, parts: _Parts, key: list[str]) -> None:
        if len(parts.frames) >= PARTS:
            rows = united(parts.frames).groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
            table = self._tables.checkpoint(rows.where(F.col(WEIGHT) != 0))
            self._held.append(table)
            parts.frames = [table.frame]

    # ---- heights

    def next_height(self) -> int | None:
        return min([*self._pushed.looks, *self._later.looks], default=None)

    def settle(self, height: int) -> FrameBatch | None:
        looks = self._pushed.looks.pop(height, 0) + self._later.looks.pop(height, 0)
        settled = self._settled(height, looks <= self._tables.local_rows)
        table, found = self._tables.measured(settled, [REL, NEXT], measures(self))
        self._held.append(table)
        batch = FrameBatch(self, height, table, found, list(self._entered.frames))
        if batch.nexts:
            self._later.add(table.frame.where(F.col(NEXT).isNotNull()).select(*self._key, NEXT), batch.nexts)
            if len(self._later.frames) >= PARTS:
                ahead = united(self._later.frames).where(F.col(NEXT) > height).distinct()
                self._later.frames = [self._keep(ahead)]
        if not any(batch.changed.values()):
            return None
        self._entered.add(batch.rows(), {})
        self._unite(self._entered, [*self._key, HEIGHT])
        return batch

    def _keep(self, frame: DataFrame) -> DataFrame:
        table = self._tables.checkpoint(frame)
        self._held.append(table)
        return table.frame

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
        if not self.rebuilt:
            for number, version in enumerate(self.versions.values()):
                rows = version.frame()
                if rows is not None:
                    wide = rows.select(
                        F.lit(number).alias(REL), *padded(version.arity, self.width), HEIGHT, SUPPORT, ENTRY
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

    def finish(self) -> dict[str, Outcome]:
        return {name: self._finish(number, name) for number, name in enumerate(self.names)}

    def _finish(self, number: int, name: str) -> Outcome:
        version = self.versions[name]
        key = columns(version.arity)
        mine = F.col(REL) == number
        supports = [F.col(WEIGHT).alias(SUPPORT), long(0).alias(ENTRY)]
        entries = [long(0).alias(SUPPORT), F.col(WEIGHT).alias(ENTRY)]
        rows = [f.where(mine).select(*key, HEIGHT, *supports) for f in self._pushed.frames]
        rows += [f.where(mine).select(*key, HEIGHT, *entries) for f in self._entered.frames]
        if rows:
            spread = united(rows).repartition(self._tables.partitions, *key) if key else united(rows)
            layer = self._tables.checkpoint(summed(spread, version.arity), self._rows)
        else:
            # Nothing derives anything: a stratum that is made anew may come out empty.
            layer = self._tables.local(empty_layer(version.arity))
        try:
            seen, layer.rows = compared(version, layer, self.rebuilt, self._stratum, self._tables)
        except BaseException:
            self._tables.release(layer)
            raise
        if not layer.rows:
            self._tables.release(layer)
        base = begun(version, self.rebuilt, self._stratum)
        return Outcome(base.with_layer(layer, seen.counts(version.counts)), seen.change())


def compared(
    version: Version, layer: Table, rebuilt: bool, stratum: Stratum, tables: Tables
) -> tuple[Seen, int]:
    """What the tuples of a layer over `version` were and are, and how many rows the layer has. rebuilt: it replaces the
    version, and all tuples of both count."""
    key = columns(version.arity)
    parts = [layer.frame.withColumns({NEW: long(1), TOUCHED: F.lit(True)})]
    rows = version.frame()
    if rows is not None:
        if not rebuilt and layer.rows <= tables.local_rows and key:
            wanted = F.broadcast(layer.frame.select(*key).distinct())
            rows = rows.join(wanted, key, "left_semi").select(*rows.columns)
        parts.append(rows.withColumns({NEW: long(0), TOUCHED: F.lit(rebuilt)}))
    old, at = F.col(NEW) == 0, F.col(HEIGHT)
    now = ~old if rebuilt else F.lit(True)
    values = {}
    for side, flag in (("was", old), ("is", now)):
        values[f"{side}_asserted"] = _sum_if(flag & (at == 0), SUPPORT)
        values[f"{side}_derived"] = _sum_if(flag & (at > 0), SUPPORT)
        values[f"{side}_present"] = _sum_if(flag, ENTRY)
    summary = (
        united(parts)
        .groupBy(*key)
        .agg(
            *(value.alias(name) for name, value in values.items()),
            F.max(TOUCHED).alias(TOUCHED),
            F.sum(NEW).alias(NEW),
        )
    )
    table = tables.collect(summary.where(TOUCHED), small=layer.rows <= tables.local_rows)
    was_asserted, was_derived, was_present, asserted, derived, present = (array_of(table, v) for v in values)
    if version.fold is not None:
        was_derived = was_present
    if version.name in in_place(stratum):
        derived = present
    codes = codes_of(table, version.arity)
    seen = Seen(codes, (was_asserted, was_derived, was_present), (asserted, derived, present))
    return seen, int(array_of(table, NEW).sum())


def measures(work: FrameWork) -> list[Column]:
    """What `FrameBatch` must know of settled entries, by relation and next height."""
    changed = F.col(WEIGHT) != 0
    fitting = []
    for i, start in enumerate(work.starts):
        mine = F.col(REL) == work.names.index(start.relation)
        condition = changed & mine & F.expr(fits(start, work.encode))
        fitting.append(F.sum(condition.cast("long")).alias(f"start{i}"))
    return [F.sum(changed.cast("long")).alias(CHANGED), F.sum(WEIGHT).alias("net"), *fitting]


class FrameBatch:
    """The entry changes of one height, with what was measured of them: how many there are by relation, and which
    starting atoms some of them fit."""

    def __init__(
        self, work: FrameWork, height: int, table: Table, found: pa.Table, earlier: list[DataFrame]
    ) -> None:
        self.height = height
        self.changed: dict[str, int] = {}
        self.nexts: dict[int, int] = {}
        self._work = work
        self._table = table
        self._earlier_parts = earlier
        self._changes: dict[str, DataFrame] = {}
        self._earlier: dict[str, DataFrame] = {}
        self._net: dict[str, int] = {}
        self._fitting: dict[Start, int] = {}
        for row in found.to_pylist():
            name = work.names[row[REL]]
            self.changed[name] = self.changed.get(name, 0) + row[CHANGED]
            self._net[name] = self._net.get(name, 0) + row["net"]
            if row[NEXT] is not None:
                self.nexts[row[NEXT]] = self.nexts.get(row[NEXT], 0) + row[ROWS]
            for i, start in enumerate(work.starts):
                self._fitting[start] = self._fitting.get(start, 0) + row[f"start{i}"]

    def rows(self) -> DataFrame:
        """(rel, c0 .., height, weight)."""
        return self._table.frame.where(F.col(WEIGHT) != 0).drop(NEXT)

    def net(self) -> Mapping[str, int]:
        return self._net

    def fitting(self, start: Start) -> int:
        return self._fitting.get(start, 0)

    def changes(self, relation: str) -> DataFrame | None:
        return self._of(relation, [self.rows()], self._changes) if self.changed.get(relation) else None

    def earlier(self, relation: str) -> DataFrame | None:
        return self._of(relation, self._earlier_parts, self._earlier) if self._earlier_parts else None

    def _of(self, relation: str, parts: list[DataFrame], known: dict[str, DataFrame]) -> DataFrame:
        if relation not in known:
            mine = F.col(REL) == self._work.names.index(relation)
            key = columns(self._work.versions[relation].arity)
            known[relation] = united(parts).where(mine).select(*key, HEIGHT, WEIGHT)
        return known[relation]


def _sum_if(condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, F.col(name)).otherwise(0))
