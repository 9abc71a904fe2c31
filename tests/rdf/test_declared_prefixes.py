"""Prefixes as declarations of a database: added, used, withdrawn, and kept with everything else."""

from __future__ import annotations

import pytest

from engine.errors import DeclarationError, NotDeclaredError, UnknownPrefixError
from engine.language.canonical import rule_id
from engine.language.parser import parse_rules
from service.access.rights import check_transaction
from service.changes import check_program, program_transaction, transaction_from_json
from service.principal import ForbiddenError, Principal
from zedlog import Reasoner

EX = ".prefix ex: <http://example.org/>"
RULE = "in_c(x) :- triple(x, ex:type, ex:C)."
WHOLE = 'in_c(x) :- triple(x, "<http://example.org/type>", "<http://example.org/C>").'
FACT = ("<http://example.org/a>", "<http://example.org/type>", "<http://example.org/C>")


def declared(reasoner: Reasoner) -> str:
    return reasoner.database.program.declaration_text


def test_rules_use_what_the_database_or_their_transaction_declares() -> None:
    reasoner = Reasoner()
    with pytest.raises(UnknownPrefixError, match="ex: is not declared"):
        reasoner.apply(rules=[(RULE, 1)])
    reasoner.apply(rules=[(RULE, 1)], declarations=EX, facts={"triple": [(FACT, 1)]})
    assert reasoner.query("in_c(ex:a)").tuples == [()]
    assert reasoner.query("triple(x, ex:type, c), c = ex:C").tuples == [(FACT[0], FACT[2])]
    (info,) = reasoner.database.program.rule_infos
    assert (info.text, info.id) == (WHOLE, rule_id(parse_rules(WHOLE)[0]))
    # The same rule, however it is written.
    reasoner.apply(rules=[(WHOLE, 1)])
    reasoner.apply(rules=[(RULE, -2)])
    assert reasoner.query("triple(x, _, _)").tuples == [(FACT[0],)]
    assert not reasoner.database.program.rule_infos


def test_prefixes_come_and_go_by_transactions() -> None:
    reasoner = Reasoner()
    reasoner.apply(declarations=f"{EX}\n.decl triple(s: symbol, p: symbol, o: symbol)", rules=[(RULE, 1)])
    assert declared(reasoner).splitlines()[0] == EX
    reasoner.apply(declarations=EX)
    with pytest.raises(DeclarationError, match="already declared as <http"):
        reasoner.apply(declarations=".prefix ex: <http://other/>")
    reasoner.apply(undeclare=["ex:"], declarations=".prefix ex: <http://other/>")
    assert reasoner.prefixes == {"ex": "http://other/"}
    # A rule that is there means what it meant.
    assert reasoner.database.program.rule_infos[0].text == WHOLE
    with pytest.raises(NotDeclaredError, match="rdf: is not declared"):
        reasoner.apply(undeclare=["rdf:"])
    # What is withdrawn may be used by the transaction that withdraws it.
    reasoner.apply(undeclare=["ex:"], rules=[("p(ex:a) :- triple(ex:a, _, _).", 1)])
    assert reasoner.prefixes == {}
    with pytest.raises(UnknownPrefixError):
        reasoner.query("in_c(ex:a)")
    reasoner.apply(undeclare=["ex:"], mode="set")


def test_a_program_over_http_comes_and_goes_as_a_whole() -> None:
    text = f"{EX}\n.decl triple(s: symbol, p: symbol, o: symbol)\ntriple(ex:a, ex:type, ex:C).\n{RULE}"
    how = {"mode": "zset", "dry_run": False, "return_delta": False}
    added = program_transaction(text, 1, **how)  # type: ignore[arg-type]
    assert added.declarations.splitlines()[0] == EX
    assert list(added.facts[0].tuples) == [list(FACT)]
    removed = program_transaction(text, -1, **how)  # type: ignore[arg-type]
    assert removed.undeclare == ("ex:", "triple")
    reasoner = Reasoner()
    empty = reasoner.database.program.declaration_text
    for transaction in (added, removed):
        outcome = reasoner.commit([transaction]).outcomes[0]
        assert not isinstance(outcome, Exception), outcome
    assert (declared(reasoner), reasoner.database.program.rule_infos) == (empty, ())
    # With a prefix of the database.
    used = program_transaction("p(ex:b).", 1, **how, prefixes={"ex": "http://example.org/"})  # type: ignore[arg-type]
    assert list(used.facts[0].tuples) == [["<http://example.org/b>"]]


def test_the_service_leaves_the_prefixes_of_rules_to_the_engine() -> None:
    body = {"rules": [{"rule": RULE}], "declarations": EX}
    transaction = transaction_from_json(body, dry_run=False, return_delta=False)
    assert check_program(transaction).rules[0].rule == RULE


def test_who_may_change_some_relations_changes_no_prefixes() -> None:
    some = Principal("some", "writer", None, frozenset({"p"}))
    for body in ({"declarations": EX}, {"undeclare": ["ex:"]}):
        with pytest.raises(ForbiddenError, match="prefixes are those of the whole database"):
            check_transaction(some, transaction_from_json(body, dry_run=False, return_delta=False))
    rule = {"rules": [{"rule": "p(x) :- q(x, ex:a)."}]}
    check_transaction(some, transaction_from_json(rule, dry_run=False, return_delta=False))
