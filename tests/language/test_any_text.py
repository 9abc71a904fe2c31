"""Any text at all gives a tree or a ProgramError with a place, and nothing else."""

from __future__ import annotations

import inspect
import random
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import ProgramError
from engine.language.canonical import canonical_text
from engine.language.check import check_rule, check_safety
from engine.language.inference import infer_schemas
from engine.language.parser import parse_declarations, parse_goal, parse_program, parse_rules
from engine.language.syntax import AGGREGATE_DEPTH, MAX_DEPTH

WORDS = r"""
.decl .type .input .output .plan edge x ?x _ "a" " \ 0x 12 1.5 - ( ) , ; . :- : ! = != < <= <: | + * / ^ %
band bnot count sum min cat contains true { } [ $ @ /* */ // 1e999 ?- ' number brie a.b 0b2 #
"""
PIECES = [*WORDS.split(), "\n", " ", "\t", "\0", "\ud800", "\ufeff", "é", "\u2028", "9" * 30, "9" * 5000]

PROGRAM = """\
.type Node <: symbol
.decl edge(x: Node, w: number) brie
.input edge(IO=file, n=3)
edge("a\\n", 0x1F). f(1.5, true, -3).
tc(x, z) :- (tc(x, y) ; !sym(y, x)), edge(y, z), z != x, w = -z ^ 2 * 3 bor 1. // note
sp(y, min(d + c)) :- sp(x, d), arc(x, y, c), n = count : { p(x, _), x < 3 }, contains("a", cat(x, y)).
/* end */
"""

anything = st.one_of(
    st.text(st.characters(), max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join),
)


def every_entry(text: str) -> int:
    """Run all of them; the number of those that took the text."""
    taken = 0
    for parse in (parse_program, parse_rules, parse_goal, parse_declarations):
        try:
            parse(text)
            taken += 1
        except ProgramError as error:
            _check_error(error, text)
    return taken


def _check_error(error: ProgramError, text: str) -> None:
    assert error.span is not None
    assert 1 <= error.span.line <= text.count("\n") + 1
    # What JSON and a terminal must take.
    error.detail["source"].encode()
    assert str(error).startswith(f"line {error.span.line}, column {error.span.column}: ")
    assert error.message
    # No name of a token of the grammar.
    assert not any(name in error.message for name in ("RPAR", "IDENT", "__ANON", "Token", "$END"))


@given(anything)
@example("")
@example("\x00")
@example("\ud83d")
@example('"' * 3)
def test_any_text_gives_a_tree_or_a_program_error(text: str) -> None:
    every_entry(text)


@given(anything)
def test_what_parses_can_be_checked(text: str) -> None:
    try:
        program = parse_program(text)
        for rule in program.rules:
            canonical_text(rule)
            check_safety(rule)
        infer_schemas(program.declarations, {}, program.rules, {})
        for rule in program.rules:
            check_rule(rule)
    except ProgramError as error:
        _check_error(error, text)


@pytest.mark.parametrize("seed", range(6))
def test_mutations_of_a_program(seed: int) -> None:
    dice = random.Random(seed)
    rejected = 0
    for _ in range(100):
        text = PROGRAM
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(text))
            end = min(len(text), at + dice.choice([0, 1, 1, 2, 8]))
            text = text[:at] + dice.choice(["", "", dice.choice(PIECES), text[at:end] * 2]) + text[end:]
        rejected += every_entry(text) == 0
    assert every_entry(PROGRAM) == 1
    assert rejected > 20, "the mutations change nothing that matters"


MOST_AGGREGATES = MAX_DEPTH // AGGREGATE_DEPTH
DEEPEST = [
    "p(x) :- q(x), x = 1" + " + 1" * MAX_DEPTH + ".",
    "p(x) :- q(x), y = " + "-" * MAX_DEPTH + "x.",
    "p(x) :- q(x), y = " + "2 ^ (" * (MAX_DEPTH - 1) + "x ^ x" + ")" * (MAX_DEPTH - 1) + ".",
    "p(x) :- q(x), y = " + 'cat("a", ' * MAX_DEPTH + "x" + ")" * MAX_DEPTH + ".",
    "p(x) :- q(x), y = " + "count : { q(z), 1 < " * MOST_AGGREGATES + "x" + " }" * MOST_AGGREGATES + ".",
    "p(x) :- " + "(" * MAX_DEPTH + "q(x)" + ")" * MAX_DEPTH + ".",
]


@pytest.mark.parametrize("text", DEEPEST)
def test_the_deepest_rule_leaves_half_of_the_stack_to_the_caller(text: str) -> None:
    (rule,) = parse_rules(text)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + limit // 2)
    try:
        assert parse_rules(canonical_text(rule)) == parse_rules(canonical_text(parse_rules(text)[0]))
        assert hash(rule) == hash(parse_rules(text)[0])
        assert repr(rule)
        check_safety(rule)
        assert set(infer_schemas((), {}, [rule], {})) == {"p", "q"}
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("opening", ["(", "!", "-", "p(", "{", "/*", '"', "[", "p(x) :- ", "count : {", "\\"])
def test_a_long_run_of_one_opening(opening: str) -> None:
    assert every_entry(opening * 3_000) == 0
    assert every_entry("p(x) :- q(x), x = " + opening * 3_000) == 0
