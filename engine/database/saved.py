"""All that a reasoner needs to go on in another process; derived relations are computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from engine.data.codes import Codes
from engine.database.epoch import RuleInfo
from engine.language.schema import Schema


@runtime_checkable
class InParts(Protocol):
    """Facts that can be read in parts, so that those of a relation need not be in this process as a whole."""

    def rows(self, name: str, /) -> int:
        """How many facts a relation has."""

    def parts(self, name: str, /) -> Iterator[tuple[Codes, Codes]]:
        """Its facts: (codes, weights)."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A database after the epoch `epoch`. symbols: by their codes, None for one that is forgotten. facts: for each
    relation that holds some (codes int64[n, arity], weights int64[n]); they may be read when asked for, or `InParts`,
    and so may the symbols, by slices.

    counts: the numbers of tuples and of facts of each relation that has any. incarnation: of the database. versions:
    names of what the snapshot holds of each relation; equal names mean equal contents.
    """

    epoch: int
    symbols: Sequence[str | None]
    facts: Mapping[str, tuple[Codes, Codes]]
    schemas: Mapping[str, Schema]
    rules: Sequence[RuleInfo]
    declarations: str
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    incarnation: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
