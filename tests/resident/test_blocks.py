"""Bootstraps in blocks of pivots against updates, which come to the same state height by height."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.circuit.circuit import Circuit
from engine.errors import BudgetExceededError, EvaluationCancelledError, EvaluationError
from engine.maintenance.placement import Budget
from engine.resident import blocks, stratum
from engine.resident.relation import Relation
from zedlog import Reasoner

PROGRAMS = {
    "closure": ["tc(x, y) :- arc(x, y).", "tc(x, z) :- tc(x, y), arc(y, z)."],
    "two relations": [
        "even(x, x) :- arc(x, _).",
        "odd(x, z) :- even(x, y), arc(y, z).",
        "even(x, z) :- odd(x, y), arc(y, z).",
    ],
    "negation and conditions": [
        "tc(x, y) :- arc(x, y), x != y.",
        "tc(x, z) :- tc(x, y), arc(y, z), !stop(y), z > 3.",
    ],
    "computed": ["d(x, y, 1) :- arc(x, y).", "d(x, z, n + 1) :- d(x, y, n), arc(y, z), n < 6."],
    "computed in Python": [
        'w(x, y, "a") :- arc(x, y).',
        'w(x, z, cat(s, "b")) :- w(x, y, s), arc(y, z), strlen(s) < 4.',
    ],
    "read above": [
        "tc(x, y) :- arc(x, y).",
        "tc(x, z) :- tc(x, y), arc(y, z).",
        "both(x, y) :- tc(x, y), tc(y, x).",
        "n(x, count(y)) :- tc(x, y).",
    ],
    "pivot in the second column": ["r(y, x) :- arc(x, y).", "r(z, x) :- r(y, x), arc(y, z)."],
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST", 1)
    monkeypatch.setattr(blocks, "TUPLES", 40)
    monkeypatch.setattr(blocks, "_WIDE", 1)


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tuples of each block that runs."""
    found: list[int] = []
    append = blocks.BlockedStratum._append

    def noted(self: blocks.BlockedStratum, place: blocks._Place, share: float) -> int:
        found.append(append(self, place, share))
        return found[-1]

    monkeypatch.setattr(blocks.BlockedStratum, "_append", noted)
    return found


def arcs(seed: int, vertices: int = 40, number: int = 90) -> np.ndarray:
    return np.unique(np.random.default_rng(seed).integers(0, vertices, (number, 2)), axis=0)


def stops(seed: int) -> list[tuple[tuple[int], int]]:
    return [((int(v),), 1) for v in np.unique(np.random.default_rng(seed).integers(0, 40, 6))]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_come_to_the_state_of_an_update(name: str, threads: int, appended: list[int]) -> None:
    rules = [(rule, 1) for rule in PROGRAMS[name]]
    for seed in range(3):
        facts = {"arc": arcs(seed), "stop": stops(seed)}
        whole = Reasoner("resident", threads=threads)
        whole.apply(facts=facts)
        result = whole.apply(rules=rules)
        assert len(appended) > 3
        appended.clear()
        stepwise = Reasoner("resident", threads=1, switch=float("inf"))
        stepwise.apply(facts={"arc": arcs(seed)[:1], "stop": stops(seed)}, rules=rules)
        changes: dict[str, dict[tuple[object, ...], int]] = {}
        for row in arcs(seed)[1:].tolist():
            for relation, moved in stepwise.apply(facts={"arc": [(tuple(row), 1)]}).changes.items():
                for values, weight in moved:
                    changes.setdefault(relation, {})
                    changes[relation][values] = changes[relation].get(values, 0) + weight
        appended.clear()
        assert whole.state() == stepwise.state()
        whole.check_invariants()
        for relation in result.changes:
            assert dict(result.changes[relation]) == dict.fromkeys(whole.facts(relation), 1)
        # And on from there.
        gone = {"arc": [(tuple(row), -1) for row in arcs(seed)[::3].tolist()]}
        for reasoner in (whole, stepwise):
            reasoner.apply(facts=gone, strategy="update")
            reasoner.check_invariants()
        assert whole.state() == stepwise.state()


