"""Programs that mean the same give the same: queryFuzz's transformations, without an oracle.

A random program is evaluated as it is, and with its rules replaced by variants: reordered, with a redundant atom or
condition, split through a new relation, split into two by a condition and its opposite, with the head's terms bound
by equations. Then the original is turned into the variant by one epoch of rule changes, and facts are taken away one
by one. Variables renamed give the same rule: it retracts the first.
"""

from __future__ import annotations

import re
from random import Random

from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st

from engine.errors import BudgetExceededError, EvaluationError
from engine.language.canonical import canonical_text, format_rule
from engine.maintenance.placement import Budget
from tests.oracle.rules import Model, Row
from tests.oracle.stratified_programs import (
    Fact,
    declarations,
    dialect_facts,
    dialect_rules,
    distinct,
    tree,
)
from tests.oracle.subject import model_of
from tests.oracle.variants import SPLIT, VARIANTS
from zedlog import Reasoner

PROGRAMS = st.lists(dialect_rules(stratified=True), min_size=3, max_size=7).map(distinct)
FACTS = st.lists(dialect_facts(), min_size=8, max_size=22, unique=True)


def many(factor: float) -> settings:
    """A multiple of the profile's number of examples: for 2.0, 200 by default and 20,000 at night."""
    return settings(
        max_examples=int(settings().max_examples * factor), suppress_health_check=[HealthCheck.too_slow]
    )


def evaluated(rules: list[str], facts: list[Fact]) -> Reasoner:
    reasoner = Reasoner(budget=Budget(height=300))
    reasoner.apply(declarations=declarations([*rules, *(name for name, _ in facts)]))
    reasoner.apply(facts=changes(facts, 1), rules=[(text, 1) for text in rules])
    return reasoner


def changes(facts: list[Fact], weight: int) -> dict[str, list[tuple[Row, int]]]:
    found: dict[str, list[tuple[Row, int]]] = {}
    for name, row in facts:
        found.setdefault(name, []).append((row, weight))
    return found


def content(reasoner: Reasoner) -> Model:
    return model_of(reasoner, [name for name in sorted(reasoner.relations()) if not name.startswith(SPLIT)])


@many(2.0)
@given(PROGRAMS, FACTS, st.randoms(use_true_random=False))
def test_differential_variants_of_a_program_give_the_same(
    rules: list[str], facts: list[Fact], random: Random
) -> None:
    variants: list[str] = []
    for text in rules:
        chosen = random.choice(VARIANTS)
        found = chosen(tree(text), random)
        variants += [text] if found is None else map(format_rule, found)
        event(chosen.__name__ if found is not None else "no variant")
    variants = distinct(variants)
    note("\n".join(["originals", *rules, "variants", *variants]))
    try:
        original = evaluated(rules, facts)
    except (BudgetExceededError, EvaluationError):
        assume(False)
        return
    variant = evaluated(variants, facts)
    expected = content(original)
    assert content(variant) == expected
    # The same by changing the rules, which must leave the same behind for the changes of facts to come.
    canonical = [{canonical_text(tree(t)): t for t in texts} for texts in (rules, variants)]
    gone = [(text, -1) for key, text in canonical[0].items() if key not in canonical[1]]
    new = [(text, 1) for key, text in canonical[1].items() if key not in canonical[0]]
    original.apply(rules=gone + new)
    assert content(original) == expected
    some = random.sample(facts, min(3, len(facts)))
    for reasoner in (original, variant):
        reasoner.apply(facts=changes(some, -1))
        reasoner.check_invariants()
    assert content(original) == content(variant)
    rest = [fact for fact in facts if fact not in some]
    assert content(variant) == content(evaluated(rules, rest))


@many(0.3)
@given(PROGRAMS, FACTS, st.sampled_from(["?", "Q_", "zz"]))
def test_differential_renamed_variables_are_the_same_rule(
    rules: list[str], facts: list[Fact], prefix: str
) -> None:
    try:
        reasoner = evaluated(rules, facts)
    except (BudgetExceededError, EvaluationError):
        assume(False)
        return
    renamed = [
        re.sub(r"(?<![\w\"@])([nsfkua]\d+(_\d+)?|[xyzdc])(?![\w(\"])", rf"{prefix}\1", t) for t in rules
    ]
    note("\n".join(renamed))
    infos = reasoner.rules()
    result = reasoner.apply(rules=[(text, 1) for text in renamed])
    assert not result.changes
    assert [(r.id, r.weight) for r in reasoner.rules()] == [(r.id, 2) for r in infos]
    reasoner.apply(rules=[(text, -2) for text in renamed])
    assert not reasoner.rules()
    asserted = {name: set(rows) for name in reasoner.relations() if (rows := reasoner.facts(name))}
    expected: Model = {}
    for name, row in facts:
        expected.setdefault(name, set()).add(row)
    assert asserted == expected
