"""One published epoch, as readers see it.

A snapshot is pinned when it is made: it reads the same state whatever is published later, so pages fit together and
several reads see one state. It can be read as long as its epoch is retained; after that, a read that needs a removed
block raises EpochNotRetainedError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.data.sources import is_hidden
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple, Value, decode_column, encode_value, fitted
from engine.database.epoch import RuleInfo, changed_name, replaced
from engine.errors import (
    CorruptSnapshotError,
    EpochNotRetainedError,
    InvalidCursorError,
    InvalidRequestError,
    InvalidValueError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownRelationError,
    shown,
)
from engine.language.parser import parse_prefixes
from engine.language.prefixes import Prefixes, is_prefix
from engine.language.schema import Column, ColumnType, Schema
from engine.storage.blocks import Present
from engine.storage.compaction import EMPTY
from engine.storage.indexes import Indexes
from engine.storage.lookup import at_most, everything, page
from engine.storage.manifest import Manifest, RelationEntry, StoredProgram, TupleCounts, in_hex
from engine.storage.packed import Part, Wanted
from engine.storage.reader import ObjectReader, Texts
from engine.storage.rows import Rows, concatenate
from engine.storage.scan import matching, scan
from engine.storage.snapshot_symbols import SnapshotSymbols
from engine.storage.token import format_token

__all__ = ["ChangedRows", "Domain", "Page", "Position", "Snapshot", "TupleCounts"]

Domain = Literal["all", "asserted", "derived"]

# The codes of a page's last tuple: where the next page goes on. Integers, one for each column: JSON-ready.
Position = tuple[int, ...]

# Rows that one step of a whole read takes: some milliseconds of work.
_SCAN_ROWS = 65_536
# Symbols that one step looks up, and blocks of a change that one step decodes.
_TEXTS_AT_ONCE, _BLOCKS_AT_ONCE = 16_384, 16
# When an index gives more than this share of a relation for several codes, the relation is scanned instead.
_LOOKED_UP = 0.25


@dataclass(frozen=True, slots=True)
class Page:
    """Tuples in the order of their codes; `weights[i]` is the fact's weight (0: not asserted), `derived[i]`
    whether a rule derives it. `next` is None on the last page."""

    tuples: list[Tuple]
    weights: list[int]
    derived: list[bool]
    next: Position | None


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Some of the tuples that an epoch changed in a relation, each once. codes: int64[n, arity]. signs: int8[n], +1
    appeared, -1 went. schema: whose columns they have, which for what went may be an older one."""

    schema: Schema
    codes: Codes
    signs: npt.NDArray[np.int8]


