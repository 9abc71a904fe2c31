"""DRed: that an epoch was maintained by over-deletion and re-derivation is seen in its cost, and in nothing else.

The master property under a strategy that is drawn for each epoch; what is over-deleted in cases that can be counted by
hand; and what is refused, or updated instead.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.data.transaction import STRATEGIES, Strategy
from engine.database.epoch import EpochResult
from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    InvalidRequestError,
    NegativeWeightError,
    ZedlogError,
)
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from tests.elastic.test_master_property_switching import (
    MORE,
    NEVER,
    assert_same_published,
    reasoner_of,
    restarted_with,
)
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from tests.oracle.subject import assert_same_state, changes_of, everything
from tests.oracle.test_master_property import expected_after, overdrawn, share
from zedlog import Reasoner

LINEAR = [("tc(x, y) :- arc(x, y).", 1), ("tc(x, z) :- tc(x, y), arc(y, z).", 1)]
NON_LINEAR = [("tc(x, y) :- arc(x, y).", 1), ("tc(x, z) :- tc(x, y), tc(y, z).", 1)]
SHORTEST = [("sp(x, min(d)) :- start(x, d).", 1), ("sp(y, min(d + c)) :- sp(x, d), cost(x, y, c).", 1)]
strategies = st.sampled_from(("dred", *STRATEGIES))


def arcs(*pairs: tuple[int, int], weight: int = 1) -> dict[str, list[tuple[tuple[int, int], int]]]:
    return {"arc": [(pair, weight) for pair in pairs]}


def maintained(*pairs: tuple[int, int], rules: list[tuple[str, int]] | None = None, **more: Any) -> Reasoner:
    reasoner = Reasoner(placement="resident", threads=1, **more)
    reasoner.apply(facts=arcs(*pairs), rules=LINEAR if rules is None else rules)
    return reasoner


def tuples(reasoner: Reasoner, relation: str = "tc") -> set[tuple[Any, ...]]:
    return {tuple(row) for row in reasoner.facts(relation)}


@share(0.6 * MORE)
@given(histories(), st.data())
def test_the_strategy_of_an_epoch_is_seen_in_its_cost_alone(history: History, data: st.DataObject) -> None:
    note(history)
    expected_after(history.epochs)
    steady, mixed = reasoner_of(history, NEVER), reasoner_of(history, 0.2)
    for position, epoch in enumerate(history.epochs):
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        strategy = data.draw(strategies)
        expected = steady.apply(facts=facts, rules=rules)
        promised = mixed.dry_run(facts=facts, rules=rules, strategy=strategy)
        result = mixed.apply(facts=facts, rules=rules, strategy=strategy)
        assert changes_of(result) == changes_of(promised) == changes_of(expected)
        assert result.counts == expected.counts
        assert_same_published(result, expected)
        assert_same_state(mixed, steady)
        mixed.check_invariants()
        assert (result.cost, result.strategy, result.reason) == (
            promised.cost,
            promised.strategy,
            promised.reason,
        )
        if strategy == "dred":
            assert result.strategy in ("dred", "update")
            assert result.cost["abandoned"] == 0
        if position == history.restart_after:
            mixed = restarted_with(mixed, Policy())


@share(0.25 * MORE)
@given(
    histories(),
    st.builds(Budget, **{limit: st.integers(1, 60) for limit in ("derivations", "tuples", "height")}),
)
def test_what_is_refused_under_dred_leaves_everything(history: History, budget: Budget) -> None:
    note((history, budget))
    expected_after(history.epochs)
    reasoner = reasoner_of(history, NEVER, budget=budget)
    for position, epoch in enumerate(history.epochs, start=1):
        before = everything(reasoner)
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        if epoch.overdraw is not None and position > 1:
            more = overdrawn(epoch, history.epochs[:position])
            with pytest.raises(ZedlogError):
                reasoner.apply(facts=more[0], rules=more[1], strategy="dred")
            assert everything(reasoner) == before
        with contextlib.suppress(BudgetExceededError, NegativeWeightError):
            reasoner.dry_run(facts=facts, rules=rules, strategy="dred")
        assert everything(reasoner) == before
        try:
            reasoner.apply(facts=facts, rules=rules, strategy="dred")
        except (BudgetExceededError, NegativeWeightError):
            assert everything(reasoner) == before
        reasoner.check_invariants()


@settings(share(0.4 * MORE), suppress_health_check=[HealthCheck.too_slow])
@given(dialect_histories())
def test_the_whole_language_where_some_strata_are_updated(history: DialectHistory) -> None:
    note(history)
    budget = Budget(height=300)
    steady, by_dred = (reasoner_of(history, NEVER, budget=budget) for _ in range(2))
    for change in history.changes:
        outcomes: list[Any] = []
        for reasoner, strategy in ((steady, None), (by_dred, cast("Strategy", "dred"))):
            try:
                try:
                    outcome = reasoner.apply(**change.arguments(), strategy=strategy)
                except InvalidRequestError as error:
                    if error.detail.get("strategy") != "dred":
                        raise
                    outcome = reasoner.apply(**change.arguments())
                outcomes.append(changes_of(outcome))
            except ZedlogError as error:
                outcomes.append(type(error))
        # What is computed on the way, and so may have no value, differs between the two.
        if any(outcome in (EvaluationError, BudgetExceededError) for outcome in outcomes):
            return
        assert outcomes[0] == outcomes[1]
        assert_same_state(by_dred, steady)
        by_dred.check_invariants()


# ---- cases by hand


def test_tuples_that_support_each_other_in_a_circle_go() -> None:
    reasoner = maintained((1, 2), (2, 3), (3, 2))
    result = reasoner.apply(facts=arcs((1, 2), weight=-1), strategy="dred")
    # From 1: 2, 3 go, and only these hung on the arc.
    assert tuples(reasoner) == {(2, 3), (3, 2), (2, 2), (3, 3)}
    assert result.strategy == "dred"
    assert "over-deleted 2 tuples, re-derived 0" in result.reason


def test_a_tuple_with_another_derivation_comes_back_at_its_smallest_height() -> None:
    # Two ways from 1 to 4: of one arc, and of two arcs; behind 4 there is 5.
    reasoner, steady = (maintained((1, 4), (1, 3), (3, 4), (4, 5)) for _ in range(2))
    result = reasoner.apply(facts=arcs((1, 4), weight=-1), strategy="dred")
    steady.apply(facts=arcs((1, 4), weight=-1), strategy="update")
    assert "over-deleted 2 tuples, re-derived 2" in result.reason
    assert result.counts == {"arc": (0, 1)}
    assert_same_state(reasoner, steady)
    supports = reasoner.state()["supports"]["tc"]
    assert min(supports[1, 4]) == 2
    assert min(supports[1, 5]) == 3


def test_an_asserted_tuple_of_the_recursion_stays() -> None:
    reasoner = maintained((1, 2), (2, 3))
    reasoner.apply(facts={"tc": [((1, 2), 2)]})
    result = reasoner.apply(facts=arcs((1, 2), weight=-1), strategy="dred")
    # (1, 2) is asserted, and so (1, 3) has lost nothing.
    assert "over-deleted 0 tuples, re-derived 0" in result.reason
    result = reasoner.apply(facts={"tc": [((1, 2), -1)]}, strategy="dred")
    assert "over-deleted 0 tuples" in result.reason
    result = reasoner.apply(facts={"tc": [((1, 2), -1)]}, strategy="dred")
    assert "over-deleted 2 tuples, re-derived 0" in result.reason
    assert tuples(reasoner) == {(2, 3)}


def test_one_arc_of_a_complete_graph_deletes_all_and_derives_all_again() -> None:
    size = 6
    complete = [(a, b) for a in range(size) for b in range(size) if a != b]
    reasoner = maintained(*complete, rules=NON_LINEAR)
    result = reasoner.apply(facts=arcs((0, 1), weight=-1), strategy="dred")
    assert f"over-deleted {size * size} tuples, re-derived {size * size}" in result.reason
    updated = maintained(*complete, rules=NON_LINEAR)
    cheap = updated.apply(facts=arcs((0, 1), weight=-1), strategy="update")
    assert result.counts == cheap.counts == {"arc": (0, 1)}
    assert_same_state(reasoner, updated)
    assert result.cost["derivations"] > cheap.cost["derivations"]


def test_removing_and_adding_in_one_epoch() -> None:
    reasoner, steady = maintained((1, 2), (2, 3)), maintained((1, 2), (2, 3))
    change = {"arc": [((1, 2), -1), ((1, 4), 1), ((4, 2), 1)]}
    result = reasoner.apply(facts=change, strategy="dred")
    steady.apply(facts=change, strategy="update")
    # (1, 2) and (1, 3) come back over 4.
    assert "over-deleted 2 tuples, re-derived 2" in result.reason
    assert_same_state(reasoner, steady)


def test_a_rule_that_goes_under_dred() -> None:
    reasoner, steady = maintained((1, 2), (2, 3), (3, 1)), maintained((1, 2), (2, 3), (3, 1))
    gone = [(LINEAR[1][0], -1)]
    result = reasoner.apply(rules=gone, strategy="dred")
    steady.apply(rules=gone, strategy="update")
    assert tuples(reasoner) == {(1, 2), (2, 3), (3, 1)}
    # Nothing of the recursion is left: its members are as before, and it is maintained like any other.
    assert "over-deleted" in result.reason
    assert_same_state(reasoner, steady)


def test_what_is_negated_below_counts_both_ways() -> None:
    rules = [
        *LINEAR,
        ("bad(x) :- sealed(x), !opened(x).", 1),
        ("go(x) :- source(x), !bad(x).", 1),
        ("go(y) :- go(x), arc(x, y), !bad(y).", 1),
    ]
    facts = {"source": [((1,), 1)], "sealed": [((9,), 1)], "opened": [((8,), 1)]}
    both = [maintained((1, 2), (2, 3), (3, 4), rules=rules) for _ in range(2)]
    for reasoner in both:
        reasoner.apply(facts=facts)
    for change in ({"sealed": [((3,), 1)]}, {"opened": [((3,), 1)]}, {"sealed": [((1,), 1)]}):
        results = [
            reasoner.apply(facts=change, strategy=cast("Strategy", strategy))
            for reasoner, strategy in zip(both, ("dred", "update"), strict=True)
        ]
        assert changes_of(results[0]) == changes_of(results[1])
        assert_same_state(*both)
    assert tuples(both[0], "go") == set()


@pytest.mark.parametrize("rules", [LINEAR, NON_LINEAR], ids=["linear", "non-linear"])
def test_random_deletions_from_a_graph(rules: list[tuple[str, int]]) -> None:
    draw = random.Random(5)
    pairs = sorted({(draw.randrange(30), draw.randrange(30)) for _ in range(70)})
    reasoner, steady = maintained(*pairs, rules=rules), maintained(*pairs, rules=rules)
    draw.shuffle(pairs)
    deleted = 0
    for place in range(0, len(pairs), 7):
        # Some go, and some of those that went before come back.
        change = arcs(*pairs[place : place + 7], weight=-1)
        change["arc"] += [(pair, 1) for pair in pairs[max(0, place - 7) : max(0, place - 4)]]
        result = reasoner.apply(facts=change, strategy="dred")
        assert changes_of(result) == changes_of(steady.apply(facts=change, strategy="update"))
        assert_same_state(reasoner, steady)
        reasoner.check_invariants()
        deleted += over_deleted(result)
    assert deleted > 0


def test_deep_recursion_reaches_beyond_the_first_room_of_the_lists() -> None:
    length = 1500
    rules = [("reached(x) :- start(x).", 1), ("reached(y) :- reached(x), arc(x, y).", 1)]
    reasoner = maintained(*((i, i + 1) for i in range(length)), rules=rules)
    reasoner.apply(facts={"start": [((0,), 1)]})
    result = reasoner.apply(facts=arcs((0, 1), weight=-1), strategy="dred")
    assert f"over-deleted {length:,} tuples, re-derived 0" in result.reason
    assert tuples(reasoner, "reached") == {(0,)}
    result = reasoner.apply(facts={"start": [((0,), -1)], **arcs((0, 1))}, strategy="dred")
    assert "over-deleted 1 tuple, re-derived 0" in result.reason
    assert tuples(reasoner, "reached") == set()


def test_a_checkpoint_goes_on_with_dred() -> None:
    reasoner, steady = maintained((1, 2), (2, 3), (3, 2)), maintained((1, 2), (2, 3), (3, 2))
    reasoner.apply(facts=arcs((3, 4)), strategy="dred")
    steady.apply(facts=arcs((3, 4)))
    checkpoint = reasoner.checkpoint("", {})
    assert checkpoint is not None
    resumed = Reasoner.resume(checkpoint, reasoner.export(), placement="resident")
    for one in (resumed, steady):
        one.apply(facts=arcs((2, 3), weight=-1), strategy="dred")
    assert_same_state(resumed, steady)
    assert tuples(resumed) == {(1, 2), (3, 2), (3, 4)}


# ---- where it cannot be done


def test_a_recursion_that_aggregates_is_updated_and_the_epoch_says_so() -> None:
    reasoner = maintained((1, 2), (2, 3), rules=[*LINEAR, *SHORTEST])
    facts = {"start": [((1, 0), 1)], "cost": [((1, 2, 4), 1), ((2, 3, 1), 1)]}
    reasoner.apply(facts=facts)
    change = {"cost": [((1, 2, 4), -1), ((1, 2, 3), 1)], **arcs((1, 2), weight=-1)}
    result = reasoner.apply(facts=change, strategy="dred")
    assert result.strategy == "dred"
    assert "over-deleted 2 tuples, re-derived 0" in result.reason
    assert "updated {sp}, which aggregates in its recursion" in result.reason
    assert tuples(reasoner, "sp") == {(1, 0), (2, 3), (3, 4)}
    # Alone it is an update.
    result = reasoner.apply(facts={"cost": [((1, 2, 3), -1)]}, strategy="dred")
    assert result.strategy == "update"
    assert "over-deleted" not in result.reason


def test_a_program_that_only_aggregates_in_its_recursion_is_refused() -> None:
    reasoner = Reasoner(placement="resident", threads=1)
    reasoner.apply(facts={"start": [((1, 0), 1)], "cost": [((1, 2, 4), 1)]}, rules=SHORTEST)
    before = everything(reasoner)
    with pytest.raises(InvalidRequestError, match=r"all of \{sp\} do") as refused:
        reasoner.apply(facts={"cost": [((1, 2, 4), -1)]}, strategy="dred")
    assert refused.value.detail["strategy"] == "dred"
    assert everything(reasoner) == before
    # The last rule goes, and with it the reason.
    reasoner.apply(rules=[(rule, -1) for rule, _ in SHORTEST], strategy="dred")
    assert reasoner.rules() == []


def test_facts_alone_need_no_rules() -> None:
    reasoner = Reasoner(placement="resident", threads=1)
    result = reasoner.apply(facts=arcs((1, 2)), strategy="dred")
    assert result.strategy == "update"
    assert result.reason == "maintained"


def over_deleted(result: EpochResult) -> int:
    return int(result.reason.partition("over-deleted ")[2].partition(" ")[0].replace(",", "") or 0)
