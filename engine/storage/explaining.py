"""A snapshot as a source of explanations (engine/explain/source.py): any retained epoch, without the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple
from engine.database.epoch import RuleInfo
from engine.explain.source import Held
from engine.language.schema import Column, Schema
from engine.storage.rows import Rows, concatenate
from engine.storage.snapshot import Snapshot
from engine.storage.snapshot_symbols import SnapshotSymbols

_KNOWN: WeakKeyDictionary[Snapshot, dict[str, int | None]] = WeakKeyDictionary()
"""The codes of the constants that explanations of a snapshot have looked up: its rules name the same ones again and
again, and each look-up goes through all chunks of symbols."""


class SnapshotSource:
    """See the module. Costs what reads of the snapshot cost; a large relation is read through its index."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.rules: Sequence[RuleInfo] = snapshot.rules
        self.schemas: Mapping[str, Schema] = snapshot.schemas
        self.symbol_count = snapshot.symbol_count

    async def held(self, relation: str, among: Mapping[int, Codes], *, hidden: bool) -> Held:
        rows = await self._snapshot.rows(relation, {}, "all", None, among)
        if hidden:
            facts = await self._snapshot.rows(relation, {}, "asserted", None, among)
            rows = concatenate([rows, facts.where(facts.hidden)], rows.arity)
        return _held(rows)

    def count(self, relation: str) -> int:
        return self._snapshot.counts(relation).all

    def facts(self, relation: str) -> int:
        return self._snapshot.counts(relation).asserted

    async def symbols(self, constants: Sequence[str], *, complete: bool) -> SymbolTable:
        if complete:
            return await self._snapshot.symbols((), complete=True)
        known = _KNOWN.setdefault(self._snapshot, {})
        new = [text for text in constants if text not in known]
        if new:
            table = await self._snapshot.symbols(new, complete=False)
            known.update((text, table.find(text)) for text in new)
        codes = ((text, known[text]) for text in constants)
        return SnapshotSymbols(self.symbol_count, {text: code for text, code in codes if code is not None})

    async def decode(self, codes: Codes, columns: Sequence[Column], new: Sequence[str]) -> list[Tuple]:
        return await self._snapshot.decode(codes, columns, new)


def _held(rows: Rows) -> Held:
    return Held(rows.codes, rows.asserted, rows.derived, rows.hidden, rows.heights)
