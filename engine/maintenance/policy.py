"""The elastic choice: whether a stratum is updated or bootstrapped, decided while the update runs. This is only the
policy; placements do the work.

In: what the stratum's last bootstrap enumerated, height by height, and what the running update enumerates. Out: the
update goes on, or `Abandoned` is raised, and the placement drops the stratum's partial work and bootstraps it. Always:
the decision depends on counts alone, so the same state and the same transaction decide the same way on any machine;
it never changes a result, only what the result costs.

**The rule.** An update is abandoned when its cost so far exceeds `switch` times the cost of a bootstrap, and the rest
of it is estimated to cost more than the bootstrap. So at most about the fraction `switch` of a bootstrap is lost.

**The unit.** Derivations are enumerated, summed up, and pushed to the supports of their heads. The pushes take most of
the time: on programs in which a push sums up from 2 to 100 derivations, it takes 0.3 us in a bootstrap, give or take a
quarter, and 2.2 times that in an update, which meets existing supports, entries and indexes and keeps an undo log.
Where the bootstrap is done in blocks of pivots, it takes a third of that (`benchmarks/elastic.py`). So costs are
compared in pushes. Before an update has pushed anything, its number of pushes for each derivation is assumed to be the
geometric mean of that of a bootstrap and 1.

**The bootstrap.** A bootstrap enumerates each derivation that holds once. So the cost of one now is the cost of the
last one, times the derivations that hold now over those that held then; the derivations that the update is about to add
or take away are added to it or subtracted from it.

**Facts.** A bootstrap pushes the facts that the stratum's own relations hold, and those that change; an update pushes
only those that change, at its own price. Their number is known before the start. If they alone exceed the fraction, the
decision is made at once, and nothing is lost: at height 0, the changed facts are expected to cause the same share of
the bootstrap's derivations as their share of the facts held, and at greater heights as their share of all tuples.

**What is lost.** The pushes of an abandoned update are undone before the bootstrap, each at about the cost of a push
(0.35 us, measured). So this cost is counted in favour of going on with the update. On Spark it is not counted, because
there a version is simply forgotten.

**What is to come.** A placement says how many derivations a step will enumerate before it does so; that much is known.
Beyond it, the estimate uses the share of the bootstrap's derivations at the present height that the update enumerates:
if a change touches a tenth of the tuples of a height, a tenth of the derivations that start there are expected to
change. The estimate is the same share of the bootstrap's derivations at all greater heights. It is renewed at every
height, so a change that spreads is noticed where it spreads. The share is limited to two, because an entry can leave
and come back, but no more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from engine.circuit.circuit import is_internal
from engine.data.transaction import STRATEGIES, Strategy
from engine.errors import InvalidRequestError, shown

SWITCH = 0.2
"""The default fraction of a bootstrap after which an update may be abandoned."""
BELOW = -1
"""In a profile, the place of derivations from outside the recursion: lower strata's changes, and whole rules."""
_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How the strategy of each stratum is chosen.

    strategy: `update` never abandons; `bootstrap` computes every stratum that changes from nothing; `auto` follows the
    rule; `dred` over-deletes and derives again where that can be done (repair.py), and never abandons. switch: see the
    module; 0 is the same as `bootstrap`, infinity as `update`. floor: the least number of pushes that a switch must
    save, because new arrays cost something too. price: the cost of an update's push, in pushes of a bootstrap. pivoted:
    how many times as much it is where the bootstrap is done in blocks of pivots.
    """

    strategy: Strategy = "auto"
    switch: float = SWITCH
    floor: int = 5_000
    price: float = 2.2
    pivoted: float = 3.0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidRequestError(
                f"strategy must be one of {', '.join(STRATEGIES)}, not {shown(self.strategy)}"
            )
        if not self.switch >= 0:
            raise InvalidRequestError(f"switch must be a number of at least 0, or inf, not {self.switch}")

    @property
    def always(self) -> bool:
        """Whether every stratum that changes is bootstrapped."""
        return self.strategy == "bootstrap" or (self.strategy == "auto" and self.switch == 0)

    @property
    def never(self) -> bool:
        """Whether every update runs to its end."""
        return self.strategy in ("update", "dred") or (self.strategy == "auto" and math.isinf(self.switch))

    def asking(self, strategy: Strategy | None) -> Policy:
        """This policy with the strategy that a transaction asks for; None asks for nothing."""
        return self if strategy is None else replace(self, strategy=strategy)


def parse_switch(text: str) -> float:
    """A fraction as it is typed; `none` is infinite.

    Raises:
        InvalidRequestError: it is not a number.
    """
    try:
        return math.inf if text == "none" else float(text)
    except ValueError:
        raise InvalidRequestError(
            f"switch must be a number of at least 0, or none, not {shown(text)}"
        ) from None


@dataclass(frozen=True, slots=True)
class BootstrapCost:
    """The cost of the last bootstrap of a stratum, and how the stratum has grown since.

    derivations: that it enumerated. pushed: support changes that it pushed for them. held: derivations that held after
    it (or another measure that grows with them). now: the present value of the same measure. heights, sums: the
    derivations up to and including each height, ascending. pivoted: it was done in blocks of pivots.
    """

    derivations: int
    pushed: int
    held: float
    now: float
    heights: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    pivoted: bool = False

    @classmethod
    def of(cls, profile: Mapping[int, int], pushed: int, held: float) -> BootstrapCost:
        """From the derivations enumerated at each height (`BELOW`: before the first)."""
        heights = tuple(sorted(profile))
        sums = tuple(accumulate(profile[height] for height in heights))
        return cls(sums[-1] if sums else 0, pushed, held, held, heights, sums)

    @property
    def ratio(self) -> float:
        """Pushes for each derivation: 1 if none are summed up."""
        return self.pushed / self.derivations if self.derivations else 1.0

    def estimate(self, added: float = 0.0) -> float:
        """Derivations that a bootstrap would enumerate now. added: derivations that hold beyond `now`."""
        return self.derivations * self.growth(added)

    def growth(self, added: float = 0.0) -> float:
        """How many times as much holds now as after the last bootstrap."""
        return max(0.0, self.now + added) / self.held if self.held > 0 else 1.0

    def until(self, height: int) -> int:
        """Derivations that it enumerated below `height`."""
        place = bisect_left(self.heights, height)
        return self.sums[place - 1] if place else 0


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """How the facts of a stratum's own relations change. added, gone: facts with a weight above or below 0. held: the
    facts, and tuples: all tuples that were present, before the change.
    """

    added: int = 0
    gone: int = 0
    held: int = 0
    tuples: int = 0

    @classmethod
    def of(cls, moved: Iterable[tuple[int, int]], held: int, tuples: int) -> OwnFacts:
        """From the numbers of facts with a weight above and below 0, of each relation."""
        added = gone = 0
        for more, less in moved:
            added, gone = added + more, gone + less
        return cls(added, gone, held, tuples)

    @property
    def moved(self) -> int:
        return self.added + self.gone

    def derivations(self, last: BootstrapCost) -> float:
        """Derivations that the change is expected to add or take away, where the last bootstrap was `last`."""
        first = last.until(1) - last.until(0)
        later = last.derivations - last.until(1)
        of_facts = self.moved / max(1, self.held)
        of_tuples = min(_SHARE, self.moved / max(1, self.tuples))
        return last.growth() * (first * of_facts + later * of_tuples)


class Abandoned(Exception):
    """The update is not to go on. `step`: derivations of the step that was being charged; the other fields are those of
    `Switched`.
    """

    def __init__(self, spent: int, step: int, estimate: float, bootstrap: float, facts: int) -> None:
        super().__init__("the update is abandoned for a bootstrap")
        self.spent = spent
        self.step = step
        self.estimate = round(estimate)
        self.bootstrap = round(bootstrap)
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Switched:
    """A stratum that was bootstrapped although its members are unchanged. `asked`: because the transaction asked for
    it.

    spent: derivations of the update that was abandoned. estimate: what it was expected to need in all. bootstrap: what
    the bootstrap was expected to need. facts: of the stratum's own relations that change.
    """

    relations: tuple[str, ...]
    asked: bool
    spent: int = 0
    estimate: int = 0
    bootstrap: int = 0
    facts: int = 0

    @classmethod
    def by(cls, stop: Abandoned, relations: tuple[str, ...], spent: int) -> Switched:
        """An update that was abandoned after `spent` derivations."""
        return cls(relations, False, spent, stop.estimate, stop.bootstrap, stop.facts)


class Course:
    """One stratum's way through one epoch, as counts; raises `Abandoned` if the policy says so.

    last: the cost of its last bootstrap; None if nothing was derived before, so that this is one. policy: None for a
    run that must not be abandoned. ahead: whether a step is charged before it is done, and has to be undone after it.
    left: derivations that the epoch's budget still allows. facts: that change in the stratum's own relations.
    """

    def __init__(
        self,
        last: BootstrapCost | None = None,
        policy: Policy | None = None,
        ahead: bool = True,
        left: int | None = None,
        facts: OwnFacts | None = None,
    ) -> None:
        self._last = last
        self._price = 0.0 if policy is None else policy.price
        if last is not None and last.pivoted and policy is not None:
            self._price *= policy.pivoted
        self._facts = facts or OwnFacts()
        self._policy = policy
        self._watched = last is not None and last.held > 0 and policy is not None and not policy.never
        self.ahead = ahead
        self._left = left
        self._height = BELOW
        self._direction = 0.0
        self._gross = 0.0
        self._pushed = 0
        self.profile: dict[int, int] = {}
        self.spent = 0
        self.net = 0.0
        """Derivations added less derivations taken away."""
        self.estimate = 0.0
        """The largest estimate so far of what the update needs in all."""

    @property
    def bootstraps(self) -> bool:
        """Whether everything is derived from nothing: it is no update, or nothing was derived before."""
        return self._policy is None or self._last is None or self._last.held <= 0

    def begin(self) -> None:
        """The update is about to begin; the change of the facts may already say that it should not.

        Raises:
            Abandoned: the stratum is to be bootstrapped; nothing was done.
        """
        facts, last, policy = self._facts, self._last, self._policy
        if not (self._watched and facts.moved and last is not None and policy is not None):
            return
        if self._price * facts.moved <= policy.switch * self._bootstrap(last, last.estimate()):
            return
        expected = facts.derivations(last)
        self.estimate = expected
        direction = (facts.added - facts.gone) / facts.moved
        update = self._price * (facts.moved + _unknown(last) * expected)
        self._decide(last, policy, update, last.estimate() + direction * expected, expected)

    def rise(self, height: int) -> None:
        """The run goes on to a height."""
        self._height = height

    def send(self, direction: float) -> None:
        """The derivations that are charged from now on are added (1) or taken away (-1), or some of both."""
        self._direction = direction

    def emitted(self, pushed: int, net: float, gross: float) -> None:
        """Supports were pushed: how many changes, the sum of their weights, and the sum of the weights' absolute
        values.
        """
        self._pushed += pushed
        self.net += net
        self._gross += gross

    def passed(self, height: int, derivations: int) -> None:
        """So many derivations, no more than `quiet` said, were enumerated at a height without being charged."""
        self.spent += derivations
        self.profile[height] = self.profile.get(height, 0) + derivations

    def absorb(self, part: Course) -> None:
        """A part of the work was watched by itself."""
        for height, derivations in part.profile.items():
            self.passed(height, derivations)
        self.emitted(part._pushed, part.net, part._gross)

    def quiet(self) -> float:
        """How many derivations may be enumerated before `charge` could decide anything: up to that many, it need not be
        asked. Each pushes at most once, and adds or takes away at most two.
        """
        last, policy = self._last, self._policy
        if not self._watched or last is None or policy is None:
            return math.inf
        if self._pushed > self.spent:
            return 0.0
        each = last.ratio * last.derivations / last.held
        bootstrap = each * (last.now + self.net) + self._facts.held + self._facts.moved
        spent = self._price * (self._facts.moved + self.spent)
        return max(0.0, (policy.switch * bootstrap - spent) / (self._price + 2 * policy.switch * each) - 1)

    def charge(self, step: int) -> None:
        """A step enumerates `step` derivations.

        Raises:
            Abandoned: the stratum is to be bootstrapped; the step is not counted.
        """
        if self._watched:
            self._look(step)
        self.spent += step
        self.profile[self._height] = self.profile.get(self._height, 0) + step

    def _look(self, step: int) -> None:
        last, policy = self._last, self._policy
        assert last is not None, "it is watched"
        assert policy is not None, "it is watched"
        done = self._gross + step
        direction = (self.net + self._direction * step) / done if done else 0.0
        bootstrap = last.estimate(self.net)
        known = self._pushed > 0 and self.spent > 0
        ratio = self._pushed / self.spent if known else _unknown(last)
        cost = self._price * (self._facts.moved + ratio * (self.spent + step))
        if cost <= policy.switch * self._bootstrap(last, bootstrap):
            return
        later = self._later(last, step)
        remaining = (step if self.ahead else 0) + later
        self.estimate = max(self.estimate, self.spent + step + later)
        update = self._price * ratio * remaining
        undone = self._facts.moved + self._pushed if self.ahead else 0
        bootstrap += direction * remaining
        self._decide(last, policy, update - undone, bootstrap, self.spent + step + later, step)

    def _bootstrap(self, last: BootstrapCost, derivations: float) -> float:
        """The pushes of a bootstrap with this many derivations."""
        return last.ratio * max(0.0, derivations) + self._facts.held + self._facts.moved

    def _decide(
        self,
        last: BootstrapCost,
        policy: Policy,
        update: float,
        derivations: float,
        estimate: float,
        step: int = 0,
    ) -> None:
        """Compare the cost of going on, `update` pushes, with a bootstrap of this many derivations.

        Raises:
            Abandoned: the bootstrap is cheaper, and the budget has room for it.
        """
        derivations = max(0.0, derivations)
        affordable = self._left is None or self.spent + derivations <= self._left
        if affordable and update > self._bootstrap(last, derivations) + policy.floor:
            raise Abandoned(self.spent, step, estimate, derivations, self._facts.moved)

    def _later(self, last: BootstrapCost, step: int) -> float:
        """Derivations expected at greater heights than the present one."""
        growth = last.growth(self.net)
        done = self.profile.get(self._height, 0) + step
        below = last.until(self._height + 1)
        usual = last.derivations if self._height == BELOW else below - last.until(self._height)
        if not usual or not growth:
            return 0.0
        return min(_SHARE, done / (usual * growth)) * (last.derivations - below) * growth

    def cost(self) -> BootstrapCost:
        """The stratum's cost after the run: a new one after a bootstrap, otherwise the last one, adjusted to its
        growth.
        """
        if self._last is None or self._last.held <= 0:
            return BootstrapCost.of(self.profile, self._pushed, self.net)
        return replace(self._last, now=self._last.now + self.net)


def _unknown(last: BootstrapCost) -> float:
    """Pushes for each derivation of an update that has not pushed anything yet."""
    return math.sqrt(min(1.0, last.ratio))


def reason(
    policy: Policy,
    switched: Sequence[Switched],
    rebuilt: Sequence[tuple[str, ...]],
    dropped: Sequence[tuple[str, ...]] = (),
) -> str:
    """Why an epoch was evaluated as it was, in words."""
    # A stratum of relations that exist only in the circuit belongs to one that the user knows.
    parts = [_told(one) for one in switched if known_to_users(one.relations)]
    if switched and not parts:
        parts.append("bootstrapped in part")
    if not switched:
        asked = policy.strategy == "bootstrap"
        parts.append("bootstrapped, as asked: nothing was derived before" if asked else "maintained")
    told = [relations for relations in rebuilt if known_to_users(relations)]
    if told:
        parts.append(f"built anew because its members changed: {', '.join(map(_named, told))}")
    told = [relations for relations in dropped if known_to_users(relations)]
    if told:
        parts.append(f"dropped what was derived, because no rules are left: {', '.join(map(_named, told))}")
    return "; ".join(parts)


def _told(one: Switched) -> str:
    if one.asked:
        return f"bootstrapped {_named(one.relations)}, as asked"
    facts = f", and to change {one.facts:,} of its facts one by one" if one.facts else ""
    return (
        f"bootstrapped {_named(one.relations)}: after {one.spent:,} derivations its update was expected to need "
        f"{one.estimate:,}{facts}, which cost more than the {one.bootstrap:,} that a bootstrap was expected to need"
    )


def known_to_users(relations: Iterable[str]) -> tuple[str, ...]:
    """The relations without those that exist only in the circuit."""
    return tuple(name for name in relations if not is_internal(name))


def _named(relations: Iterable[str]) -> str:
    return "{" + ", ".join(known_to_users(relations)) + "}"
