"""Strata in places of their own: wherever each is, and wherever it moves, an epoch does what it does at home."""

from __future__ import annotations

import random
from collections.abc import Set
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from engine.errors import BudgetExceededError, EvaluationError, NegativeWeightError
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from engine.mixed.placement import MixedPlacement
from tests.full import FULL
from tests.mixed.conftest import Make, mixed_of
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from tests.oracle.subject import changes_of, outcome_of
from tests.oracle.test_master_property import expected_after, overdrawn
from tests.spark.compare import assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

pytestmark = patient

EXAMPLES = 60 if FULL else 2
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
NEVER = float("inf")
# a -> tc (recursive) -> far -> sum, and back up to `both`, which reads what is here and what is there.
RULES = [
    ("tc(x, y) :- e(x, y).", 1),
    ("tc(x, z) :- tc(x, y), e(y, z).", 1),
    ("far(x, y) :- tc(x, y), !e(x, y).", 1),
    ("reach(x, n) :- n = count : { far(x, _) }, node(x).", 1),
    ("both(x, y) :- far(x, y), node(y), tc(y, x).", 1),
]
FACTS = {"e": [((i, i + 1), 1) for i in range(6)], "node": [((i,), 1) for i in range(7)]}
STEPS: list[dict[str, Any]] = [
    {"facts": {"e": [((6, 0), 1)]}},
    {"facts": {"e": [((2, 3), -1), ((2, 5), 1)]}},
    {"rules": [(RULES[2][0], -1), ("far(x, y) :- tc(x, y), e(_, y), x != y.", 1)]},
    {"facts": {"node": [((3,), -1)]}, "rules": [(RULES[4][0], -1)]},
    {"rules": [(RULES[1][0], -1)]},
    {"rules": [(RULES[4][0], 1), ("tc(x, y) :- both(x, y).", 1)]},
    {"facts": {"e": [((6, 0), -1)]}},
]
FEW = STEPS if FULL else [STEPS[2], STEPS[5]]


def at_random(rng: random.Random, share: float = 0.5) -> Any:
    """A choice of relations for Spark, another one each time."""

    def choose(mixed: MixedPlacement) -> Set[str]:
        return {name for name in sorted(mixed.circuit.arities) if rng.random() < share}

    return choose


PLACES = ["far", "tc both", "e reach"]
if FULL:
    PLACES += ["tc", "e", "both", "reach", "tc far", "e both", "e node tc", "e far reach"]


@pytest.mark.parametrize("away", PLACES)
def test_every_place_of_a_stratum_gives_the_same_epochs(placed: Make, away: str) -> None:
    steady, reasoner = Reasoner("resident", threads=1), placed(lambda _: set(away.split()))
    for step in [{"facts": FACTS, "rules": RULES}, *FEW]:
        expected = steady.apply(**step)
        promised = reasoner.dry_run(**step)
        result = reasoner.apply(**step)
        assert changes_of(result) == changes_of(promised) == changes_of(expected)
        there = set(away.split()) & reasoner.database.program.circuit.arities.keys()
        assert result.placement == "mixed"
        assert not there or there <= mixed_of(reasoner).away.keys()
        assert_same_state(reasoner, steady)
        reasoner.check_invariants()


@pytest.mark.parametrize("seed", range(12 if FULL else 1))
def test_strata_that_move_between_epochs_change_nothing(placed: Make, seed: int) -> None:
    rng = random.Random(seed)
    steady, reasoner = Reasoner("resident", threads=1), placed(at_random(rng), rng.choice(["small", "mixed"]))
    for step in [{"facts": FACTS, "rules": RULES}, *FEW]:
        expected = steady.apply(**step)
        before = reasoner.state()
        promised = reasoner.dry_run(**step)
        assert reasoner.state() == before
        with pytest.raises(NegativeWeightError):
            reasoner.apply(facts={"e": [((77, 77), -1)]})
        assert reasoner.state() == before
        reasoner.check_invariants()
        result = reasoner.apply(**step)
        assert changes_of(result) == changes_of(promised) == changes_of(expected)
        assert_same_state(reasoner, steady)
        reasoner.check_invariants()
    reasoner.database.places.begin = type(reasoner.database.places).begin.__get__(reasoner.database.places)  # type: ignore[method-assign]
    last = reasoner.apply(facts={"e": [((8, 9), 1)]})
    steady.apply(facts={"e": [((8, 9), 1)]})
    assert last.placement == "resident"
    assert reasoner.state() == steady.state()
    reasoner.check_invariants()


