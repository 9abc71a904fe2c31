"""Columns whose types change, on Spark: as in tests/types, and as on the resident placement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.spark.compare import apply_both, assert_same_state
from tests.types.histories import History
from tests.types.test_changing_types import AGES, NUMERIC, OLDER, OUTGOING, TEXTUAL, refusal
from zedlog import Reasoner

Make = Callable[..., Reasoner]


@pytest.mark.parametrize("manner", ["small", "large"])
def test_differential_of_a_change_of_types(on_spark: Make, manner: str) -> None:
    spark, resident = on_spark(manner), Reasoner()
    apply_both(spark, resident, {"facts": AGES, "rules": [(TEXTUAL, 1), (OLDER, 1)]})
    apply_both(spark, resident, {"rules": [(TEXTUAL, -1), (NUMERIC, 1)]})
    assert sorted(spark.facts("older")) == [("ann", "cid"), ("bob", "ann"), ("bob", "cid")]
    apply_both(spark, resident, {"rules": [(OUTGOING, 1)]})
    facts = {"f": [((2, 1), 1), ((2, 3), 1), ((2, 2), 1)]}
    apply_both(spark, resident, {"facts": facts, "rules": [(OUTGOING, -1), ("c(x) :- f(x, _).", 1)]})
    assert spark.facts("c") == [(2,)]
    take = {"raw": [(values, -1) for values, _ in AGES["raw"]]}
    apply_both(spark, resident, {"facts": take})
    assert_same_state(spark, resident)


@pytest.mark.parametrize("seed", range(3))
def test_differential_of_random_histories(on_spark: Make, seed: int) -> None:
    history, spark, resident = History(seed), on_spark("small"), Reasoner()
    for change in history.transactions(10):
        after = history.state.after(change)
        ours, theirs = refusal(spark, change), refusal(resident, change)
        assert (ours and ours.code) == (theirs and theirs.code), change
        if ours is None and after is not None:
            history.state = after
            assert_same_state(spark, resident)
    spark.check_invariants()
