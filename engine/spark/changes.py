"""Weighted tuples of one relation, in the driver or on the executors: the start of a plan, or the entry changes of a
height.

In the driver they are arrays, so that counting, projecting and watching them needs no query. On the executors they are
a frame. A frame is available in both cases, because a query that joins the tuples reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import Start
from engine.data.arrow import HEIGHT, array_of, codes_of, columns
from engine.data.codes import Codes
from engine.maintenance.placement import Encode
from engine.spark.frames import WEIGHT
from engine.spark.tables import Table, Tables
from engine.spark.version import Change, Version, entries_in_driver


class Changes:
    """Some tuples of a relation of `arity` columns, with heights and weights.

    `read` returns the arrays, or None if the tuples are on the executors; `make` returns the frame (c0 .., height,
    weight). Each is called when it is first needed, and once, so that all plans of a query read the same frame.
    """

    def __init__(self, arity: int, read: Callable[[], Change | None], make: Callable[[], DataFrame]) -> None:
        self._arity, self._read, self._make = arity, read, make

    @classmethod
    def below(cls, delta: Table, arity: int) -> Changes:
        """The changes of a relation of a lower stratum, (c0 .., weight); their height is 0."""

        def read() -> Change | None:
            if delta.local is None:
                return None
            codes = codes_of(delta.local, arity)
            return codes, np.zeros(len(codes), np.int32), array_of(delta.local, WEIGHT)

        return cls(arity, read, lambda: delta.frame.select("*", F.lit(0).alias(HEIGHT)))

    @classmethod
    def entries(cls, version: Version, grounded: bool, make: Callable[[], DataFrame | None]) -> Changes:
        """All entries of a relation that has some. grounded: at height 0, as a higher stratum sees them."""

        def made() -> DataFrame:
            frame = make()
            assert frame is not None, "the relation has entries"
            return frame

        return cls(version.arity, lambda: entries_in_driver(version, grounded), made)

    @cached_property
    def arrays(self) -> Change | None:
        """(codes, heights, weights), or None if the tuples are on the executors."""
        return self._read()

    @cached_property
    def frame(self) -> DataFrame:
        """(c0 .., height, weight)."""
        return self._make()

    def fitting(self, start: Start, encode: Encode, rows: int) -> int:
        """How many of the `rows` tuples fit a starting atom; an upper bound if they are on the executors."""
        if not (start.constants or start.equal) or self.arrays is None:
            return rows
        return count_fitting(self.arrays[0], start, encode)

    def weighted(self, tables: Tables) -> tuple[Codes, Codes]:
        """The tuples and their weights, in the driver; takes a query if they are on the executors."""
        if self.arrays is not None:
            return self.arrays[0], self.arrays[2]
        table = tables.collect(self.frame.select(*columns(self._arity), WEIGHT), small=False)
        return codes_of(table, self._arity), array_of(table, WEIGHT)


def which_fit(codes: Codes, start: Start, encode: Encode) -> npt.NDArray[np.bool_]:
    """Which tuples fit a starting atom's constants and repeated variables."""
    fits = np.ones(len(codes), bool)
    for c, constant in start.constants:
        fits &= codes[:, c] == encode(constant)
    for a, b in start.equal:
        fits &= codes[:, a] == codes[:, b]
    return fits


def count_fitting(codes: Codes, start: Start, encode: Encode) -> int:
    """How many tuples fit."""
    return int(np.count_nonzero(which_fit(codes, start, encode)))
