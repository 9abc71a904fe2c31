"""Values and their codes: every value of the language is one int64.

symbol   its number in the symbol table
number   itself
float    its 64 bits; -0.0 counts as 0.0, so that equal values have equal codes; NaN and infinity are refused
bool     0 or 1

A value has the type that it comes with, and a column takes values of its own type. There is one exception: JavaScript
writes 2.0 as 2, so a column that is declared `float` also takes an integer that a float represents exactly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.errors import InvalidValueError, TypeMismatchError, shown
from engine.language.constants import write_constant
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Constant

Value = str | int | float | bool
Tuple = tuple[Value, ...]

VALUE_TYPES = frozenset((str, int, float, bool))
_TYPE_OF: dict[type, ColumnType] = {
    str: ColumnType.SYMBOL,
    int: ColumnType.NUMBER,
    float: ColumnType.FLOAT,
    bool: ColumnType.BOOL,
}


class Encoder:
    """Constants of a program to codes; computed strings are interned in `symbols`, too."""

    def __init__(self, symbols: SymbolTable) -> None:
        self.symbols = symbols

    def __call__(self, constant: Constant) -> int:
        return encode_value(constant.value, self.symbols)


def type_of(value: Value) -> ColumnType:
    """The column type that holds `value`.

    Raises:
        InvalidValueError: the value has no type of the language.
    """
    found = _TYPE_OF.get(type(value))
    if found is None:
        raise InvalidValueError(f"{shown(value)} is not a symbol, a number, a float or a bool")
    return found


def fitted(value: Value, schema: Schema, position: int) -> Value:
    """The value in the form in which the column at `position` (from 0) of a relation holds it.

    Raises:
        TypeMismatchError: the column has another type.
        InvalidValueError: the value has no type of the language.
    """
    column, kind = schema.columns[position], type_of(value)
    if column.type is None or takes(schema, column.type, value):
        return value if column.type in (None, kind) else float(value)
    raise mismatch(schema.relation, position, column, column.type, value)


def takes(schema: Schema, column: ColumnType, value: object) -> bool:
    """Whether a column of type `column` of the relation accepts the value."""
    if _TYPE_OF.get(type(value)) is column:
        return True
    return schema.declared and column is ColumnType.FLOAT and type(value) is int and _is_float(value)


def _is_float(number: int) -> bool:
    """Whether a float has exactly the value of an integer."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def encode_value(value: Value, symbols: SymbolTable) -> int:
    """The code of one value; a new symbol is interned.

    Raises:
        InvalidValueError: a number of more than 64 bits, a float that is not finite, a symbol that is not Unicode.
    """
    kind = type(value)
    if kind is str:
        check_texts((value,))  # type: ignore[arg-type]  # kind is str
        return symbols.intern(value)  # type: ignore[arg-type]  # kind is str
    if kind is float:
        return _float_code(value)
    if not -(2**63) <= value < 2**63:  # type: ignore[operator]  # it is an int or a bool
        raise InvalidValueError(f"the number {value} does not fit into 64 bits")
    return int(value)


def encode_column(
    values: Sequence[Value], column: ColumnType, symbols: SymbolTable, where: str = "a fact"
) -> Codes:
    """The codes of values that all have the type `column`. where: how an error names the place of a value.

    Raises:
        InvalidValueError: a number of more than 64 bits, a float that is not finite, a symbol that is not Unicode.
    """
    if column is ColumnType.SYMBOL:
        check_texts(values, where)  # type: ignore[arg-type]  # all are str
        return symbols.intern_all(values)  # type: ignore[arg-type]  # all are str
    if column is ColumnType.FLOAT:
        return float_codes(np.array(values, np.float64), where)
    try:
        return np.array(values, np.int64)
    except OverflowError:
        wrong = next(v for v in values if not -(2**63) <= int(v) < 2**63)
        raise InvalidValueError(f"{where}: the number {wrong} does not fit into 64 bits") from None


def float_codes(floats: npt.NDArray[np.float64], where: str) -> Codes:
    """The codes of floats.

    Raises:
        InvalidValueError: one is NaN or infinite.
    """
    finite = np.isfinite(floats)
    if not finite.all():
        raise not_finite(float(floats[~finite][0]), where)
    return (floats + 0.0).view(np.int64)


