"""Types flow through rules: unification of columns, variables and terms (Robinson's, on flat terms).

In: relations, types that are fixed, and rules. Out: the type of each column, None where nothing fixes it, or a
`TypeMismatchError` that points at the first term that does not fit.
Always: all columns and terms that a variable or an equation connects have one type. A variable needs no node of its own
in the graph: it is represented by the first column or term that it is equal to. Near-linear time (union-find).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import TypeMismatchError
from engine.language.canonical import format_term
from engine.language.constants import shortened
from engine.language.schema import ColumnType
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
)

_SYMBOL, _NUMBER, _FLOAT = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT
_BITWISE = frozenset({"band", "bor", "bxor", "bshl", "bshr", "bnot", "land", "lor", "lxor", "lnot", "%"})
# Argument types and result type of each functor; None: any type. `cat`, `min`, `max`, `range` and those of RDF are seen
# to apart.
_SIGNATURES: dict[str, tuple[tuple[ColumnType | None, ...], ColumnType]] = {
    "ord": ((_SYMBOL,), _NUMBER),
    "strlen": ((_SYMBOL,), _NUMBER),
    "substr": ((_SYMBOL, _NUMBER, _NUMBER), _SYMBOL),
    "to_float": ((_SYMBOL,), _FLOAT),
    "to_number": ((_SYMBOL,), _NUMBER),
    "to_string": ((None,), _SYMBOL),
}


class ColumnNames(NamedTuple):
    """How errors name the columns of a relation; `known` is false when the columns have only numbers."""

    relation: str
    names: tuple[str, ...]
    known: bool

    def describe(self, position: int) -> str:
        name = f" ({self.names[position]})" if self.known else ""
        return f"column {position + 1}{name} of {self.relation}"


Scope = dict[str, int]


class TypeGraph:
    """Nodes are integers: columns of relations first, then computed terms."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._type: list[ColumnType | None] = []
        self._first: dict[str, int] = {}
        self._names: dict[str, ColumnNames] = {}
        self._numeric: list[tuple[int, str, Term, Rule]] = []
        self._aggregates: list[tuple[Aggregate, int, Scope]] = []

    def add_relation(self, name: str, columns: ColumnNames) -> None:
        """Make a node for each column. Every relation comes before the first rule."""
        self._first[name] = len(self._parent)
        self._names[name] = columns
        for _ in columns.names:
            self._node(None)

    def fix(self, relation: str, types: Sequence[ColumnType | None]) -> None:
        """Set the types of the relation's columns. The caller knows that they contradict no earlier ones."""
        first = self._first[relation]
        for i, type_ in enumerate(types):
            if type_ is not None:
                self._type[first + i] = type_

    def types(self, relation: str) -> list[ColumnType | None]:
        """The types of the relation's columns."""
        first = self._first[relation]
        return [self._type[self._root(first + i)] for i in range(len(self._names[relation].names))]

    def add_rule(self, rule: Rule) -> None:
        """Connect what the rule connects.

        Raises:
            TypeMismatchError: a term does not have the type that its place needs.
        """
        scope: Scope = {}
        for literal in (rule.head, *rule.body):
            self._add_literal(literal, scope, rule)
        # Aggregates wait until all variables outside of them have their place; the others are their own.
        while self._aggregates:
            aggregate, result, outer = self._aggregates.pop()
            self._add_aggregate(aggregate, result, dict(outer), rule)

    def finish(self) -> None:
        """Check that every operand of arithmetic is a number or a float, now that all types are known.

        Raises:
            TypeMismatchError: an operand is a symbol or a bool.
        """
        for node, operator, term, rule in self._numeric:
            got = self._type[self._root(node)]
            if got is not None and got not in (_NUMBER, _FLOAT):
                message = f"{operator} needs numbers or floats, but {_show(term)} is a {got.value}"
                raise TypeMismatchError(
                    message, text=rule.text, span=term.span, expected="number or float", got=got.value
                )

    # Literals

    def _add_literal(self, literal: Literal, scope: Scope, rule: Rule) -> None:
        match literal:
            case Atom():
                self._add_atom(literal, scope, rule)
            case Negation():
                self._add_atom(literal.atom, scope, rule)
            case Comparison(operator=operator, left=left, right=right):
                if operator[-1].isalpha():
                    for term in (left, right):
                        self._expect(self._term(term, scope, rule), _SYMBOL, operator.lstrip("!"), term, rule)
                else:
                    node = self._term(left, scope, rule)
                    self._same(node, self._term(right, scope, rule), operator, left, right, rule)

    def _add_atom(self, atom: Atom, scope: Scope, rule: Rule) -> None:
        column = self._first[atom.relation]
        for position, term in enumerate(atom.terms):
            if type(term) is Variable:
                node = scope.setdefault(term.name, column)
                if node != column and not self._union(column, node):
                    raise self._misplaced(atom, position, self._known(node), rule)
            elif type(term) is Constant:
                if not self._set(column, term.type):
                    raise self._misplaced(atom, position, term.type, rule)
            elif type(term) is not Wildcard:
                node = self._term(term, scope, rule)
                if not self._union(column, node):
                    raise self._misplaced(atom, position, self._known(node), rule)
            column += 1

    def _misplaced(self, atom: Atom, position: int, got: ColumnType, rule: Rule) -> TypeMismatchError:
        names, term = self._names[atom.relation], atom.terms[position]
        expected = self._known(self._first[atom.relation] + position)
        return TypeMismatchError(
            f"{names.describe(position)} holds {expected.value}s, but {_show(term)} is a {got.value}",
            text=rule.text,
            span=term.span,
            relation=atom.relation,
            column_name=names.names[position],
            expected=expected.value,
            got=got.value,
        )

    # Terms

    def _term(self, term: Term, scope: Scope, rule: Rule) -> int:
        """The node of a term's value."""
        match term:
            case Variable():
                return (
                    scope[term.name] if term.name in scope else scope.setdefault(term.name, self._node(None))
                )
            case Constant():
                return self._node(term.type)
            case Wildcard():
                return self._node(None)
            case BinaryOperation(operator=operator, left=left, right=right):
                node = self._operand(operator, left, scope, rule)
                self._same(node, self._operand(operator, right, scope, rule), operator, left, right, rule)
                return node
            case UnaryOperation():
                return self._operand(term.operator, term.operand, scope, rule)
            case FunctorCall():
                return self._functor(term, scope, rule)
            case HeadAggregate():
                return self._aggregated(
                    term.function, self._term(term.argument, scope, rule), term.argument, rule
                )
            case Aggregate():
                result = self._node(None)
                self._aggregates.append((term, result, scope))
                return result

    def _operand(self, operator: str, term: Term, scope: Scope, rule: Rule) -> int:
        node = self._term(term, scope, rule)
        if operator in _BITWISE:
            self._expect(node, _NUMBER, operator, term, rule)
        else:
            self._numeric.append((node, operator, term, rule))
        return node

    def _functor(self, call: FunctorCall, scope: Scope, rule: Rule) -> int:
        nodes = [self._term(argument, scope, rule) for argument in call.arguments]
        if call.functor in ("min", "max"):
            for node, argument in zip(nodes[1:], call.arguments[1:], strict=True):
                self._same(nodes[0], node, call.functor, call.arguments[0], argument, rule)
            return nodes[0]
        expected: tuple[ColumnType | None, ...] = (_SYMBOL,) * len(nodes)
        result = _SYMBOL
        if call.functor == "range":
            expected, result = (_NUMBER,) * len(nodes), _NUMBER
        elif call.functor == "rdf_iri":
            expected = (_SYMBOL, *[None] * (len(nodes) - 1))
        elif call.functor == "rdf_literal":
            expected = (None, _SYMBOL)[: len(nodes)]
        elif call.functor != "cat":
            expected, result = _SIGNATURES[call.functor]
        for node, type_, argument in zip(nodes, expected, call.arguments, strict=True):
            if type_ is not None:
                self._expect(node, type_, call.functor, argument, rule)
        return self._node(result)

    def _add_aggregate(self, aggregate: Aggregate, result: int, scope: Scope, rule: Rule) -> None:
        for literal in aggregate.body:
            self._add_literal(literal, scope, rule)
        node = self._node(None)
        if aggregate.argument is not None:
            node = self._term(aggregate.argument, scope, rule)
        node = self._aggregated(aggregate.function, node, aggregate.argument, rule)
        if not self._union(result, node):
            expected, got = self._known(result), self._known(node)
            message = f"{_show(aggregate)} is a {got.value}, but a {expected.value} is needed here"
            raise TypeMismatchError(
                message, text=rule.text, span=aggregate.span, expected=expected.value, got=got.value
            )

    def _aggregated(self, function: str, argument: int, term: Term | None, rule: Rule) -> int:
        """The node of an aggregate's value."""
        if function == "count":
            return self._node(_NUMBER)
        if function in ("sum", "mean") and term is not None:
            self._numeric.append((argument, function, term, rule))
        return self._node(_FLOAT) if function == "mean" else argument

    # Unification

    def _expect(self, node: int, expected: ColumnType, by: str, term: Term, rule: Rule) -> None:
        if not self._set(node, expected):
            got = self._known(node)
            message = f"{by} needs a {expected.value} here, but {_show(term)} is a {got.value}"
            raise TypeMismatchError(
                message, text=rule.text, span=term.span, expected=expected.value, got=got.value
            )

    def _same(self, a: int, b: int, by: str, left: Term, right: Term, rule: Rule) -> None:
        if not self._union(a, b):
            expected, got = self._known(a), self._known(b)
            message = (
                f"{_show(left)} is a {expected.value}, but {_show(right)} is a {got.value}; "
                f"{by} takes values of one type"
            )
            raise TypeMismatchError(
                message, text=rule.text, span=right.span, expected=expected.value, got=got.value
            )

    def _node(self, type_: ColumnType | None) -> int:
        self._parent.append(len(self._parent))
        self._type.append(type_)
        return len(self._parent) - 1

    def _root(self, node: int) -> int:
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def _known(self, node: int) -> ColumnType:
        """The type of a node that has one."""
        type_ = self._type[self._root(node)]
        assert type_ is not None
        return type_

    def _set(self, node: int, type_: ColumnType) -> bool:
        root = self._root(node)
        if self._type[root] is None:
            self._type[root] = type_
        return self._type[root] is type_

    def _union(self, a: int, b: int) -> bool:
        """Make two nodes one; false if their types differ."""
        a, b = self._root(a), self._root(b)
        if a == b:
            return True
        of_a, of_b = self._type[a], self._type[b]
        if of_a is not None and of_b is not None and of_a is not of_b:
            return False
        self._parent[b] = a
        self._type[a] = of_a or of_b
        return True


def _show(term: Term) -> str:
    return shortened(format_term(term))
