"""What a proof consists of: tuples with what they rest on, all values as codes.

Plain data. A key names a tuple; a term is a code with its type, so that whoever shows it can look up its text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from engine.explain.program import Plan
from engine.language.schema import ColumnType
from engine.language.syntax import Aggregate, Comparison

Key: TypeAlias = tuple[str, tuple[int, ...]]
"""A relation and the codes of a tuple."""
Term: TypeAlias = tuple[int, ColumnType | None] | str
"""A code with its type, or the name of what has no value: a variable or `_`."""


@dataclass(frozen=True, slots=True)
class Child:
    """A tuple that a step needs."""

    key: Key


@dataclass(frozen=True, slots=True)
class Absent:
    """A negated atom, with the pattern that found nothing."""

    relation: str
    pattern: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Contribution:
    """One binding that an aggregate folds. fact: it is an asserted fact of this weight, and no binding of a rule."""

    value: Term | None
    binding: tuple[tuple[str, Term], ...]
    steps: tuple[Step, ...] = ()
    plan: Plan | None = None
    fact: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """An aggregate with its value; `contributions` are the first of `count`."""

    function: str
    text: Aggregate | None
    column: int | None
    value: Term
    count: int
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A condition or an equation that holds for the binding, and the aggregates in it."""

    literal: Comparison
    binding: tuple[tuple[str, Term], ...]
    aggregates: tuple[Folded, ...] = ()


Step: TypeAlias = Child | Absent | Checked


@dataclass(frozen=True, slots=True)
class Derivation:
    """An instance of a rule, in the order of its body."""

    plan: Plan
    binding: tuple[tuple[str, Term], ...]
    steps: tuple[Step, ...]
    height: int = 0


@dataclass(slots=True)
class Node:
    """A tuple. searched: what it rests on was found by ranks.py, not by heights. kind:

    - fact: it is asserted.
    - rule: `derivations` has the instance that it rests on.
    - fold: rules fold its group; `folds` have the contributions.
    - iterated: as `fold` or without any reason, for what a recursive aggregate has settled on: the last values rest on
      each other, so there is no proof by lower heights, and none is made up.
    - unsettled: its height is unknown, and no proof was found within the limits of the search.
    - withheld: it rests on relations that may not be shown.
    - open: it was not followed.
    """

    key: Key
    kind: str
    weight: int = 0
    derived: bool = False
    height: int = 0
    searched: bool = False
    derivations: tuple[Derivation, ...] = ()
    folds: tuple[Folded, ...] = ()


@dataclass(slots=True)
class Proof:
    """root: the tuple that is explained; `nodes` in the order in which they were found, the root first."""

    root: Key
    nodes: dict[Key, Node] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return all(node.kind != "open" for node in self.nodes.values())


def written_name(name: str) -> str:
    """The name of a variable as a text has it: `_` for one that was made here, and a copy has the name of what it was
    copied from."""
    return "_" if name.startswith("@") else name.split("'")[0]


def children(node: Node) -> Iterable[Key]:
    """The tuples that a node rests on, in order."""
    for derivation in node.derivations:
        yield from _children(derivation.steps)
    for folded in node.folds:
        for contribution in folded.contributions:
            yield from _children(contribution.steps)


def _children(steps: Iterable[Step]) -> Iterable[Key]:
    for step in steps:
        if isinstance(step, Child):
            yield step.key
        elif isinstance(step, Checked):
            for folded in step.aggregates:
                for contribution in folded.contributions:
                    yield from _children(contribution.steps)
