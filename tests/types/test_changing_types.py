"""What a stored code means never changes in place: when the types of a relation's columns change, what is there before
goes and what is there afterwards comes, each with its own types, and so in everything that reads the relation."""

from __future__ import annotations

from typing import Any

import pytest

from engine import errors as e
from engine.maintenance.placement import Budget
from tests.types.histories import History
from zedlog import Reasoner

AGES = {"raw": [(("ann", "9"), 1), (("bob", "10"), 1), (("cid", "7"), 1)]}
TEXTUAL = "age(p, a) :- raw(p, a)."
NUMERIC = "age(p, n) :- raw(p, a), n = to_number(a)."
OLDER = "older(x, y) :- age(x, a), age(y, b), a > b."


def test_a_rule_that_makes_numbers_of_symbols_changes_all_that_reads_them():
    reasoner = Reasoner()
    reasoner.apply(facts=AGES, rules=[(TEXTUAL, 1), (OLDER, 1)])
    # As texts, "9" > "7" > "10".
    assert sorted(reasoner.facts("older")) == [("ann", "bob"), ("ann", "cid"), ("cid", "bob")]
    result = reasoner.apply(rules=[(TEXTUAL, -1), (NUMERIC, 1)])
    assert sorted(reasoner.facts("older")) == [("ann", "cid"), ("bob", "ann"), ("bob", "cid")]
    old = [(("ann", "9"), -1), (("bob", "10"), -1), (("cid", "7"), -1)]
    new = [(("ann", 9), 1), (("bob", 10), 1), (("cid", 7), 1)]
    assert sorted(result.changes["age"], key=str) == sorted([*old, *new], key=str)
    assert result.counts["age"] == (3, 3)
    assert sorted(result.changes["older"]) == [
        (("ann", "bob"), -1),
        (("bob", "ann"), 1),
        (("bob", "cid"), 1),
        (("cid", "bob"), -1),
    ]
    # And back, in two steps.
    reasoner.apply(rules=[(NUMERIC, -1)])
    assert reasoner.facts("older") == []
    reasoner.apply(rules=[(TEXTUAL, 1)])
    assert sorted(reasoner.facts("older")) == [("ann", "bob"), ("ann", "cid"), ("cid", "bob")]


def test_a_relation_that_loses_its_last_facts_may_be_compared_by_rules():
    reasoner = Reasoner()
    reasoner.apply(
        facts={"parent": [(("ann", "bob"), 1), (("ann", "cid"), 1)]},
        rules=[("sibling(x, y) :- parent(p, x), parent(p, y), x != y.", 1)],
    )
    take = {"parent": [(("ann", "bob"), -1), (("ann", "cid"), -1)]}
    assert reasoner.dry_run(facts=take).counts == {"parent": (0, 2), "sibling": (0, 2)}
    reasoner.apply(facts={"parent": take["parent"][:1]})
    assert reasoner.facts("sibling") == []
    reasoner.apply(facts={"parent": take["parent"][1:]})
    assert reasoner.facts("parent") == []
    # Now its columns are open again.
    reasoner.apply(facts={"parent": [((1, 2), 1), ((1, 3), 1)]})
    assert sorted(reasoner.facts("sibling")) == [(2, 3), (3, 2)]


def test_the_sum_of_what_nobody_knows_the_type_of_any_more_has_no_value():
    reasoner = Reasoner()
    rule = "s(x, n) :- b(x), n = sum y : { f(x, y) }."
    reasoner.apply(facts={"b": [((1,), 1), ((2,), 1)], "f": [((1, 5), 1)]}, rules=[(rule, 1)])
    assert sorted(reasoner.facts("s")) == [(1, 5), (2, 0)]
    assert reasoner.apply(facts={"f": [((1, 5), -1)]}).counts == {"f": (0, 1), "s": (0, 2)}
    assert reasoner.facts("s") == []
    reasoner.apply(facts={"f": [((1, 2.5), 1)]})
    assert sorted(reasoner.facts("s")) == [(1, 2.5), (2, 0.0)]
    # Where it is declared, the sum of nothing is known.
    reasoner.apply(facts={"f": [((1, 2.5), -1)]}, declarations=".decl f(x: number, y: float)")
    assert sorted(reasoner.facts("s")) == [(1, 0.0), (2, 0.0)]


def test_the_types_of_facts_change_in_one_transaction():
    reasoner = Reasoner()
    reasoner.apply(facts={"a": [(("s",), 1)]}, rules=[("b(x) :- a(x).", 1)])
    result = reasoner.apply(facts={"a": [((3,), 1), (("s",), -1)]})
    assert sorted(result.changes["b"], key=str) == [(("s",), -1), ((3,), 1)]
    result = reasoner.apply(facts={"a": [((3,), -1), ((1, 2), 1)]}, rules=[("b(x) :- a(x).", -1)])
    assert sorted(result.changes["a"]) == [((1, 2), 1), ((3,), -1)]
    assert reasoner.facts("a") == [(1, 2)]


def test_facts_of_two_types_are_refused():
    reasoner = Reasoner()
    reasoner.apply(facts={"a": [(("s",), 1), (("t",), 1)]})
    with pytest.raises(e.TypeMismatchError) as refused:
        reasoner.apply(facts={"a": [((3,), 1), (("s",), -1)]})
    assert refused.value.detail["relation"] == "a"
    assert {refused.value.detail["expected"], refused.value.detail["got"]} == {"symbol", "number"}
    with pytest.raises(e.TypeMismatchError):
        reasoner.apply(facts={"new": [((3,), 1), (("s",), 1)]})
    with pytest.raises(e.ArityError):
        reasoner.apply(facts={"new": [((3,), 1), ((3, 4), 1)]})
    assert sorted(reasoner.facts("a")) == [("s",), ("t",)]


