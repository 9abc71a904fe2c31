"""Recovery: reads from the snapshot what an engine needs to continue after the last publication.

In: the publisher, which has the newest manifest. Out: the state of its epoch. Derived tuples are not read: they come
from a checkpoint (engine/server/checkpoints.py), or are computed again. Facts are read when they are asked for, because
a checkpoint may have them: one read of the blocks of each relation that has facts. A placement that keeps them out of
this process takes facts and symbols in parts, so that only some blocks and chunks are here at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np

from engine.data.codes import Codes
from engine.database.saved import SavedState
from engine.storage.compaction import read_facts, read_parts
from engine.storage.manifest import Manifest, RelationEntry, StoredProgram, decode_symbols
from engine.storage.objects import ObjectStore
from engine.storage.publisher import Publisher
from engine.storage.symbol_chunks import CHUNK_SYMBOLS


class StoredFacts(Mapping[str, tuple[Codes, Codes]]):
    """The facts of a snapshot by relation: (codes, weights). Those of a relation are read when first asked for.

    Raises StorageUnavailableError and CorruptSnapshotError then.
    """

    def __init__(self, entries: Mapping[str, RelationEntry], store: ObjectStore) -> None:
        self._entries = {name: entry for name, entry in entries.items() if entry.counts.asserted}
        self._store = store
        self._read: dict[str, tuple[Codes, Codes]] = {}

    def __getitem__(self, name: str) -> tuple[Codes, Codes]:
        if name not in self._read:
            rows = read_facts(self._store.relation(self._entries[name].id), self._store)
            self._read[name] = np.ascontiguousarray(rows.codes), rows.asserted
        return self._read[name]

    def rows(self, name: str) -> int:
        """How many facts a relation has."""
        return self._entries[name].counts.asserted

    def parts(self, name: str) -> Iterator[tuple[Codes, Codes]]:
        """The facts of a relation in parts, none of which is kept here."""
        for rows in read_parts(self._store.relation(self._entries[name].id), self._store):
            asserted = rows.where(rows.asserted != 0)
            yield np.ascontiguousarray(asserted.codes), asserted.asserted

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class StoredSymbols(Sequence[str | None]):
    """The symbols of a snapshot by their codes, None for one that is forgotten. A slice of one chunk's length reads the
    chunks that it needs and keeps none; whoever asks for more gets all, in one read.

    Raises StorageUnavailableError and CorruptSnapshotError then.
    """

    def __init__(self, manifest: Manifest, store: ObjectStore) -> None:
        self._chunks, self._count, self._store = manifest.symbols, manifest.symbol_count, store
        self._all: list[str | None] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str | None: ...

    @overload
    def __getitem__(self, place: slice) -> list[str | None]: ...

    def __getitem__(self, place: int | slice) -> str | list[str | None] | None:
        if self._all is None and isinstance(place, slice) and place.step is None:
            first, stop, _ = place.indices(self._count)
            if stop - first <= CHUNK_SYMBOLS:
                return self._span(first, max(first, stop))
        if self._all is None:
            self._all = self._span(0, self._count)
        return self._all[place]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self[:])

    def _span(self, first: int, stop: int) -> list[str | None]:
        found: list[str | None] = [None] * (stop - first)
        chunks = [c for c in self._chunks if c.first < stop and first < c.first + c.count]
        for chunk, data in zip(chunks, self._store.get([chunk.id for chunk in chunks]), strict=True):
            texts = decode_symbols(data)
            skipped = max(0, first - chunk.first)
            part = texts[skipped : stop - chunk.first]
            start = chunk.first + skipped - first
            found[start : start + len(part)] = part
        return found


def read_state(publisher: Publisher) -> SavedState:
    """The state of the newest epoch.

    Raises:
        StorageUnavailableError: Redis cannot be reached.
        CorruptSnapshotError: a part is missing or damaged.
    """
    manifest, store = publisher.manifest, publisher.store
    program = StoredProgram.decode(store.get([manifest.program_id])[0])
    return SavedState(
        epoch=manifest.epoch,
        symbols=StoredSymbols(manifest, store),
        facts=StoredFacts(manifest.relations, store),
        schemas=program.schemas,
        rules=program.rules,
        declarations=program.declarations,
        counts={name: (e.counts.all, e.counts.asserted) for name, e in manifest.relations.items()},
        incarnation=publisher.incarnation,
        versions=versions_of(publisher),
    )


def versions_of(publisher: Publisher) -> dict[str, str]:
    """What the newest epoch holds of each relation, as the names of objects: equal names mean equal contents."""
    return {name: entry.id for name, entry in publisher.manifest.relations.items()}
