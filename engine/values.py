"""Values and their codes: every value of the language is one int64.

symbol   its number in the symbol table
number   itself
float    its 64 bits; -0.0 counts as 0.0, so that equal values have equal codes; NaN and infinity are refused
bool     0 or 1
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidValueError, TypeMismatchError
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Constant
from engine.symbols import SymbolTable
from engine.transaction import Tuple, Value, not_finite

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
        raise InvalidValueError(f"{value!r} is not a symbol, a number, a float or a bool")
    return found


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
    """The codes of values that all have the type `column`. where: what an error calls the place of a value.

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
    """Symbols are text that UTF-8 can write.

    Raises:
        InvalidValueError: one holds half of a surrogate pair.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        wrong = next(text for text in texts if half in text)
        raise InvalidValueError(
            f"{where}: the symbol {wrong!r} is not text of Unicode, for it holds half of a surrogate pair"
        ) from None


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
    if not math.isfinite(value):
        raise not_finite(value, "a value")
    code: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return code
