"""A circuit that is made from the one before is the circuit of its rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.circuit.circuit import EMPTY, Circuit
from engine.circuit.compile import compile_circuit, update_circuit
from engine.circuit.walk import Walk
from engine.errors import ZedlogError
from engine.language.canonical import rule_id
from engine.language.inference import infer_schemas, relations_of
from engine.language.parser import parse_program, parse_rules
from engine.language.schema import Schema
from engine.language.syntax import Rule

SHAPES = (
    "{}(x, y) :- {}(x, z), {}(z, y).",
    "{}(x, y) :- {}(x, z), {}(z, y).",
    "{}(x, y) :- {}(x, y), {}(y, _).",
    "{}(x, y) :- {}(x, y), !{}(x, _).",
    "{}(x, min(y)) :- {}(x, y), {}(y, _).",
    "{}(x, count(y)) :- {}(x, y), {}(y, _).",
    "{}(x, n) :- {}(x, _), n = sum y : {{ {}(x, y) }}.",
)


def random_rule(choose: random.Random) -> Rule:
    return parse_rules(choose.choice(SHAPES).format(*(choose.choice("abcdefgh") for _ in range(3))))[0]


def content(circuit: Circuit) -> tuple[Any, ...]:
    """All that a placement goes by; checks on the way that what a stratum reads is below it."""
    for place, stratum in enumerate(circuit.strata):
        assert all(circuit.places[name] == place for name in stratum.relations)
        assert all(circuit.stratum_of[name] is stratum for name in stratum.relations)
        assert all(circuit.places[name] < place for name in stratum.reads)
    assert circuit.places.keys() == circuit.arities.keys() == circuit.stratum_of.keys()
    strata = {
        stratum.relations: (
            [
                (rule.id, rule.rule.head, rule.rule.body, rule.rule.types, rule.plans)
                for rule in stratum.rules
            ],
            stratum.recursive,
            stratum.folds,
        )
        for stratum in circuit.strata
    }
    readers = {name: set(reading) for name, reading in circuit.readers.items()}
    return strata, dict(circuit.demands), dict(circuit.arities), readers, set(circuit.rules)


@pytest.mark.parametrize("seed", range(40))
def test_updates_lead_to_the_circuit_of_the_rules(seed: int) -> None:
    choose = random.Random(seed)
    rules: dict[str, Rule] = {}
    schemas: dict[str, Schema] = {}
    circuit = EMPTY
    for _ in range(14):
        after = dict(rules)
        for _ in range(choose.choice([1, 1, 2, 4])):
            if after and choose.random() < 0.45:
                del after[choose.choice(sorted(after))]
            else:
                rule = random_rule(choose)
                after[rule_id(rule)] = rule
        inferred = infer_schemas([], {}, list(after.values()), schemas)
        moved = {name for name in inferred.keys() | schemas.keys() if inferred.get(name) != schemas.get(name)}
        concerned = rules.keys() ^ after.keys()
        concerned |= {id_ for id_, rule in after.items() if moved.intersection(relations_of(rule))}
        try:
            whole = compile_circuit(after.values(), inferred)
        except ZedlogError as error:
            with pytest.raises(type(error)):
                update_circuit(circuit, after, inferred, {}, concerned, moved, lambda _: False)
            continue
        rules, schemas = after, inferred
        updated = update_circuit(circuit, after, inferred, {}, concerned, moved, lambda _: False)
        assert content(updated) == content(whole)
        # The walk finds by its step what it would find by looking at all strata.
        walk = Walk(updated, circuit, ())
        assert {id(s) for s in walk.fresh} == {id(s) for s in updated.strata} - {
            id(s) for s in circuit.strata
        }
        assert {id(s) for s in walk.gone} == {id(s) for s in circuit.strata} - {id(s) for s in updated.strata}
        circuit = updated


def test_what_a_rule_does_not_concern_is_shared() -> None:
    rules = {rule_id(rule): rule for rule in parse_program("b(x) :- a(x). d(x) :- c(x). e(x) :- d(x).").rules}
    schemas = infer_schemas([], {}, list(rules.values()), {})
    before = compile_circuit(rules.values(), schemas)
    new = parse_rules("d(x) :- b(x).")[0]
    after = update_circuit(before, {rule_id(new): new}, schemas, {}, [rule_id(new)], [], lambda _: False)
    same = {name for name in after.arities if after.stratum_of[name] is before.stratum_of[name]}
    assert same == {"a", "b", "c", "e"}
    assert [s.relations for s in Walk(after, before, ()).fresh] == [("d",)]


def test_a_walk_goes_from_what_changed_to_what_reads_it_each_once() -> None:
    text = "b(x) :- a(x). c(x) :- a(x), b(x). d(x) :- c(x). f(x) :- e(x). g(x) :- f(x)."
    rules = parse_program(text).rules
    circuit = compile_circuit(rules, infer_schemas([], {}, rules, {}))
    walk = Walk(circuit, circuit, ["a", "no such relation"])
    seen = []
    for stratum in walk:
        seen += stratum.relations
        if stratum.relations != ("c",):  # nothing of c is to change
            walk.changed(stratum.relations[0])
    assert seen == ["a", "b", "c"]
