"""Aggregates in bodies and heads, also recursive ones, under changes: values that anyone can compute by hand."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    StratificationError,
    UnsafeRuleError,
    UnsupportedFeatureError,
    ZedlogError,
)
from engine.maintenance.placement import Budget
from tests.language_semantics.test_negation import facts
from tests.oracle.subject import assert_same_state, changes_of, everything
from zedlog import Reasoner


def reasoner_with(rules: list[str], **given: Any) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(**given), rules=[(rule, 1) for rule in rules])
    return reasoner


def pairs(reasoner: Reasoner, relation: str) -> dict[Any, Any]:
    """The tuples of a relation of two columns, of which the first is a key."""
    rows: Any = reasoner.facts(relation)
    return dict(rows)


def test_the_next_best_follows_when_the_best_goes() -> None:
    reasoner = reasoner_with(["best(i, max(p)) :- bid(i, p)."], bid=[("a", 5), ("a", 9), ("a", 7)])
    for gone, follows in ((9, 7), (7, 5)):
        result = reasoner.apply(facts={"bid": [(("a", gone), -1)]})
        assert changes_of(result)["best"] == {("a", gone): -1, ("a", follows): 1}
    result = reasoner.apply(facts={"bid": [(("a", 5), -1)]})
    assert changes_of(result)["best"] == {("a", 5): -1}
    assert reasoner.facts("best") == []


def test_one_copy_of_the_best_goes_and_nothing_changes() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"bid": [(("a", 9), 2), (("a", 5), 1)]}, rules=[("best(i, max(p)) :- bid(i, p).", 1)]
    )
    assert "best" not in reasoner.apply(facts={"bid": [(("a", 9), -1)]}).changes
    assert reasoner.facts("best") == [("a", 9)]


def test_a_best_that_two_contributions_have_stays_until_both_are_gone() -> None:
    reasoner = reasoner_with(["low(min(p)) :- bid(_, p)."], bid=[("a", 3), ("b", 3), ("c", 4)])
    assert "low" not in reasoner.apply(facts={"bid": [(("a", 3), -1)]}).changes
    assert changes_of(reasoner.apply(facts={"bid": [(("b", 3), -1)]}))["low"] == {(3,): -1, (4,): 1}


@pytest.mark.parametrize(
    ("aggregate", "empty"),
    [
        ("count : { q(x, _) }", 0),
        ("sum y : { q(x, y) }", 0),
        ("min y : { q(x, y) }", None),
        ("max y : { q(x, y) }", None),
        ("mean y : { q(x, y) }", None),
    ],
)
def test_empty_groups(aggregate: str, empty: int | None) -> None:
    """As in Souffle: nothing counts and sums to 0, and has no smallest, largest or mean value."""
    reasoner = Reasoner()
    # Declared, because a sum of nothing is 0 or 0.0 by the type of what there is nothing of.
    reasoner.apply(declarations=".decl q(x: number, y: number)", facts=facts(p=[1, 2], q=[(1, 4)]))
    reasoner.apply(rules=[(f"r(x, n) :- p(x), n = {aggregate}.", 1)])
    one = {"count": 1, "mean": 4.0}.get(aggregate.split()[0], 4)
    expected = {(1, one)} | ({(2, empty)} if empty is not None else set())
    assert set(reasoner.facts("r")) == expected
    reasoner.apply(facts={"q": [((1, 4), -1)]})
    assert set(reasoner.facts("r")) == ({(1, empty), (2, empty)} if empty is not None else set())
    reasoner.apply(facts={"q": [((2, -3), 1), ((2, 5), 1)]})
    two = {"count": 2, "sum": 2, "min": -3, "max": 5, "mean": 1.0}[aggregate.split()[0]]
    assert (2, two) in reasoner.facts("r")


def test_an_empty_sum_of_floats_is_a_float() -> None:
    reasoner = Reasoner()
    reasoner.apply(declarations=".decl q(y: float)", rules=[("r(s) :- s = sum y : { q(y) }.", 1)])
    assert reasoner.facts("r") == [(0.0,)]
    assert isinstance(reasoner.facts("r")[0][0], float)


def test_a_head_aggregate_has_no_empty_group() -> None:
    reasoner = reasoner_with(["n(x, count(y)) :- e(x, y).", "t(count(x)) :- e(x, _)."], e=[(1, 2)])
    result = reasoner.apply(facts={"e": [((1, 2), -1)]})
    assert changes_of(result) == {"e": {(1, 2): -1}, "n": {(1, 1): -1}, "t": {(1,): -1}}


def test_equal_values_of_different_bindings_all_count() -> None:
    """A `_` is a variable like any other, as in Souffle: two days with the same amount are two contributions."""
    rules = [
        "named(w, sum(a)) :- pay(w, d, a), d > 0.",
        "unnamed(w, sum(a)) :- pay(w, _, a).",
        "body(w, s) :- pay(w, _, _), s = sum a : { pay(w, _, a) }.",
        "amount(w, a) :- pay(w, _, a).",
        "distinct(w, sum(a)) :- amount(w, a).",
        "all(sum(a), count(a), mean(a)) :- pay(_, _, a).",
    ]
    reasoner = reasoner_with(rules, pay=[("ann", 1, 10), ("ann", 2, 10), ("ann", 3, 5)])
    for relation in ("named", "unnamed", "body"):
        assert reasoner.facts(relation) == [("ann", 25)], relation
    assert reasoner.facts("distinct") == [("ann", 15)]
    assert reasoner.facts("all") == [(25, 3, 25 / 3)]
    reasoner.apply(facts={"pay": [(("ann", 1, 10), -1)]})
    for relation in ("named", "unnamed", "body", "distinct"):
        assert reasoner.facts(relation) == [("ann", 15)], relation
    assert reasoner.facts("all") == [(15, 2, 7.5)]
    assert_same_state(reasoner, reasoner_with(rules, pay=[("ann", 3, 5), ("ann", 2, 10)]))


def test_wildcards_of_negated_atoms_and_of_min_contribute_nothing() -> None:
    rules = ["n(count(x)) :- e(x, _), !b(x, _).", "m(min(x)) :- e(x, _)."]
    reasoner = reasoner_with(rules, e=[(1, 2), (1, 3), (2, 3)], b=[(2, 5), (2, 6)])
    assert (reasoner.facts("n"), reasoner.facts("m")) == ([(2,)], [(1,)])


def test_several_rules_feed_one_head() -> None:
    rules = ["n(x, count(y)) :- a(x, y).", "n(x, count(y)) :- b(y, x)."]
    reasoner = reasoner_with(rules, a=[(1, 2), (1, 3)], b=[(2, 1)])
    assert reasoner.facts("n") == [(1, 3)]
    reasoner.apply(rules=[(rules[0], -1)])
    assert reasoner.facts("n") == [(1, 1)]
    reasoner.apply(rules=[(rules[0], 1), (rules[1], -1)])
    assert reasoner.facts("n") == [(1, 2)]


def test_an_aggregate_in_a_head_argument() -> None:
    reasoner = reasoner_with(["r(x, count : { q(y), y < x }) :- p(x)."], p=[1, 9], q=[2, 3])
    assert set(reasoner.facts("r")) == {(1, 0), (9, 2)}
    reasoner.apply(facts=facts(q=[0]))
    assert set(reasoner.facts("r")) == {(1, 1), (9, 3)}


def test_a_declared_relation_that_becomes_a_minimum() -> None:
    """It was there, empty and not folded, before the first rule for it came."""
    reasoner = Reasoner()
    reasoner.apply(declarations=".decl low(x: number)", facts=facts(p=[(0, 1), (-1, 0)]))
    rule = "low(min(x + y)) :- p(x, y), x != y."
    before = everything(reasoner)
    reasoner.dry_run(rules=[(rule, 1)])
    assert everything(reasoner) == before
    reasoner.apply(rules=[(rule, 1)])
    assert reasoner.facts("low") == [(-1,)]
    reasoner.apply(rules=[(rule, -1)])
    reasoner.apply(rules=[("low(x) :- p(x, _).", 1)])
    assert set(reasoner.facts("low")) == {(0,), (-1,)}
    reasoner.check_invariants()


def test_a_relation_becomes_a_minimum_while_a_rule_that_reads_it_goes() -> None:
    """The rule that goes looks the relation up once more, by an index of its own."""
    reader, other = "p(0 + n, 0 + 0) :- low(n, 0), !a(_, 0), 0 = n + 0.", "a(0 + 0, 0 + 0) :- e(n, n)."
    reasoner = Reasoner()
    reasoner.apply(
        declarations="\n".join(f".decl {name}(x: number, y: number)" for name in ("e", "low", "p", "a")),
        facts=facts(e=[(0, 0)]),
        rules=[(other, 1), (reader, 1)],
    )
    reasoner.apply(rules=[(reader, -1), ("low(0, min(n + 0)) :- e(n, n), !a(_, _).", 1)])
    assert reasoner.facts("low") == []
    reasoner.apply(rules=[(other, -1)])
    assert reasoner.facts("low") == [(0, 0)]
    reasoner.check_invariants()


@pytest.mark.parametrize(
    "rules",
    [
        ["p(x, max(y)) :- q(x, y).", "p(x, min(y)) :- q(x, y)."],
        ["p(x, max(y)) :- q(x, y).", "p(x, y) :- q(x, y)."],
        ["p(min(x), max(y)) :- q(x, y).", "p(x, max(y)) :- q(x, y)."],
        ["p(min(x), max(y)) :- q(x, y).", "p(min(x), y) :- q(x, y)."],
        ["p(count(x), max(y)) :- q(x, y).", "p(sum(x), max(y)) :- q(x, y)."],
        ["p(count(x), max(y)) :- q(x, y).", "p(x, y) :- q(x, y)."],
        ["p(x, max(s)) :- t(x, s)."],
    ],
)
def test_folds_that_do_not_fit_together_are_refused(rules: list[str]) -> None:
    reasoner = reasoner_with([], q=[(1, 2)], t=[(1, "a")])
    before = everything(reasoner)
    with pytest.raises(UnsupportedFeatureError):
        reasoner.apply(rules=[(rule, 1) for rule in rules])
    assert everything(reasoner) == before


@pytest.mark.parametrize("head", ["p(x, sum(y))", "p(x, count(y))", "p(min(x), sum(y))"])
def test_facts_of_an_aggregated_relation_are_refused(head: str) -> None:
    reasoner = reasoner_with([f"{head} :- q(x, y)."], q=[(1, 2)])
    before = everything(reasoner)
    with pytest.raises(ZedlogError, match="aggregated"):
        reasoner.apply(facts=facts(p=[(1, 9)]))
    assert everything(reasoner) == before


STUDENTS = [("ann", 170, "x"), ("bob", 180, "y"), ("cid", 180, "y"), ("dan", 150, "x")]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("r(s, n) :- n = max h : { student(s, h, _) }.", {("bob", 180), ("cid", 180)}),
        ("r(s) :- _ = min h : { student(s, h, _) }.", {("dan",)}),
        # The group is asked for from outside, the witness is not.
        (
            "r(g, s) :- student(_, _, g), _ = max h : { student(s, h, g) }.",
            {("x", "ann"), ("y", "bob"), ("y", "cid")},
        ),
        ("r(g, s, n) :- n = 2 * max h + 1 : { student(s, h, g), h < 180 }.", {("x", "ann", 342)}),
        ("r(s, max h : { student(s, h, _) }) :- 1 = 1.", {("bob", 180), ("cid", 180)}),
        # A witness of two is one that both have.
        (
            'r(s) :- _ = max h : { student(s, h, _) }, _ = min k : { student(s, k, g), g != "x" }.',
            {("bob",), ("cid",)},
        ),
        ("r(s) :- _ = max h : { student(s, h, _) }, _ = min h : { student(s, h, _) }.", set()),
        # Of an aggregate in an aggregate: the tallest, and how often each of them is there but for bob.
        ('r(n) :- n = count : { student(_, h, _), h = max k : { student(s, k, _) }, s != "bob" }.', {(2,)}),
        ("r(s) :- student(s, _, _), 180 = max h : { student(s, h, _) }.", {("bob",), ("cid",)}),
    ],
)
def test_witnesses_of_min_and_max(rule: str, expected: set[tuple[Any, ...]]) -> None:
    """As in Souffle: a variable that stands outside too and is bound only in it is what the value was found with."""
    reasoner = reasoner_with([rule], student=STUDENTS)
    assert set(reasoner.facts("r")) == expected
    again = Reasoner()
    again.apply(rules=[(rule, 1)], declarations=".decl student(s: symbol, h: number, g: symbol)")
    for row in [*STUDENTS, ("eva", 200, "x")]:
        again.apply(facts={"student": [(row, 1)]})
    again.apply(facts={"student": [(("eva", 200, "x"), -1)]})
    assert set(again.facts("r")) == expected
    again.check_invariants()


def test_a_witness_contributes_once_to_a_head() -> None:
    """The other variables of the min or max are its own: bob is one of the tallest, in two groups."""
    rule = "r(count(s)) :- _ = max h : { student(s, h, g) }."
    assert reasoner_with([rule], student=[*STUDENTS, ("bob", 180, "x")]).facts("r") == [(2,)]


def test_a_witness_gives_way_to_a_better_one() -> None:
    reasoner = reasoner_with(["r(s, n) :- n = max h : { student(s, h, _) }."], student=STUDENTS)
    result = reasoner.apply(facts={"student": [(("eva", 200, "x"), 1)]})
    assert changes_of(result)["r"] == {("bob", 180): -1, ("cid", 180): -1, ("eva", 200): 1}
    assert reasoner.query("q(n, s) :- n = min h : { student(s, h, _) }").tuples == [(150, "dan")]


@pytest.mark.parametrize("aggregate", ["count : { student(s, h, _) }", "sum h : { student(s, h, _) }"])
def test_a_count_or_sum_has_no_witness(aggregate: str) -> None:
    function = aggregate.split()[0]
    with pytest.raises(UnsafeRuleError, match=f"the variable s is used outside of the {function}, but"):
        reasoner_with([f"r(s, n) :- n = {aggregate}."], student=STUDENTS)


def test_several_aggregates_in_one_head() -> None:
    rules = [
        "p(min(y), x, max(y), mean(y), count(y)) :- e(x, y).",
        "p(min(y), x, max(y), mean(y), count(y)) :- f(x, y).",
    ]
    reasoner = reasoner_with(rules, e=[(1, 2), (1, 4), (2, 1)], f=[(1, 6)])
    assert set(reasoner.facts("p")) == {(2, 1, 6, 4.0, 3), (1, 2, 1, 1.0, 1)}
    result = reasoner.apply(facts={"e": [((1, 2), -1), ((2, 1), -1)]})
    assert changes_of(result)["p"] == {(2, 1, 6, 4.0, 3): -1, (4, 1, 6, 5.0, 2): 1, (1, 2, 1, 1.0, 1): -1}
    reasoner.apply(rules=[(rules[1], -1)])
    assert reasoner.facts("p") == [(4, 1, 4, 4.0, 1)]
    assert_same_state(reasoner, reasoner_with(rules[:1], e=[(1, 4)], f=[(1, 6)]))
    reasoner.check_invariants()


def test_several_aggregates_in_a_head_and_some_in_the_body() -> None:
    rule = "p(x, mean(y), sum(n)) :- e(x, y), n = count : { f(x, _) }, m = count : { f(_, y) }, m >= 0."
    reasoner = reasoner_with([rule], e=[(1, 2), (1, 4)], f=[(1, 6), (1, 7)])
    assert reasoner.facts("p") == [(1, 3.0, 4)]
    reasoner.apply(facts={"f": [((1, 6), -1)]})
    assert reasoner.facts("p") == [(1, 3.0, 2)]
    reasoner.check_invariants()


def test_counts_and_sums_inside_of_other_aggregates() -> None:
    """Over persons: how many visits all of those have who have fewer than the limit of the row; nobody's are 0."""
    rules = [
        "few(m, s, n) :- limit(m), s = sum k : { person(x), k = count : { visit(x, _) }, k < m }, n = count : { "
    ]
    rules[0] += "person(x), 0 = count : { visit(x, d), d < m } }."
    visits = [("ann", 1), ("ann", 2), ("bob", 7)]
    reasoner = reasoner_with(rules, limit=[0, 2, 9], person=["ann", "bob", "cat"], visit=visits)
    assert set(reasoner.facts("few")) == {(0, 0, 3), (2, 1, 2), (9, 3, 1)}
    reasoner.apply(facts={"visit": [(("ann", 1), -1), (("cat", 1), 1)]})
    assert set(reasoner.facts("few")) == {(0, 0, 3), (2, 3, 2), (9, 3, 0)}
    reasoner.check_invariants()


