"""Rows of an answer: as a grid shows them, and as tuples that can be explained. Plain functions, without NiceGUI.

Always: a value is shown exactly. A browser's numbers are floats of 64 bits, so integers beyond 2^53 go to it as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.errors import ZedlogError
from engine.language.constants import write_constant
from engine.language.parser import parse_query
from engine.language.schema import ColumnType
from engine.language.syntax import Atom, Constant, Variable

_EXACT: Final = 2**53
# A browser compares texts of integers as integers.
_COMPARE: Final = "(a, b) => { const x = BigInt(a), y = BigInt(b); return x < y ? -1 : x > y ? 1 : 0; }"
# 2.0 is a float: it is not shown as 2.
_SHOW_FLOAT: Final = (
    "(p) => p.value === null || p.value === undefined ? '' : "
    "Number.isInteger(p.value) && Math.abs(p.value) < 1e16 ? p.value.toFixed(1) : String(p.value)"
)


def grid_columns(columns: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Definitions of AG Grid's columns; the fields are c0, c1, ..."""
    found = []
    for at, column in enumerate(columns):
        definition: dict[str, Any] = {
            "field": f"c{at}",
            "headerName": column["name"],
            "headerTooltip": f"{column['name']}: {column['type'] or 'no values yet'}",
            "cellDataType": False,
        }
        if column["type"] == "float":
            definition[":valueFormatter"] = _SHOW_FLOAT
        if column["type"] == "number":
            definition["type"] = "rightAligned"
            if any(abs(row[at]) > _EXACT for row in rows):
                definition[":comparator"] = _COMPARE
        found.append(definition)
    return found


def grid_rows(columns: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows as AG Grid takes them, each with its number in `i`."""
    whole = {
        at
        for at, column in enumerate(columns)
        if column["type"] == "number" and any(abs(row[at]) > _EXACT for row in rows)
    }
    return [
        {"i": i, **{f"c{at}": _cell(value, at in whole) for at, value in enumerate(row)}}
        for i, row in enumerate(rows)
    ]


def _cell(value: Any, as_text: bool) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if as_text else value


def as_text(value: Any) -> str:
    """A value as program text."""
    if isinstance(value, bool):
        return write_constant(value, ColumnType.BOOL)
    if isinstance(value, str):
        return write_constant(value, ColumnType.SYMBOL)
    return write_constant(value, ColumnType.FLOAT if isinstance(value, float) else ColumnType.NUMBER)


def tuples_of(query: str, columns: Sequence[Mapping[str, Any]], row: Sequence[Any]) -> list[str]:
    """What a row rests on: each atom of the query, not negated, with the row's values in it, as program text.

    Atoms with `_` or with a variable that is no column name no single tuple, and are left out; so are the atoms of a
    query with alternatives, because the row does not say which of them it came from.
    """
    try:
        parsed = parse_query(query)
    except ZedlogError:
        return []
    if parsed.head is not None or len(parsed.bodies) != 1:
        return []
    values = {
        column["name"]: write_constant(value, ColumnType(column["type"]))
        for column, value in zip(columns, row, strict=True)
        if column["type"] is not None
    }
    found = []
    for literal in parsed.bodies[0]:
        if not isinstance(literal, Atom):
            continue
        terms = [_written(term, values) for term in literal.terms]
        if None not in terms:
            found.append(f"{literal.relation}({', '.join(term for term in terms if term is not None)})")
    return list(dict.fromkeys(found))


def _written(term: Any, values: Mapping[str, str]) -> str | None:
    if isinstance(term, Constant):
        return write_constant(term.value, term.type)
    if isinstance(term, Variable):
        return values.get(term.name)
    return None
