"""The syntax tree: what the text of a program says, and where it says it.

Plain data: `ProgramText`, and below it declarations, directives, facts and rules. Always: every node is immutable and
hashable; two nodes are equal when they say the same thing, whatever their spans, source text and depth. A tree that the
parser built is at most `MAX_DEPTH` operations deep, so recursive walks need no guard. Alternatives (`;`) are already
expanded: a rule has one head and one conjunction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from engine.errors import Span
from engine.language.schema import Column, ColumnType

MAX_DEPTH = 100
# An aggregate counts for more, because a walk into it passes a literal and a term on each level.
AGGREGATE_DEPTH = 4
NOWHERE = Span(1, 1, 1, 1)
CONSTRAINT = "constraint"
"""The qualifier of a relation that must stay empty."""
FIXPOINT = "fixpoint"
"""The qualifier of a relation whose count, sum or mean may be recursive; it may have settings."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A named variable, `x` or `?x`; the name holds the question mark."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of the language. `type` takes part in equality: 1, 1.0 and true are three different constants."""

    value: str | int | float | bool
    type: ColumnType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`: any value; each occurrence is independent of the others."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BinaryOperation:
    """Arithmetic on two terms; `operator` is a key of `operators.BINARY`."""

    operator: str
    left: Term
    right: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max(depth_of(self.left), depth_of(self.right)))


@dataclass(frozen=True, slots=True)
class UnaryOperation:
    """`-` or `bnot` before a term. A minus before a number is part of the constant instead."""

    operator: str
    operand: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + depth_of(self.operand))


@dataclass(frozen=True, slots=True)
class FunctorCall:
    """A built-in function of terms: `cat(x, "-", y)`. The number of arguments fits the functor."""

    functor: str
    arguments: tuple[Term, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max(map(depth_of, self.arguments), default=0))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A body aggregate, `function argument : { body }`. `argument` is None for `count` only."""

    function: str
    argument: Term | None
    body: tuple[Literal, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = max((depth_of(term) for literal in self.body for term in terms_of(literal)), default=0)
        argument = 0 if self.argument is None else depth_of(self.argument)
        object.__setattr__(self, "depth", AGGREGATE_DEPTH + max(inner, argument))


@dataclass(frozen=True, slots=True)
class HeadAggregate:
    """An aggregate over the rule's own body, only as an argument of a head: `sp(y, min(d + c)) :- ...`."""

    function: str
    argument: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + depth_of(self.argument))


Term: TypeAlias = (
    Variable
    | Constant
    | Wildcard
    | BinaryOperation
    | UnaryOperation
    | FunctorCall
    | Aggregate
    | HeadAggregate
)


@dataclass(frozen=True, slots=True)
class Atom:
    """A relation applied to terms."""

    relation: str
    terms: tuple[Term, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def arity(self) -> int:
        return len(self.terms)


@dataclass(frozen=True, slots=True)
class Negation:
    """`!atom`."""

    atom: Atom
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on two terms; `operator` is a key of `operators.NEGATED`, for example `<` or `contains`."""

    operator: str
    left: Term
    right: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Literal: TypeAlias = Atom | Negation | Comparison


@dataclass(frozen=True, slots=True)
class Rule:
    """`head :- body.`; the body has at least one literal.

    `text` is the whole source that `span`, and every span below, points into. Rules that come from one clause with `;`
    (or with several heads) share text and span.
    """

    head: Atom
    body: tuple[Literal, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """`body` or `head :- body`: what is asked. A body with `;` becomes several; the answer is the union of theirs.

    The head's relation is only a label: it does not refer to a relation of that name.
    """

    head: Atom | None
    bodies: tuple[tuple[Literal, ...], ...]
    text: str = field(default="", compare=False, repr=False)

    @property
    def goal(self) -> Atom | None:
        """The query's only atom, if it consists of one atom of variables, constants and `_`."""
        if self.head is not None or len(self.bodies) != 1 or len(self.bodies[0]) != 1:
            return None
        literal = self.bodies[0][0]
        if isinstance(literal, Atom) and not any(map(depth_of, literal.terms)):
            return literal
        return None


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """When a count, sum or mean in recursion stops: `fixpoint(tolerance=1e-9, max_height=200)`.

    tolerance: a new value that differs from the current one by no more than this is not taken. max_height: the last
    height at which a value may still change.
    """

    tolerance: float = 0.0
    max_height: int = 1_000


@dataclass(frozen=True, slots=True)
class Declaration:
    """`.decl relation(column: type, ...) qualifiers`; type aliases are resolved, column names distinct."""

    relation: str
    columns: tuple[Column, ...]
    qualifiers: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    column_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)
    fixpoint: Fixpoint | None = None

    @property
    def is_constraint(self) -> bool:
        """Whether the relation must stay empty: a transaction after which it holds a tuple is refused."""
        return CONSTRAINT in self.qualifiers


