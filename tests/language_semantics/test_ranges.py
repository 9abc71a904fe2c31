"""`range(from, to, step)`, the functor of several values."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import TypeMismatchError, UnsafeRuleError, UnsupportedFeatureError
from tests.language_semantics.test_aggregates import reasoner_with
from tests.language_semantics.test_negation import facts
from tests.oracle.subject import assert_same_state, changes_of
from zedlog import Reasoner


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("0, 10, 3", [0, 3, 6, 9]),
        ("9, 0, -3", [9, 6, 3]),
        ("1, 10", list(range(1, 10))),
        ("5, 1", [5, 4, 3, 2]),
        ("4, 4", []),
        ("1, 5, -1", []),
        ("5, 1, 1", []),
        ("1, 5, 0", [1]),
        ("5, 5, 0", []),
        ("-7, 8, 5", [-7, -2, 3]),
        ("9223372036854775805, 9223372036854775807", [2**63 - 3, 2**63 - 2]),
        ("0, 1000, 7", list(range(0, 1000, 7))),
    ],
)
def test_values_of_a_range(arguments: str, values: list[int]) -> None:
    """The first one is there, the last one is not; without a step it is 1, or -1 where the range goes down."""
    reasoner = reasoner_with([f"r(x) :- x = range({arguments})."])
    assert sorted(x for (x,) in reasoner.facts("r")) == sorted(values)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("r(x, y) :- x = range(1, 3), y = range(1, 3).", {(1, 1), (1, 2), (2, 1), (2, 2)}),
        ("r(x, y) :- x = range(0, 4), y = range(0, x).", {(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}),
        ("r(p, x + 1) :- q(p, n), x = range(0, n + 1), x != 1.", {("a", 1), ("a", 3), ("b", 1)}),
        ("r(p, range(0, n)) :- q(p, n).", {("a", 0), ("a", 1)}),
        ("r(p, c) :- q(p, n), c = count : { x = range(0, n), x < 1 }.", {("a", 1), ("b", 0)}),
        ("r(p, s) :- q(p, n), s = sum range(0, 2 * n) : { q(_, _) }.", {("a", 12), ("b", 0)}),
        ("r(p) :- q(p, n), !s(range(0, n)).", {("a",)}),
        ("r(p) :- q(p, n), 1 = range(0, n).", {("a",)}),
    ],
)
def test_ranges_in_rules(rule: str, expected: set[tuple[Any, ...]]) -> None:
    reasoner = reasoner_with([rule], q=[("a", 2), ("b", 0)], s=[0])
    assert set(reasoner.facts("r")) == expected
    again = Reasoner()
    again.apply(facts=facts(q=[("b", 0), ("c", 5)], s=[0]), rules=[(rule, 1)])
    again.apply(facts={"q": [(("c", 5), -1), (("a", 2), 1)]})
    assert_same_state(again, reasoner)
    again.check_invariants()


def test_a_range_in_recursion_and_in_a_query() -> None:
    """Every number below one that is reached, three by three."""
    rules = ["n(x) :- top(x).", "n(y) :- n(x), y = range(0, x, 3)."]
    reasoner = reasoner_with(rules, top=[7])
    assert {x for (x,) in reasoner.facts("n")} == {0, 3, 6, 7}
    result = reasoner.apply(facts={"top": [((7,), -1), ((4,), 1)]})
    assert changes_of(result)["n"] == {(7,): -1, (6,): -1, (4,): 1}
    assert {x for (x,) in reasoner.query("n(x), x = range(1, 5)").tuples} == {3, 4}


def test_what_a_range_cannot_have() -> None:
    for rule, error, match in (
        ("r(x) :- x = range(0, 1.5).", TypeMismatchError, "range needs a number"),
        ("r(x) :- x = range(y, 3), y = range(x, 4).", UnsafeRuleError, "not bound by any positive atom"),
        ("r(x) :- n = count : { q(_) }, x = range(0, n).", UnsupportedFeatureError, "from an aggregate"),
    ):
        with pytest.raises(error, match=match):
            reasoner_with([rule], q=[1])
