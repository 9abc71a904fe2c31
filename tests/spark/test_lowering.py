"""Plans as DataFrames (engine/spark/plans/lowering.py): many as one join, with the result that each has alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from engine.circuit.normal import normalise
from engine.circuit.plan import compile_rule
from engine.language.inference import infer_schemas
from engine.language.parser import parse_rules
from engine.spark.plans import branches, lowering
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import classic, patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
LEAST = -(2**63)
RULES = [
    # one look-up: constants in every place, a repeated variable, the relation by itself, and the other way round
    "t(y, 4, x) :- t(a, 2, x), t(y, a, _).",
    "t(z, 4, x) :- t(a, 3, x), t(_, a, z).",
    "t(x, 1, z) :- t(x, 1, y), t(y, 1, z).",
    "t(z, 4, y) :- t(x, 0, y), t(z, 4, x).",
    "t(x, b, y) :- t(a, 1, b), t(x, a, y).",
    f"t(x, 5, {LEAST}) :- t(x, 0, x), t(x, 1, _).",
    f"t(x, 5, 5) :- t(x, 5, {LEAST}), t(x, 4, x).",
    # two and three look-ups, heads of other widths, a look-up of all columns
    "p(x) :- t(x, 4, y), t(y, 4, z), t(z, _, x).",
    "q(x, y) :- p(x), t(x, b, y), p(y), p(b).",
    "t(x, y, 6) :- q(x, y), e(x, y), t(y, 4, x).",
    # no look-up
    "q(y, x) :- e(x, y).",
    "p(6) :- q(x, x).",
    # under no variable: alone
    "n() :- t(_, 6, _), p(6).",
    "p(7) :- n(), q(_, 3).",
    # negated and computed: alone
    "o(x) :- p(x), !t(x, 1, _).",
    "o(z) :- q(x, y), z = x / 2, t(z, _, _).",
]


def shapes(text: str) -> list[int | None]:
    rule = parse_rules(text)[0]
    (core,) = normalise(rule, infer_schemas([], {}, [rule], {})).rules
    return [lowering.shape(plan) for plan in compile_rule(core).plans]


def test_shapes() -> None:
    assert shapes("q(y, x) :- e(x, y).") == [0]
    assert shapes("t(x, z) :- t(x, y), t(y, z).") == [1, 1]
    assert shapes("p(x) :- t(x, y), t(y, z), t(z, x).") == [2, 2, 2]
    assert shapes("n() :- t(_, 6), p(6).") == [None, None]
    assert shapes("o(x) :- p(x), !t(x, 1).") == [None, 1]
    assert shapes("o(z) :- q(x, y), z = x + y.") == [None]


def facts(rng: random.Random, number: int) -> list[tuple[tuple[int, ...], int]]:
    rows = {(rng.randrange(9), rng.randrange(6), rng.randrange(9)) for _ in range(number)}
    return [(row, 1) for row in sorted(rows)]


@patient
@pytest.mark.parametrize(("manner", "partitions"), [("small", 2), ("large", 2)])
def test_rules_of_all_shapes_with_changes(on_spark: Make, manner: str, partitions: int) -> None:
    rng = random.Random(17)
    spark, resident = on_spark(manner, partitions), Reasoner()
    start = facts(rng, 26)
    edges = [((x, y), 1) for x in range(4) for y in range(4) if rng.random() < 0.4]
    away = [(row, -1) for row, _ in rng.sample(start, 8)]
    for change in (
        {"facts": {"t": start, "e": edges}, "rules": [(rule, 1) for rule in RULES]},
        {"facts": {"t": away, "e": [(edges[0][0], -1)]}, "rules": [(rule, -1) for rule in RULES[1:9:3]]},
    ):
        assert_same_epoch(spark.apply(**change), resident.apply(**change))
        assert all(resident.count(name) for name in "pqo")
    assert_same_state(spark, resident)
    spark.check_invariants()


@patient
def test_more_plans_than_go_together(on_spark: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "TOGETHER", 2)
    test_rules_of_all_shapes_with_changes(on_spark, "small", 2)


@classic
def test_a_query_has_a_join_for_each_step(on_spark: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each plan."""
    joins = []

    def watched(started: list[lowering.Started], *more: Any) -> lowering.Derived:
        derived = lowering.derivations(started, *more)
        plan = derived.heads._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
        joins.append((len(started), plan.count("Join Inner"), len(started[0].plan.steps)))
        return derived

    monkeypatch.setattr(branches, "derivations", watched)
    spark = on_spark("large", 2)
    spark.apply(facts={"t": facts(random.Random(7), 40)}, rules=[(rule, 1) for rule in RULES[:5]])
    assert max(number for number, _, _ in joins) >= 5
    assert all(found == steps for _, found, steps in joins)
