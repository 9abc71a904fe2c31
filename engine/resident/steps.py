"""Runs a bound plan over a batch of changed tuples: select, join step by step, deliver the changes of the head.

Results come in chunks, so that memory stays bounded however many derivations there are: a join stops after the group
that fills a chunk, the rest of the plan runs on it, and then the join goes on. A join that meets many postings is
shared among threads by ranges of groups; the kernels release the interpreter's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from engine.data.symbols import SymbolTable
from engine.errors import EvaluationError, WeightOverflowError
from engine.language.canonical import format_rule
from engine.resident import join as kernels
from engine.resident.bound import BoundLet, BoundPlan, BoundStep, BoundWhere
from engine.resident.climb import SPAN
from engine.resident.layout import ENTRY, I8, I32, I64, Records, RelationArrays
from engine.resident.relation import Index, Relation
from engine.resident.workspace import Workspace

P = ParamSpec("P")
T = TypeVar("T")

CHUNK = 1 << 20
"""The number of rows after which a join delivers a chunk."""
PIECE = 1 << 17
"""Rows that a computed step takes at a time: some of them cost microseconds for each row."""
PARALLEL = 1 << 25
"""Postings from which a join is shared among threads: less is done sooner than memory is handed over."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Changed tuples: codes int64[n, arity], heights int32[n], weights int64[n]; one element stands for all."""

    codes: I64
    heights: I32
    weights: I64

    def __len__(self) -> int:
        return len(self.codes)


