"""Count, sum and mean: the groups whose contributions changed are folded again.

In: a fold, its source relations, the groups to look at, and the target's tuples. Out: the changed supports (c0 ..,
height, weight, derivations, fault): for each group its old tuple with weight -1 and its new one with weight 1, both at
height 1. Where they are the same tuple, the two add up to nothing. The values equal those of the resident placement
(engine/resident/folds.py) bit by bit: sums of numbers are exact, and floats are added one by one in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.data.arrow import HEIGHT, column, columns
from engine.language.schema import ColumnType
from engine.spark.frames import DERIVATIONS, FAULT, WEIGHT, long, united
from engine.spark.plans.floats import finite, to_code, to_double
from engine.spark.version import Version

VALUE, NUMBER = "value", "number"
_HALF = 32


def groups(fold: Fold, tuples: DataFrame) -> DataFrame:
    """The groups of some tuples of a source: (g0 ..)."""
    return tuples.select(*(F.col(column(i)).alias(f"g{i}") for i in range(len(fold.group))))


def refolded(
    fold: Fold, sources: Sequence[Version], touched: DataFrame, old: DataFrame | None, few: bool
) -> DataFrame | None:
    """See the module; None if there is nothing to fold. touched: the groups (g0 ..), which may be repeated. old: the
    target's entries. few: there are so few groups that all of them go to every partition."""
    key = [f"g{i}" for i in range(len(fold.group))]
    wanted = touched.distinct()
    wanted = F.broadcast(wanted) if few else wanted

    def of_groups(frame: DataFrame) -> DataFrame:
        return frame.join(wanted, key, "left_semi").select(*frame.columns) if key else frame

    parts = []
    contributions = []
    for source in sources:
        rows = _contributions(source, fold)
        if rows is not None:
            contributions.append(of_groups(rows))
    if contributions:
        folded = united(contributions).groupBy(*key).agg(F.count(F.lit(1)).alias(NUMBER), *_measures(fold))
        # Without a group there is a row also for nothing.
        folded = folded.where(F.col(NUMBER) > 0).select(*key, NUMBER, _value(fold).alias(VALUE))
        parts.append(
            folded.select(
                *_placed(fold),
                F.lit(1).alias(HEIGHT),
                long(1).alias(WEIGHT),
                F.col(NUMBER).alias(DERIVATIONS),
                F.col(VALUE).isNull().alias(FAULT),
            )
        )
    if old is not None:
        grouped = old.select(
            *(F.col(column(c)).alias(f"g{i}") for i, c in enumerate(fold.group)),
            F.col(column(fold.place)).alias(VALUE),
            WEIGHT,
        )
        parts.append(
            of_groups(grouped).select(
                *_placed(fold),
                F.lit(1).alias(HEIGHT),
                (-F.col(WEIGHT)).alias(WEIGHT),
                long(0).alias(DERIVATIONS),
                F.lit(False).alias(FAULT),
            )
        )
    return united(parts) if parts else None


def _contributions(source: Version, fold: Fold) -> DataFrame | None:
    """(g0 .., value): the present tuples of a source, a row each."""
    entries = source.entries()
    if entries is None:
        return None
    if len(source.layers) > 1:
        key = columns(source.arity)
        entries = entries.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) > 0)
    size = len(fold.group)
    return entries.select(
        *(F.col(column(i)).alias(f"g{i}") for i in range(size)), F.col(column(size)).alias(VALUE)
    )


def _placed(fold: Fold) -> list[Column]:
    """The target's columns from the group's and the value."""
    place = {c: f"g{i}" for i, c in enumerate(fold.group)}
    return [F.col(place.get(c, VALUE)).alias(column(c)) for c in range(fold.arity)]


def _measures(fold: Fold) -> list[Column]:
    value = F.col(VALUE)
    if fold.function == "count":
        return []
    if fold.type is ColumnType.FLOAT:
        return [F.collect_list(to_double(value)).alias("values")]
    # Two halves, so that no sum of up to 2**31 numbers leaves 64 bits on the way.
    low = value.bitwiseAND(long((1 << _HALF) - 1))
    return [F.sum(F.shiftright(value, _HALF)).alias("high"), F.sum(low).alias("low")]


def _value(fold: Fold) -> Column:
    """The code of the folded value; NULL where it does not exist."""
    if fold.function == "count":
        return F.col(NUMBER)
    if fold.type is ColumnType.FLOAT:
        total = F.aggregate(F.sort_array("values"), F.lit(0.0), lambda sum_, value: sum_ + value)
        total = finite(total)
        return to_code(total if fold.function == "sum" else total / F.col(NUMBER).cast("double"))
    high, low = F.col("high").cast("decimal(20,0)"), F.col("low").cast("decimal(20,0)")
    exact = (high * F.lit(Decimal(1 << _HALF)) + low).try_cast("long")
    return exact if fold.function == "sum" else to_code(exact.cast("double") / F.col(NUMBER).cast("double"))