def check_texts(texts: Sequence[str], where: str = "a value") -> None:
    """Check that the symbols are text that UTF-8 can encode.

    Raises:
        InvalidValueError: one contains half of a surrogate pair.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        wrong = next(text for text in texts if half in text)
        raise InvalidValueError(
            f"{where}: the symbol {shown(wrong)} is not valid Unicode text: it contains half of a surrogate pair"
        ) from None


def column_types(relation: str, tuples: Sequence[Sequence[Value]], schema: Schema) -> tuple[ColumnType, ...]:
    """The type of each column of `tuples`, which all have the schema's arity.

    Raises:
        TypeMismatchError: a value does not have the type that the schema, or an earlier tuple, gives its column.
        InvalidValueError: a value has no type of the language.
    """
    types = []
    for position, (column, values) in enumerate(
        zip(schema.columns, columns_of(tuples, schema.arity), strict=True)
    ):
        kinds = set(map(type, values))
        expected = column.type or type_of(values[0])
        if len(kinds) > 1 or _TYPE_OF.get(next(iter(kinds))) is not expected:
            for value in values:
                if not takes(schema, expected, value):
                    raise mismatch(relation, position, column, expected, value)
        types.append(expected)
    return tuple(types)


def columns_of(tuples: Sequence[Sequence[Value]], arity: int) -> list[list[Value]]:
    """The values of each column of `tuples`, which all have `arity` columns."""
    # `zip(*tuples)` would make an iterator for each tuple, and the garbage collector would look at all of them.
    values = list(chain.from_iterable(tuples))
    return [values[position::arity] for position in range(arity)]


def numbers_of(tuples: Sequence[Sequence[Value]]) -> Codes | None:
    """The tuples as int64[n, arity]; None if they are not all of the same arity, or have anything else than numbers of
    64 bits."""
    arity = len(tuples[0]) if tuples else 0
    values = list(chain.from_iterable(tuples))
    if not arity or set(map(type, values)) != {int} or set(map(len, tuples)) != {arity}:
        return None
    try:
        return np.array(values, np.int64).reshape(-1, arity)
    except OverflowError:
        return None


def number_types(relation: str, numbers: npt.NDArray[Any], schema: Schema) -> tuple[ColumnType, ...]:
    """The same for an array of integers that is not empty."""
    types = column_types(relation, [tuple(numbers[0].tolist())], schema)
    for position, kind in enumerate(types):
        if kind is ColumnType.FLOAT:
            column = numbers[:, position]
            floats = column.astype(np.float64)
            # 2**63, to which the largest numbers are rounded, is no int64.
            exact = (floats < 2.0**63) & (np.where(floats < 2.0**63, floats, 0.0).astype(np.int64) == column)
            if not exact.all():
                column_types(relation, [tuple(numbers[np.argmin(exact)].tolist())], schema)
    return types


def encode_numbers(numbers: npt.NDArray[Any], types: Sequence[ColumnType]) -> Codes:
    """The codes of an array of integers whose columns have the types that `number_types` returns."""
    codes = np.array(numbers, np.int64, order="C", copy=ColumnType.FLOAT in types or None)
    for position, kind in enumerate(types):
        if kind is ColumnType.FLOAT:
            codes[:, position] = codes[:, position].astype(np.float64).view(np.int64)
    return codes


def mismatch(
    relation: str, position: int, column: Column, expected: ColumnType, wrong: Any
) -> TypeMismatchError:
    """The error for a value that does not have its column's type; `position` counts from 0."""
    got, hint = type_of(wrong), ""
    if expected is ColumnType.FLOAT and got is ColumnType.NUMBER:
        # A column that is declared float has refused it only because of its value.
        hint = (
            "; write it with a fraction, as in 2.0"
            if _is_float(wrong)
            else "; no float has exactly this value"
        )
    return TypeMismatchError(
        f"column {position + 1} ({column.name}) of {relation} holds {expected.value}s, "
        f"but {shown(wrong)} is a {got.value}{hint}",
        relation=relation,
        column_name=column.name,
        expected=expected.value,
        got=got.value,
    )


def decode(codes: Codes, types: Sequence[ColumnType | None], symbols: SymbolTable) -> list[Tuple]:
    """The tuples that `codes`, int64[n, arity], stand for."""
    if not types:
        return [()] * len(codes)
    columns = [decode_column(codes[:, i], kind, symbols) for i, kind in enumerate(types)]
    return list(zip(*columns, strict=True))


def decode_column(codes: Codes, column: ColumnType | None, symbols: SymbolTable) -> list[Any]:
    """The values of one column. A column of unknown type holds no tuples."""
    if column is ColumnType.SYMBOL:
        return symbols.texts(codes)
    if column is ColumnType.FLOAT:
        floats: list[Any] = np.ascontiguousarray(codes).view(np.float64).tolist()
        return floats
    if column is ColumnType.BOOL:
        return [bool(code) for code in codes.tolist()]
    assert column is ColumnType.NUMBER or not len(codes), "tuples of unknown type"
    numbers: list[Any] = codes.tolist()
    return numbers


def write_tuple(values: Sequence[Value]) -> str:
    """The tuple as program text writes it after the name of a relation: `("a", 1)`."""
    return f"({', '.join(write_constant(value, type_of(value)) for value in values)})"


def _float_code(value: Any) -> int:
    if not math.isfinite(value):
        raise not_finite(value, "a value")
    code: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return code


def plain_value(value: object, where: str) -> Value:
    """A value as it came from a client, checked; a scalar of numpy becomes Python's.

    Raises:
        InvalidValueError: it is not a symbol, a 64-bit integer, a finite float or a bool.
    """
    known = value.item() if isinstance(value, np.generic) else value
    if type(known) is int and not -(2**63) <= known < 2**63:
        raise InvalidValueError(f"{where}: the number {known} does not fit into 64 bits")
    if type(known) is float and not math.isfinite(known):
        raise not_finite(known, where)
    if type(known) not in VALUE_TYPES:
        raise InvalidValueError(f"{where}: {shown(value)} is not a symbol, a number, a float or a bool")
    return cast(Value, known)


def not_finite(value: float, where: str) -> InvalidValueError:
    """The error for a float that is NaN or infinite."""
    return InvalidValueError(f"{where}: a float must be finite, but this one is {value}")


def all_plain(values: Sequence[object]) -> bool:
    """Whether `plain_value` would return all of these values unchanged."""
    kinds = set(map(type, values))
    numbers = [value for value in values if type(value) is int] if int in kinds else [0]
    floats = [value for value in values if type(value) is float] if float in kinds else [0.0]
    within = min(numbers) >= -(2**63) and max(numbers) < 2**63
    return VALUE_TYPES.issuperset(kinds) and within and all(map(math.isfinite, floats))
