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

from engine.language.syntax import Aggregate, Literal, Rule, Term, Variable, children, rebuilt, walk

_Node = TypeVar("_Node", bound=Literal | Term)


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
        head=renaming.renamed(rule.head, names),
        body=tuple(renaming.renamed(literal, names) for literal in rule.body),
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

    def renamed(self, node: _Node, names: dict[str, str]) -> _Node:
        if isinstance(node, Variable):
            return replace(node, name=names[node.name])
        if isinstance(node, Aggregate):
            names = self._inside(node, names)
        return rebuilt(node, lambda part: self.renamed(part, names))

    def _inside(self, aggregate: Aggregate, outer: dict[str, str]) -> dict[str, str]:
        """The names of variables in an aggregate: those around it, and new ones for its own."""
        names = dict(outer)
        for node in children(aggregate):
            for name in _direct(node):
                if name not in names:
                    names[name] = self._fresh(name)
        return names

    def _fresh(self, name: str) -> str:
        chosen, number = name, 1
        while chosen in self._taken or (number > 1 and chosen in self._written):
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen
