"""The state of one relation: an immutable sum of layers.

A layer is a table of (c0 .. cn, height, support, entry); the relation's supports and entries are the layers' sums by
tuple and height. An epoch adds at most one layer, so to drop an epoch is to forget its layer, and a small epoch costs
nothing that is proportional to the relation. `compacted` sums layers up when there are many, or when the later ones
together are as large as the first: so every row is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns, summed_by, to_arrow
from engine.data.codes import Codes
from engine.resident.layout import I32
from engine.resident.relation import Relation
from engine.spark.frames import WEIGHT, united
from engine.spark.tables import Table, Tables

MANY = 6
"""The number of layers at which a relation is compacted."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of present, asserted and derived tuples, and of tuples that are any of these (`held`)."""

    present: int = 0
    asserted: int = 0
    derived: int = 0

    def plus(self, present: int, asserted: int, derived: int) -> Counts:
        return Counts(self.present + present, self.asserted + asserted, self.derived + derived)


@dataclass(frozen=True, slots=True)
class Version:
    """See the module. The budget's watch uses `name`, `live` and `memory`."""

    name: str
    arity: int
    layers: tuple[Table, ...] = ()
    counts: Counts = Counts()
    fold: Fold | None = None
    """Whether the relation is folded in place: of the supported tuples only the best of each group are present, and
    only these count as derived.
    """
    signed: bool = False
    """A tuple may have several entries, some of them negative."""

    @property
    def live(self) -> int:
        """Tuples that are present."""
        return self.counts.present

    def memory(self) -> int:
        """Bytes held: measured in the driver, computed from the row's width on the executors."""
        # Beside the tuple stand height, support and entry; and Spark keeps some words of its own for each row.
        stored = sum(table.rows for table in self.stored) * 8 * (self.arity + 5)
        return stored + sum(int(table.nbytes) for table in self.local)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.layers)

    @property
    def stored(self) -> list[Table]:
        """The layers on the executors."""
        return [table for table in self.layers if table.local is None]

    @property
    def local(self) -> list[pa.Table]:
        """The layers in the driver."""
        return [table.local for table in self.layers if table.local is not None]

    def frame(self) -> DataFrame | None:
        """All rows of all layers; None for an empty relation."""
        return self._united(self.layers)

    def stored_frame(self) -> DataFrame | None:
        """All rows of the layers on the executors; None if there are none."""
        return self._united(self.stored)

    def _united(self, layers: Sequence[Table]) -> DataFrame | None:
        frames = [table.frame.select(*columns(self.arity), HEIGHT, SUPPORT, ENTRY) for table in layers]
        return united(frames) if frames else None

    def entries(self) -> DataFrame | None:
        """(c0 .. cn, height, weight): the entries, to be summed up; None for an empty relation."""
        rows = self.frame()
        if rows is None:
            return None
        return rows.where(F.col(ENTRY) != 0).select(*columns(self.arity), HEIGHT, F.col(ENTRY).alias(WEIGHT))

    def with_layer(self, layer: Table, counts: Counts) -> Version:
        layers = (*self.layers, layer) if layer.rows else self.layers
        return replace(self, layers=layers, counts=counts)


def consolidated(version: Version) -> DataFrame | None:
    """The rows of a version with equal ones summed up and zeros left out."""
    rows = version.frame()
    if rows is None:
        return None
    return summed(rows, version.arity)


def collected(version: Version, tables: Tables) -> pa.Table:
    """The same in the driver; without a query if all rows are there."""
    if not version.stored:
        return summed_in_driver(version, [*columns(version.arity), HEIGHT], [SUPPORT, ENTRY])
    rows = consolidated(version)
    assert rows is not None, "it has layers"
    return tables.collect(rows, small=tables.small(version.rows))


def summed_in_driver(version: Version, key: list[str], values: list[str]) -> pa.Table:
    """Sums of `values` by `key` over the layers in the driver, without rows where all of them are zero."""
    layers = [part.select([*key, *values]) for part in version.local or [empty_layer(version.arity)]]
    sums = summed_by(pa.concat_tables(layers), key, values)
    return sums.filter(reduce(or_, (pc.field(value) != 0 for value in values)))


