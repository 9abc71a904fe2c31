"""DRed, by hand: what is over-deleted and derived again, in cases small enough to be counted, and where it is refused.

The master property is in tests/elastic/test_master_property_dred.py.
"""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from engine.data.transaction import Strategy
from engine.database.epoch import EpochResult
from engine.errors import BudgetExceededError, EvaluationCancelledError, InvalidRequestError
from engine.maintenance.placement import Budget
from tests.oracle.subject import assert_same_state, changes_of, everything
from zedlog import Reasoner

LINEAR = [("tc(x, y) :- arc(x, y).", 1), ("tc(x, z) :- tc(x, y), arc(y, z).", 1)]
NON_LINEAR = [("tc(x, y) :- arc(x, y).", 1), ("tc(x, z) :- tc(x, y), tc(y, z).", 1)]
SHORTEST = [("sp(x, min(d)) :- start(x, d).", 1), ("sp(y, min(d + c)) :- sp(x, d), cost(x, y, c).", 1)]


def arcs(*pairs: tuple[int, int], weight: int = 1) -> dict[str, list[tuple[tuple[int, int], int]]]:
    return {"arc": [(pair, weight) for pair in pairs]}


def maintained(*pairs: tuple[int, int], rules: list[tuple[str, int]] | None = None, **more: Any) -> Reasoner:
    reasoner = Reasoner(placement="resident", threads=1, **more)
    reasoner.apply(facts=arcs(*pairs), rules=LINEAR if rules is None else rules)
    return reasoner


def tuples(reasoner: Reasoner, relation: str = "tc") -> set[tuple[Any, ...]]:
    return {tuple(row) for row in reasoner.facts(relation)}


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
def test_arcs_of_a_graph_that_go_and_come_back(rules: list[tuple[str, int]]) -> None:
    draw = random.Random(5)
    pairs = sorted({(draw.randrange(18), draw.randrange(18)) for _ in range(40)})
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


def test_many_tuples_that_wait_at_once() -> None:
    many = 1500
    rules = [("p(x, y) :- arc(x, y).", 1), ("q(y) :- p(_, y).", 1), ("p(y, y) :- q(y), arc(_, y).", 1)]
    pairs = [(i, i % 700) for i in range(many)]
    reasoner, steady = maintained(*pairs, rules=rules), maintained(*pairs, rules=rules)
    change = arcs(*pairs[:-1], weight=-1)
    result = reasoner.apply(facts=change, strategy="dred")
    assert changes_of(result) == changes_of(steady.apply(facts=change, strategy="update"))
    assert over_deleted(result) >= many
    assert_same_state(reasoner, steady)
    assert tuples(reasoner, "q") == {(99,)}


def test_a_budget_that_ends_on_the_way_leaves_everything() -> None:
    size = 6
    complete = [(a, b) for a in range(size) for b in range(size) if a != b]
    change = arcs((0, 1), weight=-1)
    reasoner = maintained(*complete, rules=NON_LINEAR)
    needed = reasoner.dry_run(facts=change, strategy="dred").cost["derivations"]
    before = everything(reasoner)
    # The over-deletion takes away about half of them.
    for limit in (1, needed // 4, needed // 2, needed - 1):
        reasoner.budget = Budget(derivations=limit)
        with pytest.raises(BudgetExceededError, match="derivations"):
            reasoner.apply(facts=change, strategy="dred")
        assert everything(reasoner) == before
        reasoner.check_invariants()
    reasoner.budget = Budget(cancelled=lambda: True)
    with pytest.raises(EvaluationCancelledError):
        reasoner.apply(facts=change, strategy="dred")
    assert everything(reasoner) == before
    reasoner.budget = Budget(derivations=needed)
    assert reasoner.apply(facts=change, strategy="dred").counts == {"arc": (0, 1)}


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
    assert "updated {sp}, which aggregates its own tuples" in result.reason
    assert tuples(reasoner, "sp") == {(1, 0), (2, 3), (3, 4)}
    # Alone it is an update.
    result = reasoner.apply(facts={"cost": [((1, 2, 3), -1)]}, strategy="dred")
    assert result.strategy == "update"
    assert "over-deleted" not in result.reason


def test_a_program_that_only_aggregates_in_its_recursion_is_refused() -> None:
    reasoner = Reasoner(placement="resident", threads=1)
    reasoner.apply(facts={"start": [((1, 0), 1)], "cost": [((1, 2, 4), 1)]}, rules=SHORTEST)
    before = everything(reasoner)
    with pytest.raises(InvalidRequestError, match=r"of the derived relations \{sp\} all do") as refused:
        reasoner.apply(facts={"cost": [((1, 2, 4), -1)]}, strategy="dred")
    assert refused.value.detail["strategy"] == "dred"
    assert everything(reasoner) == before
    # The last rule goes, and with it the reason.
    reasoner.apply(rules=[(rule, -1) for rule, _ in SHORTEST], strategy="dred")
    assert reasoner.rules() == []


def test_a_database_on_spark_refuses_it() -> None:
    # Nothing is evaluated, so no session starts.
    reasoner = Reasoner(placement="spark")
    with pytest.raises(InvalidRequestError, match="the database is on Spark: leave the strategy out"):
        reasoner.apply(facts=arcs((1, 2)), rules=LINEAR, strategy="dred")
    assert reasoner.epoch == 0
    reasoner.close()


def test_facts_alone_need_no_rules() -> None:
    reasoner = Reasoner(placement="resident", threads=1)
    result = reasoner.apply(facts=arcs((1, 2)), strategy="dred")
    assert result.strategy == "update"
    assert result.reason == "maintained"


def over_deleted(result: EpochResult) -> int:
    return int(result.reason.partition("over-deleted ")[2].partition(" ")[0].replace(",", "") or 0)