class Snapshot:
    """One epoch, pinned. Made by `DatabaseClient.snapshot`; immutable, for any number of tasks."""

    def __init__(
        self, manifest: Manifest, program: StoredProgram, reader: ObjectReader, indexes: Indexes
    ) -> None:
        self._manifest = manifest
        self._reader = reader
        self._indexes = indexes
        self.epoch: int = manifest.epoch
        self.time: float = manifest.time
        self.token: str = format_token(manifest.epoch, manifest.incarnation)
        self.rules: tuple[RuleInfo, ...] = program.rules
        self.declarations: str = program.declarations
        self.away = manifest.away
        self._program = program
        # What people may be shown; hidden collections are read through `with_hidden`.
        self.schemas: dict[str, Schema] = program.schemas
        if any(map(is_hidden, program.schemas)):
            self.schemas = {name: s for name, s in program.schemas.items() if not is_hidden(name)}

    @classmethod
    async def load(cls, data: bytes, reader: ObjectReader, indexes: Indexes) -> Snapshot:
        """From the bytes of an epoch's manifest."""
        manifest = Manifest.decode(data)
        return cls(manifest, await reader.program(manifest.program_id), reader, indexes)

    @cached_property
    def prefixes(self) -> Prefixes:
        """The declared prefixes: IRIs by their names."""
        # Declarations are kept one a line, and there may be many.
        return parse_prefixes("\n".join(filter(is_prefix, self.declarations.splitlines())))

    @property
    def hidden(self) -> list[str]:
        """The hidden collections (engine/data/sources.py) of this epoch."""
        return sorted(filter(is_hidden, self._manifest.relations))

    def with_hidden(self) -> Snapshot:
        """The same, where hidden collections can be read as if they were relations."""
        snapshot = Snapshot(self._manifest, self._program, self._reader, self._indexes)
        snapshot.schemas = self._program.schemas
        return snapshot

    @property
    def oldest(self) -> int:
        """The oldest epoch that was kept when this one was published."""
        return self._manifest.oldest

    def counts(self, relation: str) -> TupleCounts:
        """The counts of a relation in `schemas`. Raises UnknownRelationError."""
        self._schema(relation)
        entry = self._manifest.relations.get(relation)
        return entry.counts if entry else EMPTY

    def digest(self, relation: str) -> str | None:
        """The digest of a relation in `schemas`; None if the epoch was published by a version without digests.
        Raises UnknownRelationError.
        """
        self._schema(relation)
        entry = self._manifest.relations.get(relation)
        return in_hex(entry.digest if entry else 0)

    async def facts(
        self,
        relation: str,
        bound: Mapping[int, Value] | None = None,
        domain: Domain = "all",
        limit: int = 1000,
        after: Position | None = None,
    ) -> Page:
        """Up to `limit` tuples whose columns have the `bound` values, after the position of an earlier page.

        Raises:
            UnknownRelationError, UnknownColumnError: no such relation, or column number, at this epoch.
            TypeMismatchError, InvalidValueError: a bound value is not of its column's type, or not a value of the
            language. InvalidCursorError: `after` does not fit the relation. EpochNotRetainedError: the epoch's snapshot
            has been removed meanwhile. StorageUnavailableError: Redis cannot be reached.
        """
        schema = self._schema(relation)
        _check_page(schema, domain, limit, after)
        entry = self._manifest.relations.get(relation)
        try:
            wanted = await self._wanted(schema, bound or {}, {})
            if wanted is None or entry is None:
                return Page([], [], [], None)
            parts = await self._indexes.parts(self._manifest, relation, wanted)
            rows, more = await self._page(entry, parts, wanted, domain, limit, after)
            tuples = await self._decode(rows.codes, schema)
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error
        last = rows.key(len(rows) - 1) if more else None
        return Page(tuples, rows.asserted.tolist(), rows.derived.tolist(), last)

    async def codes(
        self,
        relation: str,
        bound: Mapping[int, Value] | None = None,
        most: int | None = None,
        among: Mapping[int, Codes] | None = None,
    ) -> Codes:
        """All tuples whose columns have the `bound` values, as codes, int64[n, arity].

        most: this many are enough; a few more may come. among: for columns the codes of which they must have one,
        ascending and distinct. Reads block by block, and lets other tasks run in between; with `among`, it waits for an
        index of a large relation.

        Raises:
            as `facts` does.
        """
        return (await self.rows(relation, bound, "all", most, among)).codes

    async def rows(
        self,
        relation: str,
        bound: Mapping[int, Value] | None = None,
        domain: Domain = "all",
        most: int | None = None,
        among: Mapping[int, Codes] | None = None,
    ) -> Rows:
        """The same with weights, for any domain."""
        schema = self._schema(relation)
        entry = self._manifest.relations.get(relation)
        parts: list[Rows] = []
        try:
            wanted = await self._wanted(schema, bound or {}, among or {})
            if wanted is None or entry is None:
                return concatenate(parts, schema.arity)
            found = await self._indexes.parts(self._manifest, relation, wanted, wait=bool(among))
            if found is not None and any(len(codes) > 1 for codes in wanted.values()):
                count = await self._at_most(found, wanted)
                if count <= max(_SCAN_ROWS, entry.counts.all * _LOOKED_UP):
                    if count + _codes_in(wanted) <= _SCAN_ROWS:
                        return everything(found, schema.arity, wanted, domain)
                    return await asyncio.to_thread(everything, found, schema.arity, wanted, domain)
                found = None
            after: Position | None = None
            count, more = 0, True
            while more and (most is None or count < most):
                rows, more = await self._page(entry, found, wanted, domain, _SCAN_ROWS, after)
                parts.append(rows)
                count += len(rows)
                after = rows.key(len(rows) - 1) if more else None
                await asyncio.sleep(0)
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error
        return concatenate(parts, schema.arity)

    async def estimate(
        self,
        relation: str,
        bound: Mapping[int, Value] | None = None,
        among: Mapping[int, Codes] | None = None,
    ) -> int:
        """No more tuples than these are what `codes` would read; close, if the relation has an index that helps.

        Raises:
            as `facts` does.
        """
        schema = self._schema(relation)
        entry = self._manifest.relations.get(relation)
        try:
            wanted = await self._wanted(schema, bound or {}, among or {})
            if wanted is None or entry is None:
                return 0
            if not wanted:
                return entry.counts.all
            found = await self._indexes.present(self._manifest, relation)
            if found is not None:
                return min(entry.counts.all, await self._at_most(found, wanted))
            segments = (await self._reader.relation(entry.id)).segments
            _, rows = matching(await self._reader.indexes(segments), wanted)
            return min(entry.counts.all, rows)
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error

    async def symbols(self, constants: Iterable[str], *, complete: bool) -> SnapshotSymbols:
        """A symbol table for an evaluation over this snapshot, which knows `constants` and, with `complete`, every
        symbol of the database. New symbols are interned after them.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        count, chunks = self._manifest.symbol_count, self._manifest.symbols
        try:
            if complete:
                texts = await self._reader.texts(chunks)
                pairs = [(chunk.first, known) for chunk, known in zip(chunks, texts, strict=True)]
                return SnapshotSymbols(count, {}, pairs)
            found = {text: await self._symbol_code(text) for text in constants}
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error
        return SnapshotSymbols(count, {text: code for text, code in found.items() if code is not None})

    async def decode(self, codes: Codes, columns: Sequence[Column], new: Sequence[str] = ()) -> list[Tuple]:
        """The tuples that codes stand for; `new` are the symbols after those of the snapshot.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        try:
            return await self._decode(codes, Schema("", tuple(columns)), new)
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error

    @property
    def symbol_count(self) -> int:
        """How many symbols the database has; codes of symbols are smaller."""
        return self._manifest.symbol_count

    @property
    def changed(self) -> tuple[str, ...]:
        """The relations that this epoch changed."""
        return tuple(sorted({changed_name(key) for key in self._manifest.changes if not is_hidden(key)}))

    async def changes(self, relation: str) -> list[tuple[Tuple, int]]:
        """The tuples of a relation that this epoch made appear (+1) or go (-1), in the order of their codes.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        changed: list[tuple[Tuple, int]] = []
        async for rows in self.changed_rows(relation):
            tuples = await self.decode(rows.codes, rows.schema.columns)
            changed += zip(tuples, rows.signs.tolist(), strict=True)
        return changed

    def changed_count(self, relation: str) -> int:
        """No fewer tuples than this epoch made appear or go in a relation."""
        found = (self._manifest.changes.get(key) for key in (replaced(relation), relation))
        return sum(segment.rows for segment in found if segment is not None)

    async def changed_rows(self, relation: str) -> AsyncIterator[ChangedRows]:
        """The same as codes, in parts: first what the relation held with other types, if the epoch replaced it.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        async for schema, rows, present in self._changed(relation, {}):
            seen = present != 0
            yield ChangedRows(schema, rows.codes[seen], present[seen])

    async def changes_of(
        self, relation: str, bound: Mapping[int, Value]
    ) -> list[tuple[Tuple, int, int, bool]]:
        """The tuples of a relation that this epoch changed and whose columns have the `bound` values: +1 where it made
        them appear, -1 where it made them go, otherwise 0; and the asserted weight, and whether a rule derives them,
        after it. Of the blocks, only those that may have such tuples are read.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        return await self._changes_among(relation, {place: (value,) for place, value in bound.items()})

    async def changes_among(
        self, relation: str, tuples: Collection[Tuple]
    ) -> list[tuple[Tuple, int, int, bool]]:
        """The same of these tuples, which are of one length. Costs a look-up for each of their symbols."""
        columns = dict(enumerate(map(set, zip(*tuples, strict=True))))
        return [change for change in await self._changes_among(relation, columns) if change[0] in tuples]

    async def _changes_among(
        self, relation: str, columns: Mapping[int, Collection[Value]]
    ) -> list[tuple[Tuple, int, int, bool]]:
        changed: list[tuple[Tuple, int, int, bool]] = []
        async for schema, rows, present in self._changed(relation, columns):
            about = present.tolist(), rows.asserted.tolist(), rows.derived.tolist()
            changed += zip(await self.decode(rows.codes, schema.columns), *about, strict=True)
        return changed

    async def _changed(
        self, relation: str, columns: Mapping[int, Collection[Value]]
    ) -> AsyncIterator[tuple[Schema, Rows, Present]]:
        for key in (replaced(relation), relation):
            segment = self._manifest.changes.get(key)
            schema = self._manifest.changed_schemas.get(key) or self.schemas.get(key)
            if segment is None or schema is None:
                continue
            try:
                wanted = await self._comparable(schema, columns)
                if wanted is None:
                    continue
                async for rows, present in self._reader.changes(segment, wanted, _BLOCKS_AT_ONCE):
                    if present is None:
                        raise CorruptSnapshotError(
                            f"the change of {changed_name(key)} in epoch {self.epoch} is incomplete"
                        )
                    seen = np.ones(len(rows), np.bool_)
                    for column, codes in wanted.items():
                        seen &= np.isin(rows.codes[:, column], codes)
                    yield schema, rows.where(seen), present[seen]
            except CorruptSnapshotError as error:
                raise await self._removed_or(error) from error

    async def code(self, schema: Schema, position: int, value: Value) -> int | None:
        """The code of a value of a column; None if it is a symbol that no tuple has.

        Raises:
            as `facts` does for a bound value.
        """
        try:
            wanted = await self._wanted(schema, {position: value}, {})
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error
        return None if wanted is None else int(wanted[position][0])

    async def texts(self, codes: Codes) -> list[str]:
        """The strings of symbol codes; other tasks run in between.

        Raises:
            EpochNotRetainedError, StorageUnavailableError: as for `facts`.
        """
        found: list[str] = []
        try:
            for start in range(0, len(codes), _TEXTS_AT_ONCE):
                found += await self._texts(codes[start : start + _TEXTS_AT_ONCE], ())
                await asyncio.sleep(0)
        except CorruptSnapshotError as error:
            raise await self._removed_or(error) from error
        return found

    async def _comparable(
        self, schema: Schema, columns: Mapping[int, Collection[Value]]
    ) -> dict[int, Codes] | None:
        """The codes of these values of columns; None if no tuple can have them, also because the relation had other
        columns in this epoch, or columns of other types."""
        comparable: dict[int, Codes] = {}
        for place, values in columns.items():
            found: set[int] = set()
            for value in values:
                with suppress(TypeMismatchError, UnknownColumnError):
                    wanted = await self._wanted(schema, {place: value}, {})
                    if wanted is not None:
                        found.add(int(wanted[place][0]))
            if not found:
                return None
            comparable[place] = np.array(sorted(found), np.int64)
        return comparable

    def _schema(self, relation: str) -> Schema:
        schema = self.schemas.get(relation)
        if schema is None:
            raise UnknownRelationError(f"there is no relation {shown(relation)}", relation=relation)
        return schema

    async def _removed_or(self, error: CorruptSnapshotError) -> CorruptSnapshotError | EpochNotRetainedError:
        """The error for a missing object: either the epoch has been removed, or the snapshot is damaged."""
        if await self._reader.manifest_bytes(self.epoch) is not None:
            return error
        return EpochNotRetainedError(f"epoch {self.epoch} is no longer kept", epoch=self.epoch)

    async def _page(
        self,
        entry: RelationEntry,
        parts: Sequence[Part] | None,
        wanted: Wanted,
        domain: Domain,
        limit: int,
        after: Position | None,
    ) -> tuple[Rows, bool]:
        """A page through the parts of an index or, without them, by a scan."""
        stored = await self._reader.relation(entry.id)
        if parts is None:
            return await scan(self._reader, stored, wanted, domain, limit, after)
        return await page(parts, stored.arity, wanted, domain, limit, after)

    async def _at_most(self, parts: Sequence[Part], wanted: Wanted) -> int:
        if _codes_in(wanted) <= _SCAN_ROWS // 16:
            return at_most(parts, wanted)
        return await asyncio.to_thread(at_most, parts, wanted)

    async def _wanted(
        self, schema: Schema, bound: Mapping[int, Value], among: Mapping[int, Codes]
    ) -> dict[int, Codes] | None:
        """The codes that columns must have, of bound values and `among`; None if no tuple can have them, because a
        symbol is unknown, say."""
        wanted = dict(among)
        for position, value in bound.items():
            value = _check_bound(schema, position, value)
            code = (
                await self._symbol_code(value)
                if isinstance(value, str)
                else encode_value(value, SymbolTable())
            )
            if code is None or (position in among and code not in among[position]):
                return None
            wanted[position] = np.array([code], np.int64)
        return wanted if all(map(len, wanted.values())) else None

    async def _symbol_code(self, text: str) -> int | None:
        chunks = self._manifest.symbols
        for chunk, texts in zip(chunks, await self._reader.texts(chunks), strict=True):
            place = texts.place(text)
            if place is not None:
                return chunk.first + place
        return None

    async def _decode(self, codes: Codes, schema: Schema, new: Sequence[str] = ()) -> list[Tuple]:
        if not schema.columns:
            return [()] * len(codes)
        columns: list[list[Any]] = []
        for i, column in enumerate(schema.columns):
            if column.type is ColumnType.SYMBOL:
                columns.append(await self._texts(codes[:, i], new))
            else:
                columns.append(decode_column(codes[:, i], column.type, SymbolTable()))
        return list(zip(*columns, strict=True))

    async def _texts(self, codes: Codes, new: Sequence[str]) -> list[str]:
        """The strings of symbol codes; only the chunks that have them are read."""
        count = self._manifest.symbol_count
        if len(codes) and not (codes.min() >= 0 and codes.max() < count + len(new)):
            raise CorruptSnapshotError("a tuple of the snapshot has a symbol that is not there")
        firsts = np.array([chunk.first for chunk in self._manifest.symbols], np.int64)
        home = np.searchsorted(firsts, codes, side="right") - 1
        home[codes >= count] = -1
        needed = [number for number in np.unique(home).tolist() if number >= 0]
        chunks = [self._manifest.symbols[i] for i in needed]
        sources = [(-1, count, Texts(list(new)))] if new else []
        for number, chunk, known in zip(needed, chunks, await self._reader.texts(chunks), strict=True):
            sources.append((number, chunk.first, known))
        texts = [""] * len(codes)
        for number, first, known in sources:
            rows = np.flatnonzero(home == number)
            for row, text in zip(rows.tolist(), known.at(codes[rows] - first), strict=True):
                texts[row] = text
        return texts


def _codes_in(wanted: Wanted) -> int:
    return sum(map(len, wanted.values()))


def _check_page(schema: Schema, domain: str, limit: int, after: Position | None) -> None:
    if domain not in get_args(Domain):
        raise InvalidRequestError(f"the domain must be all, asserted or derived, not {shown(domain)}")
    if limit < 1:
        raise InvalidRequestError(f"the limit must be at least 1, not {limit}")
    if after is not None and not (
        len(after) == schema.arity and all(type(code) is int and -(2**63) <= code < 2**63 for code in after)
    ):
        raise InvalidCursorError(f"the position does not fit the relation {schema}")


def _check_bound(schema: Schema, position: int, value: Value) -> Value:
    if not 0 <= position < schema.arity:
        raise UnknownColumnError(f"{schema} has no column {position}", relation=schema.relation)
    value = fitted(value, schema, position)
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise InvalidValueError(f"the number {shown(value)} does not fit into 64 bits")
    return value
