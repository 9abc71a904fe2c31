"""Values and their codes: every value of the language is one int64.

symbol   its number in the symbol table
number   itself
float    its 64 bits; -0.0 counts as 0.0 and every NaN is refused, so that equal values have equal codes
bool     0 or 1
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidValueError, TypeMismatchError
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Constant
from engine.symbols import SymbolTable
from engine.transaction import Tuple, Value

Codes = npt.NDArray[np.int64]
_TYPE_OF: dict[type, ColumnType] = {
    str: ColumnType.SYMBOL,
    int: ColumnType.NUMBER,
    float: ColumnType.FLOAT,
    bool: ColumnType.BOOL,
}


class Encoder:
    """Constants of a program to codes; `symbols` is where computed strings are interned too."""

    def __init__(self, symbols: SymbolTable) -> None:
        self.symbols = symbols

    def __call__(self, constant: Constant) -> int:
        return encode_value(constant.value, self.symbols)


def type_of(value: Value) -> ColumnType:
    """The column type that holds `value`.

    Raises:
        InvalidValueError: it is of no type of the language.
    """
    found = _TYPE_OF.get(type(value))
    if found is None:
        raise InvalidValueError(f"{value!r} is no symbol, number, float or bool")
    return found


def encode_value(value: Value, symbols: SymbolTable) -> int:
    """The code of one value; a new symbol is interned."""
    kind = type(value)
    if kind is str:
        return symbols.intern(value)  # type: ignore[arg-type]  # kind is str
    if kind is float:
        return _float_code(value)
    return int(value)


def encode_column(values: Sequence[Value], column: ColumnType, symbols: SymbolTable) -> Codes:
    """The codes of values that all have the type `column`."""
    if column is ColumnType.SYMBOL:
        return symbols.intern_all(values)  # type: ignore[arg-type]  # all are str
    if column is ColumnType.FLOAT:
        floats = np.array(values, np.float64)
        if np.isnan(floats).any():
            raise InvalidValueError("a float must not be NaN: it is equal to nothing, not even to itself")
        return (floats + 0.0).view(np.int64)
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise InvalidValueError(f"a number does not fit into 64 bits: {error}") from None


def column_types(relation: str, tuples: Sequence[Sequence[Value]], schema: Schema) -> tuple[ColumnType, ...]:
    """The type of each column of `tuples`, which all have the schema's arity.

    Raises:
        TypeMismatchError: a value is of another type than the schema, or the tuples before it, say.
        InvalidValueError: a value is of no type of the language.
    """
    types = []
    for position, (column, values) in enumerate(zip(schema.columns, zip(*tuples, strict=True), strict=True)):
        kinds = set(map(type, values))
        expected = column.type or type_of(values[0])
        if len(kinds) > 1 or _TYPE_OF.get(next(iter(kinds))) is not expected:
            wrong = next(v for v in values if _TYPE_OF.get(type(v)) is not expected)
            raise mismatch(relation, position, column, expected, wrong)
        types.append(expected)
    return tuple(types)


def mismatch(
    relation: str, position: int, column: Column, expected: ColumnType, wrong: Any
) -> TypeMismatchError:
    """The error for a value that is not of its column's type; `position` counts from 0."""
    got = type_of(wrong)
    return TypeMismatchError(
        f"column {position + 1} ({column.name}) of {relation} holds {expected.value}, but {wrong!r} is a {got.value}",
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


def _float_code(value: Any) -> int:
    if value != value:
        raise InvalidValueError("a float must not be NaN: it is equal to nothing, not even to itself")
    code: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return code
