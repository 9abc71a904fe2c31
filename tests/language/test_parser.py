"""Text to tree: what each form of the language means, and where the tree says it stands."""

from __future__ import annotations

import pytest

from engine.errors import ProgramError, ProgramSyntaxError, Span, UnsafeRuleError, UnsupportedFeatureError
from engine.language.canonical import format_rule, format_term
from engine.language.parser import parse_declarations, parse_goal, parse_program, parse_rules
from engine.language.schema import Column, ColumnType
from engine.language.syntax import (
    AGGREGATE_DEPTH,
    MAX_DEPTH,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    Declaration,
    Directive,
    Negation,
    Rule,
    UnaryOperation,
    Variable,
    Wildcard,
)

SYMBOL, NUMBER, FLOAT, BOOL = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL
X, Y, Z = Variable("x"), Variable("y"), Variable("z")


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ('"a b"', "a b", SYMBOL),
        ('""', "", SYMBOL),
        (r'"\"\\\n\t\r\a\b\f\v\'"', "\"\\\n\t\r\a\b\f\v'", SYMBOL),
        ('"// no comment /* */"', "// no comment /* */", SYMBOL),
        ('"ü\0\x85\u2028"', "ü\0\x85\u2028", SYMBOL),
        ("0", 0, NUMBER),
        ("-12", -12, NUMBER),
        ("- 12", -12, NUMBER),
        ("--12", 12, NUMBER),
        ("0xfF", 255, NUMBER),
        ("-0b101", -5, NUMBER),
        ("9223372036854775807", 2**63 - 1, NUMBER),
        ("-9223372036854775808", -(2**63), NUMBER),
        ("1.5", 1.5, FLOAT),
        ("-1.5e3", -1500.0, FLOAT),
        ("2e-3", 0.002, FLOAT),
        ("true", True, BOOL),
        ("false", False, BOOL),
    ],
)
def test_constants(text: str, value: object, type_: ColumnType) -> None:
    (fact,) = parse_program(f"f({text}).").facts
    (constant,) = fact.terms
    assert isinstance(constant, Constant)
    assert (constant.value, constant.type, type(constant.value)) == (value, type_, type(value))


def test_facts_need_no_space_between_them() -> None:
    assert parse_program("n(1).f(1.5).e(2).").facts == (
        Atom("n", (Constant(1, NUMBER),)),
        Atom("f", (Constant(1.5, FLOAT),)),
        Atom("e", (Constant(2, NUMBER),)),
    )


def test_a_program_with_everything() -> None:
    program = parse_program(
        """
        // who reaches whom
        .type Node <: symbol
        .decl edge, link(x: Node, y: symbol) brie
        .decl n(v: number) output
        .input edge(IO=file, filename="e.csv", header=true, skip=2)
        /* facts */ edge("a", "b"). n(1), n(2).
        tc(x, y) :- edge(x, y).
        tc(x, z), sym(z, x) :- tc(x, y), edge(y, z).
        .output tc
        """
    )
    columns = (Column("x", SYMBOL), Column("y", SYMBOL))
    assert program.declarations == (
        Declaration("edge", columns, ("brie",)),
        Declaration("link", columns, ("brie",)),
        Declaration("n", (Column("v", NUMBER),), ("output",)),
    )
    assert program.directives == (
        Directive("output", "n"),
        Directive(
            "input", "edge", (("IO", "file"), ("filename", "e.csv"), ("header", "true"), ("skip", "2"))
        ),
        Directive("output", "tc"),
    )
    assert [fact.relation for fact in program.facts] == ["edge", "n", "n"]
    assert [format_rule(rule) for rule in program.rules] == [
        "tc(x, y) :- edge(x, y).",
        "tc(x, z) :- tc(x, y), edge(y, z).",
        "sym(z, x) :- tc(x, y), edge(y, z).",
    ]


