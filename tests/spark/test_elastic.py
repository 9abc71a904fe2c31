"""Where an epoch is evaluated: asked for, outgrown, come back; and that nothing but its cost tells the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from engine.data.transaction import Transaction
from engine.errors import BudgetExceededError, NegativeWeightError, SparkUnavailableError
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from engine.spark.session.session import SparkOptions, SparkSource
from tests.full import FULL
from tests.oracle.programs import History, histories
from tests.oracle.subject import changes_of
from tests.oracle.test_master_property import expected_after
from tests.spark.compare import assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

pytestmark = patient

CLOSURE = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
CHAIN = {"e": [((i, i + 1), 1) for i in range(4)]}
JOIN = [("p(x, z) :- e(x, y), f(y, z).", 1)]
EXAMPLES = 60 if FULL else 3
Make = Callable[..., Reasoner]


class NoSpark(SparkSource):
    """Spark on a machine without Java."""

    def session(self) -> Any:
        raise SparkUnavailableError("there is no Java here")


@pytest.fixture
def make(source: SparkSource) -> Iterator[Make]:
    """Reasoners that may use the tests' one session."""
    made: list[Reasoner] = []

    def one(placement: str = "auto", local_rows: int = 20_000, **more: Any) -> Reasoner:
        options = replace(source.options, local_rows=local_rows)
        spark = SparkSource(options, source.session())
        made.append(Reasoner(placement, spark=spark, threads=1, **more))
        return made[-1]

    yield one
    for reasoner in made:
        reasoner.close()


def square(n: int, relation: str = "e") -> np.ndarray[Any, np.dtype[np.int64]]:
    """n tuples that share a column: n * n tuples of `p`, where both relations have n."""
    one, other = np.arange(n), np.zeros(n, np.int64)
    return np.stack((one, other) if relation == "e" else (other, one), axis=1)


def test_a_transaction_is_evaluated_where_it_asks_and_the_next_goes_back(make: Make) -> None:
    steady, reasoner = Reasoner("resident"), make()
    steps: list[tuple[dict[str, Any], str | None, str, str]] = [
        ({"facts": CHAIN, "rules": CLOSURE}, None, "resident", "maintained"),
        ({"facts": {"e": [((2, 0), 1)]}}, "spark", "spark", "maintained; on spark, as asked"),
        ({"facts": {"e": [((1, 2), -1)]}}, "spark", "spark", "maintained; on spark, as asked"),
        (
            {"facts": {"e": [((1, 2), 1)]}},
            None,
            "resident",
            "maintained; back on resident: the transaction does not ask for another placement",
        ),
        ({"facts": {"e": [((0, 1), -1)]}}, "resident", "resident", "maintained; on resident, as asked"),
    ]
    for change, asked, placement, why in steps:
        expected = steady.apply(**change)
        result = reasoner.apply(**change, placement=asked)  # type: ignore[arg-type]
        assert (result.placement, result.reason) == (placement, why)
        assert reasoner.placement == placement
        assert changes_of(result) == changes_of(expected)
        assert_same_state(reasoner, steady)
        reasoner.check_invariants()


@pytest.mark.parametrize("asked", ["spark", "resident"])
def test_a_dry_run_and_a_refusal_leave_the_placement_as_it_was(make: Make, asked: Any) -> None:
    home = "resident" if asked == "spark" else "spark"
    reasoner = make(home)
    reasoner.apply(facts=CHAIN, rules=CLOSURE)
    before = reasoner.state()
    promised = reasoner.dry_run(facts={"e": [((0, 1), -1)]}, placement=asked)
    assert promised.placement == asked
    assert promised.counts == {"e": (0, 1), "tc": (0, 4)}
    assert (reasoner.placement, reasoner.state()) == (home, before)
    with pytest.raises(NegativeWeightError):
        reasoner.apply(facts={"e": [((0, 1), -2)]}, placement=asked)
    assert (reasoner.placement, reasoner.state()) == (home, before)
    reasoner.check_invariants()


