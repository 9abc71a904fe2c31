"""The choice of strategy as arithmetic: every number here can be checked by hand."""

from __future__ import annotations

import math

import pytest

from engine.errors import InvalidRequestError
from engine.maintenance.policy import (
    BELOW,
    Abandoned,
    BootstrapCost,
    Course,
    OwnFacts,
    Policy,
    Switched,
    reason,
)

LAST = BootstrapCost.of({BELOW: 100, 1: 300, 2: 600}, 500, 1000.0)
"""A bootstrap of 1,000 derivations, two to a push."""
EAGER = Policy(floor=0, price=2.0)


def test_a_bootstrap_is_known_height_by_height() -> None:
    assert LAST.derivations == 1000
    assert LAST.ratio == 0.5
    assert [LAST.until(height) for height in (BELOW, 0, 1, 2, 3, 9)] == [0, 100, 100, 400, 1000, 1000]


def test_its_estimate_grows_with_what_holds() -> None:
    course = Course(LAST, EAGER)
    course.emitted(250, 500.0, 500.0)
    grown = course.cost()
    assert grown.estimate() == 1500
    assert grown.estimate(-1500.0) == 0
    assert (grown.derivations, grown.heights) == (LAST.derivations, LAST.heights)


def test_the_first_run_is_a_bootstrap_and_its_cost_is_kept() -> None:
    course = Course()
    course.charge(7)
    course.rise(1)
    course.charge(5)
    course.emitted(6, 12.0, 12.0)
    cost = course.cost()
    assert (cost.derivations, cost.pushed, cost.held) == (12, 6, 12.0)
    assert cost.until(1) == 7


def test_a_step_that_is_known_to_cost_more_than_a_bootstrap_is_not_begun() -> None:
    """It takes 2,000 derivations away, each as dear as two pushes; 500 pushes would do."""
    course = Course(LAST, EAGER)
    course.send(-1.0)
    with pytest.raises(Abandoned) as stop:
        course.charge(2000)
    assert (stop.value.spent, stop.value.step) == (0, 2000)
    assert course.spent == 0


def test_the_share_at_a_height_is_expected_at_the_greater_ones() -> None:
    """A third of the derivations of height 1 are gone through: a third of the 600 of height 2 is to come."""
    course = Course(LAST, Policy(floor=10**9, price=2.0))
    course.rise(1)
    course.charge(100)
    assert course.estimate == 100 + 200
    course.rise(2)
    course.charge(60)
    assert course.estimate == 300
    course.charge(300)
    assert course.estimate == 100 + 360


def test_an_update_goes_on_when_little_is_left() -> None:
    """At the last height nothing more is to come than what is known."""
    course = Course(LAST, EAGER)
    course.emitted(100, 0.0, 200.0)
    course.rise(2)
    for _ in range(20):
        course.charge(100)
    assert course.spent == 2000


def test_below_the_fraction_nothing_is_abandoned() -> None:
    """Five bootstraps are 2,500 pushes; the update pushes once for each derivation."""
    course = Course(LAST, Policy(switch=5.0, floor=0, price=1.0))
    course.charge(1000)
    course.emitted(1000, 0.0, 1000.0)
    course.charge(1500)
    course.emitted(1500, 0.0, 1500.0)
    with pytest.raises(Abandoned):
        course.charge(2000)


def test_a_bootstrap_that_the_budget_has_no_room_for_is_not_begun() -> None:
    course = Course(LAST, EAGER, left=900)
    course.charge(2000)
    with pytest.raises(Abandoned):
        Course(LAST, EAGER, left=1000).charge(2000)


