"""Schemas: names, types and arities from facts, declarations and rules."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest

from engine.errors import ArityError, DeclarationError, ProgramError, TypeMismatchError
from engine.language.inference import infer_schemas
from engine.language.parser import parse_declarations, parse_rules
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Rule


def schema(text: str) -> Schema:
    """`edge(x: symbol, y: ?)` as a schema."""
    relation, _, columns = text.rstrip(")").partition("(")
    pairs = [column.split(": ") for column in columns.split(", ") if column]
    return Schema(relation, tuple(Column(n, None if t == "?" else ColumnType(t)) for n, t in pairs))


def rules_of(*texts: str) -> list[Rule]:
    return [rule for text in texts for rule in parse_rules(text)]


def infer(
    rules: Sequence[str] = (), declared: str = "", stored: Sequence[str] = (), previous: Sequence[str] = ()
) -> Mapping[str, Schema]:
    return infer_schemas(
        parse_declarations(declared),
        {s.relation: s for s in map(schema, stored)},
        rules_of(*rules),
        {s.relation: s for s in map(schema, previous)},
    )


TC = ("tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).")


@pytest.mark.parametrize(
    ("rules", "declared", "stored", "previous", "expected"),
    [
        (TC, "", (), (), ["edge(x: ?, y: ?)", "tc(x: ?, y: ?)"]),
        (
            TC,
            ".decl edge(from: symbol, to: symbol)",
            (),
            (),
            ["edge(from: symbol, to: symbol)", "tc(x: symbol, y: symbol)"],
        ),
        (
            TC,
            "",
            ["edge(c0: number, c1: number)"],
            (),
            ["edge(x: number, y: number)", "tc(x: number, y: number)"],
        ),
        (TC, "", (), ["tc(a: symbol, b: symbol)"], ["edge(x: ?, y: ?)", "tc(a: ?, b: ?)"]),
        (TC, "", (), ["tc(a: symbol)"], ["edge(x: ?, y: ?)", "tc(x: ?, y: ?)"]),
        (TC, "", (), ["gone(a: symbol)"], ["edge(x: ?, y: ?)", "tc(x: ?, y: ?)"]),
        ((), "", ["edge(c0: float)"], (), ["edge(c0: float)"]),
        ((), ".decl e() .decl f(x: bool)", (), (), ["e()", "f(x: bool)"]),
        # The head of the first rule names the columns only if its arguments are distinct variables.
        (["p(x, x) :- q(x).", "p(a, b) :- q(a), q(b)."], "", (), (), ["p(c0: ?, c1: ?)", "q(x: ?)"]),
        (["p(x, 1) :- q(x).", "r(a) :- p(a, b)."], "", (), (), ["p(a: ?, b: number)", "q(x: ?)", "r(a: ?)"]),
        (["p(?x, x) :- q(?x, x)."], "", (), (), ["p(c0: ?, c1: ?)", "q(c0: ?, c1: ?)"]),
        (["p(?x, y) :- q(?x, y, _)."], "", (), (), ["p(x: ?, y: ?)", "q(c0: ?, c1: ?, c2: ?)"]),
        # Types flow through variables, both ways, through several rules.
        (
            ["p(x) :- q(x).", "q(x) :- r(x).", "r(1) :- s(_)."],
            "",
            (),
            (),
            ["p(x: number)", "q(x: number)", "r(x: number)", "s(c0: ?)"],
        ),
        (
            ["p(x) :- q(x).", "q(x) :- r(x)."],
            ".decl p(x: bool)",
            (),
            (),
            ["p(x: bool)", "q(x: bool)", "r(x: bool)"],
        ),
        (
            ["p(x, y) :- q(x, y, x), r(y, 1.5).", 's() :- q("a", 2, _).'],
            "",
            (),
            (),
            [
                "p(x: symbol, y: number)",
                "q(c0: symbol, c1: number, c2: symbol)",
                "r(c0: number, c1: float)",
                "s()",
            ],
        ),
        # The whole language.
        (
            ["p(x) :- q(x), !r(x, true)."],
            ".decl q(x: symbol)",
            (),
            (),
            ["p(x: symbol)", "q(x: symbol)", "r(c0: symbol, c1: bool)"],
        ),
        (["p(y) :- q(x), y = x + 1."], "", (), (), ["p(y: number)", "q(x: number)"]),
        (["p(y) :- q(x), 2.0 * x < y, r(y)."], "", (), (), ["p(y: float)", "q(x: float)", "r(y: float)"]),
        (
            ["p(strlen(x), cat(y, z), to_string(w)) :- q(x, y, z, w)."],
            "",
            (),
            (),
            ["p(c0: number, c1: symbol, c2: symbol)", "q(x: symbol, y: symbol, z: symbol, w: ?)"],
        ),
        (
            ['p(min(x, y), z) :- q(x, y, z), y = 1.5, contains(z, "a").'],
            "",
            (),
            (),
            ["p(c0: float, c1: symbol)", "q(x: float, y: float, z: symbol)"],
        ),
        (
            ["p(x, n, m) :- q(x), n = count : { r(x, y) }, m = mean y : { r(x, y) }."],
            ".decl r(x: symbol, y: number)",
            (),
            (),
            ["p(x: symbol, n: number, m: float)", "q(x: symbol)", "r(x: symbol, y: number)"],
        ),
        (
            ["p(m) :- m = max y : { q(y) }, n = count : { r(y) }, n > 1."],
            ".decl q(x: symbol) .decl r(x: float)",
            (),
            (),
            ["p(m: symbol)", "q(x: symbol)", "r(x: float)"],
        ),
        (
            ["sp(y, min(d + c)) :- sp(x, d), arc(x, y, c).", "sp(1, 0) :- arc(_, _, _)."],
            "",
            (),
            (),
            ["arc(x: number, y: number, c: number)", "sp(x: number, d: number)"],
        ),
        (["p(x band 1) :- q(x)."], "", (), (), ["p(c0: number)", "q(x: number)"]),
    ],
)
def test_schemas(
    rules: Sequence[str],
    declared: str,
    stored: Sequence[str],
    previous: Sequence[str],
    expected: Sequence[str],
) -> None:
    found = infer(rules, declared, stored, previous)
    assert sorted(str(s) for s in found.values()) == expected
    assert all(name == s.relation for name, s in found.items())


def test_declared_relations_are_marked() -> None:
    found = infer(TC, ".decl tc(a: number, b: number)")
    assert (found["tc"].declared, found["edge"].declared) == (True, False)


def test_types_do_not_depend_on_the_order_of_the_rules() -> None:
    texts = ["p(x) :- q(x, y), r(y).", "r(z) :- s(z, _).", "s(a, b) :- q(b, a).", 't(u) :- s("a", u).']
    found = {
        tuple(sorted((name, tuple(c.type for c in s.columns)) for name, s in infer(order).items()))
        for order in permutations(texts)
    }
    assert len(found) == 1


def test_the_same_declaration_twice_is_fine() -> None:
    found = infer((), ".decl e(x: number) .decl e(x: number)")
    assert str(found["e"]) == "e(x: number)"


def test_the_inputs_stay_as_they_are() -> None:
    declarations = list(parse_declarations(".decl edge(x: symbol, y: symbol)"))
    stored = {"edge": schema("edge(c0: symbol, c1: symbol)")}
    rules, previous = rules_of(*TC), {"tc": schema("tc(u: ?, v: ?)")}
    before = copy.deepcopy((declarations, stored, rules, previous))
    infer_schemas(declarations, stored, rules, previous)
    assert (declarations, stored, rules, previous) == before


@pytest.mark.parametrize(
    ("rules", "declared", "stored", "error", "message"),
    [
        (
            ["p(x) :- edge(x, y, z)."],
            "",
            ["edge(c0: symbol, c1: symbol)"],
            ArityError,
            "line 1, column 9: edge has 2 columns according to its facts, but here it has 3\n"
            "  p(x) :- edge(x, y, z).\n"
            "          ^^^^^^^^^^^^^",
        ),
        (
            ["p(x) :- q(x).", "p(x, y) :- q(x), q(y)."],
            "",
            (),
            ArityError,
            "line 1, column 1: p has 1 column according to its first use, but here it has 2\n"
            "  p(x, y) :- q(x), q(y).\n"
            "  ^^^^^^^",
        ),
        (
            ["p(x) :- q(x), n = count : { q(x, y) }."],
            ".decl q(x: symbol)",
            (),
            ArityError,
            "line 1, column 29: q has 1 column according to its declaration, but here it has 2\n"
            "  p(x) :- q(x), n = count : { q(x, y) }.\n"
            "                              ^^^^^^^",
        ),
        (
            (),
            ".decl edge(x: symbol)",
            ["edge(c0: symbol, c1: symbol)"],
            ArityError,
            "line 1, column 1: edge holds facts with 2 columns, but is declared with 1\n"
            "  .decl edge(x: symbol)\n"
            "  ^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            (),
            ".decl edge(x: symbol, y: number)",
            ["edge(c0: symbol, c1: symbol)"],
            TypeMismatchError,
            "line 1, column 23: column 2 (y) of edge holds symbols, but is declared number\n"
            "  .decl edge(x: symbol, y: number)\n"
            "                        ^^^^^^^^^",
        ),
        (
            (),
            ".decl e(x: symbol)\n.decl e(y: symbol)",
            (),
            DeclarationError,
            "line 2, column 1: e is already declared, as e(x: symbol)\n"
            "  .decl e(y: symbol)\n"
            "  ^^^^^^^^^^^^^^^^^^",
        ),
        (
            ['p(x) :- edge(x, "b").'],
            ".decl edge(x: symbol, y: number)",
            (),
            TypeMismatchError,
            'line 1, column 17: column 2 (y) of edge holds numbers, but "b" is a symbol\n'
            '  p(x) :- edge(x, "b").\n'
            "                  ^^^",
        ),
        (
            ["p(x) :- q(x), r(x)."],
            ".decl q(a: symbol)",
            ["r(c0: number)"],
            TypeMismatchError,
            "line 1, column 17: column 1 (x) of r holds numbers, but x is a symbol\n"
            "  p(x) :- q(x), r(x).\n"
            "                  ^",
        ),
        (
            ["p(x) :- q(x, x), r(_).", "s(1) :- q(_, _).", 's("a") :- q(_, _).'],
            "",
            (),
            TypeMismatchError,
            'line 1, column 3: column 1 of s holds numbers, but "a" is a symbol\n  s("a") :- q(_, _).\n    ^^^',
        ),
        (
            ["p(x) :- q(x, 1), q(y, 1.0)."],
            "",
            (),
            TypeMismatchError,
            "line 1, column 23: column 2 of q holds numbers, but 1.0 is a float\n"
            "  p(x) :- q(x, 1), q(y, 1.0).\n"
            "                        ^^^",
        ),
        (
            ['p(x) :- q(x), x + 1 < "a".'],
            "",
            (),
            TypeMismatchError,
            'line 1, column 23: x + 1 is a number, but "a" is a symbol; < takes values of one type\n'
            '  p(x) :- q(x), x + 1 < "a".\n'
            "                        ^^^",
        ),
        (
            ["p(-x) :- q(x)."],
            ".decl q(x: symbol)",
            (),
            TypeMismatchError,
            "line 1, column 4: - needs numbers or floats, but x is a symbol\n  p(-x) :- q(x).\n     ^",
        ),
        (
            ["p(x) :- q(x), strlen(x) = x."],
            "",
            (),
            TypeMismatchError,
            "line 1, column 27: strlen(x) is a number, but x is a symbol; = takes values of one type\n"
            "  p(x) :- q(x), strlen(x) = x.\n"
            "                            ^",
        ),
        (
            ["p(strlen(3)) :- q(_)."],
            "",
            (),
            TypeMismatchError,
            "line 1, column 10: strlen needs a symbol here, but 3 is a number\n"
            "  p(strlen(3)) :- q(_).\n"
            "           ^",
        ),
        (
            ["p(x) :- q(x), x = count : { q(_) }."],
            ".decl q(x: symbol)",
            (),
            TypeMismatchError,
            "line 1, column 19: count : { q(_) } is a number, but a symbol is needed here\n"
            "  p(x) :- q(x), x = count : { q(_) }.\n"
            "                    ^^^^^^^^^^^^^^^^",
        ),
        (
            ["p(x) :- q(x), !r(x)."],
            ".decl q(x: symbol) .decl r(x: bool)",
            (),
            TypeMismatchError,
            "line 1, column 18: column 1 (x) of r holds bools, but x is a symbol\n"
            "  p(x) :- q(x), !r(x).\n"
            "                   ^",
        ),
    ],
)
def test_contradictions(
    rules: Sequence[str], declared: str, stored: Sequence[str], error: type[ProgramError], message: str
) -> None:
    with pytest.raises(ProgramError) as raised:
        infer(rules, declared, stored)
    assert str(raised.value) == message
    assert type(raised.value) is error


def test_a_mismatch_as_data() -> None:
    with pytest.raises(TypeMismatchError) as raised:
        infer(['p(x) :- edge(x, "b").'], ".decl edge(x: symbol, y: number)")
    problem = raised.value.problem()
    wanted = {"relation": "edge", "column_name": "y", "expected": "number", "got": "symbol", "column": 17}
    assert {key: problem[key] for key in wanted} == wanted


def test_a_long_chain_of_rules() -> None:
    texts = [f"p{i}(x) :- p{i + 1}(x)." for i in range(3_000)]
    found = infer(texts, "", ["p3000(c0: float)"])
    assert str(found["p0"]) == "p0(x: float)"
