"""On Spark, what loses all of its rules is dropped without going through heights; the resident placement says what is
left, and what a reader is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.spark.placement import SparkPlacement
from tests.spark.compare import apply_both, assert_same_state
from zedlog import Reasoner

Make = Callable[..., Reasoner]
RULES = ["tc(x, y) :- e(x, y).", "tc(x, z) :- tc(x, y), e(y, z)."]
NON_LINEAR = [RULES[0], "tc(x, z) :- tc(x, y), tc(y, z)."]
CHAIN = {"e": [((i, i + 1), 1) for i in range(9)]}
FACTS = {"tc": [((0, 4), 2), ((50, 51), 1)]}


def heights(reasoner: Reasoner) -> int:
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    return placement.heights


@pytest.mark.parametrize("manner", ["small", "mixed", "large"])
@pytest.mark.parametrize("rules", [RULES, NON_LINEAR], ids=["pivot", "general"])
@pytest.mark.parametrize("facts", [{}, FACTS], ids=["derived", "facts"])
def test_all_rules_of_a_relation_go(
    on_spark: Make, manner: str, rules: list[str], facts: dict[str, Any]
) -> None:
    spark, resident = on_spark(manner), Reasoner()
    change = {"facts": {**CHAIN, **facts}, "rules": [(rule, 1) for rule in rules]}
    apply_both(spark, resident, change)
    apply_both(spark, resident, {"rules": [(rule, -1) for rule in rules]})
    assert heights(spark) == (1 if facts else 0)
    assert_same_state(spark, resident)
    spark.check_invariants()
    apply_both(spark, resident, {"rules": [(rule, 1) for rule in rules], "facts": {"e": [((3, 4), -1)]}})
    assert_same_state(spark, resident)
