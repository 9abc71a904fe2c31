"""Supports that are pushed to a stratum's relations at one moment, in the driver or on the executors.

The relations of a stratum travel together, as (rel, c0 .., height, weight, derivations): `rel` is the number of the
relation, and narrower tuples are padded with zeros (frames.py). `Subject` says which relations these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.data.arrow import HEIGHT, Array, array_of, to_arrow
from engine.data.codes import Codes
from engine.maintenance.placement import Encode
from engine.spark.frames import DERIVATIONS, REL, WEIGHT
from engine.spark.tables import Table, Tables
from engine.spark.version import Version


@dataclass(frozen=True)
class Subject:
    """The relations of one stratum. `versions`: the relations as they were, in the order of their numbers; `rebuilt`:
    they are computed from nothing, and `versions` serve only for a comparison with the result.
    """

    versions: Mapping[str, Version]
    rebuilt: bool
    stratum: Stratum
    tables: Tables
    encode: Encode

    @property
    def from_nothing(self) -> bool:
        """Whether the whole result is computed in this epoch."""
        return self.rebuilt or not any(version.rows for version in self.versions.values())

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
class Supports:
    """Pushed supports: (rel, c0 .., height, weight, derivations), each tuple once for a height.

    changed: by height, how many of them change something. falls: whether some are taken away. derivations: their sum.
    marks: the negative `rel`s, which say which rules met a binding without a value (branches.py).
    """

    table: Table
    changed: Mapping[int, int]
    falls: bool
    derivations: int
    marks: Sequence[int]

    @property
    def in_driver(self) -> bool:
        """Whether the rows are in the driver."""
        return self.table.local is not None

    def in_driver_of(self, tables: Tables) -> Supports:
        """The same supports in the driver; those on the executors are given back."""
        if self.in_driver:
            return self
        brought = Supports.local(tables.local(tables.collect(self.table.frame)))
        tables.release(self.table)
        return brought

    @classmethod
    def local(cls, table: Table) -> Supports:
        """Supports whose rows are in the driver."""
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
    """Supports that are computed and kept on the executors."""
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
