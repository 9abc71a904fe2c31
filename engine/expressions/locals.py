"""Distinct names for the local variables of aggregates.

In: a rule. Out: a rule that means the same, in which two aggregates share the name of a variable only if it is the same
variable, so that a name identifies a variable (and has one type) in the whole rule.
Always: a variable keeps its name if it can: `m = count : { p(z) }, n = count : { q(z) }` becomes
`m = count : { p(z) }, n = count : { q(z_2) }`. Spans stay.
Linear in the size of the rule, times the depth of nested aggregates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from engine.language.syntax import (
    Aggregate,
    Literal,
    Rule,
    Term,
    Variable,
    children,
    names_of,
    names_outside,
    rebuilt,
    walk,
    walk_outside,
)

_Node = TypeVar("_Node", bound=Literal | Term)


def distinct_locals(rule: Rule) -> Rule:
    """The rule with new names for local variables of aggregates whose names are already taken."""
    literals = (rule.head, *rule.body)
    if not any(isinstance(node, Aggregate) for literal in literals for node in walk(literal)):
        return rule
    outer = names_outside(*literals)
    renaming = _Renaming(set(outer), names_of(*literals))
    names = {name: name for name in outer}
    return replace(
        rule,
        head=renaming.renamed(rule.head, names),
        body=tuple(renaming.renamed(literal, names) for literal in rule.body),
    )


class _Renaming:
    """`taken` are the names that are in use so far, `written` those in the rule's text."""

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
        for part in children(aggregate):
            for node in walk_outside(part):
                if isinstance(node, Variable) and node.name not in names:
                    names[node.name] = self._fresh(node.name)
        return names

    def _fresh(self, name: str) -> str:
        chosen, number = name, 1
        while chosen in self._taken or (number > 1 and chosen in self._written):
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen
