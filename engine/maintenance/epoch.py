"""The walk through one epoch: which strata are visited, and whether each is updated, bootstrapped or built anew.

In: the circuits before and after, the changed facts, the policy, and for each stratum the placement that holds it (a
`Host`). Out: the record of what was done. Always: a stratum comes after everything that it reads, and is complete
before the next one begins. The host does the work itself, on arrays or DataFrames; every decision is made here, so that
all placements decide alike.

What is done with a stratum:

- Nothing, if its rules, its folds, its facts and what it reads are unchanged, or if nothing in it can hold.
- It is *built anew* if its members changed, or the way they are folded, because its state then has the heights of
  another recursion.
- It is *dropped* if it lost all of its rules, unless they derived less than there are facts: its state is put aside and
  its facts are asserted anew, which costs nothing for what was derived.
- It is *bootstrapped* if the policy asks for it, or gives up its update on the way (policy.py): what the update did is
  undone, and the stratum is computed from nothing.
- Where DRed is asked for, it is updated by over-deletion and re-derivation if that can be done (repair.py).
- Otherwise it is *updated*: lower changes go through the old rules, then rules that appeared or disappeared are joined
  as a whole, folds look at the groups that changed, and facts are asserted. Heights follow (docs/evaluation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.normal import UNIT, Fold
from engine.circuit.pivot import pivot_of
from engine.circuit.walk import Walk
from engine.errors import BudgetExceededError
from engine.maintenance.change import Change
from engine.maintenance.facts import FactArrays, FactDelta, moved, rows_of
from engine.maintenance.meter import DROPPED, Meter
from engine.maintenance.oscillation import Swing
from engine.maintenance.placement import Encode, Executed
from engine.maintenance.policy import Abandoned, BootstrapCost, Course, OwnFacts, Policy, Switched
from engine.maintenance.repair import Repaired, check_positive, repaired

Costs = dict[tuple[str, ...], BootstrapCost]
"""The cost of the last bootstrap of each stratum, by its relations."""
_THE_UNIT: FactArrays = (np.empty((1, 0), np.int64), np.ones(1, np.int64))


@dataclass(frozen=True, slots=True)
class Held:
    """What the relations of a stratum hold. live: whether there is any state. asserted, present: numbers of tuples."""

    live: bool
    asserted: int
    present: int


class StratumWork(Protocol):
    """The work on one stratum: first everything that comes from outside of it, then `run`. `ahead`: see `Course`."""

    ahead: bool

    def lower_changes(self, rules: Sequence[str], /) -> None:
        """Carry the net changes of lower relations through the rules with these ids."""

    def whole_rule(self, rule: str, weight: int, /) -> None:
        """Add all derivations of a rule over the collections as they are, times `weight`."""

    def fold_changes(self, fold: Fold, whole: Sequence[str], /) -> None:
        """Fold again the groups that changed in the sources, and all groups of the relations `whole`: sources that are
        new to the fold, or are no longer its sources.
        """

    def assert_held(self) -> None:
        """Assert the facts that the relations held before they were discarded."""

    def assert_facts(self, relation: str, facts: FactDelta, /) -> None:
        """Add to the asserted weights of tuples."""

    def run(self) -> None:
        """Bring the stratum up to date, height by height."""


class Host(Protocol):
    """A placement as the walk sees it during one epoch."""

    def held(self, stratum: Stratum, /) -> Held:
        """What the stratum's relations hold now."""

    def work(self, stratum: Stratum, before: Stratum | None, /) -> StratumWork:
        """Begin the work on a stratum. before: what it was; None if it is computed from nothing."""

    def take_back(self, stratum: Stratum, /) -> None:
        """Undo the update of a stratum that was given up; the update may not have begun."""

    def discard(self, stratum: Stratum, /) -> None:
        """Put the stratum's state aside, to be computed from nothing; its facts are kept for `assert_held`."""

    def changed(self, relation: str, /) -> bool:
        """Whether tuples of the relation came or went in the epoch; if so, keep which, for the strata above."""


