"""What tuples are described as, in columns: the twin of `Relation.describe` and of engine/resident/changes.py.

In: rows of (c0 .., height, support, entry). Out: one row for each tuple, with what a reader sees of it, in one or more
states that are told apart (before an epoch and after it). Tests compare both twins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, columns
from engine.spark.frames import long

ASSERTED, DERIVED, PRESENT, HIDDEN = "asserted", "derived", "present", "hidden"
WAS_ASSERTED, WAS_DERIVED, WAS_HEIGHT = "was_asserted", "was_derived", "was_height"
CHANGED = (ASSERTED, DERIVED, PRESENT, WAS_ASSERTED, WAS_DERIVED, HIDDEN, HEIGHT, WAS_HEIGHT)
"""The columns of a change beside the tuple's, as in `RelationChange`."""
LIVE = (ASSERTED, DERIVED, HIDDEN, HEIGHT)
"""The columns of a relation's tuples beside the tuple's own: facts and derived tuples, as the snapshot has them."""

More = Mapping[str, Callable[[str], Column]]


def summed_up(
    rows: DataFrame, arity: int, sides: Mapping[str, Column], signed: bool, more: More | None = None
) -> DataFrame:
    """(c0 .., SIDE_asserted, SIDE_derived, SIDE_present, SIDE_height .., more), each tuple once.

    sides: the states, and which rows belong to each. signed: a tuple may have several entries, and one of a layer may
    take back that of another; the height is that of the last. more: further columns, and how they are aggregated.
    """
    key, more = columns(arity), more or {}
    split = {
        f"{side}_{name}": F.when(belongs, F.col(name)).otherwise(0)
        for side, belongs in sides.items()
        for name in (SUPPORT, ENTRY)
    }
    told = rows.withColumns(split)
    if signed:
        sums = [F.sum(name).alias(name) for name in split]
        told = told.groupBy(*key, HEIGHT).agg(*sums, *(f(name).alias(name) for name, f in more.items()))
    at = F.col(HEIGHT)
    values = {}
    for side in sides:
        support, entry = f"{side}_{SUPPORT}", f"{side}_{ENTRY}"
        values[f"{side}_{ASSERTED}"] = _sum_if(at == 0, support)
        values[f"{side}_{DERIVED}"] = _sum_if(at > 0, support)
        values[f"{side}_{PRESENT}"] = F.sum(entry)
        last = F.max(F.when(F.col(entry) > 0, at))
        # A tuple that has one entry is there from its height on.
        values[f"{side}_{HEIGHT}"] = F.coalesce(last, long(0)) if signed else F.sum(at * F.col(entry))
    aggregates = [value.alias(name) for name, value in values.items()]
    return told.groupBy(*key).agg(*aggregates, *(f(name).alias(name) for name, f in more.items()))


def _sum_if(condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, F.col(name)).otherwise(0))


def side(name: str) -> list[str]:
    """The columns of one state in `summed_up`."""
    return [f"{name}_{what}" for what in (ASSERTED, DERIVED, PRESENT, HEIGHT)]


def live(rows: DataFrame, arity: int, fold: Fold | None, signed: bool) -> DataFrame:
    """(c0 .., LIVE): the facts and derived tuples of all of a relation's rows. fold: in place."""
    told = summed_up(rows, arity, {"is": F.lit(True)}, signed)
    is_ = _seen("is", fold)
    columns_ = [is_[name].alias(name) for name in LIVE]
    return told.select(*columns(arity), *columns_).where((F.col(ASSERTED) != 0) | F.col(DERIVED))


def changed(told: DataFrame, arity: int, before: Fold | None, after: Fold | None) -> DataFrame:
    """(c0 .., CHANGED) of the sums `was` and `is`, without tuples of which a reader sees the same as before. before,
    after: the folds in place."""
    was, now = _seen("was", before), _seen("is", after)
    values = {
        ASSERTED: now[ASSERTED],
        DERIVED: now[DERIVED],
        PRESENT: now[PRESENT] - was[PRESENT],
        WAS_ASSERTED: was[ASSERTED],
        WAS_DERIVED: was[DERIVED],
        HIDDEN: now[HIDDEN],
        HEIGHT: now[HEIGHT],
        WAS_HEIGHT: was[HEIGHT],
    }
    frame = told.select(*columns(arity), *(values[name].alias(name) for name in CHANGED))
    return frame.where(
        f"{ASSERTED} != {WAS_ASSERTED} OR {DERIVED} != {WAS_DERIVED} OR {PRESENT} != 0 OR {HEIGHT} != {WAS_HEIGHT}"
    )


def _seen(name: str, fold: Fold | None) -> dict[str, Column]:
    """What a reader sees of one state."""
    asserted, above, present, height = map(F.col, side(name))
    derived, hidden = above > 0, F.lit(False)
    if fold is not None:
        derived, hidden = derived & (present > 0), (asserted > 0) & (present <= 0)
    at = F.when(present > 0, height.cast("long")).otherwise(long(0))
    return {ASSERTED: asserted, DERIVED: derived, PRESENT: present, HIDDEN: hidden, HEIGHT: at}