def test_what_outgrows_the_memory_goes_to_spark_and_comes_back_when_it_is_small(make: Make) -> None:
    limit = 800_000
    steady, reasoner = Reasoner("resident"), make(budget=Budget(memory=limit))
    for one in (steady, reasoner):
        one.apply(facts={"e": square(60), "f": square(60, "f")}, rules=JOIN)
    assert reasoner.placement == "resident"
    grown = [
        reasoner.apply(facts={"f": square(200, "f")[60:]}),
        steady.apply(facts={"f": square(200, "f")[60:]}),
    ]
    assert steady.memory() > limit
    assert changes_of(grown[0]) == changes_of(grown[1])
    assert grown[0].placement == "mixed"
    # What it reads is small, and stays.
    assert reasoner.database.places.away().keys() == {"p"}
    assert "moved {p} to spark, because on resident the transaction needs" in grown[0].reason
    assert_same_state(reasoner, steady)
    small = {"f": [((0, 199), -1)]}
    result = reasoner.apply(facts=small)
    assert changes_of(result) == changes_of(steady.apply(facts=small))
    assert (result.placement, result.reason) == ("mixed", "maintained")
    # Most of it goes; the epoch after that finds that the rest fits with room to spare.
    less = {"f": [((0, n), -1) for n in range(20, 199)]}
    result = reasoner.apply(facts=less)
    assert changes_of(result) == changes_of(steady.apply(facts=less))
    assert result.placement == "mixed"
    result = reasoner.apply(facts=small | {"f": [((0, 300), 1)]})
    steady.apply(facts={"f": [((0, 300), 1)]})
    assert result.placement == "resident"
    assert result.reason == "maintained; back on resident: the state fits into the memory budget again"
    assert_same_state(reasoner, steady)
    reasoner.check_invariants()


def test_a_state_that_would_just_fit_stays_on_spark(make: Make) -> None:
    """Below the budget, but not below half of it: nothing goes to and fro."""
    reasoner = make(budget=Budget(memory=800_000))
    reasoner.apply(facts={"e": square(200), "f": square(60, "f")}, rules=JOIN)
    assert reasoner.placement == "mixed"
    result = reasoner.apply(facts={"f": [((0, 59), -1)]})
    assert (result.placement, reasoner.count("p")) == ("mixed", 200 * 59)


def test_of_a_recovered_state_that_is_too_large_the_large_stratum_is_on_spark(
    make: Make, source: SparkSource
) -> None:
    steady = Reasoner("resident")
    steady.apply(facts={"e": square(200), "f": square(60, "f")}, rules=JOIN)
    kept = steady.export()
    tight = Budget(memory=800_000)
    recovered = Reasoner.restore(kept, budget=tight, spark=SparkSource(source.options, source.session()))
    assert recovered.placement == "mixed"
    assert_same_state(recovered, steady)
    recovered.close()
    # Without Spark it is held all the same: it was committed before.
    alone = Reasoner.restore(kept, budget=tight, spark=NoSpark(SparkOptions()))
    assert alone.placement == "resident"
    assert alone.state() == steady.state()


def test_without_spark_the_refusal_says_both() -> None:
    reasoner = Reasoner(budget=Budget(memory=800_000), spark=NoSpark(SparkOptions()))
    reasoner.apply(facts={"e": square(60), "f": square(60, "f")}, rules=JOIN)
    before = reasoner.state()
    with pytest.raises(
        BudgetExceededError, match=r"MiB allowed.*Spark cannot.*there is no Java here"
    ) as refused:
        reasoner.apply(facts={"f": square(200, "f")[60:]})
    assert refused.value.detail["budget"] == "memory"
    assert refused.value.detail["spark"] == "spark_unavailable"
    assert (reasoner.placement, reasoner.state()) == ("resident", before)
    with pytest.raises(SparkUnavailableError, match="no Java"):
        reasoner.apply(facts={"f": [((0, 70), 1)]}, placement="spark")
    assert (reasoner.placement, reasoner.state()) == ("resident", before)
    assert reasoner.apply(facts={"f": [((0, 70), 1)]}).placement == "resident"


