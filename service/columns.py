"""Bound columns in a URL: `?x=a&n=3` or `?where.x=a`; values are read according to the columns' types.

A column that has the name of one of the call's own parameters (`limit`, `cursor`, ...) is written `where.limit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.data.values import Value
from engine.errors import InvalidValueError, UnknownColumnError, did_you_mean, shown
from engine.language.constants import read_decimal
from engine.language.schema import Column, ColumnType, Schema
from service.problems import InvalidParameterError, near

PREFIX = "where."
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def bound_columns(
    schema: Schema, parameters: Iterable[tuple[str, str]], own: frozenset[str]
) -> dict[int, Value]:
    """Column index -> value, for the query parameters that are not the call's `own`.

    Raises:
        UnknownColumnError: there is no such column; the error lists the existing ones.
        InvalidValueError: the text is not a value of the column's type.
        InvalidParameterError: a column is bound twice.
    """
    bound: dict[int, Value] = {}
    for name, text in parameters:
        if name in own:
            continue
        position = _position(schema, name)
        if position in bound:
            raise InvalidParameterError(
                f"column {shown(schema.columns[position].name)} is bound twice", column=name
            )
        bound[position] = parse_value(text, schema.columns[position], schema.relation)
    return bound


def _position(schema: Schema, name: str) -> int:
    position = schema.position(name)
    if position is None and name.startswith(PREFIX):
        position = schema.position(name.removeprefix(PREFIX))
    if position is None:
        columns = [c.name for c in schema.columns]
        raise UnknownColumnError(
            f"{schema.relation} has no column {shown(name)}; the relation is {schema}."
            f"{did_you_mean(near(name, columns))}",
            relation=schema.relation,
            column=name,
            columns=columns,
        )
    return position


def parse_value(text: str, column: Column, relation: str) -> Value:
    """The value that a text in a URL denotes in a column; a symbol is the text itself, without quotes.

    Raises:
        InvalidValueError: the text is not a value of the column's type.
    """
    match column.type:
        case ColumnType.NUMBER:
            if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
                return int(text)
            expected = "a 64-bit integer"
        case ColumnType.FLOAT:
            if _DECIMAL.fullmatch(text):
                try:
                    return read_decimal(text)
                except ValueError as error:
                    raise _unfit(column, relation, str(error)) from None
            expected = "a finite floating-point number"
        case ColumnType.BOOL:
            if text in ("true", "false"):
                return text == "true"
            expected = "true or false"
        case _:
            return text
    raise _unfit(column, relation, f"{shown(text)} is not {expected}")


def _unfit(column: Column, relation: str, why: str) -> InvalidValueError:
    assert column.type is not None, "any text is a symbol"
    return InvalidValueError(
        f"column {column.name} of {relation} holds {column.type.value}s: {why}",
        relation=relation,
        column=column.name,
        expected=column.type.value,
    )
