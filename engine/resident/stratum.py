"""Brings one stratum through one epoch; the nested time of a recursive stratum is reduced to heights
(docs/evaluation.md).

In: the net changes of the lower strata, the rules that appeared or disappeared, the changes of asserted facts. Out:
the stratum's supports, entries and indexes are those of the new program over the new facts.

Order: first the lower relations' changes through the old rules, one relation after the other (an atom sees a relation
new once its change has been carried through); then whole rules, with weight +1 or -1, over the new lower relations and
the stratum's own relations as they still are; then, in ascending height, the entries that follow from the pushed
supports. A derivation is pushed to the head's supports at once, even if its height has not been reached: at height k
only supports up to k count, and all of those are complete when k is reached.

The work for tuples and heights is in a compiled loop (climb.py); here is what comes before it, and what it asks for on
its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.maintenance.facts import FactDelta, arrays
from engine.maintenance.meter import Meter
from engine.maintenance.oscillation import Oscillation
from engine.resident import climb, dred, steps, views
from engine.resident.board import Board
from engine.resident.bound import AnyStep, BoundPlan, BoundStep
from engine.resident.clocked import ClockedFold
from engine.resident.folds import current_values, distinct_rows, fold_groups
from engine.resident.journal import RelationJournal
from engine.resident.layout import I32, I64, NONE
from engine.resident.relation import ONE, Relation
from engine.resident.steps import Batch, BatchIndex, Runner, Target, joined_too_often

GROUND = np.zeros(1, np.int32)
"""Height 0, for all."""
MANY = 1 << 16
"""Entries from which a batch that is larger than what was there makes the indexes anew."""
_ONE_UP = np.ones(1, np.int32)
_NO_LIMIT = int(np.iinfo(np.int64).max)

Journal = dict[str, RelationJournal]


class ResidentStratum:
    """The work on one stratum. `bound[id]` are the plans of a rule, by body atom.

    deltas: the net changes of lower relations. replaced: the old relations of the stratum, if it is built anew. board:
    the stratum's from an earlier epoch.
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
        board: Board | None = None,
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
        self._signed = stratum.signed
        self._watch = Oscillation(stratum, self._last_height) if self._signed else None
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
        self._board = board if board is not None else Board(stratum, bound)
        self._kept: object = None
        self._begin()

    def _begin(self) -> None:
        board, budget = self._board, self._meter.budget
        board.refresh(self._relations)
        for n in range(board.own):
            name = board.names[n]
            changes = self._journal[name]
            line = board.relations[n]
            changes.write(line)
            line[views.TRAITS] = (
                (0 if changes.fresh else views.PUSHES_KEPT)
                + (0 if changes.fresh and not self._signed else views.CHANGES_KEPT)
                + (views.CLOCKED if name in self._folded else 0)
                + (views.GROUPED if self._relations[name].fold is not None else 0)
            )
        workspace = self._runner.workspace
        workspace.begin(board.own, self._answer)
        self._ledger, self._tallies = workspace.ledger, workspace.tallies
        ledger = self._ledger
        ledger[climb.SIGNED_STRATUM] = self._signed
        ledger[climb.STEPPED] = bool(self._clocked)
        ledger[climb.TALLEST] = -1 if self._watch is not None else budget.tallest(self._stratum)
        ledger[climb.MOST_TUPLES] = _NO_LIMIT if budget.tuples is None else budget.tuples
        ledger[climb.SMALL], ledger[climb.MANY] = steps.CHUNK, MANY
        ledger[climb.HELD_TUPLES] = 0 if budget.tuples is None else self._meter.held
        self._resume()

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

            def corrected(step: AnyStep, relation: str = relation, to_come: frozenset[str] = to_come) -> bool:
                """Whether a step sees the relation without its change: the change is carried through later."""
                return isinstance(step, BoundStep) and (
                    step.relation in to_come or (step.relation == relation and not step.before)
                )

            def targets(step: BoundStep, corrected: Callable[[AnyStep], bool] = corrected) -> list[Target]:
                main = [self._main(step)]
                if corrected(step):
                    # Without the change: for a negated atom, what appeared was absent before.
                    sign = 1 if step.absent else -1
                    main.append(_batch_target(indexes, step, deltas[step.relation], False, sign))
                return main

            for plan in plans[relation]:
                if any(corrected(step) for step in plan.steps):
                    self._interpret(plan, deltas[relation], targets)
                else:
                    self._through(plan, deltas[relation])

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
        self._through(smallest, Batch(relation.codes(rows), heights, weights))

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
        self._flush()
        values, found = fold_groups(
            fold, groups, [self._relations[s] for s in fold.sources], self._meter.charge
        )
        self._set_quiet()
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
        codes, weights = arrays(facts)
        self._push(relation, codes, GROUND, weights, derived=False)

    def assert_held(self) -> None:
        """Assert the facts of the relations that are replaced."""
        for name in self._stratum.relations:
            if name in self._replaced:
                kept = self._replaced[name]
                rows = kept.all_rows()
                asserted = kept.describe(rows)[0]
                held = np.flatnonzero(asserted)
                if len(held):
                    self.assert_facts(name, (kept.codes(rows[held]), asserted[held]))

    def add_supports(self, relation: str, codes: I64, heights: I32, weights: I64) -> None:
        """Add supports that were derived elsewhere, at their heights."""
        self._push(relation, codes, heights, weights)

    # ---- heights

    def run(self) -> None:
        """Bring entries, and whatever follows from them, up to date with the supports, height by height."""
        board = self._board
        # However little there is to do, whoever wants it to end is heard.
        self._meter.check_time()
        self._call(climb.climb, board.relations, board.indexes, board.tape, board.plans, board.bounds)
        self._flush()
        self._runner.workspace.end()

    def repair(self) -> tuple[int, int]:
        """The same by DRed (dred.py): how many tuples were over-deleted, and how many of them derived again. Only for
        an unsigned stratum.
        """
        board = self._board
        self._meter.check_time()
        self._call(dred.over_delete, board.relations, board.indexes, board.tape, board.plans, board.bounds)
        self._flush()
        self._set_quiet()
        # Until here an entry has only gone.
        gone = {name: self._journal[name].entries[0] for name in self._stratum.relations}
        self.run()
        back = (self._relations[name].arrays.heads["entry"][rows] != NONE for name, rows in gone.items())
        return sum(map(len, gone.values())), sum(int(np.count_nonzero(there)) for there in back)

    def _last_height(self) -> int:
        """The greatest height at which an own relation has an entry now."""
        return max(
            (int((self._relations[name].list_entries()[2] >> 1).max(initial=0)) for name in self._own),
            default=0,
        )

    # ---- into the compiled loop

    def _call(self, kernel: Callable[..., int], *arguments: object) -> None:
        """Call one of its functions; an error that stopped it is raised."""
        if kernel(self._ledger, self._tallies, *arguments):
            error = self._runner.workspace.error
            assert error is not None, "a call back keeps the reason why it stops"
            raise error

    def _through(self, plan: BoundPlan, batch: Batch) -> None:
        """Carry a batch through a plan; all of its atoms see the relations as they are."""
        if not len(batch):
            return
        board = self._board
        place = board.place(plan)
        board.refresh(self._relations)
        self._send(plan, batch)
        weights = batch.weights if plan.start.sign > 0 else -batch.weights
        self._call(
            climb.through,
            board.relations,
            board.indexes,
            board.tape,
            place,
            batch.codes,
            batch.heights,
            weights,
        )

    def _interpret(self, plan: BoundPlan, batch: Batch, targets: Callable[[BoundStep], list[Target]]) -> None:
        """The same from here, with targets of its own for each atom."""
        self._flush()
        self._send(plan, batch)
        self._runner.run(plan, batch, targets, self._meter.charge, self._emit)
        self._resume()

    def _emit(self, plan: BoundPlan, codes: I64, heights: I32, weights: I64) -> None:
        self._push(plan.head, codes, heights + 1, weights)

    def _push(self, name: str, codes: I64, heights: I32, weights: I64, derived: bool = True) -> None:
        board = self._board
        codes = np.ascontiguousarray(codes)
        self._call(climb.deliver, board.relations, board.number(name), codes, heights, weights, derived)

    def _send(self, plan: BoundPlan, batch: Batch) -> None:
        """Tell the watch of the strategy whether the following derivations are added or taken away."""
        share = float(np.sign(batch.weights).mean()) * plan.start.sign if len(batch) else 0.0
        self._tallies[climb.DIRECTION] = share
        self._meter.course.send(share)

    def _main(self, step: BoundStep) -> Target:
        return Target.main(self._relations[step.relation], step.columns, step.relation in self._own)

    # ---- what it has counted

    def _flush(self) -> None:
        """Tell the meter what was counted since the last time."""
        ledger, tallies, course = self._ledger, self._tallies, self._meter.course
        for height, derivations in self._runner.workspace.profile():
            self._meter.passed(height, derivations)
        course.emitted(int(ledger[climb.PUSHED]), float(tallies[climb.NET]), float(tallies[climb.GROSS]))
        course.send(float(tallies[climb.DIRECTION]))
        course.rise(int(ledger[climb.HEIGHT]))
        ledger[climb.PUSHED] = ledger[climb.SPENT] = 0
        tallies[climb.NET] = tallies[climb.GROSS] = 0.0

    def _resume(self) -> None:
        """Write what the loop needs to go on, where the runner may have changed it."""
        self._write_scratch()
        self._set_quiet()

    def _set_quiet(self) -> None:
        """So many derivations need not be charged one by one."""
        self._ledger[climb.QUIET] = int(min(_NO_LIMIT, self._meter.quiet()))

    # ---- what it asks for

    def _answer(self, what: int, a: int, b: int) -> None:
        getattr(self, self._answers[what])(a, b)

    def _charge(self, step: int, _: int) -> None:
        self._flush()
        self._meter.charge(step)
        self._set_quiet()

    def _check_time(self, *_: int) -> None:
        self._meter.check_time()

    def _rise(self, height: int, _: int) -> None:
        self._meter.height(height, self._stratum)
        if self._watch is not None:
            self._watch.rise(height)
            self._ledger[climb.NOTED] = self._watch.watches

    def _check_tuples(self, n: int, _: int) -> None:
        self._meter.tuples(self._relation(n), self._stratum)
        self._ledger[climb.HELD_TUPLES] = self._meter.held

    def _make_room(self, n: int, more: int) -> None:
        relation = self._relation(n)
        relation.grow(more)
        self._board.refresh_relation(relation)

    def _keep_more(self, n: int, more: int) -> None:
        changes = self._journal[self._board.names[n]]
        changes.grow(abs(more), more > 0, partial(self._beside, self._relation(n)))
        changes.write(self._board.relations[n])

    def _beside(self, relation: Relation | None, size: int) -> None:
        self._meter.reserve(size, relation)
        self._meter.beside += size

    def _rise_further(self, tallest: int, _: int) -> None:
        self._runner.workspace.grow_heights(tallest, self._meter.reserve)

    def _wait_more(self, more: int, _: int) -> None:
        self._runner.workspace.grow_items(more, self._meter.reserve)

    def _tell_profile(self, *_: int) -> None:
        self._flush()
        self._set_quiet()

    def _widen(self, span: int, _: int) -> None:
        self._runner.scratch.of(span)
        self._write_scratch()

    def _write_scratch(self) -> None:
        scratch, ledger = self._runner.scratch, self._ledger
        ledger[climb.SUMS_AT] = scratch.sums.ctypes.data
        ledger[climb.SUM_MARKS_AT] = scratch.marks.ctypes.data
        ledger[climb.SUMS_TOUCHED_AT] = scratch.touched.ctypes.data
        ledger[climb.SUMS_ROOM] = len(scratch.sums)

    def _hold_entries(self, n: int, more: int) -> None:
        relation = self._relation(n)
        relation.hold_entries(more)
        self._board.refresh_relation(relation)

    def _hold_postings(self, n: int, at: int) -> None:
        relation = self._relation(n)
        relation.indexes[self._board.columns(at)].grow()
        self._board.refresh_relation(relation)

    def _build_indexes(self, n: int, _: int) -> None:
        """Entries were added; their room was announced, so nothing can be refused here."""
        relation = self._relation(n)
        self._runner.together(relation.rebuilding())
        self._board.refresh_relation(relation)

    def _given(self) -> Batch:
        """The bindings of a call back."""
        at, rows, columns, heights, some, weights, many = self._ledger[climb.GIVEN : climb.GIVEN + 7].tolist()
        return Batch(
            views.int64_at(at, rows * columns).reshape(rows, columns),
            views.int32_at(heights, some),
            views.int64_at(weights, many),
        )

    def _go_on(self, place: int, number: int) -> None:
        """Run a plan from a step on."""
        plan, given = self._board.plan(place), self._given()
        self._flush()
        self._runner.go_on(
            plan,
            (given.codes, given.heights, given.weights),
            lambda step: [self._main(step)],
            self._meter.charge,
            self._emit,
            number,
        )
        self._resume()

    def _carry(self, place: int, n: int) -> None:
        """Carry a batch through a plan in which some atoms see the relation as it was, and some with the batch."""
        name, batch = self._board.names[n], self._given()
        indexes: dict[tuple[str, tuple[int, ...]], BatchIndex] = {}

        def targets(step: BoundStep) -> list[Target]:
            main = [self._main(step)]
            if step.relation == name and step.before:
                main.append(_batch_target(indexes, step, batch, True, 1))
            return main

        self._interpret(self._board.plan(place), batch, targets)

    def _settle_groups(self, n: int, height: int) -> None:
        ledger = self._ledger
        touched = self._given().heights
        rows, weights, removals, later, heights = self._relation(n).settle(touched, height, self._signed)
        # Alive until they have been read.
        self._kept = rows, weights, later, heights
        ledger[climb.GIVEN : climb.GIVEN + 7] = (
            rows.ctypes.data,
            len(rows),
            weights.ctypes.data,
            removals,
            later.ctypes.data,
            len(later),
            heights.ctypes.data,
        )

    def _fold_at(self, height: int, _: int) -> None:
        """Advance the folds on the clock: the sources are complete up to `height`, and the targets have not been
        settled there yet.
        """
        self._flush()
        for target, fold in sorted(self._clocked.items()):
            if fold.is_due(height):
                codes, weights = fold.advance(height, self._runner.symbols)
                if len(codes):
                    self._push(target, codes, np.array([height], np.int32), weights)
        self._set_quiet()

    def _next_height(self, height: int, _: int) -> None:
        due = [h for fold in self._clocked.values() if (h := fold.next_height()) is not None]
        self._ledger[climb.GIVEN] = min([height, *due])

    def _note(self, n: int, clock: int) -> None:
        name, given = self._board.names[n], self._given()
        if not clock:
            assert self._watch is not None, "a signed stratum is watched"
            self._watch.note({name: (given.codes, given.weights)})
            return
        for fold in self._clocked.values():
            if name in fold.fold.sources:
                # In the place of heights are the rows.
                fold.note(name, given.heights.copy(), given.weights.copy())

    def _reserve(self, n: int, size: int) -> None:
        self._meter.reserve(size, self._relation(n))

    def _collect(self, n: int, _: int) -> None:
        raise NotImplementedError("only a stratum in blocks collects")

    def _overflow(self, n: int, join: int) -> None:
        if join:
            raise joined_too_often(self._board.names[n])
        raise self._relation(n).overflow()

    def _relation(self, n: int) -> Relation:
        return self._relations[self._board.names[n]]

    _answers: ClassVar[dict[int, str]] = {
        climb.ASK_CHARGE: "_charge",
        climb.ASK_TIME: "_check_time",
        climb.ASK_HEIGHT: "_rise",
        climb.ASK_TUPLES: "_check_tuples",
        climb.ASK_ROOM: "_make_room",
        climb.ASK_JOURNAL: "_keep_more",
        climb.ASK_HEIGHTS: "_rise_further",
        climb.ASK_ITEMS: "_wait_more",
        climb.ASK_PROFILE: "_tell_profile",
        climb.ASK_SCRATCH: "_widen",
        climb.ASK_ENTRIES: "_hold_entries",
        climb.ASK_POSTINGS: "_hold_postings",
        climb.ASK_STEP: "_go_on",
        climb.ASK_PLAN: "_carry",
        climb.ASK_GROUPS: "_settle_groups",
        climb.ASK_CLOCK: "_fold_at",
        climb.ASK_NEXT: "_next_height",
        climb.ASK_NOTE: "_note",
        climb.ASK_MEMORY: "_reserve",
        climb.ASK_COLLECT: "_collect",
        climb.ASK_INDEXES: "_build_indexes",
        climb.OVERFLOWED: "_overflow",
    }


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
