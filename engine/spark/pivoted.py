"""The bootstrap of a pivoted stratum: one job for the whole fixpoint, without an exchange inside it.

The supports that come from outside the recursion are partitioned by the pivot, the relations of lower strata that the
recursive rules read travel with the task, and each task runs the resident kernels to the end of its part
(fixpoint.py). It holds only for a stratum that is computed from nothing: a retraction must go height by height across
all parts. What the stratum held before takes no part in it; the result replaces it, and is compared with it at the end.
Where a part meets a binding without a value for a term, the job is dropped and the stratum goes the general way, which
knows what to do about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns
from engine.circuit.circuit import Stratum
from engine.circuit.plan import CompiledRule, Let, Where
from engine.language.syntax import Constant, walk
from engine.placement import Budget, Encode
from engine.resident.bound import bind_rule
from engine.spark.fixpoint import COST, ERRORS, PROBLEM, UNDEFINED, Fixpoint, schema
from engine.spark.frame_work import compared
from engine.spark.frames import REL, WEIGHT
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.tasks import can_map, map_in_arrow
from engine.spark.terms import is_native
from engine.spark.version import Version
from engine.spark.work import Outcome, Seen, Supports, begun

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
    """One such bootstrap. versions: the stratum's relations before. lower: those of lower strata as they are."""

    def __init__(
        self,
        stratum: Stratum,
        pivot: Mapping[str, int],
        versions: Mapping[str, Version],
        lower: Mapping[str, Version],
        tables: Tables,
        encode: Encode,
        budget: Budget,
    ) -> None:
        own = set(stratum.relations)
        self._rules = tuple(rule for rule in stratum.rules if own & set(rule.body))
        self._stratum = replace(stratum, rules=self._rules)
        self._pivot = pivot
        self._versions = versions
        self._names = tuple(versions)
        self._width = max(version.arity for version in versions.values())
        self._lower = {name: lower[name] for rule in self._rules for name in rule.body if name not in own}
        self._tables = tables
        self._encode = encode
        self._budget = budget

    def possible(self, supports: Supports) -> bool:
        """Whether Python tasks can run here, the lower relations can be replicated, and nothing needs symbols."""
        lower = sum(version.counts.present * version.arity * 8 for version in self._lower.values())
        computed = all(_needs_no_symbols(rule) for rule in self._rules)
        return computed and lower <= LOWER_BYTES and can_map(supports.table.frame)

    def run(self, supports: Supports, charge: Callable[[int], None]) -> dict[str, Outcome] | None:
        """The whole fixpoint over supports from outside the recursion; None if a value does not exist."""
        number = {name: i for i, name in enumerate(self._names)}
        value = F.coalesce(
            *(
                F.when(F.col(REL) == number[name], F.col(columns(self._width)[c]))
                for name, c in self._pivot.items()
            )
        )
        rows = supports.table.frame.where(F.col(WEIGHT) != 0).select(
            REL, *columns(self._width), HEIGHT, WEIGHT
        )
        parts = rows.repartition(self._tables.partitions, value)
        result = map_in_arrow(parts, self._task(), schema(self._width))
        table, found = self._tables.measured(result, [REL], [F.sum(SUPPORT).alias(SUPPORT)])
        try:
            sizes = dict(zip(array_of(found, REL).tolist(), array_of(found, ROWS).tolist(), strict=True))
            if PROBLEM in sizes:
                problem = self._tables.collect(
                    table.frame.where(F.col(REL) == PROBLEM).select("problem").limit(1)
                )
                fields = json.loads(problem.column(0)[0].as_py())
                raise ERRORS[fields.pop("code")](fields.pop("message"), **fields)
            if UNDEFINED in sizes:
                self._tables.release(table)
                return None
            costs = dict(zip(array_of(found, REL).tolist(), array_of(found, SUPPORT).tolist(), strict=True))
            charge(costs.get(COST, 0))
            outcomes = {name: self._outcome(i, name, table, sizes.get(i, 0)) for name, i in number.items()}
        except BaseException:
            self._tables.release(table)
            raise
        if len(outcomes) > 1:
            self._tables.release(table)
        return outcomes

    def _outcome(self, number: int, name: str, table: Table, rows: int) -> Outcome:
        version = self._versions[name]
        key = columns(version.arity)
        mine = table.frame.where(F.col(REL) == number)
        layer = mine.select(*key, HEIGHT, SUPPORT, ENTRY)
        # One relation reads the checkpoint itself; several share it, and each takes its rows out.
        kept = table.view(layer, rows) if len(self._names) == 1 else self._tables.checkpoint(layer, rows)
        begun_ = begun(version, True, self._stratum)
        if version.rows:
            seen, _ = compared(version, kept, True, self._stratum, self._tables)
        else:
            seen = self._seen(mine, begun_)
        return Outcome(begun_.with_layer(kept, seen.counts(version.counts)), seen.change())

    def _seen(self, mine: DataFrame, version: Version) -> Seen:
        key = columns(version.arity)
        ground = F.col(HEIGHT) == 0
        asserted = F.when(ground, F.col(SUPPORT)).otherwise(0)
        if version.signed:
            above = F.col(ENTRY) if version.fold is not None else F.when(ground, 0).otherwise(F.col(SUPPORT))
            tuples = mine.groupBy(*key).agg(
                F.sum(asserted).alias("asserted"), F.sum(above).alias("derived"), F.sum(ENTRY).alias(ENTRY)
            )
            # A tuple may be there at some heights only.
            tuples = tuples.where(F.col(ENTRY) > 0)
        else:
            tuples = mine.where(F.col(ENTRY) != 0).select(*key, asserted.alias("asserted"), "derived")
        table = self._tables.collect(tuples, small=False)
        none = np.zeros(table.num_rows, np.int64)
        now = array_of(table, "asserted"), array_of(table, "derived"), none + 1
        return Seen(codes_of(table, version.arity), (none, none, none), now)

    def _task(self) -> Fixpoint:
        arities = {name: version.arity for name, version in {**self._versions, **self._lower}.items()}
        indexes: dict[str, set[tuple[int, ...]]] = {}
        for rule in self._rules:
            for plan in rule.plans:
                for demand in plan.demands:
                    indexes.setdefault(demand.relation, set()).add(demand.columns)
        return Fixpoint(
            self._stratum,
            self._names,
            arities,
            {rule.id: bind_rule(rule, arities, self._encode) for rule in self._rules},
            {name: tuple(sorted(demanded)) for name, demanded in indexes.items()},
            {name: self._stream(version) for name, version in self._lower.items()},
            self._budget,
        )

    def _stream(self, version: Version) -> bytes:
        """The tuples that are present, as an Arrow stream."""
        entries = version.entries()
        key = columns(version.arity)
        if entries is None:
            table = pa.table({name: pa.array([], pa.int64()) for name in key})
        else:
            if len(version.layers) > 1 or version.signed:
                entries = entries.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)
            # A relation without columns has one tuple or none; a column keeps the number of rows.
            table = self._tables.collect(entries.select(*key, F.lit(1).alias("present")), small=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        stream: bytes = sink.getvalue().to_pybytes()
        return stream
