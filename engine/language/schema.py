"""Schemas: what is known about the columns of each relation.

A column's type is declared, or fixed by its first use (a fact, or a constant in a rule), or inferred through the
variables of rules; until then it is unknown (`None`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ColumnType(StrEnum):
    """The types of the language. `number` is a 64-bit integer, `float` a 64-bit IEEE number."""

    SYMBOL = "symbol"
    NUMBER = "number"
    FLOAT = "float"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `type` is None while nothing has fixed it."""

    name: str
    type: ColumnType | None


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a relation, in order."""

    relation: str
    columns: tuple[Column, ...]
    declared: bool = False

    @property
    def arity(self) -> int:
        return len(self.columns)

    def position(self, name: str) -> int | None:
        """The index of the column called `name`, or None."""
        return next((i for i, column in enumerate(self.columns) if column.name == name), None)

    def __str__(self) -> str:
        columns = ", ".join(f"{c.name}: {c.type.value if c.type else '?'}" for c in self.columns)
        return f"{self.relation}({columns})"
