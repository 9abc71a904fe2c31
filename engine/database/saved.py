"""All that a reasoner needs to go on in another process; derived relations are computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.data.codes import Codes
from engine.database.epoch import RuleInfo
from engine.language.schema import Schema


@dataclass(frozen=True, slots=True)
class SavedState:
    """A database after the epoch `epoch`. symbols: by their codes, None for one that is forgotten. facts: for each
    relation that holds some (codes int64[n, arity], weights int64[n])."""

    epoch: int
    symbols: Sequence[str | None]
    facts: Mapping[str, tuple[Codes, Codes]]
    schemas: Mapping[str, Schema]
    rules: Sequence[RuleInfo]
    declarations: str
