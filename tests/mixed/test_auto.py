"""What `auto` sends to Spark and brings home, stratum by stratum."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import NegativeWeightError
from engine.maintenance.placement import Budget
from engine.spark.session.session import SparkSource
from tests.oracle.subject import changes_of
from tests.spark.compare import assert_same_state
from tests.spark.conftest import patient
from tests.spark.test_elastic import JOIN, square
from zedlog import Reasoner

pytestmark = patient

LIMIT = 800_000
SMALL = [("near(x, y) :- step(x, y).", 1), ("near(x, z) :- near(x, y), step(y, z).", 1)]
CHAIN = [((n, n + 1), 1) for n in range(5)]


@pytest.fixture
def both(source: SparkSource) -> Iterator[tuple[Reasoner, Reasoner]]:
    """A steady reasoner, and one on `auto` with little memory; both hold a small recursion and a small join."""
    spark = SparkSource(replace(source.options, local_rows=20_000), source.session())
    made = (
        Reasoner("resident", threads=1),
        Reasoner("auto", spark=spark, threads=1, budget=Budget(memory=LIMIT)),
    )
    for one in made:
        one.apply(facts={"e": square(60), "f": square(20, "f"), "step": CHAIN}, rules=JOIN + SMALL)
    assert made[1].placement == "resident"
    yield made
    made[1].close()


def away(reasoner: Reasoner) -> set[str]:
    return set(reasoner.database.places.away())


def step(both: tuple[Reasoner, Reasoner], **change: Any) -> Any:
    steady, reasoner = both
    result = reasoner.apply(**change)
    assert changes_of(result) == changes_of(steady.apply(**change))
    assert_same_state(reasoner, steady)
    reasoner.check_invariants()
    return result


def test_only_what_outgrows_leaves_and_what_reads_it_follows_if_there_is_no_room(both: Any) -> None:
    _, reasoner = both
    grown = {"f": square(200, "f")[20:]}
    before = reasoner.state()
    promised = reasoner.dry_run(facts=grown)
    assert (promised.placement, reasoner.placement) == ("mixed", "resident")
    with pytest.raises(NegativeWeightError):
        reasoner.apply(facts={**grown, "step": [((9, 9), -1)]})
    assert (reasoner.placement, reasoner.state()) == ("resident", before)
    result = step(both, facts=grown)
    assert (result.placement, away(reasoner)) == ("mixed", {"p"})
    assert "moved {p} to spark, because on resident the transaction needs" in result.reason
    assert reasoner.database.places.away()["p"].startswith("in the engine process, the transaction needs")
    # What does not read it is at home, and asks nothing of Spark.
    queries = reasoner.database.placement.spark.queries  # type: ignore[attr-defined]
    step_result = reasoner.apply(facts={"step": [((5, 6), 1)]})
    assert step_result.counts["near"] == (6, 0)
    assert reasoner.database.placement.spark.queries == queries  # type: ignore[attr-defined]
    both[0].apply(facts={"step": [((5, 6), 1)]})
    # A mirror of p has no room here.
    result = step(both, rules=[("q(x) :- p(x, _), near(x, _).", 1)])
    assert away(reasoner) == {"p", "q"}
    assert "moved {q} to spark" in result.reason
    step(both, facts={"step": [((0, 1), -1)]})
    # Most of it goes: the next epoch finds room for all.
    step(both, facts={"f": [((0, n), -1) for n in range(5, 200)]})
    assert away(reasoner) == {"p", "q"}
    result = step(both, facts={"step": [((0, 1), 1)]})
    assert (result.placement, away(reasoner)) == ("resident", set())
    assert result.reason == "maintained; back on resident: the state fits into the memory budget again"


def test_what_reads_a_relation_that_has_outgrown_follows_in_the_same_epoch(both: Any) -> None:
    _, reasoner = both
    step(both, rules=[("q(x) :- p(x, _), near(x, _).", 1)])
    result = step(both, facts={"f": square(200, "f")[20:]})
    assert (result.placement, away(reasoner)) == ("mixed", {"p", "q"})
    assert re.search(r"moved \{p\} to spark, .*; moved \{q\} to spark, ", result.reason)
    step(both, facts={"step": [((0, 1), -1)]})


def test_placements_that_are_asked_for_are_for_all_strata(both: Any) -> None:
    _, reasoner = both
    step(both, facts={"f": square(200, "f")[20:]})
    assert away(reasoner) == {"p"}
    result = step(both, facts={"step": [((5, 6), 1)]}, placement="spark")
    assert (result.placement, away(reasoner)) == ("spark", {"*"})
    # There is no room for all of it, so it goes back as far as there is.
    result = step(both, facts={"step": [((6, 7), 1)]})
    assert "stays on spark: the state needs" in result.reason
    result = step(both, facts={"step": [((7, 8), 1)]})
    assert "p" in away(reasoner)
    assert not {"near", "step"} & away(reasoner)
