"""A large change of a relation, which stays on the executors.

In: a frame of (c0 .., asserted, derived, present, was_asserted, was_derived, hidden, height, was_height), as in
`RelationChange`, each tuple once; flags are booleans, everything else is long. Out: a `Change` of which the driver has
only the numbers. The strata above read `moved`, executors publish `frame` and `live`, and whoever needs the tuples
asks for `here`.

Always: the tables that the frame reads live as long as the change, which is one of their holders; and so do the layers
of the relation as the epoch left it. When nobody has the change any more, it leaves them to the placement
(`Tables.left`). When the placement is closed they go all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.data.arrow import HEIGHT, array_of, codes_of, columns
from engine.errors import SparkStateLostError
from engine.maintenance.change import Change, Net, RelationChange
from engine.spark.described import (
    ASSERTED,
    CHANGED,
    DERIVED,
    HIDDEN,
    PRESENT,
    WAS_ASSERTED,
    WAS_DERIVED,
    WAS_HEIGHT,
    live,
)
from engine.spark.frames import WEIGHT
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.version import Counts, Version


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the driver knows of a change: see `Change`."""

    rows: int
    inserted: int
    deleted: int
    heaviest: int
    net: Net

    def counts(self, before: Counts) -> Counts:
        """A relation's counts after the change."""
        return before.plus(*self.net)


MEASURES = {
    "inserted": f"count_if({PRESENT} > 0)",
    "deleted": f"count_if({PRESENT} < 0)",
    "heaviest": f"coalesce(max({ASSERTED}), 0L)",
    "more_asserted": f"count_if({ASSERTED} != 0) - count_if({WAS_ASSERTED} != 0)",
    "more_derived": f"count_if({DERIVED}) - count_if({WAS_DERIVED})",
}


def measured(frame: DataFrame, tables: Tables) -> tuple[Table, Numbers]:
    """A change computed and kept on the executors, and its numbers."""
    table, found = tables.measured(
        frame, [], [F.expr(f"{text} AS {name}") for name, text in MEASURES.items()]
    )
    n = {name: int(array_of(found, name)[0]) for name in (ROWS, *MEASURES)}
    net = Net(n["inserted"] - n["deleted"], n["more_asserted"], n["more_derived"])
    return table, Numbers(n[ROWS], n["inserted"], n["deleted"], max(n["heaviest"], 0), net)


class StoredChange:
    """See the module. version: the relation after the epoch. held: the tables that `frame` reads; from now on they are
    the change's to release."""

    def __init__(
        self, version: Version, frame: DataFrame, numbers: Numbers, held: Sequence[Table], tables: Tables
    ) -> None:
        self.arity = version.arity
        self.rows, self.inserted, self.deleted = numbers.rows, numbers.inserted, numbers.deleted
        self.heaviest, self.net = numbers.heaviest, numbers.net
        self.tables = tables
        self._version = version
        self._frame: DataFrame | None = frame
        kept = [*held, *(layer.retained() for layer in version.stored)]
        # A finalizer runs wherever the garbage collector happens to; so it only puts the tables on a list.
        self._end = weakref.finalize(self, tables.left.extend, kept)
        self._end.atexit = False
        tables.changes.add(self)

    @property
    def frame(self) -> DataFrame:
        """See the module.

        Raises:
            SparkStateLostError: the placement was closed.
        """
        if self._frame is None:
            raise SparkStateLostError(
                f"the {self.rows:,} changed tuples of this epoch were on Spark, and their placement was closed; "
                "ask for the changes before it is closed"
            )
        return self._frame

    @property
    def moved(self) -> Table:
        """(c0 .., weight): the tuples that came or went. The table owns no storage."""
        weight = F.col(PRESENT).alias(WEIGHT)
        rows = self.frame.where(F.col(PRESENT) != 0).select(*columns(self.arity), weight)
        return Table(self.inserted + self.deleted, None, rows)

    def live(self) -> DataFrame:
        """(c0 .., asserted, derived, hidden, height): all of the relation after the epoch, as the snapshot has it. Only
        for a relation that has tuples, before the placement is closed."""
        rows = self._version.frame()
        assert rows is not None, "it has tuples"
        assert self._frame is not None, "the placement is open"
        return live(rows, self.arity, self._version.fold, self._version.signed)

    def here(self) -> RelationChange:
        key = columns(self.arity)
        table = self.tables.collect(self.frame.select(*key, *CHANGED), small=False)
        return RelationChange(
            codes_of(table, self.arity),
            array_of(table, ASSERTED),
            _flags(table, DERIVED),
            array_of(table, PRESENT).astype(np.int8),
            array_of(table, WAS_ASSERTED),
            _flags(table, WAS_DERIVED),
            None if self._version.fold is None else _flags(table, HIDDEN),
            array_of(table, HEIGHT),
            array_of(table, WAS_HEIGHT),
        )

    def leave(self) -> None:
        """Leave the tables to the placement now; the tuples cannot be read any more."""
        self._frame = None
        self._end()


def settled(change: StoredChange) -> Change:
    """The change, in the driver if it is small."""
    return change.here() if change.tables.small(change.rows) else change


def _flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.array(table.column(name).to_numpy(), np.bool_)
