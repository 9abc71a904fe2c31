"""Safety, and what this version refuses to evaluate."""

from __future__ import annotations

import pytest

from engine.errors import UnsafeRuleError, UnsupportedFeatureError
from engine.language.check import check_rule, check_safety
from engine.language.parser import parse_rules
from engine.language.supported import Feature, check_supported
from engine.language.syntax import Rule


def only(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


@pytest.mark.parametrize(
    "text",
    [
        "tc(x, z) :- tc(x, y), edge(y, z).",
        'p("a", 1) :- q(_).',
        "p(x, x) :- q(x, x, 3).",
        "p() :- q(_).",
    ],
)
def test_safe_rules_of_this_version(text: str) -> None:
    check_rule(only(text))


@pytest.mark.parametrize(
    "text",
    [
        "p(x) :- q(x), !r(x, _).",
        "p(y) :- q(x), y = x + 1.",
        "p(y) :- q(x), x + 1 = y.",
        "p(z) :- z = y * 2, y = x + 1, q(x).",
        "p(x) :- x = 3.",
        "p(n) :- n = count : { q(_, y), y > 2 }.",
        "p(x, n) :- q(x), n = sum y : { r(x, y) }.",
        "p(x, n) :- q(x), n = sum y * z : { r(x, y), z = y + x }.",
        "p(n) :- n = max m : { q(x), m = count : { r(x, _) } }.",
        "p(x, n) :- q(x), n = count : { r(y), !s(x, y) }, count : { r(y) } > 1.",
        "p(y, min(d + c)) :- q(x, d), arc(x, y, c).",
        "p(cat(x, y)) :- q(x, y), contains(x, y).",
        "p(x) :- q(x + 1), r(x).",
    ],
)
def test_safe_rules_of_the_whole_language(text: str) -> None:
    check_safety(only(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tc(x, w) :- tc(x, y), edge(y, z).",
            "line 1, column 7: the variable w in the head is not bound by any positive atom of the body\n"
            "  tc(x, w) :- tc(x, y), edge(y, z).\n"
            "        ^",
        ),
        (
            "p(x,\n  ?y) :- q(x).",
            "line 2, column 3: the variable ?y in the head is not bound by any positive atom of the body\n"
            "    ?y) :- q(x).\n"
            "    ^^",
        ),
        (
            "p(x, _) :- q(x).",
            "line 1, column 6: '_' cannot be used in the head of a rule: it has no value\n"
            "  p(x, _) :- q(x).\n"
            "       ^",
        ),
        (
            "p(x) :- q(x), !r(x, y).",
            "line 1, column 21: the variable y in a negated atom is not bound by any positive atom of the body\n"
            "  p(x) :- q(x), !r(x, y).\n"
            "                      ^",
        ),
        (
            "p(x) :- q(x), y < x.",
            "line 1, column 15: the variable y in a condition is not bound by any positive atom of the body\n"
            "  p(x) :- q(x), y < x.\n"
            "                ^",
        ),
        (
            "p(x) :- q(x), y = z + 1, z = y - 1.",
            "line 1, column 15: the variable y in a condition is not bound by any positive atom of the body\n"
            "  p(x) :- q(x), y = z + 1, z = y - 1.\n"
            "                ^",
        ),
        (
            "p(x) :- q(x, y + 1).",
            "line 1, column 14: the variable y in a computed argument is not bound by any positive atom "
            "of the body\n"
            "  p(x) :- q(x, y + 1).\n"
            "               ^",
        ),
        (
            "p(x) :- q(x), _ = x.",
            "line 1, column 15: '_' cannot be compared: it has no value\n"
            "  p(x) :- q(x), _ = x.\n"
            "                ^",
        ),
        (
            "p(x + _) :- q(x).",
            "line 1, column 7: '_' cannot be used in a computation: it has no value\n"
            "  p(x + _) :- q(x).\n"
            "        ^",
        ),
        (
            "p(n, y) :- n = count : { q(y) }.",
            "line 1, column 28: the variable y is used outside of the count, but is bound only inside it; only min "
            "and max can pass a variable out (a witness)\n"
            "  p(n, y) :- n = count : { q(y) }.\n"
            "                             ^",
        ),
        (
            "p(n) :- n = sum z : { q(y) }.",
            "line 1, column 17: the variable z in the argument of an aggregate is not bound by any positive atom "
            "of the body\n"
            "  p(n) :- n = sum z : { q(y) }.\n"
            "                  ^",
        ),
        (
            "p(n) :- n = sum _ : { q(y) }.",
            "line 1, column 17: '_' cannot be aggregated: it has no value\n"
            "  p(n) :- n = sum _ : { q(y) }.\n"
            "                  ^",
        ),
        (
            "p(n) :- n = count : { q(y), !r(z) }.",
            "line 1, column 32: the variable z in a negated atom is not bound by any positive atom of the body\n"
            "  p(n) :- n = count : { q(y), !r(z) }.\n"
            "                                 ^",
        ),
        (
            "p(y, min(d)) :- q(y).",
            "line 1, column 10: the variable d in the head is not bound by any positive atom of the body\n"
            "  p(y, min(d)) :- q(y).\n"
            "           ^",
        ),
    ],
)
def test_unsafe_rules(text: str, message: str) -> None:
    with pytest.raises(UnsafeRuleError) as raised:
        check_safety(only(text))
    assert str(raised.value) == message


def test_check_rule_checks_safety() -> None:
    with pytest.raises(UnsafeRuleError):
        check_rule(only("p(x, y) :- q(x)."))


FEATURES = [
    ("p(x) :- q(x), !r(x).", Feature.NEGATION, 15),
    ("p(x) :- q(x), x < 3.", Feature.COMPARISON, 15),
    ("p(x) :- q(x), contains(x, x).", Feature.COMPARISON, 15),
    ("p(x + 1) :- q(x).", Feature.ARITHMETIC, 3),
    ("p(-x) :- q(x).", Feature.ARITHMETIC, 3),
    ("p(strlen(x)) :- q(x).", Feature.FUNCTOR, 3),
    ("p(1, count : q(_)) :- q(_).", Feature.AGGREGATE, 6),
    ("p(max(x)) :- q(x).", Feature.HEAD_AGGREGATE, 3),
]


@pytest.mark.parametrize(("text", "feature", "column"), FEATURES)
def test_a_feature_is_refused_until_it_is_supported(text: str, feature: Feature, column: int) -> None:
    rule = only(text)
    with pytest.raises(UnsupportedFeatureError) as raised:
        check_supported(rule, frozenset(Feature) - {feature})
    error = raised.value
    assert error.message == f"{feature.value} is not supported yet by this version"
    assert error.detail == {
        "line": 1,
        "column": column,
        "source": text,
        "feature": feature.name.lower(),
    }
    check_supported(rule, frozenset({feature}))


def test_the_features_inside_of_an_aggregate_count_too() -> None:
    rule = only("p(count : { q(x), !r(x) }) :- q(_).")
    with pytest.raises(UnsupportedFeatureError, match="negation is not supported yet by this version"):
        check_supported(rule, frozenset({Feature.AGGREGATE}))


def test_long_chains_of_equations_in_the_worst_order() -> None:
    chain = ", ".join(f"x{i} = x{i + 1} + 1" for i in range(2_000))
    check_safety(only(f"p(x0) :- {chain}, q(x2000)."))
    with pytest.raises(UnsafeRuleError, match="the variable x0 "):
        check_safety(only(f"p(x0) :- {chain}, q(x)."))
