"""The fixpoint of one part of a pivoted stratum, run by the resident kernels inside a Spark task.

In: the part's supports that come from outside the recursion, as Arrow batches of (rel, c0 .., height, weight), and,
carried by the task itself, the recursive rules and the relations of lower strata that they read. Out: Arrow batches of
(rel, c0 .., height, support, entry, derived, problem): every support of the part; `entry` is 1 where the tuple's entry
is, and there `derived` is the sum of its supports above height 0. In a stratum with a fold in place a tuple may have
more entries, also where it has no support, and `derived` says nothing. One more row, of `rel` COST, holds the
derivations in `support`; one of `rel` PROBLEM, instead of all others, an error as JSON; one of `rel` UNDEFINED says
that some binding had no value for a term, and that the part is not computed. The task holds its whole part in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns, to_arrow
from engine.circuit.circuit import Stratum
from engine.errors import BudgetExceededError, EvaluationError, WeightOverflowError, ZedlogError
from engine.placement import Budget
from engine.resident.bound import BoundPlan
from engine.resident.meter import Meter
from engine.resident.relation import ONE, Relation
from engine.resident.steps import Runner
from engine.resident.stratum import GROUND, Changes, StratumRun
from engine.resident.transfer import to_table
from engine.spark.frames import REL, WEIGHT
from engine.spark.work import in_place
from engine.symbols import SymbolTable

COST, PROBLEM, UNDEFINED = -1, -2, -3
ERRORS: dict[str, type[ZedlogError]] = {e.code: e for e in (BudgetExceededError, WeightOverflowError)}
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """The task, as it travels to the workers. `stratum` holds the recursive rules alone, `bound` their plans;
    `indexes` says which columns of which relation are looked up; `lower` are Arrow streams of (c0 ..)."""

    stratum: Stratum
    names: tuple[str, ...]
    arities: Mapping[str, int]
    bound: Mapping[str, tuple[BoundPlan, ...]]
    indexes: Mapping[str, tuple[tuple[int, ...], ...]]
    lower: Mapping[str, bytes]
    budget: Budget

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        table = pa.Table.from_batches(given) if given else None
        if table is None or not table.num_rows:
            return
        width = max(self.arities[name] for name in self.names)
        try:
            yield from self._computed(table, width)
        except (BudgetExceededError, WeightOverflowError) as error:
            row = _row(width, PROBLEM, 0, json.dumps(error.problem(), default=str))
            yield from row.to_batches()
        except EvaluationError:
            yield from _row(width, UNDEFINED, 0, None).to_batches()

    def _computed(self, table: pa.Table, width: int) -> Iterator[pa.RecordBatch]:
        folds = in_place(self.stratum)
        relations = {
            name: Relation(name, arity, fold=folds.get(name)) for name, arity in self.arities.items()
        }
        for name, stream in self.lower.items():
            relation = relations[name]
            codes = codes_of(pa.ipc.open_stream(stream).read_all(), relation.arity)
            rows = relation.push(codes, GROUND, ONE)
            relation.change_entries(rows, np.ones(len(rows), np.int64), 0, 0)
        for name, demanded in self.indexes.items():
            for key in demanded:
                relations[name].add_index(key)
        meter = Meter(self.budget, relations)
        meter.enter(self.stratum)
        journal = {name: Changes(fresh=True) for name in self.names}
        runner = Runner(1)
        # What is computed here needs no symbol (pivoted.py).
        runner.symbols = SymbolTable()
        run = StratumRun(self.stratum, relations, self.bound, runner, meter, journal)
        rel, heights, weights = (
            array_of(table, REL),
            array_of(table, HEIGHT).astype(np.int32),
            array_of(table, WEIGHT),
        )
        for number, name in enumerate(self.names):
            mine = np.flatnonzero(rel == number)
            if len(mine):
                codes = codes_of(table, self.arities[name])[mine]
                run.add_supports(name, codes, heights[mine], weights[mine])
        run.ascend()
        for number, name in enumerate(self.names):
            rows = (_signed_rows if self.stratum.signed else _rows)(number, relations[name], width)
            yield from rows.to_batches(max_chunksize=_CHUNK)
        yield from _row(width, COST, meter.derivations, None).to_batches()


def schema(width: int) -> str:
    """The schema of the output, as Spark writes it."""
    tuples = [f"{name} long" for name in columns(width)]
    return ", ".join(
        ["rel int", *tuples, "height int", "support long", "entry long", "derived long", "problem string"]
    )


def _rows(number: int, relation: Relation, width: int) -> pa.Table:
    rows, heights, counts = relation.supports()
    entry_height = np.full(len(relation.arrays.rows), -1, np.int32)
    entry_rows, _, hw = relation.list_entries()
    entry_height[entry_rows] = hw >> 1
    entry = (entry_height[rows] == heights).astype(np.int64)
    derived = np.where(entry != 0, relation.describe(rows)[1], 0)
    wide = np.zeros((len(rows), width), np.int64)
    wide[:, : relation.arity] = relation.codes(rows)
    return _output(number, to_arrow(wide, height=heights, support=counts, entry=entry, derived=derived), None)


def _signed_rows(number: int, relation: Relation, width: int) -> pa.Table:
    table = to_table(relation)
    wide = np.zeros((table.num_rows, width), np.int64)
    wide[:, : relation.arity] = codes_of(table, relation.arity)
    parts = {name: array_of(table, name) for name in (SUPPORT, ENTRY)}
    heights = array_of(table, HEIGHT).astype(np.int32)
    return _output(number, to_arrow(wide, height=heights, **parts, derived=np.zeros(1, np.int64)), None)


def _row(width: int, rel: int, support: int, problem: str | None) -> pa.Table:
    none = np.zeros(1, np.int64)
    values = to_arrow(
        np.zeros((1, width), np.int64),
        height=np.zeros(1, np.int32),
        support=np.array([support], np.int64),
        entry=none,
        derived=none,
    )
    return _output(rel, values, problem)


def _output(rel: int, table: pa.Table, problem: str | None) -> pa.Table:
    n = table.num_rows
    table = table.add_column(0, REL, pa.array(np.full(n, rel, np.int32)))
    return table.append_column(
        "problem", pa.array([problem] * n, pa.string()) if problem else pa.nulls(n, pa.string())
    )
