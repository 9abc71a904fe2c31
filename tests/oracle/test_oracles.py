"""The oracles themselves: values that can be counted by hand, and each oracle against the other."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.oracle.clingo_oracle import solve
from tests.oracle.height_model import height_model, strata
from tests.oracle.naive import TooLargeError, least_model
from tests.oracle.programs import History, histories, totals
from tests.oracle.rules import WILD, Atom, Facts, Rule, Var, canonical, rule_text, value_text

X, Y, Z = map(Var, "xyz")
CLOSURE = [
    Rule(Atom("tc", (X, Y)), (Atom("e", (X, Y)),)),
    Rule(Atom("tc", (X, Z)), (Atom("tc", (X, Y)), Atom("e", (Y, Z)))),
]
DIAMOND: Facts = {"e": {(1, 2): 1, (1, 3): 1, (2, 4): 1, (3, 4): 1, (4, 1): 2, (9, 9): 0}}


def test_closure_of_a_cycle_is_complete() -> None:
    assert least_model(CLOSURE, DIAMOND)["tc"] == {(x, y) for x in range(1, 5) for y in range(1, 5)}


def test_heights_and_supports_of_a_diamond_by_hand() -> None:
    """1 -> {2, 3} -> 4 -> 1. The tuple (1, 4) has two derivations of height 2, one through 2 and one
    through 3."""
    model = height_model(CLOSURE, DIAMOND)
    assert model.supports["e"] == {row: {0: w} for row, w in DIAMOND["e"].items() if w}
    assert model.supports["tc"][1, 4] == {2: 2}
    assert model.entries["tc"][1, 4] == {2: 1}
    # (4, 4): 4 -> 1 -> 2 -> 4 and 4 -> 1 -> 3 -> 4, both of height 3.
    assert model.supports["tc"][4, 4] == {3: 2}
    # (4, 1): the edge, and the way round through (4, 4) and the edge again.
    assert model.supports["tc"][4, 1] == {1: 1, 4: 1}
    assert model.entries["tc"][4, 1] == {1: 1}


def test_a_rule_that_derives_from_itself_supports_what_is_asserted_and_nothing_else() -> None:
    rule = Rule(Atom("p", (X,)), (Atom("p", (X,)),))
    model = height_model([rule], {"p": {(1,): 3}})
    assert model.supports == {"p": {(1,): {0: 3, 1: 1}}}
    assert least_model([rule], {}) == {}


def test_wildcards_count_a_derivation_for_each_tuple() -> None:
    rule = Rule(Atom("p", (X,)), (Atom("e", (X, WILD)),))
    assert height_model([rule], {"e": {(1, 2): 1, (1, 3): 1}}).supports["p"] == {(1,): {1: 2}}


def test_strata_are_the_strongly_connected_components() -> None:
    rules = [
        Rule(Atom("a", ()), (Atom("b", ()),)),
        Rule(Atom("b", ()), (Atom("a", ()), Atom("c", ()))),
        Rule(Atom("d", ()), (Atom("a", ()),)),
    ]
    assert strata(rules)["a"] == strata(rules)["b"] == {"a", "b"}
    assert strata(rules)["d"] == {"d"}


def test_a_program_that_is_too_large_is_given_up() -> None:
    product = Rule(Atom("p", (X, Y, Z)), (Atom("n", (X,)), Atom("n", (Y,)), Atom("n", (Z,))))
    with pytest.raises(TooLargeError):
        least_model([product], {"n": {(i,): 1 for i in range(20)}}, budget=7_999)


def test_alpha_variants_have_one_canonical_form_and_distinct_texts() -> None:
    variant = Rule(Atom("tc", (Z, X)), (Atom("tc", (Z, Y)), Atom("e", (Y, X))))
    assert canonical(variant) == canonical(CLOSURE[1])
    assert rule_text(variant, "?") == "tc(?z, ?x) :- tc(?z, ?y), e(?y, ?x)."


def test_values_are_written_as_program_text() -> None:
    assert [value_text(v) for v in (True, -3, 0.5, 'a"\\\n')] == ["true", "-3", "0.5", r'"a\"\\\n"']


@given(histories())
def test_oracle_naive_evaluation_equals_clingo(history: History) -> None:
    facts, rules = totals(history.epochs)
    try:
        expected = least_model(rules, facts)
    except TooLargeError:
        return
    assert solve(rules, facts) == expected
