"""What one stratum's epoch keeps between its heights, whoever keeps it: the driver or the executors.

The driver of a stratum (stratum.py) pushes supports, asks for the next height and settles it: the entries that must
change there, which it then joins with everything. While all that is small, `LocalWork` keeps it in the driver; when
it no longer is, it hands over to `FrameWork`. What is large from the start, only grows and has nothing derived yet is
`AnewWork`'s (anew.py). All do the same, and tests compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.circuit.plan import Start
from engine.data.arrow import HEIGHT, Array, array_of, to_arrow
from engine.data.codes import Codes
from engine.maintenance.change import RelationChange
from engine.maintenance.placement import Encode
from engine.resident.relation import hidden_of
from engine.spark.changes import Changes
from engine.spark.frames import DERIVATIONS, REL, WEIGHT
from engine.spark.tables import Table, Tables
from engine.spark.version import Counts, Version


@dataclass(frozen=True)
class Subject:
    """What the work is on. `versions`: the stratum's relations as they were, in the order of their numbers; `rebuilt`:
    they are made anew from nothing, and `versions` are only what the result is compared with."""

    versions: Mapping[str, Version]
    rebuilt: bool
    stratum: Stratum
    tables: Tables
    encode: Encode

    @cached_property
    def names(self) -> list[str]:
        return list(self.versions)

    @cached_property
    def width(self) -> int:
        """The arity of the widest relation."""
        return max(version.arity for version in self.versions.values())

    def rows(self, name: str, codes: Codes, **more: Array) -> pa.Table:
        """(rel, c0 .., more): tuples of one relation, as wide as the stratum's."""
        wide = np.zeros((len(codes), self.width), np.int64)
        wide[:, : codes.shape[1]] = codes
        rel = pa.array(np.full(len(codes), self.names.index(name), np.int32))
        return to_arrow(wide, **more).add_column(0, REL, rel)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One relation after the stratum's epoch: its new version, and what changed for a reader."""

    version: Version
    change: RelationChange


class Batch(Protocol):
    """The entry changes of one height."""

    height: int

    def net(self) -> Mapping[str, int]:
        """By relation, the sum of the changes: by how many tuples it grew."""

    def fitting(self, start: Start) -> int:
        """How many changes fit the starting atom."""

    def of(self, relation: str) -> Changes | None:
        """The changes of one relation; None where there are none. The same object each time."""

    def earlier(self, relation: str) -> DataFrame | None:
        """(c0 .. cn, height, weight): all entry changes of the epoch before this batch. The same frame each time."""


@dataclass(frozen=True, slots=True)
class Supports:
    """Pushed supports: (rel, c0 .., height, weight, derivations), each tuple once for a height.

    changed: by height, how many of them change something. falls: whether some are taken away. derivations: their sum.
    marks: the negative `rel`s, which say what rules met a binding without a value (branches.py).
    """

    table: Table
    changed: Mapping[int, int]
    falls: bool
    derivations: int
    marks: Sequence[int]

    @classmethod
    def local(cls, table: Table) -> Supports:
        """Rows in the driver."""
        rel, heights, weights = (array_of(table.local, name) for name in (REL, HEIGHT, WEIGHT))
        at, numbers = np.unique(heights[weights != 0], return_counts=True)
        return cls(
            table,
            dict(zip(at.tolist(), numbers.tolist(), strict=True)),
            bool((weights < 0).any()),
            int(array_of(table.local, DERIVATIONS).sum()),
            np.unique(rel[rel < 0]).tolist(),
        )


def on_executors(rows: DataFrame, tables: Tables) -> Supports:
    """Supports that are computed and kept there."""
    measures = [
        f"count_if({WEIGHT} != 0) AS changed",
        f"min({WEIGHT}) AS least",
        f"sum({DERIVATIONS}) AS {DERIVATIONS}",
        f"collect_set(if({REL} < 0, {REL}, null)) AS marks",
    ]
    table, found = tables.measured(rows, [HEIGHT], [F.expr(measure) for measure in measures])
    heights, numbers = array_of(found, HEIGHT).tolist(), array_of(found, "changed").tolist()
    marks = {mark for some in found.column("marks").to_pylist() for mark in some}
    return Supports(
        table,
        {height: number for height, number in zip(heights, numbers, strict=True) if number},
        bool((array_of(found, "least") < 0).any()),
        int(array_of(found, DERIVATIONS).sum()),
        sorted(marks),
    )


def in_place(stratum: Stratum) -> dict[str, Fold]:
    """The folds over a relation's own tuples, by relation."""
    return {fold.target: fold for fold in stratum.folds if not fold.sources}


def begun(version: Version, rebuilt: bool, stratum: Stratum) -> Version:
    """What an epoch's layer is added to: the old layers, or none where the relation is made anew."""
    old = Version(version.name, version.arity) if rebuilt else version
    return replace(old, fold=in_place(stratum).get(version.name), signed=stratum.signed)


class Work(Protocol):
    """See the module."""

    def push(self, supports: Supports) -> int:
        """Add supports; returns the sum of derivations."""

    def next_height(self) -> int | None:
        """The least height at which something is to be looked at."""

    def settle(self, height: int) -> Batch | None:
        """Bring the entries at `height` up to date; None if none changes."""

    def finish(self) -> dict[str, Outcome]:
        """The stratum's relations after the epoch."""

    def release(self) -> None:
        """Give back what is not part of an outcome."""


Values = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Seen:
    """asserted, derived and present of some tuples, before and after, int64[n] each. fold: that in place afterwards."""

    codes: Codes
    before: Values
    after: Values
    fold: Fold | None = None

    def change(self) -> RelationChange:
        """What a reader can see of it."""
        (was_asserted, was_derived, was_present), (asserted, derived, present) = self.before, self.after
        moved = present - was_present
        changed = (asserted != was_asserted) | ((derived > 0) != (was_derived > 0)) | (moved != 0)
        # All is the rule where a relation is made, and then nothing is copied.
        seen = slice(None) if changed.all() else changed
        return RelationChange(
            self.codes[seen],
            asserted[seen],
            derived[seen] > 0,
            moved[seen].astype(np.int8),
            was_asserted[seen] > 0,
            was_derived[seen] > 0,
            hidden_of(self.fold, asserted[seen], present[seen]),
        )

    def counts(self, counts: Counts) -> Counts:
        """`counts` brought from before to after."""
        asserted, derived, present = (
            int(np.count_nonzero(after > 0)) - int(np.count_nonzero(before > 0))
            for before, after in zip(self.before, self.after, strict=True)
        )
        return counts.plus(present, asserted, derived)
