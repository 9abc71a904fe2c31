"""Brings one stratum through one epoch; the nested time of a recursive stratum is reduced to heights
(docs/evaluation.md).

In: the net changes of the lower strata, the rules that appeared or disappeared, the changes of asserted facts. Out:
the stratum's supports, entries and indexes are those of the new program over the new facts.

Order: first the lower relations' changes through the old rules, one relation after the other (an atom sees a relation
new once its change has been carried through); then whole rules, with weight +1 or -1, over the new lower relations and
the stratum's own relations as they still are; then, in ascending height, the entries that follow from the pushed
supports. A derivation is pushed to the head's supports at once, even if its height has not been reached: at height k
only supports up to k count, and all of those are complete when k is reached.

Every loop here is over strata, rules, heights and batches; the work for tuples is in kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.maintenance.meter import Meter
from engine.maintenance.oscillation import Oscillation
from engine.maintenance.placement import FactDelta
from engine.resident.bound import BoundPlan, BoundStep
from engine.resident.clocked import ClockedFold
from engine.resident.folds import current_values, distinct_rows, fold_groups
from engine.resident.layout import I32, I64
from engine.resident.relation import ONE, PushOverflow, Relation
from engine.resident.steps import Batch, BatchIndex, Runner, Target

GROUND = np.zeros(1, np.int32)
"""Height 0, for all."""
_ONE_UP = np.ones(1, np.int32)

Journal = dict[str, "RelationJournal"]


class RelationJournal:
    """What an epoch did to one relation, in enough detail to undo and to report it. `fresh`: the relation was empty
    before.

    pushes: (rows, heights, weights) of supports; none of a fresh relation. entries: (rows, weights, height); none of a
    fresh relation in a stratum that is not signed.
    """

    def __init__(self, fresh: bool) -> None:
        self.fresh = fresh
        self.pushes: list[tuple[I32, I32, I64]] = []
        self.entries: list[tuple[I32, I64, int]] = []


class ResidentStratum:
    """The work on one stratum. `bound[id]` are the plans of a rule, by body atom.

    deltas: the net changes of lower relations. replaced: the old relations of the stratum, if it is built anew.
    """

    ahead = True

    def __init__(
        self,
        stratum: Stratum,
        relations: Mapping[str, Relation],
        bound: Mapping[str, tuple[BoundPlan, ...]],
        runner: Runner,
        meter: Meter,
        journal: Journal,
        deltas: Mapping[str, Batch] | None = None,
        replaced: Mapping[str, Relation] | None = None,
    ) -> None:
        self._stratum = stratum
        self._deltas = deltas or {}
        self._replaced = replaced or {}
        self._own = frozenset(stratum.relations)
        self._relations = relations
        self._bound = bound
        self._runner = runner
        self._meter = meter
        self._journal = journal
        self._schedule: dict[int, dict[str, list[I32]]] = {}
        self._signed = stratum.signed
        self._watch = Oscillation(stratum, self._last_height) if self._signed else None
        self._by_start: dict[str, tuple[list[BoundPlan], list[BoundPlan], list[BoundPlan]]] = {}
        self._clocked = {
            fold.target: ClockedFold(
                fold,
                relations[fold.target],
                [(name, relations[name], name in self._own) for name in fold.sources],
                meter.charge,
            )
            for fold in stratum.clocked
        }
        # Sources come first at each height: what is folded from them counts at the same height.
        self._folded = frozenset(s for fold in stratum.clocked for s in fold.sources if s in self._own)

    # ---- the three sources of change

    def lower_changes(self, rules: Iterable[str]) -> None:
        """Carry the net changes of lower relations through `rules` (ids of the rules that were there before).

        A plan of a negated atom starts with the weights negated, because a tuple that appears takes derivations away.
        """
        deltas = self._deltas
        plans: dict[str, list[BoundPlan]] = {}
        for rule in rules:
            for plan in self._bound[rule]:
                if plan.start.relation in deltas and plan.start.relation not in self._own:
                    plans.setdefault(plan.start.relation, []).append(plan)
        order = sorted(plans)
        indexes: dict[tuple[str, tuple[int, ...]], BatchIndex] = {}
        for place, relation in enumerate(order):
            to_come = frozenset(order[place + 1 :])

            def targets(
                step: BoundStep, relation: str = relation, to_come: frozenset[str] = to_come
            ) -> list[Target]:
                main = [self._main(step)]
                if step.relation in to_come or (step.relation == relation and not step.before):
                    # Without the change: for a negated atom, what appeared was absent before.
                    sign = 1 if step.absent else -1
                    main.append(_batch_target(indexes, step, deltas[step.relation], False, sign))
                return main

            for plan in plans[relation]:
                self._send(plan, deltas[relation])
                self._runner.run(plan, deltas[relation], targets, self._meter.charge, self._emit)

    def whole_rule(self, rule: str, weight: int) -> None:
        """Add all derivations of a rule over the collections as they are, times `weight`."""
        plans = [plan for plan in self._bound[rule] if not plan.plan.start.negated]
        smallest = min(plans, key=lambda plan: self._relations[plan.start.relation].entries)
        relation = self._relations[smallest.start.relation]
        if not relation.entries:
            return
        self._meter.reserve(relation.entries * (32 + 8 * relation.arity), relation)
        rows, _, hw = relation.list_entries()
        weights = (weight * (1 - 2 * (hw & 1))).astype(np.int64) if relation.negative else ONE * weight
        heights = hw >> 1 if relation.name in self._own else GROUND
        batch = Batch(relation.codes(rows), heights, weights)
        self._send(smallest, batch)
        self._runner.run(smallest, batch, lambda step: [self._main(step)], self._meter.charge, self._emit)

    def fold_changes(self, fold: Fold, whole: Iterable[str] = ()) -> None:
        """Fold again the groups that changed in the sources; a fold on the height clock only gets these groups.

        whole: relations all of whose groups are folded again: sources that are new to the fold, and relations that are
        no longer its sources (these may have been emptied in this epoch, or may still be emptied). A group's old value
        is the target's tuple; if the value is now another one, the target loses the old tuple and gains the new one,
        each with a support of 1 at height 1.
        """
        deltas = self._deltas
        target = self._relations[fold.target]
        size = len(fold.group)
        clocked = self._clocked.get(fold.target)
        parts = [np.empty((0, size), np.int64)]
        for source in set(whole) - self._own:
            relation = self._relations[source]
            parts.append(relation.codes(relation.list_entries()[0])[:, :size])
        for source in {*fold.sources, *whole} & deltas.keys():
            parts.append(deltas[source].codes[:, :size])
        groups = distinct_rows(np.concatenate(parts))
        if clocked is not None:
            clocked.touch(groups)
            return
        if not len(groups):
            return
        values, found = fold_groups(
            fold, groups, [self._relations[s] for s in fold.sources], self._meter.charge
        )
        old_codes, old_values, old_found = current_values(fold, groups, target)
        same = found & old_found & (values == old_values)
        gone, new = old_found & ~same, found & ~same
        if gone.any():
            self._push(fold.target, old_codes[gone], _ONE_UP, -ONE)
        if new.any():
            codes = np.empty((int(new.sum()), fold.arity), np.int64)
            codes[:, list(fold.group)] = groups[new]
            codes[:, fold.place] = values[new]
            self._push(fold.target, codes, _ONE_UP, ONE)

    def assert_facts(self, relation: str, facts: FactDelta) -> None:
        """Add to the asserted weights of tuples."""
        codes, weights = facts
        self._push(relation, codes, GROUND, weights)

    def assert_held(self) -> None:
        """Assert the facts of the relations that are replaced."""
        for name in self._stratum.relations:
            if name in self._replaced:
                kept = self._replaced[name]
                rows = kept.all_rows()
                asserted, _, _ = kept.describe(rows)
                held = np.flatnonzero(asserted)
                if len(held):
                    self.assert_facts(name, (kept.codes(rows[held]), asserted[held]))

    def add_supports(self, relation: str, codes: I64, heights: I32, weights: I64) -> None:
        """Add supports that were derived elsewhere, at their heights."""
        self._push(relation, codes, heights, weights)

    # ---- heights

    def run(self) -> None:
        """Bring entries, and whatever follows from them, up to date with the supports, height by height."""
        while (height := self._next_height()) is not None:
            self._meter.height(height, self._stratum)
            if self._watch is not None:
                self._watch.rise(height)
            if self._clocked:
                due = self._schedule.get(height, {})
                self._settle({name: due.pop(name) for name in sorted(self._folded & due.keys())}, height)
                self._fold_at(height)
            self._settle(self._schedule.pop(height, {}), height)

    def _next_height(self) -> int | None:
        if not self._clocked:
            return min(self._schedule, default=None)
        heights = [min(self._schedule)] if self._schedule else []
        heights += [h for fold in self._clocked.values() if (h := fold.next_height()) is not None]
        return min(heights, default=None)

    def _last_height(self) -> int:
        """The greatest height at which an own relation has an entry now."""
        return max(
            (int((self._relations[name].list_entries()[2] >> 1).max(initial=0)) for name in self._own),
            default=0,
        )

    def _settle(self, scheduled: Mapping[str, list[I32]], height: int) -> None:
        """Bring the entries of the scheduled rows at `height` up to date, and carry the changes on."""
        changes = {}
        for name, rows in sorted(scheduled.items()):
            relation = self._relations[name]
            waiting = sum(map(len, rows))
            self._meter.beside -= 4 * waiting
            # What is touched, and what comes out: rows, weights, and what is to be looked at later.
            self._meter.reserve(32 * waiting, relation)
            touched = rows[0] if len(rows) == 1 else np.concatenate(rows)
            changed, weights, removals, later, heights = relation.settle(touched, height, self._signed)
            if len(later):
                self._look_later(name, later, heights)
            if len(changed):
                changes[name] = (changed, weights, removals)
        for name, (changed, weights, removals) in changes.items():
            self._apply(name, changed, weights, removals, height)

    def _fold_at(self, height: int) -> None:
        """Advance the folds on the clock: the sources are complete up to `height`, and the targets have not been
        settled there yet.
        """
        for target, fold in sorted(self._clocked.items()):
            if fold.is_due(height):
                codes, weights = fold.advance(height, self._runner.symbols)
                if len(codes):
                    self._push(target, codes, np.array([height], np.int32), weights)

    def _apply(self, name: str, changed: I32, weights: I64, removals: int, height: int) -> None:
        """One relation's batch of entry changes at one height, through every plan that starts at it."""
        relation = self._relations[name]
        if self._watch is not None and self._watch.watches:
            self._watch.note({name: (relation.codes(changed), weights)})
        early, mixed, late = self._plans_from(name)
        if early or mixed or late:
            self._meter.reserve(8 * relation.arity * len(changed), relation)
            one = removals == 0 and not self._signed
            batch = Batch(relation.codes(changed), np.array([height], np.int32), ONE if one else weights)
            run = partial(self._runner.run, charge=self._meter.charge, emit=self._emit)
            self._send(None, batch)
            for plan in early:
                run(plan, batch, lambda step: [self._main(step)])
            indexes: dict[tuple[str, tuple[int, ...]], BatchIndex] = {}

            def targets(step: BoundStep) -> list[Target]:
                main = [self._main(step)]
                if step.relation == name and step.before:
                    main.append(_batch_target(indexes, step, batch, True, 1))
                return main

            for plan in mixed:
                run(plan, batch, targets)
        changes = self._journal[name]
        relation.change_entries(changed, weights, height, removals)
        if self._signed or not changes.fresh:
            changes.entries.append((changed, weights, height))
            self._meter.beside += changed.nbytes + weights.nbytes
        if name in self._folded:
            for fold in self._clocked.values():
                if name in fold.fold.sources:
                    fold.note(name, changed, weights)
        if late:
            for plan in late:
                run(plan, batch, lambda step: [self._main(step)])

    def _plans_from(self, name: str) -> tuple[list[BoundPlan], list[BoundPlan], list[BoundPlan]]:
        """The plans that start at a relation, by what their other atoms of it see: the old one, both, the new one."""
        if name not in self._by_start:
            self._by_start[name] = self._find_plans(name)
        return self._by_start[name]

    def _find_plans(self, name: str) -> tuple[list[BoundPlan], list[BoundPlan], list[BoundPlan]]:
        early: list[BoundPlan] = []
        mixed: list[BoundPlan] = []
        late: list[BoundPlan] = []
        for rule in self._stratum.rules:
            for plan in self._bound[rule.id]:
                if plan.start.relation == name:
                    same = {s.before for s in plan.steps if isinstance(s, BoundStep) and s.relation == name}
                    (mixed if len(same) == 2 else late if True in same else early).append(plan)
        return early, mixed, late

    # ---- pushing supports

    def _send(self, plan: BoundPlan | None, batch: Batch) -> None:
        """Tell the watch of the strategy whether the following derivations are added or taken away."""
        weights = batch.weights
        # A batch of one tuple is the rule in a deep recursion.
        share = float(np.sign(weights).mean()) if len(batch) and weights.size > 1 else 0.0
        if weights.size == 1 and len(batch):
            share = 1.0 if weights[0] > 0 else -1.0 if weights[0] < 0 else 0.0
        self._meter.course.send(share * (plan.start.sign if plan is not None else 1))

    def _emit(self, plan: BoundPlan, codes: I64, heights: I32, weights: I64) -> None:
        self._push(plan.head, codes, heights + 1, weights)

    def _push(self, name: str, codes: I64, heights: I32, weights: I64) -> None:
        relation = self._relations[name]
        changes = self._journal[name]
        try:
            rows = relation.push(codes, heights, weights)
        except PushOverflow as stop:
            n = len(stop.rows)
            if not changes.fresh and n:
                changes.pushes.append((stop.rows, heights[:n], weights[:n]))
            raise stop.error from None
        if not changes.fresh:
            changes.pushes.append((rows, heights, weights))
            self._meter.beside += rows.nbytes + heights.nbytes + weights.nbytes
        if heights is not GROUND:
            # As floats: the sum of counts that fit into 64 bits need not.
            times = len(codes) if weights.size == 1 else 1
            net = float(weights.sum(dtype=np.float64)) * times
            gross = net if changes.fresh else float(np.abs(weights).sum(dtype=np.float64)) * times
            self._meter.course.emitted(len(codes), net, gross)
        self._meter.tuples(relation, self._stratum)
        self._look_later(name, rows, heights)

    def _look_later(self, name: str, rows: I32, heights: I32) -> None:
        """Put rows on the schedule at their heights."""
        self._meter.beside += rows.nbytes
        first = int(heights[0])
        if heights.size == 1 or (heights == first).all():
            self._schedule.setdefault(first, {}).setdefault(name, []).append(rows)
            return
        order = np.argsort(heights, kind="stable")
        ordered = heights[order]
        cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        for part in np.split(order, cuts):
            self._schedule.setdefault(int(heights[part[0]]), {}).setdefault(name, []).append(rows[part])

    def _main(self, step: BoundStep) -> Target:
        return Target.main(self._relations[step.relation], step.columns, step.relation in self._own)


def _batch_target(
    indexes: dict[tuple[str, tuple[int, ...]], BatchIndex],
    step: BoundStep,
    batch: Batch,
    use_heights: bool,
    sign: int,
) -> Target:
    columns = step.every_column if step.columns is None else step.columns
    found = indexes.get((step.relation, columns))
    if found is None:
        found = indexes[step.relation, columns] = BatchIndex(batch, columns)
    return Target.batch(found, use_heights, sign)
