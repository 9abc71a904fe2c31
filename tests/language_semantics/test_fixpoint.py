"""Count, sum and mean in recursion: programs whose limits are known by hand or by numpy, under changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.errors import (
    DeclarationError,
    FixpointNotReachedError,
    StratificationError,
    UnsupportedFeatureError,
)
from engine.language.parser import parse_program
from tests.full import full
from tests.language_semantics.test_aggregates import pairs, reasoner_with
from tests.language_semantics.test_negation import facts
from tests.oracle.subject import assert_same_state, changes_of, everything, restarted
from zedlog import Reasoner

PROGRAMS = Path(__file__).parent.parent.parent / "programs"
CHAIN = ["n(y, count(x)) :- n(x, _), e(x, y).", "n(x, count(x)) :- start(x)."]
CHAIN_DECLARED = ".decl n(x: number, c: number) fixpoint"


def declared(declarations: str, rules: list[str], **given: Any) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(declarations=declarations, facts=facts(**given), rules=[(rule, 1) for rule in rules])
    return reasoner


def program(name: str) -> tuple[str, list[str]]:
    """The declarations and the rules of a program of the library."""
    text = (PROGRAMS / f"{name}.dl").read_text()
    lines = text.splitlines()
    parsed = parse_program(text)
    declarations = "\n".join(line for line in lines if line.startswith(".decl"))
    return declarations, [lines[rule.span.line - 1] for rule in parsed.rules]


# ---- attend the party


def test_attend_the_party_under_changes() -> None:
    declarations, rules = program("attend")
    friends = [("dan", "ann"), ("dan", "bob"), ("dan", "cat")]
    friends += [("eve", "ann"), ("eve", "bob"), ("eve", "dan"), ("fay", "eve"), ("fay", "dan")]
    reasoner = declared(declarations, rules, organizer=["ann", "bob", "cat"], friend=friends)
    assert {x for (x,) in reasoner.facts("attend")} == {"ann", "bob", "cat", "dan", "eve"}
    assert pairs(reasoner, "cnt") == {"dan": 3, "eve": 3, "fay": 2}
    # Without cat dan stays away, and without dan so does eve.
    result = reasoner.apply(facts={"organizer": [(("cat",), -1)]})
    assert changes_of(result)["attend"] == {("cat",): -1, ("dan",): -1, ("eve",): -1}
    assert pairs(reasoner, "cnt") == {"dan": 2, "eve": 2}
    # Nobody of a circle who only come if the others do comes.
    circle = [(a, b) for a in ("x", "y", "z", "u") for b in ("x", "y", "z", "u") if a != b]
    reasoner.apply(facts=facts(friend=circle))
    assert {x for (x,) in reasoner.facts("attend")} == {"ann", "bob"}
    reasoner.apply(facts=facts(organizer=["x", "y", "z"]))
    assert pairs(reasoner, "cnt") == {"dan": 2, "eve": 2, "x": 3, "y": 3, "z": 3, "u": 3}
    reasoner.apply(facts={"organizer": [(("z",), -1)]})
    # x and y come; z and u count them and each other, and neither reaches three.
    assert {x for (x,) in reasoner.facts("attend")} == {"ann", "bob", "x", "y"}
    assert_same_state(reasoner, restarted(reasoner))
    reasoner.check_invariants()


# ---- PageRank


def links(edges: npt.NDArray[np.int64]) -> set[tuple[int, int, float]]:
    out = np.bincount(edges[:, 0])
    return {(int(y), int(x), float(out[y])) for y, x in edges}


def ranks(edges: npt.NDArray[np.int64], vertices: int) -> npt.NDArray[np.float64]:
    """Power iteration far beyond the tolerance."""
    out = np.bincount(edges[:, 0], minlength=vertices)
    rank = np.zeros(vertices)
    for _ in range(400):
        shares = rank[edges[:, 0]] / out[edges[:, 0]]
        rank = 0.15 / vertices + 0.85 * np.bincount(edges[:, 1], weights=shares, minlength=vertices)
    return rank


def test_pagerank_equals_power_iteration_while_edges_go() -> None:
    declarations, rules = program("pagerank")
    declarations = declarations.replace("1e-9", "1e-7")
    random = np.random.default_rng(3)
    vertices = 60
    ring = np.column_stack((np.arange(vertices), (np.arange(vertices) + 1) % vertices))
    edges = np.unique(np.concatenate((ring, random.integers(0, vertices, (240, 2)))), axis=0)
    reasoner = Reasoner()
    reasoner.apply(
        declarations=declarations,
        facts={"matrix": [(t, 1) for t in links(edges)], "vertices": [((float(vertices),), 1)]},
        rules=[(rule, 1) for rule in rules],
    )
    for number in range(4):
        rank = pairs(reasoner, "rank")
        expected = ranks(edges, vertices)
        # Each vertex holds within 1e-7 of what its neighbours give it, and 0.85 of an error is handed on.
        assert sum(abs(rank[x] - expected[x]) for x in range(vertices)) < vertices * 1e-7 / 0.15
        if number == 2:
            assert_same_state(reasoner, restarted(reasoner))
        # No edge of the ring goes: each vertex keeps an edge that enters and one that leaves.
        loose = np.flatnonzero((edges[:, 0] + 1) % vertices != edges[:, 1])
        left = np.delete(edges, random.choice(loose), axis=0)
        change = [(t, -1) for t in links(edges) - links(left)] + [(t, 1) for t in links(left) - links(edges)]
        result = reasoner.apply(facts={"matrix": change})
        assert "rank" in result.changes
        edges = left


def test_a_coarser_tolerance_comes_to_rest_earlier() -> None:
    _, rules = program("pagerank")
    edges = np.array([(1, 2), (1, 3), (2, 1), (3, 1)])
    last = []
    for tolerance in ("1e-2", "1e-6"):
        declaration = f".decl rank(x: number, r: float) fixpoint(tolerance={tolerance})"
        reasoner = declared(declaration, rules, matrix=sorted(links(edges)), vertices=[3.0])
        assert abs(pairs(reasoner, "rank")[1] - 18 / 37) < float(tolerance) / 0.15
        last.append(max(h for by in reasoner.state()["supports"]["rank"].values() for h in by))
    assert last[0] < last[1] / 2


@full
def test_pagerank_of_10_000_edges() -> None:
    """Before and after one edge goes, which moves the rank of every vertex at almost every height."""
    declarations, rules = program("pagerank")
    random = np.random.default_rng(1)
    vertices = 1_000
    ring = np.column_stack((np.arange(vertices), (np.arange(vertices) + 1) % vertices))
    edges = np.unique(np.concatenate((ring, random.integers(0, vertices, (10_000, 2)))), axis=0)
    reasoner = Reasoner()
    reasoner.apply(
        declarations=declarations,
        facts={"matrix": [(t, 1) for t in links(edges)], "vertices": [((float(vertices),), 1)]},
        rules=[(rule, 1) for rule in rules],
    )
    for left in (np.delete(edges, 17, axis=0), None):
        rank, expected = pairs(reasoner, "rank"), ranks(edges, vertices)
        assert sum(abs(rank[x] - expected[x]) for x in range(vertices)) < vertices * 1e-9 / 0.15
        if left is not None:
            gone, new = links(edges) - links(left), links(left) - links(edges)
            reasoner.apply(facts={"matrix": [(t, -1) for t in gone] + [(t, 1) for t in new]})
            edges = left


# ---- the timeline


def test_the_supports_are_the_timeline_of_each_group() -> None:
    """1 is counted once from the start, and once more when 2, which it leads to, leads back."""
    reasoner = declared(CHAIN_DECLARED, CHAIN, start=[1], e=[(1, 2), (2, 1)])
    assert set(reasoner.facts("n")) == {(1, 2), (2, 1)}
    assert reasoner.state()["supports"]["n"] == {(1, 1): {1: 1, 3: -1}, (1, 2): {3: 1}, (2, 1): {2: 1}}
    result = reasoner.apply(facts={"e": [((2, 1), -1)]})
    assert changes_of(result)["n"] == {(1, 2): -1, (1, 1): 1}
    assert reasoner.state()["supports"]["n"] == {(1, 1): {1: 1}, (2, 1): {2: 1}}
    assert reasoner.state()["entries"]["n"] == {(1, 1): {1: 1}, (2, 1): {2: 1}}


def test_integers_floats_and_means() -> None:
    """t = 1 + t / 2 in whole numbers; f = 1 + f / 2, which is 2; a is the mean of 1 and a / 2, which is 2 / 3."""
    declarations = """
        .decl t(x: number, n: number) fixpoint
        .decl f(x: number, r: float) fixpoint(tolerance=1e-6)
        .decl a(x: number, r: float) fixpoint(tolerance=1e-6)
    """
    rules = ["t(x, sum(k)) :- s(x), k = 1.", "t(x, sum(k)) :- t(x, n), k = n / 2 + n % 2."]
    rules += ["f(x, sum(k)) :- s(x), k = 1.0.", "f(x, sum(k)) :- f(x, r), k = r / 2.0."]
    rules += ["a(x, mean(k)) :- s(x), k = 1.0.", "a(x, mean(k)) :- a(x, r), k = r / 2.0."]
    reasoner = declared(declarations, rules, s=[7])
    # 1, 1 + 1 = 2, 1 + 1 = 2.
    assert reasoner.facts("t") == [(7, 2)]
    assert pairs(reasoner, "f")[7] == pytest.approx(2, abs=2e-6)
    assert pairs(reasoner, "a")[7] == pytest.approx(2 / 3, abs=2e-6)
    reasoner.apply(facts={"s": [((7,), -1)]})
    assert not any(reasoner.facts(name) for name in "tfa")


def test_a_tolerance_holds_a_count_and_forgets_nothing_under_retraction() -> None:
    """A second friend is within the tolerance, a third is not; which came first makes no difference."""
    rules = ["n(y, count(x)) :- n(x, _), e(x, y).", "n(y, count(x)) :- b(x, y)."]
    declaration = ".decl n(x: number, c: number) fixpoint(tolerance=1)"
    reasoner = declared(declaration, rules, b=[(1, 5)], e=[(5, 6), (6, 5)])
    # 5 is counted once at height 1, twice at height 3: held.
    assert set(reasoner.facts("n")) == {(5, 1), (6, 1)}
    reasoner.apply(facts=facts(b=[(2, 5)]))
    # Two from the start, and the third is within the tolerance again.
    assert set(reasoner.facts("n")) == {(5, 2), (6, 1)}
    assert_same_state(reasoner, declared(declaration, rules, b=[(2, 5), (1, 5)], e=[(6, 5), (5, 6)]))
    reasoner.apply(facts={"b": [((1, 5), -1)]})
    assert set(reasoner.facts("n")) == {(5, 1), (6, 1)}


@pytest.mark.parametrize("length", [300])
def test_a_long_chain_and_a_change_at_its_start(length: int) -> None:
    """A group a height: the work is that of the chain, not of its square."""
    edges = [(i, i + 1) for i in range(length)]
    declaration = f".decl n(x: number, c: number) fixpoint(max_height={length + 2})"
    reasoner = declared(declaration, CHAIN, start=[0], e=edges)
    assert pairs(reasoner, "n") == dict.fromkeys(range(length + 1), 1)
    assert reasoner.apply(facts={"start": [((0,), -1)]}).counts["n"] == (0, length + 1)
    result = reasoner.apply(facts={"start": [((0,), 1)], "e": [((length, 0), 1)]}, mode="set")
    assert result.counts["n"] == (length + 1, 0)
    # The ring counts its start twice, from the height on at which it is closed: one too many.
    assert pairs(reasoner, "n")[0] == 2


# ---- what is refused


def test_what_still_changes_after_max_height_is_refused_by_name() -> None:
    rules = [
        "p(x) :- s(x).",
        "c(x, count(y)) :- p(y), s(x).",
        "q(x) :- c(x, n), n < 2.",
        "p(y) :- q(x), e(x, y).",
    ]
    declaration = ".decl c(x: symbol, n: number) fixpoint(max_height=30)"
    reasoner = declared(declaration, rules, s=["a"])
    assert reasoner.facts("c") == [("a", 1)]
    before = everything(reasoner)
    # With b there are two, then not fewer than two, so b goes, then there are fewer than two ...
    with pytest.raises(FixpointNotReachedError, match="max_height") as refused:
        reasoner.apply(facts=facts(e=[("a", "b")]))
    detail = refused.value.detail
    assert (detail["relation"], detail["group"], detail["max_height"]) == ("c", ["a"], 30)
    assert sorted(detail["values"]) == [1, 2]
    assert detail["height"] > 30
    assert everything(reasoner) == before
    reasoner.check_invariants()
    reasoner.apply(facts=facts(s=["z"]))
    assert set(reasoner.facts("c")) == {("a", 2), ("z", 2)}


def test_a_growing_sum_is_refused_and_a_larger_max_height_taken() -> None:
    rules = ["t(x, sum(k)) :- s(x, k).", "t(y, sum(k)) :- t(x, k), e(x, y)."]
    declaration = ".decl t(x: number, n: number) fixpoint(max_height=3)"
    reasoner = declared(declaration, rules, s=[(1, 1)], e=[(1, 2), (2, 3)])
    with pytest.raises(FixpointNotReachedError) as refused:
        reasoner.apply(facts=facts(e=[(3, 4)]))
    assert refused.value.detail["values"] == [None, 1]
    reasoner.apply(declarations=declaration.replace("3)", "4)"), facts=facts(e=[(3, 4)]))
    assert pairs(reasoner, "t") == {1: 1, 2: 1, 3: 1, 4: 1}
    # Back to what is too small now: the program that is there would not come to rest.
    before = everything(reasoner)
    with pytest.raises(FixpointNotReachedError):
        reasoner.apply(declarations=declaration)
    assert everything(reasoner) == before
    with pytest.raises(FixpointNotReachedError):
        reasoner.apply(facts=facts(e=[(4, 1)]))
    assert everything(reasoner) == before


def test_another_tolerance_builds_the_stratum_anew() -> None:
    _, rules = program("pagerank")
    edges = np.array([(1, 2), (1, 3), (2, 1), (3, 1)])
    coarse, fine = (
        f".decl rank(x: number, r: float) fixpoint(tolerance={t}, max_height=200)" for t in (0.01, 1e-7)
    )
    reasoner = declared(coarse, rules, matrix=sorted(links(edges)), vertices=[3.0])
    result = reasoner.apply(declarations=fine)
    assert "rank" in result.changes
    assert_same_state(reasoner, declared(fine, rules, matrix=sorted(links(edges)), vertices=[3.0]))
    assert_same_state(reasoner, restarted(reasoner))


def test_without_the_declaration_the_error_says_what_to_declare() -> None:
    reasoner = reasoner_with([], start=[1], e=[(1, 2)])
    with pytest.raises(StratificationError, match="count") as refused:
        reasoner.apply(rules=[(rule, 1) for rule in CHAIN])
    hint = ".decl n(c0: number, c1: number) fixpoint(tolerance=0.0, max_height=1000)"
    assert hint in str(refused.value)
    reasoner.apply(declarations=hint, rules=[(rule, 1) for rule in CHAIN])
    assert set(reasoner.facts("n")) == {(1, 1), (2, 1)}


def test_an_aggregate_in_a_body_and_negation_stay_stratified() -> None:
    reasoner = Reasoner()
    declaration = ".decl p(x: number, n: number) fixpoint"
    for rule in (
        "p(x, count(y)) :- s(x), y = count : { p(_, _) }.",
        "p(x, count(x)) :- s(x), !p(x, 1).",
        "p(x, count(n)) :- s(x), n = sum k : { p(_, k), k < x }.",
    ):
        with pytest.raises(StratificationError, match="depends on itself"):
            reasoner.apply(declarations=declaration, rules=[(rule, 1)])


@pytest.mark.parametrize("rule", ["p(x, n) :- q(x, n).", "p(x, min(n)) :- q(x, n)."])
def test_fixpoint_is_for_relations_that_fold(rule: str) -> None:
    reasoner = Reasoner()
    reasoner.apply(declarations=".decl p(x: number, n: number) fixpoint")
    with pytest.raises(DeclarationError, match="fixpoint"):
        reasoner.apply(rules=[(rule, 1)])
    reasoner.apply(rules=[("p(x, count(n)) :- q(x, n).", 1)], facts=facts(q=[(1, 2), (1, 3)]))
    assert reasoner.facts("p") == [(1, 2)]


def test_facts_beside_a_fixpoint_are_refused() -> None:
    reasoner = declared(CHAIN_DECLARED, CHAIN, start=[1])
    with pytest.raises(UnsupportedFeatureError, match="aggregated"):
        reasoner.apply(facts=facts(n=[(1, 9)]))
