"""The fixpoint of one part of a pivoted stratum, run by the resident kernels inside a Spark task.

In: the part's supports that come from outside the recursion, as Arrow batches of (rel, c0 .., height, weight), or the
numbers (id) of parts that the task carries; and, carried by the task, the recursive rules and the relations of lower
strata that they read. Out: every support of the part, in chunks: a row is up to CHUNK supports of one relation, and its
c0 .., height and support are lists, since Spark then moves and keeps thousands of rows as the one object that a single
one would be. All of a chunk have the same `entry`; those of height 0 have chunks of their own, and where these hold the
tuples' only entries, `derived` lists the sums of their supports above. `size` is the number of supports.

One more row, of `rel` COST, holds the derivations in `size`. One of `rel` PROBLEM holds an error as JSON, one of `rel`
UNDEFINED says that some binding had no value for a term; where there is one of these, nothing else counts. The task
takes its part in blocks of some pivots each, the next as large as the last one's outcome suggests: a table that fits
into the processor's cache is filled faster, and only one block's outcome is held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from engine.circuit.circuit import Stratum
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, Array, array_of, codes_of, column, columns, to_arrow
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.errors import BudgetExceededError, EvaluationError, WeightOverflowError, ZedlogError
from engine.maintenance.meter import Meter
from engine.maintenance.oscillation import Swing
from engine.maintenance.placement import Budget
from engine.resident.board import Board
from engine.resident.bound import BoundPlan
from engine.resident.journal import RelationJournal
from engine.resident.relation import Relation
from engine.resident.steps import Runner
from engine.resident.stratum import ResidentStratum
from engine.resident.transfer import hold, to_table
from engine.spark.frames import REL, WEIGHT

COST, PROBLEM, UNDEFINED = -1, -2, -3
ERRORS: dict[str, type[ZedlogError]] = {e.code: e for e in (BudgetExceededError, WeightOverflowError)}
SIZE, DERIVED, MESSAGE = "size", "derived", "problem"
CHUNK = 1 << 14
"""Supports in a row of the output: 128 KiB a list, far below what the JVM calls a huge object."""
_FIRST = 16
"""Pivots in the first block, from which the size of the others is learned."""
_TUPLES = 1 << 15
"""Tuples that a block should come to: some 2 MB with their supports and an index."""
_BATCH = 1 << 12
"""Tuples that a block should come to at each height: a height costs a call of every kernel, however few they are."""


@dataclass(slots=True)
class _Whole:
    """A relation as the budget sees it: with the tuples of the blocks that were done before."""

    relation: Relation
    done: int = 0

    @property
    def name(self) -> str:
        return self.relation.name

    @property
    def live(self) -> int:
        return self.done + self.relation.live

    def memory(self) -> int:
        return self.relation.memory()


@dataclass(frozen=True, slots=True)
class PartFixpoint:
    """The task, as it travels to the workers. `stratum` holds the recursive rules alone, `bound` their plans; `pivot`
    is a column of each relation; `indexes` says which columns of which relation are looked up; `lower` are Arrow
    streams of (c0 ..), and `parts` such streams of supports."""

    stratum: Stratum
    pivot: Mapping[str, int]
    names: tuple[str, ...]
    arities: Mapping[str, int]
    bound: Mapping[str, tuple[BoundPlan, ...]]
    indexes: Mapping[str, tuple[tuple[int, ...], ...]]
    lower: Mapping[str, bytes]
    budget: Budget
    parts: tuple[bytes, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        table = pa.Table.from_batches(given) if given else None
        if table is not None and self.parts:
            numbers = table.column("id").to_pylist()
            table = pa.concat_tables([_from_stream(self.parts[number]) for number in numbers])
        if table is None or not table.num_rows:
            return
        width = max(self.arities[name] for name in self.names)
        try:
            yield from self._computed(table, width)
        except (BudgetExceededError, WeightOverflowError) as error:
            yield _row(width, {REL: PROBLEM, MESSAGE: json.dumps(error.problem(), default=str)})
        except (EvaluationError, Swing):
            # Both are told by the work that goes height by height, which has the symbols.
            yield _row(width, {REL: UNDEFINED})

    def _computed(self, table: pa.Table, width: int) -> Iterator[pa.RecordBatch]:
        folds = self.stratum.in_place
        relations = {
            name: Relation(name, arity, fold=folds.get(name)) for name, arity in self.arities.items()
        }
        for name, stream in self.lower.items():
            relation = relations[name]
            hold(relation, codes_of(_from_stream(stream), relation.arity))
        for name, demanded in self.indexes.items():
            for key in demanded:
                relations[name].add_index(key)
        whole = {name: _Whole(relation) for name, relation in relations.items()}
        meter = Meter(self.budget, whole)
        meter.enter(self.stratum)
        supports, starts = by_pivot(table, [self.pivot[name] for name in self.names])
        runner, board = Runner(1), Board(self.stratum, self.bound)
        # What is computed here needs no symbol (pivoted.py).
        runner.symbols = SymbolTable()
        first, size = 0, _FIRST
        while first < len(starts) - 1:
            end = min(first + size, len(starts) - 1)
            block = supports.slice(starts[first], starts[end] - starts[first])
            journal = {name: RelationJournal(fresh=True) for name in self.names}
            run = ResidentStratum(self.stratum, relations, self.bound, runner, meter, journal, board=board)
            self._ascend(block, run)
            tuples, heights = 0, 0
            for number, name in enumerate(self.names):
                relation = relations[name]
                rows = to_table(relation) if self.stratum.signed else _rows(relation)
                tuples += relation.live
                heights = max(heights, int(array_of(rows, HEIGHT).max(initial=0)))
                whole[name].done += relation.live
                relation.clear()
                yield from _chunks(number, rows, width)
            size = max(1, (end - first) * max(_TUPLES, _BATCH * heights) // max(tuples, 1))
            first = end
        yield _row(width, {REL: COST, SIZE: meter.derivations})

    def _ascend(self, supports: pa.Table, run: ResidentStratum) -> None:
        """The fixpoint over some supports, in relations that are empty but for the lower ones."""
        rel, heights, weights = (
            array_of(supports, REL),
            array_of(supports, HEIGHT).astype(np.int32),
            array_of(supports, WEIGHT),
        )
        for number, name in enumerate(self.names):
            mine = np.flatnonzero(rel == number)
            if len(mine):
                codes = codes_of(supports, self.arities[name])[mine]
                run.add_supports(name, codes, heights[mine], weights[mine])
        run.run()


def by_pivot(table: pa.Table, pivots: Sequence[int]) -> tuple[pa.Table, Codes]:
    """Supports in the order of their pivots, and where each pivot's begin; at last, their number. pivots: the column
    of each relation, in the order of their numbers."""
    rel = array_of(table, REL)
    values = np.zeros(len(rel), np.int64)
    for number, pivot in enumerate(pivots):
        mine = rel == number
        values[mine] = array_of(table, column(pivot))[mine]
    order = np.argsort(values, kind="stable")
    changes = np.flatnonzero(np.diff(values[order])) + 1
    return table.take(pa.array(order)), np.concatenate(([0], changes, [len(rel)]))


def to_stream(table: pa.Table) -> bytes:
    """An Arrow stream, as a task carries it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _from_stream(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


def schema(width: int) -> str:
    """The schema of the output, as Spark writes it."""
    return ", ".join(f"{name} {kind}" for name, (kind, _) in _fields(width).items())


def _fields(width: int) -> dict[str, tuple[str, pa.DataType]]:
    """The columns of the output, with their types in Spark and in Arrow."""
    number, numbers = ("long", pa.int64()), ("array<long>", pa.list_(pa.int64()))
    heights = ("array<int>", pa.list_(pa.int32()))
    lists = {**dict.fromkeys(columns(width), numbers), HEIGHT: heights, SUPPORT: numbers, DERIVED: numbers}
    return {REL: ("int", pa.int32()), ENTRY: number, SIZE: number, **lists, MESSAGE: ("string", pa.string())}


def _row(width: int, values: Mapping[str, Any]) -> pa.RecordBatch:
    """One row of the output; what is not in `values` is null, or zero where it is a number."""
    values = {ENTRY: 0, SIZE: 0, **values}
    fields = {name: kind for name, (_, kind) in _fields(width).items()}
    arrays = [
        values[name] if isinstance(values.get(name), pa.Array) else pa.array([values.get(name)], kind)
        for name, kind in fields.items()
    ]
    return pa.record_batch(arrays, names=list(fields))


def _rows(relation: Relation) -> pa.Table:
    """(c0 .., height, support, entry, derived) of a relation whose tuples have one entry each, in the order of the
    chunks. Above height 0 `derived` is left at zero."""
    rows, heights, counts = relation.supports()
    entry_height = np.full(len(relation.arrays.rows), -1, np.int32)
    entry_rows, _, hw = relation.list_entries()
    entry_height[entry_rows] = hw >> 1
    entry = entry_height[rows] == heights
    order = np.argsort(_kinds(entry, heights), kind="stable")
    rows, heights, counts, entry = rows[order], heights[order], counts[order], entry[order]
    derived = np.zeros(len(rows), np.int64)
    ground = np.flatnonzero(entry & (heights == 0))
    derived[ground] = relation.describe(rows[ground])[1]
    return to_arrow(
        relation.codes(rows), height=heights, support=counts, entry=entry.astype(np.int64), derived=derived
    )


def _chunks(rel: int, table: pa.Table, width: int) -> Iterator[pa.RecordBatch]:
    """A relation's supports, each chunk of one entry and either at height 0 or above."""
    kinds = _kinds(array_of(table, ENTRY), array_of(table, HEIGHT))
    if (np.diff(kinds) < 0).any():
        order = np.argsort(kinds, kind="stable")
        kinds, table = kinds[order], table.take(pa.array(order)).combine_chunks()
    for kind in np.unique(kinds).tolist():
        begin, end = np.searchsorted(kinds, [kind, kind + 1]).tolist()
        lists = [name for name in table.column_names if name != ENTRY and (name != DERIVED or kind == 3)]
        for start in range(begin, end, CHUNK):
            part = table.slice(start, min(CHUNK, end - start))
            # All of the table is one piece, and a slice of it is no copy.
            values = {name: _as_list(part.column(name).chunk(0)) for name in lists}
            yield _row(width, {REL: rel, ENTRY: kind // 2, SIZE: part.num_rows, **values})


def _kinds(entry: Array, heights: Array) -> Array:
    """What of a support all of a chunk have in common, as a small number."""
    kinds: Array = (entry * 2 + (heights == 0)).astype(np.int8)
    return kinds


def _as_list(values: pa.Array) -> pa.ListArray:
    """One list of all values."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
