"""A computation without a result refuses the whole transaction, names rule, operands, binding, and leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from engine.data.transaction import Transaction
from engine.errors import EvaluationError
from tests.language_semantics.test_negation import facts
from tests.oracle.subject import changes_of, everything
from zedlog import Reasoner

LARGEST = 2**63 - 1


def prepared(rule: str) -> Reasoner:
    """With a closure beside the rule, so that much has happened when the rule fails."""
    reasoner = Reasoner()
    reasoner.apply(
        facts=facts(e=[(1, 2), (2, 3)], q=[(1, 2)], t=[("12",)]),
        rules=[("a(x, y) :- e(x, y).", 1), ("a(x, z) :- a(x, y), e(y, z).", 1), (rule, 1)],
    )
    return reasoner


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("p(z) :- q(x, y), z = x / y.", facts(q=[(7, 0)]), "/", "zero"),
    ("p(z) :- q(x, y), z = x % y.", facts(q=[(7, 0)]), "%", "zero"),
    ("p(x + y) :- q(x, y).", facts(q=[(LARGEST, 1)]), "+", "64-bit"),
    ("p(x - y) :- q(x, y).", facts(q=[(-2, LARGEST)]), "-", "64-bit"),
    ("p(x * y) :- q(x, y).", facts(q=[(2**32, 2**31)]), "*", "64-bit"),
    ("p(x ^ y) :- q(x, y).", facts(q=[(2, 63)]), "^", "64-bit"),
    ("p(x) :- q(x, y), 2 ^ y > x.", facts(q=[(2, -1)]), "^", "negative"),
    ("p(-x) :- q(x, _).", facts(q=[(-(2**63), 1)]), "-", "64-bit"),
    ("p(to_number(s)) :- t(s).", facts(t=["1x"]), "to_number", "not a number"),
    ("p(sum(x)) :- q(x, y).", facts(q=[(LARGEST, 1)]), "sum", "64 bits"),
    ("p(n) :- n = sum x * y : { q(x, y) }.", facts(q=[(LARGEST, 1)]), "sum", "64 bits"),
]


@pytest.mark.parametrize(("rule", "change", "operation", "reason"), CASES, ids=[c[0] for c in CASES])
def test_a_refused_evaluation_changes_nothing(
    rule: str, change: dict[str, Any], operation: str, reason: str
) -> None:
    reasoner = prepared(rule)
    before = everything(reasoner)
    with pytest.raises(EvaluationError, match=reason) as refused:
        reasoner.apply(facts={**change, "e": [((3, 4), 1), ((4, 1), 1)]})
    assert refused.value.detail["operation"] == operation
    assert everything(reasoner) == before
    reasoner.check_invariants()
    # And without the fault it goes through, and tells the same as if nothing had happened.
    assert len(changes_of(reasoner.apply(facts=facts(e=[(3, 4), (4, 1)])))["a"]) == 13


def test_the_error_names_rule_operands_and_binding() -> None:
    reasoner = prepared("p(z) :- q(x, y), z = x / y.")
    with pytest.raises(EvaluationError) as refused:
        reasoner.apply(facts=facts(q=[(7, 0)]))
    detail = refused.value.detail
    assert detail["operands"] == [7, 0]
    assert detail["binding"] == {"x": 7, "y": 0}
    assert detail["rule"] == "p(z) :- q(x, y), z = x / y."
    assert "7 / 0" in refused.value.message


def test_a_condition_before_a_division_guards_it() -> None:
    """In the order of the text, where both could be computed."""
    reasoner = prepared("p(z) :- q(x, y), y != 0, z = x / y.")
    reasoner.apply(facts=facts(q=[(7, 0), (9, 3)]))
    assert set(reasoner.facts("p")) == {(0,), (3,)}


def test_a_rule_that_fails_is_refused_and_the_transactions_beside_it_are_not() -> None:
    reasoner = prepared("p(x) :- q(x, _).")
    outcomes = reasoner.commit(
        [
            Transaction.parse(facts=[{"relation": "e", "tuples": [[3, 4]]}]),
            Transaction.parse(rules=[{"rule": "r(x / (y - 2)) :- q(x, y)."}]),
            Transaction.parse(facts=[{"relation": "q", "tuples": [[5, 6]]}]),
        ]
    ).outcomes
    assert [isinstance(outcome, EvaluationError) for outcome in outcomes] == [False, True, False]
    assert set(reasoner.facts("p")) == {(1,), (5,)}
    assert reasoner.count("a") == 6
    assert "r" not in reasoner.relations()


def test_retracting_the_fault_in_the_same_transaction_is_no_fault() -> None:
    reasoner = prepared("p(z) :- q(x, y), z = x / y.")
    reasoner.apply(facts={"q": [((7, 0), 1), ((8, 2), 1), ((7, 0), -1)]})
    assert set(reasoner.facts("p")) == {(0,), (4,)}


QUOTIENT = "p(z) :- q(x, y), ok(y), z = 6 / y."
NUMERATORS = facts(q=[(1, 0), (1, 2)])


@pytest.mark.parametrize(
    "steps",
    [
        [{"facts": {**NUMERATORS, **facts(ok=[2])}}, {"rules": [(QUOTIENT, 1)]}],
        [{"facts": NUMERATORS, "rules": [(QUOTIENT, 1)]}, {"facts": facts(ok=[2])}],
        [{"facts": facts(ok=[2]), "rules": [(QUOTIENT, 1)]}, {"facts": NUMERATORS}],
    ],
    ids=["rule_last", "guard_last", "operands_last"],
)
def test_the_order_of_changes_does_not_decide_what_is_refused(steps: list[dict[str, Any]]) -> None:
    """No binding of the whole body divides by zero, whichever change comes last."""
    reasoner = Reasoner()
    for step in steps:
        reasoner.apply(**step)
    assert reasoner.facts("p") == [(3,)]


def test_a_fault_that_neither_the_old_state_nor_the_new_one_has_is_none() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(a=[0]), rules=[("p(z) :- a(x), b(x), z = 6 / x.", 1)])
    reasoner.apply(facts={"a": [((0,), -1)], "b": [((0,), 1)]})
    assert "p" not in reasoner.relations() or not reasoner.facts("p")
