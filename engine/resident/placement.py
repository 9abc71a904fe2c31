"""The placement in one process: arranged relations, brought from epoch to epoch by compiled kernels.

`execute` begins an epoch (epoch.py). The walk of engine/maintenance/epoch.py goes through its strata in order; each
takes the net changes of the strata below it and leaves its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.circuit.circuit import Circuit
from engine.data.codes import Codes
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
        assert self._epoch is None, "the last epoch is neither committed nor rolled back"
        self._epoch = ResidentEpoch(self._state, self._runner, circuit, facts, encode, budget, policy)
        try:
            return self._epoch.run()
        except BaseException:
            self.rollback()
            raise

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

    def tuples(self, relation: str, bound: Mapping[int, int], domain: str) -> tuple[Codes, Codes]:
        found = self._state.relations[relation]
        rows = found.all_rows()
        for column, code in bound.items():
            rows = rows[found.arrays.rows[rows, column] == code]
        keep, asserted = _in_domain(found, rows, domain)
        return found.codes(rows[keep]), asserted[keep]

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
        relations = {name: to_table(held) for name, held in self._state.relations.items()}
        return PlacementState(self._state.circuit, relations)

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
