"""The branches of one query: everything that pushes supports to a stratum's relations at one moment.

A branch is a frame of (rel, c0 .., height, weight, derivations), see frames.py, or a table of such rows in the driver:
given facts, and plans that only copy what is there (projections.py). One query unites all and sums them up; where all
of them are in the driver and few, no query is needed.
A binding that has no value for some term derives nothing; what is left of it is a row without weight whose `rel` is
negative and names its rule. So no query is needed to learn which rules met such a binding: `checked` reads it from
what was summed up.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.circuit.plan import Check, CompiledRule, Extend, Let, Plan, Where
from engine.data.arrow import HEIGHT, column, columns
from engine.errors import EvaluationError
from engine.spark.changes import Changes
from engine.spark.frames import DERIVATIONS, FAULT, REL, WEIGHT, long, padded, united
from engine.spark.plans.folds import groups, refolded
from engine.spark.plans.lowering import See, derivations
from engine.spark.plans.projections import project, summed_rows
from engine.spark.plans.shared_joins import Started, Together, shape
from engine.spark.plans.terms import can_fail
from engine.spark.plans.texts import InDriver
from engine.spark.supports import Subject, Supports, on_executors
from engine.spark.version import Version

TOGETHER = 32
"""Plans in one join at the most: what Spark compiles for a row should not outgrow what the JVM compiles."""


class Branches:
    """See the module. `subject`: the stratum whose relations get the supports."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._names, self._width, self._encode = subject.names, subject.width, subject.encode
        self._tables = subject.tables
        self._in_driver = InDriver(subject.tables, subject.encode)
        self._given: list[pa.Table] = []
        self._frames: list[DataFrame] = []
        self._started: dict[tuple[bool, int], list[Started]] = {}
        """By smallness and shape, plans that go together."""
        self._sources: list[CompiledRule | Fold] = []
        self.faulty: set[str] = set()
        """Rules (ids) that met a binding without a value."""

    def __bool__(self) -> bool:
        return bool(self._given or self._frames or self._started)

    @property
    def given(self) -> int:
        """Rows that are in the driver."""
        return sum(rows.num_rows for rows in self._given)

    def release(self) -> None:
        """Give back what the branches took while they were made. None of their frames can be read any more."""
        self._in_driver.release()

    # ---- what there is to be taken

    def take(self) -> DataFrame:
        """All branches that are frames, not summed up; there are none left then."""
        frames, self._frames = [*self._frames, *self._joined()], []
        return united(frames)

    def summed(self, few: bool) -> Supports:
        """All branches, summed up; there are none left then. few: they are brought to the driver, if they are few.

        Raises:
            EvaluationError: see `checked`.
        """
        given, self._given = pa.concat_tables(self._given) if self._given else None, []
        if few and given is not None and not self and self._tables.small(given.num_rows):
            summed = summed_rows(given, self._width)
            if summed is not None:
                return Supports.local(self._tables.local(summed))
        put = None if given is None else self._tables.put(given)
        try:
            if put is not None:
                self._frames.append(put.frame)
            rows = summed_up(self.take(), self._width)
            found = self._tables.collect_small(rows) if few else None
            if found is not None:
                return self.checked(Supports.local(self._tables.local(found)))
            return self.checked(on_executors(rows, self._tables))
        finally:
            if put is not None:
                self._tables.release(put)

    def checked(self, supports: Supports) -> Supports:
        """The same, and the rules are noted that met a binding without a value. If it is refused, it is released.

        Raises:
            EvaluationError: a sum has no value; what it is over is complete, so nothing that is to come can mend it.
        """
        for mark in supports.marks:
            source = self._sources[-1 - mark]
            if isinstance(source, Fold):
                self._tables.release(supports.table)
                raise _no_sum(source)
            self.faulty.add(source.id)
        return supports

    # ---- what is added

    def give(self, rows: pa.Table) -> None:
        """Add rows that are in the driver."""
        self._given.append(rows)

    def derive(
        self, rule: CompiledRule, plan: Plan, changes: Changes, see: See, weight: int, small: bool
    ) -> bool:
        """Add the head's changes, times `weight`; returns whether a query is needed for them. None is where a step
        sees nothing. small: there are few changes."""
        if not plan.steps and changes.arrays is not None:
            self.give(project(plan, changes.arrays, weight, self._subject, self._encode))
            return False
        form = shape(plan)
        if form is not None:
            if not all(see(step) for step in plan.steps if isinstance(step, Extend | Check)):
                return False
            self._started.setdefault((small, form), []).append(Started(plan, changes.frame, see, weight))
            return True
        derived = derivations(
            rule.rule,
            plan,
            changes.frame,
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
