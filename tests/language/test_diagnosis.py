"""Golden error messages, in full: what a user sees for each kind of mistake."""

from __future__ import annotations

import pytest

from engine.errors import (
    DeclarationError,
    ProgramError,
    ProgramSyntaxError,
    UnsafeRuleError,
    UnsupportedFeatureError,
)
from engine.language.parser import parse_declarations, parse_goal, parse_program, parse_rules

SYNTAX = [
    (
        "p(x) :- q(x)\nr(x) :- s(x).",
        "line 2, column 1: expected ',', ';' or '.' after the atom, not 'r'; "
        "did you forget the '.' at the end of the clause in line 1?\n"
        "  r(x) :- s(x).\n"
        "  ^",
    ),
    (
        'edge("a", "b")\nedge("b", "c").',
        "line 2, column 1: expected ',', ':-' or '.' after the atom, not 'edge'; "
        "did you forget the '.' at the end of the clause in line 1?\n"
        '  edge("b", "c").\n'
        "  ^^^^",
    ),
    (
        "p(x) :- q(x),\n\n  x < 3 // the end",
        "line 3, column 8: expected ',', ';' or '.' after 3, but the text ends; "
        "did you forget the '.' at the end of the clause in line 3?\n"
        "    x < 3 // the end\n"
        "         ^",
    ),
    (
        "p(x) :- q(x), r(x) :- s(x).",
        "line 1, column 20: expected ',', ';' or '.' after the atom, not ':-'; "
        "a clause has one ':-': did you forget the '.' at the end of an earlier clause?\n"
        "  p(x) :- q(x), r(x) :- s(x).\n"
        "                     ^^",
    ),
    (
        "p(x, y :- q(x, y).",
        "line 1, column 8: expected ',' or ')' after y, not ':-'\n  p(x, y :- q(x, y).\n         ^^",
    ),
    (
        "p(x) : q(x).",
        "line 1, column 6: expected ',', ':-' or '.' after the atom, not ':'\n  p(x) : q(x).\n       ^",
    ),
    (
        "p(x) :- q(x),, r(x).",
        "line 1, column 14: expected an atom or a condition after ',', not ','\n"
        "  p(x) :- q(x),, r(x).\n"
        "               ^",
    ),
    (
        "p(x) :- q(x), .",
        "line 1, column 15: expected an atom or a condition after ',', not '.'\n"
        "  p(x) :- q(x), .\n"
        "                ^",
    ),
    (
        "p(x) :- q.",
        "line 1, column 10: expected '(' or a comparison operator after 'q', not '.'\n"
        "  p(x) :- q.\n           ^",
    ),
    (
        "p(x) :- q(x), 3.",
        "line 1, column 16: expected a comparison operator after 3, not '.'\n"
        "  p(x) :- q(x), 3.\n"
        "                 ^",
    ),
    (
        "p(x) :- q(x), (r(x) ; s(x).",
        "line 1, column 27: expected ')' after the atom, not '.'\n"
        "  p(x) :- q(x), (r(x) ; s(x).\n"
        "                            ^",
    ),
    (
        'p("a, "b").',
        "line 1, column 8: expected ',' or ')' after \"a, \", not 'b'\n  p(\"a, \"b\").\n         ^",
    ),
    ('p("a).\n', 'line 1, column 3: a string that starts here is not closed\n  p("a).\n    ^'),
    (
        "\tp(x) /* and\nso on",
        "line 1, column 7: a comment that starts here is not closed\n  \tp(x) /* and\n  \t     ^^",
    ),
    (
        r'p("C:\data").',
        "line 1, column 6: unknown escape \\d; the known escapes are \\\" \\' \\\\ \\a \\b \\f \\n \\r \\t \\v\n"
        '  p("C:\\data").\n'
        "       ^^",
    ),
    (
        "p('a').",
        "line 1, column 3: expected a term or ')' after '(', not a single quote; "
        "a symbol is written in double quotes\n"
        "  p('a').\n"
        "    ^",
    ),
    (
        "p(x) :- not q(x).",
        "line 1, column 13: expected '(' or a comparison operator after 'not', not 'q'; "
        "negation is written with '!'\n"
        "  p(x) :- not q(x).\n"
        "              ^",
    ),
    (
        "p(x) :- count(x, y).",
        "line 1, column 14: expected ':' after 'count', not '('; 'count' is a reserved word\n"
        "  p(x) :- count(x, y).\n"
        "               ^",
    ),
    (
        "count(x) :- p(x).",
        "line 1, column 1: 'count' is a reserved word and cannot name a relation\n"
        "  count(x) :- p(x).\n  ^^^^^",
    ),
    (
        "p(x) :- q(x, band).",
        "line 1, column 14: 'band' is a reserved word and cannot name a variable\n"
        "  p(x) :- q(x, band).\n"
        "               ^^^^",
    ),
    (
        ".declare p(x: number)",
        "line 1, column 1: unknown directive .declare; did you mean .decl?\n"
        "  .declare p(x: number)\n"
        "  ^^^^^^^^",
    ),
    (
        ".decl p(x number)",
        "line 1, column 11: expected ':' after 'x', not 'number'\n  .decl p(x number)\n            ^^^^^^",
    ),
    (
        "f(9223372036854775808).",
        "line 1, column 3: the number 9223372036854775808 does not fit into 64 bits\n"
        "  f(9223372036854775808).\n"
        "    ^^^^^^^^^^^^^^^^^^^",
    ),
    (
        "f(-9223372036854775809).",
        "line 1, column 4: the number 9223372036854775809 does not fit into 64 bits\n"
        "  f(-9223372036854775809).\n"
        "     ^^^^^^^^^^^^^^^^^^^",
    ),
    ("f(1e999).", "line 1, column 3: the float 1e999 does not fit into 64 bits\n  f(1e999).\n    ^^^^^"),
    (
        "p(x) :- q(x, substr(x, 1)).",
        "line 1, column 14: the functor substr takes 3 arguments, not 2\n"
        "  p(x) :- q(x, substr(x, 1)).\n"
        "               ^^^^^^^^^^^^",
    ),
    (
        "p(x) :- q(x, cat(x)).",
        "line 1, column 14: the functor cat takes at least 2 arguments, not 1\n"
        "  p(x) :- q(x, cat(x)).\n"
        "               ^^^^^^",
    ),
    (
        ")",
        "line 1, column 1: expected a fact, a rule or a directive "
        "(.decl, .type, .prefix, .rdf, .input, .output, .printsize), not ')'\n  )\n  ^",
    ),
    (
        "p(1).\n\0",
        "line 2, column 1: expected a fact, a rule or a directive "
        "(.decl, .type, .prefix, .rdf, .input, .output, .printsize) after '.', not the character U+0000\n  \0\n  ^",
    ),
    (
        'p("a").\r\np("\ud800").',
        "line 2, column 4: the character U+D800 is half of a surrogate pair, which is not text\n"
        '  p("\ufffd").\n     ^',
    ),
    (
        'p("\x0c").\nq(1)',
        "line 2, column 5: expected ',', ':-' or '.' after the atom, but the text ends; "
        "did you forget the '.' at the end of the clause in line 2?\n  q(1)\n      ^",
    ),
]