def test_groups_that_the_rule_itself_asks_for() -> None:
    """What is counted does not depend on t, only for which x it is counted: no recursion through the count."""
    rules = ["t(x) :- s(x).", "t(y) :- t(x), e(x, y), n = count : { q(a), a < x }, n >= 1, n < y."]
    edges = [(1, 7), (5, 1), (5, 9), (9, 8), (8, 2)]
    reasoner = reasoner_with(rules, s=[5], q=[2, 3], e=edges)
    # From 5 (two below) to 9 but not to 1, from 9 to 8, from 8 not to 2.
    assert set(reasoner.facts("t")) == {(5,), (9,), (8,)}
    result = reasoner.apply(facts={"q": [((3,), -1)]})
    assert changes_of(result)["t"] == {(2,): 1}
    reasoner.apply(facts={"q": [((2,), -1)]})
    assert reasoner.facts("t") == [(5,)]
    kept = reasoner_with(["t(x) :- t(x), 0 <= count : { q(a), a < x }.", *rules], s=[5], q=[2], e=edges)
    assert set(kept.facts("t")) == {(5,), (9,), (8,), (2,)}
    kept.apply(facts={"s": [((5,), -1)]})
    assert kept.facts("t") == []
    kept.check_invariants()


def test_a_count_in_a_body_that_depends_on_the_head_is_refused_as_a_count() -> None:
    reasoner = reasoner_with([], s=[1, 2])
    rules = ["p(x, n) :- s(x), n = count : { t(a), a < x }.", "t(n) :- p(_, n)."]
    with pytest.raises(StratificationError, match=r"through count.*head of a relation of its own"):
        reasoner.apply(rules=[(rule, 1) for rule in rules])


