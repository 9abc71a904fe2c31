"""Terms: constants from tokens, and flat lists of operators and operands as trees.

In: what the parser read, in order. Out: a term at most `MAX_DEPTH` operations deep, or a `Fault`.
The grammar leaves precedence to this module, so that a constant costs the parser one reduction instead of one for each
level of precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lark import Token

from engine.errors import ProgramSyntaxError, Span
from engine.language import constants, operators
from engine.language.parts import Fault, join, span_of
from engine.language.schema import ColumnType
from engine.language.syntax import (
    MAX_DEPTH,
    Aggregate,
    BinaryOperation,
    Constant,
    FunctorCall,
    HeadAggregate,
    Term,
    UnaryOperation,
    depth_of,
)

Compound = TypeVar("Compound", BinaryOperation, UnaryOperation, FunctorCall, Aggregate, HeadAggregate)
Value = str | int | float


def read_constant(token: Token, read: Callable[[str], Value], type_: ColumnType) -> Constant:
    span = span_of(token)
    try:
        return Constant(read(token.value), type_, span)
    except constants.BadConstantError as error:
        start = span.column + error.offset
        place = Span(span.line, start, span.line, start + error.length)
        raise Fault(ProgramSyntaxError, error.message, place) from None


def in_range(term: Term) -> None:
    """Refuse 2**63, which `read_number` lets through because a minus may stand before it."""
    if (
        isinstance(term, Constant)
        and term.value == constants.MAX_NUMBER + 1
        and term.type is ColumnType.NUMBER
    ):
        raise Fault(ProgramSyntaxError, f"the number {term.value} does not fit into 64 bits", term.span)


def bounded(term: Compound) -> Compound:
    if depth_of(term) > MAX_DEPTH:
        raise Fault(
            ProgramSyntaxError, f"the term is nested more than {MAX_DEPTH} operations deep", term.span
        )
    return term


def group_by_precedence(parts: Sequence[Token | Term]) -> Term:
    """A flat list of operators and operands as a tree: Dijkstra's shunting-yard, with prefix operators."""
    operands: list[Term] = []
    waiting: list[tuple[Token, bool]] = []
    want_operand = True
    for part in parts:
        if not isinstance(part, Token):
            operands.append(part)
            want_operand = False
        elif want_operand:
            waiting.append((part, True))
        else:
            operator = operators.BINARY[part]
            while waiting:
                above, prefix = waiting[-1]
                strength = operators.UNARY_PRECEDENCE if prefix else operators.BINARY[above].precedence
                if strength < operator.precedence or (strength == operator.precedence and operator.right):
                    break
                _reduce(operands, *waiting.pop())
            waiting.append((part, False))
            want_operand = True
    while waiting:
        _reduce(operands, *waiting.pop())
    return operands[0]


def _reduce(operands: list[Term], operator: Token, prefix: bool) -> None:
    right = operands.pop()
    if not prefix:
        left = operands.pop()
        in_range(left)
        in_range(right)
        span = join(left.span, right.span)
        operands.append(bounded(BinaryOperation(operator.value, left, right, span)))
        return
    span = join(span_of(operator), right.span)
    if (
        operator == "-"
        and isinstance(right, Constant)
        and right.type in (ColumnType.NUMBER, ColumnType.FLOAT)
    ):
        operands.append(Constant(-right.value, right.type, span))  # type: ignore[operator]  # a number or a float
    else:
        in_range(right)
        operands.append(bounded(UnaryOperation(operator.value, right, span)))
