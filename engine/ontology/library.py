"""The sets of rules that can be added with data: RDFS, and OWL 2 RL for the axioms of an ontology.

In: the name of a set, and the triples that may hold axioms. Out: clauses about `triple(s, p, o)`, as text. Always: the
rules of RDFS are those of programs/rdfs.dl, and the rules of OWL 2 RL are those that `zedlog owl` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.language.constants import write_constant
from engine.language.parser import parse_program
from engine.language.schema import ColumnType
from engine.language.syntax import Constant
from engine.ontology import vocabulary as v
from engine.ontology.expressions import Graph
from engine.ontology.rules import compile_axioms
from engine.ontology.triples import Triple

RDFS, OWL_RL = "rdfs", "owl-rl"
SETS: Final = (RDFS, OWL_RL)
AXIOMS: Final = (v.SUB_CLASS, v.SUB_PROPERTY, v.DOMAIN, v.RANGE, v.FIRST, v.REST)
"""Predicates of axioms, beside those of OWL's own name space."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """rules: clauses with a body. facts: triples that follow from an axiom alone. not_covered: axioms without rules."""

    rules: tuple[str, ...]
    facts: tuple[Triple, ...] = ()
    not_covered: tuple[str, ...] = field(default=())


def rule_set(name: str, triples: Iterable[Triple]) -> RuleSet:
    """The set of that name. triples: those that may be axioms, others do no harm; RDFS needs none.

    Raises:
        InvalidRequestError: a list or an expression in the ontology is broken.
    """
    if name == RDFS:
        return RuleSet(_rdfs())
    # Sorted, so that the same axioms give the same rules in the same order.
    compiled = compile_axioms(Graph(sorted(triples)))
    rules: dict[str, None] = {}
    facts: dict[Triple, None] = {}
    for _, clauses in compiled.clauses:
        for clause in clauses:
            program = parse_program(clause)
            for fact in program.facts:
                s, p, o = (str(term.value) for term in fact.terms if isinstance(term, Constant))
                facts[s, p, o] = None
            if program.rules:
                rules[clause] = None
    return RuleSet(tuple(rules), tuple(facts), tuple(compiled.not_covered))


def _rdfs() -> tuple[str, ...]:
    """RDF 1.1 Semantics, section 9.2.1: rdfs2, 3, 5, 7, 9, 11."""
    kind, sub_class, sub_property, domain, range_ = _quoted(
        (v.TYPE, v.SUB_CLASS, v.SUB_PROPERTY, v.DOMAIN, v.RANGE)
    )
    return (
        f"triple(y, {kind}, c) :- triple(p, {domain}, c), triple(y, p, _).",
        f"triple(z, {kind}, c) :- triple(p, {range_}, c), triple(_, p, z).",
        f"triple(p, {sub_property}, r) :- triple(p, {sub_property}, q), triple(q, {sub_property}, r).",
        f"triple(x, q, y) :- triple(p, {sub_property}, q), triple(x, p, y).",
        f"triple(z, {kind}, d) :- triple(c, {sub_class}, d), triple(z, {kind}, c).",
        f"triple(c, {sub_class}, e) :- triple(c, {sub_class}, d), triple(d, {sub_class}, e).",
    )


def _quoted(terms: Sequence[str]) -> list[str]:
    return [write_constant(term, ColumnType.SYMBOL) for term in terms]
