"""The bootstrap of a pivoted stratum: one job for the whole fixpoint, without an exchange inside it.

The supports that come from outside the recursion are partitioned by the pivot: by an exchange, or, if they are in the
driver, before they are sent with the tasks. The relations of lower strata that the recursive rules read go with each
task, which runs the resident kernels to the end of its part (fixpoint.py). This is only for a stratum that is computed
from nothing, since a retraction must go height by height across all parts. What the stratum held before is not read:
the result replaces it, and is compared with it at the end. If a part meets a binding without a value for a term, the
job is dropped, and the stratum is gone through height by height, where such bindings are handled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import CompiledRule, Let, Where
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, columns
from engine.language.syntax import Constant, walk
from engine.maintenance.change import Net
from engine.maintenance.placement import Budget
from engine.resident.bound import bind_rule
from engine.spark import described
from engine.spark.described import ASSERTED, HIDDEN, PRESENT, WAS_ASSERTED, WAS_DERIVED, WAS_HEIGHT
from engine.spark.frames import DERIVATIONS, REL, WEIGHT, long
from engine.spark.plans.terms import is_native
from engine.spark.session.tasks import can_map, map_in_arrow
from engine.spark.stored import Numbers, StoredChange, settled
from engine.spark.supports import Subject, Supports
from engine.spark.tables import Table
from engine.spark.version import Version, summed_in_driver
from engine.spark.work.compare import compared
from engine.spark.work.fixpoint import (
    COST,
    DERIVED,
    ERRORS,
    MESSAGE,
    PROBLEM,
    SIZE,
    UNDEFINED,
    PartFixpoint,
    by_pivot,
    schema,
    to_stream,
)
from engine.spark.work.work import NewVersion, begun

_GROUND, _ALSO, _HEAVIEST = "ground", "also", "heaviest"
LOWER_BYTES = 256 << 20
"""Bytes of lower relations up to which they are replicated into every task."""


def _needs_no_symbols(rule: CompiledRule) -> bool:
    """Whether the rule's computed values and conditions are over numbers alone, and the same on every machine."""
    types = dict(rule.rule.types)
    for plan in rule.plans:
        for step in plan.steps:
            if isinstance(step, Let | Where):
                node = step.term if isinstance(step, Let) else step.condition
                texts = any(isinstance(part, Constant) and isinstance(part.value, str) for part in walk(node))
                if texts or not is_native(node, types):
                    return False
    return True