# ---- min and max in recursion

SHORTEST = ["sp(x, min(d)) :- start(x), d = 0.", "sp(y, min(d + c)) :- sp(x, d), road(x, y, c)."]
ROADS = [("a", "b", 7), ("a", "c", 1), ("c", "b", 2), ("b", "d", 1), ("d", "a", 1)]


def test_single_source_shortest_path_under_changes() -> None:
    reasoner = reasoner_with(SHORTEST, start=["a"], road=ROADS)
    assert set(reasoner.facts("sp")) == {("a", 0), ("c", 1), ("b", 3), ("d", 4)}
    result = reasoner.apply(facts={"road": [(("c", "b", 2), -1)]})
    assert changes_of(result)["sp"] == {("b", 3): -1, ("b", 7): 1, ("d", 4): -1, ("d", 8): 1}
    # The cycle d -> a -> ... -> d must not keep itself up.
    result = reasoner.apply(facts={"start": [(("a",), -1)]})
    assert reasoner.facts("sp") == []
    assert len(changes_of(result)["sp"]) == 4


def test_shortest_paths_through_an_aggregate_in_the_body() -> None:
    """The same by a recursive min in a body: also its own way down, and up again under deletions."""
    rules = ["sp(x, 0) :- start(x).", "n(y) :- road(_, y, _), !start(y)."]
    rules += ["sp(y, d) :- n(y), d = min k : { sp(x, e), road(x, y, c), k = e + c }."]
    in_body, in_head = (
        reasoner_with(rules, start=["a"], road=ROADS),
        reasoner_with(SHORTEST, start=["a"], road=ROADS),
    )
    for change in ([("c", "b", 2)], [("a", "c", 1)], [("a", "b", 7), ("b", "d", 1)]):
        assert set(in_body.facts("sp")) == set(in_head.facts("sp"))
        for reasoner in (in_body, in_head):
            reasoner.apply(facts={"road": [(row, -1) for row in change]})
            reasoner.check_invariants()
    assert in_body.facts("sp") == in_head.facts("sp") == [("a", 0)]


