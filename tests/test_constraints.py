"""Integrity constraints: which transactions they refuse, alone, as dry runs and in a group, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import errors as e
from engine.data.transaction import Transaction
from engine.language.parser import parse_declarations
from tests.oracle.subject import everything
from zedlog import Reasoner

DECLARATION = ".decl homeless(x: symbol) constraint"
RULE = "homeless(x) :- employee(x), !works_in(x, _)."


@pytest.fixture
def company() -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(
        declarations=DECLARATION,
        rules=[(RULE, 1)],
        facts={"employee": [(("ann",), 1)], "works_in": [(("ann", "sales"), 1)]},
    )
    return reasoner


def facts(weight: int = 1, **tuples: list[list[Any]]) -> Transaction:
    changes = [{"relation": r, "tuples": rows, "weight": weight} for r, rows in tuples.items()]
    return Transaction.parse(facts=changes)


def test_a_violation_is_refused_with_its_tuples(company: Reasoner) -> None:
    before = company.state()
    with pytest.raises(e.ConstraintViolationError) as raised:
        company.apply(facts={"employee": [(("bob",), 1), (("eve",), 1)]})
    assert raised.value.message == (
        'homeless is a constraint and must stay empty, but it would hold homeless("bob"), homeless("eve")'
    )
    assert raised.value.detail["relation"] == "homeless"
    assert raised.value.detail["tuples"] == [["bob"], ["eve"]]
    assert raised.value.detail["number"] == 2
    assert [rule["rule"] for rule in raised.value.detail["rules"]] == [RULE]
    assert company.state() == before
    assert company.export().symbols == ("ann", "sales")
    company.check_invariants()


def test_many_violations_show_the_first_ten(company: Reasoner) -> None:
    with pytest.raises(e.ConstraintViolationError, match=" and 15 more") as raised:
        company.apply(facts={"employee": [((f"e{i:02}",), 1) for i in range(25)]})
    assert raised.value.detail["tuples"] == [[f"e{i:02}"] for i in range(10)]
    assert raised.value.detail["number"] == 25


def test_every_way_to_break_it(company: Reasoner) -> None:
    before = company.state()
    attempts: list[dict[str, Any]] = [
        {"facts": {"works_in": [(("ann", "sales"), -1)]}},
        {"facts": {"homeless": [(("zoe",), 1)]}},
        {"rules": [("homeless(x) :- works_in(x, _).", 1)]},
        {"rules": [('employee("rex") :- works_in("ann", _).', 1)]},
    ]
    for change in attempts:
        with pytest.raises(e.ConstraintViolationError):
            company.apply(**change)
        with pytest.raises(e.ConstraintViolationError):
            company.dry_run(**change)
    assert company.state() == before
    assert company.epoch == 1


def test_what_keeps_it_passes(company: Reasoner) -> None:
    company.apply(facts={"employee": [(("bob",), 1)], "works_in": [(("bob", "sales"), 1)]})
    company.dry_run(facts={"works_in": [(("bob", "it"), 1)]})
    company.apply(facts={"works_in": [(("bob", "sales"), -1), (("bob", "it"), 1)]})
    company.apply(rules=[(RULE, -1)])
    company.apply(facts={"works_in": [(("bob", "it"), -1)]})
    # The rule would break it now.
    with pytest.raises(e.ConstraintViolationError):
        company.apply(rules=[(RULE, 1)])
    assert company.count("homeless") == 0


def test_relations_without_the_qualifier_hold_what_they_like() -> None:
    reasoner = Reasoner()
    reasoner.apply(declarations=".decl homeless(x: symbol)", rules=[(RULE, 1)])
    reasoner.apply(facts={"employee": [(("bob",), 1)]})
    assert reasoner.facts("homeless") == [("bob",)]


def test_a_declaration_may_make_a_relation_a_constraint_later() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        declarations=".decl homeless(x: symbol)", rules=[(RULE, 1)], facts={"employee": [(("bob",), 1)]}
    )
    with pytest.raises(e.ConstraintViolationError) as raised:
        reasoner.apply(declarations=DECLARATION)
    assert raised.value.detail["tuples"] == [["bob"]]
    assert reasoner.export().declarations == ".decl homeless(x: symbol)"
    reasoner.apply(declarations=DECLARATION, facts={"works_in": [(("bob", "it"), 1)]})
    assert reasoner.export().declarations == DECLARATION
    with pytest.raises(e.ConstraintViolationError):
        reasoner.apply(facts={"works_in": [(("bob", "it"), -1)]})
    # Said again without it, it still is one.
    reasoner.apply(declarations=".decl homeless(x: symbol)")
    with pytest.raises(e.ConstraintViolationError):
        reasoner.apply(facts={"works_in": [(("bob", "it"), -1)]})


def test_other_columns_are_still_a_conflict(company: Reasoner) -> None:
    with pytest.raises(e.DeclarationError):
        company.apply(declarations=".decl homeless(y: symbol) constraint")


def test_it_is_restored_with_the_program(company: Reasoner) -> None:
    state = company.export()
    restored = Reasoner.restore(state)
    with pytest.raises(e.ConstraintViolationError):
        restored.apply(facts={"employee": [(("bob",), 1)]})


def test_a_constraint_without_columns() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        declarations=".decl broken() constraint", rules=[("broken() :- n = count : { p(_) }, n > 1.", 1)]
    )
    reasoner.apply(facts={"p": [((1,), 1)]})
    with pytest.raises(e.ConstraintViolationError, match=r"would hold broken\(\)"):
        reasoner.apply(facts={"p": [((2,), 1)]})


class TestGroups:
    def test_only_the_offender_is_refused(self, company: Reasoner) -> None:
        result = company.commit(
            [
                facts(other=[["x"]]),
                facts(employee=[["bob"]]),
                facts(employee=[["eve"]], works_in=[["eve", "it"]]),
                facts(-1, works_in=[["ann", "sales"]]),
                facts(other=[["y"]]),
            ]
        )
        refused = [type(o).__name__ if isinstance(o, e.ZedlogError) else "" for o in result.outcomes]
        assert refused == ["", "ConstraintViolationError", "", "ConstraintViolationError", ""]
        assert sorted(company.facts("employee")) == [("ann",), ("eve",)]
        assert sorted(company.facts("other")) == [("x",), ("y",)]
        assert company.epoch == 2
        company.check_invariants()

    def test_one_that_breaks_it_is_refused_also_where_the_next_would_mend_it(self, company: Reasoner) -> None:
        result = company.commit([facts(employee=[["bob"]]), facts(works_in=[["bob", "it"]])])
        assert isinstance(result.outcomes[0], e.ConstraintViolationError)
        assert company.facts("employee") == [("ann",)]
        assert sorted(company.facts("works_in")) == [("ann", "sales"), ("bob", "it")]
        # And now it may come.
        company.apply(facts={"employee": [(("bob",), 1)]})

    def test_a_rule_that_goes_in_the_same_group_still_counts_before(self, company: Reasoner) -> None:
        result = company.commit(
            [facts(employee=[["bob"]]), Transaction.parse(rules=[{"rule": RULE, "weight": -1}])]
        )
        assert isinstance(result.outcomes[0], e.ConstraintViolationError)
        assert company.rules() == []
        assert company.facts("employee") == [("ann",)]

    def test_a_refused_one_leaves_its_weights_to_the_next(self, company: Reasoner) -> None:
        result = company.commit([facts(employee=[["bob"]]), facts(-1, employee=[["bob"]])])
        assert [type(o) for o in result.outcomes] == [e.ConstraintViolationError, e.NegativeWeightError]
        assert result.record is None
        assert company.epoch == 1

    def test_a_dry_run_in_a_group_is_refused_too(self, company: Reasoner) -> None:
        dry = Transaction.parse(facts=[{"relation": "employee", "tuples": [["bob"]]}], dry_run=True)
        result = company.commit([facts(other=[["x"]]), dry])
        assert not isinstance(result.outcomes[0], e.ZedlogError)
        assert isinstance(result.outcomes[1], e.ConstraintViolationError)


OPTIONS = [
    ("employee", ["a"]),
    ("employee", ["b"]),
    ("works_in", ["a", "it"]),
    ("works_in", ["b", "it"]),
    ("other", ["a"]),
]
changes = st.lists(
    st.tuples(st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=2), st.sampled_from([1, -1])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(changes=changes)
def test_batch_vs_singletons(changes: list[tuple[list[tuple[str, list[str]]], int]]) -> None:
    """A group gives each transaction the outcome that it would have had alone, and the same state."""
    transactions = [
        Transaction.parse(facts=[{"relation": r, "tuples": [t], "weight": weight} for r, t in parts])
        for parts, weight in changes
    ]
    together, alone = Reasoner(), Reasoner()
    for reasoner in (together, alone):
        reasoner.apply(declarations=DECLARATION, rules=[(RULE, 1)], facts={"start": [((1,), 1)]})
    grouped = [getattr(o, "code", "") for o in together.commit(transactions).outcomes]
    single = [getattr(alone.commit([t]).outcomes[0], "code", "") for t in transactions]
    assert grouped == single
    assert together.state() == alone.state()


def test_the_text_of_a_constraint() -> None:
    (declaration,) = parse_declarations(".decl homeless(x: symbol) no_inline constraint")
    assert declaration.is_constraint
    (declaration,) = parse_declarations(".decl constraint(x: symbol)")
    assert (declaration.relation, declaration.is_constraint) == ("constraint", False)
    with pytest.raises(e.UnsupportedFeatureError, match=r"write \.decl r\(\.\.\.\) constraint"):
        parse_declarations(".constraint homeless")


def test_a_declaration_can_be_withdrawn_and_another_one_put_in_its_place(company: Reasoner) -> None:
    before = everything(company)
    with pytest.raises(e.NotDeclaredError):
        company.apply(undeclare=["homeless", "employee"])
    assert everything(company) == before
    company.dry_run(undeclare=["homeless"], facts={"employee": [(("bob",), 1)]})
    assert everything(company) == before
    # In one transaction with what the constraint would refuse.
    company.apply(undeclare=["homeless"], facts={"employee": [(("bob",), 1)]})
    assert company.facts("homeless") == [("bob",)]
    assert company.export().declarations == ""
    with pytest.raises(e.ConstraintViolationError):
        company.apply(declarations=DECLARATION)
    company.apply(declarations=DECLARATION, facts={"employee": [(("bob",), -1)]})
    company.apply(undeclare=["homeless"], declarations=".decl homeless(who: symbol)")
    assert company.relations()["homeless"].columns[0].name == "who"
    with pytest.raises(e.InvalidRequestError, match="a list of names"):
        company.apply(undeclare="homeless")
    # What is not declared is no fault for a change that only wants it not to be.
    company.apply(undeclare=["employee"], mode="set")


def test_the_type_that_only_a_declaration_gave_is_open_again() -> None:
    reasoner = Reasoner()
    reasoner.apply(declarations=".decl n(x: number)")
    with pytest.raises(e.TypeMismatchError):
        reasoner.apply(facts={"n": [(("a",), 1)]})
    reasoner.apply(undeclare=["n"], facts={"n": [(("a",), 1)]}, rules=[("m(x) :- n(x).", 1)])
    assert reasoner.facts("m") == [("a",)]