# The text, and the place, the width and the name of what is refused.
FOREIGN = [
    (".comp Graph {", 1, 1, 5, "components (.comp) are not part of Zedlog's language"),
    ('.pragma "legacy"', 1, 1, 7, "pragmas (.pragma) are not part of Zedlog's language"),
    (
        "p(x) :- q(x).\n.plan 0:(1,2)",
        2,
        1,
        5,
        "query plans by hand (.plan) are not part of Zedlog's language",
    ),
    (
        ".functor f(x: number): number",
        1,
        1,
        8,
        "user-defined functors (.functor) are not part of Zedlog's language",
    ),
    (".limitsize p(n=3)", 1, 1, 10, "size limits (.limitsize) are not part of Zedlog's language"),
    ("p(x) :- q([x, y]).", 1, 11, 1, "records are not part of Zedlog's language"),
    ("p($A(x)) :- q(x).", 1, 3, 1, "algebraic data types and counters ($) are not part of Zedlog's language"),
    ("p(@f(x)) :- q(x).", 1, 3, 1, "user-defined functors (@) are not part of Zedlog's language"),
    ("p(x) :- x = autoinc(1, 3).", 1, 20, 1, "the functor autoinc is not part of Zedlog's language"),
    ("p(x) :- q(x), x bshru 1 = 1.", 1, 17, 5, "the operator bshru is not part of Zedlog's language"),
    ("p(1u).", 1, 4, 1, "unsigned numbers are not part of Zedlog's language"),
    (
        "a(x) <= a(y) :- b(x, y).",
        1,
        6,
        2,
        "subsumption clauses (head <= head :- ...) are not part of Zedlog's language",
    ),
    (".type T = [x: number]", 1, 11, 1, "records are not part of Zedlog's language"),
    (".type T = A {x: number}", 1, 13, 1, "algebraic data types are not part of Zedlog's language"),
    (".decl e(x: number) eqrel", 1, 20, 5, "equivalence relations (eqrel) are not part of Zedlog's language"),
    (".decl e(x: number) choice-domain x", 1, 20, 13, "choice domains are not part of Zedlog's language"),
    (
        ".decl e(x: unsigned)",
        1,
        12,
        8,
        "the type unsigned is not part of Zedlog's language; number is a signed 64-bit integer",
    ),
    ('#include "x.dl"', 1, 1, 1, "the C preprocessor is not part of Zedlog's language"),
    (
        "p(n) :- n = count : { q(_) ; r(_) }.",
        1,
        35,
        1,
        "alternatives (;) in an aggregate are not supported; move them into a relation of their own",
    ),
    ("p(1 + count : { q(_) }).", 1, 7, 16, "an aggregate cannot be used in a fact; write a rule"),
]

DECLARATIONS = [
    (
        ".decl e(x: number, y: number, x: symbol)",
        "line 1, column 31: two columns are called x\n"
        "  .decl e(x: number, y: number, x: symbol)\n"
        "                                ^^^^^^^^^",
    ),
    (
        ".decl e(x: nmber)",
        "line 1, column 12: unknown type nmber; did you mean number?\n"
        "  .decl e(x: nmber)\n             ^^^^^",
    ),
    (
        ".type A = B .type B = A",
        "line 1, column 7: the type A is defined in terms of itself\n  .type A = B .type B = A\n        ^",
    ),
    (
        ".type A <: symbol .type A <: number",
        "line 1, column 25: the type A is already defined\n"
        "  .type A <: symbol .type A <: number\n"
        "                          ^",
    ),
    (
        ".type A <: symbol .type U = A | number",
        "line 1, column 33: the type U mixes symbol (A) and number (number)\n"
        "  .type A <: symbol .type U = A | number\n"
        "                                  ^^^^^^",
    ),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX)
def test_syntax_errors(text: str, message: str) -> None:
    _check(text, ProgramSyntaxError, message)


@pytest.mark.parametrize(("text", "line", "column", "width", "refused"), FOREIGN)
def test_what_souffle_has_and_this_language_lacks(
    text: str, line: int, column: int, width: int, refused: str
) -> None:
    source = text.split("\n")[line - 1]
    caret = " " * (column - 1) + "^" * width
    _check(text, UnsupportedFeatureError, f"line {line}, column {column}: {refused}\n  {source}\n  {caret}")


@pytest.mark.parametrize(("text", "message"), DECLARATIONS)
def test_declarations_that_contradict_themselves(text: str, message: str) -> None:
    _check(text, DeclarationError, message)


def test_a_fact_with_a_variable() -> None:
    _check(
        "edge(a, b).",
        UnsafeRuleError,
        "line 1, column 6: a fact holds constants only, but a is a variable; "
        'a symbol is written in double quotes, "a"\n'
        "  edge(a, b).\n"
        "       ^",
    )


def _check(text: str, error: type[ProgramError], message: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse_program(text)
    assert str(raised.value) == message
    assert type(raised.value) is error


def test_the_other_entries() -> None:
    with pytest.raises(ProgramSyntaxError) as raised:
        parse_rules('edge("a", "b").')
    assert str(raised.value) == (
        "line 1, column 1: this is a fact, not a rule: it has no body; send it as a fact of edge\n"
        '  edge("a", "b").\n'
        "  ^^^^^^^^^^^^^^^"
    )
    with pytest.raises(ProgramSyntaxError) as raised:
        parse_rules("p(x) :- q(x).\nr(x) :- q(x).")
    assert str(raised.value) == (
        "line 2, column 1: one rule was expected, but a second clause starts here; send each rule separately\n"
        "  r(x) :- q(x).\n"
        "  ^^^^^^^^^^^^^"
    )
    with pytest.raises(ProgramSyntaxError) as raised:
        parse_goal("edge(x, y), f(x)")
    assert str(raised.value) == (
        "line 1, column 11: expected '.' or the end of the text after the atom, not ','\n"
        "  edge(x, y), f(x)\n"
        "            ^"
    )
    with pytest.raises(ProgramSyntaxError) as raised:
        parse_declarations(".decl e(x: number)\n.output e")
    assert str(raised.value) == (
        "line 2, column 1: only .decl, .type and .prefix directives are allowed here, but this is a .output directive\n"
        "  .output e\n"
        "  ^^^^^^^^^"
    )


def test_an_error_as_data() -> None:
    with pytest.raises(ProgramSyntaxError) as raised:
        parse_program("p(1).\n  p(2")
    assert raised.value.problem() == {
        "code": "syntax_error",
        "message": "expected ',' or ')' after 2, but the text ends",
        "rendered": "line 2, column 6: expected ',' or ')' after 2, but the text ends\n    p(2\n       ^",
        "line": 2,
        "column": 6,
        "source": "  p(2",
    }
