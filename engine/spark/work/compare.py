"""What a stratum's work changed of a relation that a reader sees: where the epoch's new layer meets the older ones.

In: a relation before the epoch, and the layer that the epoch adds to it, or that replaces it. Out: its `Change` and its
counts. A small change comes to the driver, a large one stays on the executors; both say the same, and so does the
resident placement (engine/resident/changes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.data.arrow import array_of, codes_of, columns
from engine.resident.changes import described_as
from engine.spark.described import changed, side, summed_up
from engine.spark.frames import long, united
from engine.spark.plans.settling import TOUCHED
from engine.spark.stored import Numbers, StoredChange, measured, settled
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.version import Counts, Version
from engine.spark.work.work import NewVersion, Seen

NEW = "new"


@dataclass(frozen=True, slots=True)
class Compared:
    """rows: of the layer. seen: what its tuples were and are, in the driver; or `stored`: the frame of what changed,
    the table of it, and its numbers."""

    rows: int
    seen: Seen | None
    stored: tuple[DataFrame, Table, Numbers] | None

    def outcome(self, made: Version, before: Counts, tables: Tables) -> NewVersion:
        """The relation after the epoch, `made` but for its counts."""
        if self.seen is not None:
            return NewVersion(replace(made, counts=self.seen.counts(before)), self.seen.change())
        assert self.stored is not None, "it is one or the other"
        frame, table, numbers = self.stored
        made = replace(made, counts=numbers.counts(before))
        # Much may have been looked at, and little of it have changed.
        return NewVersion(made, settled(StoredChange(made, frame, numbers, [table], tables)))


def compared(version: Version, layer: Table, rebuilt: bool, stratum: Stratum, tables: Tables) -> Compared:
    """What the tuples of a layer over `version` were and are. rebuilt: the layer replaces the version, so all tuples of
    both are told."""
    key = columns(version.arity)
    parts = [layer.frame.withColumns({NEW: long(1), TOUCHED: F.lit(True)})]
    rows = version.frame()
    if rows is not None:
        if not rebuilt and tables.small(layer.rows) and key:
            wanted = F.broadcast(layer.frame.select(*key).distinct())
            rows = rows.join(wanted, key, "left_semi").select(*rows.columns)
        parts.append(rows.withColumns({NEW: long(0), TOUCHED: F.lit(rebuilt)}))
    old = F.col(NEW) == 0
    sides = {"was": old, "is": ~old if rebuilt else F.lit(True)}
    signed = version.signed or stratum.signed
    told = summed_up(united(parts), version.arity, sides, signed, {TOUCHED: F.max, NEW: F.sum}).where(TOUCHED)
    fold = stratum.in_place.get(version.name)
    if tables.small(layer.rows + (version.rows if rebuilt else 0)) or not key:
        table = tables.collect(told, small=tables.small(layer.rows))
        was, now = (
            described_as(own, *(array_of(table, name) for name in side(which)))
            for which, own in (("was", version.fold), ("is", fold))
        )
        seen = Seen(codes_of(table, version.arity), was, now, fold)
        return Compared(int(array_of(table, NEW).sum()), seen, None)
    kept, numbers = measured(changed(told, version.arity, version.fold, fold), tables)
    try:
        found = tables.collect(layer.frame.agg(F.count(F.lit(1)).alias(ROWS)), small=False)
    except BaseException:
        tables.release(kept)
        raise
    return Compared(int(array_of(found, ROWS)[0]), None, (kept.frame, kept, numbers))
