"""The other strategy on the executors, for a large stratum that only grows and of which no tuple is derived yet: one
query for each height.

This serves every bootstrap of a stratum whose entries are never taken back, since it has neither counts nor folds in
place. Its facts stay at height 0, and plans that start at the changes of one height derive supports of the next height
only. So only one thing matters of what was there before: which tuples are present. What the plans derive is summed up
together with the tuples that are known, in one aggregation, and a tuple enters if it has supports and is not known.
No tuple is settled twice, and what a height leaves is a layer of the new version.

This is semi-naive evaluation, with heights as its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, columns
from engine.spark.frames import DERIVATIONS, REL, WEIGHT, padded, united
from engine.spark.plans.branches import Branches
from engine.spark.supports import Subject, Supports
from engine.spark.tables import Table
from engine.spark.version import Version
from engine.spark.work.frame_batch import FrameBatch, Measured
from engine.spark.work.frames import PARTS, OnExecutors

MEASURES = 40
"""So many aggregates at most are taken of each row as it is computed; more are left to a query, which is compiled as a
whole."""
_KNOWN, _SUPPORTS = "known", "supports"


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of one height, or of several: (rel, c0 .., height, support, entry), a checkpoint or a view of one, and
    how many supports of each relation there are in it."""

    frame: DataFrame
    supports: Mapping[str, int]
    table: Table

    @property
    def rows(self) -> int:
        return sum(self.supports.values())


