"""How many queries a bootstrap takes, and that it is right all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.spark.placement import SparkPlacement
from engine.spark.tables import Tables
from engine.spark.work import semi_naive
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import classic
from zedlog import Reasoner

Make = Callable[..., Reasoner]
CHAIN = [((i, i + 1), 1) for i in range(9)]
CLOSURE = [("t(x, y) :- e(x, y).", 1), ("t(x, z) :- t(x, y), t(y, z).", 1), ("u(y, x) :- t(x, y).", 1)]


def placement_of(reasoner: Reasoner) -> SparkPlacement:
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    return placement


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
