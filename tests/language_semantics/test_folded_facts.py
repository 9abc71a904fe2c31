"""Facts of a relation that is folded by min or max: contributions, asserted and retracted like any fact."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import NegativeWeightError, UnsupportedFeatureError
from tests.language_semantics.test_negation import facts
from tests.oracle.subject import assert_same_state, changes_of, everything, restarted
from zedlog import Reasoner

STEP = "sp(y, min(d + c)) :- sp(x, d), arc(x, y, c)."
ARCS = [("a", "b", 3), ("b", "c", 1), ("a", "c", 9), ("c", "a", 1)]


def with_step(**given: Any) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(**given), rules=[(STEP, 1)])
    return reasoner


def held(reasoner: Reasoner, domain: str = "all") -> set[tuple[Any, ...]]:
    found = reasoner.facts("sp", domain=domain)
    assert len(found) == len(set(found)) == reasoner.count("sp", domain)
    return set(found)


def test_shortest_paths_from_a_fact() -> None:
    reasoner = with_step(sp=[("a", 0)], arc=ARCS)
    assert held(reasoner) == {("a", 0), ("b", 3), ("c", 4)}
    # ("a", 5) is the second best, and the relation holds the best only; what is asserted are both.
    result = reasoner.apply(facts={"sp": [(("a", 5), 2), (("z", 1), 1)]})
    assert changes_of(result) == {"sp": {("z", 1): 1}}
    assert held(reasoner, "asserted") == {("a", 0), ("a", 5), ("z", 1)}
    assert dict(reasoner.weighted("sp", "asserted")) == {("a", 0): 1, ("a", 5): 2, ("z", 1): 1}
    assert held(reasoner, "derived") == {("b", 3), ("c", 4)}
    result = reasoner.apply(facts={"sp": [(("a", 0), -1)]})
    assert changes_of(result)["sp"] == {
        ("a", 0): -1, ("b", 3): -1, ("c", 4): -1, ("a", 5): 1, ("b", 8): 1, ("c", 9): 1,
    }  # fmt: skip
    assert_same_state(reasoner, with_step(arc=ARCS, sp=[("z", 1), ("a", 5), ("a", 5)]))
    assert_same_state(reasoner, restarted(reasoner))
    # One of the two, then the other: only then it goes, and what was derived from it.
    assert changes_of(reasoner.apply(facts={"sp": [(("a", 5), -1)]})) == {}
    reasoner.apply(facts={"sp": [(("a", 5), -1)]})
    assert held(reasoner) == {("z", 1)}
    reasoner.check_invariants()


def test_a_fact_that_a_better_value_hides_can_be_retracted_and_no_other() -> None:
    reasoner = with_step(sp=[("a", 0), ("b", 7)], arc=ARCS)
    assert held(reasoner, "asserted") == {("a", 0), ("b", 7)}
    assert ("b", 7) not in held(reasoner)
    before = everything(reasoner)
    for row in (("b", 3), ("b", 8)):
        with pytest.raises(NegativeWeightError, match="sp"):
            reasoner.apply(facts={"sp": [(row, -1)]})
    assert everything(reasoner) == before
    # In set mode what is there is not added again, also where no reader sees it.
    reasoner.apply(facts={"sp": [(("b", 7), 1)]}, mode="set")
    assert dict(reasoner.weighted("sp", "asserted"))["b", 7] == 1
    reasoner.apply(facts={"sp": [(("b", 7), -1), (("b", 8), -1)]}, mode="set")
    assert held(reasoner, "asserted") == {("a", 0)}
    assert_same_state(reasoner, with_step(sp=[("a", 0)], arc=ARCS))


def test_a_fact_that_rules_derive_too_is_both() -> None:
    reasoner = with_step(sp=[("a", 0), ("b", 3)], arc=ARCS)
    assert ("b", 3) in held(reasoner, "derived") & held(reasoner, "asserted")
    reasoner.apply(facts={"arc": [(("a", "b", 3), -1)]})
    assert held(reasoner) == {("a", 0), ("b", 3), ("c", 4)}
    assert held(reasoner, "derived") == {("c", 4)}
    reasoner.apply(facts={"sp": [(("b", 3), -1)]})
    assert held(reasoner) == {("a", 0), ("c", 9)}


def test_rules_come_after_the_facts_and_go_before_them() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts=facts(sp=[("a", 0), ("a", 5)], arc=ARCS))
    assert held(reasoner) == {("a", 0), ("a", 5)}
    result = reasoner.apply(rules=[(STEP, 1)])
    assert changes_of(result)["sp"] == {("a", 5): -1, ("b", 3): 1, ("c", 4): 1}
    assert_same_state(reasoner, with_step(sp=[("a", 0), ("a", 5)], arc=ARCS))
    # In the other direction a max takes the place of the min, and then no rule folds any more.
    largest = "sp(x, max(d)) :- late(x, d)."
    reasoner.apply(rules=[(STEP, -1), (largest, 1)])
    assert held(reasoner) == {("a", 5)}
    result = reasoner.apply(rules=[(largest, -1)])
    assert changes_of(result)["sp"] == {("a", 0): 1}
    assert held(reasoner) == held(reasoner, "asserted") == {("a", 0), ("a", 5)}
    assert_same_state(reasoner, restarted(reasoner))
    reasoner.check_invariants()


def test_batch_vs_singletons_of_facts_and_rules() -> None:
    reasoner = Reasoner()
    reasoner.apply(rules=[(STEP, 1)])
    for row in ARCS:
        reasoner.apply(facts=facts(arc=[row]))
    for row, weight in ((("c", 2), 1), (("a", 0), 1), (("a", 1), 1), (("a", 0), -1)):
        reasoner.dry_run(facts={"sp": [(row, weight)]})
        reasoner.apply(facts={"sp": [(row, weight)]})
    assert_same_state(reasoner, with_step(sp=[("a", 1), ("c", 2)], arc=ARCS))


@pytest.mark.parametrize("strategy", ["update", "bootstrap"])
def test_rules_above_see_the_folded_value_alone(strategy: Any) -> None:
    reasoner = Reasoner()
    rules = [
        "best(x, max(n)) :- other(x, n).",
        "top(x) :- best(x, n), n > 4.",
        "low(x) :- best(x, _), !top(x).",
    ]
    reasoner.apply(
        facts=facts(best=[("a", 3), ("a", 5), ("b", 2)], other=[("b", 1)]), rules=[(r, 1) for r in rules]
    )
    assert (reasoner.facts("top"), reasoner.facts("low")) == ([("a",)], [("b",)])
    result = reasoner.apply(facts={"best": [(("a", 5), -1)], "other": [(("b", 9), 1)]}, strategy=strategy)
    assert changes_of(result) == {
        "best": {("a", 5): -1, ("a", 3): 1, ("b", 2): -1, ("b", 9): 1}, "other": {("b", 9): 1},
        "top": {("a",): -1, ("b",): 1}, "low": {("a",): 1, ("b",): -1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("head", "why"),
    [("count(y)", "count"), ("sum(y)", "sum"), ("mean(y)", "mean"), ("min(y), max(y)", "several aggregates")],
)
def test_other_aggregates_take_no_facts(head: str, why: str) -> None:
    reasoner = Reasoner()
    fact = (1, 2.0) if why == "mean" else (1, 2, 2) if "," in head else (1, 2)
    with pytest.raises(
        UnsupportedFeatureError, match=rf"p is aggregated by its rules \({why}\).*a relation of their own"
    ):
        reasoner.apply(facts=facts(e=[(1, 2)], p=[fact]), rules=[(f"p(x, {head}) :- e(x, y).", 1)])
