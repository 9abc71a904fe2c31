"""Terms and comparisons over numbers as a postfix program of integers, for compiled loops.

In: a typed term or comparison and the columns of the variables. Out: pairs (operation, operand), or None where it
needs more than additions, subtractions, products, `min`, `max` and comparisons of numbers, or tests whether two codes
are the same. Always: a program has the same results as the compiled expression, but for values that leave 64 bits: the
loop leaves a batch with one of those to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.language.schema import ColumnType
from engine.language.syntax import BinaryOperation, Comparison, Constant, FunctorCall, Term, Variable

COLUMN, CONSTANT, ADD, SUBTRACT, MULTIPLY, LEAST, MOST, EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = range(
    13
)
DEPTH = 16
"""The most values that a program holds at once."""

_BINARY = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY}
_FUNCTORS = {"min": LEAST, "max": MOST}
_COMPARISONS = {"=": EQUAL, "!=": UNEQUAL, "<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}

Types = Mapping[str, ColumnType | None]
Encode = Callable[[Constant], int]


def number_term(term: Term, types: Types, known: Sequence[str]) -> list[int] | None:
    """The program of a term whose value is a number; its variables are the columns `known`."""
    program = _term(term, types, known)
    return program if program is not None and _depth(program) <= DEPTH else None


def comparison(found: Comparison, types: Types, known: Sequence[str], encode: Encode) -> list[int] | None:
    """The program of a comparison: 1 or 0."""
    operation = _COMPARISONS.get(found.operator)
    if operation is None:
        return None
    sides = [_term(side, types, known) for side in (found.left, found.right)]
    if operation in (EQUAL, UNEQUAL) and None in sides:
        sides = [_symbol(side, types, known, encode) for side in (found.left, found.right)]
    if sides[0] is None or sides[1] is None:
        return None
    program = [*sides[0], *sides[1], operation, 0]
    return program if _depth(program) <= DEPTH else None


def _term(term: Term, types: Types, known: Sequence[str]) -> list[int] | None:
    match term:
        case Variable(name=name) if types.get(name) is ColumnType.NUMBER:
            return [COLUMN, known.index(name)]
        case Constant(value=int(value)) if term.type is ColumnType.NUMBER:
            return [CONSTANT, value]
        case BinaryOperation(operator=operator) if operator in _BINARY:
            return _folded(_BINARY[operator], (term.left, term.right), types, known)
        case FunctorCall(functor=functor) if functor in _FUNCTORS:
            return _folded(_FUNCTORS[functor], term.arguments, types, known)
    return None


def _folded(
    operation: int, arguments: Sequence[Term], types: Types, known: Sequence[str]
) -> list[int] | None:
    program: list[int] = []
    for place, argument in enumerate(arguments):
        part = _term(argument, types, known)
        if part is None:
            return None
        program += part
        if place:
            program += [operation, 0]
    return program


def _symbol(term: Term, types: Types, known: Sequence[str], encode: Encode) -> list[int] | None:
    match term:
        case Variable(name=name) if types.get(name) is ColumnType.SYMBOL:
            return [COLUMN, known.index(name)]
        case Constant(value=str()):
            return [CONSTANT, encode(term)]
    return None


def _depth(program: Sequence[int]) -> int:
    depth = most = 0
    for operation in program[::2]:
        depth += 1 if operation in (COLUMN, CONSTANT) else -1
        most = max(most, depth)
    return most