def asserted_in_driver(version: Version) -> tuple[Codes, Codes]:
    """The facts (codes, weights) of a relation whose layers are all in the driver."""
    key = [*columns(version.arity), HEIGHT]
    rows = summed_in_driver(version, key, [SUPPORT]).filter(pc.field(HEIGHT) == 0)
    return codes_of(rows, version.arity), array_of(rows, SUPPORT)


def last_height(version: Version, tables: Tables) -> int:
    """The greatest height of a row, 0 if there is none; a query for each layer on the executors."""
    found = [int(array_of(part, HEIGHT).max(initial=0)) for part in version.local]
    for table in version.stored:
        row = tables.collect(table.frame.agg(F.max(HEIGHT).alias(HEIGHT))).column(HEIGHT)[0]
        found.append(row.as_py() or 0)
    return max(found, default=0)


def entries_in_driver(version: Version, grounded: bool) -> Change | None:
    """The entries of a relation that is in the driver. grounded: at height 0, as a higher stratum sees them."""
    if version.stored:
        return None
    key = columns(version.arity) if grounded else [*columns(version.arity), HEIGHT]
    rows = summed_in_driver(version, key, [ENTRY])
    heights = np.zeros(rows.num_rows, np.int64) if grounded else array_of(rows, HEIGHT)
    return codes_of(rows, version.arity), heights.astype(np.int32), array_of(rows, ENTRY)


def summed(rows: DataFrame, arity: int) -> DataFrame:
    """Sums of support and entry by tuple and height, without those that are both zero."""
    return (
        rows.groupBy(*columns(arity), HEIGHT)
        .agg(F.sum(SUPPORT).alias(SUPPORT), F.sum(ENTRY).alias(ENTRY))
        .where((F.col(SUPPORT) != 0) | (F.col(ENTRY) != 0))
    )


def compacted(version: Version, tables: Tables) -> Version:
    """The same relation in fewer layers; the caller releases the old ones."""
    local, stored = version.local, version.stored
    small = sum(table.num_rows for table in local)
    largest = max((table.rows for table in stored), default=0)
    rest = version.rows - largest
    if tables.small(small) and (not stored or (len(stored) <= MANY and rest * 2 <= largest)):
        if len(local) <= 1:
            return version
        layers = (*stored, *_nonempty(tables.local(_merged(local, version.arity))))
        return replace(version, layers=layers)
    rows = consolidated(version)
    assert rows is not None, "there is more than one layer"
    spread = rows.repartition(tables.partitions, *columns(version.arity)) if version.arity else rows
    return replace(version, layers=_nonempty(tables.checkpoint(spread)))


def empty_layer(arity: int) -> pa.Table:
    """A layer without rows."""
    return layer(arity, [], [])


def _nonempty(table: Table) -> tuple[Table, ...]:
    return (table,) if table.rows else ()


def _merged(parts: list[pa.Table], arity: int) -> pa.Table:
    """Layers in the driver summed up."""
    whole = pa.concat_tables(parts)
    codes, heights = codes_of(whole, arity), array_of(whole, HEIGHT).astype(np.int32)
    return layer(
        arity, [(codes, heights, array_of(whole, SUPPORT))], [(codes, heights, array_of(whole, ENTRY))]
    )


Change = tuple[Codes, I32, Codes]
"""(codes, heights, weights)."""


def layer(arity: int, supports: list[Change], entries: list[Change]) -> pa.Table:
    """A layer from changes of supports and of entries, each summed up by tuple and height."""
    parts = []
    for changes, of_supports in ((supports, True), (entries, False)):
        tally = Relation("", arity)
        for codes, heights, weights in changes:
            some = np.flatnonzero(weights)
            if len(some):
                tally.push(
                    np.ascontiguousarray(codes[some]), np.ascontiguousarray(heights[some]), weights[some]
                )
        rows, at, sums = tally.supports()
        none = np.zeros(1, np.int64)
        support, entry = (sums, none) if of_supports else (none, sums)
        parts.append(to_arrow(tally.codes(rows), height=at, support=support, entry=entry))
    return pa.concat_tables(parts)