def test_facts_of_the_stratum_itself_are_held_through_blocks(appended: list[int]) -> None:
    rules = [(rule, 1) for rule in PROGRAMS["closure"]]
    own = {"tc": [((100, 3), 2), ((3, 5), 1)]}
    whole, other = Reasoner("resident"), Reasoner("resident")
    whole.apply(facts={"arc": arcs(1), **own}, rules=rules)
    other.apply(facts={"arc": arcs(1)[:5]}, rules=rules)
    other.apply(facts={"arc": arcs(1)[5:]}, strategy="update")
    other.apply(facts=own, strategy="update")
    assert whole.state() == other.state()
    whole.apply(facts={"arc": [((100, 101), 1)]}, strategy="bootstrap")
    other.apply(facts={"arc": [((100, 101), 1)]}, strategy="update")
    assert whole.state() == other.state()
    assert appended


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("budget", "name"),
    [
        (Budget(derivations=900), "derivations"),
        (Budget(tuples=600), "tuples"),
        (Budget(height=6), "height"),
        (Budget(memory=60_000), "memory"),
        (Budget(seconds=0.0), "seconds"),
    ],
)
def test_a_budget_holds_for_all_blocks_together(budget: Budget, name: str, threads: int) -> None:
    reasoner = Reasoner("resident", Budget(), threads=threads)
    reasoner.apply(facts={"arc": arcs(2)})
    before = reasoner.state()
    reasoner.budget = budget
    rules = [(rule, 1) for rule in PROGRAMS["closure"]]
    with pytest.raises(BudgetExceededError) as refused:
        reasoner.apply(rules=rules)
    assert refused.value.detail["budget"] == name
    assert reasoner.state() == before
    reasoner.check_invariants()
    reasoner.budget = Budget()
    reasoner.apply(rules=rules)
    other = Reasoner("resident")
    other.apply(facts={"arc": arcs(2)}, rules=rules)
    assert reasoner.state() == other.state()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_memory_of_one_large_block_counts(threads: int) -> None:
    reasoner = Reasoner("resident", Budget(), threads=threads)
    reasoner.apply(facts={"s": [((7, 0), 1)]})
    reasoner.budget = Budget(memory=reasoner.memory() + (4 << 20))
    rules = [("n(x, i) :- s(x, i).", 1), ("n(x, i + 1) :- n(x, i), i < 300000.", 1)]
    with pytest.raises(BudgetExceededError) as refused:
        reasoner.apply(rules=rules)
    assert refused.value.detail["budget"] == "memory"
    assert refused.value.detail["relation"] == "n"
    reasoner.budget = Budget(memory=reasoner.memory() + (400 << 20))
    reasoner.apply(rules=rules)
    assert reasoner.count("n") == 300_001


@pytest.mark.parametrize("limit", [300, 500, 700])
def test_tuples_are_counted_over_blocks_that_run_at_once(limit: int) -> None:
    rules = [(rule, 1) for rule in PROGRAMS["closure"]]
    free = Reasoner("resident")
    free.apply(facts={"arc": arcs(2)}, rules=rules)
    most = free.count("tc") + free.count("arc")
    assert most > 700
    for threads in (1, 2):
        reasoner = Reasoner("resident", Budget(tuples=limit), threads=threads)
        reasoner.apply(facts={"arc": arcs(2)})
        with pytest.raises(BudgetExceededError, match=f"of {limit} allowed"):
            reasoner.apply(rules=rules)
        reasoner.budget = Budget(tuples=most)
        reasoner.apply(rules=rules)


def test_a_cancelled_block_leaves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    reasoner = Reasoner("resident", Budget(cancelled=cancelled), threads=2)
    reasoner.apply(facts={"arc": arcs(2)})
    before = reasoner.state()
    asked = 0
    with pytest.raises(EvaluationCancelledError):
        reasoner.apply(rules=[(rule, 1) for rule in PROGRAMS["closure"]])
    assert reasoner.state() == before


def test_a_value_that_does_not_exist_is_found_in_a_block() -> None:
    reasoner = Reasoner("resident", threads=2)
    largest = 2**63 - 2
    reasoner.apply(facts={"arc": arcs(2), "n": [((largest,), 1)]})
    before = reasoner.state()
    with pytest.raises(EvaluationError, match="outside of the range"):
        reasoner.apply(
            rules=[("d(x, y, m) :- arc(x, y), n(m).", 1), ("d(x, z, n + 1) :- d(x, y, n), arc(y, z).", 1)]
        )
    assert reasoner.state() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_indexes_that_are_built_anew_are_those_that_grow(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    rules = [("nl(x, y) :- arc(x, y).", 1), ("nl(x, z) :- nl(x, y), nl(y, z).", 1)]
    grown = Reasoner("resident", threads=1)
    grown.apply(facts={"arc": arcs(4)}, rules=rules)
    monkeypatch.setattr(stratum, "MANY", 3)
    anew = Reasoner("resident", threads=threads)
    built: list[str] = []
    rebuilding = Relation.rebuilding

    def noted(self: Relation) -> list[Callable[[], None]]:
        built.append(self.name)
        return rebuilding(self)

    monkeypatch.setattr(Relation, "rebuilding", noted)
    for part in (arcs(4)[:9], arcs(4)[9:]):
        anew.apply(facts={"arc": part}, rules=rules[: 2 * (not anew.epoch)])
    assert "nl" in built
    gone = {"arc": [(tuple(row), -1) for row in arcs(4)[::3].tolist()]}
    for reasoner in (grown, anew):
        reasoner.check_invariants()
    assert grown.state() == anew.state()
    for reasoner in (grown, anew):
        reasoner.apply(facts=gone, strategy="update")
        reasoner.check_invariants()
    assert grown.state() == anew.state()


def test_only_strata_whose_tuples_stay_apart_are_done_in_blocks() -> None:
    reasoner = Reasoner("resident")
    reasoner.apply(
        rules=[
            ("tc(x, z) :- tc(x, y), arc(y, z).", 1),
            ("nl(x, z) :- nl(x, y), nl(y, z).", 1),
            ("sp(y, min(d + 1)) :- sp(x, d), arc(x, y).", 1),
            ("flat(x) :- arc(x, _).", 1),
        ]
    )
    circuit: Circuit = reasoner.database.program.circuit
    done = {name: blocks.in_blocks(circuit.stratum_of[name]) for name in ("tc", "nl", "sp", "flat")}
    assert done == {"tc": True, "nl": False, "sp": False, "flat": False}
