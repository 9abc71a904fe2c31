"""The mixed placement: some strata with the kernels in this process, the others on Spark, in one epoch.

In: a resident placement, a Spark placement, and the relations whose strata are away, on Spark. Each of the two holds
its part of the circuit (engine/circuit/part.py), and the walk through an epoch finds each stratum where it is. A
relation that the other side reads is mirrored there: the tuples that are present, kept up by each epoch's delta.
Always: a stratum is whole on one side; a mirror is there only while the other side reads the relation; moves and
mirrors belong to the epoch, and go with it if it is dropped.

An epoch costs on Spark what its strata there cost, and a stratum at home what it costs at home. A move costs one
passage of the strata that move through Arrow.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.part import Mirrors, Part, part_of, whole_strata
from engine.data.arrow import ENTRY, codes_of, columns, summed_by, to_arrow
from engine.data.codes import Codes
from engine.errors import BudgetExceededError
from engine.maintenance.epoch import Costs, Epoch, Held, StratumWork
from engine.maintenance.facts import FactDelta
from engine.maintenance.meter import Growing, Meter
from engine.maintenance.placement import DEFAULT, Budget, Encode, Executed, PlacementState
from engine.maintenance.policy import Policy, known_to_users
from engine.resident.epoch import ResidentEpoch
from engine.resident.placement import ResidentPlacement
from engine.resident.transfer import bootstrap_costs
from engine.spark.epoch import SparkEpoch
from engine.spark.placement import SparkPlacement

Side = ResidentEpoch | SparkEpoch


@dataclass(frozen=True, slots=True)
class _Host:
    """One side, as the walk sees it: what changes there is handed on to the other side, if it is read there."""

    side: Side
    other: Side

    def held(self, stratum: Stratum) -> Held:
        return self.side.held(stratum)

    def work(self, stratum: Stratum, before: Stratum | None) -> StratumWork:
        return self.side.work(stratum, before)

    def take_back(self, stratum: Stratum) -> None:
        self.side.take_back(stratum)

    def discard(self, stratum: Stratum) -> None:
        self.side.discard(stratum)

    def changed(self, relation: str) -> bool:
        changed = self.side.changed(relation)
        if changed and relation in self.other.mirrors:
            with _naming(relation):
                self.other.mirror(relation, *self.side.delta(relation))
        return changed


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes that a move sent to Spark and fetched from there, and the seconds that it took."""

    sent: int
    fetched: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Move:
    """A move that is not final: what undoes it, and what makes it final."""

    undo: Callable[[], None]
    settle: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Now:
    """An executed epoch. parts: of its circuit. moves: how many there were before it that were not final."""

    epoch: Epoch
    parts: tuple[Part, Part]
    moves: int


