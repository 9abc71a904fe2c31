"""What the walk looks at in an epoch: what changed, however many rules there are."""

from __future__ import annotations

import pytest

from engine.circuit.circuit import Stratum
from engine.maintenance.epoch import Epoch
from zedlog import Reasoner


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The strata that epochs look at, from now on."""
    seen: list[tuple[str, ...]] = []
    bring = Epoch._bring

    def watched(epoch: Epoch, stratum: Stratum, *rest: object) -> None:
        seen.append(stratum.relations)
        bring(epoch, stratum, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Epoch, "_bring", watched)
    return seen


def test_a_change_is_looked_at_where_it_can_have_effects(looked_at: list[tuple[str, ...]]) -> None:
    r = Reasoner("resident")
    r.apply(rules=[(f"p{i}(x) :- q{i}(x), !s{i}(x).", 1) for i in range(100)])
    r.apply(facts={"q7": [((1,), 1)], "beside": [((1,), 1)]})
    looked_at.clear()
    r.apply(facts={"beside": [((2,), 1)]})
    assert looked_at == [("beside",)]
    looked_at.clear()
    r.apply(facts={"q7": [((2,), 1)]})
    assert looked_at == [("q7",), ("p7",)]
    assert sorted(r.facts("p7")) == [(1,), (2,)]
    looked_at.clear()
    r.apply(rules=[("p7(x) :- beside(x), x > 1.", 1), ("p100(x) :- p7(x).", 1)])
    assert set(looked_at) == {("p7",), ("p100",)}
    assert sorted(r.facts("p100")) == [(1,), (2,)]
    looked_at.clear()
    r.apply(rules=[("p7(x) :- q7(x), !s7(x).", -1)])
    assert looked_at[-2:] == [("p7",), ("p100",)]
    assert r.facts("p100") == [(2,)]
    assert "q7" in r.relations()
    r.check_invariants()


def test_a_program_of_many_rules_may_come_and_go() -> None:
    """500 rules in a row over one relation, one of them taken out of the middle and put back."""
    r = Reasoner("resident")
    rules = [f"p{i + 1}(x, y) :- p{i}(x, z), edge(z, y)." for i in range(500)]
    r.apply(facts={"p0": [((0, 0), 1)]}, rules=[(rule, 1) for rule in rules])
    r.apply(facts={"edge": [((i, i + 1), 1) for i in range(500)]})
    assert r.facts("p500") == [(0, 500)]
    r.apply(rules=[(rules[250], -1)])
    assert (r.count("p250"), r.count("p251"), r.count("p500")) == (1, 0, 0)
    r.apply(rules=[(rules[250], 1)])
    assert r.facts("p500") == [(0, 500)]
    r.apply(rules=[(rule, -1) for rule in rules])
    assert set(r.relations()) == {"edge", "p0"}
    assert len(r.database.program.circuit.strata) == 2 + 501 - 1  # what they held goes with the next circuit
    r.apply(rules=[("q(x) :- edge(x, _).", 1)])
    assert set(r.database.program.circuit.arities) == {"edge", "p0", "q"}
    r.check_invariants()