def test_all_pairs_shortest_path_linear_and_not() -> None:
    linear = ["p(a, b, min(d)) :- w(a, b, d).", "p(a, c, min(d + e)) :- p(a, b, d), w(b, c, e)."]
    double = [linear[0], "p(a, c, min(d + e)) :- p(a, b, d), p(b, c, e)."]
    arcs = [(1, 2, 3), (2, 3, 4), (3, 1, 1), (1, 3, 9), (3, 4, 2)]
    one, two = reasoner_with(linear, w=arcs), reasoner_with(double, w=arcs)
    expected = {(1, 1): 8, (1, 2): 3, (1, 3): 7, (1, 4): 9, (2, 1): 5, (2, 2): 8, (2, 3): 4, (2, 4): 6}
    expected |= {(3, 1): 1, (3, 2): 4, (3, 3): 8, (3, 4): 2}
    for reasoner in (one, two):
        assert {(a, b): d for a, b, d in reasoner.facts("p")} == expected
        reasoner.apply(facts={"w": [((2, 3, 4), -1)]})
    # 1 -> 3 directly now.
    left = {(1, 1): 10, (1, 2): 3, (1, 3): 9, (1, 4): 11, (3, 1): 1, (3, 2): 4, (3, 3): 10, (3, 4): 2}
    for reasoner in (one, two):
        assert {(a, b): d for a, b, d in reasoner.facts("p")} == left