policies = st.builds(Policy, switch=st.sampled_from([0.0, 1e-9, 0.2, NEVER]), floor=st.just(-(10**9)))


@pytest.mark.slow
@few
@given(histories(max_epochs=4), policies, st.integers(0, 2**30), st.sampled_from(["small", "mixed"]))
def test_the_master_property_over_places(
    placed: Make, history: History, policy: Policy, seed: int, manner: str
) -> None:
    """Any stratum may be anywhere in any epoch, under any policy."""
    note((history, policy, seed, manner))
    expected_after(history.epochs)
    steady = Reasoner("resident", threads=1, switch=NEVER)
    moving = placed(at_random(random.Random(seed)), manner, switch=policy)
    for one in (steady, moving):
        one.apply(declarations=history.declarations())
    for position, epoch in enumerate(history.epochs, start=1):
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        before = moving.state()
        if epoch.overdraw is not None:
            refused, more = overdrawn(epoch, history.epochs[:position])
            with pytest.raises(NegativeWeightError):
                moving.apply(facts=refused, rules=more)
            assert moving.state() == before
        result = moving.apply(facts=facts, rules=rules)
        assert changes_of(result) == changes_of(steady.apply(facts=facts, rules=rules))
        assert_same_state(moving, steady)
        moving.check_invariants()
    for name in steady.relations():
        for domain in ("all", "asserted", "derived"):
            assert moving.count(name, domain) == steady.count(name, domain)
            assert sorted(moving.weighted(name, domain)) == sorted(steady.weighted(name, domain))
    again = Reasoner.restore(moving.export(), placement="resident", threads=1)
    assert_same_state(again, steady)


@pytest.mark.slow
@few
@given(dialect_histories(), st.integers(0, 2**30))
def test_the_whole_language_over_places(placed: Make, history: DialectHistory, seed: int) -> None:
    note((history, seed))
    budget = Budget(height=60)
    steady = Reasoner("resident", threads=1, budget=budget)
    moving = placed(at_random(random.Random(seed)), budget=budget)
    if text := history.declarations():
        for one in (steady, moving):
            one.apply(declarations=text)
    for change in history.changes[:4]:
        outcomes = [outcome_of(reasoner, change) for reasoner in (steady, moving)]
        # What is computed on the way, and so may have no value, depends on where it is computed.
        if any(outcome in (EvaluationError, BudgetExceededError) for outcome in outcomes):
            return
        assert outcomes[0] == outcomes[1]
        assert_same_state(moving, steady)
        moving.check_invariants()


@pytest.mark.parametrize("limit", [{"tuples": 40}, {"derivations": 12}, {"height": 3}])
def test_a_budget_counts_each_tuple_once_wherever_it_is(placed: Make, limit: dict[str, int]) -> None:
    """A mirror is no tuple more: the same epochs are refused as at home, and what is refused leaves no trace."""
    rng = random.Random(5)
    steady = Reasoner("resident", threads=1, budget=Budget(**limit), switch=NEVER)
    moving = placed(at_random(rng), budget=Budget(**limit), switch=NEVER)
    refused = 0
    for n in range(2, 10):
        step: dict[str, Any] = {
            "facts": {"e": [((n, n + 1), 1)]},
            "rules": [(RULES[:3])[n % 3]] if n < 5 else [],
        }
        before = moving.state()
        try:
            expected = changes_of(steady.apply(**step))
        except BudgetExceededError:
            refused += 1
            with pytest.raises(BudgetExceededError, match=next(iter(limit))):
                moving.apply(**step)
            assert moving.state() == before
        else:
            assert changes_of(moving.apply(**step)) == expected
        assert_same_state(moving, steady)
        moving.check_invariants()
    assert refused
