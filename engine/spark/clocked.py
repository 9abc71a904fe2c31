"""A stratum with count, sum or mean in recursion, brought through an epoch by the resident placement, in the driver.

Such a fold walks the timeline of a group from height to height: it has no form as a query over all groups at once, and
a query for each of some hundred heights would take minutes. So the stratum's state, and the relations of lower strata
that it reads, come into the driver, a resident placement of this stratum alone does the epoch, and the result goes
back. The evaluation itself is incremental; around it an epoch that touches the stratum moves all of it, and the driver
must have the memory for that. Everything else of the program stays where it is.

In: the stratum before and after, what is held, what changed below. Out: as of any other stratum, `Outcome`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.circuit.circuit import Circuit, Stratum
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, to_arrow
from engine.data.codes import Codes
from engine.maintenance.placement import Budget, Encode, FactDelta, PlacementState
from engine.maintenance.policy import Policy
from engine.resident.placement import ResidentPlacement
from engine.resident.relation import Relation
from engine.resident.transfer import fill
from engine.spark.frames import WEIGHT
from engine.spark.stratum import Lower
from engine.spark.tables import Tables
from engine.spark.version import Version, collected
from engine.spark.work.driver import compared
from engine.spark.work.work import Outcome, begun, in_place

_GROUND = np.zeros(1, np.int32)
_ONE = np.ones(1, np.int64)


@dataclass(frozen=True, slots=True)
class Clocked:
    """One epoch of one such stratum. before: what it was; None where its state is not to go on.

    versions: its relations as they were. lower: of the relations that it reads, or read before. arities: of all of
    these. facts: changes of its own asserted facts.
    """

    stratum: Stratum
    before: Stratum | None
    versions: Mapping[str, Version]
    lower: Mapping[str, Lower]
    arities: Mapping[str, int]
    facts: Mapping[str, FactDelta]

    def run(
        self, tables: Tables, encode: Encode, budget: Budget, policy: Policy, charge: Callable[[int], None]
    ) -> dict[str, Outcome]:
        """The stratum's relations after the epoch.

        Raises:
            FixpointNotReachedError, EvaluationError, BudgetExceededError: as the resident placement does.
        """
        held = {name: collected(version, tables) for name, version in self.versions.items()}
        resident = ResidentPlacement(threads=1)
        if self.before is None:
            facts = self._everything(held, tables)
        else:
            below = {
                name: _present(collected(one.old, tables), one.old.arity) for name, one in self.lower.items()
            }
            state = {
                name: to_arrow(codes, height=_GROUND, support=_ONE, entry=_ONE)
                for name, codes in below.items()
            }
            resident.import_state(PlacementState(self._circuit(self.before), {**held, **state}), encode)
            facts = {**self.facts, **self._deltas(tables)}
        executed = resident.execute(self._circuit(self.stratum), facts, encode, budget, policy)
        resident.commit()
        charge(executed.derivations)
        after = resident.export_state().relations
        return {
            name: self._outcome(version, held[name], after[name], tables)
            for name, version in self.versions.items()
        }

    def _circuit(self, stratum: Stratum) -> Circuit:
        """The stratum over relations that hold facts only."""
        below = tuple(Stratum((name,), (), False) for name in sorted(self.lower))
        return Circuit.of((*below, stratum), self.arities)

    def _everything(self, held: Mapping[str, pa.Table], tables: Tables) -> dict[str, FactDelta]:
        """All that the stratum is computed from."""
        facts: dict[str, FactDelta] = {}
        for name, one in self.lower.items():
            facts[name] = _present(collected(one.new, tables), one.new.arity), _ONE
        for name, table in held.items():
            ground = table.filter(pc.equal(table.column(HEIGHT), 0))
            codes, weights = codes_of(ground, self.arities[name]), array_of(ground, SUPPORT)
            if name in self.facts:
                more, by = self.facts[name]
                codes = np.concatenate((codes, more))
                weights = np.concatenate((weights, np.broadcast_to(by, len(more))))
            facts[name] = codes, weights
        return facts

    def _deltas(self, tables: Tables) -> dict[str, FactDelta]:
        """What changed in the lower relations."""
        deltas = {}
        for name, one in self.lower.items():
            if one.delta is not None:
                table = one.delta.local
                if table is None:
                    table = tables.collect(one.delta.frame, small=False)
                deltas[name] = codes_of(table, one.new.arity), array_of(table, WEIGHT)
        return deltas

    def _outcome(self, version: Version, held: pa.Table, after: pa.Table, tables: Tables) -> Outcome:
        was = Relation(version.name, version.arity, fold=version.fold)
        fill(was, held)
        now = Relation(version.name, version.arity, fold=in_place(self.stratum).get(version.name))
        fill(now, after)
        seen = compared(was, now)
        fresh = begun(version, True, self.stratum)
        return Outcome(fresh.with_layer(tables.put(after), seen.counts(version.counts)), seen.change())


def _present(rows: pa.Table, arity: int) -> Codes:
    """The tuples whose entries sum up to 1."""
    tally = Relation("", arity)
    tally.push(codes_of(rows, arity), _GROUND, array_of(rows, ENTRY))
    found, _, sums = tally.supports()
    return tally.codes(found[sums > 0])
