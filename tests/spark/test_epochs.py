"""What an epoch on Spark leaves behind: nothing after a dry run or a refusal, and no storage beside the state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine import Reasoner
from engine.errors import (
    BudgetExceededError,
    NegativeWeightError,
    WeightOverflowError,
)
from engine.placement import Budget
from engine.spark.session import SparkSource
from tests.spark.compare import assert_same_state

Make = Callable[..., Reasoner]
CLOSURE = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
CHAIN = {"e": [((i, i + 1), 1) for i in range(4)]}


def stored(source: SparkSource) -> int:
    """Collections that Spark keeps in its storage, cached frames included."""
    session = source.session()
    assert session._jsparkSession.sharedState().cacheManager().isEmpty()
    return int(session.sparkContext._jsc.getPersistentRDDs().size())


@pytest.mark.parametrize("manner", ["small", "large"])
def test_a_dry_run_and_a_refusal_leave_state_and_storage(
    on_spark: Make, source: SparkSource, manner: str
) -> None:
    reasoner = on_spark(manner)
    reasoner.apply(facts=CHAIN, rules=CLOSURE)
    state, kept = reasoner.state(), stored(source)
    promised = reasoner.dry_run(facts={"e": [((0, 1), -1), ((6, 0), 1)]})
    assert reasoner.state() == state
    assert stored(source) == kept
    with pytest.raises(NegativeWeightError):
        reasoner.apply(facts={"e": [((0, 1), -2)]})
    assert reasoner.state() == state
    result = reasoner.apply(facts={"e": [((0, 1), -1), ((6, 0), 1)]})
    assert {k: sorted(v) for k, v in result.changes.items()} == {
        k: sorted(v) for k, v in promised.changes.items()
    }
    reasoner.check_invariants()


@pytest.mark.slow
def test_small_epochs_leave_storage_flat(on_spark: Make, source: SparkSource) -> None:
    """State in the driver: no epoch may leave anything on the executors. 100 epochs with `ZEDLOG_FULL=1`."""
    rounds = 50 if os.environ.get("ZEDLOG_FULL") == "1" else 5
    reasoner = on_spark("small")
    reasoner.apply(facts={"e": [((1, 2), 1)]}, rules=[("p(y, x) :- e(x, y).", 1)])
    before = stored(source)
    for i in range(rounds):
        for weight in (1, -1):
            reasoner.apply(facts={"e": [((i, i + 7), weight)]})
            assert stored(source) == before
    assert reasoner.epoch == 1 + 2 * rounds
    assert reasoner.facts("p") == [(2, 1)]


def test_storage_is_that_of_the_state_when_it_is_on_the_executors(
    on_spark: Make, source: SparkSource
) -> None:
    """Each relation keeps a bounded number of checkpoints, however many epochs wrote to it."""
    before = stored(source)
    reasoner = on_spark("large")
    reasoner.apply(facts={"e": [((1, 2), 1)]}, rules=[("p(y, x) :- e(x, y).", 1)])
    sizes = []
    for i in range(8):
        reasoner.apply(facts={"e": [((i, 9), 1)]})
        sizes.append(stored(source) - before)
    assert max(sizes) <= 2 * 7
    assert reasoner.count("p") == 9
    reasoner.check_invariants()
    reasoner.close()
    assert stored(source) == before


@pytest.mark.parametrize("manner", ["small", "large"])
def test_weight_overflow_is_refused(on_spark: Make, manner: str) -> None:
    reasoner = on_spark(manner)
    reasoner.apply(facts={"e": [((1, 2), 2**63 - 1)]})
    state = reasoner.state()
    with pytest.raises(WeightOverflowError):
        reasoner.apply(facts={"e": [((1, 2), 1)]})
    assert reasoner.state() == state
    assert reasoner.weighted("e") == [((1, 2), 2**63 - 1)]


@pytest.mark.parametrize(
    ("budget", "what"),
    [
        (Budget(derivations=5), "derivations"),
        (Budget(height=3), "height"),
        (Budget(tuples=12), "tuples"),
        (Budget(seconds=0.0), "seconds"),
    ],
)
def test_a_budget_is_kept(on_spark: Make, budget: Budget, what: str) -> None:
    with spending(on_spark("small"), budget) as reasoner:
        with pytest.raises(BudgetExceededError) as caught:
            reasoner.apply(facts=CHAIN, rules=CLOSURE)
        assert caught.value.detail["budget"] == what
        assert caught.value.detail["stratum"]
    assert reasoner.relations() == {}
    reasoner.apply(facts=CHAIN, rules=CLOSURE)
    assert reasoner.count("tc") == 10


@contextmanager
def spending(reasoner: Reasoner, budget: Budget) -> Iterator[Reasoner]:
    before, reasoner._budget = reasoner._budget, budget
    yield reasoner
    reasoner._budget = before


def test_moving_to_spark_and_back_keeps_supports_and_heights(on_spark: Make, source: SparkSource) -> None:
    """Updates go on after either move, as if nothing had been moved."""
    steady, moved = Reasoner(), Reasoner()
    steps = [
        {"facts": CHAIN, "rules": CLOSURE},
        {"facts": {"e": [((5, 0), 1), ((2, 3), -1)]}},
        {"facts": {"e": [((2, 3), 3)]}, "rules": [("back(x) :- tc(x, x).", 1)]},
    ]
    for step, placement in zip(steps, ("spark", "resident", "spark"), strict=True):
        steady.apply(**step)
        moved.apply(**step)
        assert {p: moved.state()[p] for p in ("facts", "supports", "entries")} == {
            p: steady.state()[p] for p in ("facts", "supports", "entries")
        }
        moved.move_to(placement, source)
        if placement == "resident":
            assert moved.state() == steady.state()
        moved.check_invariants()
    assert_same_state(moved, steady)
    moved.close()
