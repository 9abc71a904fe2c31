"""The branches of one query: everything that pushes supports to a stratum's relations at one moment.

A branch is a frame of (rel, c0 .., height, weight, derivations), see frames.py; the query unites all and sums them up.
A binding that has no value for some term derives nothing; what is left of it is a row without weight whose `rel` is
negative and names its rule. So no query is needed to learn which rules met such a binding: `faults` reads it from what
was summed up.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.circuit.plan import Check, CompiledRule, Extend, Let, Plan, Where
from engine.circuit.undefined import can_fail
from engine.data.arrow import HEIGHT, column, columns
from engine.errors import EvaluationError
from engine.maintenance.placement import Encode
from engine.spark.frames import DERIVATIONS, FAULT, REL, WEIGHT, long, padded, united
from engine.spark.plans.folds import groups, refolded
from engine.spark.plans.lowering import See, derivations
from engine.spark.plans.shared_joins import Started, Together, shape
from engine.spark.plans.texts import InDriver
from engine.spark.version import Version
from engine.spark.work.work import Supports

TOGETHER = 32
"""Plans in one join at the most: what Spark compiles for a row should not outgrow what the JVM compiles."""


class Branches:
    """See the module. `names`: the stratum's relations, by number; `width`: of the widest."""

    def __init__(self, names: Sequence[str], width: int, encode: Encode, in_driver: InDriver) -> None:
        self._names = names
        self._width = width
        self._encode = encode
        self._in_driver = in_driver
        self._frames: list[DataFrame] = []
        self._started: dict[tuple[bool, int], list[Started]] = {}
        """By smallness and shape, plans that go together."""
        self._sources: list[CompiledRule | Fold] = []
        self.faulty: set[str] = set()
        """Rules (ids) that met a binding without a value."""

    def __bool__(self) -> bool:
        return bool(self._frames or self._started)

    def take(self, more: Sequence[DataFrame] = ()) -> DataFrame:
        """All branches and `more`, not summed up; there are none left then."""
        frames, self._frames = [*self._frames, *self._joined(), *more], []
        return united(frames)

    def derive(
        self, rule: CompiledRule, plan: Plan, changes: DataFrame, see: See, weight: int, small: bool
    ) -> bool:
        """Add the head's changes, times `weight`; false if a step sees nothing."""
        form = shape(plan)
        if form is not None:
            if not all(see(step) for step in plan.steps if isinstance(step, Extend | Check)):
                return False
            self._started.setdefault((small, form), []).append(Started(plan, changes, see, weight))
            return True
        derived = derivations(
            rule.rule,
            plan,
            changes,
            see,
            self._encode,
            self._in_driver,
            broadcast=small,
            consolidate=not small,
        )
        if derived is None:
            return False
        number = self._names.index(plan.head)
        arity = len(plan.columns)
        heads = derived.heads.select(
            F.lit(number).alias(REL),
            *padded(arity, self._width),
            HEIGHT,
            (F.col(WEIGHT) * long(weight)).alias(WEIGHT),
            long(1).alias(DERIVATIONS),
            FAULT,
        )
        mark = self._mark(rule)
        self._frames.append(self._marked(heads, mark) if _may_fail(plan) else heads.drop(FAULT))
        for lost in derived.lost:
            zeros = [long(0).alias(column(i)) for i in range(self._width)]
            self._frames.append(
                lost.select(
                    F.lit(mark).alias(REL),
                    *zeros,
                    F.lit(0).alias(HEIGHT),
                    long(0).alias(WEIGHT),
                    long(0).alias(DERIVATIONS),
                )
            )
        return True

    def _joined(self) -> list[DataFrame]:
        frames = []
        for (small, _), started in self._started.items():
            together = Together(self._names, self._width, self._encode, small, consolidate=not small)
            frames += [together.heads(started[i : i + TOGETHER]) for i in range(0, len(started), TOGETHER)]
        self._started = {}
        return frames

    def fold(
        self,
        fold: Fold,
        sources: Sequence[Version],
        touched: Sequence[DataFrame],
        old: DataFrame | None,
        few: bool,
    ) -> None:
        """Add what changes in the groups of the tuples `touched`."""
        frame = refolded(fold, sources, united([groups(fold, tuples) for tuples in touched]), old, few)
        if frame is not None:
            rows = frame.select(
                F.lit(self._names.index(fold.target)).alias(REL),
                *padded(fold.arity, self._width),
                HEIGHT,
                WEIGHT,
                DERIVATIONS,
                FAULT,
            )
            self._frames.append(self._marked(rows, self._mark(fold)))

    def rows(self, relation: str, arity: int, frame: DataFrame) -> None:
        """Add asserted weights: (c0 .., weight)."""
        self._frames.append(
            frame.select(
                F.lit(self._names.index(relation)).alias(REL),
                *padded(arity, self._width),
                F.lit(0).alias(HEIGHT),
                WEIGHT,
                long(0).alias(DERIVATIONS),
            )
        )

    def faults(self, found: Supports) -> None:
        """Remember the rules that met a binding without a value.

        Raises:
            EvaluationError: a sum has no value; what it is over is complete, so nothing that is to come can mend it.
        """
        for mark in found.marks:
            source = self._sources[-1 - mark]
            if isinstance(source, Fold):
                raise _no_sum(source)
            self.faulty.add(source.id)

    def _mark(self, source: CompiledRule | Fold) -> int:
        if source not in self._sources:
            self._sources.append(source)
        return -1 - self._sources.index(source)

    def _marked(self, rows: DataFrame, mark: int) -> DataFrame:
        """Rows with a fault turned into marks."""

        def unless(name: str, otherwise: int) -> Column:
            return F.when(F.col(FAULT), F.lit(otherwise)).otherwise(F.col(name)).alias(name)

        numbers = [unless(name, 0) for name in (*columns(self._width), HEIGHT, WEIGHT, DERIVATIONS)]
        return rows.select(unless(REL, mark), *numbers)


def summed_up(rows: DataFrame, width: int) -> DataFrame:
    """Branches summed up by tuple and height."""
    sums = [F.sum(WEIGHT).alias(WEIGHT), F.sum(DERIVATIONS).alias(DERIVATIONS)]
    return rows.groupBy(REL, *columns(width), HEIGHT).agg(*sums)


def _may_fail(plan: Plan) -> bool:
    return any(
        can_fail(step.term if isinstance(step, Let) else step.condition)
        for step in plan.steps
        if isinstance(step, Let | Where)
    )


def _no_sum(fold: Fold) -> EvaluationError:
    reason = (
        "does not fit into 64 bits"
        if fold.type is None or fold.type.value == "number"
        else "is not a finite number"
    )
    return EvaluationError(
        f"the {fold.function} of a group of {fold.target.split('@')[0]} {reason}",
        operation=fold.function,
        operands=[],
    )
