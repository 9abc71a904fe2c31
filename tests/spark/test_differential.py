"""The Spark placement against the resident one: after every epoch the same state and the same delta.

The resident placement is compared with independent oracles in tests/oracle; here every epoch of a random program goes
through both. Small inputs work in the driver, so programs also run with that turned off (`large`), and with the work
handed over in the middle (`mixed`); with ZEDLOG_FULL=1 each of these with 1, 2 and 5 partitions.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.full import FULL
from tests.oracle.height_model import height_model
from tests.oracle.naive import TooLargeError
from tests.oracle.programs import History, histories, totals
from tests.spark.compare import apply_both, assert_same_epoch, assert_same_state
from zedlog import Reasoner

Make = Callable[..., Reasoner]
# The first example is always the smallest program there is.
EXAMPLES = int(os.environ.get("ZEDLOG_SPARK_EXAMPLES", "2"))
# A Spark epoch takes seconds: no shrinking, and one fixture for all examples (each makes its own reasoners).
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
CLOSURE = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), tc(y, z).", 1)]


def run_both(history: History, spark: Reasoner) -> None:
    for position in range(1, len(history.epochs) + 1):
        facts, rules = totals(history.epochs[:position])
        try:
            height_model(rules, facts, budget=3_000)
        except TooLargeError:
            assume(False)
    resident = Reasoner()
    if history.declared:
        for reasoner in (spark, resident):
            reasoner.apply(declarations=history.declarations())
    for epoch in history.epochs:
        apply_both(spark, resident, {"facts": epoch.fact_changes(), "rules": epoch.rule_changes()})
    assert_same_state(spark, resident)
    spark.check_invariants()
    for name in resident.relations():
        for domain in ("all", "asserted", "derived"):
            assert spark.count(name, domain) == resident.count(name, domain)
            assert sorted(spark.weighted(name, domain)) == sorted(resident.weighted(name, domain))


ALL = [(manner, partitions) for manner in ("small", "mixed", "large") for partitions in (1, 2, 5)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("manner", "partitions"), ALL if FULL else [("small", 2), ("mixed", 5), ("large", 1)]
)
@few
@given(data=st.data())
def test_differential_of_random_programs(
    on_spark: Make, manner: str, partitions: int, data: st.DataObject
) -> None:
    epochs = {"small": 4, "mixed": 3, "large": 2}[manner]
    run_both(data.draw(histories(max_epochs=epochs)), on_spark(manner, partitions))


@pytest.mark.parametrize(("manner", "partitions"), ALL if FULL else [("small", 2), ("mixed", 5)])
def test_differential_retraction_through_a_cycle(on_spark: Make, manner: str, partitions: int) -> None:
    """1 -> 2 -> 1 and out to 3: the cycle supports itself, and must go when it is cut."""
    spark, resident = on_spark(manner, partitions), Reasoner()
    edges = [((1, 2), 1), ((2, 1), 1), ((2, 3), 1)]
    steps = [
        {"facts": {"e": edges}, "rules": CLOSURE},
        {"facts": {"e": [((2, 1), -1)]}},
        {"facts": {"e": [((2, 1), 2), ((3, 2), 1)]}},
        {"rules": [(CLOSURE[1][0], -1)]},
    ]
    sizes = []
    for step in steps:
        ours = spark.apply(**step)
        assert_same_epoch(ours, resident.apply(**step))
        sizes.append(spark.count("tc"))
    assert sizes == [6, 3, 9, 4]
    assert_same_state(spark, resident)
    spark.check_invariants()


def test_new_symbols_may_have_other_codes(on_spark: Make) -> None:
    """A rule that nothing starts is not bound on Spark, and its constant gets no code yet."""
    spark, resident = on_spark("small"), Reasoner()
    for reasoner in (spark, resident):
        reasoner.apply(declarations=".decl f(x: symbol, y: symbol)\n.decl e(x: symbol)")
    apply_both(spark, resident, {"rules": [('p(x) :- f(x, "first"), !e(x).', 1)]})
    apply_both(spark, resident, {"facts": {"e": [(("second",), 1)]}})
    apply_both(spark, resident, {"facts": {"f": [(("second", "first"), 1), (("third", "first"), 1)]}})
    assert_same_state(spark, resident)
    assert list(spark.weighted("p", "all")) == list(resident.weighted("p", "all"))
    assert spark.count("p") == 1


@pytest.mark.parametrize("manner", ["small", "large"])
def test_negation_and_conditions(on_spark: Make, manner: str) -> None:
    """Nodes without a way back, ordered: floats as their values, negative ones too."""
    rules = [
        ("oneway(x, y) :- e(x, y), !e(y, x), x != y.", 1),
        ("up(x, y) :- e(x, y), x < y.", 1),
        ("top(x) :- e(_, x), !up(x, _).", 1),
    ]
    spark, resident = on_spark(manner), Reasoner()
    rows = [((-1.5, 2.0), 1), ((2.0, -1.5), 1), ((-3.0, -1.5), 1), ((2.0, 2.0), 1)]
    for step in (
        {"facts": {"e": rows}, "rules": rules},
        {"facts": {"e": [((2.0, -1.5), -1), ((-1.5, 7.5), 1)]}},
    ):
        assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert set(spark.facts("up")) == {(-1.5, 2.0), (-3.0, -1.5), (-1.5, 7.5)}
    assert set(spark.facts("oneway")) == {(-1.5, 2.0), (-3.0, -1.5), (-1.5, 7.5)}
    assert set(spark.facts("top")) == {(2.0,), (7.5,)}
    assert_same_state(spark, resident)
