"""Distinct names for the variables that aggregates have of their own.

In: a rule. Out: a rule that means the same, in which no two aggregates share the name of a variable unless it is
the same variable, so that a name says which variable it is (and has one type) in the whole rule.
Always: a variable keeps its name if it can: `m = count : { p(z) }, n = count : { q(z) }` becomes
`m = count : { p(z) }, n = count : { q(z_2) }`. Spans stay. Linear in the size of the rule, times the depth of
nested aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
    children,
    walk,
)

_Literal = TypeVar("_Literal", bound=Literal)


def distinct_locals(rule: Rule) -> Rule:
    """The rule with new names for variables of aggregates whose names others have already."""
    literals = (rule.head, *rule.body)
    if not any(isinstance(node, Aggregate) for literal in literals for node in walk(literal)):
        return rule
    outer = {name for literal in literals for name in _direct(literal)}
    written = {n.name for literal in literals for n in walk(literal) if isinstance(n, Variable)}
    renaming = _Renaming(set(outer), written)
    names = {name: name for name in outer}
    return replace(
        rule,
        head=renaming.literal(rule.head, names),
        body=tuple(renaming.literal(literal, names) for literal in rule.body),
    )


def _direct(node: Literal | Term) -> Iterator[str]:
    """The variables of a node that are not inside of an aggregate below it."""
    if isinstance(node, Variable):
        yield node.name
    elif not isinstance(node, Aggregate):
        for child in children(node):
            yield from _direct(child)


class _Renaming:
    """`taken` are the names that variables have by now, `written` those of the rule's text."""

    def __init__(self, taken: set[str], written: set[str]) -> None:
        self._taken, self._written = taken, written

    def literal(self, literal: _Literal, names: dict[str, str]) -> _Literal:
        match literal:
            case Atom():
                return replace(literal, terms=tuple(self.term(term, names) for term in literal.terms))
            case Negation():
                return replace(literal, atom=self.literal(literal.atom, names))
            case Comparison():
                return replace(
                    literal, left=self.term(literal.left, names), right=self.term(literal.right, names)
                )
        raise AssertionError(literal)

    def term(self, term: Term, names: dict[str, str]) -> Term:
        match term:
            case Variable():
                return replace(term, name=names[term.name])
            case Constant() | Wildcard():
                return term
            case BinaryOperation():
                return replace(term, left=self.term(term.left, names), right=self.term(term.right, names))
            case UnaryOperation():
                return replace(term, operand=self.term(term.operand, names))
            case FunctorCall():
                return replace(term, arguments=tuple(self.term(a, names) for a in term.arguments))
            case HeadAggregate():
                return replace(term, argument=self.term(term.argument, names))
            case Aggregate():
                return self._aggregate(term, names)

    def _aggregate(self, aggregate: Aggregate, outer: dict[str, str]) -> Aggregate:
        names = dict(outer)
        for node in children(aggregate):
            for name in _direct(node):
                if name not in names:
                    names[name] = self._fresh(name)
        argument = aggregate.argument
        return replace(
            aggregate,
            argument=None if argument is None else self.term(argument, names),
            body=tuple(self.literal(literal, names) for literal in aggregate.body),
        )

    def _fresh(self, name: str) -> str:
        chosen, number = name, 1
        while chosen in self._taken or (number > 1 and chosen in self._written):
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen
