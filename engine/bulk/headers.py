"""Header lines that give the types of their columns: `name:symbol,age:number`.

CSV has no types, and `1` may be a number or a symbol. So an export to a delimited file writes each column's name
together with its type, and an import takes the types from there. Always: a header gives the types of all columns, or it
is an ordinary one, whose names are taken as they are. A column name cannot contain a colon, so nothing is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.language.schema import Column, ColumnType

_TYPED = re.compile(rf"(.+):({'|'.join(kind.value for kind in ColumnType)})", re.DOTALL)


def typed_names(columns: Sequence[Column]) -> list[str]:
    """The fields of the header; only names if a type is unknown, which is the case only for columns without values."""
    if any(column.type is None for column in columns):
        return [column.name for column in columns]
    return [f"{column.name}:{column.type.value}" for column in columns if column.type is not None]


def read_header(fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[ColumnType, ...] | None]:
    """The names that a header gives the columns, and the types if it has them."""
    found = [_TYPED.fullmatch(field) for field in fields]
    if not fields or not all(found):
        return tuple(fields), None
    return tuple(m[1] for m in found if m), tuple(ColumnType(m[2]) for m in found if m)
