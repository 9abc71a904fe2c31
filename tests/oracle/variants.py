"""Variants of a rule that mean the same: for metamorphic tests, after queryFuzz (Mansur et al., ESEC/FSE 2021).

In: a rule, and a source of choices. Out: rules that together derive for every relation of the original what it does,
or None where the variant does not apply. Each keeps the number of contributions of a head aggregate, which are the
distinct bindings of all variables of the body, where each `_` of a positive atom is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from engine.language.canonical import rule_id
from engine.language.schema import ColumnType
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Constant,
    HeadAggregate,
    Literal,
    Rule,
    Term,
    Variable,
    Wildcard,
    walk,
)
from tests.oracle.stratified import named_wildcards, names_outside

Variant = Callable[[Rule, Random], "list[Rule] | None"]
SPLIT = "split_"
"""What the names of new relations start with."""


def reordered(rule: Rule, random: Random) -> list[Rule] | None:
    """The literals of the body in another order."""
    body = list(rule.body)
    random.shuffle(body)
    return [replace(rule, body=tuple(body))]


def with_redundant_atom(rule: Rule, random: Random) -> list[Rule] | None:
    """An atom of the body once more, some of its arguments replaced by `_`: it holds wherever the first does."""
    atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
    if not atoms:
        return None
    atom = random.choice(atoms)
    if any(isinstance(term, HeadAggregate) for term in rule.head.terms):
        # A further `_` would be a further variable.
        if any(isinstance(term, Wildcard) for term in atom.terms):
            return None
        return [replace(rule, body=(*rule.body, atom))]
    weaker = replace(atom, terms=tuple(Wildcard() if random.random() < 0.5 else term for term in atom.terms))
    body = list(rule.body)
    body.insert(random.randrange(len(body) + 1), weaker)
    return [replace(rule, body=tuple(body))]


def with_redundant_condition(rule: Rule, random: Random) -> list[Rule] | None:
    """A condition that always holds of a variable."""
    names = sorted(names_outside(rule.body))
    if not names:
        return None
    variable = Variable(random.choice(names))
    condition = Comparison(random.choice(["=", "<=", ">="]), variable, variable)
    body = list(rule.body)
    body.insert(random.randrange(len(body) + 1), condition)
    return [replace(rule, body=tuple(body))]


def split(rule: Rule, random: Random) -> list[Rule] | None:
    """Some atoms of the body through a new relation that has all their variables."""
    if any(isinstance(term, HeadAggregate) for term in rule.head.terms):
        rule = replace(rule, body=tuple(named_wildcards(rule.body)))
    places = [i for i, literal in enumerate(rule.body) if isinstance(literal, Atom)]
    if not places:
        return None
    taken = set(random.sample(places, random.randint(1, len(places))))
    atoms: list[Literal] = [rule.body[i] for i in sorted(taken)]
    # A computed argument may need what only the rest of the body binds.
    plain = all(
        isinstance(t, Variable | Constant | Wildcard) for a in atoms if isinstance(a, Atom) for t in a.terms
    )
    if not plain:
        return None
    name = SPLIT + rule_id(rule)
    through = Atom(name, tuple(map(Variable, sorted(names_outside(atoms)))))
    rest = [literal for i, literal in enumerate(rule.body) if i not in taken]
    rest.insert(random.randrange(len(rest) + 1), through)
    return [Rule(through, tuple(atoms)), replace(rule, body=tuple(rest))]


def partitioned(rule: Rule, random: Random) -> list[Rule] | None:
    """Two rules, of which one has a condition and the other its opposite: each binding is in exactly one."""
    numbers = _numbers(rule)
    if not numbers:
        return None
    variable, limit = Variable(random.choice(numbers)), Constant(random.randint(0, 3), ColumnType.NUMBER)
    return [
        replace(rule, body=(*rule.body, Comparison(operator, variable, limit)))
        for operator in random.choice([("<", ">="), ("=", "!="), (">", "<=")])
    ]


def through_equations(rule: Rule, random: Random) -> list[Rule] | None:
    """Constants and computed terms of the head, by new variables that equations bind."""
    terms: list[Term] = []
    conditions: list[Literal] = []
    for i, term in enumerate(rule.head.terms):
        if isinstance(term, Variable | HeadAggregate) or any(
            isinstance(node, Aggregate) for node in walk(term)
        ):
            terms.append(term)
        else:
            terms.append(Variable(f"new_{i}"))
            sides = (terms[-1], term) if random.random() < 0.5 else (term, terms[-1])
            conditions.append(Comparison("=", *sides))
    if not conditions:
        return None
    return [replace(rule, head=replace(rule.head, terms=tuple(terms)), body=(*conditions, *rule.body))]


def _numbers(rule: Rule) -> list[str]:
    """Variables of the body that a strategy's naming says are numbers."""
    atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
    return sorted(name for name in names_outside(atoms) if name[0] == "n")


VARIANTS: tuple[Variant, ...] = (
    reordered,
    with_redundant_atom,
    with_redundant_condition,
    split,
    partitioned,
    through_equations,
)
