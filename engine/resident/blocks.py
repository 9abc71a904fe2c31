"""Bootstraps a stratum that has a pivot in blocks of some pivots each, so that tables stay in the processor's cache.

All derivations of a tuple use only tuples of the stratum with the same pivot (engine/circuit/pivot.py). So what comes
from outside the recursion is collected and ordered by pivot; each block goes up the heights in small relations of its
own; and its rows, with their supports and entries, are appended to the large relations, whose tables and indexes are
built at the end, as a whole. Blocks need nothing of each other, so as many as there are threads run at once; they are
appended in their order, and the state is the same with any number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from engine.circuit.circuit import Stratum
from engine.circuit.pivot import pivot_of
from engine.maintenance.meter import Meter
from engine.resident import build, climb
from engine.resident.board import Board
from engine.resident.bound import BoundStep
from engine.resident.journal import RelationJournal
from engine.resident.layout import I32, I64
from engine.resident.relation import Relation
from engine.resident.steps import Runner
from engine.resident.stratum import ResidentStratum

LEAST = 1 << 10
"""Supports from outside from which blocks are worth while."""
TUPLES = 1 << 14
"""Tuples that a block should come to: 1 MB with their supports and their table."""
_WIDE = 64
"""Tuples that a block should come to at each height: a height has a cost, however few they are."""
_FIRST = 16
"""Parts in the first block, from which the size of the others is learned."""
_MOST_PARTS = 1 << 16


def in_blocks(stratum: Stratum) -> bool:
    """Whether a stratum can be bootstrapped in blocks."""
    return not stratum.signed and not stratum.clocked and pivot_of(stratum) is not None


@dataclass(slots=True)
class _Whole:
    """A relation as the budget sees it: with what is done already."""

    done: Relation
    part: Relation

    @property
    def name(self) -> str:
        return self.done.name

    @property
    def live(self) -> int:
        return self.done.live + self.part.live

    def memory(self) -> int:
        return self.part.memory()


@dataclass(slots=True)
class _Place:
    """Where blocks run: relations, memory and board of their own."""

    runner: Runner
    board: Board
    own: dict[str, Relation] = field(default_factory=dict)
    meter: Meter = field(init=False)

    def grows(self, relation: Relation, size: int) -> None:
        """A block may be as large as its largest pivot, so its memory counts too."""
        self.meter.reserve(size, relation)


class _Ordered:
    """Supports from outside, to be had by parts of about equal numbers of pivots."""

    def __init__(self, supports: tuple[I64, I32, I64], pivot: int, bits: int) -> None:
        self._supports = supports
        self._order, self._begins = build.by_part(np.ascontiguousarray(supports[0][:, pivot]), bits)

    def of(self, first: int, end: int) -> tuple[I64, I32, I64]:
        """The supports of some parts."""
        chosen = self._order[self._begins[first] : self._begins[end]]
        codes, heights, weights = self._supports
        return codes[chosen], heights[chosen], weights[chosen]


class BlockedStratum(ResidentStratum):
    """The work on a stratum that is computed from nothing; `in_blocks` says for which strata."""

    def _begin(self) -> None:
        super()._begin()
        self._collected: dict[int, list[tuple[I64, I32, I64]]] = {}
        self._ledger[climb.COLLECTED] = 1

    def _collect(self, n: int, _: int) -> None:
        given = self._given()
        self._beside(self._relation(n), given.codes.nbytes + given.heights.nbytes + given.weights.nbytes)
        self._collected.setdefault(n, []).append(
            (given.codes.copy(), given.heights.copy(), given.weights.copy())
        )

    def run(self) -> None:
        self._ledger[climb.COLLECTED] = 0
        collected, self._collected = self._collected, {}
        every = [part for parts in collected.values() for part in parts]
        size = sum(array.nbytes for part in every for array in part)
        if sum(len(codes) for codes, _, _ in every) < LEAST:
            for n, parts in collected.items():
                for codes, heights, weights in parts:
                    self._push(self._board.names[n], codes, heights, weights, derived=False)
            super().run()
        else:
            self._flush()
            supports = {self._board.names[n]: _joined(parts) for n, parts in collected.items()}
            # Not needed twice.
            collected.clear()
            every.clear()
            self._run_blocks(supports)
            self._runner.workspace.end()
        self._meter.beside -= size

    # ---- blocks

    def _run_blocks(self, supports: Mapping[str, tuple[I64, I32, I64]]) -> None:
        pivot = pivot_of(self._stratum)
        assert pivot is not None, "in_blocks says so"
        number = sum(len(codes) for codes, _, _ in supports.values())
        bits = min(_MOST_PARTS, max(_FIRST, number // 2)).bit_length()
        ordered = {name: _Ordered(parts, pivot[name], bits) for name, parts in supports.items()}
        parts, first, size = 1 << bits, 0, _FIRST
        tuples = 0
        places = self._places()
        free, running = deque(places), deque[tuple[_Place, Future[None] | None, int, int]]()
        try:
            while first < parts or running:
                while first < parts and free:
                    end = min(first + size, parts)
                    place = free.popleft()
                    place.meter = self._part_meter(place)
                    block = {name: supports.of(first, end) for name, supports in ordered.items()}
                    future = None
                    if len(places) > 1:
                        future = self._runner.submit(self._ascend, place, block)
                    else:
                        self._ascend(place, block)
                    running.append((place, future, first, end))
                    first = end
                place, future, begin, end = running.popleft()
                if future is not None:
                    future.result()
                tuples += self._append(place, end / parts)
                heights = max(place.meter.course.profile, default=0)
                wanted = end * max(TUPLES, _WIDE * heights) // max(tuples, 1)
                size = max(1, min(wanted, 4 * (end - begin)))
                free.append(place)
        finally:
            for _, future, _, _ in running:
                if future is not None:
                    future.exception()
            for place in places:
                place.runner.workspace.end()
        own = [self._relations[name] for name in self._board.names[: self._board.own]]
        self._runner.together([work for relation in own for work in relation.arranging()])
        self._board.refresh(self._relations)

    def _places(self) -> list[_Place]:
        """As many places as blocks are to be in work, one more than threads: appending takes time too."""
        computes = any(
            not isinstance(step, BoundStep)
            for rule in self._stratum.rules
            for plan in self._bound[rule.id]
            for step in plan.steps
        )
        threads = 1 if computes else self._runner.threads
        places = [
            _Place(runner, self._board.twin())
            for runner in self._runner.others(threads + 1 if threads > 1 else 1)
        ]
        for place in places:
            place.own = {name: Relation(name, self._relations[name].arity, place.grows) for name in self._own}
        return places

    def _part_meter(self, place: _Place) -> Meter:
        whole = {name: _Whole(self._relations[name], part) for name, part in place.own.items()}
        return self._meter.part(whole, self._stratum)

    def _ascend(self, place: _Place, block: Mapping[str, tuple[I64, I32, I64]]) -> None:
        """The fixpoint of one block, in relations that are empty but for the lower ones."""
        run = ResidentStratum(
            self._stratum,
            {**self._relations, **place.own},
            self._bound,
            place.runner,
            place.meter,
            {name: RelationJournal(fresh=True) for name in place.own},
            board=place.board,
        )
        for name, (codes, heights, weights) in block.items():
            if len(codes):
                run.add_supports(name, codes, heights, weights)
        run.run()

    def _append(self, place: _Place, share: float) -> int:
        """Append what a block came to; how many tuples these are. share: about the part that is done after it."""
        self._meter.absorb(place.meter)
        tuples = 0
        for name, part in place.own.items():
            relation = self._relations[name]
            tuples += part.live
            relation.take(part, share)
            # Of blocks that run at once each sees only its own.
            self._meter.tuples(relation, self._stratum)
            if len(part.arrays.rows) > 16 * TUPLES:
                part.clear()
            else:
                part.empty()
        return tuples


def _joined(parts: list[tuple[I64, I32, I64]]) -> tuple[I64, I32, I64]:
    return (
        np.concatenate([codes for codes, _, _ in parts]),
        np.concatenate([np.broadcast_to(heights, len(codes)) for codes, heights, _ in parts]),
        np.concatenate([np.broadcast_to(weights, len(codes)) for codes, _, weights in parts]),
    )
