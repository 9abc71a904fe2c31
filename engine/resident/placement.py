"""The placement in one process: arranged relations, brought from epoch to epoch by compiled kernels.

`execute` begins an epoch (epoch.py). The walk of engine/maintenance/epoch.py goes through its strata in order; each
takes the net changes of the strata below it and leaves its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from engine.circuit.circuit import EMPTY, Circuit
from engine.data.codes import Codes
from engine.maintenance.epoch import Costs
from engine.maintenance.facts import FactDelta
from engine.maintenance.placement import DEFAULT, Budget, Encode, Executed, PlacementState
from engine.maintenance.policy import Policy
from engine.resident import rowhash as rowhash  # So that all kernels are known, and compiled together.
from engine.resident.arrangements import Arrangements
from engine.resident.checkpoint import ResidentParts, effort, parts_of, take_up
from engine.resident.checks import check_relation
from engine.resident.epoch import ResidentEpoch
from engine.resident.layout import NONE
from engine.resident.relation import Relation, state_of
from engine.resident.steps import Runner
from engine.resident.transfer import bootstrap_costs, fill, to_table


class ResidentPlacement:
    """See the module. `threads`: for large joins; by default all cores that the process may use."""

    name = "resident"

    def __init__(self, threads: int | None = None) -> None:
        self._state = Arrangements()
        self._runner = Runner(threads or len(os.sched_getaffinity(0)))
        self._epoch: ResidentEpoch | None = None

    # ---- one epoch

    def execute(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy = DEFAULT,
    ) -> Executed:
        try:
            return self.begin(circuit, facts, encode, budget, policy).run()
        except BaseException:
            self.rollback()
            raise

    def begin(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy,
    ) -> ResidentEpoch:
        """Begin an epoch; it is to be run, and then committed or rolled back."""
        assert self._epoch is None, "the last epoch is neither committed nor rolled back"
        self._epoch = ResidentEpoch(self._state, self._runner, circuit, facts, encode, budget, policy)
        return self._epoch

    def commit(self) -> None:
        assert self._epoch is not None, "nothing was executed"
        self._epoch.commit()
        self._epoch = None

    def rollback(self) -> None:
        assert self._epoch is not None, "nothing was executed"
        epoch, self._epoch = self._epoch, None
        epoch.rollback()

    # ---- reading

    def asserted(self, relation: str, codes: Codes) -> Codes:
        found = self._state.relations.get(relation)
        weights = np.zeros(len(codes), np.int64)
        if found is not None and len(codes):
            rows = found.rows_of(codes)
            known = np.flatnonzero(rows != NONE)
            weights[known] = found.describe(rows[known])[0]
        return weights

    def count(self, relation: str, domain: str) -> int:
        found = self._state.relations.get(relation)
        if found is None:
            return 0
        if domain == "all" and not found.negative:
            return found.entries
        if domain == "asserted":
            return found.asserted
        return int(np.count_nonzero(_in_domain(found, found.all_rows(), domain)[0]))

    def tuples(
        self, relation: str, bound: Mapping[int, int], domain: str, most: int | None = None
    ) -> tuple[Codes, Codes]:
        found = self._state.relations[relation]
        rows = found.all_rows()
        for column, code in bound.items():
            rows = rows[found.arrays.rows[rows, column] == code]
        keep, asserted = _in_domain(found, rows, domain)
        codes, asserted = found.codes(rows[keep]), asserted[keep]
        if most is not None and len(codes) > most:
            first = np.lexsort(codes.T[::-1])[:most]
            codes, asserted = codes[first], asserted[first]
        return codes, asserted

    def holds(self, relation: str) -> bool:
        found = self._state.relations.get(relation)
        return found is not None and bool(found.live)

    def memory(self) -> int:
        return self._state.memory()

    @property
    def relations(self) -> Mapping[str, Relation]:
        """By key, for looking only."""
        return self._state.relations

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        found = [np.empty(0, np.int64)]
        for name, wanted in columns.items():
            relation = self._state.relations.get(name)
            if relation is not None and relation.live:
                rows = relation.arrays.rows[relation.all_rows()]
                found += (_distinct(rows[:, column]) for column in wanted or range(relation.arity))
        return np.unique(np.concatenate(found))

    def state(self) -> dict[str, Any]:
        return {name: state_of(self._state.relations[name]) for name in sorted(self._state.relations)}

    def export_state(self) -> PlacementState:
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        return PlacementState(self._state.circuit, {name: self.table(name) for name in self._state.relations})

    def table(self, relation: str) -> pa.Table:
        """A relation as `export_state` has it."""
        return to_table(self._state.relations[relation])

    @property
    def costs(self) -> Costs:
        """What the last bootstraps of the strata have cost."""
        return self._state.costs

    @property
    def circuit(self) -> Circuit:
        return self._state.circuit

    def rearrange(
        self, circuit: Circuit, kept: Set[str], tables: Mapping[str, pa.Table], encode: Encode
    ) -> Callable[[], None]:
        """Hold the relations of another circuit: those `kept` as they are, the others as `tables` say. Returns what
        undoes it, if nothing else has changed since. Not allowed during an epoch.
        """
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        state = self._state
        before = state.circuit, state.relations, state.bound, state.boards

        def undo() -> None:
            names = {*state.relations, *before[1]}
            state.circuit, state.relations, state.bound, state.boards = before
            self._reindex(kept)
            state.resized(names)

        state.circuit, state.relations, state.bound, state.boards = EMPTY, {}, {}, {}
        try:
            self._install(circuit, encode)
            state.relations.update((name, before[1][name]) for name in kept)
            self._reindex(kept)
            for name, table in tables.items():
                fill(state.relations[name], table)
        except BaseException:
            undo()
            raise
        state.resized({*state.relations, *before[1]})
        return undo

    def _reindex(self, relations: Set[str]) -> None:
        """Let relations have the indexes that the circuit demands, and no other."""
        wanted: dict[str, set[tuple[int, ...]]] = {name: set() for name in relations}
        for demand in self._state.circuit.demands:
            if demand.relation in wanted:
                wanted[demand.relation].add(demand.columns)
        for name, demanded in wanted.items():
            relation = self._state.relations[name]
            for columns in relation.indexes.keys() - demanded:
                del relation.indexes[columns]
            for columns in sorted(demanded - relation.indexes.keys()):
                relation.add_index(columns)

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        self._install(state.circuit, encode)
        for name, table in state.relations.items():
            fill(self._state.relations[name], table)
        self._state.resized(self._state.relations)
        self._state.costs |= bootstrap_costs(state)

    def parts(self) -> ResidentParts:
        """The state for a checkpoint: the arrays themselves, which the next epoch changes."""
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        return parts_of(self._state)

    def effort(self) -> float:
        """About how many tuples and derivations it takes to derive the state anew."""
        return effort(self._state)

    def resume(self, circuit: Circuit, parts: ResidentParts, encode: Encode) -> None:
        """Hold what another resident placement with an equal circuit held; this one must be new.

        Raises:
            CheckpointUnusable: the parts do not fit; this placement must not be used any more.
        """
        self._install(circuit, encode)
        take_up(self._state, parts)

    def _install(self, circuit: Circuit, encode: Encode) -> None:
        assert not self._state.relations, "only a new placement takes a state"
        epoch = ResidentEpoch(self._state, self._runner, circuit, {}, encode, Budget(), DEFAULT)
        epoch.install()
        epoch.commit()

    def close(self) -> None:
        """Nothing is held outside of this process."""

    def check_invariants(self) -> None:
        for relation in self._state.relations.values():
            check_relation(relation)


def _distinct(codes: Codes) -> Codes:
    """The distinct codes of a column. Where they lie closely together, as those of symbols do, none are sorted: ten
    million take a tenth of a second, and not one and a half.
    """
    low, high = int(codes.min()), int(codes.max())
    if high - low > 4 * len(codes):
        return np.unique(codes)
    seen = np.zeros(high - low + 1, np.bool_)
    seen[codes - low] = True
    return np.flatnonzero(seen) + low


def _in_domain(
    relation: Relation, rows: np.ndarray[Any, np.dtype[np.int32]], domain: str
) -> tuple[Any, Codes]:
    asserted, derived, present, _ = relation.describe(rows)
    return {"all": present > 0, "asserted": asserted > 0, "derived": derived > 0}[domain], asserted