def test_delivery_of_a_bill_of_materials() -> None:
    rules = ["delivery(p, max(d)) :- basic(p, d).", "delivery(p, max(d)) :- assbl(p, s), delivery(s, d)."]
    reasoner = reasoner_with(
        rules,
        basic=[("bolt", 2), ("frame", 9)],
        assbl=[("bike", "frame"), ("bike", "wheel"), ("wheel", "bolt")],
    )
    assert pairs(reasoner, "delivery") == {"bolt": 2, "frame": 9, "wheel": 2, "bike": 9}
    result = reasoner.apply(facts={"basic": [(("frame", 9), -1), (("frame", 1), 1)]})
    assert changes_of(result)["delivery"] == {
        ("frame", 9): -1,
        ("frame", 1): 1,
        ("bike", 9): -1,
        ("bike", 2): 1,
    }


def test_components_merge_and_split() -> None:
    rules = ["cc(y, min(y)) :- arc(y, _).", "cc(y, min(z)) :- cc(x, z), arc(x, y)."]
    reasoner = reasoner_with(rules, arc=[(1, 2), (2, 1), (5, 6), (6, 5)])
    assert pairs(reasoner, "cc") == {1: 1, 2: 1, 5: 5, 6: 5}
    bridge = [((2, 5), 1), ((5, 2), 1)]
    reasoner.apply(facts={"arc": bridge})
    assert set(pairs(reasoner, "cc").values()) == {1}
    reasoner.apply(facts={"arc": [(row, -1) for row, _ in bridge]})
    assert pairs(reasoner, "cc") == {1: 1, 2: 1, 5: 5, 6: 5}
    assert_same_state(reasoner, reasoner_with(rules, arc=[(1, 2), (2, 1), (5, 6), (6, 5)]))


