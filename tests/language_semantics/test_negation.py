"""Stratified negation under changes of facts and of rules, in every order; what is refused, and how it is named."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest

from engine.errors import StratificationError, UnsafeRuleError
from tests.oracle.subject import assert_same_state, changes_of, everything
from zedlog import Reasoner

ALIVE = "alive(x) :- person(x), !dead(x)."
PEOPLE = {"person": [(("ann",), 1), (("bob",), 1)]}


def facts(**relations: Any) -> dict[str, list[tuple[tuple[Any, ...], int]]]:
    """Facts by relation, each a tuple or a value, of weight 1."""
    return {
        name: [(row if isinstance(row, tuple) else (row,), 1) for row in rows]
        for name, rows in relations.items()
    }


def test_an_inserted_negated_tuple_removes_and_a_deleted_one_adds() -> None:
    reasoner = Reasoner()
    first = reasoner.apply(facts=PEOPLE, rules=[(ALIVE, 1)])
    assert changes_of(first)["alive"] == {("ann",): 1, ("bob",): 1}
    died = reasoner.apply(facts={"dead": [(("bob",), 1)]})
    assert changes_of(died) == {"dead": {("bob",): 1}, "alive": {("bob",): -1}}
    back = reasoner.apply(facts={"dead": [(("bob",), -1)]})
    assert changes_of(back) == {"dead": {("bob",): -1}, "alive": {("bob",): 1}}
    gone = reasoner.apply(rules=[(ALIVE, -1)])
    assert changes_of(gone) == {"alive": {("ann",): -1, ("bob",): -1}}


STEPS: dict[str, dict[str, Any]] = {
    "person": {"facts": PEOPLE},
    "rule": {"rules": [(ALIVE, 1)]},
    "dies": {"facts": {"dead": [(("bob",), 1)]}},
    "returns": {"facts": {"dead": [(("bob",), -1)]}},
    "no rule": {"rules": [(ALIVE, -1)]},
}


@pytest.mark.parametrize(
    "order",
    [
        o
        for o in permutations(STEPS)
        if o.index("dies") < o.index("returns") and o.index("rule") < o.index("no rule")
    ],
    ids=" > ".join,
)
def test_alive_and_dead_in_every_order(order: tuple[str, ...]) -> None:
    """After each step the living are those that a set comprehension says."""
    reasoner = Reasoner()
    done: set[str] = set()
    for name in order:
        reasoner.apply(**STEPS[name])
        done.add(name)
        dead = {"bob"} if "dies" in done and "returns" not in done else set()
        has_rule = "rule" in done and "no rule" not in done
        people = {"ann", "bob"} if "person" in done else set()
        living = {(p,) for p in people - dead} if has_rule else set()
        found = set(reasoner.facts("alive")) if "alive" in reasoner.relations() else set()
        assert found == living
        reasoner.check_invariants()
    fresh = Reasoner()
    fresh.apply(facts=PEOPLE)
    assert_same_state(reasoner, fresh)


TWO_LEVELS = ["mid(x) :- bot(x), !excluded(x).", "top(x) :- mid(x), !blocked(x)."]


def test_mid_and_top_while_each_tuple_moves() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts=facts(bot=[0, 1, 2], excluded=[2], blocked=[1]), rules=[(rule, 1) for rule in TWO_LEVELS]
    )
    assert set(reasoner.facts("mid")) == {(0,), (1,)}
    assert set(reasoner.facts("top")) == {(0,)}
    held = {"bot": {0, 1, 2}, "excluded": {2}, "blocked": {1}}
    for name, value in [*product(held, range(4)), *product(held, range(4))]:
        weight = -1 if value in held[name] else 1
        reasoner.apply(facts={name: [((value,), weight)]})
        held[name] ^= {value}
        mid = held["bot"] - held["excluded"]
        assert {x for (x,) in reasoner.facts("mid")} == mid
        assert {x for (x,) in reasoner.facts("top")} == mid - held["blocked"]
        reasoner.check_invariants()


def test_the_last_rule_of_a_negated_relation_goes_and_another_comes() -> None:
    reasoner = Reasoner()
    bad, worse = "bad(x) :- n(x), x > 2.", "bad(x) :- n(x), x < 2."
    reasoner.apply(facts=facts(n=[1, 2, 3]), rules=[(bad, 1), ("good(x) :- n(x), !bad(x).", 1)])
    assert set(reasoner.facts("good")) == {(1,), (2,)}
    result = reasoner.apply(rules=[(bad, -1)])
    assert changes_of(result) == {"bad": {(3,): -1}, "good": {(3,): 1}}
    result = reasoner.apply(rules=[(worse, 1)])
    assert changes_of(result) == {"bad": {(1,): 1}, "good": {(1,): -1}}
    # A second rule beside it, and a fact.
    result = reasoner.apply(rules=[(bad, 1)], facts=facts(bad=[2]))
    assert changes_of(result) == {"bad": {(2,): 1, (3,): 1}, "good": {(2,): -1, (3,): -1}}


def test_a_negated_relation_that_nothing_else_mentions_is_empty() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(n=[1]), rules=[("p(x) :- n(x), !nowhere(x, _).", 1)])
    assert reasoner.facts("p") == [(1,)]
    reasoner.apply(facts=facts(nowhere=[(1, 2)]))
    assert reasoner.facts("p") == []


def test_a_tuple_that_has_several_reasons_to_be_absent_returns_with_the_last() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"n": [((1,), 1)], "e": [((1, 7), 1), ((1, 8), 2)]}, rules=[("p(x) :- n(x), !e(x, _).", 1)]
    )
    for row, expected in (((1, 8), []), ((1, 7), []), ((1, 8), [(1,)])):
        reasoner.apply(facts={"e": [(row, -1)]})
        assert reasoner.facts("p") == expected


@pytest.mark.parametrize(
    ("rules", "cycle"),
    [
        (["p(x) :- n(x), !p(x)."], {"p"}),
        (["p(x) :- n(x), !q(x).", "q(x) :- n(x), !p(x)."], {"p", "q"}),
        (["p(x) :- n(x), !q(x, _).", "q(x, y) :- r(x), n(y).", "r(x) :- p(x)."], {"p", "q", "r"}),
        (["p(x) :- n(x), 0 = count : { q(x) }.", "q(x) :- p(x)."], {"p", "q"}),
        (["p(x, count(y)) :- p(y, x)."], {"p"}),
        (["p(x, sum(y)) :- q(x, y).", "q(x, y) :- p(x, y)."], {"p", "q"}),
        (["p(s) :- n(_), s = sum x : { q(x) }.", "q(x) :- p(x)."], {"p", "q"}),
    ],
)
def test_recursion_through_negation_or_a_sum_is_refused_and_named(rules: list[str], cycle: set[str]) -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(n=[1]))
    before = everything(reasoner)
    with pytest.raises(StratificationError) as refused:
        reasoner.apply(rules=[(rule, 1) for rule in rules])
    assert set(refused.value.detail["cycle"]) == cycle
    assert all(name in refused.value.message for name in cycle)
    assert everything(reasoner) == before


def test_the_rule_that_closes_the_cycle_is_refused_and_the_others_stay() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(n=[1, 2], q=[1]), rules=[("p(x) :- n(x), !q(x).", 1)])
    before = everything(reasoner)
    with pytest.raises(StratificationError, match=r"p -> q -> p|q -> p -> q"):
        reasoner.apply(rules=[("q(x) :- p(x).", 1)], facts=facts(n=[3]))
    assert everything(reasoner) == before
    # Without the negation it is welcome.
    reasoner.apply(rules=[("p(x) :- n(x), !q(x).", -1), ("p(x) :- n(x), !r(x).", 1), ("q(x) :- p(x).", 1)])
    assert set(reasoner.facts("q")) == {(1,), (2,)}


@pytest.mark.parametrize(
    ("rule", "variable"),
    [
        ("p(x) :- !q(x).", "x"),
        ("p(x) :- n(x), !q(x, y).", "y"),
        ("p(x, y) :- n(x), x < y.", "y"),
        ("p(y) :- n(x), y = z + x.", "z"),
        ("p(y) :- n(x), x = count : { q(y) }.", "y"),
        ("p(x, max(y)) :- n(x).", "y"),
        ("p(x) :- n(x), x + 1 = y + 1.", "y"),
    ],
)
def test_an_unsafe_rule_is_refused_and_its_variable_named(rule: str, variable: str) -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(n=[1]))
    before = everything(reasoner)
    with pytest.raises(UnsafeRuleError, match=rf"\b{variable}\b"):
        reasoner.apply(rules=[(rule, 1)])
    assert everything(reasoner) == before
