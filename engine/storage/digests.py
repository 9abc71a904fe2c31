"""Digests of relations: what a relation holds as one number of 128 bits, kept up to date by each epoch's change.

The digest of a relation is the sum, modulo 2**128, of a hash for each of its rows. A row is the relation's name, the
values, the asserted weight, and whether a rule derives it and whether it is hidden. A symbol counts with its text, not
with its code. A height does not count: rows that a version without heights has published do not tell theirs. So two
digests are equal where the contents are: on every placement, in whatever order tuples came and symbols were interned,
and after a restore elsewhere; a change adds the rows that came and subtracts those that went. The digest of an epoch is
the sum of those of its relations and of a hash of its program.

Costs: a change costs in proportion to its tuples. The hash of a symbol's text is computed once, when a tuple with it
changes first; then 16 bytes are kept for it. Of the symbols from before this process, a whole chunk of the snapshot is
read at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest, xxh3_128_intdigest

from engine.data.codes import Codes
from engine.database.epoch import RuleInfo
from engine.errors import CorruptSnapshotError
from engine.language.schema import ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.resident import rowhash
from engine.storage.manifest import SymbolChunk, decode_symbols
from engine.storage.rows import Rows

MODULUS = 1 << 128
_LOW = (1 << 64) - 1
_KINDS: dict[ColumnType | None, int] = {
    ColumnType.SYMBOL: rowhash.SYMBOL,
    ColumnType.NUMBER: 2,
    ColumnType.FLOAT: 3,
    ColumnType.BOOL: 4,
    None: 5,
}
_PAGE = 1 << 16
_FEW_CHUNKS = 64
"""Chunks of symbols, of some MiB each at most, that `FewHashes` keeps."""
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_NO_FLAGS: Flags = np.empty(0, np.bool_)
_NOTHING = np.empty(0, np.int8), np.empty(0, np.int64), _NO_FLAGS


class Objects(Protocol):
    """Where the chunks of symbols come from."""

    def get(self, names: Sequence[str], /) -> list[bytes]: ...


class Texts(Protocol):
    """Where the hashes of symbols come from."""

    def of_rows(
        self, codes: Codes, columns: Sequence[int], chunks: Sequence[SymbolChunk], /
    ) -> tuple[Codes, Hashes]: ...


class SymbolHashes:
    """The hashes of the symbols' texts by code, uint64[codes, 2], computed when they are first needed."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._hashes: Hashes = np.zeros((_PAGE, 2), np.uint64)
        self._known = np.zeros(_PAGE, np.bool_)

    def add(self, first: int, texts: Sequence[str | None]) -> None:
        """Note the texts of the codes from `first` on."""
        if not texts:
            return
        self._hold(first + len(texts))
        data = b"".join([xxh3_128_digest((text or "").encode()) for text in texts])
        self._hashes[first : first + len(texts)] = np.frombuffer(data, "<u8").reshape(-1, 2)
        self._known[first : first + len(texts)] = True
        if None in texts:
            self._known[[first + i for i, text in enumerate(texts) if text is None]] = False

    def of(self, codes: Iterable[npt.NDArray[np.int64]], chunks: Sequence[SymbolChunk]) -> Hashes:
        """The array, in which the hashes of these codes are known. chunks: of the snapshot, which has their texts.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
            CorruptSnapshotError: a chunk is missing or damaged, or does not have a text.
        """
        for column in codes:
            if not len(column):
                continue
            if int(column.min()) < 0:
                raise CorruptSnapshotError("a tuple has a code that is not one of a symbol")
            self._hold(int(column.max()) + 1)
            if not self._known[column].all():
                self._read(np.unique(column[~self._known[column]]), chunks)
        return self._hashes

    def of_rows(
        self, codes: Codes, columns: Sequence[int], chunks: Sequence[SymbolChunk]
    ) -> tuple[Codes, Hashes]:
        """The rows, and the array in which the hashes of the symbols in these columns are found by their codes."""
        return codes, self.of([codes[:, i] for i in columns], chunks)

    def _read(self, missing: npt.NDArray[np.int64], chunks: Sequence[SymbolChunk]) -> None:
        for chunk in chunks:
            low, high = np.searchsorted(missing, [chunk.first, chunk.first + chunk.count])
            if low < high:
                self.add(chunk.first, decode_symbols(self._objects.get([chunk.id])[0]))
        unknown = missing[~self._known[missing]]
        if len(unknown):
            raise CorruptSnapshotError(
                f"a tuple has the symbol {int(unknown[0])}, whose text is not in the snapshot"
            )

    def _hold(self, size: int) -> None:
        """Make room. What is not known yet is not copied, so that its memory is not touched."""
        if size <= len(self._known):
            return
        pages = -(-max(size, len(self._known) * 3 // 2) // _PAGE)
        hashes, known = np.zeros((pages * _PAGE, 2), np.uint64), np.zeros(pages * _PAGE, np.bool_)
        for page in np.flatnonzero(self._known.reshape(-1, _PAGE).any(axis=1)).tolist():
            part = slice(page * _PAGE, (page + 1) * _PAGE)
            hashes[part], known[part] = self._hashes[part], self._known[part]
        self._hashes, self._known = hashes, known


@dataclass(frozen=True, slots=True)
class _Form:
    """What a relation's rows begin with: a seed of its name, the marks of its columns, and which are of symbols."""

    schema: Schema
    seed: Hashes
    kinds: npt.NDArray[np.uint8]
    symbols: tuple[int, ...]


class FewHashes:
    """The hashes of the symbols of some rows at a time, from chunks of the snapshot of which only some are kept: for a
    process that sees a part of a relation and must stay small."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._kept: OrderedDict[str, tuple[Hashes, Flags]] = OrderedDict()

    def of_rows(
        self, codes: Codes, columns: Sequence[int], chunks: Sequence[SymbolChunk]
    ) -> tuple[Codes, Hashes]:
        """The rows with other numbers for their symbols, and the array in which their hashes are found by these.

        Raises:
            as `SymbolHashes.of` does.
        """
        if not columns or not len(codes):
            return codes, np.empty((0, 2), np.uint64)
        used = np.unique(codes[:, list(columns)])
        hashes, known = np.zeros((len(used), 2), np.uint64), np.zeros(len(used), np.bool_)
        for chunk in chunks:
            low, high = np.searchsorted(used, [chunk.first, chunk.first + chunk.count])
            if low < high:
                of_chunk, there = self._of(chunk)
                places = used[low:high] - chunk.first
                hashes[low:high], known[low:high] = of_chunk[places], there[places]
        if not known.all():
            raise CorruptSnapshotError(
                f"a tuple has the symbol {int(used[~known][0])}, whose text is not in the snapshot"
            )
        renamed = codes.copy()
        for i in columns:
            renamed[:, i] = np.searchsorted(used, codes[:, i])
        return renamed, hashes

    def _of(self, chunk: SymbolChunk) -> tuple[Hashes, Flags]:
        found = self._kept.get(chunk.id)
        if found is None:
            texts = decode_symbols(self._objects.get([chunk.id])[0])
            texts += [None] * (chunk.count - len(texts))
            data = b"".join([xxh3_128_digest((text or "").encode()) for text in texts])
            hashes = np.frombuffer(data, "<u8").reshape(-1, 2).astype(np.uint64)
            found = hashes, np.array([text is not None for text in texts], np.bool_)
            if len(self._kept) >= _FEW_CHUNKS:
                self._kept.popitem(last=False)
            self._kept[chunk.id] = found
        self._kept.move_to_end(chunk.id)
        return found


class Digester:
    """Computes digests; it keeps the hashes of symbols. `chunks`, in each call: the symbols of the snapshot. texts:
    where the hashes come from instead."""

    def __init__(self, objects: Objects, texts: Texts | None = None) -> None:
        self.symbols = SymbolHashes(objects)
        self._texts = texts or self.symbols
        self._forms: dict[str, _Form] = {}

    def changed(
        self, digest: int, schema: Schema, change: RelationChange, chunks: Sequence[SymbolChunk]
    ) -> int:
        """The digest of a relation after a change. schema: of the changed tuples.

        Raises:
            as `SymbolHashes.of` does.
        """
        hidden = _NO_FLAGS if change.hidden is None else change.hidden
        now = change.asserted, change.derived, hidden
        was = change.present, change.was_asserted, change.was_derived
        return self._sum(digest, schema, change.codes, now, was, chunks)

    def of_rows(self, schema: Schema, rows: Rows, chunks: Sequence[SymbolChunk]) -> int:
        """The digest of these rows; those of several parts of a relation sum up to the relation's.

        Raises:
            as `SymbolHashes.of` does.
        """
        now = rows.asserted, rows.derived, rows.hidden
        return self._sum(0, schema, rows.codes, now, _NOTHING, chunks)

    def _sum(
        self,
        digest: int,
        schema: Schema,
        codes: npt.NDArray[np.int64],
        now: tuple[npt.NDArray[np.int64], Flags, Flags],
        was: tuple[npt.NDArray[np.int8], npt.NDArray[np.int64], Flags],
        chunks: Sequence[SymbolChunk],
    ) -> int:
        form = self._form(schema)
        codes, texts = self._texts.of_rows(codes, form.symbols, chunks)
        total = np.array([digest & _LOW, digest >> 64], np.uint64)
        rowhash.sum_rows(codes, form.kinds, texts, form.seed, *now, *was, total)
        return int(total[0]) | int(total[1]) << 64

    def _form(self, schema: Schema) -> _Form:
        form = self._forms.get(schema.relation)
        if form is None or form.schema is not schema:
            seed = np.frombuffer(xxh3_128_digest(f"zedlog relation {schema.relation}".encode()), "<u8")
            kinds = np.array([_KINDS[column.type] for column in schema.columns], np.uint8)
            symbols = tuple(np.flatnonzero(kinds == rowhash.SYMBOL).tolist())
            form = self._forms[schema.relation] = _Form(schema, seed.astype(np.uint64), kinds, symbols)
        return form


def program_digest(rules: Sequence[RuleInfo], declarations: str) -> int:
    """Of the rules with their weights, in whatever order they were added, and of the declarations."""
    lines = sorted(f"{rule.weight} {rule.canonical}" for rule in rules)
    return xxh3_128_intdigest("\n".join(["zedlog program", *lines, declarations]).encode())


def epoch_digest(program: int, relations: Iterable[int]) -> int:
    """Of a whole epoch: each row's hash has its relation's name in it, so the sum loses nothing."""
    return (program + sum(relations)) % MODULUS
