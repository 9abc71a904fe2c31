"""A header line that says the types of its columns: `name:symbol,age:number`.

CSV has no types, and `1` may be a number or a symbol. So what writes delimited files here names each column together
with its type, and what reads them takes the types from there. Always: a header says the types of all columns, or it is
an ordinary one, whose names stand as they are. A name of a column cannot hold a colon, so nothing is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.language.schema import Column, ColumnType

_TYPED = re.compile(rf"(.+):({'|'.join(kind.value for kind in ColumnType)})", re.DOTALL)


def typed_names(columns: Sequence[Column]) -> list[str]:
    """The fields of the header; names alone where a type is unknown, which only columns without values have."""
    if any(column.type is None for column in columns):
        return [column.name for column in columns]
    return [f"{column.name}:{column.type.value}" for column in columns if column.type is not None]


def read_header(fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[ColumnType, ...] | None]:
    """The names that a header gives the columns, and the types if it says them."""
    found = [_TYPED.fullmatch(field) for field in fields]
    if not fields or not all(found):
        return tuple(fields), None
    return tuple(m[1] for m in found if m), tuple(ColumnType(m[2]) for m in found if m)
