"""A reasoner in this process as a source of explanations.

Make a new source after each epoch. Costs a pass over each relation that an explanation reads, and one over the whole
state for the heights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from engine.data.arrow import codes_of
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple, decode
from engine.database.epoch import RuleInfo
from engine.database.reasoner import Reasoner
from engine.explain.source import Held, narrowed
from engine.language.schema import Column, Schema

T = TypeVar("T")


class ReasonerSource:
    """See the module."""

    def __init__(self, reasoner: Reasoner) -> None:
        database = reasoner.database
        self._placement, self._program = database.placement, database.program
        self._symbols = SymbolTable(database.symbols.all())
        self._state = database.placement.export_state().relations
        self._relations: dict[str, Held] = {}
        self.rules: Sequence[RuleInfo] = tuple(reasoner.rules())
        self.schemas: Mapping[str, Schema] = dict(database.program.schemas)
        self.symbol_count = len(self._symbols)

    async def held(self, relation: str, among: Mapping[int, Codes], *, hidden: bool) -> Held:
        if relation not in self._relations:
            self._relations[relation] = self._read(relation)
        found = narrowed(self._relations[relation], among)
        return found if hidden or not found.hidden.any() else found.where(~found.hidden)

    def count(self, relation: str) -> int:
        return self._placement.count(self._program.key(relation), "all")

    def facts(self, relation: str) -> int:
        return self._placement.count(self._program.key(relation), "asserted")

    async def symbols(self, constants: Sequence[str], *, complete: bool) -> SymbolTable:
        return SymbolTable(self._symbols.all())

    async def decode(self, codes: Codes, columns: Sequence[Column], new: Sequence[str]) -> list[Tuple]:
        symbols = SymbolTable((*self._symbols.all(), *new)) if new else self._symbols
        return decode(codes, [column.type for column in columns], symbols)

    def _read(self, relation: str) -> Held:
        key, arity = self._program.key(relation), self.schemas[relation].arity
        facts, weights = self._placement.tuples(key, {}, "asserted")
        derived = self._placement.tuples(key, {}, "derived")[0]
        present = self._placement.tuples(key, {}, "all")[0]
        table = self._state[key]
        entries, height = codes_of(table, arity), table["height"].to_numpy()
        entry = table["entry"].to_numpy() != 0
        parts = facts, derived, present, entries[entry]
        codes, place = _numbered(np.concatenate(parts), arity)
        ends = np.cumsum([len(part) for part in parts])
        as_facts, as_derived, as_present, as_entries = np.split(place, ends[:-1])
        held = Held(
            codes,
            np.zeros(len(codes), np.int64),
            np.zeros(len(codes), np.bool_),
            np.ones(len(codes), np.bool_),
            np.zeros(len(codes), np.int64),
        )
        held.weights[as_facts] = weights
        held.derived[as_derived] = True
        held.hidden[as_present] = False
        np.maximum.at(held.heights, as_entries, height[entry].astype(np.int64))
        return held.where((held.weights != 0) | ~held.hidden)


def _numbered(codes: Codes, arity: int) -> tuple[Codes, Codes]:
    """The distinct rows, and the number of each row among them."""
    if not arity:
        return codes[:1], np.zeros(len(codes), np.int64)
    found, place = np.unique(codes, axis=0, return_inverse=True)
    return found, place.ravel()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine over a source in this process, also from within an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
