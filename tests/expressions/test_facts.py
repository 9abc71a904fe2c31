"""Facts of constant expressions."""

from __future__ import annotations

import pytest

from engine.errors import ProgramError
from engine.expressions import with_constant_facts
from engine.language.parser import parse_program


def values(text: str) -> list[tuple[object, ...]]:
    program = with_constant_facts(parse_program(text))
    return [tuple(term.value for term in fact.terms) for fact in program.facts]  # type: ignore[union-attr]  # constants


def test_values_of_constant_expressions() -> None:
    text = """
        a(2 ^ 31 - 1). a(-(1 + 1)). a(0xff band 0b1111). a(lnot 0 + 1). a(strlen("abc")). a(min(3, 2)). a(7 / 2).
        b(cat("x", "y"), 1.0 / 4.0, true). b("plain", 2.5, false). b(to_string(12), to_float("0.5"), true).
    """
    assert values(text) == [
        *((n,) for n in (2147483647, -2, 15, 2, 3, 2, 3)),
        ("xy", 0.25, True),
        ("plain", 2.5, False),
        ("12", 0.5, True),
    ]


def test_a_program_without_any_stays_the_same_object() -> None:
    program = parse_program('a(-1, "x"). p(x) :- a(x, _).')
    assert with_constant_facts(program) is program


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("a(2 ^ 63).", "syntax_error", "line 1, column 3: 2 ^ 63 is outside of the range of 64-bit numbers"),
        ("a(0).\na(1 / 0).", "syntax_error", "line 2, column 3: 1 / 0 divides by zero"),
        ('a(1 + "x").', "type_mismatch", "+ takes values of one type"),
        ('a(ord("x")).', "unsupported_feature", "which differs from database to database"),
        ("a(range(0, 3)).", "unsupported_feature", "several values"),
        ("a(count : { b(_) }).", "unsupported_feature", "an aggregate cannot be used in a fact"),
        ("a(x + 1).", "unsafe_rule", "x is a variable"),
        ("a(1 + _).", "unsafe_rule", "_ is a variable"),
    ],
)
def test_what_is_no_constant(text: str, code: str, message: str) -> None:
    with pytest.raises(ProgramError) as refused:
        values(text)
    assert refused.value.code == code
    assert message in str(refused.value)
