"""The placement in one process: arranged relations, brought from epoch to epoch by compiled kernels.

`execute` runs the strata in order; each takes the net changes of those below it and leaves its own. Everything it
does is in a journal, so that `rollback` leaves supports, entries and indexes as they were; `commit` drops the journal
and the rows that nothing holds any more. A stratum whose members changed is built anew beside the old one, and the
difference flows on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.circuit.circuit import EMPTY, Circuit, Stratum, is_internal
from engine.circuit.normal import UNIT, Fold
from engine.epoch import RelationChange
from engine.errors import BudgetExceededError
from engine.language.schema import ColumnType
from engine.placement import Budget, Codes, Encode, Executed, FactDelta, PlacementState
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.layout import NONE
from engine.resident.meter import Meter
from engine.resident.relation import ONE, Relation, state_of
from engine.resident.steps import Batch, Runner
from engine.resident.stratum import GROUND, Changes, StratumRun
from engine.resident.transfer import fill, to_table
from engine.resident.undefined import Undefined


@dataclass(slots=True)
class _Epoch:
    """What `rollback` and `commit` need."""

    circuit: Circuit
    journal: dict[str, Changes] = field(default_factory=dict)
    replaced: dict[str, Relation] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    new_indexes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    old_rules: dict[str, tuple[BoundPlan, ...] | None] = field(default_factory=dict)
    rebuilt: list[tuple[str, ...]] = field(default_factory=list)


class ResidentPlacement:
    """See the module. `threads`: for large joins; by default all cores that the process may use."""

    name = "resident"

    def __init__(self, threads: int | None = None) -> None:
        self._circuit = EMPTY
        self._relations: dict[str, Relation] = {}
        self._bound: dict[str, tuple[BoundPlan, ...]] = {}
        self._runner = Runner(threads or len(os.sched_getaffinity(0)))
        self._meter: Meter | None = None
        self._epoch: _Epoch | None = None

    # ---- one epoch

    def execute(
        self, circuit: Circuit, facts: Mapping[str, FactDelta], encode: Encode, budget: Budget
    ) -> Executed:
        assert self._epoch is None, "the last epoch is neither committed nor rolled back"
        epoch = self._epoch = _Epoch(circuit)
        self._meter = Meter(budget, self._relations)
        self._runner.symbols = encode.symbols
        try:
            self._install(epoch, encode)
            deltas: dict[str, Batch] = {}
            undefined = Undefined()
            self._runner.meet = undefined.from_plan
            for stratum in circuit.strata:
                self._run(epoch, stratum, facts, deltas)
            undefined.judge(circuit.rules, self._relations, self._runner, self._meter.charge, encode)
            changes = {}
            for name in epoch.journal:
                if not is_internal(name):
                    change = self._change(epoch, name)
                    if len(change.present):
                        changes[name] = change
            return Executed(changes, self._meter.derivations, tuple(epoch.rebuilt))
        except MemoryError:
            self.rollback()
            raise BudgetExceededError(
                "the transaction needs more memory than the machine has; it was dropped whole",
                budget="memory",
            ) from None
        except BaseException:
            self.rollback()
            raise

    def _install(self, epoch: _Epoch, encode: Encode) -> None:
        """Make the relations, bound plans and indexes that the new circuit demands and the old one did not."""
        circuit = epoch.circuit
        if circuit is self._circuit:
            return
        for name, arity in circuit.arities.items():
            known = self._relations.get(name)
            if known is not None and known.arity != arity:
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
        for id_, rule in circuit.rules.items():
            bound = self._bound.get(id_)
            # A rule may be bound again, for types that were not known: no tuple had them.
            if bound is None or (bound and bound[0].rule is not rule):
                epoch.old_rules[id_] = bound
                self._bound[id_] = bind_rule(rule, circuit.arities, encode)
        for demand in circuit.demands:
            relation = self._relations[demand.relation]
            if demand.columns not in relation.indexes:
                relation.add_index(demand.columns)
                epoch.new_indexes.append((demand.relation, demand.columns))

    def _new(self, circuit: Circuit, name: str) -> Relation:
        return Relation(name, circuit.arities[name], lambda _: self._grew(), _in_place(circuit, name))

    def _run(
        self, epoch: _Epoch, stratum: Stratum, facts: Mapping[str, FactDelta], deltas: dict[str, Batch]
    ) -> None:
        before = self._circuit.stratum_of.get(stratum.relations[0])
        old = {rule.id for rule in before.rules} if before is not None else set()
        new = {rule.id for rule in stratum.rules}
        same = before is not None and before.shape == stratum.shape
        moved = not same and any(self._relations[name].live for name in stratum.relations)
        changed = [name for name in stratum.relations if name in facts]
        refolded = before is not None and before.folds != stratum.folds
        if same and not changed and old == new and not refolded and not (stratum.reads & deltas.keys()):
            return
        assert self._meter is not None
        self._meter.enter(stratum)
        if moved:
            self._rebuild(epoch, stratum)
        for name in stratum.relations:
            epoch.journal.setdefault(name, Changes(not self._relations[name].live))
        run = StratumRun(stratum, self._relations, self._bound, self._runner, self._meter, epoch.journal)
        if same:
            run.lower_changes(deltas, sorted(old))
            for rule in sorted(new - old):
                run.whole_rule(rule, 1)
            for rule in sorted(old - new):
                run.whole_rule(rule, -1)
            earlier = {fold.target: set(fold.sources) for fold in before.folds} if before is not None else {}
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, deltas, sorted(earlier[fold.target] ^ set(fold.sources)))
        else:
            for rule in sorted(new):
                run.whole_rule(rule, 1)
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, deltas, fold.sources)
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
        for name in changed:
            if len(facts[name][0]):
                run.assert_facts(name, *facts[name])
        run.ascend()
        # A rule that disappears still has to see what changed below it.
        read = epoch.circuit.read_above | self._circuit.read_above
        for name in stratum.relations:
            if name in read:
                delta = self._delta(epoch, name)
                if len(delta):
                    deltas[name] = delta

    def _rebuild(self, epoch: _Epoch, stratum: Stratum) -> None:
        """Put empty relations in the place of the stratum's, with the same indexes; the old ones are kept aside."""
        epoch.rebuilt.append(stratum.relations)
        for name in stratum.relations:
            old = self._relations[name]
            if name not in epoch.replaced and name not in epoch.created:
                epoch.replaced[name] = old
                fresh = self._relations[name] = self._new(epoch.circuit, name)
                for columns in old.indexes:
                    fresh.add_index(columns)

    def _delta(self, epoch: _Epoch, name: str) -> Batch:
        """The net change of one relation's presence, as a batch at height 0 for the strata above."""
        relation, changes = self._relations[name], epoch.journal[name]
        if name in epoch.replaced:
            codes, weights = _difference(epoch.replaced[name], relation)
            return Batch(codes, GROUND, weights)
        if changes.fresh and not relation.negative:
            return Batch(relation.codes(relation.list_entries()[0]), GROUND, ONE)
        if not changes.entries:
            return Batch(np.empty((0, relation.arity), np.int64), GROUND, ONE)
        if len(changes.entries) == 1:
            rows, weights, _ = changes.entries[0]
            return Batch(relation.codes(rows), GROUND, weights)
        rows, place = np.unique(np.concatenate([rows for rows, _, _ in changes.entries]), return_inverse=True)
        net = np.zeros(len(rows), np.int64)
        np.add.at(net, place, np.concatenate([weights for _, weights, _ in changes.entries]))
        left = np.flatnonzero(net)
        return Batch(relation.codes(rows[left]), GROUND, net[left])

    def _change(self, epoch: _Epoch, name: str) -> RelationChange:
        """What the epoch changed of a relation that a reader can see."""
        relation, changes = self._relations[name], epoch.journal[name]
        if name in epoch.replaced:
            return _visible_difference(epoch.replaced[name], relation)
        if changes.fresh:
            rows = relation.all_rows()
            asserted, derived, present = relation.describe(rows)
            was_asserted = was_derived = was_present = np.zeros(len(rows), np.int64)
        else:
            # In a fold in place, a tuple may become the extreme though its own supports are as they were.
            parts = [rows for rows, _, _ in changes.pushes] + [rows for rows, _, _ in changes.entries]
            rows = np.unique(np.concatenate([np.empty(0, np.int32), *parts]))
            asserted, derived, present = relation.describe(rows)
            was_asserted, was_derived, was_present = asserted.copy(), derived.copy(), present.copy()
            for pushed, heights, weights in changes.pushes:
                at = np.searchsorted(rows, pushed)
                ground = np.broadcast_to(heights == 0, len(at))
                weights = np.broadcast_to(weights, len(at))
                np.subtract.at(was_asserted, at[ground], weights[ground])
                np.subtract.at(was_derived, at[~ground], weights[~ground])
            for changed, weights, _ in changes.entries:
                np.subtract.at(was_present, np.searchsorted(rows, changed), weights)
            if relation.fold is not None:
                was_derived = was_present
        seen = (asserted != was_asserted) | ((derived > 0) != (was_derived > 0)) | (present != was_present)
        rows = rows[seen]
        return RelationChange(
            relation.codes(rows),
            asserted[seen],
            derived[seen] > 0,
            (present - was_present)[seen].astype(np.int8),
            was_asserted[seen] > 0,
            was_derived[seen] > 0,
        )

    def commit(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
        for name, changes in epoch.journal.items():
            relation = self._relations[name]
            if changes.fresh:
                relation.free(relation.all_rows())
            elif changes.pushes:
                for rows, _, _ in changes.pushes:
                    relation.free(np.unique(rows))
                    if not relation.live:
                        break
        if epoch.circuit is not self._circuit:
            self._circuit = epoch.circuit
            for name in [name for name in self._relations if name not in self._circuit.arities]:
                assert not self._relations[name].live, "a relation with tuples has a schema"
                del self._relations[name]
            demanded: dict[str, set[tuple[int, ...]]] = {}
            for demand in self._circuit.demands:
                demanded.setdefault(demand.relation, set()).add(demand.columns)
            for name, relation in self._relations.items():
                for columns in set(relation.indexes) - demanded.get(name, set()):
                    del relation.indexes[columns]
            rules = self._circuit.rules
            self._bound = {id_: plans for id_, plans in self._bound.items() if id_ in rules}
        self._epoch = None

    def rollback(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
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
                _undo(self._relations[name], changes)
        for id_, bound in epoch.old_rules.items():
            if bound is None:
                del self._bound[id_]
            else:
                self._bound[id_] = bound
        self._epoch = None

    def _grew(self) -> None:
        if self._meter is not None:
            self._meter.grew()

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

    def relations(self) -> Sequence[str]:
        return sorted(name for name, relation in self._relations.items() if relation.live)

    def memory(self) -> int:
        return sum(relation.memory() for relation in self._relations.values())

    def state(self) -> dict[str, Any]:
        return {name: state_of(self._relations[name]) for name in sorted(self._relations)}

    def export_state(self) -> PlacementState:
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        return PlacementState(self._circuit, {name: to_table(held) for name, held in self._relations.items()})

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        assert not self._relations, "only a new placement takes a state"
        epoch = _Epoch(state.circuit)
        self._install(epoch, encode)
        for name, table in state.relations.items():
            fill(self._relations[name], table)
        self._circuit = state.circuit

    def close(self) -> None:
        """Nothing is held outside of this process."""

    def check_invariants(self) -> None:
        for relation in self._relations.values():
            check_relation(relation)


def _in_place(circuit: Circuit, name: str) -> Fold | None:
    """The fold over the relation's own tuples, if it has one."""
    folds = circuit.stratum_of[name].folds
    return next((fold for fold in folds if fold.target == name and not fold.sources), None)


def _in_domain(
    relation: Relation, rows: np.ndarray[Any, np.dtype[np.int32]], domain: str
) -> tuple[Any, Codes]:
    asserted, derived, present = relation.describe(rows)
    return {"all": present > 0, "asserted": asserted > 0, "derived": derived > 0}[domain], asserted


def _difference(old: Relation, new: Relation) -> tuple[Codes, Codes]:
    """The tuples present in one of the two: codes, and +1 (new) or -1 (old)."""
    change = _visible_difference(old, new)
    moved = np.flatnonzero(change.present)
    return change.codes[moved], change.present[moved].astype(np.int64)


def _visible_difference(old: Relation, new: Relation) -> RelationChange:
    if old.arity != new.arity:
        old = Relation(new.name, new.arity)
    rows = new.all_rows()
    asserted, derived, present = new.describe(rows)
    codes = new.codes(rows)
    before = old.rows_of(codes)
    was = [np.zeros(len(rows), np.int64) for _ in range(3)]
    known = np.flatnonzero(before != NONE)
    for column, values in zip(was, old.describe(before[known]), strict=True):
        column[known] = values
    seen = (asserted != was[0]) | ((derived > 0) != (was[1] > 0)) | (present != was[2])
    gone_codes = old.codes(old.all_rows())
    gone_codes = gone_codes[new.rows_of(gone_codes) == NONE]
    gone_asserted, gone_derived, gone_present = old.describe(old.rows_of(gone_codes))
    nothing = np.zeros(len(gone_codes), np.int64)
    return RelationChange(
        np.concatenate((codes[seen], gone_codes)),
        np.concatenate((asserted[seen], nothing)),
        np.concatenate((derived[seen] > 0, nothing > 0)),
        np.concatenate(((present - was[2])[seen], -gone_present)).astype(np.int8),
        np.concatenate((was[0][seen], gone_asserted)) > 0,
        np.concatenate((was[1][seen], gone_derived)) > 0,
    )


def _undo(relation: Relation, changes: Changes) -> None:
    """Take back what an epoch did, by doing the opposite: entries first, then supports, then rows."""
    if changes.fresh:
        relation.clear()
        return
    for rows, weights, height in reversed(changes.entries):
        # An entry at the height may be there (to be removed or turned round): the kernel looks.
        relation.change_entries(rows, -weights, height, len(rows))
    for rows, heights, weights in changes.pushes:
        relation.push(relation.codes(rows), heights, -weights)
    for rows, _, _ in changes.pushes:
        relation.free(np.unique(rows))


def check_relation(relation: Relation) -> None:
    """Raise AssertionError unless table, supports, entries and indexes of a relation agree."""
    rows = relation.all_rows()
    codes = relation.codes(rows)
    assert len(rows) == relation.live
    assert (relation.rows_of(codes) == rows).all(), "a row is not found under its own tuple"
    _, _, present = relation.describe(rows)
    assert ((present == 0) | (present == 1)).all(), "entries sum to 0 or 1"
    state = state_of(relation)
    if relation.fold is not None:
        check_groups(relation.name, relation.fold, state)
    plain = {} if relation.fold is not None else state["supports"]
    for tuple_, supports in plain.items():
        entries = state["entries"].get(tuple_, {})
        total = last = 0
        for height in sorted({*supports, *entries}):
            total += supports.get(height, 0)
            now = int(total > 0)
            assert entries.get(height, 0) == now - last, (relation.name, tuple_, supports, entries)
            last = now
    assert state["entries"].keys() <= state["supports"].keys(), "an entry without support"
    expected = {t: sorted(h * 2 + (w < 0) for h, w in e.items()) for t, e in state["entries"].items()}
    for columns, keys in state["indexes"].items():
        found: dict[tuple[int, ...], list[int]] = {}
        rest_columns = [c for c in range(relation.arity) if c not in columns]
        for key, postings in keys.items():
            for rest, hw in postings:
                values = dict(zip((*columns, *rest_columns), (*key, *rest), strict=True))
                found.setdefault(tuple(values[c] for c in range(relation.arity)), []).append(hw)
        assert {t: sorted(h) for t, h in found.items()} == expected, f"index {columns} of {relation.name}"


def check_groups(name: str, fold: Fold, state: Mapping[str, Any]) -> None:
    """At every height the one entry of a group is its extreme over what is present at that height."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for tuple_ in state["supports"]:
        groups.setdefault(tuple(tuple_[c] for c in fold.group), []).append(tuple_)
    best = max if fold.function == "max" else min

    def value(tuple_: tuple[int, ...]) -> float:
        code = tuple_[fold.place]
        return float(np.int64(code).view(np.float64)) if fold.type is ColumnType.FLOAT else code

    for members in groups.values():
        heights = {h for t in members for part in ("supports", "entries") for h in state[part].get(t, {})}
        for height in heights:
            present = [
                t for t in members if sum(c for h, c in state["supports"][t].items() if h <= height) > 0
            ]
            shown = [
                t
                for t in members
                if sum(w for h, w in state["entries"].get(t, {}).items() if h <= height) > 0
            ]
            assert shown == ([best(present, key=value)] if present else []), (name, members, height)