@pytest.mark.parametrize(
    ("body", "bodies"),
    [
        ("a(x) ; b(x)", ["a(x)", "b(x)"]),
        ("a(x), (b(x) ; c(x)), d(x)", ["a(x), b(x), d(x)", "a(x), c(x), d(x)"]),
        ("(a(x) ; b(x)), (c(x) ; d(x))", ["a(x), c(x)", "a(x), d(x)", "b(x), c(x)", "b(x), d(x)"]),
        ("a(x) ; b(x), (c(x) ; (d(x) ; e(x)))", ["a(x)", "b(x), c(x)", "b(x), d(x)", "b(x), e(x)"]),
        ("((a(x)))", ["a(x)"]),
        ("a(x), !(b(x), c(x))", ["a(x), !b(x)", "a(x), !c(x)"]),
        ("a(x), !(b(x) ; c(x))", ["a(x), !b(x), !c(x)"]),
        ("a(x), !(!b(x) ; x < 3)", ["a(x), b(x), x >= 3"]),
        ("a(x), !!(b(x) ; c(x))", ["a(x), b(x)", "a(x), c(x)"]),
    ],
)
def test_alternatives_become_rules(body: str, bodies: list[str]) -> None:
    rules = parse_rules(f"p(x) :- {body}.")
    assert [format_rule(rule) for rule in rules] == [f"p(x) :- {expected}." for expected in bodies]


def test_the_tree_of_a_rule() -> None:
    assert parse_rules('p(?x, "a") :- q.r(?x, _), !s(_), x <= 1, match("a.*", x).') == (
        Rule(
            Atom("p", (Variable("?x"), Constant("a", SYMBOL))),
            (
                Atom("q.r", (Variable("?x"), Wildcard())),
                Negation(Atom("s", (Wildcard(),))),
                Comparison("<=", X, Constant(1, NUMBER)),
                Comparison("match", Constant("a.*", SYMBOL), X),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x + y * z", BinaryOperation("+", X, BinaryOperation("*", Y, Z))),
        ("x - y - z", BinaryOperation("-", BinaryOperation("-", X, Y), Z)),
        ("x ^ y ^ z", BinaryOperation("^", X, BinaryOperation("^", Y, Z))),
        ("-x ^ y", UnaryOperation("-", BinaryOperation("^", X, Y))),
        ("-x * y", BinaryOperation("*", UnaryOperation("-", X), Y)),
        ("x ^ -y * z", BinaryOperation("*", BinaryOperation("^", X, UnaryOperation("-", Y)), Z)),
        ("x-1", BinaryOperation("-", X, Constant(1, NUMBER))),
        ("x bor y band z", BinaryOperation("bor", X, BinaryOperation("band", Y, Z))),
        ("bnot bnot x", UnaryOperation("bnot", UnaryOperation("bnot", X))),
        ("(x bor y) band z", BinaryOperation("band", BinaryOperation("bor", X, Y), Z)),
        ("x bshl y + z", BinaryOperation("bshl", X, BinaryOperation("+", Y, Z))),
        ("x / y % z", BinaryOperation("%", BinaryOperation("/", X, Y), Z)),
    ],
)
def test_precedence(text: str, tree: object) -> None:
    (rule,) = parse_rules(f"p({text}) :- q(x).")
    assert rule.head.terms == (tree,)


def test_spans_point_at_the_text() -> None:
    text = 'p(x, y) :-\n  edge(x, "b"),\n\ty = -x + 12.'
    (rule,) = parse_rules(text)
    lines = text.split("\n")
    atom, comparison = rule.body
    assert isinstance(atom, Atom)
    assert isinstance(comparison, Comparison)

    def at(span: Span) -> str:
        assert span.line == span.end_line
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]

    assert at(rule.head.span) == "p(x, y)"
    assert at(atom.span) == 'edge(x, "b")'
    assert [at(term.span) for term in atom.terms] == ["x", '"b"']
    assert at(comparison.span) == "y = -x + 12"
    assert at(comparison.right.span) == "-x + 12"
    assert rule.span == Span(1, 1, 3, 14)
    assert rule.text == text


def test_spans_take_no_part_in_equality() -> None:
    assert parse_rules("p(x) :- q(x).") == parse_rules("\n  p( x ):-\nq(x) .")


@pytest.mark.parametrize("text", ['edge(x, "b")', 'edge(x, "b").', '?- edge(x, "b").', '?- edge(x,"b")'])
def test_goal(text: str) -> None:
    assert parse_goal(text) == Atom("edge", (X, Constant("b", SYMBOL)))


@pytest.mark.parametrize(
    ("parse", "text", "error"),
    [
        (parse_goal, "edge(x, y + 1)", UnsupportedFeatureError),
        (parse_goal, "edge(x), f(x)", ProgramSyntaxError),
        (parse_goal, "", ProgramSyntaxError),
        (parse_rules, "", ProgramSyntaxError),
        (parse_rules, 'edge("a").', ProgramSyntaxError),
        (parse_rules, "edge(x).", UnsafeRuleError),
        (parse_rules, "p(x) :- q(x). p(x) :- r(x).", ProgramSyntaxError),
        (parse_rules, ".decl p(x: number)", ProgramSyntaxError),
        (parse_declarations, "p(1).", ProgramSyntaxError),
        (parse_declarations, ".input p", ProgramSyntaxError),
        (parse_declarations, ".decl p(x: number) input", ProgramSyntaxError),
        (parse_program, "p(_).", UnsafeRuleError),
        (parse_program, "p(min(1)).", UnsupportedFeatureError),
    ],
)
def test_each_entry_takes_its_own_kind_of_text(parse: object, text: str, error: type[ProgramError]) -> None:
    assert callable(parse)
    with pytest.raises(error):
        parse(text)


