"""The system under test, read in the oracles' terms, and compared with them."""

from __future__ import annotations

from typing import Any

from engine.database.epoch import EpochResult
from engine.errors import UnknownRelationError, ZedlogError
from tests.oracle.height_model import HeightModel
from tests.oracle.programs import Epoch, History, totals
from tests.oracle.rules import Model, Row, rule_text
from tests.oracle.stratified_programs import Change
from zedlog import Reasoner

Changes = dict[str, dict[Row, int]]


def apply(reasoner: Reasoner, epoch: Epoch) -> EpochResult:
    return reasoner.apply(facts=epoch.fact_changes(), rules=epoch.rule_changes())


def declared(history: History) -> Reasoner:
    """A new reasoner that knows the history's declarations and nothing else."""
    reasoner = Reasoner()
    if history.declared:
        reasoner.apply(declarations=history.declarations())
    return reasoner


def bootstrap(history: History) -> Reasoner:
    """A new reasoner that got the history's last state in one transaction."""
    facts, rules = totals(history.epochs)
    reasoner = declared(history)
    reasoner.apply(
        facts={name: list(rows.items()) for name, rows in facts.items()},
        rules=[(rule_text(rule), weight) for rule, weight in rules.items()],
    )
    return reasoner


def restarted(reasoner: Reasoner) -> Reasoner:
    """A new reasoner made of what the snapshot keeps: facts and rules, nothing derived."""
    kept = reasoner.export()
    return Reasoner.restore(kept)


def model_of(reasoner: Reasoner, relations: list[str]) -> Model:
    """All tuples, asked for as a user does; each answer has every tuple once."""
    model: Model = {}
    for name in relations:
        try:
            reasoner.count(name)
        except UnknownRelationError:
            continue  # so far nothing has mentioned it
        rows = [tuple(row) for row in reasoner.facts(name)]
        assert len(set(rows)) == len(rows) == reasoner.count(name), name
        if rows:
            model[name] = set(rows)
    return model


def changes_of(result: EpochResult) -> Changes:
    """relation -> tuple -> +1 or -1; no tuple is told twice."""
    changes: Changes = {}
    for name, entries in result.changes.items():
        assert len({row for row, _ in entries}) == len(entries), name
        if entries:
            changes[name] = dict(entries)
    return changes


def outcome_of(reasoner: Reasoner, change: Change) -> Changes | type[ZedlogError]:
    """What a change does, or the kind of its refusal."""
    try:
        return changes_of(reasoner.apply(**change.arguments()))
    except ZedlogError as error:
        return type(error)


def difference(before: Model, after: Model) -> Changes:
    changes: Changes = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, set()), after.get(name, set())
        rows = dict.fromkeys(new - old, 1) | dict.fromkeys(old - new, -1)
        if rows:
            changes[name] = rows
    return changes


def assert_state_of(reasoner: Reasoner, expected: HeightModel, facts: dict[str, dict[Row, int]]) -> None:
    """Facts, supports and entries are what their definition says, height by height."""
    state = reasoner.state()
    assert _filled(state["facts"]) == facts
    assert _filled(state["supports"]) == expected.supports
    assert _filled(state["entries"]) == expected.entries


def assert_domains_of(reasoner: Reasoner, expected: HeightModel, facts: dict[str, dict[Row, int]]) -> None:
    """What is asserted and what is derived; a tuple may be both. Every derivation has a height of at least
    1."""
    for name in expected.model:
        derived = {row for row, by in expected.supports[name].items() if any(height > 0 for height in by)}
        asserted = set(facts.get(name, {}))
        for domain, rows in (("asserted", asserted), ("derived", derived), ("all", asserted | derived)):
            assert set(reasoner.facts(name, domain=domain)) == rows, (name, domain)
            assert reasoner.count(name, domain=domain) == len(rows), (name, domain)


def everything(reasoner: Reasoner) -> dict[str, Any]:
    """All that a transaction could change, also what no reader sees: for "nothing changed" in the strict
    sense."""
    kept = reasoner.export()
    return {
        "state": reasoner.state(),
        "symbols": kept.symbols,
        "schemas": kept.schemas,
        "rules": kept.rules,
        "declarations": kept.declarations,
        "epoch": kept.epoch,
    }


def _filled(part: dict[str, Any]) -> dict[str, Any]:
    return {name: rows for name, rows in part.items() if rows}


def assert_same_state(one: Reasoner, other: Reasoner) -> None:
    """Equal down to the indexes; told part by part, so that a failure shows which one differs."""
    left, right = one.state(), other.state()
    assert left.keys() == right.keys()
    for part in left:
        assert _filled(left[part]) == _filled(right[part]), part
