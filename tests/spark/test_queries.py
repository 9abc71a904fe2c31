"""How many queries an epoch takes, which is most of what a small one costs; and that it is right all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.spark.placement import SparkPlacement
from engine.spark.session.session import SparkSource
from engine.spark.tables import Tables
from engine.spark.work import semi_naive
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import classic
from zedlog import Reasoner

Make = Callable[..., Reasoner]
REACH = [("r(x) :- s(x).", 1), ("r(y) :- r(x), many(x, y).", 1)]
CHAIN = [((i, i + 1), 1) for i in range(9)]
LONG = [((i, i + 1), 1) for i in range(60)]
CLOSURE = [("t(x, y) :- e(x, y).", 1), ("t(x, z) :- t(x, y), t(y, z).", 1), ("u(y, x) :- t(x, y).", 1)]


def stored(source: SparkSource) -> int:
    """Collections that Spark keeps in its storage."""
    return int(source.session().sparkContext._jsc.getPersistentRDDs().size())


def placement_of(reasoner: Reasoner) -> SparkPlacement:
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    return placement


@classic
@pytest.mark.parametrize("weight", [1, -1])
def test_a_height_of_a_small_change_takes_one_query(on_spark: Make, source: SparkSource, weight: int) -> None:
    """The relations are on the executors, the changes in the driver: what is derived brings along what was there."""
    spark, resident = on_spark("mixed"), Reasoner()
    placement_of(spark)._tables.local_rows = 50
    facts = {"many": LONG, "s": [((i,), 1) for i in range(100, 151)]}
    for one in (spark, resident):
        one.apply(facts=facts, rules=REACH)
        if weight < 0:
            one.apply(facts={"s": [((56,), 1)]})
    before, kept = placement_of(spark).queries, stored(source)
    told = [one.apply(facts={"s": [((56,), weight)]}) for one in (spark, resident)]
    # The weight that a fact has which is retracted; what is known of it in s and in r; then a query each for r(57) to
    # r(60), and for what follows from r(60), which is nothing.
    assert placement_of(spark).queries - before == (2 if weight > 0 else 3) + 5
    assert stored(source) == kept, "what a query reads twice is given back"
    assert_same_epoch(*told)
    assert_same_state(spark, resident)
    spark.check_invariants()


@pytest.mark.parametrize("fold", ["min", "max"])
def test_a_group_that_is_touched_again_is_known_already(on_spark: Make, fold: str) -> None:
    """In place, a tuple touches its group; what comes along with a later height must not count twice."""
    spark, resident = on_spark("mixed"), Reasoner()
    cost = 1 if fold == "min" else -1
    arcs = [(i, j, (j - i) ** 2 * cost) for i in range(6) for j in range(i + 1, 7)]
    rules = [(f"d(y, {fold}(w + c)) :- d(x, w), arc(x, y, c).", 1), (f"d(x, {fold}(w)) :- from(x, w).", 1)]
    bound = "w + c < 200" if fold == "min" else "w + c > -200"
    rules[0] = (rules[0][0][:-1] + f", {bound}.", 1)
    for change in (
        {"facts": {"arc": [(arc, 1) for arc in arcs], "from": [((0, 50), 1), ((1, 40), 1)]}, "rules": rules},
        {"facts": {"from": [((0, 50), -1), ((0, 3), 1)]}},
        {"facts": {"arc": [((0, 1, cost), -1), ((0, 6, 2 * cost), 1)]}},
        {"facts": {"from": [((0, 3), -1)]}},
    ):
        assert_same_epoch(spark.apply(**change), resident.apply(**change))
        assert_same_state(spark, resident)
    spark.check_invariants()


@classic
def test_a_height_of_a_bootstrap_is_counted_while_it_is_computed(
    on_spark: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without, the state is the same; a query that only counts is saved."""
    resident, queries = Reasoner(), []
    change = {"facts": {"e": CHAIN}, "rules": CLOSURE}
    expected = resident.apply(**change)
    for case in ("observed", "asked", "grouped"):
        spark = on_spark("large")
        tables: Tables = placement_of(spark)._tables
        assert tables.observes
        tables.observes = case == "observed"
        if case == "grouped":
            monkeypatch.setattr(semi_naive, "MEASURES", 0)
        before = placement_of(spark).queries
        assert_same_epoch(spark.apply(**change), expected)
        assert_same_state(spark, resident)
        queries.append(placement_of(spark).queries - before)
    assert queries[0] < queries[1] == queries[2]


@classic
@pytest.mark.parametrize("rows", [0, 5])
def test_what_is_observed_is_what_is_there(on_spark: Make, rows: int) -> None:
    spark = on_spark("large")
    tables = placement_of(spark)._tables
    frame = tables.spark.range(0, 5).where(f"id < {rows}")
    measures = {"least": "min(id)", "even": "count_if(id % 2 = 0)", "total": "sum(id)"}
    found = []
    for tables.observes in (True, False):
        table, numbers = tables.observed(frame, measures)
        assert table.rows == rows
        assert tables.collect(table.frame).num_rows == rows
        tables.release(table)
        found.append(numbers)
    assert found[0] == found[1]
    assert found[0] == {"rows": rows, "least": 0, "even": 3 if rows else 0, "total": 10 if rows else 0}
