"""Large strata that only grow (engine/spark/work/semi_naive.py): when they are taken for such, many heights, what
comes after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.spark.work.frames import PARTS
from engine.spark.work.semi_naive import SemiNaive, tail
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
CHAIN = 2 * PARTS + 4
# No argument is handed on by all rules, and each height reaches one edge further.
RULES = [
    ("odd(x, y) :- e(x, y).", 1),
    ("even(x, z, 1) :- odd(x, y), odd(y, z), e(y, z).", 1),
    ("odd(x, z) :- even(x, y, _), odd(y, z), e(y, z).", 1),
]
EDGES = [((i, i + 1), 1) for i in range(CHAIN)]
Both = Callable[..., list[int]]


@pytest.fixture
def both(on_spark: Make, monkeypatch: pytest.MonkeyPatch) -> Both:
    """Applies a change to both placements, compares what they tell and hold, and says which heights were computed anew
    on the executors."""
    spark, resident = on_spark("large", 2), Reasoner()
    heights: list[int] = []
    derived = SemiNaive.derived

    def seen(work: SemiNaive, height: int, rows: Any) -> Any:
        heights.append(height)
        return derived(work, height, rows)

    monkeypatch.setattr(SemiNaive, "derived", seen)

    def apply(**change: Any) -> list[int]:
        heights.clear()
        assert_same_epoch(spark.apply(**change), resident.apply(**change))
        assert_same_state(spark, resident)
        spark.check_invariants()
        return list(heights)

    return apply


@patient
def test_many_heights_of_two_relations_and_updates_after_them(both: Both) -> None:
    """Also so many that Spark's estimates of sizes, which are products of products, would outgrow everything."""
    assert both(facts={"e": EDGES}, rules=RULES) == [*range(2, CHAIN + 2)]
    # Some tuples are derived now, so all that follows is maintenance.
    assert both(facts={"odd": [((100, 101), 1)]}) == []


@patient
def test_a_stratum_whose_members_change_is_computed_anew(both: Both) -> None:
    assert both(facts={"e": EDGES[:4]}, rules=RULES) == [2, 3, 4, 5]
    assert both(facts={"e": [((2, 3), -1), ((1, 3), 1)]}) == []
    assert both(rules=[("e(x, y) :- even(x, y, 7).", 1)])[:2] == [1, 2]


@patient
def test_facts_that_are_there_stay_at_height_0(both: Both) -> None:
    both(facts={"e": EDGES[:4]})
    facts = {"t": [((0, 1), 2), ((1, 2), 1), ((2, 3), 1), ((9, 9), 1)]}
    both(facts=facts)
    closure = [("t(x, z) :- t(x, y), t(y, z).", 1), ("t(x, y) :- e(x, y).", 1)]
    # One fact again, one more, and one that has a derivation too.
    assert both(facts={"t": [((0, 1), 1), ((3, 4), 1), ((0, 2), 1)]}, rules=closure)[0] == 0
    both(facts={"t": [((0, 2), -1), ((0, 1), -3)]})


@patient
def test_what_is_taken_away_is_maintenance(both: Both) -> None:
    both(facts={"t": [((0, 1), 1), ((1, 2), 1), ((2, 3), 1)]})
    assert both(facts={"t": [((1, 2), -1), ((1, 3), 1)]}, rules=[("t(x, z) :- t(x, y), t(y, z).", 1)]) == []


@patient
def test_a_stratum_may_come_out_empty(both: Both) -> None:
    both(facts={"e": EDGES[:2]}, rules=[("a(x) :- e(x, y), b(y).", 1), ("b(x) :- a(x).", 1)])
    both(facts={"b": [((1,), 1)]})
    both(facts={"b": [((1,), -1)]}, rules=[("b(x) :- a(x), e(x, x).", 1)])
    both(rules=[("a(x) :- e(x, y), b(y).", -1)])


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=40))
def test_parts_are_united_by_size(rows: list[int]) -> None:
    start = tail(rows)
    assert 0 <= start <= len(rows) - 2
    assert start == 0 or rows[start - 1] > sum(rows[start:])
    for i in range(start, len(rows) - 2):
        assert rows[i] <= sum(rows[i + 1 :])