class Epoch:
    """See the module. facts: changes of asserted weights, by relation. costs: of the strata before the epoch."""

    def __init__(
        self,
        circuit: Circuit,
        before: Circuit,
        facts: Mapping[str, FactDelta],
        policy: Policy,
        costs: Costs,
    ) -> None:
        self.circuit = circuit
        self.before = before
        self._facts = {name: delta for name, delta in facts.items() if rows_of(delta)}
        self._policy = policy
        self._known = costs
        self._costs: Costs = {}
        self._walk = Walk(circuit, before, self._facts)
        self._moved: set[str] = set()
        self._rebuilt: list[tuple[str, ...]] = []
        self._switched: list[Switched] = []
        self._repaired: list[Repaired] = []
        self._dropped: list[tuple[str, ...]] = []
        self._estimate = self._bootstrap = 0

    @property
    def fresh(self) -> Sequence[Stratum]:
        """The strata that the circuit before does not have."""
        return self._walk.fresh

    @property
    def gone(self) -> Sequence[Stratum]:
        """The strata that only the circuit before has."""
        return self._walk.gone

    def is_read_above(self, relation: str) -> bool:
        """Whether a higher stratum reads the relation or did so before: a rule that disappears also has to see what
        changed.
        """
        return self.circuit.is_read_above(relation) or self.before.is_read_above(relation)

    def run(self, host_of: Callable[[Stratum], Host], meter: Meter, encode: Encode) -> None:
        """Bring all strata up to date, each on its host.

        Raises:
            BudgetExceededError, EvaluationCancelledError, WeightOverflowError, FixpointNotReachedError: the state is
            incomplete, and has to be rolled back.
            InvalidRequestError: the strategy is not for this program.
        """
        if self._policy.strategy == "dred":
            check_positive(self.circuit)
        try:
            for stratum in self._walk:
                self._bring(stratum, host_of(stratum), meter)
        except Swing as swing:
            raise swing.error(encode.symbols) from None
        except MemoryError:
            raise BudgetExceededError(
                f"the transaction needs more memory than the machine has; {DROPPED}",
                budget="memory",
            ) from None

    def executed(self, changes: Iterable[tuple[str, Change]], meter: Meter) -> Executed:
        """The report of the epoch. changes: what readers can see of each relation."""
        return Executed(
            {name: change for name, change in changes if change.rows},
            meter.derivations,
            tuple(self._rebuilt),
            tuple(self._switched),
            self._estimate,
            self._bootstrap,
            tuple(self._repaired),
            tuple(self._dropped),
        )

    def keep(self) -> None:
        """The epoch is committed: update `costs`."""
        for stratum in self.gone:
            now = self.circuit.stratum_of.get(stratum.relations[0])
            if now is None or now.relations != stratum.relations or not now.derives:
                self._known.pop(stratum.relations, None)
        self._known |= self._costs

    def _bring(self, stratum: Stratum, host: Host, meter: Meter) -> None:
        """Bring one stratum up to date."""
        before = self.before.stratum_of.get(stratum.relations[0])
        if before is not None and before.shape != stratum.shape:
            before = None
        facts = {name: self._facts[name] for name in stratum.relations if name in self._facts}
        held = host.held(stratum)
        if self._has_nothing_to_do(stratum, before, held, facts):
            return
        last = self._known.get(stratum.relations) if before is not None else None
        if held.live and before is None:
            self._rebuilt.append(stratum.relations)
            host.discard(stratum)
        elif before is not None and self._is_to_be_dropped(stratum, before, held, last):
            self._dropped.append(stratum.relations)
            host.discard(stratum)
            before = last = None
        elif held.live and self._policy.always and stratum.derives:
            expected = round(last.estimate()) if last is not None else 0
            self._switched.append(Switched(stratum.relations, True, bootstrap=expected))
            host.discard(stratum)
            before = None
        course = None
        if before is not None:
            course = self._updated(stratum, before, host, meter, held, facts, last)
        bootstrapped = course is None
        if course is None:
            course = Course()
            self._work(stratum, None, host, meter, course, held, facts)
        if stratum.derives:
            cost = course.cost()
            if bootstrapped:
                cost = replace(cost, pivoted=not stratum.signed and pivot_of(stratum) is not None)
            self._costs[stratum.relations] = cost
        self._bootstrap += round(last.estimate()) if last is not None else 0
        for name in stratum.relations:
            if self.is_read_above(name) and host.changed(name):
                self._moved.add(name)
                self._walk.changed(name)

    def _has_nothing_to_do(
        self, stratum: Stratum, before: Stratum | None, held: Held, facts: Mapping[str, FactDelta]
    ) -> bool:
        """Whether the stratum stays as it is. before: None if its state cannot be continued."""
        if facts:
            return False
        if before is None:
            return not (held.live or stratum.derives or stratum.relations == (UNIT,))
        same = before.folds == stratum.folds and _ids(before) == _ids(stratum)
        return same and not stratum.reads & self._moved

    def _is_to_be_dropped(
        self, stratum: Stratum, before: Stratum, held: Held, last: BootstrapCost | None
    ) -> bool:
        """Whether the stratum has no rules any more, and to retract what they derived costs more than to assert its
        facts anew."""
        if not (held.live and before.derives) or stratum.derives:
            return False
        derived = held.present - held.asserted if last is None else last.ratio * last.estimate()
        return self._policy.price * derived > held.asserted

    def _updated(
        self,
        stratum: Stratum,
        before: Stratum,
        host: Host,
        meter: Meter,
        held: Held,
        facts: Mapping[str, FactDelta],
        last: BootstrapCost | None,
    ) -> Course | None:
        """Update a stratum; None if the update was given up, so that a bootstrap has to follow."""
        own = OwnFacts.of(map(moved, facts.values()), held.asserted, held.present)
        course = Course(last, self._policy, left=meter.left, facts=own)
        try:
            self._work(stratum, before, host, meter, course, held, facts)
        except Abandoned as stop:
            done = 0 if course.ahead else stop.step
            meter.derivations += done
            self._switched.append(Switched.by(stop, stratum.relations, stop.spent + done))
            host.take_back(stratum)
            host.discard(stratum)
            return None
        finally:
            self._estimate += max(course.spent, round(course.estimate))
        return course

    def _work(
        self,
        stratum: Stratum,
        before: Stratum | None,
        host: Host,
        meter: Meter,
        course: Course,
        held: Held,
        facts: Mapping[str, FactDelta],
    ) -> None:
        """Evaluate a stratum: what changed since it was `before`, or everything if `before` is None."""
        meter.enter(stratum, course)
        if before is not None:
            course.begin()
        work = host.work(stratum, before)
        course.ahead = work.ahead
        new = _ids(stratum)
        if before is not None:
            old = stratum.rules_before(before)
            work.lower_changes(sorted(old))
            for rule in sorted(new - old):
                work.whole_rule(rule, 1)
            for rule in sorted(old - new):
                work.whole_rule(rule, -1)
            earlier = {fold.target: set(fold.sources) for fold in before.folds}
            for fold in stratum.folds:
                if fold.sources:
                    work.fold_changes(fold, sorted(earlier[fold.target] ^ set(fold.sources)))
        else:
            for rule in sorted(new):
                work.whole_rule(rule, 1)
            for fold in stratum.folds:
                if fold.sources:
                    work.fold_changes(fold, fold.sources)
            if stratum.relations == (UNIT,) and not held.live:
                work.assert_facts(UNIT, _THE_UNIT)
            work.assert_held()
        for name, delta in facts.items():
            work.assert_facts(name, delta)
        done = None
        if before is not None and self._policy.strategy == "dred":
            done = repaired(stratum, work)
        if done is not None:
            self._repaired.append(done)
        if done is None or done.instead:
            work.run()


def _ids(stratum: Stratum) -> set[str]:
    return {rule.id for rule in stratum.rules}