def test_a_minimum_that_falls_for_ever_is_refused_and_leaves_nothing() -> None:
    reasoner = Reasoner(budget=Budget(height=50))
    reasoner.apply(facts=facts(start=["a"], road=ROADS), rules=[(rule, 1) for rule in SHORTEST])
    before = everything(reasoner)
    with pytest.raises(BudgetExceededError) as refused:
        reasoner.apply(facts=facts(road=[("b", "c", -9)]))
    assert refused.value.detail["relation"] == "sp"
    assert everything(reasoner) == before
    reasoner.check_invariants()


def test_attend_the_party_is_refused_by_name() -> None:
    """Mutual recursion through a count, without a declaration that says it is meant."""
    reasoner = reasoner_with([], organizer=["ann"], friend=[("bob", "ann")])
    before = everything(reasoner)
    with pytest.raises(StratificationError, match="count") as refused:
        reasoner.apply(
            rules=[
                ("attend(x) :- organizer(x).", 1),
                ("cnt(y, count(x)) :- attend(x), friend(y, x).", 1),
                ("attend(x) :- cnt(x, n), n >= 3.", 1),
            ]
        )
    assert set(refused.value.detail["cycle"]) == {"attend", "cnt"}
    assert everything(reasoner) == before


def held(reasoner: Reasoner) -> int:
    """The rows that are kept in all, also of relations that no text names."""
    placement: Any = reasoner.database.placement
    return sum(relation.live for relation in placement._state.relations.values())


