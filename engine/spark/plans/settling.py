"""Settling one height of a stratum on the executors: which entries must change there, as one query.

In: rows of (rel, c0 .., height, support, entry, touched), to be summed up. Out: (rel, c0 .., height, weight, next) for
the touched tuples: what to add to the entry at the height, and the next height at which to look again.

    entry(k) = present(k) - present(k - 1),   present(k): the supports up to k sum to more than zero

In a relation that is folded in place (min or max), only the extreme of each group is present, taken over the tuples
that have support up to k. So a tuple that is touched touches its whole group. In a stratum with such a fold, entries
may be negative, and every later height with a support or an entry is looked at. In other strata a tuple has one entry,
at the least height at which it is supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, column, columns
from engine.language.schema import ColumnType
from engine.spark.frames import REL, WEIGHT, long
from engine.spark.plans.floats import ordered

NEXT, TOUCHED = "next", "touched"


class Settling:
    """How a stratum's tuples are grouped and settled. `folds`: those in place, by number of the relation."""

    def __init__(self, width: int, folds: Mapping[int, Fold], signed: bool, partitions: int) -> None:
        self._key = [REL, *columns(width)]
        self._folds = folds
        self._signed = signed
        self._partitions = partitions
        places = sorted({fold.place for fold in folds.values()})
        self._spots = {
            place: F.when(F.col(REL).isin([n for n, fold in folds.items() if fold.place == place]), long(0))
            .otherwise(F.col(column(place)))
            .alias(f"s{place}")
            for place in places
        }
        self._spot = [REL, *(f"s{i}" if i in places else column(i) for i in range(width))]

    def spots(self, frame: DataFrame) -> DataFrame:
        """What the tuples touch: each touches itself or, in a folded relation, its group."""
        return frame.select(*self._key, *self._spots.values()).select(*self._spot)

    def at_spots(self, frame: DataFrame, spots: DataFrame) -> DataFrame:
        """The rows of a frame at these spots."""
        wide = frame.select("*", *self._spots.values())
        return wide.join(spots, self._spot, "left_semi").select(*frame.columns)

    def settled(self, rows: DataFrame, height: int) -> DataFrame:
        """See the module."""
        wide = rows.select("*", *self._spots.values()).repartition(self._partitions, *self._spot)
        key = [*self._key, *(f"s{place}" for place in self._spots)]
        by_height = wide.groupBy(*key, HEIGHT).agg(
            F.sum(SUPPORT).alias(SUPPORT), F.sum(ENTRY).alias(ENTRY), F.max(TOUCHED).alias(TOUCHED)
        )
        at = F.col(HEIGHT)
        found = by_height.groupBy(*key).agg(
            _sum_if(at < height, SUPPORT).alias("below"),
            _sum_if(at <= height, SUPPORT).alias("upto"),
            _sum_if(at == height, ENTRY).alias("have"),
            F.min(F.when((at > height) & (F.col(ENTRY) != 0), at)).alias("entry_later"),
            F.min(F.when((at > height) & (F.col(SUPPORT) != 0), at)).alias("support_later"),
            F.max(TOUCHED).alias(TOUCHED),
        )
        is_, was = F.col("upto") > 0, F.col("below") > 0
        if self._folds:
            found = self._with_extremes(found)
            is_ = is_ & (F.col("rank").isNull() | (F.col("rank") == F.col("best")))
            was = was & (F.col("rank").isNull() | (F.col("rank") == F.col("best_below")))
        want = is_.cast("long") - was.cast("long")
        # An entry later on may have to go; in an unsigned stratum a support later on matters only while there is none
        # up to here.
        later = F.col("support_later")
        look = F.least("entry_later", later if self._signed else F.when(F.col("upto") <= 0, later))
        settled = found.where(TOUCHED).select(
            *self._key, F.lit(height).alias(HEIGHT), (want - F.col("have")).alias(WEIGHT), look.alias(NEXT)
        )
        return settled.where((F.col(WEIGHT) != 0) | F.col(NEXT).isNotNull())

    def _with_extremes(self, found: DataFrame) -> DataFrame:
        """The rows with four more facts: the rank of the tuple in its group, the best rank up to the height and below
        it, and whether any tuple of the group is touched. In a relation that is not folded there is no rank, and each
        tuple is a group of its own."""
        rank = reduce(
            lambda other, item: F.when(F.col(REL) == item[0], _rank(item[1])).otherwise(other),
            self._folds.items(),
            F.lit(None).cast("long"),
        )
        group = Window.partitionBy(*self._spot)
        ranked = found.withColumn("rank", rank)
        return ranked.withColumns(
            {
                "best": F.min(F.when(F.col("upto") > 0, F.col("rank"))).over(group),
                "best_below": F.min(F.when(F.col("below") > 0, F.col("rank"))).over(group),
                TOUCHED: F.max(TOUCHED).over(group),
            }
        )


def _rank(fold: Fold) -> Column:
    """A long by which the tuples of a group are ordered: the best value has the least."""
    code = F.col(column(fold.place))
    value = ordered(code) if fold.type is ColumnType.FLOAT else code
    return F.bitwise_not(value) if fold.function == "max" else value


def _sum_if(condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, F.col(name)).otherwise(0))
