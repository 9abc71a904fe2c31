"""Plans without a step (engine/spark/plans/projections.py): in the driver no query, and the same result everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from engine.data.arrow import HEIGHT
from engine.errors import WeightOverflowError
from engine.spark.frames import DERIVATIONS, WEIGHT, from_driver
from engine.spark.placement import SparkPlacement
from engine.spark.plans.projections import summed_rows
from engine.spark.session.session import SparkSource
from tests.spark.compare import apply_both, assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
# Selections, constants, repeated and swapped columns, one head derived in several ways; along a chain of strata and
# round a cycle.
COPIES = [
    "p(y, x) :- e(x, y).",
    "p(x, y) :- e(x, y).",
    "p(x, 7) :- e(x, x).",
    "q(x) :- p(x, 3).",
    'kind(x, "q") :- q(x).',
    "seen() :- q(_).",
    "up(x, y) :- p(x, y).",
    "down(y, x) :- up(x, y).",
    "up(x, y) :- down(x, y).",
]
EDGES = [((x, y), 1) for x in range(6) for y in range(x % 3, 6, 2)]
CHANGES: list[dict[str, Any]] = [
    {"facts": {"e": EDGES, "up": [((9, 9), 2)]}, "rules": [(rule, 1) for rule in COPIES]},
    {"facts": {"e": [(row, -1) for row, _ in EDGES[::3]] + [((3, 3), 2)]}},
    {"rules": [(COPIES[1], -1), ("up(x, 8) :- q(x).", 1), ("q(y) :- up(y, y).", 1)]},
    {"facts": {"e": [((3, 3), -2)], "q": [((9,), 1)]}, "rules": [(COPIES[8], -1)]},
]


def queries(reasoner: Reasoner) -> int:
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    return placement.queries


@patient
@pytest.mark.parametrize("manner", ["small", "mixed", "large"])
def test_the_same_as_resident(on_spark: Make, manner: str) -> None:
    spark, resident = on_spark(manner), Reasoner()
    for change in CHANGES:
        apply_both(spark, resident, change)
        assert_same_state(spark, resident)
    spark.check_invariants()
    assert resident.count("down") > 10
    # What joins takes a query, and is summed up together with what is copied at the same moment.
    joins = {
        "rules": [("p(x, z) :- e(x, y), e(y, z).", 1), ("p(0, x) :- q(x).", 1)],
        "facts": {"p": [((0, 9), 3)]},
    }
    apply_both(spark, resident, joins)
    assert_same_state(spark, resident)


def test_what_is_in_the_driver_takes_no_query(on_spark: Make) -> None:
    spark = on_spark("small")
    for change in CHANGES:
        spark.apply(**change)
    assert spark.count("down") > 0
    assert queries(spark) == 0


def test_a_negated_atom_alone(on_spark: Make) -> None:
    """It is the other way round: a tuple that appears takes derivations away."""
    spark, resident = on_spark("small"), Reasoner()
    rules = {"rules": [("none(1, 2) :- !e(3, 4).", 1)], "facts": {"e": [((1, 1), 1)]}}
    for change in (rules, {"facts": {"e": [((3, 4), 1)]}}, {"facts": {"e": [((3, 4), -1)]}}):
        apply_both(spark, resident, change)
        assert_same_state(spark, resident)
    assert resident.count("none") == 1


def test_no_row_is_lost_behind_an_empty_chunk(source: SparkSource) -> None:
    """Rules of which nothing comes give empty parts; `createDataFrame` by itself stops at the first."""
    some = rows([1, 2], [1, 1])
    parts = pa.concat_tables([some, some.slice(0, 0), rows([3], [1])])
    assert from_driver(source.session(), parts).toArrow().column("c0").to_pylist() == [1, 2, 3]


def test_derivations_count_where_weights_cancel() -> None:
    """Two changes of one tuple at one height are one row; what they cost adds up."""
    summed = summed_rows(rows([5, 5, 6], [1, -1, 1]), 1)
    assert summed is not None
    found = summed.sort_by("c0").to_pydict()
    assert found == {"rel": [0, 0], "c0": [5, 6], HEIGHT: [1, 1], WEIGHT: [0, 1], DERIVATIONS: [2, 1]}


def test_sums_that_may_leave_64_bits_are_left_to_spark() -> None:
    assert summed_rows(rows([5, 5], [2**62, 2**62]), 1) is None
    assert summed_rows(rows([5], [-(2**63)]), 1) is None


def rows(values: list[int], weights: list[int]) -> pa.Table:
    table = {"rel": [0], "c0": values, HEIGHT: [1], WEIGHT: weights, DERIVATIONS: [1]}
    return pa.table({name: part * (len(values) // len(part)) for name, part in table.items()})


def test_facts_beyond_64_bits_are_refused_where_a_stratum_is_made_anew(on_spark: Make) -> None:
    """The facts in the driver are summed up with the new ones."""
    spark = on_spark("small")
    spark.apply(facts={"up": [((1, 1), 2**63 - 1)]}, rules=[(COPIES[6], 1)])
    state = spark.state()
    with pytest.raises(WeightOverflowError):
        spark.apply(facts={"up": [((1, 1), 1)]}, rules=[(COPIES[7], 1), (COPIES[8], 1)])
    assert spark.state() == state