class Pivoted:
    """One such bootstrap. pivot: a column of each relation. lower: the relations of lower strata as they are."""

    def __init__(
        self, subject: Subject, pivot: Mapping[str, int], lower: Mapping[str, Version], budget: Budget
    ) -> None:
        stratum = subject.stratum
        own = set(stratum.relations)
        self._rules = tuple(rule for rule in stratum.rules if own & set(rule.body))
        self._stratum = replace(stratum, rules=self._rules)
        self._pivot = pivot
        self._versions = subject.versions
        self._names, self._width = tuple(subject.names), subject.width
        self._lower = {name: lower[name] for rule in self._rules for name in rule.body if name not in own}
        self._tables, self._encode = subject.tables, subject.encode
        # Tasks run elsewhere: whoever waits for the query asks whether it is to end.
        self._budget = replace(budget, cancelled=None, entered=None)

    def possible(self, supports: Supports) -> bool:
        """Whether Python tasks can run here, the lower relations can be replicated, and nothing needs symbols."""
        lower = sum(version.counts.present * version.arity * 8 for version in self._lower.values())
        computed = all(_needs_no_symbols(rule) for rule in self._rules)
        return computed and lower <= LOWER_BYTES and can_map(supports.table.frame)

    def run(self, supports: Supports, charge: Callable[[int], None]) -> dict[str, NewVersion] | None:
        """The whole fixpoint over supports from outside the recursion; None if a value does not exist."""
        given = supports.table.local
        result = self._scattered(supports) if given is None else self._carried(given)
        # Its rows are chunks; how many supports there are is among what is found.
        table = self._tables.checkpoint(result, 0)
        try:
            found = self._found(table)
            rels, sizes = array_of(found, REL), array_of(found, SIZE)
            if PROBLEM in rels:
                message = found.column(MESSAGE).drop_null()[0].as_py()
                fields = json.loads(message)
                raise ERRORS[fields.pop("code")](fields.pop("message"), **fields)
            if UNDEFINED in rels:
                self._tables.release(table)
                return None
            charge(int(sizes[rels == COST].sum()))
            outcomes = {
                name: self._outcome(i, name, table, found.filter(pa.array(rels == i)))
                for i, name in enumerate(self._names)
            }
        except BaseException:
            self._tables.release(table)
            raise
        if len(outcomes) > 1:
            self._tables.release(table)
        return outcomes

    def _scattered(self, supports: Supports) -> DataFrame:
        """The job where the supports are on the executors: an exchange by the pivot."""
        value = F.coalesce(
            *(
                F.when(F.col(REL) == self._names.index(name), F.col(columns(self._width)[c]))
                for name, c in self._pivot.items()
            )
        )
        rows = supports.table.frame.where(F.col(WEIGHT) != 0).select(
            REL, *columns(self._width), HEIGHT, WEIGHT
        )
        return map_in_arrow(
            rows.repartition(self._tables.partitions, value), self._task(), schema(self._width)
        )

    def _carried(self, supports: pa.Table) -> DataFrame:
        """The job where they are in the driver: the task carries all parts, and is told the number of its own."""
        rows = supports.filter(pc.not_equal(supports.column(WEIGHT), 0)).drop_columns(DERIVATIONS)
        rows, starts = by_pivot(rows, [self._pivot[name] for name in self._names])
        number = self._tables.partitions
        # Pivots are dealt out in turn.
        part = np.repeat(np.arange(len(starts) - 1) % number, np.diff(starts))
        parts = tuple(to_stream(rows.filter(pa.array(part == i))) for i in range(number))
        numbers = self._tables.spark.range(0, number, 1, number)
        return map_in_arrow(numbers, self._task(parts), schema(self._width))

    def _found(self, table: Table) -> pa.Table:
        """How much there is of every kind of chunk: not the chunks themselves."""
        ground = F.col(DERIVED).isNotNull()
        also = F.when(ground, F.size(F.filter(DERIVED, lambda above: above > 0))).otherwise(0)
        return self._tables.collect(
            table.frame.groupBy(REL, ENTRY, ground.alias(_GROUND)).agg(
                F.sum(SIZE).alias(SIZE),
                F.max(MESSAGE).alias(MESSAGE),
                F.sum(also).alias(_ALSO),
                F.coalesce(F.max(F.when(ground, F.array_max(SUPPORT))), F.lit(0)).alias(_HEAVIEST),
            )
        )

    def _outcome(self, number: int, name: str, table: Table, found: pa.Table) -> NewVersion:
        version = self._versions[name]
        # One relation reads the checkpoint itself; of several each takes its chunks out.
        mine = table.frame.where(F.col(REL) == number)
        if len(self._names) > 1:
            table = self._tables.checkpoint(mine, 0)
            mine = table.frame
        key = columns(version.arity)
        lists = F.arrays_zip(*key, HEIGHT, SUPPORT)
        layer = mine.select(F.inline(lists), ENTRY).select(*key, HEIGHT, SUPPORT, ENTRY)
        kept = table.view(layer, int(array_of(found, SIZE).sum()))
        made = begun(version, True, self._stratum).with_layer(kept, version.counts)
        try:
            if version.rows or self._stratum.signed:
                told = compared(version, kept, True, self._stratum, self._tables)
                outcome = told.outcome(made, version.counts, self._tables)
            else:
                outcome = self._made(made, mine, found)
        except BaseException:
            self._tables.release(kept)
            raise
        if not kept.rows:
            self._tables.release(kept)
        return outcome

    def _made(self, made: Version, chunks: DataFrame, found: pa.Table) -> NewVersion:
        """The outcome for a relation that was empty, and of which each tuple has one entry: the chunks of entries say
        all that is to be seen of it. A tuple whose entry is above height 0 is derived and not asserted; one at height 0
        is asserted, and derived where it has supports above."""
        entries = found.filter(pc.equal(found.column(ENTRY), 1))
        ground = entries.filter(entries.column(_GROUND))
        rows, asserted = int(array_of(entries, SIZE).sum()), int(array_of(ground, SIZE).sum())
        derived = rows - asserted + int(array_of(ground, _ALSO).sum())
        heaviest = int(array_of(ground, _HEAVIEST).max(initial=0))
        numbers = Numbers(rows, rows, 0, heaviest, Net(rows, asserted, derived))
        above = "above"
        lists = F.arrays_zip(*columns(made.arity), HEIGHT, SUPPORT, above)
        # Where there is no list of supports above, none is looked at.
        listed = chunks.where(F.col(ENTRY) == 1).withColumn(above, F.coalesce(DERIVED, SUPPORT))
        at_ground = F.col(HEIGHT) == 0
        values = {
            ASSERTED: F.when(at_ground, F.col(SUPPORT)).otherwise(long(0)),
            described.DERIVED: ~at_ground | (F.col(above) > 0),
            PRESENT: long(1),
            WAS_ASSERTED: long(0),
            WAS_DERIVED: F.lit(False),
            HIDDEN: F.lit(False),
            HEIGHT: F.col(HEIGHT).cast("long"),
            WAS_HEIGHT: long(0),
        }
        frame = listed.select(F.inline(lists)).select(
            *columns(made.arity), *(value.alias(name) for name, value in values.items())
        )
        made = replace(made, counts=numbers.counts(made.counts))
        # The layer holds the chunks.
        return NewVersion(made, settled(StoredChange(made, frame, numbers, [], self._tables)))

    def _task(self, parts: tuple[bytes, ...] = ()) -> PartFixpoint:
        arities = {name: version.arity for name, version in {**self._versions, **self._lower}.items()}
        # Lower relations do not change: no plan starts there.
        started = [
            plan for rule in self._rules for plan in rule.plans if plan.start.relation in self._versions
        ]
        indexes: dict[str, set[tuple[int, ...]]] = {}
        for plan in started:
            for demand in plan.demands:
                indexes.setdefault(demand.relation, set()).add(demand.columns)
        return PartFixpoint(
            self._stratum,
            self._pivot,
            self._names,
            arities,
            {rule.id: bind_rule(rule, arities, self._encode) for rule in self._rules},
            {name: tuple(sorted(demanded)) for name, demanded in indexes.items()},
            {name: self._stream(version) for name, version in self._lower.items()},
            self._budget,
            parts,
        )

    def _stream(self, version: Version) -> bytes:
        """The tuples that are present, as an Arrow stream."""
        key = columns(version.arity)
        if version.stored:
            entries = version.entries()
            assert entries is not None, "it has rows"
            if len(version.layers) > 1 or version.signed:
                entries = entries.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)
            # A relation without columns has one tuple or none; a column keeps the number of rows.
            table = self._tables.collect(entries.select(*key, F.lit(1).alias("present")), small=False)
        else:
            table = summed_in_driver(version, key, [ENTRY])
        return to_stream(table)
