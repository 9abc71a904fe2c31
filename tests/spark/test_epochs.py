"""What an epoch on Spark leaves behind: nothing after a dry run or a refusal, and no storage beside the state."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    BudgetExceededError,
    NegativeWeightError,
    WeightOverflowError,
)
from engine.maintenance.placement import Budget
from engine.spark.placement import SparkPlacement
from engine.spark.session.session import SparkSource
from engine.spark.version import MANY
from tests.full import FULL
from tests.spark.compare import assert_same_state
from tests.spark.conftest import classic
from zedlog import Reasoner

Make = Callable[..., Reasoner]
CLOSURE = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
CHAIN = {"e": [((i, i + 1), 1) for i in range(4)]}


def stored(source: SparkSource, reasoner: Reasoner | None = None) -> int:
    """Collections that Spark keeps in its storage, cached frames included. reasoner: what nobody has any more of its
    epochs, it gives back first, as its next epoch would."""
    if reasoner is not None:
        placement = reasoner.database.placement
        assert isinstance(placement, SparkPlacement)
        placement._tables.drain()
    session = source.session()
    assert session._jsparkSession.sharedState().cacheManager().isEmpty()
    return int(session.sparkContext._jsc.getPersistentRDDs().size())


@classic
@pytest.mark.parametrize("manner", ["small", "large"])
def test_a_dry_run_and_a_refusal_leave_state_and_storage(
    on_spark: Make, source: SparkSource, manner: str
) -> None:
    reasoner = on_spark(manner)
    reasoner.apply(facts={"e": CHAIN["e"][:3]}, rules=CLOSURE)
    state, kept = reasoner.state(), stored(source, reasoner)
    promised = reasoner.dry_run(facts={"e": [((0, 1), -1), ((3, 1), 1)]})
    assert reasoner.state() == state
    assert stored(source, reasoner) == kept
    with pytest.raises(NegativeWeightError):
        reasoner.apply(facts={"e": [((0, 1), -2)]})
    assert reasoner.state() == state
    result = reasoner.apply(facts={"e": [((0, 1), -1), ((3, 1), 1)]})
    assert {k: sorted(v) for k, v in result.changes.items()} == {
        k: sorted(v) for k, v in promised.changes.items()
    }
    reasoner.check_invariants()


@classic
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("manner", ["small", "large"])
def test_many_small_epochs_leave_storage_lineage_and_driver_flat(
    on_spark: Make, source: SparkSource, manner: str
) -> None:
    """Whatever is there after the first epochs is all that is there after a hundred."""
    before = stored(source)
    reasoner = on_spark(manner)
    reasoner.apply(facts={"e": [((1, 2), 1)]}, rules=[("p(y, x) :- e(x, y).", 1)])
    seen = []
    for i in range(50 if FULL else 7):
        for weight in (1, -1):
            reasoner.apply(facts={"e": [((i, i + 7), weight)]})
            seen.append((stored(source, reasoner) - before, *depths(reasoner)))
        if i == 5:
            heap, resident = held(source)
    early, late = seen[:12], seen[12:]
    # Layers come and are compacted, at the most MANY of them for each of the two relations, and one that is being made.
    assert max(s for s, _, _ in seen) <= (0 if manner == "small" else 2 * (MANY + 1))
    for part in range(3):
        assert max(row[part] for row in late) <= max(row[part] for row in early)
    assert reasoner.facts("p") == [(2, 1)]
    reasoner.check_invariants()
    later, now = held(source)
    assert later < heap + (20 << 20), "the driver's heap grows"
    assert now < resident + (100 << 20), "this process grows"
    reasoner.close()
    # Less, where the collections of the JVM took what a test with an interrupted query had left.
    assert stored(source) <= before


def depths(reasoner: Reasoner) -> tuple[int, int]:
    """The largest number of operators in a relation's plan, and of collections in the lineage below it."""
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    frames: list[Any] = [version.frame() for version in placement._state.versions.values() if version.layers]
    executions = [frame._jdf.queryExecution() for frame in frames]
    plan = max(e.analyzed().treeString().count("\n") for e in executions)
    return plan, max(e.toRdd().toDebugString().count("\n") for e in executions)


