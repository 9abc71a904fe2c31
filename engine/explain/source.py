"""What an explanation reads: one state of a database.

A state is a snapshot of a retained epoch, or a reasoner in this process; both serve through `Source`. Always: a source
answers from one state, whatever happens meanwhile, and in the same order each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple
from engine.database.epoch import RuleInfo
from engine.language.schema import Column, Schema

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Held:
    """Tuples of a relation with their state, each once.

    codes int64[n, arity]. weights int64[n]: of the fact, 0 if it is none. derived bool[n]: a rule derives it. hidden
    bool[n]: a fact that only contributes to a min or max, so that the tuple itself is not there. heights int64[n]:
    inside the tuple's recursive stratum; 0 for facts, outside of recursion, and where unknown.
    """

    codes: Codes
    weights: npt.NDArray[np.int64]
    derived: Mask
    hidden: Mask
    heights: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, kept: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Held:
        """The rows of a mask, or with these numbers."""
        return Held(
            self.codes[kept], self.weights[kept], self.derived[kept], self.hidden[kept], self.heights[kept]
        )


class Source(Protocol):
    """One state. Codes of symbols are those of this state; see the module."""

    rules: Sequence[RuleInfo]
    schemas: Mapping[str, Schema]
    symbol_count: int

    async def held(self, relation: str, among: Mapping[int, Codes], *, hidden: bool) -> Held:
        """The tuples that have in each column of `among` one of its codes, which ascend and are distinct; with `hidden`
        also the facts that only contribute."""

    def count(self, relation: str) -> int:
        """How many tuples the relation has."""

    def facts(self, relation: str) -> int:
        """How many facts it has."""

    async def symbols(self, constants: Sequence[str], *, complete: bool) -> SymbolTable:
        """A table that knows these texts and, with `complete`, those of all symbols; new ones come after them."""

    async def decode(self, codes: Codes, columns: Sequence[Column], new: Sequence[str]) -> list[Tuple]:
        """The tuples that codes stand for; `new` are the symbols after those of the state."""


def narrowed(held: Held, among: Mapping[int, Codes]) -> Held:
    """Those that have in each column one of the codes."""
    for column, codes in among.items():
        values = held.codes[:, column]
        held = held.where(values == codes[0] if len(codes) == 1 else np.isin(values, codes))
    return held