class SemiNaive(OnExecutors):
    """The strategy that the module describes."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._names = subject.names
        there = [] if subject.rebuilt else [v for v in subject.versions.values() if v.rows]
        self._old = [self._entries_of(version) for version in there]
        self._given: DataFrame | None = None
        self._outside: set[int] = set()
        """Heights of `_given` that are still to be looked at."""
        self._open: dict[int, tuple[_Part, Measured]] = {}
        """Heights that are computed and not settled."""
        self._parts: list[_Part] = []

    @staticmethod
    def possible(subject: Subject, given: Supports) -> bool:
        """Whether the stratum only grows and has nothing derived yet. given: what comes from outside the recursion."""
        fresh = subject.rebuilt or not any(v.counts.derived or v.signed for v in subject.versions.values())
        return fresh and not subject.stratum.signed and not given.falls

    def summed(self, branches: Branches, height: int, few: bool) -> Supports:
        """The sums are taken together with what is known, which computes the height; `settle` only reads it."""
        return branches.checked(self.derived(height, branches.take()))

    def push(self, supports: Supports) -> None:
        """The first supports come from outside the recursion. All later ones were made by `derived`, and are held."""
        if self._given is None:
            self._given = self._keep(supports.table).where(F.col(WEIGHT) != 0)
            self._outside = set(supports.changed)

    def next_height(self) -> int | None:
        return min([*self._outside, *self._open], default=None)

    def derived(self, height: int, rows: DataFrame | None) -> Supports:
        """Compute a height from what the plans derive there, (rel, c0 .., height, weight, derivations), not yet summed
        up, and from what is given there from outside."""
        nothing = f"0L AS {WEIGHT}", f"0L AS {DERIVATIONS}"
        parts = [] if rows is None else [rows.selectExpr(*self._key, WEIGHT, DERIVATIONS, f"0L AS {_KNOWN}")]
        if height in self._outside:
            parts.append(
                self._from_outside(height).selectExpr(*self._key, WEIGHT, nothing[1], f"0L AS {_KNOWN}")
            )
        for known in [*self._old, *map(_entries, self._parts)]:
            parts.append(known.selectExpr(*self._key, *nothing, f"{WEIGHT} AS {_KNOWN}"))
        sums = [
            F.sum(WEIGHT).alias(SUPPORT),
            F.sum(DERIVATIONS).alias(DERIVATIONS),
            F.sum(_KNOWN).alias(_KNOWN),
        ]
        # What is left out was only known.
        found = (
            united(parts)
            .groupBy(*self._key)
            .agg(*sums)
            .where(f"{SUPPORT} != 0 OR {DERIVATIONS} != 0 OR {REL} < 0")
        )
        entry = f"if({SUPPORT} > 0 AND {_KNOWN} = 0, 1L, 0L) AS {ENTRY}"
        rows = found.selectExpr(*self._key, f"{height} AS {HEIGHT}", SUPPORT, entry, DERIVATIONS)
        over_all = self._over_all()
        if len(over_all) <= MEASURES:
            table, told = self._tables.observed(rows, over_all)
            self._keep(table)
            supports = {name: told[f"{_SUPPORTS}{number}"] for number, name in enumerate(self._names)}
            measured, derivations = self._measures.read_all(told), told[DERIVATIONS]
            marks = self._marks(table.frame) if told[REL] < 0 else []
        else:
            table, by_rel = self._tables.measured(
                rows, [REL], [*self._measured(), F.sum(DERIVATIONS).alias(DERIVATIONS)]
            )
            self._keep(table)
            supports, measured = self._supports_in(by_rel), self._measures.read(by_rel)
            derivations = int(array_of(by_rel, DERIVATIONS).sum())
            rels = array_of(by_rel, REL)
            marks = rels[rels < 0].tolist()
        number = self._opened(height, _Part(table.frame.drop(DERIVATIONS), supports, table), measured)
        return Supports(table, {height: number} if number else {}, False, derivations, marks)

    def _over_all(self) -> dict[str, str]:
        found = self._measures.over_all(ENTRY)
        for number in range(len(self._names)):
            found[f"{_SUPPORTS}{number}"] = f"count_if({REL} = {number} AND {SUPPORT} != 0)"
        return found | {DERIVATIONS: f"sum({DERIVATIONS})", REL: f"min({REL})"}

    def _marks(self, rows: DataFrame) -> list[int]:
        """The negative `rel`s: few rules meet a binding without a value, so mostly this is not asked."""
        marks = self._tables.collect(rows.where(f"{REL} < 0").select(REL).distinct())
        found: list[int] = array_of(marks, REL).tolist()
        return found

    def settle(self, height: int) -> FrameBatch | None:
        if height not in self._open:
            if self._parts or self._old:
                self.derived(height, None)
            else:
                self._begin(height)
        self._outside.discard(height)
        here, measured = self._open.pop(height)
        self._unite()
        earlier = [_entries(part) for part in self._parts]
        self._parts.append(here)
        if not any(measured.changed.values()):
            return None
        return FrameBatch(self._subject.versions, height, _entries(here), earlier, measured)

    def _begin(self, height: int) -> None:
        """The first height: nothing is known, and what is given has been summed up."""
        rows = self._from_outside(height).selectExpr(
            *self._key, HEIGHT, f"{WEIGHT} AS {SUPPORT}", f"if({WEIGHT} > 0, 1L, 0L) AS {ENTRY}"
        )
        found = self._tables.collect(rows.groupBy(REL).agg(*self._measured()))
        part = _Part(rows, self._supports_in(found), self._held[0])
        self._opened(height, part, self._measures.read(found))

    def _measured(self) -> list[Column]:
        return [*self._measures.columns(ENTRY), F.expr(f"count_if({SUPPORT} != 0) AS {_SUPPORTS}")]

    def _entries_of(self, version: Version) -> DataFrame:
        """(rel, c0 .., weight): the entries before the epoch."""
        entries = version.entries()
        assert entries is not None, "it has rows"
        number = F.lit(self._names.index(version.name)).alias(REL)
        return entries.select(number, *padded(version.arity, self._subject.width), WEIGHT)

    def _from_outside(self, height: int) -> DataFrame:
        assert self._given is not None, "a height of it was asked for"
        return self._given.where(F.col(HEIGHT) == height)

    def _supports_in(self, found: pa.Table) -> dict[str, int]:
        """By relation, the number of supports."""
        return {self._names[row[REL]]: row[_SUPPORTS] for row in found.to_pylist() if row[REL] >= 0}

    def _opened(self, height: int, part: _Part, measured: Measured) -> int:
        """Note what came of a height; returns how many supports that is."""
        if part.rows:
            self._open[height] = part, measured
        return part.rows

    def _unite(self) -> None:
        """Keep the parts few, so that the plan of a height stays small."""
        if len(self._parts) < PARTS:
            return
        start = tail([part.rows for part in self._parts])
        parts = self._parts[start:]
        rows = united([part.frame for part in parts]).repartition(self._tables.partitions, *self._key)
        table = self._tables.checkpoint(rows, sum(part.rows for part in parts))
        self._keep(table)
        supports = {name: sum(part.supports.get(name, 0) for part in parts) for name in self._names}
        self._parts[start:] = [_Part(table.frame, supports, table)]

    def _layers(self, number: int, version: Version) -> list[Table]:
        """The parts themselves, where the stratum has no other relation; else a copy."""
        key = columns(version.arity)
        parts = [part for part in self._parts if part.supports.get(version.name)]
        frames = [
            part.frame.where(f"{REL} = {number} AND {SUPPORT} != 0").select(*key, HEIGHT, SUPPORT, ENTRY)
            for part in parts
        ]
        rows = [part.supports[version.name] for part in parts]
        if len(self._names) > 1:
            spread = [united(frames).repartition(self._tables.partitions, *key)] if frames else []
            return [self._tables.checkpoint(frame, sum(rows)) for frame in spread]
        for part in parts:
            self._held.remove(part.table)
        return [part.table.view(frame, n) for part, frame, n in zip(parts, frames, rows, strict=True)]


def _entries(part: _Part) -> DataFrame:
    """(rel, c0 .., height, weight)."""
    key = [name for name in part.frame.columns if name not in (SUPPORT, ENTRY)]
    return part.frame.where(f"{ENTRY} != 0").selectExpr(*key, f"{ENTRY} AS {WEIGHT}")


def tail(rows: Sequence[int]) -> int:
    """Where those parts begin that are to be united: the last two, and what is before them as long as it is not larger
    than all that follow, so that a row is written again a logarithmic number of times."""
    start, total = len(rows) - 1, rows[-1]
    while start > 0 and (start == len(rows) - 1 or rows[start - 1] <= total):
        start -= 1
        total += rows[start]
    return start
