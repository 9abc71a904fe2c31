"""The placement in one process: arranged relations, brought from epoch to epoch by compiled kernels.

`execute` runs the strata in order; each takes the net changes of those below it and leaves its own. Everything it
does is in a journal, so that `rollback` leaves supports, entries and indexes as they were; `commit` drops the journal
and the rows that nothing holds any more. A stratum whose members changed, or whose update is abandoned
(engine/maintenance/policy.py), is built anew beside the old one, and the difference flows on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.circuit.circuit import EMPTY, Circuit, Stratum, is_internal
from engine.circuit.normal import UNIT, Fold
from engine.circuit.walk import Walk
from engine.data.codes import Codes
from engine.errors import BudgetExceededError
from engine.maintenance.meter import Meter
from engine.maintenance.oscillation import Swing
from engine.maintenance.placement import DEFAULT, Budget, Encode, Executed, FactDelta, PlacementState
from engine.maintenance.policy import Abandoned, BootstrapCost, Course, OwnFacts, Policy, Switched
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.changes import net_change, undo, visible_change
from engine.resident.checks import check_relation
from engine.resident.layout import NONE
from engine.resident.relation import ONE, Relation, state_of
from engine.resident.steps import Batch, Runner
from engine.resident.stratum import Changes, StratumRun
from engine.resident.transfer import bootstrap_costs, fill, to_table
from engine.resident.undefined import Undefined


@dataclass(slots=True)
class _Epoch:
    """What `rollback` and `commit` need."""

    circuit: Circuit
    walk: Walk
    journal: dict[str, Changes] = field(default_factory=dict)
    replaced: dict[str, Relation] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    new_indexes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    old_rules: dict[str, tuple[BoundPlan, ...] | None] = field(default_factory=dict)
    rebuilt: list[tuple[str, ...]] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    costs: dict[tuple[str, ...], BootstrapCost] = field(default_factory=dict)
    estimate: int = 0
    bootstrap: int = 0
    aside: int = 0
    """Bytes of the relations in `replaced`."""


class ResidentPlacement:
    """See the module. `threads`: for large joins; by default all cores that the process may use."""

    name = "resident"

    def __init__(self, threads: int | None = None) -> None:
        self._circuit = EMPTY
        self._relations: dict[str, Relation] = {}
        self._bound: dict[str, tuple[BoundPlan, ...]] = {}
        self._runner = Runner(threads or len(os.sched_getaffinity(0)))
        self._costs: dict[tuple[str, ...], BootstrapCost] = {}
        self._meter: Meter | None = None
        self._epoch: _Epoch | None = None
        # The bytes of each relation, but of those whose arrays have changed since: these are looked at when asked for.
        self._bytes: dict[str, int] = {}
        self._all_bytes = 0
        self._resized: set[str] = set()

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
        epoch = self._epoch = _Epoch(circuit, Walk(circuit, self._circuit, facts))

        def held() -> int:
            return self.memory() + epoch.aside + encode.symbols.nbytes

        self._meter = Meter(budget, self._relations, held)
        self._runner.symbols = encode.symbols
        self._runner.check = self._meter.check_time
        try:
            self._install(epoch, encode)
            deltas: dict[str, Batch] = {}
            undefined = Undefined()
            self._runner.meet = undefined.from_plan
            for stratum in epoch.walk:
                self._run(epoch, stratum, facts, deltas, policy)
            undefined.judge(circuit.rules, self._relations, self._runner, self._meter.charge, encode)
            changes = {}
            for name in epoch.journal:
                if not is_internal(name):
                    self._reserve_change(epoch, name)
                    change = visible_change(
                        self._relations[name], epoch.journal[name], epoch.replaced.get(name)
                    )
                    if len(change.present):
                        changes[name] = change
            return Executed(
                changes,
                self._meter.derivations,
                tuple(epoch.rebuilt),
                tuple(epoch.switched),
                epoch.estimate,
                epoch.bootstrap,
            )
        except Swing as swing:
            self.rollback()
            raise swing.error(encode.symbols) from None
        except MemoryError:
            self.rollback()
            raise BudgetExceededError(
                "the transaction needs more memory than the machine has; it was dropped whole",
                budget="memory",
            ) from None
        except BaseException:
            self.rollback()
            raise

    def _reserve_change(self, epoch: _Epoch, name: str) -> None:
        """Room for what the epoch tells of a relation."""
        assert self._meter is not None
        changes, relation = epoch.journal[name], self._relations[name]
        rows = sum(len(rows) for rows, _, _ in changes.pushes)
        if changes.fresh or name in epoch.replaced:
            rows = relation.live
        self._meter.reserve(rows * (64 + 8 * relation.arity), relation)
        self._meter.beside += rows * (18 + 8 * relation.arity)

    def _install(self, epoch: _Epoch, encode: Encode) -> None:
        """Make the relations, bound plans and indexes that the new circuit demands and the old one did not."""
        circuit = epoch.circuit
        for stratum in epoch.walk.fresh:
            for name in stratum.relations:
                self._install_relation(epoch, name)
        for stratum in epoch.walk.fresh:
            for rule in stratum.rules:
                bound = self._bound.get(rule.id)
                # A rule may be bound again, for types that were not known: no tuple had them.
                if bound is None or (bound and bound[0].rule is not rule):
                    epoch.old_rules[rule.id] = bound
                    self._bound[rule.id] = bind_rule(rule, circuit.arities, encode)
            for demand in stratum.demands:
                relation = self._relations[demand.relation]
                if demand.columns not in relation.indexes:
                    relation.add_index(demand.columns)
                    epoch.new_indexes.append((demand.relation, demand.columns))

    def _install_relation(self, epoch: _Epoch, name: str) -> None:
        circuit, known = epoch.circuit, self._relations.get(name)
        if known is not None and known.arity != circuit.arities[name]:
            # Nothing of the old program holds a tuple of it: the reasoner lets a schema go only then.
            assert not known.live, "a relation with tuples keeps its arity"
            epoch.replaced[name] = known
            known = None
        elif known is not None and not known.live and known.fold != _in_place(circuit, name):
            # An empty relation is not rebuilt with its stratum, but must not go on as it was folded, or was not.
            epoch.replaced[name] = known
            fresh = self._relations[name] = self._new(circuit, name)
            # Rules that disappear still look it up.
            for columns in known.indexes:
                fresh.add_index(columns)
            epoch.created.append(name)
        if known is None:
            self._relations[name] = self._new(circuit, name)
            epoch.created.append(name)

    def _new(self, circuit: Circuit, name: str) -> Relation:
        self._resized.add(name)
        return Relation(name, circuit.arities[name], self._grows, _in_place(circuit, name))

    def _run(
        self,
        epoch: _Epoch,
        stratum: Stratum,
        facts: Mapping[str, FactDelta],
        deltas: dict[str, Batch],
        policy: Policy,
    ) -> None:
        """Bring one stratum up to date: by an update, unless it is new or the policy wants a bootstrap."""
        before = self._circuit.stratum_of.get(stratum.relations[0])
        same = before is not None and before.shape == stratum.shape
        changed = [name for name in stratum.relations if name in facts]
        if same and not changed and not (stratum.reads & deltas.keys()):
            assert before is not None, "it is the same"
            if before.folds == stratum.folds and _ids(before) == _ids(stratum):
                return
        live = any(self._relations[name].live for name in stratum.relations)
        last = self._costs.get(stratum.relations) if same else None
        anew = not same
        if not same and live:
            epoch.rebuilt.append(stratum.relations)
            self._put_aside(epoch, stratum)
        elif same and live and policy.always and stratum.derives:
            expected = round(last.estimate()) if last is not None else 0
            epoch.switched.append(Switched(stratum.relations, True, bootstrap=expected))
            self._put_aside(epoch, stratum)
            anew = True
        assert self._meter is not None
        if not anew:
            own = [self._relations[name] for name in stratum.relations]
            moved = OwnFacts.of(
                (facts[name][1] for name in changed), sum(r.asserted for r in own), sum(r.live for r in own)
            )
            course = Course(last, policy, left=self._meter.left, facts=moved)
            try:
                course.begin()
                self._work(epoch, stratum, before, facts, deltas, course)
            except Abandoned as stop:
                switched = Switched.by(stop, stratum.relations, stop.spent)
                epoch.switched.append(switched)
                self._drop(epoch, stratum)
                self._put_aside(epoch, stratum)
                anew = True
            epoch.estimate += max(course.spent, round(course.estimate))
        if anew:
            course = Course()
            self._work(epoch, stratum, None, facts, deltas, course)
        if stratum.derives:
            epoch.costs[stratum.relations] = course.cost()
        epoch.bootstrap += round(last.estimate()) if last is not None else 0
        for name in stratum.relations:
            # A rule that disappears still has to see what changed below it.
            if epoch.circuit.is_read_above(name) or self._circuit.is_read_above(name):
                self._reserve_change(epoch, name)
                delta = net_change(self._relations[name], epoch.journal[name], epoch.replaced.get(name))
                if len(delta):
                    deltas[name] = delta
                    epoch.walk.changed(name)

    def _work(
        self,
        epoch: _Epoch,
        stratum: Stratum,
        before: Stratum | None,
        facts: Mapping[str, FactDelta],
        deltas: Mapping[str, Batch],
        course: Course,
    ) -> None:
        """Evaluate the stratum: what changed since it was `before`, or, where that is None, everything."""
        assert self._meter is not None
        self._meter.enter(stratum, course)
        for name in stratum.relations:
            epoch.journal.setdefault(name, Changes(not self._relations[name].live))
        run = StratumRun(stratum, self._relations, self._bound, self._runner, self._meter, epoch.journal)
        new = _ids(stratum)
        if before is not None:
            old = stratum.rules_before(before)
            run.lower_changes(deltas, sorted(old))
            for rule in sorted(new - old):
                run.whole_rule(rule, 1)
            for rule in sorted(old - new):
                run.whole_rule(rule, -1)
            earlier = {fold.target: set(fold.sources) for fold in before.folds}
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, deltas, sorted(earlier[fold.target] ^ set(fold.sources)))
        else:
            for rule in sorted(new):
                run.whole_rule(rule, 1)
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, deltas, fold.sources)
            self._assert_again(epoch, stratum, run)
        for name in stratum.relations:
            if name in facts and len(facts[name][0]):
                run.assert_facts(name, *facts[name])
        run.ascend()

    def _assert_again(self, epoch: _Epoch, stratum: Stratum, run: StratumRun) -> None:
        """Give a stratum that is computed from nothing the facts that it had."""
        if stratum.relations == (UNIT,) and not self._relations[UNIT].live:
            run.assert_facts(UNIT, np.empty((1, 0), np.int64), ONE)
        for name in stratum.relations:
            if name in epoch.replaced:
                kept = epoch.replaced[name]
                rows = kept.all_rows()
                asserted, _, _ = kept.describe(rows)
                held = np.flatnonzero(asserted)
                if len(held):
                    run.assert_facts(name, kept.codes(rows[held]), asserted[held])

    def _drop(self, epoch: _Epoch, stratum: Stratum) -> None:
        """Take back what an update has done to the stratum."""
        # What is undone must not be refused half way.
        meter, self._meter = self._meter, None
        for name in stratum.relations:
            # It may have been abandoned before it was begun.
            if name in epoch.journal:
                self._resized.add(name)
                undo(self._relations[name], epoch.journal.pop(name))
        self._meter = meter

    def _put_aside(self, epoch: _Epoch, stratum: Stratum) -> None:
        """Put empty relations in the place of the stratum's, with the same indexes; the old ones are kept aside."""
        for name in stratum.relations:
            old = self._relations[name]
            if name not in epoch.replaced and name not in epoch.created:
                epoch.replaced[name] = old
                epoch.aside += old.memory()
                fresh = self._relations[name] = self._new(epoch.circuit, name)
                for columns in old.indexes:
                    fresh.add_index(columns)

    def commit(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
        self._meter = None
        self._resized.update(epoch.journal)
        for name, changes in epoch.journal.items():
            relation = self._relations[name]
            if changes.fresh:
                relation.free(relation.all_rows())
            elif changes.pushes:
                for rows, _, _ in changes.pushes:
                    relation.free(np.unique(rows))
                    if not relation.live:
                        break
        circuit, self._circuit = epoch.circuit, epoch.circuit
        for stratum in epoch.walk.gone:
            for demand in stratum.demands:
                if demand not in circuit.demands and demand.relation in self._relations:
                    self._relations[demand.relation].indexes.pop(demand.columns, None)
                    self._resized.add(demand.relation)
            for rule in stratum.rules:
                if rule.id not in circuit.rules:
                    self._bound.pop(rule.id, None)
            for name in stratum.relations:
                if name not in circuit.arities:
                    assert not self._relations[name].live, "a relation with tuples has a schema"
                    del self._relations[name]
                    self._resized.add(name)
            now = circuit.stratum_of.get(stratum.relations[0])
            if now is None or now.relations != stratum.relations:
                self._costs.pop(stratum.relations, None)
        self._costs |= epoch.costs
        self._epoch = None

    def rollback(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
        self._meter = None
        self._resized.update(epoch.journal, epoch.created, epoch.replaced)
        self._resized.update(name for name, _ in epoch.new_indexes)
        for name in epoch.created:
            del self._relations[name]
        self._relations.update(epoch.replaced)
        for name, columns in epoch.new_indexes:
            relation = self._relations.get(name)
            # What a created relation stands in for gets its own indexes back with it.
            if relation is not None and name not in epoch.created:
                relation.indexes.pop(columns, None)
        for name, changes in epoch.journal.items():
            if name not in epoch.created and name not in epoch.replaced:
                undo(self._relations[name], changes)
        for id_, bound in epoch.old_rules.items():
            if bound is None:
                del self._bound[id_]
            else:
                self._bound[id_] = bound
        self._epoch = None

    def _grows(self, relation: Relation, size: int) -> None:
        if self._meter is not None:
            self._meter.reserve(size, relation)
        self._resized.add(relation.name)

    # ---- reading

    def asserted(self, relation: str, codes: Codes) -> Codes:
        found = self._relations.get(relation)
        weights = np.zeros(len(codes), np.int64)
        if found is not None and len(codes):
            rows = found.rows_of(codes)
            known = np.flatnonzero(rows != NONE)
            weights[known] = found.describe(rows[known])[0]
        return weights

    def count(self, relation: str, domain: str) -> int:
        found = self._relations.get(relation)
        if found is None:
            return 0
        if domain == "all" and not found.negative:
            return found.entries
        if domain == "asserted":
            return found.asserted
        return int(np.count_nonzero(_in_domain(found, found.all_rows(), domain)[0]))

    def tuples(self, relation: str, bound: Mapping[int, int], domain: str) -> tuple[Codes, Codes]:
        found = self._relations[relation]
        rows = found.all_rows()
        for column, code in bound.items():
            rows = rows[found.arrays.rows[rows, column] == code]
        keep, asserted = _in_domain(found, rows, domain)
        return found.codes(rows[keep]), asserted[keep]

    def holds(self, relation: str) -> bool:
        found = self._relations.get(relation)
        return found is not None and bool(found.live)

    def memory(self) -> int:
        for name in self._resized:
            relation = self._relations.get(name)
            self._all_bytes -= self._bytes.pop(name, 0)
            if relation is not None:
                self._bytes[name] = relation.memory()
                self._all_bytes += self._bytes[name]
        self._resized.clear()
        return self._all_bytes

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        found = [np.empty(0, np.int64)]
        for name, wanted in columns.items():
            relation = self._relations.get(name)
            if relation is not None and relation.live:
                rows = relation.arrays.rows[relation.all_rows()]
                found += (np.unique(rows[:, column]) for column in wanted or range(relation.arity))
        return np.unique(np.concatenate(found))

    def state(self) -> dict[str, Any]:
        return {name: state_of(self._relations[name]) for name in sorted(self._relations)}

    def export_state(self) -> PlacementState:
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        return PlacementState(self._circuit, {name: to_table(held) for name, held in self._relations.items()})

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        assert not self._relations, "only a new placement takes a state"
        epoch = _Epoch(state.circuit, Walk(state.circuit, EMPTY, ()))
        self._install(epoch, encode)
        for name, table in state.relations.items():
            fill(self._relations[name], table)
            self._resized.add(name)
        self._circuit = state.circuit
        self._costs = bootstrap_costs(state)

    def close(self) -> None:
        """Nothing is held outside of this process."""

    def check_invariants(self) -> None:
        for relation in self._relations.values():
            check_relation(relation)


def _ids(stratum: Stratum) -> set[str]:
    return {rule.id for rule in stratum.rules}


def _in_place(circuit: Circuit, name: str) -> Fold | None:
    """The fold over the relation's own tuples, if it has one."""
    fold = circuit.folds.get(name)
    return fold if fold is not None and not fold.sources else None


def _in_domain(
    relation: Relation, rows: np.ndarray[Any, np.dtype[np.int32]], domain: str
) -> tuple[Any, Codes]:
    asserted, derived, present = relation.describe(rows)
    return {"all": present > 0, "asserted": asserted > 0, "derived": derived > 0}[domain], asserted
