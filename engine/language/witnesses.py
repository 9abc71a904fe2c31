"""Witnesses: variables of a min or max that also occur outside of it and are not bound there.

In: a rule. Out: a rule without witnesses that means the same. As in Souffle, a witness takes the value that goes with
the extreme value; if several tie, it takes each of them:

    tallest(s, n) :- n = max h : { student(s, h) }.   ->   tallest(s, n) :- n = v, v = max h : { student(s', h) },
                                                                          student(s, h'), v = h'.

A variable that the rest of the rule binds is not a witness: it says which group is asked for. A count, sum or mean has
no witnesses; such a variable stays, and the safety check refuses it. In `_ = max h : { ... }` the `_` is treated as a
variable, so that its witnesses can be bound. Linear in the size of the rule, times the depth of nested aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from engine.language.binding import bound_by
from engine.language.syntax import (
    Aggregate,
    Comparison,
    Literal,
    Rule,
    Term,
    Variable,
    Wildcard,
    children,
    names_of,
    names_outside,
    rebuilt,
    walk,
)

_HAVE_WITNESSES = ("max", "min")
_MARK = "'"
"""Part of the name of every variable that is made here; no program text can contain it."""
_Node = TypeVar("_Node", bound=Literal | Term)


def is_copied(name: str) -> bool:
    """Whether this is the name of a variable that was made here, local to an aggregate."""
    return _MARK in name


def without_witnesses(rule: Rule) -> Rule:
    """The rule with its witnesses bound by copies of the bodies that they occur in; the rule itself if it has none."""
    literals = (rule.head, *rule.body)
    if not any(isinstance(node, Aggregate) for literal in literals for node in walk(literal)):
        return rule
    scope = names_outside(*literals)
    expansion = _Expansion()
    body = [expansion.named(literal) for literal in rule.body]
    bound = bound_by(body)
    added: list[Literal] = []
    head = expansion.literal(rule.head, scope, bound, added)
    changed = [expansion.literal(literal, scope, bound, added) for literal in body]
    return replace(rule, head=head, body=(*changed, *added))


class _Expansion:
    def __init__(self) -> None:
        self._count = 0

    def named(self, literal: Literal) -> Literal:
        """`_ = aggregate` with a variable in the place of `_`."""
        if isinstance(literal, Comparison) and literal.operator == "=":
            if isinstance(literal.left, Wildcard) and isinstance(literal.right, Aggregate):
                return replace(literal, left=self._fresh("_"))
            if isinstance(literal.right, Wildcard) and isinstance(literal.left, Aggregate):
                return replace(literal, right=self._fresh("_"))
        return literal

    def literal(self, literal: _Node, scope: set[str], bound: set[str], added: list[Literal]) -> _Node:
        """The literal without witnesses; the literals that bind them are appended to `added`."""
        return rebuilt(literal, lambda part: self._part(part, scope, bound, added))

    def _part(self, term: Any, scope: set[str], bound: set[str], added: list[Literal]) -> Any:
        if not isinstance(term, Aggregate):
            return self.literal(term, scope, bound, added)
        shared = names_of(term) & scope
        witnesses = shared - bound if term.function in _HAVE_WITNESSES else set()
        if not witnesses:
            return self._inside(term, scope, bound & shared)
        value = self._fresh("value")
        local = {name: self._fresh(name).name for name in sorted(witnesses)}
        inside = self._inside(_renamed(term, local), scope, bound & shared)
        added.append(Comparison("=", value, inside, term.span))
        # The same once more: what has the extreme value. Its other variables are others than in the aggregate.
        names = names_of(inside)
        back = {new: old for old, new in local.items()}
        copied = _renamed(
            inside, back | {name: self._fresh(name).name for name in sorted(names - scope - back.keys())}
        )
        assert copied.argument is not None, "min and max have an argument"
        added += [*copied.body, Comparison("=", value, copied.argument, term.span)]
        return value

    def _inside(self, aggregate: Aggregate, scope: set[str], given: set[str]) -> Aggregate:
        """The same for the aggregates in an aggregate's body."""
        body = [self.named(literal) for literal in aggregate.body]
        if not any(isinstance(node, Aggregate) for part in children(aggregate) for node in walk(part)):
            return replace(aggregate, body=tuple(body))
        inner = scope | names_outside(*body)
        bound = bound_by(body, given)
        added: list[Literal] = []
        changed = [self.literal(literal, inner, bound, added) for literal in body]
        argument = aggregate.argument
        if argument is not None:
            argument = self._part(argument, inner, bound, added)
        return replace(aggregate, argument=argument, body=(*changed, *added))

    def _fresh(self, name: str) -> Variable:
        self._count += 1
        return Variable(f"{name.split(_MARK)[0]}{_MARK}{self._count}")


def _renamed(node: _Node, names: Mapping[str, str]) -> _Node:
    """The node with other names for some variables, also in the bodies of aggregates."""
    if isinstance(node, Variable):
        return replace(node, name=names.get(node.name, node.name))
    return rebuilt(node, lambda part: _renamed(part, names))