def test_declarations_only() -> None:
    assert parse_declarations(".decl a() .decl b(min: float, decl: bool)") == (
        Declaration("a", ()),
        Declaration("b", (Column("min", FLOAT), Column("decl", BOOL))),
    )
    assert parse_declarations("  // nothing\n") == ()


def test_type_aliases_may_come_in_any_order_and_in_long_chains() -> None:
    chain = "".join(f".type T{i} = T{i + 1}\n" for i in range(3_000))
    (declaration,) = parse_declarations(
        f".decl a(x: T0, y: U) {chain} .type T3000 <: float .type U = T1 | float"
    )
    assert [column.type for column in declaration.columns] == [FLOAT, FLOAT]


def test_a_body_of_2000_atoms() -> None:
    body = ", ".join(f"e(x{i}, x{i + 1})" for i in range(2_000))
    (rule,) = parse_rules(f"p(x0, x2000) :- {body}.")
    assert len(rule.body) == 2_000
    assert format_rule(rule) == f"p(x0, x2000) :- {body}."


def test_parentheses_around_a_term_cost_no_depth() -> None:
    (rule,) = parse_rules(f"p({'(' * 5_000}x{')' * 5_000}) :- q(x).")
    assert rule.head.terms == (X,)


@pytest.mark.parametrize("count", [MAX_DEPTH // AGGREGATE_DEPTH, MAX_DEPTH, MAX_DEPTH + 1, 5_000])
@pytest.mark.parametrize(
    ("before", "repeated", "after"),
    [
        ("p(x) :- q(x), x = 1", " + 1", "."),
        ("p(x) :- q(x), x = ", "-", "x."),
        ("p(x) :- ", "(q(x);", None),
        ("p(x) :- ", "!(", None),
        ("p(x) :- q(x), x = ", "cat(x, ", None),
        ("p(x) :- q(x), x = ", "count : { q(y), y = ", None),
    ],
)
def test_depth_is_bounded(before: str, repeated: str, after: str | None, count: int) -> None:
    closing = {"(q(x);": ")", "!(": ")", "cat(x, ": ")", "count : { q(y), y = ": " }"}
    if after is None:
        inner = "q(x)" if repeated in ("(q(x);", "!(") else "x"
        after = inner + closing[repeated] * count + "."
    text = before + repeated * count + after
    # `!(` is two levels: the group and the negation.
    levels = {"!(": 2, "count : { q(y), y = ": AGGREGATE_DEPTH}.get(repeated, 1)
    if count * levels <= MAX_DEPTH:
        assert parse_rules(text)
        return
    with pytest.raises(ProgramSyntaxError, match=r"nested more than|multiply out"):
        parse_rules(text)


@pytest.mark.parametrize(
    "text",
    [
        f"p(x) :- {', '.join(['(a(x) ; b(x))'] * 200)}.",
        f"p(x) :- {' ; '.join(['a(x)'] * 1_001)}.",
        f"{', '.join(['p(x)'] * 40)} :- {' ; '.join(['a(x)'] * 40)}.",
        f"p(x) :- !({' ; '.join(['(a(x), b(x))'] * 20)}).",
    ],
)
def test_the_number_of_alternatives_is_bounded(text: str) -> None:
    with pytest.raises(ProgramSyntaxError, match="multiply out to more than 1000 rules"):
        parse_rules(text)


def test_many_groups() -> None:
    (rule,) = parse_rules(f"p(x) :- {', '.join(['((a(x)))'] * 10_000)}.")
    assert len(rule.body) == 10_000


def test_terms_print_as_they_are_read() -> None:
    (rule,) = parse_rules("p(x) :- q(x), x = sum (y + 1) * 2 : { r(x, y), y != -3 }.")
    comparison = rule.body[1]
    assert isinstance(comparison, Comparison)
    assert format_term(comparison.right) == "sum (y + 1) * 2 : { r(x, y), y != -3 }"