def test_a_fixed_placement_is_not_left(make: Make) -> None:
    reasoner = make("resident", budget=Budget(memory=800_000))
    with pytest.raises(BudgetExceededError, match=r"allowed.*; it was dropped and changed nothing"):
        reasoner.apply(facts={"e": square(200), "f": square(200, "f")}, rules=JOIN)
    assert reasoner.placement == "resident"


def test_a_group_agrees_on_its_placement(make: Make) -> None:
    reasoner = make()
    facts = [{"relation": "e", "tuples": [[1, 2]]}]
    group = reasoner.commit([Transaction.parse(facts=facts, placement="spark") for _ in range(2)])
    assert group.record is not None
    assert group.record.placement == "spark"
    assert reasoner.weighted("e") == [((1, 2), 2)]
    refused = Reasoner(spark=NoSpark(SparkOptions()))
    outcomes = refused.commit([Transaction.parse(facts=facts, placement="spark") for _ in range(2)]).outcomes
    assert [type(outcome) for outcome in outcomes] == [SparkUnavailableError] * 2


@pytest.mark.parametrize("lost_at", [1, 2, 3])
def test_a_group_does_not_ask_again_for_a_spark_that_is_gone(lost_at: int) -> None:
    """The third execution is that of the second transaction alone, after the group failed for the first one."""
    reasoner = Reasoner("resident", budget=Budget(tuples=150))
    reasoner.apply(facts={"e": square(2), "f": square(2, "f")}, rules=JOIN)
    before = reasoner.state()
    placement, asked = reasoner.database.placement, 0
    execute = placement.execute

    def failing(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == lost_at:
            raise SparkUnavailableError("the cluster is gone")
        return execute(*arguments)

    placement.execute = failing  # type: ignore[method-assign]
    large = {"relation": "e", "tuples": square(100).tolist()}
    small = [{"relation": "e", "tuples": [[9, n]]} for n in range(3)]
    overdrawn = {"relation": "e", "tuples": [[5, 5]], "weight": -1}
    group = [Transaction.parse(facts=[facts]) for facts in (overdrawn, large, *small)]
    outcomes = reasoner.commit(group).outcomes
    assert asked == lost_at
    kinds = [type(outcome) for outcome in outcomes]
    first = SparkUnavailableError if lost_at <= 2 else BudgetExceededError
    assert kinds == [NegativeWeightError, first, *[SparkUnavailableError] * 3]
    assert reasoner.state() == before
    reasoner.check_invariants()


placements = st.sampled_from([None, "spark", "resident"])


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    histories(max_epochs=4), st.lists(placements, min_size=8, max_size=8), st.sampled_from([0.0, 1e-9, 0.2])
)
def test_the_master_property_over_moves_and_switches(
    make: Make, history: History, asked: list[Any], switch: float
) -> None:
    """Any transaction may be evaluated anywhere, by any strategy."""
    note((history, asked, switch))
    expected_after(history.epochs)
    steady = Reasoner("resident", threads=1, switch=float("inf"))
    moving = make("auto", local_rows=3, switch=Policy(switch=switch, floor=-(10**9)))
    try:
        for one in (steady, moving):
            one.apply(declarations=history.declarations())
        for epoch, where in zip(history.epochs, asked, strict=False):
            facts, rules = epoch.fact_changes(), epoch.rule_changes()
            result = moving.apply(facts=facts, rules=rules, placement=where)
            assert changes_of(result) == changes_of(steady.apply(facts=facts, rules=rules))
            assert result.placement == (where or "resident")
            assert_same_state(moving, steady)
        moving.move_to("resident")
        assert moving.state() == steady.state()
        moving.check_invariants()
    finally:
        moving.close()