def fixpoints_of(declarations: Iterable[Declaration]) -> dict[str, Fixpoint]:
    """The fixpoints by relation; among several declarations of one relation the last one with a fixpoint is in
    force."""
    return {d.relation: d.fixpoint for d in declarations if d.fixpoint is not None}


@dataclass(frozen=True, slots=True)
class Directive:
    """`.input`, `.output` or `.printsize` of one relation, with its parameters in the order of the text."""

    kind: str
    relation: str
    parameters: tuple[tuple[str, str], ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A whole text. Every fact is an atom of constants, or of expressions of them (engine/expressions/facts.py).
    prefixes: that it declares, IRIs by their names; in the tree prefixed names are symbols."""

    declarations: tuple[Declaration, ...]
    facts: tuple[Atom, ...]
    rules: tuple[Rule, ...]
    directives: tuple[Directive, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    prefixes: Mapping[str, str] = field(default_factory=dict, hash=False)


def depth_of(term: Term) -> int:
    """How many operations are nested in the term; 0 for variables, constants and `_`."""
    return 0 if isinstance(term, Variable | Constant | Wildcard) else term.depth


def terms_of(literal: Literal) -> tuple[Term, ...]:
    """The terms directly in a literal."""
    match literal:
        case Atom():
            return literal.terms
        case Negation():
            return literal.atom.terms
        case Comparison():
            return (literal.left, literal.right)


def children(node: Literal | Term) -> tuple[Literal | Term, ...]:
    """The nodes directly below a node, in the order of the text."""
    match node:
        case Atom() | Comparison():
            return terms_of(node)
        case Negation():
            return (node.atom,)
        case BinaryOperation():
            return (node.left, node.right)
        case UnaryOperation():
            return (node.operand,)
        case FunctorCall():
            return node.arguments
        case HeadAggregate():
            return (node.argument,)
        case Aggregate():
            return node.body if node.argument is None else (node.argument, *node.body)
        case Variable() | Constant() | Wildcard():
            return ()


def walk(node: Literal | Term) -> Iterator[Literal | Term]:
    """The node and everything below it, in the order of the text; the bodies of aggregates are part of it."""
    yield node
    for child in children(node):
        yield from walk(child)


def walk_outside(node: Literal | Term) -> Iterator[Literal | Term]:
    """The same, without what is inside aggregates."""
    yield node
    if not isinstance(node, Aggregate):
        for child in children(node):
            yield from walk_outside(child)


def names_of(*nodes: Literal | Term) -> set[str]:
    """The variables of the nodes, including those inside aggregates."""
    return {part.name for node in nodes for part in walk(node) if isinstance(part, Variable)}


def names_outside(*nodes: Literal | Term) -> set[str]:
    """The variables of the nodes that occur outside of aggregates, whether or not they occur inside one, too."""
    return {part.name for node in nodes for part in walk_outside(node) if isinstance(part, Variable)}


_Node = TypeVar("_Node", bound=Literal | Term)


def rebuilt(node: _Node, change: Callable[[Any], Any]) -> _Node:
    """The node with each of its `children` replaced: a term by a term, a literal by a literal of the same kind."""
    match node:
        case Atom():
            return replace(node, terms=tuple(map(change, node.terms)))
        case Negation():
            return replace(node, atom=change(node.atom))
        case Comparison() | BinaryOperation():
            return replace(node, left=change(node.left), right=change(node.right))
        case UnaryOperation():
            return replace(node, operand=change(node.operand))
        case FunctorCall():
            return replace(node, arguments=tuple(map(change, node.arguments)))
        case HeadAggregate():
            return replace(node, argument=change(node.argument))
        case Aggregate():
            argument = None if node.argument is None else change(node.argument)
            return replace(node, argument=argument, body=tuple(map(change, node.body)))
        case Variable() | Constant() | Wildcard():
            return node
    raise AssertionError(node)
