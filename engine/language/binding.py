"""Which variables of a body are bound: those of its positive atoms, and those that its equations give a value.

In: literals, and variables that are already bound. Out: all variables that are bound then. An equation binds a variable
on one side when every variable on the other side is bound. An aggregate counts as a value that waits for those of its
variables that also occur outside of it. Linear in the size of the body (Kahn's algorithm).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Literal,
    Term,
    Variable,
    Wildcard,
    walk,
    walk_outside,
)


def bound_by(body: Iterable[Literal], given: Iterable[str] = (), outer: Set[str] = frozenset()) -> set[str]:
    """The variables that are bound in the body when those in `given` are. outer: the variables for which an aggregate
    that contains them waits."""
    bound = set(given)
    waiting: dict[str, list[int]] = {}
    targets: list[str] = []
    missing: list[int] = []
    literals = list(body)
    for literal in literals:
        if isinstance(literal, Atom):
            bound.update(term.name for term in literal.terms if isinstance(term, Variable))
    for literal in literals:
        for target, source in sides(literal):
            needed = {node.name for node in _awaited(source, outer)} - bound
            for name in needed:
                waiting.setdefault(name, []).append(len(targets))
            targets.append(target)
            missing.append(len(needed))
    ready = [target for target, count in zip(targets, missing, strict=True) if count == 0]
    while ready:
        name = ready.pop()
        if name in bound:
            continue
        bound.add(name)
        for equation in waiting.get(name, ()):
            missing[equation] -= 1
            if missing[equation] == 0:
                ready.append(targets[equation])
    return bound


def sides(literal: Literal) -> Iterator[tuple[str, Term]]:
    """Each variable that an equation may bind, with the term on the other side of that equation."""
    if isinstance(literal, Comparison) and literal.operator == "=":
        for target, source in ((literal.left, literal.right), (literal.right, literal.left)):
            if isinstance(target, Variable) and not isinstance(source, Wildcard):
                yield target.name, source


def shared_variables(term: Term, outer: Set[str]) -> Iterator[Variable]:
    """The variables inside the term's aggregates that also occur outside of them."""
    for inner in walk_outside(term):
        if isinstance(inner, Aggregate):
            for node in walk(inner):
                if isinstance(node, Variable) and node.name in outer:
                    yield node


def _awaited(term: Term, outer: Set[str]) -> Iterator[Variable]:
    yield from (node for node in walk_outside(term) if isinstance(node, Variable))
    yield from shared_variables(term, outer)
