"""The elastic choice: whether a stratum is updated or bootstrapped, decided while the update runs. Policy only.

In: what the stratum's last bootstrap enumerated, height by height, and what the running update enumerates. Out: the
update goes on, or `Abandoned` is raised, and the placement drops the stratum's partial work and bootstraps it. Always:
the decision depends on counts alone, so the same state and the same transaction decide the same way on any machine;
it never changes a result, only what the result costs.

**The rule.** An update is abandoned when what it has cost passes `switch` times the bootstrap, and what is still to
come is estimated to cost more than the bootstrap. So about the fraction `switch` of a bootstrap is lost at the most.

**The unit.** Derivations are enumerated, summed up, and pushed to the supports of their heads. The pushes are what
takes the time: on programs in which a push sums up from 2 to 100 derivations, it is within a quarter 0.45 us in a
bootstrap, and 2.2 times that in an update, which meets supports, entries and indexes that are there and keeps an undo
log (`benchmarks/elastic.py`). So costs are compared in pushes. Before an update has pushed anything, it is taken to
sum up less than a bootstrap and more than not at all: the geometric mean of both.

**The bootstrap.** A bootstrap enumerates each derivation that holds once. So the cost of one now is that of the last
one, times the derivations that hold now over those that held then; and what the update is about to add or to take away
is added to it or taken from it.

Facts of the stratum's own relations are pushed once more by a bootstrap, and taken out one by one by an update; both
are counted.

**What is to come.** A placement says how many derivations a step will enumerate before it does so: that much is known.
Beyond it, look at the share of the bootstrap's derivations at the present height that the update enumerates there: of
a change that touches a tenth of the tuples of a height, a tenth of the derivations that start there are expected to
change. The same share of the bootstrap's derivations at all greater heights is the estimate. It is renewed at every
height, so a change that spreads is noticed where it does. A share above two is not believed: an entry can leave and
come back, no more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, get_args

from engine.errors import InvalidRequestError

Strategy = Literal["auto", "update", "bootstrap"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

SWITCH = 0.2
"""The fraction of a bootstrap after which an update may be abandoned, where nothing else is said."""
BELOW = -1
"""In a profile, the place of what comes from outside the recursion: lower strata's changes, and whole rules."""
_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How the strategy of each stratum is chosen.

    strategy: `update` never abandons; `bootstrap` computes every stratum that changes from nothing; `auto` follows the
    rule. switch: see the module; 0 is the same as `bootstrap`, infinity as `update`. floor: pushes that a switch
    must save at the least, for new arrays cost something too. price: what a push of an update costs, in pushes of a
    bootstrap.
    """

    strategy: Strategy = "auto"
    switch: float = SWITCH
    floor: int = 5_000
    price: float = 2.2

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidRequestError(
                f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}"
            )
        if not self.switch >= 0:
            raise InvalidRequestError(f"switch must be a number of 0 or more, or inf, not {self.switch}")

    @property
    def always(self) -> bool:
        """Whether every stratum that changes is bootstrapped."""
        return self.strategy == "bootstrap" or (self.strategy == "auto" and self.switch == 0)

    @property
    def never(self) -> bool:
        """Whether every update runs to its end."""
        return self.strategy == "update" or (self.strategy == "auto" and math.isinf(self.switch))

    def asking(self, strategy: Strategy | None) -> Policy:
        """This policy with the strategy that a transaction asks for; None asks for nothing."""
        return self if strategy is None else replace(self, strategy=strategy)


def parse_switch(text: str) -> float:
    """A fraction as it is typed; `none` is infinite.

    Raises:
        InvalidRequestError: it is no number.
    """
    try:
        return math.inf if text == "none" else float(text)
    except ValueError:
        raise InvalidRequestError(f"switch must be a number of 0 or more, or none, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class BootstrapCost:
    """What the last bootstrap of a stratum took, and how the stratum has grown since.

    derivations, pushed: that it enumerated, and the support changes that it pushed for them. held: derivations that
    held after it (or another measure that grows with them). now: the same, now. heights, sums: derivations up to and
    including a height, ascending.
    """

    derivations: int
    pushed: int
    held: float
    now: float
    heights: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()

    @classmethod
    def of(cls, profile: Mapping[int, int], pushed: int, held: float) -> BootstrapCost:
        """From the derivations enumerated at each height (`BELOW`: before the first)."""
        heights = tuple(sorted(profile))
        sums = tuple(accumulate(profile[height] for height in heights))
        return cls(sums[-1] if sums else 0, pushed, held, held, heights, sums)

    @property
    def ratio(self) -> float:
        """Pushes for each derivation: 1 where none are summed up."""
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
class Switched:
    """A stratum that was bootstrapped though its members are as they were. `asked`: for the transaction wanted it.

    spent: derivations of the update that was abandoned. estimate: what it was expected to need in all. bootstrap: what
    the bootstrap was expected to need.
    """

    relations: tuple[str, ...]
    asked: bool
    spent: int = 0
    estimate: int = 0
    bootstrap: int = 0


class Abandoned(Exception):
    """The update is not to go on. `step`: derivations of the step that was being charged."""

    def __init__(self, spent: int, step: int, estimate: float, bootstrap: float) -> None:
        super().__init__("the update is abandoned for a bootstrap")
        self.spent = spent
        self.step = step
        self.estimate = round(estimate)
        self.bootstrap = round(bootstrap)


class Course:
    """One stratum's way through one epoch, as counts; raises `Abandoned` where the policy says so.

    last: of its last bootstrap; None where nothing was derived before, so that this is one. policy: None for a run
    that must not be abandoned. kept, gone: facts that the stratum's relations hold and that a bootstrap pushes once
    more, and facts that an update takes out one by one. ahead: whether a step is charged before it is done. left:
    derivations that the epoch's budget still allows.
    """

    def __init__(
        self,
        last: BootstrapCost | None = None,
        policy: Policy | None = None,
        ahead: bool = True,
        left: int | None = None,
        kept: int = 0,
        gone: int = 0,
    ) -> None:
        self._last = last
        self._kept = kept
        self._gone = gone
        self._policy = policy
        self._watched = last is not None and last.held > 0 and policy is not None and not policy.never
        self._ahead = ahead
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

    def rise(self, height: int) -> None:
        """The run goes on to a height."""
        self._height = height

    def send(self, direction: float) -> None:
        """What is charged from now on adds (1) or takes away (-1), or some of both."""
        self._direction = direction

    def emitted(self, pushed: int, net: float, gross: float) -> None:
        """Supports were pushed: how many changes, the sum of their weights, and of the weights' sizes."""
        self._pushed += pushed
        self.net += net
        self._gross += gross

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
        ratio = self._pushed / self.spent if known else math.sqrt(min(1.0, last.ratio))
        price = policy.price * ratio
        if price * (self.spent + step) <= policy.switch * last.ratio * bootstrap:
            return
        later = self._later(last, step)
        remaining = (step if self._ahead else 0) + later
        self.estimate = max(self.estimate, self.spent + step + later)
        bootstrap = max(0.0, bootstrap + direction * remaining)
        affordable = self._left is None or self.spent + bootstrap <= self._left
        update = price * remaining + policy.price * self._gone
        if update > last.ratio * bootstrap + self._kept + policy.floor and affordable:
            raise Abandoned(self.spent, step, self.spent + step + later, bootstrap)

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
        """The stratum's cost after the run: a new one after a bootstrap, else the last one, grown."""
        if self._last is None or self._last.held <= 0:
            return BootstrapCost.of(self.profile, self._pushed, self.net)
        return replace(self._last, now=self._last.now + self.net)


def reason(policy: Policy, switched: Sequence[Switched], rebuilt: Sequence[tuple[str, ...]]) -> str:
    """Why an epoch was evaluated as it was, in words."""
    parts = [_told(one) for one in switched]
    if not switched:
        asked = policy.strategy == "bootstrap"
        parts.append("bootstrapped, as asked: nothing was derived before" if asked else "maintained")
    if rebuilt:
        parts.append(f"built anew, for its members changed: {', '.join(map(_named, rebuilt))}")
    return "; ".join(parts)


def _told(one: Switched) -> str:
    if one.asked:
        return f"bootstrapped {_named(one.relations)}, as asked"
    return (
        f"bootstrapped {_named(one.relations)}: after {one.spent:,} derivations its update was expected to need "
        f"{one.estimate:,}, dearer ones than the {one.bootstrap:,} that a bootstrap was expected to need"
    )


def _named(relations: Sequence[str]) -> str:
    return "{" + ", ".join(relations) + "}"
