"""Both clients against a running system: what they send is applied, and what they answer is what is there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.client.conftest import Both
from zedlog.client.errors import ConstraintViolated, NegativeWeight, NotFound, ProgramFault

_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A relation that no other test uses."""
    return f"edge{next(_numbers)}"


def test_a_transaction_is_applied_as_a_whole(both: Both, name: str) -> None:
    def fill(t: Any) -> None:
        t.add(name, [("a", "b"), ("b", "c")])
        t.rule(f"p{name}(x, y) :- {name}(x, y).")
        t.program(
            f".decl n{name}(x: number)\nn{name}(1). n{name}(2).\np{name}(x, z) :- p{name}(x, y), {name}(y, z)."
        )

    made = both.send(both.client.transaction(message="the graph", delta=True), fill)
    assert {r: (c.inserted, c.deleted) for r, c in made.changes.items()} == {
        name: (2, 0),
        f"n{name}": (2, 0),
        f"p{name}": (3, 0),
    }
    assert sorted(made.delta[f"p{name}"].inserted) == [("a", "b"), ("a", "c"), ("b", "c")]
    answer = both.query(f'p{name}("a", x)', at_least=made)
    assert (answer.columns, answer.types, answer.epoch) == (["x"], ["symbol"], made.epoch)
    assert both.rows(answer) == [("b",), ("c",)]


def test_an_exception_in_the_block_sends_nothing(both: Both, name: str) -> None:
    def fill(t: Any) -> None:
        t.add(name, [("a", "b")])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        both.send(both.client.transaction(), fill)
    with pytest.raises(NotFound) as caught:
        both.facts(name)
    assert caught.value.code == "unknown_relation"


def test_a_dry_run_changes_nothing(both: Both, name: str) -> None:
    both.add(name, [("a", "b")])
    tried = both.send(both.client.dry_run(), lambda t: t.remove(name, [("a", "b")]))
    assert tried.delta[name].deleted == [("a", "b")]
    assert both.rows(both.facts(name)) == [("a", "b")]


def test_rules_are_taken_back_by_text_by_id_and_as_they_are_listed(both: Both, name: str) -> None:
    texts = [f"p{name}(x) :- {name}(x, {i})." for i in range(3)]
    both.rule(*texts)
    ours = [rule for rule in both.rules() if rule.rule in texts]
    assert len(ours) == 3
    both.remove_rule(ours[0])
    both.remove_rule(ours[1].id)
    both.remove_rule(ours[2].rule)
    assert [rule for rule in both.rules() if rule.rule in texts] == []


def test_refusals_are_typed(both: Both, name: str) -> None:
    with pytest.raises(NegativeWeight) as negative:
        both.remove(name, [("a", "b")])
    assert (negative.value.status, negative.value.code) == (409, "negative_weight")
    assert negative.value.tuples
    with pytest.raises(ProgramFault) as fault:
        both.query(f"{name}(x")
    assert (fault.value.code, fault.value.line, fault.value.column) == ("syntax_error", 1, len(name) + 3)
    assert fault.value.rendered.endswith("^")
    both.program(f".decl c{name}(x: symbol) constraint\nc{name}(x) :- {name}(x, _).")
    with pytest.raises(ConstraintViolated) as violated:
        both.add(name, [("a", "b")])
    assert violated.value.relation == f"c{name}"
    assert violated.value.tuples == [["a"]]