def test_a_count_over_independent_atoms_keeps_no_product() -> None:
    rule = "both(n) :- n = count : { a(_), b(_) }."
    reasoner = reasoner_with([rule], a=[(i,) for i in range(200)], b=[(i,) for i in range(300)])
    assert reasoner.facts("both") == [(60_000,)]
    assert held(reasoner) < 1100
    reasoner.apply(facts={"a": [((0,), -1)], "b": [((300,), 1)]})
    assert reasoner.facts("both") == [(199 * 301,)]
    reasoner.apply(facts={"b": [((i,), -1) for i in range(301)]})
    assert reasoner.facts("both") == [(0,)]
    reasoner.dry_run(facts={"b": [((1,), 1)]})
    assert reasoner.facts("both") == [(0,)]
    assert_same_state(reasoner, reasoner_with([rule], a=[(i,) for i in range(1, 200)]))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # a: (x, 1) (x, 2) (y, 5); b: (x, 10) (x, 20) (x, 30); c: 7, 8.
        ("n(g, k) :- a(g, _), k = count : { a(g, _), b(g, _) }.", {("x", 6), ("y", 0)}),
        ("n(g, k) :- a(g, _), k = sum v : { a(g, v), b(g, _) }.", {("x", 9), ("y", 0)}),
        ("n(g, k) :- a(g, _), k = sum v : { c(_), a(g, v), b(g, _) }.", {("x", 18), ("y", 0)}),
        ("n(g, k) :- a(g, _), k = sum 2 : { a(g, _), c(_) }.", {("x", 8), ("y", 4)}),
        # Connected through w: 2 * 3 pairs of which none has equal values.
        ("n(g, k) :- a(g, _), k = count : { a(g, w), b(g, w) }.", {("x", 0), ("y", 0)}),
        # A condition on both keeps them together, one on each apart.
        ("n(g, k) :- a(g, _), k = count : { a(g, v), b(g, w), v < w }.", {("x", 6), ("y", 0)}),
        ("n(g, k) :- a(g, _), k = count : { a(g, v), v > 1, b(g, w), w > 10 }.", {("x", 2), ("y", 0)}),
        ("n(g, k) :- a(g, _), k = count : { a(g, v), !c(v), c(w), !b(g, w) }.", {("x", 4), ("y", 2)}),
        # What has no variable of its own holds or does not.
        ('n(g, k) :- a(g, _), k = count : { c(_), b(g, 10), c(_), g != "z" }.', {("x", 4), ("y", 0)}),
        # More parts than there may be counts: the product is kept.
        ("n(g, k) :- a(g, _), k = count : { c(_), c(_), c(_), c(_), c(_) }.", {("x", 32), ("y", 32)}),
        # min and mean are as they were.
        ("n(g, k) :- a(g, _), k = min v : { a(g, v), b(g, _) }.", {("x", 1)}),
        ("n(g, k) :- a(g, _), k = mean v : { a(g, v), b(g, _) }.", {("x", 1.5)}),
    ],
)
def test_parts_of_an_aggregate_that_are_independent(rule: str, expected: set[tuple[Any, ...]]) -> None:
    given = {
        "a": [("x", 1), ("x", 2), ("y", 5)],
        "b": [("x", 10), ("x", 20), ("x", 30)],
        "c": [(7,), (8,)],
    }
    reasoner = reasoner_with([rule], **given)
    assert set(reasoner.facts("n")) == expected
    for relation, tuples in given.items():
        for row in tuples:
            reasoner.apply(facts={relation: [(row, -1)]})
            reasoner.apply(facts={relation: [(row, 1)]})
    assert set(reasoner.facts("n")) == expected
    assert_same_state(reasoner, reasoner_with([rule], **given))


