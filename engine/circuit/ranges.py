"""`range(from, to, step)` in rules: a functor with several values, represented as a relation.

In: a rule. Out: the same rule with a new variable in place of each range, and an atom of RANGE that binds it: in the
body, or in the body of the aggregate that the range stands in. normal.py makes rules for these atoms:

    asked(a, b, s)            the arguments, from the literals around the range
    part(a, b, s, i, n)       n values from the i-th on; parts of more than one value are halved
    range(a, b, s, v)         v = a + i * s, for the parts of one value

so that a range of n values is complete after log2(n) heights, on any placement.

As in Souffle: `from` is the first value, `to` is excluded; the default step is 1, or -1 if `to` is smaller than `from`;
a step of 0 gives only `from`, unless it equals `to`; if the step leads away from `to` there is no value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    Literal,
    Rule,
    Term,
    Variable,
    rebuilt,
    walk,
)

FUNCTOR = "range"
_ARGUMENTS = {"@range2": ("from", "to"), "@range3": ("from", "to", "step")}
SCHEMAS = {
    name: Schema(name, tuple(Column(column, ColumnType.NUMBER) for column in (*arguments, "value")))
    for name, arguments in _ARGUMENTS.items()
}
"""The schemas of the atoms that represent ranges, by relation."""
_ZERO, _ONE, _TWO = (Constant(value, ColumnType.NUMBER) for value in (0, 1, 2))
_Node = TypeVar("_Node", bound=Literal | Term)


def is_range(literal: Literal) -> bool:
    """Whether the literal is an atom that represents a range; its last term is the value."""
    return isinstance(literal, Atom) and literal.relation in SCHEMAS


def as_equation(literal: Literal) -> Literal:
    """An atom that represents a range, as `value = range(...)`; every other literal unchanged."""
    if not (isinstance(literal, Atom) and is_range(literal)):
        return literal
    return Comparison("=", literal.terms[-1], FunctorCall(FUNCTOR, literal.terms[:-1]), literal.span)


def without_ranges(rule: Rule) -> Rule:
    """See the module."""
    if not any(_is_call(node) for literal in (rule.head, *rule.body) for node in walk(literal)):
        return rule
    hoisting = _Hoisting()
    added: list[Literal] = []
    head = hoisting.without(rule.head, added)
    body = [hoisting.without(literal, added) for literal in rule.body]
    return replace(rule, head=head, body=(*added, *body))


def range_rules(asked: Atom, part: str, values: str) -> list[tuple[Atom, list[Literal]]]:
    """The rules (head, body) that derive `values` from what is `asked`. Their variables are numbers."""
    first, last, step, at, count, half = map(Variable, ("a", "b", "s", "i", "n", "h"))
    given = Atom(asked.relation, (first, last, step)[: asked.arity])
    start = Atom(part, (first, last, step, at, count))
    none, one = _equal(at, _ZERO), Atom(part, (first, last, step, at, _ONE))
    gap, back = _of("-", last, first), _of("-", first, last)
    if asked.arity == 2:
        starts: list[list[Literal]] = [
            [Comparison("<", first, last), _equal(step, _ONE), _equal(count, gap)],
            [
                Comparison(">", first, last),
                _equal(step, Constant(-1, ColumnType.NUMBER)),
                _equal(count, back),
            ],
        ]
    else:
        # The numbers of values: the rounded up quotients of the gap and the step.
        up = _of("+", _of("/", _of("-", gap, _ONE), step), _ONE)
        down = _of("-", _ONE, _of("/", _of("-", back, _ONE), step))
        starts = [
            [Comparison(">", step, _ZERO), Comparison("<", first, last), _equal(count, up)],
            [Comparison("<", step, _ZERO), Comparison(">", first, last), _equal(count, down)],
            [_equal(step, _ZERO), Comparison("!=", first, last), _equal(count, _ONE)],
        ]
    many, middle = Comparison(">", count, _ONE), _of("/", count, _TWO)
    second, rest = Variable("j"), Variable("m")
    value = Variable("v")
    return [
        *((start, [given, none, *conditions]) for conditions in starts),
        (Atom(part, (first, last, step, at, half)), [start, many, _equal(half, middle)]),
        (
            Atom(part, (first, last, step, second, rest)),
            [start, many, _equal(second, _of("+", at, middle)), _equal(rest, _of("-", count, middle))],
        ),
        (Atom(values, (*given.terms, value)), [one, _equal(value, _of("+", first, _of("*", at, step)))]),
    ]


def _of(operator: str, left: Term, right: Term) -> BinaryOperation:
    return BinaryOperation(operator, left, right)


def _equal(left: Term, right: Term) -> Comparison:
    return Comparison("=", left, right)


def _is_call(node: Literal | Term) -> bool:
    return isinstance(node, FunctorCall) and node.functor == FUNCTOR


class _Hoisting:
    """Takes ranges out of terms; the atoms that represent them are appended to `added`."""

    def __init__(self) -> None:
        self._count = 0

    def without(self, node: _Node, added: list[Literal]) -> _Node:
        if isinstance(node, Aggregate):
            # Its body is where its own ranges are bound.
            own: list[Literal] = []
            inside = rebuilt(node, lambda part: self._term(part, own))
            return replace(inside, body=(*own, *inside.body))
        return rebuilt(node, lambda part: self._term(part, added))

    def _term(self, node: Any, added: list[Literal]) -> Any:
        below = self.without(node, added)
        if not _is_call(below):
            return below
        self._count += 1
        value = Variable(f"@range{self._count}", below.span)
        added.append(Atom(f"@range{len(below.arguments)}", (*below.arguments, value), below.span))
        return value
