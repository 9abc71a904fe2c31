"""A stratum that loses all of its rules is dropped, unless its facts are more than what was derived: the same state,
the same change for a reader, and nothing left of what a bootstrap of it cost."""

from __future__ import annotations

from typing import Any

import pytest

from engine.database.epoch import EpochResult
from engine.maintenance.change import RelationChange
from engine.maintenance.epoch import Epoch
from engine.resident.placement import ResidentPlacement
from tests.spark.compare import assert_same_state
from zedlog import Reasoner

CLOSURE = ["tc(x, y) :- e(x, y).", "tc(x, z) :- tc(x, y), e(y, z)."]
FACTS = {
    "e": [((i, i + 1), 1) for i in range(6)] + [((3, 1), 1)],
    "tc": [((0, 1), 2), ((0, 3), 1), ((9, 9), 1)],
}
AWAY = [(rule, -1) for rule in CLOSURE]
ABOVE = ("far(x, y) :- tc(x, y), !e(x, y).", 1)


def derived(facts: dict[str, Any] = FACTS) -> Reasoner:
    reasoner = Reasoner("resident")
    reasoner.apply(facts=facts, rules=[(rule, 1) for rule in CLOSURE] + [ABOVE])
    return reasoner


def told(result: EpochResult) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a reader is told, by relation."""
    found = {}
    for name, change in result.record.relations.items():
        assert isinstance(change, RelationChange)
        parts = (change.asserted, change.derived, change.present, change.was_asserted, change.was_derived)
        assert change.height is not None
        assert change.was_height is not None
        numbers = [part.tolist() for part in (*parts, change.height, change.was_height)]
        found[name] = sorted(zip(map(tuple, change.codes.tolist()), *numbers, strict=True))
    return found


def costs(reasoner: Reasoner) -> set[tuple[str, ...]]:
    placement = reasoner.database.placement
    assert isinstance(placement, ResidentPlacement)
    return set(placement._state.costs)


@pytest.mark.parametrize("strategy", ["auto", "update", "bootstrap"])
@pytest.mark.parametrize("facts", [{}, {"tc": [((0, 2), 1), ((9, 9), -1)], "e": [((0, 1), -1)]}])
def test_what_is_dropped_is_what_would_be_retracted(
    monkeypatch: pytest.MonkeyPatch, strategy: Any, facts: dict[str, Any]
) -> None:
    reasoner = derived()
    result = reasoner.apply(rules=AWAY, facts=facts, strategy=strategy)
    assert "dropped what was derived, because no rules are left: {tc}" in result.record.reason
    reasoner.check_invariants()
    fresh = Reasoner("resident")
    fresh.apply(facts=FACTS)
    fresh.apply(facts=facts, rules=[ABOVE])
    assert_same_state(reasoner, fresh)
    monkeypatch.setattr(Epoch, "_is_to_be_dropped", lambda *_: False)
    slow = derived()
    retracted: EpochResult = slow.apply(rules=AWAY, facts=facts, strategy="update")
    assert told(result) == told(retracted)
    assert "dropped" not in retracted.record.reason
    assert_same_state(reasoner, slow)


def test_nothing_is_derived_and_no_cost_is_left() -> None:
    reasoner = derived({"e": FACTS["e"]})
    assert ("tc",) in costs(reasoner)
    result = reasoner.apply(rules=[*AWAY, (ABOVE[0], -1)])
    assert result.cost["derivations"] == 0
    assert ("tc",) not in costs(reasoner)
    assert set(reasoner.relations()) == {"e"}
    again = reasoner.apply(rules=[(rule, 1) for rule in CLOSURE])
    fresh = Reasoner("resident")
    made = fresh.apply(facts={"e": FACTS["e"]}, rules=[(rule, 1) for rule in CLOSURE])
    assert again.cost["derivations"] == made.cost["derivations"]
    assert costs(reasoner) == costs(fresh)
    assert_same_state(reasoner, fresh)


def test_many_facts_stay_where_they_are() -> None:
    facts = {"e": [((0, 1), 1)], "tc": [((i, -i), 1) for i in range(1, 50)]}
    reasoner = derived(facts)
    result = reasoner.apply(rules=AWAY)
    assert "dropped" not in result.record.reason
    assert result.cost["derivations"] > 0
    assert ("tc",) not in costs(reasoner)
    fresh = Reasoner("resident")
    fresh.apply(facts=facts, rules=[ABOVE])
    assert_same_state(reasoner, fresh)


def test_what_is_dropped_comes_back_with_a_dry_run() -> None:
    reasoner = derived()
    state = reasoner.state()
    promised = reasoner.dry_run(rules=AWAY)
    assert reasoner.state() == state
    reasoner.check_invariants()
    assert reasoner.apply(rules=AWAY).changes == promised.changes
