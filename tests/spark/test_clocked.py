"""Count and sum in recursion on Spark: state and delta of the resident placement, and moves in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import EvaluationError, FixpointNotReachedError
from engine.maintenance.policy import Policy
from tests.oracle.subject import everything
from tests.spark.compare import apply_both, assert_same_state
from zedlog import Reasoner

Make = Callable[..., Reasoner]
Change = dict[str, Any]

ATTEND: list[Change] = [
    {
        "declarations": ".decl cnt(y: symbol, n: number) fixpoint",
        "rules": [
            ("attend(x) :- organizer(x), !ill(x).", 1),
            ("cnt(y, count(x)) :- attend(x), friend(y, x).", 1),
            ("attend(x) :- cnt(x, n), n >= 2.", 1),
            ("lonely(x) :- friend(x, _), !attend(x).", 1),
        ],
        "facts": {
            "organizer": [(("a",), 1), (("b",), 1)],
            "friend": [((x, y), 1) for x in "cde" for y in "abcd" if x > y],
        },
    },
    {"facts": {"organizer": [(("b",), -1)]}},
    {"facts": {"organizer": [(("b",), 1)], "friend": [(("d", "a"), -1)]}},
    {"facts": {"ill": [(("a",), 1)]}},
    {"facts": {"ill": [(("a",), -1)]}, "rules": [("cnt(y, count(x)) :- guest(x), friend(y, x).", 1)]},
    {"rules": [("attend(x) :- cnt(x, n), n >= 2.", -1)]},
]
SHARE = "rank(x, sum(k)) :- rank(y, c), arc(y, x, d), k = 0.85 * (c / d)."
RANK: list[Change] = [
    {
        "declarations": ".decl rank(x: number, r: float) fixpoint(tolerance=1e-3, max_height=60)",
        "rules": [
            ("vertex(x) :- arc(x, _, _).", 1),
            ("rank(x, sum(i)) :- vertex(x), i = 0.15 / 3.0.", 1),
            (SHARE, 1),
        ],
        "facts": {"arc": [((0, 1, 2.0), 1), ((0, 2, 2.0), 1), ((1, 2, 1.0), 1), ((2, 0, 1.0), 1)]},
    },
    {"facts": {"arc": [((1, 2, 1.0), -1), ((1, 0, 1.0), 1)]}},
    {"rules": [(SHARE, -1)]},
    {"rules": [(SHARE, 1), ("top(x) :- rank(x, r), r > 0.3.", 1)]},
]


@pytest.mark.parametrize("manner", ["small", "large"])
@pytest.mark.parametrize("changes", [ATTEND, RANK], ids=["attend", "rank"])
def test_differential_recursive_counts_and_sums(on_spark: Make, changes: list[Change], manner: str) -> None:
    spark, resident = on_spark(manner), Reasoner()
    for change in changes:
        apply_both(spark, resident, change)
        assert_same_state(spark, resident)
    spark.check_invariants()


def test_a_refused_one_changes_nothing_and_a_move_keeps_everything(on_spark: Make) -> None:
    spark, resident = on_spark("mixed"), Reasoner()
    apply_both(spark, resident, RANK[0])
    before = everything(spark)
    with pytest.raises(FixpointNotReachedError, match="rank"):
        spark.apply(rules=[("rank(x, sum(k)) :- rank(y, c), arc(y, x, _), k = 2.0 * c.", 1)])
    assert everything(spark) == before
    with pytest.raises(EvaluationError, match="divides by zero"):
        spark.apply(facts={"arc": [((2, 1, 0.0), 1)]})
    assert everything(spark) == before
    spark.move_to("resident")
    assert spark.state() == resident.state()
    assert spark.apply(**RANK[1]).changes == resident.apply(**RANK[1]).changes
    assert spark.state() == resident.state()


@pytest.mark.parametrize("strategy", ["bootstrap", "auto", "update"])
def test_what_is_told_of_a_clocked_stratum_is_what_was_done(on_spark: Make, strategy: Any) -> None:
    """Its way through the epoch is decided by the same walk, and counted by the same kernels, as on resident."""
    policy = Policy(switch=0.05, floor=0)
    # Without the rule of another stratum, and the change that ends the recursion: Spark evaluates those in its own way.
    alone = {**ATTEND[0], "rules": ATTEND[0]["rules"][:3]}
    spark, resident = on_spark("mixed", switch=policy), Reasoner("resident", switch=policy)
    for change in (alone, *ATTEND[1:-1]):
        ours = spark.apply(**change, strategy=strategy)
        theirs = resident.apply(**change, strategy=strategy)
        assert (ours.strategy, ours.reason, ours.cost) == (theirs.strategy, theirs.reason, theirs.cost)
        assert_same_state(spark, resident)
    if strategy != "update":
        assert (
            "bootstrapped {attend, cnt}"
            in spark.dry_run(facts={"ill": [(("a",), 1)]}, strategy=strategy).reason
        )
