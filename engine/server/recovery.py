"""Recovery: reads from the snapshot what an engine needs to continue after the last publication.

In: the publisher, which has the newest manifest. Out: the state of its epoch. Derived tuples are not read: they come
from a checkpoint (engine/server/checkpoints.py), or are computed again. Facts are read when they are asked for, because
a checkpoint may have them: one read of the blocks of each relation that has facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from engine.data.codes import Codes
from engine.database.saved import SavedState
from engine.storage.compaction import read_facts
from engine.storage.manifest import RelationEntry, StoredProgram, decode_symbols
from engine.storage.objects import ObjectStore
from engine.storage.publisher import Publisher


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

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def read_state(publisher: Publisher) -> SavedState:
    """The state of the newest epoch.

    Raises:
        StorageUnavailableError: Redis cannot be reached.
        CorruptSnapshotError: a part is missing or damaged.
    """
    manifest, store = publisher.manifest, publisher.store
    program = StoredProgram.decode(store.get([manifest.program_id])[0])
    symbols: list[str | None] = [None] * manifest.symbol_count
    for chunk, data in zip(
        manifest.symbols, store.get([chunk.id for chunk in manifest.symbols]), strict=True
    ):
        texts = decode_symbols(data)
        symbols[chunk.first : chunk.first + len(texts)] = texts
    return SavedState(
        epoch=manifest.epoch,
        symbols=symbols,
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
