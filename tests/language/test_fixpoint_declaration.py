"""The qualifier `fixpoint` of a declaration: its settings, its text, and what is wrong with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.database.program import Program
from engine.errors import DeclarationError, ProgramError, ProgramSyntaxError
from engine.language.canonical import format_declaration
from engine.language.parser import parse_declarations, parse_program
from engine.language.syntax import Declaration, Fixpoint


def declared(text: str) -> Declaration:
    (declaration,) = parse_declarations(f".decl r(x: number, y: float) {text}")
    return declaration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("fixpoint", Fixpoint(0.0, 1_000)),
        ("fixpoint(tolerance=1e-9, max_height=200)", Fixpoint(1e-9, 200)),
        ("fixpoint ( max_height = 7 )", Fixpoint(0.0, 7)),
        ("fixpoint(tolerance=2)", Fixpoint(2.0, 1_000)),
        ("brie fixpoint(tolerance=0.5) constraint", Fixpoint(0.5, 1_000)),
    ],
)
def test_settings_and_their_defaults(text: str, expected: Fixpoint | None) -> None:
    assert declared(text).fixpoint == expected


@given(st.floats(0, allow_infinity=False), st.integers(1, 10**9), st.booleans())
def test_the_text_of_a_declaration_says_the_same(tolerance: float, max_height: int, constraint: bool) -> None:
    declaration = Declaration(
        "r",
        declared("").columns,
        ("constraint",) if constraint else (),
        fixpoint=Fixpoint(tolerance, max_height),
    )
    assert parse_declarations(format_declaration(declaration)) == (declaration,)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("fixpoint(tolerance=-1)", DeclarationError, "at least 0"),
        ("fixpoint(tolerance=1e999)", ProgramError, "1e999"),
        ("fixpoint(max_height=0)", DeclarationError, "from 1 to"),
        ("fixpoint(max_height=1.5)", DeclarationError, "whole number"),
        ("fixpoint(max_height=2000000000)", DeclarationError, "from 1 to 1000000000"),
        ("fixpoint(max_heigth=1)", DeclarationError, "did you mean max_height"),
        ("fixpoint(depth=1)", DeclarationError, "the known settings are tolerance, max_height"),
        ("fixpoint(tolerance=1, tolerance=1)", DeclarationError, "is given twice"),
        ("fixpoint fixpoint(tolerance=1)", DeclarationError, "is given twice"),
        ('fixpoint(tolerance="a")', ProgramSyntaxError, "expected a number"),
        ("fixpoint(tolerance=1", ProgramSyntaxError, "the text ends"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, error: type[ProgramError], says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        declared(text)
    assert raised.value.span is not None
    assert raised.value.span.column > len(".decl r(x: number, y: float)")


@pytest.mark.parametrize("text", ["", " fixpoint", " fixpoint(tolerance=1)"])
def test_a_relation_may_be_called_fixpoint(text: str) -> None:
    program = parse_program(f".decl r(x: number){text}\nfixpoint(x) :- r(x).\nfixpoint(1).")
    assert [rule.head.relation for rule in program.rules] == ["fixpoint"]
    assert len(program.facts) == 1


def test_a_later_declaration_changes_the_settings_and_none_withdraws_them() -> None:
    text = ".decl r(x: number)"
    program = Program()
    for qualifier, expected in (
        ("", None),
        (" fixpoint(max_height=5)", Fixpoint(0.0, 5)),
        ("", Fixpoint(0.0, 5)),
        (" fixpoint(tolerance=0.5)", Fixpoint(0.5, 1_000)),
    ):
        program = program.changed([], text + qualifier, "zset", {})
        assert program.declarations["r"].fixpoint == expected
        # What is stored is read again.
        assert parse_declarations(program.declaration_text)[0].fixpoint == expected