class MixedPlacement:
    """See the module. It takes the two placements over; at first every stratum is where the state is: at home."""

    def __init__(self, home: ResidentPlacement, spark: SparkPlacement) -> None:
        self.home = home
        self.spark = spark
        self.circuit = home.circuit
        self.away: Mapping[str, str] = {}
        """The relations that are on Spark, with the reason in words."""
        self._known: Mirrors = {}
        self._parts = Part(self.circuit), Part()
        self._moves: list[_Move] = []
        self._now: _Now | None = None
        self.carried = Carried(0, 0, 0.0)
        """What the last move carried."""
        self.costs: Costs = dict(home.costs)

    @classmethod
    def around(cls, spark: SparkPlacement, threads: int | None, why: str) -> MixedPlacement:
        """All strata are on Spark, where the state is."""
        mixed = cls(ResidentPlacement(threads), spark)
        mixed.circuit = spark.circuit
        mixed.away = dict.fromkeys(spark.circuit.arities, why)
        mixed._parts = Part(), Part(spark.circuit)
        mixed.costs = dict(spark.costs)
        return mixed

    @property
    def name(self) -> str:
        """`mixed`, or `resident` or `spark` if every stratum is there."""
        if not self.away:
            return "resident"
        everything = bool(self.circuit.arities) and self.circuit.arities.keys() <= self.away.keys()
        return "spark" if everything else "mixed"

    def close(self) -> None:
        self.home.close()
        self.spark.close()

    # ---- moves

    def gathered(self) -> ResidentPlacement:
        """The placement at home, which holds everything."""
        assert not self.away, "some strata are on Spark"
        self.spark.close()
        self.home.costs.clear()
        self.home.costs.update(self.costs)
        return self.home

    def place(self, away: Set[str], why: str, encode: Encode) -> None:
        """Let the strata of these relations be on Spark, and all others at home. It is final with the next epoch that
        is committed; `take_back` undoes it. why: the reason for those that leave.

        Raises:
            BudgetExceededError, SparkUnavailableError: nothing has moved.
        """
        self._place(whole_strata(away, [self.circuit]), why, encode)

    def _place(self, away: Set[str], why: str, encode: Encode) -> None:
        if away == self.away.keys():
            return
        before, parts = self.away, self._parts
        divided = home, there = self._divided(self.circuit, away)
        kept = [
            {name for name in new.circuit.arities if new.keeps(name, old)}
            for new, old in zip(divided, parts, strict=True)
        ]
        tables = [
            {name: self._table(name, name in part.mirrors) for name in part.circuit.arities.keys() - held}
            for part, held in zip(divided, kept, strict=True)
        ]
        costs, start = dict(self.costs), time.monotonic()
        bring_back = self.home.rearrange(home.circuit, kept[0], tables[0], encode)
        try:
            call_back, settle = self.spark.rearrange(there.circuit, kept[1], tables[1])
        except BaseException:
            bring_back()
            raise
        fetched, sent = (sum(table.nbytes for table in moved.values()) for moved in tables)
        self.carried = Carried(sent, fetched, time.monotonic() - start)
        self.away, self._parts = {name: before.get(name, why) for name in away}, divided
        for part, found, costs_of in (
            (home, tables[0], bootstrap_costs),
            (there, tables[1], self.spark.costs_of),
        ):
            own = {name: table for name, table in found.items() if name not in part.mirrors}
            self.costs |= costs_of(PlacementState(part.circuit, own))

        def undo() -> None:
            call_back()
            bring_back()
            self.away, self._parts, self.costs = before, parts, costs

        self._moves.append(_Move(undo, settle))

    def take_back(self) -> None:
        """Undo the moves that are not final."""
        self._undo(0)

    def _undo(self, first: int) -> None:
        while len(self._moves) > first:
            self._moves.pop().undo()

    def _divided(self, circuit: Circuit, away: Set[str]) -> tuple[Part, Part]:
        return part_of(circuit, away, False, self._known), part_of(circuit, away, True, self._known)

    def _table(self, relation: str, present: bool) -> pa.Table:
        """A relation's state; present: as a mirror has it."""
        table = self._owner(relation).table(relation)
        if not present:
            return table
        codes = _present(table, self.circuit.arities[relation])
        ones = np.ones(1, np.int64)
        return to_arrow(codes, height=np.zeros(1, np.int32), support=ones, entry=ones)

    def _owner(self, relation: str) -> ResidentPlacement | SparkPlacement:
        return self.spark if relation in self.away else self.home

    # ---- one epoch

    def execute(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy = DEFAULT,
    ) -> Executed:
        assert self._now is None, "the last epoch is neither committed nor rolled back"
        first = len(self._moves)
        away = whole_strata(self.away.keys(), (self.circuit, circuit))
        self._place(away, "it shares a stratum with relations that are there", encode)
        parts = self._parts if circuit is self.circuit else self._divided(circuit, away)
        if not parts[0].circuit.strata:
            # The memory budget is for this process.
            budget = replace(budget, memory=None)
        epoch = Epoch(circuit, self.circuit, facts, policy, self.costs)
        home = self.home.begin(parts[0].circuit, {}, encode, budget, policy)
        spark = self.spark.begin(parts[1].circuit, {}, encode, budget, policy)
        self._now = _Now(epoch, parts, first)
        home.mirrors, spark.mirrors = (
            new.mirrors | old.mirrors for new, old in zip(parts, self._parts, strict=True)
        )
        for name in spark.mirrors:
            spark.growing.pop(name, None)
        watched = ChainMap(spark.growing, cast("dict[str, Growing]", self.home.relations))
        home.meter = spark.meter = meter = Meter(budget, watched, home.memory)
        at_home, there = _Host(home, spark), _Host(spark, home)
        try:
            with spark.watched():
                home.begin()
                self._begin_mirrors(home, parts[0])
                self._begin_mirrors(spark, parts[1])
                epoch.run(lambda stratum: there if stratum.relations[0] in away else at_home, meter, encode)
                home.judge()
                spark.judge()
            return epoch.executed(chain(home.visible(), spark.visible()), meter)
        except BaseException:
            self.rollback()
            raise

    def _begin_mirrors(self, side: Side, part: Part) -> None:
        """Fill the mirrors that the epoch's circuit has and the one before it has not, as it was before the epoch."""
        for name in sorted(part.mirrors - self._parts[isinstance(side, SparkEpoch)].mirrors):
            if name in self.circuit.arities:
                table = self._owner(name).table(name)
                if table.num_rows:
                    with _naming(name):
                        side.begin_mirror(name, _present(table, self.circuit.arities[name]))

    def commit(self) -> None:
        now, self._now = self._now, None
        assert now is not None, "nothing was executed"
        self.home.commit()
        self.spark.commit()
        now.epoch.keep()
        self.circuit, self._parts = now.epoch.circuit, now.parts
        self.away = {name: why for name, why in self.away.items() if name in self.circuit.arities}
        moves, self._moves = self._moves, []
        for move in moves:
            move.settle()

    def rollback(self) -> None:
        now, self._now = self._now, None
        assert now is not None, "nothing was executed"
        self.home.rollback()
        self.spark.rollback()
        self._undo(now.moves)

    # ---- reading

    def asserted(self, relation: str, codes: Codes) -> Codes:
        return self._owner(relation).asserted(relation, codes)

    def count(self, relation: str, domain: str) -> int:
        return self._owner(relation).count(relation, domain)

    def tuples(
        self, relation: str, bound: Mapping[int, int], domain: str, most: int | None = None
    ) -> tuple[Codes, Codes]:
        return self._owner(relation).tuples(relation, bound, domain, most)

    def holds(self, relation: str) -> bool:
        return self._owner(relation).holds(relation)

    def memory(self) -> int:
        return self.home.memory() + self.spark.memory()

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        # A query for each relation that is on Spark.
        return None

    def state(self) -> dict[str, Any]:
        sides = self.home.state(), self.spark.state()
        found = {
            name: one for side in sides for name, one in side.items() if side is sides[name in self.away]
        }
        return dict(sorted(found.items()))

    def export_state(self) -> PlacementState:
        assert self._now is None, "an executed epoch is neither kept nor dropped"
        return PlacementState(self.circuit, {name: self._table(name, False) for name in self.circuit.arities})

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        assert not self.away, "only a new placement takes a state"
        self.home.import_state(state, encode)
        self.circuit, self._parts = state.circuit, (Part(state.circuit), Part())
        self.costs = dict(self.home.costs)

    def check_invariants(self) -> None:
        self.home.check_invariants()
        self.spark.check_invariants()
        sides: tuple[tuple[ResidentPlacement | SparkPlacement, Part], ...] = (
            (self.home, self._parts[0]),
            (self.spark, self._parts[1]),
        )
        for side, part in sides:
            assert side.circuit.arities.keys() == part.circuit.arities.keys()
            for name in part.mirrors:
                assert (name in self.away) == (side is self.home), f"{name} is mirrored where it is"
                arity = self.circuit.arities[name]
                mirror, real = (_present(one.table(name), arity) for one in (side, self._owner(name)))
                assert sorted(mirror.tolist()) == sorted(real.tolist()), (
                    f"the mirror of {name} differs from it"
                )


def _present(table: pa.Table, arity: int) -> Codes:
    """The tuples that are present in a relation: those whose entries sum up to 1."""
    if not arity:
        total = int(table.column(ENTRY).to_numpy().sum())
        return np.empty((1 if total > 0 else 0, 0), np.int64)
    sums = summed_by(table, columns(arity), [ENTRY])
    return codes_of(sums.filter(pc.field(ENTRY) > 0), arity)


@contextmanager
def _naming(relation: str) -> Iterator[None]:
    """Where there is no room for a mirror, the error is about the relation that is mirrored."""
    try:
        yield
    except BudgetExceededError as error:
        error.detail["stratum"] = list(known_to_users((relation,)))
        raise
