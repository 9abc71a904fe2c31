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
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns
from engine.data.codes import Codes
from engine.language.syntax import Constant, walk
from engine.maintenance.placement import Budget
from engine.resident.bound import bind_rule
from engine.resident.changes import described_as, nothing
from engine.spark.frames import DERIVATIONS, REL, WEIGHT
from engine.spark.plans.terms import is_native
from engine.spark.session.tasks import can_map, map_in_arrow
from engine.spark.supports import Subject, Supports
from engine.spark.tables import Table
from engine.spark.version import Version, summed_in_driver
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
from engine.spark.work.frames import compared
from engine.spark.work.work import NewVersion, Seen, begun

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
        """What there is of every chunk, and the chunks of entries where they say all that is to be seen."""
        new = [i for i, version in enumerate(self._versions.values()) if not version.rows]
        seen = F.col(REL).isin([] if self._stratum.signed else new) & (F.col(ENTRY) == 1)
        wanted = dict.fromkeys((*columns(self._width), HEIGHT, DERIVED), seen)
        wanted[SUPPORT] = F.col(DERIVED).isNotNull() & seen
        lists = [F.when(condition, F.col(name)).alias(name) for name, condition in wanted.items()]
        return self._tables.collect(table.frame.select(REL, ENTRY, SIZE, MESSAGE, *lists))

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
        try:
            seen = self._seen(version, kept, found)
        except BaseException:
            self._tables.release(kept)
            raise
        if not kept.rows:
            self._tables.release(kept)
        return NewVersion(
            begun(version, True, self._stratum).with_layer(kept, seen.counts(version.counts)), seen.change()
        )

    def _seen(self, version: Version, kept: Table, found: pa.Table) -> Seen:
        """What there was and is of a relation's tuples."""
        if version.rows:
            return compared(version, kept, True, self._stratum, self._tables)[0]
        if self._stratum.signed:
            return self._signed_seen(kept.frame, version)
        return _of_entries(found, version.arity)

    def _signed_seen(self, rows: DataFrame, version: Version) -> Seen:
        """What there is now of a relation whose tuples have any number of entries."""
        key = columns(version.arity)
        ground = F.col(HEIGHT) == 0
        asserted = F.when(ground, F.col(SUPPORT)).otherwise(0)
        above = F.when(ground, 0).otherwise(F.col(SUPPORT))
        tuples = rows.groupBy(*key).agg(
            F.sum(asserted).alias("asserted"),
            F.sum(above).alias(DERIVED),
            F.sum(ENTRY).alias(ENTRY),
            F.coalesce(F.max(F.when(F.col(ENTRY) > 0, F.col(HEIGHT))), F.lit(0)).alias(HEIGHT),
        )
        # A tuple may be there at some heights only, and a fact need not be there where it is folded.
        told = tuples.where((F.col(ENTRY) > 0) | (F.col("asserted") > 0))
        table = self._tables.collect(told, small=False)
        fold = self._stratum.in_place.get(version.name)
        present = array_of(table, ENTRY)
        height = array_of(table, HEIGHT).astype(np.int64)
        after = described_as(fold, array_of(table, "asserted"), array_of(table, DERIVED), present, height)
        return Seen(codes_of(table, version.arity), nothing(len(present)), after, fold)

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


def _of_entries(found: pa.Table, arity: int) -> Seen:
    """The tuples in chunks of entries. A tuple whose entry is above height 0 is derived and not asserted; the number of
    its supports would tell nothing more, and was not fetched."""
    entry = array_of(found, ENTRY) == 1
    at_ground = found.column(DERIVED).is_valid().to_numpy()
    # Those of height 0 come first.
    ground, above = np.flatnonzero(entry & at_ground), np.flatnonzero(entry & ~at_ground)
    codes = np.empty((int(array_of(found, SIZE)[entry].sum()), arity), np.int64)
    for i, name in enumerate(columns(arity)):
        codes[:, i] = _values(found, name, np.concatenate((ground, above)))
    asserted, derived = np.zeros(len(codes), np.int64), np.ones(len(codes), np.int64)
    first = _values(found, SUPPORT, ground)
    asserted[: len(first)], derived[: len(first)] = first, _values(found, DERIVED, ground)
    height = _values(found, HEIGHT, np.concatenate((ground, above))).astype(np.int64)
    return Seen(codes, nothing(len(codes)), (asserted, derived, np.ones(len(codes), np.int64), height))


def _values(found: pa.Table, name: str, rows: Codes) -> Codes:
    """The lists of a column in some rows, one after another."""
    lists = found.column(name).combine_chunks()
    begins, flat = lists.offsets.to_numpy(), lists.values.to_numpy()
    parts = [flat[begins[row] : begins[row + 1]] for row in rows.tolist()]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
