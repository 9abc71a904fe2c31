"""Recovery: what an engine needs to go on where the last publication stopped, read from the snapshot.

In: the publisher, which has the newest manifest. Out: the facts with their weights, rules, schemas,
declarations and symbols of that epoch, and the id of the last log entry that went into it. Derived tuples are
not read: they are computed again, which also checks that they follow from the facts. Costs one read of the
blocks of every relation that has facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.database.epoch import RuleInfo
from engine.language.schema import Schema
from engine.storage.compaction import read_relation
from engine.storage.manifest import Program, decode_symbols
from engine.storage.publisher import Publisher

Facts = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """`facts[r]` is (codes int64[n, arity], weights int64[n])."""

    epoch: int
    last_transaction_id: str
    symbols: Sequence[str | None]
    facts: Mapping[str, Facts]
    schemas: Mapping[str, Schema]
    rules: Sequence[RuleInfo]
    declarations: str


def read_state(publisher: Publisher) -> RecoveredState:
    """The state of the newest epoch.

    Raises:
        StorageUnavailableError: Redis cannot be reached.
        CorruptSnapshotError: a part is missing or damaged.
    """
    manifest, store = publisher.manifest, publisher.store
    program = Program.decode(store.get([manifest.program_id])[0])
    symbols: list[str | None] = [None] * manifest.symbol_count
    for chunk, data in zip(
        manifest.symbols, store.get([chunk.id for chunk in manifest.symbols]), strict=True
    ):
        texts = decode_symbols(data)
        symbols[chunk.first : chunk.first + len(texts)] = texts
    facts: dict[str, Facts] = {}
    for name, entry in manifest.relations.items():
        if entry.counts.asserted:
            rows = read_relation(store.relation(entry.id), store)
            asserted = rows.asserted != 0
            facts[name] = np.ascontiguousarray(rows.codes[asserted]), rows.asserted[asserted]
    return RecoveredState(
        epoch=manifest.epoch,
        last_transaction_id=publisher.head.last_id,
        symbols=symbols,
        facts=facts,
        schemas=program.schemas,
        rules=program.rules,
        declarations=program.declarations,
    )