def test_facts_are_pushed_once_more_by_a_bootstrap_and_what_was_done_is_undone() -> None:
    """300 derivations and as many again expected, at 2 pushes each of 0.7 to one derivation: 849 against 500, and 200
    more for the facts, and 100 to push and 100 to undo for those that change."""
    with pytest.raises(Abandoned):
        Course(LAST, EAGER).charge(300)
    with pytest.raises(Abandoned):
        Course(LAST, EAGER, facts=OwnFacts(held=200)).charge(300)
    Course(LAST, EAGER, facts=OwnFacts(held=200, added=100)).charge(300)
    with pytest.raises(Abandoned):
        # Where an update leaves nothing to be undone; 300 derivations are done, and only 300 to come: 424.
        Course(LAST, Policy(floor=-200, price=2.0), ahead=False, facts=OwnFacts(held=10, added=10)).charge(
            300
        )
    Course(LAST, Policy(floor=0, price=2.0), ahead=False, facts=OwnFacts(held=10, added=10)).charge(300)


@pytest.mark.parametrize("sign", [1, -1])
def test_facts_that_alone_cost_more_than_a_bootstrap_are_not_begun_with(sign: int) -> None:
    """Of 1,000 facts, and 2,000 tuples, 800 change: of 300 derivations at height 0 four fifths, of 600 greater ones
    two fifths, 480 in all, at 0.71 pushes. So 2 * (800 + 339) for the update, and 500 + 1,000 + 800, and 240 more or
    less, for the bootstrap."""
    last = BootstrapCost.of({BELOW: 100, 0: 300, 1: 600}, 500, 1000.0)
    facts = OwnFacts(800 if sign > 0 else 0, 800 if sign < 0 else 0, 1000, 2000)
    assert facts.derivations(last) == pytest.approx(480)
    course = Course(last, EAGER, facts=facts)
    if sign > 0:
        course.begin()
        return
    with pytest.raises(Abandoned) as stop:
        course.begin()
    assert (stop.value.spent, stop.value.step, stop.value.estimate, stop.value.bootstrap) == (0, 0, 480, 520)


def test_few_facts_are_begun_with_whatever_they_are_expected_to_derive() -> None:
    """The one fact that is held goes; but only what is known counts as spent."""
    Course(LAST, EAGER, facts=OwnFacts(gone=1, held=1, tuples=1000)).begin()
    # A bootstrap is 500 pushes for derivations, and 75 for facts; a fifth of that is 115.
    Course(LAST, Policy(floor=-(10**9), price=2.0), facts=OwnFacts(57, 0, 18)).begin()
    with pytest.raises(Abandoned):
        Course(LAST, Policy(floor=-(10**9), price=2.0), facts=OwnFacts(58, 0, 17)).begin()


@pytest.mark.parametrize("policy", [Policy(switch=math.inf, floor=0), Policy(strategy="update", floor=0)])
def test_never(policy: Policy) -> None:
    course = Course(LAST, policy)
    course.charge(10**12)
    assert policy.never
    assert not policy.always


@pytest.mark.parametrize("policy", [Policy(switch=0.0), Policy(strategy="bootstrap")])
def test_always(policy: Policy) -> None:
    assert policy.always
    assert not policy.never
    assert not policy.asking("update").always


@pytest.mark.parametrize("switch", [-0.1, math.nan, -math.inf])
def test_a_fraction_that_is_none_is_refused(switch: float) -> None:
    with pytest.raises(InvalidRequestError, match="switch"):
        Policy(switch=switch)


def test_a_strategy_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="auto, update, bootstrap"):
        Policy(strategy="fast")  # type: ignore[arg-type]


def test_reasons_in_words() -> None:
    assert reason(Policy(), [], []) == "maintained"
    assert reason(Policy(), [], [("a", "b")]) == "maintained; built anew because its members changed: {a, b}"
    one = Switched(("tc",), False, 1200, 90_000, 40_000)
    assert "{tc}: after 1,200 derivations its update was expected to need 90,000" in reason(
        Policy(), [one], []
    )
    many = Switched(("t",), False, 0, 900, 700, 62_021)
    assert "need 900, and to change 62,021 of its facts one by one" in reason(Policy(), [many], [])
    assert "as asked" in reason(Policy(strategy="bootstrap"), [Switched(("tc",), True)], [])