def test_what_comes_to_nothing_fixes_no_type():
    reasoner = Reasoner()
    reasoner.apply(facts={"a": [(("s",), -1)]}, mode="set")
    reasoner.apply(facts={"a": [(("s",), 1), (("s",), -1)]})
    assert "a" not in reasoner.relations()
    reasoner.apply(facts={"a": [((3,), 1)]}, rules=[("b(x) :- a(x).", 1)])
    assert reasoner.facts("b") == [(3,)]


def test_a_declaration_changes_the_types_of_what_is_derived():
    reasoner = Reasoner()
    reasoner.apply(
        facts=AGES, rules=[(TEXTUAL, 1), (OLDER, 1)], declarations=".decl age(p: symbol, a: symbol)"
    )
    with pytest.raises(e.TypeMismatchError):
        reasoner.apply(rules=[(TEXTUAL, -1), (NUMERIC, 1)])
    reasoner.apply(
        rules=[(TEXTUAL, -1), (NUMERIC, 1)],
        undeclare=["age"],
        declarations=".decl age(p: symbol, a: number)",
    )
    assert sorted(reasoner.facts("older")) == [("ann", "cid"), ("bob", "ann"), ("bob", "cid")]


def test_errors_name_the_relation_and_not_its_key():
    reasoner = Reasoner()
    reasoner.apply(facts=AGES, rules=[(TEXTUAL, 1)])
    reasoner.apply(rules=[(TEXTUAL, -1), (NUMERIC, 1)])
    with pytest.raises(e.StratificationError) as refused:
        reasoner.apply(rules=[("age(p, 1) :- raw(p, _), !age(p, 2).", 1)])
    assert refused.value.detail["cycle"] == ["age"]
    assert "age -> age" in refused.value.message


OUTGOING = "a(x, y) :- f(x, y), x != y."
"""It compares what nobody knows the type of."""


@pytest.mark.parametrize(
    "rule", [OUTGOING, "b(x + 1) :- f(x, _).", "n(x, s) :- f(x, _), s = sum y : { f(x, y) }."]
)
def test_a_rule_goes_as_the_types_come_that_it_waited_for(rule: str):
    reasoner = Reasoner()
    reasoner.apply(rules=[(rule, 1), ("c(x) :- f(x, _).", 1)])
    result = reasoner.apply(facts={"f": [((2, 1), 1), ((2, 3), 1)]}, rules=[(rule, -1)])
    assert {name: sorted(tuples) for name, tuples in result.changes.items()} == {
        "f": [((2, 1), 1), ((2, 3), 1)],
        "c": [((2,), 1)],
    }
    reasoner.apply(rules=[(OUTGOING, 1)])
    assert sorted(reasoner.facts("a")) == [(2, 1), (2, 3)]


def test_a_refusal_names_rules_by_the_ids_that_are_listed():
    reasoner = Reasoner(budget=Budget(derivations=20))
    reasoner.apply(facts=AGES, rules=[(TEXTUAL, 1)])
    reasoner.apply(rules=[(TEXTUAL, -1), (NUMERIC, 1), ("same(x, y) :- age(x, a), age(y, a).", 1)])
    listed = {rule.id for rule in reasoner.rules() if rule.text.startswith("same")}
    with pytest.raises(e.BudgetExceededError) as refused:
        reasoner.apply(facts={"raw": [((f"p{i}", "5"), 1) for i in range(10)]})
    assert set(refused.value.detail["rules"]) == listed
    assert refused.value.detail["relation"] == "same"


def test_a_relation_moves_with_its_types(closure_of_ages: Reasoner):
    """What another placement holds is the same state, also where a relation has another key."""
    before = closure_of_ages.state()
    closure_of_ages.move_to("resident")
    assert closure_of_ages.state() == before
    held = closure_of_ages.export()
    restored = Reasoner.restore(held, "resident")
    assert restored.state() == before
    for reasoner in (closure_of_ages, restored):
        reasoner.apply(facts={"raw": [(("dan", "8"), 1)]})
    assert restored.state() == closure_of_ages.state()


@pytest.fixture
def closure_of_ages() -> Reasoner:
    reasoner = Reasoner("resident")
    reasoner.apply(facts=AGES, rules=[(TEXTUAL, 1), (OLDER, 1)])
    reasoner.apply(rules=[(TEXTUAL, -1), (NUMERIC, 1)])
    return reasoner


def refusal(reasoner: Reasoner, change: dict[str, Any]) -> e.ZedlogError | None:
    """Apply the change, or say why it was refused."""
    try:
        reasoner.apply(**change)
    except e.ZedlogError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(60))
def test_after_any_history_the_state_is_that_of_a_bootstrap(seed: int):
    """Also what is refused: a transaction is taken exactly if its sum can be taken as a whole."""
    history, reasoner = History(seed), Reasoner("resident")
    for change in history.transactions(25):
        after = history.state.after(change)
        taken, fresh = refusal(reasoner, change), Reasoner("resident")
        wrong = e.NegativeWeightError("") if after is None else refusal(fresh, after.whole())
        assert (taken is None) == (wrong is None), f"{change}: {taken}, but as a whole {wrong}"
        if after is not None and wrong is None:
            history.state = after
            reasoner.check_invariants()
            assert reasoner.state() == fresh.state(), change
            assert reasoner.relations().keys() == fresh.relations().keys()
    # And back to nothing, out of which everything may come again.
    whole = history.state.whole()
    reasoner.apply(**history.state.nothing())
    assert (reasoner.relations(), reasoner.state()) == ({}, Reasoner().state())
    fresh = Reasoner("resident")
    for one in (reasoner, fresh):
        one.apply(**whole)
    assert reasoner.state() == fresh.state()
