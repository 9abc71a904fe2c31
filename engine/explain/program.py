"""The rules of a program in the form in which explanations follow them.

In: the rules and schemas of one state. Out: for each relation its rules, each with a body of plain
literals, and which relations are recursive together. Always: a rule's body here has the same bindings of the variables
of the text as the rule as it was written; what was added has names that no text can contain.

    p(x + 1) in a body           -> p(@1), @1 = x + 1
    p(x + 1) as a head           -> p(@1), @1 = x + 1
    sp(y, min(d + c)) :- ...     -> the column of the fold is @1, @1 = d + c
    _ in a positive atom         -> a variable of its own, since each counts for the contributions to an aggregate

Ranges and witnesses are rewritten as they are for evaluation (engine/circuit/normal.py). Costs some ten microseconds a
literal; `explained` keeps the last programs, since most explanations are of the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from engine.circuit.normal import Types
from engine.circuit.ranges import SCHEMAS as RANGES
from engine.circuit.ranges import is_range, without_ranges
from engine.circuit.strata import components
from engine.database.epoch import RuleInfo
from engine.expressions import distinct_locals, variable_types
from engine.language.canonical import format_rule, rule_id
from engine.language.inference import relations_of
from engine.language.parser import parse_rules
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Constant,
    FunctorCall,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    Variable,
    Wildcard,
    names_outside,
    rebuilt,
    walk,
)
from engine.language.witnesses import without_witnesses

MADE = "@"
"""Begins the name of every variable that is made here."""
IN_PLACE = ("min", "max")
Folds = tuple[tuple[int, str], ...]
"""The columns of a head that are folded, each with the function."""
_Node = TypeVar("_Node", bound=Literal | Term)


@dataclass(frozen=True, slots=True)
class Plan:
    """A rule as it is followed.

    head: of variables and constants; a folded column has the variable of its argument. body: literals whose atoms have
    no computed arguments. scope: the variables outside of aggregates. names: those of them that the text has, in the
    order of their first use. reads: all relations of the body, also inside aggregates. constants: its symbols.
    computes: it needs the texts of symbols.
    """

    id: str
    text: str
    head: Atom
    body: tuple[Literal, ...]
    folds: Folds
    scope: frozenset[str]
    names: tuple[str, ...]
    types: Types
    reads: frozenset[str]
    constants: frozenset[str]
    computes: bool


@dataclass(frozen=True, slots=True)
class Program:
    """plans: of each relation, by the ids of the rules. together: for each relation that is recursive, all relations of
    its stratum."""

    schemas: Mapping[str, Schema]
    plans: Mapping[str, tuple[Plan, ...]]
    together: Mapping[str, frozenset[str]]

    def stratum(self, relation: str) -> frozenset[str]:
        """The relations that are recursive together with this one; none if it is not recursive."""
        return self.together.get(relation, frozenset())

    def folded(self, relation: str) -> tuple[Folds, ...]:
        """The ways in which rules of the relation fold, each once."""
        return tuple(dict.fromkeys(plan.folds for plan in self.plans.get(relation, ()) if plan.folds))


def explained(rules: Sequence[RuleInfo], schemas: Mapping[str, Schema]) -> Program:
    """The program of these rules."""
    texts = tuple((rule.id, rule.text, rule.canonical) for rule in rules)
    return _explained(texts, tuple(schemas.values()))


def parsed(rules: Sequence[RuleInfo]) -> list[Rule]:
    """The rules as syntax."""
    return [_parsed(rule.id, rule.text, rule.canonical) for rule in rules]


@lru_cache(maxsize=8)
def _explained(rules: tuple[tuple[str, str, str], ...], known: tuple[Schema, ...]) -> Program:
    schemas = {schema.relation: schema for schema in known}
    plans: dict[str, list[Plan]] = {}
    for id_, text, canonical in sorted(rules):
        plan = _plan(id_, _parsed(id_, text, canonical), schemas)
        plans.setdefault(plan.head.relation, []).append(plan)
    graph: dict[str, set[str]] = {name: set() for name in schemas}
    for name, own in plans.items():
        graph[name] = set().union(*(plan.reads for plan in own))
    together = {
        name: frozenset(members)
        for members in components(graph)
        for name in members
        if len(members) > 1 or name in graph[name]
    }
    return Program(schemas, {name: tuple(own) for name, own in plans.items()}, together)


@lru_cache(maxsize=4096)
def _parsed(id_: str, text: str, canonical: str) -> Rule:
    """The rule with this id: a text with `;` has several."""
    for rule in parse_rules(text):
        if rule_id(rule) == id_:
            return rule
    return parse_rules(canonical)[0]


def _plan(id_: str, written: Rule, schemas: Mapping[str, Schema]) -> Plan:
    plain = distinct_locals(without_ranges(without_witnesses(written)))
    flattening = _Flattening()
    body = flattening.body(plain.body)
    terms: list[Term] = []
    folds: list[tuple[int, str]] = []
    for column, term in enumerate(plain.head.terms):
        if isinstance(term, HeadAggregate):
            folds.append((column, term.function))
            term = term.argument
        elif isinstance(term, Variable | Constant):
            terms.append(term)
            continue
        made = flattening.fresh()
        body.append(Comparison("=", made, flattening.term(term)))
        terms.append(made)
    head = Atom(plain.head.relation, tuple(terms), plain.head.span)
    nodes = [node for literal in (head, *body) for node in walk(literal)]
    scope = frozenset(names_outside(head, *body))
    texts = frozenset(n.value for n in nodes if isinstance(n, Constant) and isinstance(n.value, str))
    names = dict.fromkeys(
        node.name
        for literal in (written.head, *written.body)
        for node in walk(literal)
        if isinstance(node, Variable) and node.name in scope
    )
    reads = frozenset(
        node.relation for literal in written.body for node in walk(literal) if isinstance(node, Atom)
    )
    computes = any(
        isinstance(n, FunctorCall) or (isinstance(n, Comparison) and n.operator not in ("=", "!="))
        for n in nodes
    )
    return Plan(
        id_,
        format_rule(written),
        head,
        tuple(body),
        tuple(folds),
        scope,
        tuple(names),
        _types(plain, head, body, schemas),
        reads,
        texts,
        computes,
    )


def _types(
    plain: Rule, head: Atom, body: Sequence[Literal], schemas: Mapping[str, Schema]
) -> dict[str, ColumnType | None]:
    """The types of all variables. Those of the body are found without the head, whose folded columns have the types of
    the results."""
    mentioned = {name: RANGES.get(name) or schemas[name] for name in relations_of(plain)}
    bare = replace(plain, head=Atom(MADE, ()), body=tuple(body))
    types = variable_types(bare, {**mentioned, MADE: Schema(MADE, ())})
    for term, column in zip(head.terms, schemas[head.relation].columns, strict=True):
        if isinstance(term, Variable) and types.get(term.name) is None:
            types[term.name] = column.type
    return types


class _Flattening:
    """Takes computed arguments out of atoms."""

    def __init__(self) -> None:
        self._made = 0

    def fresh(self) -> Variable:
        self._made += 1
        return Variable(f"{MADE}{self._made}")

    def body(self, literals: Sequence[Literal]) -> list[Literal]:
        found: list[Literal] = []
        for literal in literals:
            match literal:
                case Atom():
                    found.append(self._atom(literal, found, named=not is_range(literal)))
                case Negation():
                    found.append(replace(literal, atom=self._atom(literal.atom, found, named=False)))
                case Comparison():
                    found.append(rebuilt(literal, self.term))
        return found

    def term(self, term: Term) -> Term:
        """The term with the bodies of its aggregates flattened."""
        if isinstance(term, Aggregate):
            return replace(
                term,
                argument=None if term.argument is None else self.term(term.argument),
                body=tuple(self.body(term.body)),
            )
        changed: Term = rebuilt(term, self.term)
        return changed

    def _atom(self, atom: Atom, added: list[Literal], *, named: bool) -> Atom:
        terms: list[Term] = []
        for term in atom.terms:
            if isinstance(term, Wildcard) and named:
                term = self.fresh()
            elif not isinstance(term, Variable | Constant | Wildcard):
                made = self.fresh()
                added.append(Comparison("=", made, self.term(term)))
                term = made
            terms.append(term)
        return replace(atom, terms=tuple(terms))
