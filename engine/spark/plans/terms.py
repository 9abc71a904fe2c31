"""Computed values and conditions of rules as columns, without Python: numbers, floats, bools, and equal symbols.

In: a term or a comparison, the types of the rule's variables, and the columns of codes that hold them. Out: a column of
codes, or of truth values, which is NULL where there is no value. The values equal those of engine/expressions bit by
bit, so that one placement can take away what another added. Two things cannot be said in columns: what needs the texts
of symbols, and powers of floats, which libraries round differently. `is_native` tells them apart, and texts.py computes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from engine.expressions import compile_term
from engine.language.constants import MIN_NUMBER
from engine.language.schema import ColumnType
from engine.language.syntax import (
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    Term,
    UnaryOperation,
    Variable,
    walk,
)
from engine.maintenance.placement import Encode
from engine.spark.frames import long
from engine.spark.plans.floats import finite, named, ordered, to_code, to_double

Types = Mapping[str, ColumnType | None]
Name = Callable[[str], str]
"""The column that holds a variable."""

_FLOAT, _SYMBOL = ColumnType.FLOAT, ColumnType.SYMBOL
_EQUAL = ("=", "!=")
ORDER: dict[str, Callable[[Column, Column], Column]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_COMPARE: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    **ORDER,
}


def type_of(term: Term, types: Types) -> ColumnType | None:
    """The type of a term's values."""
    if isinstance(term, Constant):
        return term.type
    return types.get(term.name) if isinstance(term, Variable) else compile_term(term, types).type


def is_native(node: Term | Comparison, types: Types) -> bool:
    """Whether the term or comparison can be said in columns."""
    return all(_is_native(part, types) for part in walk(node))


def _is_native(part: object, types: Types) -> bool:
    match part:
        case Comparison():
            if part.operator in ORDER:
                return _SYMBOL not in (type_of(part.left, types), type_of(part.right, types))
            return part.operator in _EQUAL
        case BinaryOperation():
            return part.operator != "^" or type_of(part, types) is not _FLOAT
        case FunctorCall():
            if part.functor in ("min", "max"):
                return type_of(part, types) is not _SYMBOL
            if part.functor == "to_string":
                return type_of(part.arguments[0], types) is _SYMBOL
            return part.functor == "ord" and isinstance(part.arguments[0], Variable | Constant)
        case _:
            return True


class Terms:
    """The columns of one rule's terms."""

    def __init__(self, types: Types, variable: Name, encode: Encode) -> None:
        self._types = types
        self._variable = variable
        self._encode = encode

    def code(self, term: Term) -> Column:
        """The term's code."""
        if isinstance(term, Variable | Constant):
            return self._plain(term)
        value = self._value(term)
        return to_code(value) if self._is_float(term) else value

    def condition(self, comparison: Comparison) -> Column:
        """Whether the comparison holds."""
        left, right = comparison.left, comparison.right
        compare = _COMPARE[comparison.operator]
        if not self._is_float(left) and not self._is_float(right):
            return compare(self._value(left), self._value(right))
        if all(isinstance(side, Variable | Constant) for side in (left, right)):
            codes = self._plain(left), self._plain(right)
            return compare(*codes) if comparison.operator in _EQUAL else compare(*map(ordered, codes))
        return compare(self._value(left), self._value(right))

    def _is_float(self, term: Term) -> bool:
        return type_of(term, self._types) is _FLOAT

    def _plain(self, term: Term) -> Column:
        if isinstance(term, Variable):
            return F.col(self._variable(term.name))
        assert isinstance(term, Constant), "only what is computed has parts"
        return long(self._encode(term))

    def _value(self, term: Term) -> Column:
        """The term's value: a double for a float, otherwise its code."""
        match term:
            case Variable():
                return to_double(self._plain(term)) if self._is_float(term) else self._plain(term)
            case Constant():
                return F.lit(float(term.value)) if self._is_float(term) else self._plain(term)
            case BinaryOperation():
                return self._apply(
                    (_FLOATS if self._is_float(term) else _NUMBERS)[term.operator], term.left, term.right
                )
            case UnaryOperation():
                value = self._value(term.operand)
                if term.operator == "bnot":
                    return F.bitwise_not(value)
                if term.operator == "lnot":
                    return (value == 0).cast("long")
                return -value if self._is_float(term) else -F.nullif(value, long(MIN_NUMBER))
            case FunctorCall():
                if term.functor in ("min", "max"):
                    return self._apply(_least if term.functor == "min" else _greatest, *term.arguments)
                return self._value(term.arguments[0])
            case _:
                raise AssertionError(f"{term} has no value of its own in a binding")

    def _apply(self, function: Callable[..., Column], *terms: Term) -> Column:
        """`function` of the terms' values, each of which stands in the expression once."""

        def with_(values: tuple[Column, ...]) -> Column:
            if len(values) == len(terms):
                return function(*values)
            term = terms[len(values)]
            value = self._value(term)
            if isinstance(term, Variable | Constant):
                return with_((*values, value))
            return named(value, lambda once: with_((*values, once)))

        return with_(())


def _defined(values: Sequence[Column], result: Column) -> Column:
    """`least` and `greatest` leave out what is NULL."""
    return F.when(reduce(lambda a, b: a & b, [v.isNotNull() for v in values]), result)


def _least(*values: Column) -> Column:
    return _defined(values, F.least(*values))


def _greatest(*values: Column) -> Column:
    return _defined(values, F.greatest(*values))


def _divided(a: Column, b: Column) -> Column:
    """Truncated toward zero; the one quotient that leaves 64 bits is that of the least number by -1."""
    fits = (b != 0) & ((a != long(MIN_NUMBER)) | (b != -1))
    return F.call_function("div", a, F.when(fits, b))


def _raised(a: Column, b: Column) -> Column:
    """a ^ b by repeated multiplication: at most 63 of them; powers of -1, 0 and 1 repeat."""
    small = F.when(b == 0, long(1)).when((a == -1) & (b.bitwiseAND(long(1)) == 0), long(1)).otherwise(a)
    times = F.when(b <= 63, b).cast("int")
    large = F.aggregate(F.array_repeat(a, times), long(1), F.try_multiply)
    return F.when((b >= 0) & a.between(-1, 1), small).when(b >= 0, large)


def _distance(b: Column) -> Column:
    return b.bitwiseAND(long(63)).cast("int")


_NUMBERS: dict[str, Callable[[Column, Column], Column]] = {
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
    "/": _divided,
    "%": lambda a, b: a % F.nullif(b, long(0)),
    "^": _raised,
    "band": lambda a, b: a.bitwiseAND(b),
    "bor": lambda a, b: a.bitwiseOR(b),
    "bxor": lambda a, b: a.bitwiseXOR(b),
    "land": lambda a, b: ((a != 0) & (b != 0)).cast("long"),
    "lor": lambda a, b: ((a != 0) | (b != 0)).cast("long"),
    "lxor": lambda a, b: ((a != 0) != (b != 0)).cast("long"),
    "bshl": lambda a, b: F.call_function("shiftleft", a, _distance(b)),
    "bshr": lambda a, b: F.call_function("shiftright", a, _distance(b)),
}
_FLOATS: dict[str, Callable[[Column, Column], Column]] = {
    "+": lambda a, b: finite(a + b),
    "-": lambda a, b: finite(a - b),
    "*": lambda a, b: finite(a * b),
    "/": lambda a, b: finite(a / F.nullif(b, F.lit(0.0))),
}
