"""Recovery: reads from the snapshot what an engine needs to continue after the last publication.

In: the publisher, which has the newest manifest. Out: the state of its epoch. Derived tuples are not read: they are
computed again, which also checks that they follow from the facts. Costs one read of the blocks of every relation that
has facts.
"""

from __future__ import annotations

import numpy as np

from engine.data.codes import Codes
from engine.database.saved import SavedState
from engine.storage.compaction import read_relation
from engine.storage.manifest import StoredProgram, decode_symbols
from engine.storage.publisher import Publisher


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
    facts: dict[str, tuple[Codes, Codes]] = {}
    for name, entry in manifest.relations.items():
        if entry.counts.asserted:
            rows = read_relation(store.relation(entry.id), store)
            asserted = rows.asserted != 0
            facts[name] = np.ascontiguousarray(rows.codes[asserted]), rows.asserted[asserted]
    return SavedState(
        epoch=manifest.epoch,
        symbols=symbols,
        facts=facts,
        schemas=program.schemas,
        rules=program.rules,
        declarations=program.declarations,
    )