def held(source: SparkSource) -> tuple[int, int]:
    """Bytes in use on the JVM's heap, after a collection, and of this process."""
    jvm: Any = source.session()._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    used = []
    for _ in range(5):
        # What Python refers to, the JVM keeps; and what Spark's cleaner drops goes with the next collection.
        gc.collect()
        jvm.java.lang.System.gc()
        used.append(runtime.totalMemory() - runtime.freeMemory())
        time.sleep(0.2)
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) if statm.exists() else 0
    return min(used), pages * resource.getpagesize()


@pytest.mark.parametrize("manner", ["small", "large"])
def test_weight_overflow_is_refused(on_spark: Make, manner: str) -> None:
    reasoner = on_spark(manner)
    reasoner.apply(facts={"e": [((1, 2), 2**63 - 1)]})
    state = reasoner.state()
    with pytest.raises(WeightOverflowError):
        reasoner.apply(facts={"e": [((1, 2), 1)]})
    assert reasoner.state() == state
    assert reasoner.weighted("e") == [((1, 2), 2**63 - 1)]


@pytest.mark.parametrize("order", [(1, 1, -1), (1, -1, 1)])
def test_the_weights_of_one_tuple_are_added_up_before_they_are_judged(
    on_spark: Make, order: tuple[int, ...]
) -> None:
    reasoner = on_spark("large")
    largest = 2**63 - 1
    reasoner.apply(facts={"e": [((1, 2), sign * largest) for sign in order]})
    assert reasoner.weighted("e") == [((1, 2), largest)]
    with pytest.raises(WeightOverflowError) as refused:
        reasoner.apply(facts={"e": [((1, 2), 2), ((1, 2), -1)]})
    assert refused.value.detail["tuples"] == [[1, 2]]
    reasoner.apply(facts={"e": [((1, 2), 1), ((1, 2), -2)]})
    assert reasoner.weighted("e") == [((1, 2), largest - 1)]


@pytest.mark.parametrize(
    ("budget", "what"),
    [
        (Budget(derivations=5), "derivations"),
        (Budget(height=3), "height"),
        (Budget(tuples=12), "tuples"),
        (Budget(seconds=0.0), "seconds"),
    ],
)
def test_a_budget_is_kept(on_spark: Make, budget: Budget, what: str) -> None:
    with spending(on_spark("small"), budget) as reasoner:
        with pytest.raises(BudgetExceededError) as caught:
            reasoner.apply(facts=CHAIN, rules=CLOSURE)
        assert caught.value.detail["budget"] == what
        assert caught.value.detail["stratum"]
    assert reasoner.relations() == {}
    reasoner.apply(facts=CHAIN, rules=CLOSURE)
    assert reasoner.count("tc") == 10


@contextmanager
def spending(reasoner: Reasoner, budget: Budget) -> Iterator[Reasoner]:
    before, reasoner.budget = reasoner.budget, budget
    yield reasoner
    reasoner.budget = before


def test_moving_to_spark_and_back_keeps_supports_and_heights(on_spark: Make, source: SparkSource) -> None:
    """Updates go on after either move, as if nothing had been moved."""
    steady, moved = Reasoner(), Reasoner()
    steps = [
        {"facts": CHAIN, "rules": CLOSURE},
        {"facts": {"e": [((5, 0), 1), ((2, 3), -1)]}},
        {"facts": {"e": [((2, 3), 3)]}, "rules": [("back(x) :- tc(x, x).", 1)]},
    ]
    for step, placement in zip(steps, ("spark", "resident", "spark"), strict=True):
        steady.apply(**step)
        moved.apply(**step)
        assert {p: moved.state()[p] for p in ("facts", "supports", "entries")} == {
            p: steady.state()[p] for p in ("facts", "supports", "entries")
        }
        moved.move_to(placement, source)
        if placement == "resident":
            assert moved.state() == steady.state()
        moved.check_invariants()
    assert_same_state(moved, steady)
    moved.close()
