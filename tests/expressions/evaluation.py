"""Evaluate the text of a term or a condition on columns of Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Value, decode_column, encode_column, type_of
from engine.expressions import Condition, Expression, compile_condition, compile_term
from engine.language.parser import parse_rules
from engine.language.schema import ColumnType
from engine.language.syntax import Comparison

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

Columns = Mapping[str, Sequence[Value]]


def parsed(text: str) -> Comparison:
    """The condition that `text` is."""
    (rule,) = parse_rules(f"r() :- q(), {text}.")
    comparison = rule.body[1]
    assert isinstance(comparison, Comparison)
    return comparison


def expression(text: str, types: Mapping[str, ColumnType | None]) -> Expression:
    return compile_term(parsed(f"x = {text}").right, types)


def condition(text: str, types: Mapping[str, ColumnType | None]) -> Condition:
    return compile_condition(parsed(text), types)


def types_of(columns: Columns) -> dict[str, ColumnType | None]:
    return {name: type_of(values[0]) for name, values in columns.items()}


def encoded(columns: Columns, symbols: SymbolTable) -> dict[str, Codes]:
    # Symbols without the check for Unicode: an older state may hold any text of Python.
    return {
        name: symbols.intern_all(values)  # type: ignore[arg-type]  # all are str
        if (kind := type_of(values[0])) is ColumnType.SYMBOL
        else encode_column(values, kind, symbols)
        for name, values in columns.items()
    }


def term(text: str, symbols: SymbolTable | None = None, /, **columns: Sequence[Value]) -> list[Any]:
    """The values of a term, one for each row of the columns; for one row if there are none."""
    table = SymbolTable() if symbols is None else symbols
    compiled = expression(text, types_of(columns))
    n = len(next(iter(columns.values()), [0]))
    codes = compiled.evaluate(encoded(columns, table), n, table)
    assert codes.dtype == np.int64
    assert codes.shape == (n,)
    return decode_column(codes, compiled.type, table)


def holds(text: str, symbols: SymbolTable | None = None, /, **columns: Sequence[Value]) -> list[bool]:
    """Whether a condition holds, for each row of the columns; for one row if there are none."""
    table = SymbolTable() if symbols is None else symbols
    n = len(next(iter(columns.values()), [0]))
    mask = condition(text, types_of(columns)).evaluate(encoded(columns, table), n, table)
    assert mask.dtype == np.bool_
    assert mask.shape == (n,)
    found: list[bool] = mask.tolist()
    return found
