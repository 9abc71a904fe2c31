"""The oracles of the whole language: values that can be counted by hand, and each oracle against the others."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, event, given, settings

from engine.language.parser import parse_program, parse_rules
from engine.language.syntax import Comparison
from tests.oracle.clingo_dialect import NotExpressibleError, solve_dialect
from tests.oracle.naive import TooLargeError, least_model
from tests.oracle.programs import History, histories, totals
from tests.oracle.rules import Facts, Model, Value, rule_text
from tests.oracle.stratified import DivergesError, UnstratifiedError, fold, stratified_model
from tests.oracle.stratified_programs import DialectHistory, Totals, dialect_histories
from tests.oracle.terms import NoValueError, value_of


def model_of(text: str, **facts: set[tuple[Value, ...]]) -> Model:
    """What the rules derive; the facts themselves left out."""
    given = {name: dict.fromkeys(rows, 1) for name, rows in facts.items()}
    model = stratified_model(parse_program(text).rules, given)
    return {name: rows for name, rows in model.items() if name not in facts}


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("7 / -2", -3),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("2 ^ 62", 2**62),
        ("0 ^ 0", 1),
        ("(-1) ^ 9223372036854775807", -1),
        ("-2 ^ 2", -4),
        ("1 bshl 63", -(2**63)),
        ("-8 bshr 1", -4),
        ("bnot 5", -6),
        ("5 land 0 lor 7", 1),
        ("lnot 5 lxor 2", 1),
        ("6 band 3", 2),
        ("6 bxor 3", 5),
        ("1.5 * 2.0", 3.0),
        ("max(2, 9, 4)", 9),
        ('cat("a", "b", "c")', "abc"),
        ('substr("hello", 1, 3)', "ell"),
        ('substr("hello", 9, 3)', ""),
        ('strlen("日本")', 2),
        ('to_number("-12")', -12),
        ("to_string(1.5)", "1.500000"),
    ],
)
def test_terms_by_hand(term: str, value: Value) -> None:
    literal = parse_rules(f"p(x) :- x = {term}.")[0].body[0]
    assert isinstance(literal, Comparison)
    found = value_of(literal.right, {})
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "term",
    [
        "9223372036854775807 + 1",
        "1 / 0",
        "1 % 0",
        "2 ^ 63",
        "2 ^ (0 - 1)",
        "1.0 / 0.0",
        "1e308 * 10.0",
        'to_number("x")',
        'to_number("9223372036854775808")',
    ],
)
def test_terms_without_a_value(term: str) -> None:
    literal = parse_rules(f"p(x) :- x = {term}.")[0].body[0]
    assert isinstance(literal, Comparison)
    with pytest.raises(NoValueError):
        value_of(literal.right, {})


def test_negation_and_aggregates_by_hand() -> None:
    edges: set[tuple[Value, ...]] = {(1, 2), (1, 3), (2, 3)}
    text = """
        n(x) :- e(x, _) ; e(_, x).
        sink(x) :- n(x), !e(x, _).
        degree(x, d) :- n(x), d = count : { e(x, _) }.
        low(x, m) :- n(x), m = min y : { e(x, y) }.
        mean_of(m) :- m = mean y : { e(_, y) }.
        heads(x, count(y)) :- e(x, y).
        all(sum(y)) :- e(_, y).
        larger(x, k) :- n(x), k = count : { n(y), y > x }.
    """
    assert model_of(text, e=edges) == {
        "n": {(1,), (2,), (3,)},
        "sink": {(3,)},
        "degree": {(1, 2), (2, 1), (3, 0)},
        "low": {(1, 2), (2, 3)},
        # Three tuples, for a `_` in an aggregated body tells matches apart ...
        "mean_of": {((2 + 3 + 3) / 3,)},
        "heads": {(1, 2), (2, 1)},
        # ... also in the body of a head aggregate.
        "all": {(2 + 3 + 3,)},
        "larger": {(1, 2), (2, 1), (3, 0)},
    }


def test_shortest_paths_by_hand() -> None:
    roads: set[tuple[Value, ...]] = {("a", "b", 7), ("a", "c", 1), ("c", "b", 2), ("b", "a", 1)}
    text = "sp(x, min(d)) :- start(x), d = 0. sp(y, min(d + c)) :- sp(x, d), road(x, y, c)."
    assert model_of(text, start={("a",)}, road=roads) == {"sp": {("a", 0), ("c", 1), ("b", 3)}}
    with pytest.raises(DivergesError):
        model_of(text, start={("a",)}, road=roads | {("c", "a", -9)})


def test_a_cycle_through_negation_is_found() -> None:
    with pytest.raises(UnstratifiedError) as found:
        model_of("p(x) :- n(x), !q(x). q(x) :- r(x). r(x) :- p(x).", n={(1,)})
    assert found.value.args[0] == {"p", "q", "r"}
    with pytest.raises(UnstratifiedError):
        model_of("p(x) :- n(x), 1 = count : { p(_) }.", n={(1,)})


def test_folds_by_hand() -> None:
    assert [fold(f, [3, 1, 1]) for f in ("count", "sum", "min", "max", "mean")] == [3, 5, 1, 3, 5 / 3]
    assert fold("sum", [1e16, 1.0, -1e16]) == -1e16 + 1.0 + 1e16
    with pytest.raises(NoValueError):
        fold("sum", [2**62, 2**62])


@given(histories())
def test_oracle_of_the_dialect_equals_the_oracle_of_positive_programs(history: History) -> None:
    facts, rules = totals(history.epochs)
    try:
        expected = least_model(rules, facts)
        found = stratified_model([parse_rules(rule_text(rule))[0] for rule in rules], facts)
    except (TooLargeError, DivergesError):
        return
    assert found == expected


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(dialect_histories(max_epochs=1))
def test_oracle_naive_evaluation_of_the_dialect_equals_clingo(history: DialectHistory) -> None:
    state = Totals()
    for change in history.changes:
        state = state.with_(change)
    facts: Facts = state.by_relation()
    try:
        expected = stratified_model(state.trees(), facts)
        found = solve_dialect(state.trees(), facts)
    except (UnstratifiedError, DivergesError, NoValueError):
        assume(False)
        return
    except NotExpressibleError:
        event("not for clingo")
        return
    assert found == expected
