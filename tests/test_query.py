"""Ad hoc queries in process: what they answer, what they refuse, and that they leave no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import errors as e
from engine.database.query import prepare
from engine.language.parser import parse_query
from engine.language.syntax import Atom, Variable
from engine.maintenance.placement import Budget
from zedlog import Reasoner

EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("b", "d")]
RULES = [("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)]


@pytest.fixture
def graph() -> Reasoner:
    reasoner = Reasoner()
    facts: dict[str, Any] = {
        "edge": [(pair, 1) for pair in EDGES],
        "blocked": [(("c",), 1)],
        "cost": [(("a", 3), 1), (("b", 4), 1)],
        "share": [(("a", 0.5), 1)],
        "on": [((True,), 1)],
    }
    reasoner.apply(facts=facts, rules=RULES, declarations=".decl nothing(x: symbol)")
    return reasoner


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        # From the closure a -> b, c, d; b -> c, d; c -> d.
        ('tc("a", x), !blocked(x)', "x", [("b",), ("d",)]),
        ('tc("a", x), n = count : { edge(x, _) }, n > 1', "x n", [("b", 2)]),
        ('tc("a", x), n = count : { edge(x, _) }', "x n", [("b", 2), ("c", 1), ("d", 0)]),
        ("n = count : { edge(_, _) }", "n", [(5,)]),
        ("n = count : { nothing(_) }", "n", [(0,)]),
        ("n = max k : { cost(_, k) }, s = sum k : { cost(_, k) }", "n s", [(4, 7)]),
        ("m = mean k : { cost(_, k) }", "m", [(3.5,)]),
        ("cost(y, n), edge(x, y), m = n * 2 + 1", "y n x m", [("b", 4, "a", 9)]),
        ("edge(x, y), edge(y, z), edge(x, z)", "x y z", [("a", "b", "d"), ("b", "c", "d")]),
        ("edge(x, _), edge(_, x)", "x", [("b",), ("c",)]),
        ("edge(x, y), !edge(_, x)", "x y", [("a", "b"), ("a", "d")]),
        ("edge(x, y), x != y, !tc(y, _)", "x y", [("a", "d"), ("b", "d"), ("c", "d")]),
        ('x = "a", edge(x, y)', "x y", [("a", "b"), ("a", "d")]),
        ('edge(x, y), y = "d", !blocked(x)', "x y", [("a", "d"), ("b", "d")]),
        ("cost(x, n + 1), cost(_, n)", "x n", [("b", 3)]),
        ('edge(x, "b"), s = cat(x, "-new")', "x s", [("a", "a-new")]),
        ('x = "made here", n = strlen(x)', "x n", [("made here", 9)]),
        ('edge(x, y), x < y, y < "c"', "x y", [("a", "b")]),
        ('edge(x, y), y != "not a symbol of the database", contains("b", y)', "x y", [("a", "b")]),
        ("share(x, f), g = f * 2.0", "x f g", [("a", 0.5, 1.0)]),
        ("on(b), cost(x, 3)", "b x", [(True, "a")]),
        ("blocked(x); edge(x, _)", "x", [("a",), ("b",), ("c",)]),
        ("edge(x, y), (blocked(y); cost(y, _))", "x y", [("a", "b"), ("b", "c")]),
        ('edge("a", "b"), !blocked("a")', "", [()]),
        ('edge("a", "b"), blocked("a")', "", []),
        ("nothing(x), edge(x, y)", "x y", []),
        ('edge("nowhere", x), blocked(x)', "x", []),
        ("?- ?x = 1, y = ?x + 1.", "?x y", [(1, 2)]),
        # With a head.
        ("q(y, x) :- edge(x, y), blocked(y)", "y x", [("c", "b")]),
        ("q(x) :- edge(x, _).", "x", [("a",), ("b",), ("c",)]),
        ("edge(x, x) :- edge(x, _)", "x c1", [("a", "a"), ("b", "b"), ("c", "c")]),
        ("q(count(x), sum(y)) :- cost(x, y)", "c0 c1", [(2, 7)]),
        ("q(x, count(y)) :- edge(x, y)", "x c1", [("a", 2), ("b", 2), ("c", 1)]),
        ("q(min(n)) :- cost(_, n)", "c0", [(3,)]),
        ('q(cat(x, y), 3, c1) :- edge(x, y), blocked(y), c1 = "z"', "c0 c1_ c1", [("bc", 3, "z")]),
        ("q(x) :- blocked(x); cost(x, 3)", "x", [("a",), ("c",)]),
        ("q() :- edge(_, _)", "", [()]),
    ],
)
def test_answers(graph: Reasoner, text: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    answer = graph.query(text)
    assert " ".join(column.name for column in answer.columns) == columns
    assert sorted(answer.tuples) == rows


def test_types_of_columns(graph: Reasoner) -> None:
    columns = graph.query('cost(x, n), s = cat(x, "!"), f = 1.5, b = true').columns
    assert [(c.name, c.type) for c in columns] == [
        ("x", "symbol"),
        ("n", "number"),
        ("s", "symbol"),
        ("f", "float"),
        ("b", "bool"),
    ]


def test_a_query_leaves_no_trace(graph: Reasoner) -> None:
    before, exported = graph.state(), graph.export()
    assert graph.query('edge(x, _), s = cat(x, " and a new symbol")').tuples
    with pytest.raises(e.EvaluationError):
        graph.query('cost(x, n), n / (n - 3) > 0, s = cat(x, "other")')
    assert graph.state() == before
    assert graph.export().symbols == exported.symbols
    assert graph.epoch == 1
    graph.check_invariants()


def test_it_reads_the_newest_epoch_and_facts_that_are_derived_too(graph: Reasoner) -> None:
    graph.apply(facts={"tc": [(("d", "a"), 1), (("a", "b"), 1)], "edge": [(("c", "d"), -1)]})
    expected = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("d", "a")]
    # The closure starts from tc's own facts as well: d -> a -> b, d.
    expected += [("d", "b"), ("d", "c"), ("d", "d")]
    assert sorted(graph.query("q(x, y) :- tc(x, y)").tuples) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "error", "message", "at"),
    [
        ("edge(x, y), ", e.ProgramSyntaxError, "expected an atom or a condition", (1, 12)),
        ("edge(x, y) blocked(y)", e.ProgramSyntaxError, "',', ';', '.' or the end of the text", (1, 12)),
        ("edge(x, y). blocked(y).", e.ProgramSyntaxError, "expected the end of the text", (1, 13)),
        ("", e.ProgramSyntaxError, "expected an atom", (1, 1)),
        ("q(x) :- r(x) :- edge(x, _)", e.ProgramSyntaxError, "':-'", (1, 14)),
        ("edge(x, y),\n  egde(y, z)", e.UnknownRelationError, 'Did you mean "edge"?', (2, 3)),
        ("n = count : { egde(_, _) }", e.UnknownRelationError, 'Did you mean "edge"?', (1, 15)),
        ("edge(x, y), edge(y)", e.ArityError, "edge has 2 columns, but here it has 1", (1, 13)),
        ("edge(x, y), cost(x, y)", e.TypeMismatchError, "column 2 (c1) of cost holds numbers", (1, 21)),
        ("edge(x, y), x < 3", e.TypeMismatchError, "x is a symbol, but 3 is a number", (1, 17)),
        ("edge(x, y), z > 1", e.UnsafeRuleError, "the variable z in a condition", (1, 13)),
        ("edge(x, _), !blocked(y)", e.UnsafeRuleError, "the variable y in a negated atom", (1, 22)),
        ("edge(x, y), n = m + 1", e.UnsafeRuleError, "the variable n in a condition", (1, 13)),
        ("blocked(x); cost(x, n)", e.UnsafeRuleError, "n does not occur in every alternative", (1, 21)),
        ("q(z) :- edge(x, y)", e.UnsafeRuleError, "the variable z in the head", (1, 3)),
        ("q(_) :- edge(x, y)", e.UnsafeRuleError, "'_' cannot be used in the head", (1, 3)),
        (
            "q(x) :- edge(x, _); cost(_, x)",
            e.TypeMismatchError,
            "of cost holds numbers, but x is a symbol",
            (1, 29),
        ),
        (", ".join(["edge(x, y)"] * 65), e.UnsupportedFeatureError, "64 literals", None),
        (", ".join(["(edge(x, y); tc(x, y))"] * 6), e.UnsupportedFeatureError, "256 in all", None),
    ],
)
def test_refusals_show_the_place(
    graph: Reasoner, text: str, error: type[e.ZedlogError], message: str, at: tuple[int, int] | None
) -> None:
    with pytest.raises(error) as raised:
        graph.query(text)
    problem = raised.value.problem()
    assert message in problem["message"]
    assert "@" not in str(problem)
    if at is not None:
        assert (problem["line"], problem["column"]) == at
        assert problem["rendered"].splitlines()[-1] == " " * (at[1] + 1) + "^" * problem["rendered"].count(
            "^"
        )


def test_a_computation_without_a_value_names_the_binding(graph: Reasoner) -> None:
    with pytest.raises(e.EvaluationError, match="divides by zero") as raised:
        graph.query("cost(x, n), m = 12 / (n - 3)")
    assert raised.value.detail["binding"] == {"x": "a", "n": 3}
    assert "@" not in str(raised.value.problem())


def many(n: int) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts={"p": [((i,), 1) for i in range(n)]})
    return reasoner


@pytest.mark.parametrize(
    ("budget", "what"),
    [
        (Budget(tuples=5_000), "tuples"),
        (Budget(derivations=100_000), "derivations"),
        (Budget(seconds=0.0), "seconds"),
        (Budget(memory=100_000), "memory"),
    ],
)
def test_budgets(budget: Budget, what: str) -> None:
    reasoner = many(1_000)
    before = reasoner.state()
    with pytest.raises(e.BudgetExceededError, match=r"the query (takes|needs) more") as raised:
        reasoner.query("p(x), p(y), x < y", budget)
    assert raised.value.detail["budget"] == what
    assert reasoner.state() == before
    assert len(reasoner.query("p(x), x < 10", Budget(tuples=5_000, derivations=100_000)).tuples) == 10


def test_it_can_be_cancelled_between_chunks() -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with pytest.raises(e.EvaluationCancelledError):
        many(3_000).query("p(x), p(y), x != y", Budget(cancelled=cancelled))
    assert asked == 4


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ('tc("a", x), tc(x, "d")', {"tc": ({0: "a"}, {1: "d"})}),
        ('tc("a", x), tc(x, y)', {"tc": ({},)}),
        ('tc(x, y), x = "a", !blocked(x)', {"tc": ({0: "a"},), "blocked": ({0: "a"},)}),
        ('tc("a", x), n = count : { edge(x, "b") }', {"tc": ({0: "a"},), "edge": ({1: "b"},)}),
        ('tc("a", x); tc(x, "a")', {"tc": ({0: "a"}, {1: "a"})}),
        ('x = "a"; tc(x, _)', {"tc": ({},)}),
        ("cost(_, -3), cost(_, n), n = 4", {"cost": ({1: -3}, {1: 4})}),
    ],
)
def test_constants_narrow_what_is_read(graph: Reasoner, text: str, reads: dict[str, Any]) -> None:
    assert prepare(parse_query(text), graph.relations()).reads == reads


def test_what_is_a_single_goal() -> None:
    atom = Atom("p", (Variable("x"), Variable("y")))
    assert parse_query("?- p(x, y).").goal == atom
    for text in (
        "p(x, y), p(y, x)",
        "!p(x, y)",
        "p(x, y + 1)",
        "q(x) :- p(x, y)",
        "p(x, y); p(y, x)",
        "x = 1",
    ):
        assert parse_query(text).goal is None


@pytest.mark.parametrize("text", ['p(":-")', "p(x) // :- no head", "p(x) /* :- \n */, q(x)", '"\\":-" = x'])
def test_a_head_is_one_only_outside_of_strings_and_comments(text: str) -> None:
    assert parse_query(text).head is None


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14, unique=True)
Pairs = set[tuple[int, int]]
EXPECTED: dict[str, Callable[[Pairs, Pairs], set[tuple[int, ...]]]] = {
    "p(x, y), q(y, z)": lambda p, q: {(x, y, z) for x, y in p for b, z in q if b == y},
    "p(x, y), !q(y, x)": lambda p, q: {(x, y) for x, y in p if (y, x) not in q},
    "p(x, y), !q(y, _)": lambda p, q: {(x, y) for x, y in p if y not in {a for a, _ in q}},
    "p(x, x), q(x, y), x + y > 4": lambda p, q: {(x, y) for x, y in q if (x, x) in p and x + y > 4},
    "p(x, 2), q(3, x)": lambda p, q: {(x,) for x, y in p if y == 2 and (3, x) in q},
    "p(x, _), n = count : { q(x, _) }": lambda p, q: {(x, sum(a == x for a, _ in q)) for x, _ in p},
    "p(x, _), n = sum y : { q(_, y), y > x }": lambda p, q: {
        (x, sum(y for _, y in q if y > x)) for x, _ in p
    },
    "p(x, _), n = max y : { q(x, y) }": lambda p, q: {
        (x, max(y for a, y in q if a == x)) for x, _ in p if any(a == x for a, _ in q)
    },
    "p(x, y); q(y, x)": lambda p, q: p | {(x, y) for y, x in q},
    "r(x, count(y)) :- p(x, y), q(y, _)": lambda p, q: {
        (x, sum(a == x and b == y for a, y in p for b, _ in q)) for x, z in p if z in {b for b, _ in q}
    },
}


@pytest.mark.parametrize("text", EXPECTED)
@settings(max_examples=25, deadline=None)
@given(p=pairs, q=pairs)
def test_oracle_comprehensions(text: str, p: list[tuple[int, int]], q: list[tuple[int, int]]) -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"p": [(t, 1) for t in p], "q": [(t, 1) for t in q]},
        declarations=".decl p(x: number, y: number)\n.decl q(x: number, y: number)",
    )
    rows = reasoner.query(text).tuples
    assert len(rows) == len(set(rows))
    assert set(rows) == EXPECTED[text](set(p), set(q))