class BatchIndex:
    """An index over a batch, for atoms that see the collection with (or without) the batch."""

    def __init__(self, batch: Batch, columns: tuple[int, ...]) -> None:
        n = len(batch)
        hw = np.broadcast_to(batch.heights * 2, n).astype(np.int32)
        hw += np.broadcast_to(batch.weights < 0, n)
        ids = np.arange(n, dtype=np.int32)
        # A weight of 2 or -2 turns an entry round: two postings.
        twice = np.flatnonzero(np.broadcast_to(np.abs(batch.weights) == 2, n)).astype(np.int32)
        self.entries = np.empty(n + len(twice), ENTRY)
        self.entries["hw"] = np.concatenate((hw, hw[twice]))
        rows = np.concatenate((ids, twice))
        self.index = Index(batch.codes.shape[1], columns, len(rows), 16)
        self.index.add(batch.codes, rows, np.arange(len(rows), dtype=np.int32), self.entries)
        self.low = batch.codes.min(axis=0, initial=np.iinfo(np.int64).max)
        self.high = batch.codes.max(axis=0, initial=np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class Target:
    """What a step joins with: an index and its relation's arrays, or a batch's; `sign` multiplies the weights."""

    index: Index | None
    relation: RelationArrays | None
    entries: Records
    low: I64
    high: I64
    use_heights: bool
    sign: int

    @classmethod
    def main(cls, relation: Relation, columns: tuple[int, ...] | None, use_heights: bool) -> Target:
        """The relation itself. `columns=None`: whole tuples."""
        a = relation.arrays
        ix = None if columns is None else relation.indexes[columns]
        return cls(ix, a if ix is None else None, a.entries, a.low, a.high, use_heights, 1)

    @classmethod
    def batch(cls, batch: BatchIndex, use_heights: bool, sign: int) -> Target:
        """The batch alone, added (+1) or taken away (-1)."""
        return cls(batch.index, None, batch.entries, batch.low, batch.high, use_heights, sign)


Targets = Callable[[BoundStep], list[Target]]
Charge = Callable[[int], None]
Emit = Callable[[BoundPlan, I64, I32, I64], None]
Meet = Callable[[BoundPlan, int, tuple[str, ...], dict[str, I64]], None]
"""Called with (plan, literal, its variables, values int64[n] of all known variables) when that literal has no value."""


class Scratch:
    """The arrays of one thread's dense accumulator, zero between uses."""

    def __init__(self) -> None:
        self.sums: I64 = np.zeros(0, np.int64)
        self.marks: I8 = np.zeros(0, np.int8)
        self.touched: I32 = np.zeros(0, np.int32)

    def of(self, span: int) -> tuple[I64, I8, I32]:
        if len(self.sums) < span:
            size = max(1024, 1 << (span - 1).bit_length())
            self.sums, self.marks = np.zeros(size, np.int64), np.zeros(size, np.int8)
            self.touched = np.empty(size, np.int32)
        return self.sums[:span], self.marks[:span], self.touched[:span]

    def reset(self) -> None:
        """Forget the arrays: after an error they may not be zero."""
        self.__init__()  # type: ignore[misc]  # the same fresh arrays as at the start


class Runner:
    """Executes bound plans. Holds scratch memory and threads, no state of the program.

    `meet` is called with bindings that are dropped because a literal has no value for them; without it, such a binding
    is an error. `check` is called between the kernels of a step, whatever they return; an exception from it ends the
    run.
    """

    def __init__(self, threads: int) -> None:
        self.meet: Meet | None = None
        self.check: Callable[[], None] = lambda: None
        self.threads = max(1, threads)
        self._others: list[Runner] = []
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._scratch = [Scratch() for _ in range(max(1, threads))]
        self.scratch = self._scratch[0]
        self.workspace = Workspace()
        self.symbols: SymbolTable | None = None

    def others(self, number: int) -> list[Runner]:
        """Runners of one thread each, for parts of the work; they are kept."""
        while len(self._others) < number:
            self._others.append(Runner(1))
        for other in self._others[:number]:
            other.meet, other.symbols, other.check = self.meet, self.symbols, self.check
        return self._others[:number]

    def together(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do some works that need nothing of each other, in as many threads as there are."""
        if self._pool is None:
            return [work() for work in works]
        return list(self._pool.map(lambda work: work(), works))

    def submit(self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> Future[T]:
        """Call a function in one of the threads."""
        assert self._pool is not None, "there are threads"
        return self._pool.submit(function, *arguments, **keywords)

    def memory(self) -> int:
        """Bytes of the accumulators."""
        return sum(s.sums.nbytes + s.marks.nbytes + s.touched.nbytes for s in self._scratch)

    def run(self, plan: BoundPlan, batch: Batch, targets: Targets, charge: Charge, emit: Emit) -> None:
        """Start `plan` with `batch`; `emit` gets (plan, head codes, body heights, weights) chunk by chunk.

        Raises:
            EvaluationError: a literal has no value for some binding, and there is no `meet`.
        """
        start = plan.start
        table: tuple[I64, I32, I64]
        if start.trivial:
            table = batch.codes, batch.heights, batch.weights
        else:
            table = kernels.select(
                batch.codes,
                batch.heights,
                batch.weights * start.sign,
                start.constants,
                start.equal,
                start.columns,
            )
        if len(table[0]):
            self.go_on(plan, table, targets, charge, emit)

    def go_on(
        self,
        plan: BoundPlan,
        table: tuple[I64, I32, I64],
        targets: Targets,
        charge: Charge,
        emit: Emit,
        first: int = 0,
    ) -> None:
        """The same for bindings, from a step on."""
        try:
            self._run(plan, table, targets, charge, emit, first)
        except EvaluationError as error:
            self._reset()
            rule = plan.rule.rule.origin
            error.detail["rule"] = format_rule(rule)
            raise
        except BaseException:
            self._reset()
            raise

    def _reset(self) -> None:
        for scratch in self._scratch:
            scratch.reset()

    def _run(
        self,
        plan: BoundPlan,
        table: tuple[I64, I32, I64],
        targets: Targets,
        charge: Charge,
        emit: Emit,
        first: int,
    ) -> None:
        if not plan.steps:
            charge(len(table[0]))
        # Depth first through the steps, without recursion: a rule's body may be long.
        stack = [iter((table,))]
        while stack:
            bindings = next(stack[-1], None)
            if bindings is None:
                stack.pop()
            elif not len(bindings[0]):
                continue
            elif len(stack) + first <= len(plan.steps):
                step = plan.steps[len(stack) + first - 1]
                if isinstance(step, BoundStep):
                    stack.append(self._step(step, bindings, targets(step), charge))
                else:
                    charge(len(bindings[0]))
                    stack.append(self._computed(plan, step, bindings))
            else:
                emit(plan, _head(plan, bindings[0]), bindings[1], bindings[2])

    def _step(
        self, step: BoundStep, bindings: tuple[I64, I32, I64], targets: list[Target], charge: Charge
    ) -> Iterator[tuple[I64, I32, I64]]:
        for target in targets:
            if target.index is not None:
                yield from self._join(step, target.index, target, bindings, charge)
            elif step.absent:
                assert target.relation is not None
                charge(len(bindings[0]))
                yield kernels.absent(target.relation, *bindings, step.sources, step.constants, step.carry)
            else:
                assert target.relation is not None
                charge(len(bindings[0]))
                yield kernels.check(
                    target.relation,
                    *bindings,
                    step.sources,
                    step.constants,
                    step.carry,
                    target.use_heights,
                    target.sign,
                )

    def _computed(
        self, plan: BoundPlan, step: BoundLet | BoundWhere, bindings: tuple[I64, I32, I64]
    ) -> Iterator[tuple[I64, I32, I64]]:
        """Run a step without a look-up, piece by piece."""
        rows = len(bindings[0])
        if rows <= PIECE:
            yield self._compute(plan, step, bindings)
            return
        for begin in range(0, rows, PIECE):
            self.check()
            table, heights, weights = bindings
            piece = slice(begin, begin + PIECE)
            part = (
                table[piece],
                heights if heights.size == 1 else heights[piece],
                weights if weights.size == 1 else weights[piece],
            )
            yield self._compute(plan, step, part)

    def _compute(
        self, plan: BoundPlan, step: BoundLet | BoundWhere, bindings: tuple[I64, I32, I64]
    ) -> tuple[I64, I32, I64]:
        """The same for one piece."""
        assert self.symbols is not None, "the placement gives the symbols"
        table = bindings[0]
        columns = {name: table[:, i] for i, name in enumerate(step.known)}
        evaluated = step.expression if isinstance(step, BoundLet) else step.condition
        if self.meet is None:
            values, rows = evaluated.evaluate(columns, len(table), self.symbols), None
        else:
            values, rows = evaluated.where_defined(columns, len(table), self.symbols)
            if rows is not None:
                without = np.ones(len(table), np.bool_)
                without[rows] = False
                dropped = {name: column[without] for name, column in columns.items()}
                self.meet(plan, step.literal, evaluated.variables, dropped)
                bindings = _taken(bindings, rows)
        if isinstance(step, BoundWhere):
            table, heights, weights = _taken(bindings, np.flatnonzero(values))
            return np.ascontiguousarray(table[:, step.carry]), heights, weights
        table, heights, weights = bindings
        result = np.empty((len(table), len(step.carry) + 1), np.int64)
        result[:, :-1] = table[:, step.carry]
        result[:, -1] = values
        return result, heights, weights

    def _join(
        self, step: BoundStep, index: Index, target: Target, bindings: tuple[I64, I32, I64], charge: Charge
    ) -> Iterator[tuple[I64, I32, I64]]:
        ix = index.arrays
        table, heights, _ = bindings
        found, total = kernels.probe(ix, table, step.sources, step.constants)
        if total == 0:
            return
        charge(total)
        shape = (step.carry, step.payload, step.equal, target.use_heights, target.sign)
        alone = not step.consolidate
        if not alone:
            order, starts, work = kernels.group(ix, table, heights, found, step.carry)
            # Groups of one binding have nothing to sum up.
            alone = step.lossless and len(work) == len(order)
        if alone:
            begin = 0
            while begin < len(table):
                self.check()
                *chunk, begin = kernels.expand(ix, target.entries, bindings, found, begin, shape, CHUNK)
                yield chunk[0], chunk[1], chunk[2]
            return
        low, span = _range(step, target)
        most = CHUNK * kernels.BURST // (1 if span else 4)
        if len(work) and int(work.max()) > most:
            starts, work = _cut(ix.key_count[found[order]], starts, work, most)
        groups = (found, order, starts, work)

        def accumulate(scratch: Scratch, begin: int, end: int) -> tuple[tuple[I64, I32, I64], int]:
            codes, out_heights, out_weights, following, overflow = kernels.accumulate(
                ix, target.entries, bindings, groups, begin, end, shape, low, scratch.of(span), CHUNK
            )
            if overflow:
                raise joined_too_often(step.relation)
            return (codes, out_heights, out_weights), following

        shares = len(self._scratch) if total >= PARALLEL else 1
        yield from self._accumulate(accumulate, _split(work, shares))

    def _accumulate(
        self,
        accumulate: Callable[[Scratch, int, int], tuple[tuple[I64, I32, I64], int]],
        ranges: list[tuple[int, int]],
    ) -> Iterator[tuple[I64, I32, I64]]:
        """Run `accumulate` over ranges of groups, a thread each. While a chunk is looked at, the threads go on."""
        if self._pool is None or len(ranges) == 1:
            for begin, end in ranges:
                while begin < end:
                    self.check()
                    chunk, begin = accumulate(self._scratch[0], begin, end)
                    yield chunk
            return
        running = deque(
            (scratch, end, self._pool.submit(accumulate, scratch, begin, end))
            for scratch, (begin, end) in zip(self._scratch, ranges, strict=False)
        )
        try:
            while running:
                self.check()
                scratch, end, future = running[0]
                chunk, following = future.result()
                running.popleft()
                if following < end:
                    running.append((scratch, end, self._pool.submit(accumulate, scratch, following, end)))
                yield chunk
        finally:
            # Their scratch memory must not be used before they have ended.
            wait([future for _, _, future in running])


def joined_too_often(relation: str) -> WeightOverflowError:
    """The error for a join whose sums could leave 64 bits."""
    return WeightOverflowError("a number of derivations might not fit into 64 bits", relation=relation)


def _taken(bindings: tuple[I64, I32, I64], rows: npt.NDArray[np.intp]) -> tuple[I64, I32, I64]:
    """Some of the bindings."""
    table, heights, weights = bindings
    return (
        table[rows],
        heights if heights.size == 1 else heights[rows],
        weights if weights.size == 1 else weights[rows],
    )


def _cut(met: I32, starts: I32, work: I64, most: int) -> tuple[I32, I64]:
    """Groups that meet more than `most` postings, divided into several with the same bindings, whose sums are then
    written part by part. met: postings of each binding, in the order of the groups. Returns (starts, work).
    """
    bounds = [starts]
    for g in np.flatnonzero(work > most).tolist():
        first, end = int(starts[g]), int(starts[g + 1])
        share = np.cumsum(met[first:end], dtype=np.int64) // most
        bounds.append((first + 1 + np.flatnonzero(share[1:] != share[:-1])).astype(np.int32))
    cut = np.unique(np.concatenate(bounds))
    done = np.concatenate((np.zeros(1, np.int64), np.cumsum(met, dtype=np.int64)))
    return cut, done[cut[1:]] - done[cut[:-1]]


def _split(work: I64, shares: int) -> list[tuple[int, int]]:
    """At most `shares` ranges of groups, each with about the same number of postings."""
    groups = len(work)
    if shares == 1 or groups < shares:
        return [(0, groups)]
    done = np.cumsum(work)
    cuts = np.searchsorted(done, done[-1] * np.arange(1, shares) / shares) + 1
    bounds = np.unique(np.concatenate(([0], cuts, [groups])))
    return [(int(a), int(b)) for a, b in pairwise(bounds)]


def _range(step: BoundStep, target: Target) -> tuple[int, int]:
    """The smallest code of the kept column and the size of its range; size 0 where the accumulator is a hash table."""
    if len(step.kept_columns) != 1:
        return 0, 0
    low, high = int(target.low[step.kept_columns[0]]), int(target.high[step.kept_columns[0]])
    span = high - low + 1
    return (low, span) if 0 < span <= SPAN else (0, 0)


def _head(plan: BoundPlan, codes: I64) -> I64:
    if plan.sources is None:
        return codes
    head = np.empty((len(codes), len(plan.sources)), np.int64)
    for column, source in enumerate(plan.sources.tolist()):
        head[:, column] = codes[:, source] if source >= 0 else plan.constants[-1 - source]
    return head
