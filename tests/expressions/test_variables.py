"""Types of variables, and distinct names for the variables of aggregates."""

from __future__ import annotations

import pytest

from engine.errors import TypeMismatchError
from engine.expressions import distinct_locals, variable_types
from engine.language.canonical import format_rule
from engine.language.inference import infer_schemas
from engine.language.parser import parse_program
from engine.language.schema import ColumnType
from engine.language.syntax import Rule

DECLARATIONS = ".decl p(a: symbol, n: number) .decl q(a: symbol, f: float) .decl b(t: bool)"
SYMBOL, NUMBER, FLOAT, BOOL = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL


def rule_of(text: str) -> Rule:
    (rule,) = parse_program(f"{DECLARATIONS} {text}").rules
    return rule


def types(text: str) -> dict[str, ColumnType | None]:
    program = parse_program(f"{DECLARATIONS} {text}")
    schemas = infer_schemas(program.declarations, {}, program.rules, {})
    return variable_types(program.rules[0], schemas)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r(x) :- p(x, _).", {"x": SYMBOL}),
        (
            "r(y) :- p(x, n), y = n + 1, z = strlen(x), z < y.",
            {"x": SYMBOL, "n": NUMBER, "y": NUMBER, "z": NUMBER},
        ),
        (
            "r(y) :- p(x, n), y = z, z = w, w = 1.5, b(t).",
            {"y": FLOAT, "z": FLOAT, "w": FLOAT, "x": SYMBOL, "n": NUMBER, "t": BOOL},
        ),
        (
            "r(y) :- p(x, n), !q(x, f), f = to_float(x), y = to_string(f).",
            {"x": SYMBOL, "n": NUMBER, "f": FLOAT, "y": SYMBOL},
        ),
        ("r(x, y) :- new(x), y = x.", {"x": None, "y": None}),
        ("r(x, y) :- new(x), y = -x, other(y), other(1).", {"x": NUMBER, "y": NUMBER}),
        ("r(x, n) :- p(x, _), n = count : { q(x, f), f > 1.0 }.", {"x": SYMBOL, "n": NUMBER, "f": FLOAT}),
        ("r(x, m) :- p(x, _), m = mean k : { p(x, k) }.", {"x": SYMBOL, "m": FLOAT, "k": NUMBER}),
        (
            "r(m) :- m = max k : { p(x, k), k < sum f2 : { p(x, f2), e = 2.5 } }.",
            {"m": NUMBER, "k": NUMBER, "x": SYMBOL, "f2": NUMBER, "e": FLOAT},
        ),
        ("r(x, min(n + 1)) :- p(x, n).", {"x": SYMBOL, "n": NUMBER}),
        ("r(n) :- n = count : { p(z, _) }, 0 < count : { q(z, _) }.", {"n": NUMBER, "z": SYMBOL}),
    ],
)
def test_variable_types(text: str, expected: dict[str, ColumnType | None]) -> None:
    assert types(text) == expected


def test_a_type_from_another_rule() -> None:
    assert types("r(x) :- mid(x). mid(x) :- p(_, x).") == {"x": NUMBER}


TWO_TYPES = "r(n) :- n = count : { p(_, z) }, n = count : { q(_, z) }."


def test_one_name_for_two_variables_of_different_types() -> None:
    with pytest.raises(
        TypeMismatchError, match=r"the variable z is a .* in one aggregate and a .* in another"
    ):
        types(TWO_TYPES)
    program = parse_program(f"{DECLARATIONS} {TWO_TYPES}")
    schemas = infer_schemas(program.declarations, {}, program.rules, {})
    found = variable_types(distinct_locals(program.rules[0]), schemas)
    assert found == {"n": NUMBER, "z": NUMBER, "z_2": FLOAT}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TWO_TYPES, "r(n) :- n = count : { p(_, z) }, n = count : { q(_, z_2) }."),
        # Outer variables are shared, wherever they stand.
        (
            "r(n) :- n = sum z : { p(x, z) }, m = sum z : { p(x, z) }, p(x, m).",
            "r(n) :- n = sum z : { p(x, z) }, m = sum z_2 : { p(x, z_2) }, p(x, m).",
        ),
        # The variable of the inner aggregate is the outer aggregate's own.
        (
            "r(n) :- n = count : { p(z, k), k = count : { p(z, j) } }, 1 = count : { p(z, j) }.",
            "r(n) :- n = count : { p(z, k), k = count : { p(z, j) } }, 1 = count : { p(z_2, j_2) }.",
        ),
        # A new name is one that the rule does not have.
        (
            "r(z_2) :- z_2 = count : { p(z, _) }, 1 = count : { p(z, _) }, 2 = count : { p(z_3, _) }.",
            "r(z_2) :- z_2 = count : { p(z, _) }, 1 = count : { p(z_4, _) }, 2 = count : { p(z_3, _) }.",
        ),
        (
            "r(n) :- p(_, n), n < sum -(k + strlen(s)) : { p(s, k), !q(s, _) }, 1 = max k : { p(_, k) }.",
            "r(n) :- p(_, n), n < sum -(k + strlen(s)) : { p(s, k), !q(s, _) }, 1 = max k_2 : { p(_, k_2) }.",
        ),
        ("r(x, min(n)) :- p(x, n).", "r(x, min(n)) :- p(x, n)."),
    ],
)
def test_distinct_locals(text: str, expected: str) -> None:
    assert format_rule(distinct_locals(rule_of(text))) == expected
    assert distinct_locals(rule_of(expected)) == rule_of(expected)
