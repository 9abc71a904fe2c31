"""Recursion without an end: what swings, and what grows. Refused with a typed error, and nothing is changed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BudgetExceededError, FixpointNotReachedError, InvalidRequestError
from engine.language.parser import parse_program
from engine.maintenance.placement import MAX_HEIGHT
from tests.language_semantics.test_aggregates import reasoner_with
from tests.language_semantics.test_negation import facts
from tests.oracle.stratified import DivergesError, stratified_model
from tests.oracle.subject import assert_same_state, everything
from zedlog import Reasoner

SWINGING = ["m(min(u)) :- q(u).", "p(1) :- m(3).", "q(2) :- p(_).", "q(u) :- base(u)."]
"""Without a model: 3 is the least q as long as it is not, and then 2 is."""


def test_a_min_that_swings_is_refused_with_its_values() -> None:
    reasoner = Reasoner()
    with pytest.raises(
        FixpointNotReachedError, match=r"the min of m never settles: .* between 2, 3"
    ) as refused:
        reasoner.apply(facts=facts(base=[3]), rules=[(rule, 1) for rule in SWINGING])
    assert refused.value.detail["relation"] == "m"
    assert (refused.value.detail["group"], refused.value.detail["values"]) == ([], [2, 3])
    assert not reasoner.relations()
    # The same in an update, and then the program goes on with what has a model.
    reasoner.apply(rules=[(rule, 1) for rule in SWINGING])
    with pytest.raises(FixpointNotReachedError, match="alternates between 2, 3"):
        reasoner.apply(facts=facts(base=[3]))
    reasoner.apply(facts=facts(base=[4]))
    assert reasoner.facts("m") == [(4,)]
    reasoner.apply(facts=facts(base=[3, 1]))
    assert reasoner.facts("m") == [(1,)]
    assert_same_state(reasoner, reasoner_with(SWINGING, base=[1, 3, 4]))
    with pytest.raises(FixpointNotReachedError, match="alternates between 2, 3"):
        reasoner.apply(facts={"base": [((1,), -1)]})
    reasoner.check_invariants()


def test_the_group_of_the_smallest_codes_is_named_whatever_swings_besides() -> None:
    rules = [
        "best(g, max(v)) :- offer(g, v).",
        "offer(g, v) :- start(g, v).",
        # Whoever has 5 at best gets 7, and whoever has 7 loses what it had that from.
        "hold(g) :- best(g, 5).",
        "offer(g, 7) :- hold(g).",
        # Beside it, heights without an end that all others have to wait for.
        "walk(y) :- walk(x), next(x, y).",
        "walk(0) :- start(_, _).",
    ]
    ring = [(i, (i + 1) % 50) for i in range(50)]
    with pytest.raises(FixpointNotReachedError, match=r'the max of best\("b"\)') as refused:
        reasoner_with(rules, start=[("x", 3), ("b", 5), ("c", 5), ("d", 9)], next=ring)
    assert (refused.value.detail["group"], refused.value.detail["values"]) == (["b"], [5, 7])
    reasoner = reasoner_with(rules, start=[("x", 3), ("d", 9)], next=ring)
    assert set(reasoner.facts("best")) == {("x", 3), ("d", 9)}


def test_a_min_that_improves_a_thousand_times_is_none_of_these() -> None:
    """The last of a chain is reached by ever longer and cheaper ways."""
    n = 1000
    ways = [(i, i + 1, 1) for i in range(n)] + [(0, n, 3 * i + 10 * n) for i in range(10)]
    ways += [(i, n, 4 * (n - i)) for i in range(1, n)]
    rules = ["sp(x, min(0)) :- start(x).", "sp(y, min(d + c)) :- sp(x, d), way(x, y, c)."]
    reasoner = reasoner_with(rules, start=[0], way=ways)
    assert (n, n) in reasoner.facts("sp")
    reasoner.apply(facts={"way": [((n - 1, n, 1), -1)]})
    assert (n, n - 1 + 4) in reasoner.facts("sp")
    reasoner.apply(facts={"way": [((n // 2, n // 2 + 1, 1), -1)]})
    assert dict(reasoner.facts("sp"))[n] == n // 2 + 4 * (n // 2)  # type: ignore[call-overload]  # pairs


def test_a_swing_that_goes_round_where_no_fold_changes_is_refused() -> None:
    """What a `max` once made disappear goes round a ring, long after the `max` has come to rest."""
    rules = [
        "q(u) :- base(u).",
        "r(max(u)) :- p(u), q(_).",
        "p(x) :- p(y), step(y, x), m(_).",
        "m(min(u)) :- r(u).",
        "q(u) :- p(u), m(3).",
        "r(max(u)) :- q(u).",
        "q(u) :- p(u), m(0).",
        "q(u) :- r(u), p(_).",
        "q(2) :- p(1).",
        "p(2) :- m(3).",
    ]
    reasoner = Reasoner()
    reasoner.apply(facts=facts(step=[(i, (i + 1) % 7) for i in range(7)]))
    before = everything(reasoner)
    with pytest.raises(
        FixpointNotReachedError, match="p and q never settles: it alternates between"
    ) as refused:
        reasoner.apply(facts=facts(base=[0, 1, 3]), rules=[(rule, 1) for rule in rules])
    assert refused.value.detail["height"] < 200
    assert everything(reasoner) == before


PARTS = (
    "m(min(u)) :- q(u).", "m(min(u)) :- r(u).", "r(max(u)) :- q(u).", "r(max(u)) :- p(u), q(_).",
    "q({a}) :- m({b}).", "q({a}) :- r({b}).", "q({a}) :- p({b}).", "p({a}) :- m({b}).", "p({a}) :- r({b}).",
    "p(u) :- m(u).", "q(u) :- r(u), p(_).", "q(u) :- p(u), m({a}).", "p(x) :- p(y), step(y, x), m(_).",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_oracle_what_swings_is_refused_and_nothing_else(data: st.DataObject) -> None:
    """Few values, so that a program that has not come to rest after some hundred rounds never does."""
    number = st.integers(0, 3).map(str)
    part = st.builds(
        lambda text, a, b: text.replace("{a}", a).replace("{b}", b), st.sampled_from(PARTS), number, number
    )
    rules = ["q(u) :- base(u).", *data.draw(st.lists(part, min_size=3, max_size=9, unique=True))]
    base = data.draw(st.lists(st.integers(0, 3), max_size=3, unique=True))
    later = data.draw(st.lists(st.integers(0, 3), max_size=2, unique=True))
    steps = {(i, (i + 1) % 7) for i in range(7)}
    reasoner = Reasoner()
    reasoner.apply(
        declarations="\n".join(f".decl {name}(x: number)" for name in ("m", "r", "p", "q", "base")),
        facts=facts(step=sorted(steps)),
    )
    kept: set[int] = set()
    for epoch, change in enumerate((base, later)):
        values = kept ^ set(change)
        given = {"base": {(v,): 1 for v in values}, "step": dict.fromkeys(steps, 1)}
        before = everything(reasoner)
        arguments = {
            "facts": {"base": [((v,), -1 if v in kept else 1) for v in change]},
            "rules": [(rule, 1) for rule in rules] if epoch == 0 else [],
        }
        try:
            expected = stratified_model(parse_program(" ".join(rules)).rules, given, rounds=500)
        except DivergesError:
            with pytest.raises(FixpointNotReachedError, match="alternates between"):
                reasoner.apply(**arguments)
            assert everything(reasoner) == before
            if epoch == 0:
                return
            continue
        reasoner.apply(**arguments)
        kept = values
        held = {name: set(reasoner.facts(name)) for name in ("m", "r", "p", "q")}
        assert held == {name: expected.get(name, set()) for name in held}


# ---- growth


def test_a_counter_without_an_end_is_refused_at_the_limit_of_heights() -> None:
    reasoner = Reasoner(max_height=500)
    with pytest.raises(
        BudgetExceededError, match=r"height 501, of 500 allowed .* \(max_height, --max-height\)"
    ):
        reasoner.apply(facts=facts(n=[0]), rules=[("n(i + 1) :- n(i).", 1)])
    reasoner.apply(facts=facts(n=[0]), rules=[("n(i + 1) :- n(i), i < 500.", 1)])
    assert len(reasoner.facts("n")) == 501
    with pytest.raises(InvalidRequestError, match="max_height must be a whole number of at least 1"):
        Reasoner(max_height=0)


def test_recursion_that_computes_nothing_counts_too() -> None:
    reasoner = Reasoner(max_height=100)
    rules = [("reach(y) :- reach(x), e(x, y).", 1)]
    with pytest.raises(BudgetExceededError, match="height 101, of 100 allowed"):
        reasoner.apply(facts=facts(reach=[0], e=[(i, i + 1) for i in range(101)]), rules=rules)
    # Only recursion has heights.
    reasoner.apply(facts=facts(a=list(range(300))), rules=[("b(x) :- a(x).", 1)])
    assert len(reasoner.facts("b")) == 300


def test_without_a_limit_a_counter_comes_to_a_million_and_an_endless_one_is_refused() -> None:
    assert MAX_HEIGHT > 1_000_000
    reasoner = Reasoner("resident")
    count = [("n(y) :- n(x), y = x + 1, x < 1000000.", 1)]
    reasoner.apply(facts=facts(n=[0]), rules=count)
    assert reasoner.count("n") == 1_000_001
    with pytest.raises(BudgetExceededError, match=r"height 1,100,001, of 1,100,000 allowed.*max_height"):
        Reasoner("resident").apply(facts=facts(n=[0]), rules=[("n(y) :- n(x), y = x + 1.", 1)])


def test_recursion_that_computes_nothing_has_no_usual_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.maintenance.placement.MAX_HEIGHT", 20)
    chain = facts(s=[0], e=[(i, i + 1) for i in range(100)])
    reach = [("r(x) :- s(x).", 1), ("r(y) :- r(x), e(x, y).", 1)]
    reasoner = Reasoner()
    reasoner.apply(facts=chain, rules=reach)
    assert reasoner.count("r") == 101
    with pytest.raises(BudgetExceededError, match="height 21, of 20 allowed"):
        Reasoner().apply(facts=facts(n=[0]), rules=[("n(y) :- n(x), y = x + 1, x < 50.", 1)])
