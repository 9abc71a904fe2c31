"""The memory budget: what needs more is refused before its arrays are made, and leaves everything as it was."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import BudgetExceededError
from engine.language.canonical import rule_id
from engine.language.parser import parse_rules
from engine.maintenance.placement import Budget
from engine.resident import relation as arrays
from engine.resident.placement import ResidentPlacement
from zedlog import Reasoner

CLOSURE = [("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)]


def chain(n: int) -> np.ndarray:
    return np.column_stack((np.arange(n), np.arange(1, n + 1)))


@pytest.mark.parametrize("limit", [200_000, 1_000_000, 3_000_000, 6_000_000])
def test_no_array_is_made_that_passes_the_budget(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    grown = arrays.grown

    def watched(array: np.ndarray, capacity: int) -> np.ndarray:
        larger = grown(array, capacity)
        made.append(larger.nbytes)
        return larger

    monkeypatch.setattr(arrays, "grown", watched)
    r = Reasoner("resident", budget=Budget(memory=limit))
    r.apply(facts={"edge": chain(10)}, rules=CLOSURE)
    before = r.state()
    # 600 * 601 / 2 tuples of some 70 bytes.
    with pytest.raises(BudgetExceededError, match="MiB allowed") as refused:
        r.apply(facts={"edge": chain(600)})
    assert refused.value.detail["budget"] == "memory"
    assert max(made, default=0) < limit
    assert r.state() == before
    r.check_invariants()
    assert r.memory() <= limit
    r.apply(facts={"edge": np.array([[10, 11]])})
    assert r.count("tc") == 11 * 12 // 2


def test_what_is_held_is_known_without_looking_at_every_relation() -> None:
    r = Reasoner("resident")
    placement = r.database.placement
    assert isinstance(placement, ResidentPlacement)

    def held() -> int:
        return sum(relation.memory() for relation in placement._state.relations.values())

    r.apply(facts={"edge": chain(200)}, rules=CLOSURE)
    assert r.memory() == held() > 0
    r.dry_run(facts={"edge": chain(300)}, rules=[("p(x) :- tc(x, x).", 1)])
    assert r.memory() == held()
    r.apply(rules=[("tc(x, z) :- tc(x, y), tc(y, z).", 1), (CLOSURE[1][0], -1)], strategy="bootstrap")
    assert r.memory() == held()
    r.apply(facts={"edge": [((i, i + 1), -1) for i in range(200)]})
    assert r.memory() == held()


def test_a_refusal_names_what_its_user_wrote() -> None:
    """And not the relation of what is counted, which only the circuit has, though that is what grew."""
    r = Reasoner("resident", budget=Budget(tuples=30))
    rule = "c(x, count(y)) :- e(y, x), f(x)."
    with pytest.raises(BudgetExceededError, match="36 tuples, of 30 allowed") as refused:
        r.apply(
            facts={"e": [((i, i % 3), 1) for i in range(10)] * 2, "f": [((i,), 1) for i in range(16)]},
            rules=[(rule, 1)],
        )
    error = refused.value
    assert "@" not in f"{error}{error.detail}"
    assert error.detail["rules"] == [rule_id(parse_rules(rule)[0])]


def test_symbols_count() -> None:
    r = Reasoner("resident", budget=Budget(memory=5_000_000))
    with pytest.raises(BudgetExceededError):
        r.apply(facts={"p": [((f"a symbol of some length, number {i}",), 1) for i in range(20_000)]})
    assert r.relations() == {}
    r.apply(facts={"p": [((i,), 1) for i in range(20_000)]})


def test_a_reasoner_without_a_budget_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it does not go to Spark by itself."""
    monkeypatch.setattr("engine.database.reasoner.default_memory_budget", lambda: 1_000_000)
    r = Reasoner()
    with pytest.raises(BudgetExceededError):
        r.apply(facts={"edge": chain(600)}, rules=CLOSURE)
    assert (r.placement, r.epoch) == ("resident", 0)
