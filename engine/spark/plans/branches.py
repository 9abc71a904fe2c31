"""The branches of one query: everything that pushes supports to a stratum's relations at one moment.

A branch is a frame of (rel, c0 .., height, weight, derivations), see frames.py, or a table of such rows in the driver:
facts that are given, and the heads of plans that only copy tuples which are there (projections.py). One query unites
all branches and sums them up. Where all of them are in the driver and there are few rows, no query is needed.

A binding that has no value for some term derives nothing. It leaves a row without weight, whose `rel` is negative and
names its rule. So no query of its own is needed to learn which rules met such a binding: `checked` reads it from what
was summed up.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import Fold
from engine.circuit.plan import Check, CompiledRule, Extend, Plan
from engine.data.arrow import HEIGHT, columns
from engine.errors import EvaluationError
from engine.spark.changes import Changes
from engine.spark.frames import DERIVATIONS, FAULT, REL, WEIGHT, long, padded, united
from engine.spark.plans.folds import groups, refolded
from engine.spark.plans.lowering import See, Started, derivations, shape
from engine.spark.plans.projections import project, summed_rows
from engine.spark.plans.texts import InDriver
from engine.spark.supports import Subject, Supports, on_executors
from engine.spark.version import Version

TOGETHER = 32
"""How many plans share a join at most: the code that Spark generates for a row must stay small enough for the JVM to
compile it."""


class Branches:
    """See the module. `subject`: the stratum whose relations get the supports."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._names, self._width, self._encode = subject.names, subject.width, subject.encode
        self._tables = subject.tables
        self._in_driver = InDriver(subject.tables, subject.encode)
        self._given: list[pa.Table] = []
        self._frames: list[DataFrame] = []
        self._started: dict[tuple[bool, int | None], list[Started]] = {}
        """By smallness and shape, plans that are still to be lowered."""
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
        frames, self._frames = [*self._frames, *self._lowered()], []
        return united(frames)

    def summed(self, few: bool) -> Supports:
        """All branches, summed up; there are none left then. few: try to bring the result to the driver, where it stays
        if it is small.

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
        """The same supports, after the rules are noted that met a binding without a value.

        Raises:
            EvaluationError: a sum has no value. Its sources are complete, so it cannot get one later; the supports are
                released.
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
        """Add the head's changes, times `weight`; a plan of which a step sees nothing adds none. Returns whether a
        query is needed for them. small: there are few changes."""
        if not plan.steps and changes.arrays is not None:
            self.give(project(plan, changes.arrays, weight, self._subject, self._encode))
            return False
        if not all(see(step) for step in plan.steps if isinstance(step, Extend | Check)):
            return False
        started = Started(rule, plan, changes.frame, see, weight)
        self._started.setdefault((small, shape(plan)), []).append(started)
        return True

    def _lowered(self) -> list[DataFrame]:
        """The frames of all plans; plans of one shape share a frame."""
        frames = []
        for (small, form), plans in self._started.items():
            together = TOGETHER if form is not None else 1
            for i in range(0, len(plans), together):
                derived = derivations(plans[i : i + together], self._subject, self._in_driver, small)
                # What may fail goes alone.
                rule = plans[i].rule
                frames.append(self._marked(derived.heads, rule) if derived.may_fail else derived.heads)
                frames += [self._lost(bindings, rule) for bindings in derived.lost]
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
        """Add the changes of a fold's target in the groups of the tuples `touched`. few: there are few of these."""
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
            self._frames.append(self._marked(rows, fold))

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

    def _marked(self, rows: DataFrame, source: CompiledRule | Fold) -> DataFrame:
        """The rows, with each that has a fault turned into a mark, which has no weight and names `source`."""
        mark = self._mark(source)

        def unless(name: str, otherwise: int) -> Column:
            return F.when(F.col(FAULT), F.lit(otherwise)).otherwise(F.col(name)).alias(name)

        numbers = [unless(name, 0) for name in (*columns(self._width), HEIGHT, WEIGHT, DERIVATIONS)]
        return rows.select(unless(REL, mark), *numbers)

    def _lost(self, bindings: DataFrame, source: CompiledRule) -> DataFrame:
        """A mark for each binding that a fault kept from a look-up."""
        zeros = [f"0L AS {name}" for name in columns(self._width)]
        return bindings.selectExpr(
            f"{self._mark(source)} AS {REL}",
            *zeros,
            f"0 AS {HEIGHT}",
            f"0L AS {WEIGHT}",
            f"0L AS {DERIVATIONS}",
        )


def summed_up(rows: DataFrame, width: int) -> DataFrame:
    """Branches summed up by tuple and height."""
    sums = [F.sum(WEIGHT).alias(WEIGHT), F.sum(DERIVATIONS).alias(DERIVATIONS)]
    return rows.groupBy(REL, *columns(width), HEIGHT).agg(*sums)


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