def test_a_value_that_an_empty_part_hides_refuses_nothing() -> None:
    rule = "n(k) :- k = sum v : { a(x), v = 1 / x, b(_) }."
    reasoner = reasoner_with([rule], a=[(0,), (1,)])
    assert reasoner.facts("n") == [(0,)]
    with pytest.raises(ZedlogError, match="divides by zero"):
        reasoner.apply(facts={"b": [((1,), 1)]})


def test_true_and_false_as_literals_and_as_terms() -> None:
    rules = [
        "all(x) :- q(x, _), true.",
        "none(x) :- q(x, _), false.",
        "one(1) :- true.",
        "yes(x) :- q(x, (true)), !false.",
        "some(x) :- q(x, b), b = false ; q(x, true), (true, x < 2).",
        "n(c) :- c = count : { q(_, _), true }.",
    ]
    reasoner = reasoner_with(rules, q=[(1, True), (2, False), (3, True)])
    held = {
        name: {row[0] for row in reasoner.facts(name)} for name in ("all", "none", "one", "yes", "some", "n")
    }
    assert held == {"all": {1, 2, 3}, "none": set(), "one": {1}, "yes": {1, 3}, "some": {1, 2}, "n": {3}}


def test_a_sum_of_floats_that_leaves_its_range_is_refused_and_warns_of_nothing() -> None:
    """A warning is an error in these tests."""
    reasoner = Reasoner()
    with pytest.raises(EvaluationError, match="a sum of floats is not a finite number"):
        reasoner.apply(facts=facts(p=[(i, 1e308) for i in range(3)]), rules=[("s(sum(x)) :- p(_, x).", 1)])
    assert reasoner.epoch == 0
