"""The whole language on Spark: after every epoch the resident placement's state and delta, tuple by tuple.

`ZEDLOG_FULL=1` runs every case in every manner of working, and more random histories.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from engine.errors import EvaluationError, FixpointNotReachedError, ZedlogError
from engine.maintenance.placement import Budget
from engine.spark.session.session import SparkSource
from tests.full import FULL
from tests.oracle.stratified_programs import DialectHistory, Totals, dialect_histories
from tests.oracle.subject import everything, model_of
from tests.oracle.test_master_property_dialect import REFUSALS, expected_of
from tests.spark.compare import apply_both, assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
Change = dict[str, Any]
EXAMPLES = int(os.environ.get("ZEDLOG_SPARK_EXAMPLES", "12" if FULL else "2"))
MANNERS = [("small", 2), ("mixed", 5), ("large", 1)]
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


pytestmark = patient


def rules(*texts: str) -> list[tuple[str, int]]:
    return [(text, 1) for text in texts]


EDGES = [((0, 1, 4), 1), ((1, 2, 1), 1), ((0, 2, 7), 1), ((2, 3, 2), 1), ((3, 1, 1), 1), ((3, 4, 10), 1)]
PROGRAMS: dict[str, list[Change]] = {
    "numbers": [
        {
            "facts": {"e": [((7, 2), 1), ((-7, 2), 1), ((5, 0), 1)]},
            "rules": rules(
                "p(x * y - 1, x / y) :- e(x, y), y != 0.",
                "q(x) :- e(x, y), x % 2 = 1, z = x ^ y, z > x.",
                "l(x land y, x - 5 lor y, x lxor lnot y) :- e(x, y), true.",
                "r(z) :- e(x, _), z = range(0, x, 3).",
            ),
        },
        {"facts": {"e": [((7, 2), -1), ((9, 3), 1)]}},
    ],
    "texts": [
        {
            "facts": {"s": [(("a", "b"), 1), (("b", "aa"), 1)]},
            "rules": rules(
                'c(cat(x, "-", y), strlen(y)) :- s(x, y).',
                "up(x, y) :- s(x, y), x < y.",
                'm(max(x, y)) :- s(x, y), match("a.*", x).',
                'low(x) :- s(x, _), x <= "a".',
            ),
        },
        {"facts": {"s": [(("a", "b"), -1), (("a", "zz"), 1), (("", "a"), 1)]}},
    ],
    "terms of RDF": [
        {
            "facts": {"s": [(('a "b"\n', 1, 0.5, True), 1), (("é%/", -7, 1e21, False), 1)]},
            "rules": rules(
                ".rdf s(x, n, f, b) <http://e/{x}/{n}> a <http://e/C>; <http://e/p> x, n, f, b, x@en; "
                "<http://e/{b}> <http://e/{f}>, f^^<http://www.w3.org/2001/XMLSchema#decimal>."
            ),
        },
        {"facts": {"s": [(("é%/", -7, 1e21, False), -1), (("", 0, 0.0, True), 1)]}},
    ],
    "floats": [
        {
            "facts": {"m": [((0.1, 3.0), 1), ((-2.5, 2.0), 1), ((1e300, 0.5), 1)]},
            "rules": rules(
                "p(x * y + 0.1, -x) :- m(x, y).",
                "q(x ^ y) :- m(x, y), x > 0.0.",
                "t(sum(x * 0.1)) :- m(x, _).",
                "a(mean(y)) :- m(_, y).",
            ),
        },
        {"facts": {"m": [((0.1, 3.0), -1), ((0.7, 0.7), 1)]}},
    ],
    "folds": [
        {
            "facts": {"e": [((1, 2), 1), ((1, 3), 1), ((2, 3), 1)]},
            "rules": rules(
                "n(x, c) :- e(x, _), c = count : { e(x, _), e(_, x) }.", "t(sum(y), x) :- e(x, y)."
            ),
        },
        {"facts": {"e": [((1, 2), -1), ((4, 1), 1)]}},
        # A second source for the groups of one fold, then the first one goes.
        {"rules": rules("t(sum(x), y) :- e(x, y).")},
        {"rules": [("t(sum(y), x) :- e(x, y).", -1)]},
    ],
    "shortest paths": [
        {
            "facts": {"w": EDGES, "g": [((0,), 1)]},
            "rules": rules(
                "sp(x, min(0)) :- g(x).",
                "sp(y, min(d + c)) :- sp(x, d), w(x, y, c).",
                "far(x) :- sp(x, d), d > 5.",
            ),
        },
        {"facts": {"w": [((1, 2, 1), -1)]}},
        {"facts": {"w": [((1, 2, 1), 1), ((0, 4, 3), 1)]}},
        {"rules": [("sp(y, min(d + c)) :- sp(x, d), w(x, y, c).", -1)]},
    ],
    "folded facts": [
        {
            "facts": {"w": EDGES, "sp": [((0, 0), 1), ((0, 7), 2), ((3, 9), 1)]},
            "rules": rules("sp(y, min(d + c)) :- sp(x, d), w(x, y, c).", "near(x) :- sp(x, d), d < 9."),
        },
        {"facts": {"sp": [((0, 0), -1)]}},
        {"facts": {"sp": [((0, 7), -1), ((0, 3), 1), ((1, 100), 1)]}},
        {"rules": [("sp(y, min(d + c)) :- sp(x, d), w(x, y, c).", -1)]},
        {"rules": [("sp(y, max(d + c)) :- late(x, d), w(x, y, c).", 1)], "facts": {"sp": [((0, 7), -1)]}},
    ],
    "components": [
        {
            "facts": {"e": [((2, 1), 1), ((3, 2), 1), ((5, 4), 1)]},
            "rules": rules(
                "u(x, y) :- e(x, y).",
                "u(x, y) :- e(y, x).",
                "cc(x, min(x)) :- u(x, _).",
                "cc(y, min(c)) :- cc(x, c), u(x, y).",
                "n(count(c)) :- cc(x, c), x = c.",
            ),
        },
        {"facts": {"e": [((4, 3), 1)]}},
        {"facts": {"e": [((2, 1), -1), ((4, 3), -1)]}},
    ],
    "no value on the way": [
        {
            "facts": {
                "start": [(("a", 0), 1)],
                "arc": [(("a", "b", 9), 1), (("a", "m", 1), 1), (("m", "b", 1), 1)],
                "via": [(("b", "c"), 1)],
            },
            # The longer way to b costs 9, over which it would divide by zero; the shorter one takes it back.
            "rules": rules(
                "d(y, min(c)) :- start(y, c).",
                "d(y, min(e)) :- d(x, c), arc(x, y, w), e = c + w.",
                "d(y, min(e)) :- d(x, c), via(x, y), e = 12 / (c - 9).",
            ),
        },
        {"facts": {"arc": [(("m", "b", 1), -1), (("a", "b", 8), 1)]}},
    ],
    "largest": [
        {
            "facts": {
                "part": [(("car", "wheel", 2.5), 1), (("wheel", "rim", 4.0), 1), (("car", "seat", 1.0), 1)]
            },
            "rules": rules(
                "late(x, max(d)) :- part(_, x, d).",
                "late(x, max(d)) :- part(x, y, _), late(y, d).",
                # Read by a relation of the same stratum, so that its entries are signed too.
                "slow(y) :- late(x, d), part(x, y, _), d > 0.5.",
                "late(y, max(1.5)) :- slow(y).",
            ),
        },
        {"facts": {"part": [(("wheel", "rim", 4.0), -1), (("seat", "foam", -1.5), 1)]}},
    ],
}
DEFAULT = {
    "small": ("numbers", "folds", "floats", "terms of RDF"),
    "mixed": ("texts", "shortest paths", "folded facts"),
    "large": (),
}
CASES = [
    pytest.param(steps, *manner, id=f"{name}-{manner[0]}")
    for name, steps in PROGRAMS.items()
    for manner in MANNERS
    if FULL or name in DEFAULT[manner[0]]
]


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "manner", "partitions"), CASES)
def test_differential_of_a_feature(on_spark: Make, steps: list[Change], manner: str, partitions: int) -> None:
    spark, resident = on_spark(manner, partitions), Reasoner()
    for step in steps:
        apply_both(spark, resident, step)
        assert_same_state(spark, resident)
        spark.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROGRAMS) if FULL else ["numbers"])
def test_batch_vs_epochs_of_a_feature(on_spark: Make, name: str) -> None:
    """All changes as one transaction come to the same state as one after the other."""
    spark, resident = on_spark("large"), Reasoner()
    spark.apply(**total(PROGRAMS[name]))
    for step in PROGRAMS[name]:
        resident.apply(**step)
    assert_same_state(spark, resident)


def total(steps: list[Change]) -> Change:
    """All changes in one."""
    facts: dict[str, list[Any]] = {}
    texts: list[tuple[str, int]] = []
    for step in steps:
        for name, changes in step.get("facts", {}).items():
            facts.setdefault(name, []).extend(changes)
        texts += step.get("rules", [])
    return {"facts": facts, "rules": texts}


@pytest.mark.parametrize("manner", ["small", "large"] if FULL else ["large"])
def test_a_value_that_does_not_exist_refuses_the_epoch_without_a_trace(on_spark: Make, manner: str) -> None:
    reasoner = on_spark(manner)
    reasoner.apply(
        facts={"e": [((8, 2), 1)], "s": [(("7",), 1)], "ok": [((8,), 1)]},
        rules=rules("q(x, z) :- e(x, y), ok(x), z = x / y.", "n(to_number(x)) :- s(x)."),
    )
    before = everything(reasoner)
    with pytest.raises(EvaluationError, match=r"8 / 0 divides by zero.*x = 8, y = 0") as caught:
        reasoner.apply(facts={"e": [((8, 0), 1), ((8, 3), 1)]})
    assert caught.value.detail["rule"] == "q(x, z) :- e(x, y), ok(x), z = x / y."
    assert caught.value.detail["binding"] == {"x": 8, "y": 0}
    with pytest.raises(EvaluationError, match=r"to_number.*not a number"):
        reasoner.apply(facts={"s": [(("seven",), 1), (("9",), 1)], "e": [((8, 4), 1)]})
    with pytest.raises(EvaluationError, match="sum of a group of t"):
        reasoner.apply(
            rules=rules("t(sum(9223372036854775807)) :- w(x)."), facts={"w": [((1,), 1), ((2,), 1)]}
        )
    with pytest.raises(EvaluationError, match="1 / 0 divides by zero"):
        reasoner.apply(rules=rules("z(y) :- y = 1 / 0."))
    assert everything(reasoner) == before
    # No complete binding: 5 is not ok, and the rule that would divide goes.
    reasoner.apply(facts={"e": [((5, 0), 1)]})
    reasoner.apply(
        facts={"ok": [((5,), 1)]},
        rules=[("q(x, z) :- e(x, y), ok(x), z = x / y.", -1), ("z(y) :- 1 > 2, y = 1 / 0.", 1)],
    )
    assert set(reasoner.facts("n")) == {(7,)}
    assert "q" not in reasoner.relations()
    reasoner.check_invariants()


def run_history(history: DialectHistory, spark: Reasoner, resident: Reasoner) -> None:
    """The oracle says what holds; the resident placement, where it agrees, the supports and heights."""
    note(history)
    for reasoner in (spark, resident):
        reasoner.budget = Budget(height=300)
        reasoner.apply(declarations=history.declarations())
    totals, together = Totals(), True
    for change in history.changes:
        change = totals.fitting(change)
        after = totals.with_(change)
        expected = expected_of(after)
        before = everything(spark)
        if isinstance(expected, Exception):
            with pytest.raises(REFUSALS[type(expected)]):
                spark.apply(**change.arguments())
            assert everything(spark) == before
            with pytest.raises(ZedlogError):
                resident.apply(**change.arguments())
            continue
        totals = after
        try:
            resident.dry_run(**change.arguments())
        except EvaluationError:
            together = False
        if together:
            apply_both(spark, resident, change.arguments())
            assert_same_state(spark, resident)
        else:
            spark.apply(**change.arguments())
        assert model_of(spark, sorted(spark.relations())) == expected
        spark.check_invariants()


@pytest.mark.slow
@few
@given(history=dialect_histories(max_epochs=3, faulty=True))
def test_oracle_and_differential_dialect_small(on_spark: Make, history: DialectHistory) -> None:
    run_history(history, on_spark("small", partitions=1), Reasoner())


@pytest.mark.slow
@few
@given(history=dialect_histories(max_epochs=2))
def test_oracle_and_differential_dialect_mixed(on_spark: Make, history: DialectHistory) -> None:
    run_history(history, on_spark("mixed", partitions=5), Reasoner())


@pytest.mark.slow
@few
@given(history=dialect_histories(max_epochs=2))
def test_oracle_and_differential_dialect_large(on_spark: Make, history: DialectHistory) -> None:
    run_history(history, on_spark("large", partitions=2), Reasoner())


def test_moving_keeps_folds(on_spark: Make, source: SparkSource) -> None:
    """A fold in place looks at all tuples of a group, also at those that came with the state."""
    steps = PROGRAMS["shortest paths"]
    steady, moved = Reasoner(), Reasoner()
    for step, placement in zip(steps, ("spark", "resident", "spark", "resident"), strict=True):
        steady.apply(**step)
        moved.apply(**step)
        assert_same_state(moved, steady)
        moved.move_to(placement, source)
        moved.check_invariants()
    assert_same_state(moved, steady)
    moved.close()


@pytest.mark.parametrize("manner", ["small", "large"] if FULL else ["small"])
def test_differential_a_min_that_swings_is_refused_alike(on_spark: Make, manner: str) -> None:
    texts = rules("m(min(u)) :- q(u).", "p(1) :- m(3).", "q(2) :- p(_).", "q(u) :- base(u).")
    spark, resident = on_spark(manner), Reasoner()
    apply_both(spark, resident, {"facts": {"base": [((4,), 1)]}, "rules": texts})
    refusals = []
    for reasoner in (spark, resident):
        with pytest.raises(FixpointNotReachedError, match="alternates between 2, 3") as refused:
            reasoner.apply(facts={"base": [((3,), 1)]})
        refusals.append({key: refused.value.detail[key] for key in ("relation", "group", "values")})
    assert refusals[0] == refusals[1] == {"relation": "m", "group": [], "values": [2, 3]}
    assert_same_state(spark, resident)
