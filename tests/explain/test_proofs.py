"""Every tuple of random programs has a proof, and an independent checker finds each proof right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from engine.errors import ZedlogError
from engine.explain.matching import Matcher
from engine.explain.memory import ReasonerSource
from engine.explain.nodes import Proof
from engine.explain.program import explained
from engine.explain.proof import Prover
from engine.explain.rendering import Namer, as_mermaid, as_text, document
from engine.language.canonical import rule_id
from engine.language.parser import parse_rules
from engine.maintenance.placement import Budget
from tests.explain.checker import Checker
from tests.full import FULL
from tests.oracle.fixpoint_programs import FixpointHistory, fixpoint_histories
from tests.oracle.stratified_programs import declarations, dialect_facts, dialect_rules, distinct
from zedlog import Reasoner

PROGRAMS = 300 if FULL else 30
Json = dict[str, Any]


class Flat(ReasonerSource):
    """The same state without heights, as a snapshot of an older version has none."""

    def _read(self, relation: str) -> Any:
        held = super()._read(relation)
        held.heights[:] = 0
        return held


async def everything(source: ReasonerSource, check: Callable[[Json], None]) -> Json:
    """What every tuple rests on, each tuple once. The whole proofs of some are given to `check`."""
    program = explained(source.rules, source.schemas)
    matcher = Matcher(source, 10**9)
    prover = Prover(matcher, program, shown=1_000)
    proof = Proof(("", ()))
    for relation in source.schemas:
        held = await source.held(relation, {}, hidden=False)
        for number, codes in enumerate(held.codes.tolist()):
            key = relation, tuple(codes)
            proof.nodes[key] = await prover.node(key)
            if number < 8:
                whole = await prover.prove(key, 10_000)
                assert whole.complete or any(node.kind == "iterated" for node in whole.nodes.values())
                check(await document(whole, Namer(matcher, program.schemas)))
    if not proof.nodes:
        return {"nodes": {}}
    proof.root = next(iter(proof.nodes))
    return await document(proof, Namer(matcher, program.schemas))


def checker_of(reasoner: Reasoner) -> Checker:
    rules = {
        info.id: rule
        for info in reasoner.rules()
        for rule in parse_rules(info.text)
        if rule_id(rule) == info.id
    }
    names = reasoner.relations()
    facts = {name: dict(reasoner.weighted(name, "asserted")) for name in names}
    return Checker(rules, facts, {name: set(reasoner.facts(name)) for name in names})


def check_all(reasoner: Reasoner, source: ReasonerSource) -> dict[str, int]:
    checker = checker_of(reasoner)
    document = asyncio.run(everything(source, lambda whole: checker.acyclic(whole["nodes"])))
    checker.check(document)
    assert len(document["nodes"]) == sum(map(reasoner.count, reasoner.relations()))
    if document["nodes"]:
        assert as_text(document)
        assert as_mermaid(document)
    return checker.seen


def built(history: FixpointHistory) -> Reasoner:
    """The state after a history, without the changes that are refused."""
    reasoner = Reasoner(budget=Budget(height=300))
    reasoner.apply(declarations=history.declarations())
    for change in history.changes:
        try:
            reasoner.apply(**change.arguments())
        except ZedlogError:
            event("refused")
    return reasoner


def rich(facts: list[Any], rules: list[str]) -> Reasoner:
    """The facts with as many of the rules as go together."""
    reasoner = Reasoner(budget=Budget(height=300))
    reasoner.apply(declarations=declarations([*rules, *(name for name, _ in facts)]))
    weights: dict[str, list[Any]] = {}
    for name, row in facts:
        weights.setdefault(name, []).append((row, 1))
    try:
        reasoner.apply(facts=weights, rules=[(text, 1) for text in rules])
    except ZedlogError:
        for text in rules:
            with suppress(ZedlogError):
                reasoner.apply(rules=[(text, 1)])
        for name, rows in weights.items():
            with suppress(ZedlogError):
                reasoner.apply(facts={name: rows})
    return reasoner


@pytest.mark.timeout(1_800)
@settings(max_examples=PROGRAMS, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(dialect_facts(), min_size=5, max_size=25),
    st.lists(dialect_rules(stratified=True), min_size=4, max_size=10, unique=True).map(distinct),
    st.booleans(),
)
def test_every_tuple_of_random_programs_has_a_right_proof(
    facts: list[Any], rules: list[str], flat: bool
) -> None:
    reasoner = rich(facts, rules)
    seen = check_all(reasoner, (Flat if flat else ReasonerSource)(reasoner))
    for kind in seen:
        event(kind)
    assert "open" not in seen
    assert flat or "unsettled" not in seen


@pytest.mark.timeout(1_800)
@settings(max_examples=PROGRAMS // 3, suppress_health_check=[HealthCheck.too_slow])
@given(fixpoint_histories())
def test_what_a_recursive_sum_has_settled_on_is_never_given_a_circular_proof(
    history: FixpointHistory,
) -> None:
    reasoner = built(history)
    seen = check_all(reasoner, ReasonerSource(reasoner))
    for kind in seen:
        event(kind)
