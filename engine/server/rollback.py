"""Rollback: what leads from the newest epoch to the state of an older one that is still kept.

In: a transaction that names the epoch, and the publisher, which has the manifests. Out: the transaction with the
difference of facts (those of sources included), rules and declarations as changes, so that it is applied as any other;
what is derived follows. Always: the difference is found when the transaction's turn in the log comes, so whatever was
committed before it is taken back, too.

Equal names of objects mean equal contents, so only the facts of relations whose objects or types differ are read; of
these, the facts of both epochs are in memory at a time, relation by relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.data.arrow import columns, integers, strings
from engine.data.codes import Codes
from engine.data.facts import ARROW_TYPES, TypedFacts
from engine.data.transaction import FactChange, RuleChange, Transaction
from engine.database.staging import types_of
from engine.errors import CorruptSnapshotError
from engine.language.canonical import format_declaration
from engine.language.parser import parse_declarations, parse_prefixes
from engine.language.prefixes import format_prefix
from engine.language.schema import ColumnType, Schema
from engine.storage.compaction import read_facts
from engine.storage.manifest import Manifest, RelationEntry, StoredProgram, decode_symbols
from engine.storage.objects import ObjectStore
from engine.storage.publisher import Publisher
from engine.storage.rows import sort_order

Facts = tuple[Codes, npt.NDArray[np.int64]]


def resolved(transaction: Transaction, publisher: Publisher) -> Transaction:
    """The rollback with all that it changes.

    Raises:
        EpochNotRetainedError: the epoch is in the future, or no longer kept.
        StorageUnavailableError, CorruptSnapshotError.
    """
    assert transaction.rollback is not None
    now, then = publisher.manifest, publisher.retained(transaction.rollback)
    before, after = (_program(manifest, publisher.store) for manifest in (now, then))
    undeclare, declarations = _declarations(before.declarations, after.declarations)
    return replace(
        transaction,
        facts=tuple(_facts(_Epoch(now, before, publisher.store), _Epoch(then, after, publisher.store))),
        rules=tuple(_rules(before, after)),
        declarations=declarations,
        undeclare=undeclare,
        resolved=True,
    )


def _program(manifest: Manifest, store: ObjectStore) -> StoredProgram:
    return StoredProgram.decode(store.get([manifest.program_id])[0])


def _rules(before: StoredProgram, after: StoredProgram) -> Iterator[RuleChange]:
    old, new = ({rule.id: rule for rule in program.rules} for program in (before, after))
    for id_ in dict.fromkeys((*old, *new)):
        weight = (new[id_].weight if id_ in new else 0) - (old[id_].weight if id_ in old else 0)
        if weight:
            yield RuleChange((new.get(id_) or old[id_]).text, weight)


def _declarations(before: str, after: str) -> tuple[tuple[str, ...], str]:
    """The relations and prefixes to undeclare, and the declarations to add."""
    old, new = (_declared(text) for text in (before, after))
    gone = tuple(relation for relation, text in old.items() if new.get(relation) != text)
    return gone, "\n".join(text for relation, text in new.items() if old.get(relation) != text)


def _declared(text: str) -> dict[str, str]:
    prefixes = {f"{label}:": format_prefix(label, iri) for label, iri in parse_prefixes(text).items()}
    relations = {d.relation: format_declaration(d) for d in parse_declarations(text)} if text else {}
    return {**prefixes, **relations}


class _Epoch:
    """The facts of one epoch."""

    def __init__(self, manifest: Manifest, program: StoredProgram, store: ObjectStore) -> None:
        self.entries: Mapping[str, RelationEntry] = manifest.relations
        self._manifest = manifest
        self._schemas = program.schemas
        self._store = store
        self._chunks: dict[str, list[str | None]] = {}

    def types(self, relation: str) -> tuple[ColumnType, ...]:
        """The types of the facts of a relation; as many as it has columns where there are facts."""
        schema: Schema | None = self._schemas.get(relation)
        return types_of(schema) if schema is not None else ()

    def facts(self, relation: str) -> Facts:
        entry = self.entries[relation]
        rows = read_facts(self._store.relation(entry.id), self._store)
        return np.ascontiguousarray(rows.codes), rows.asserted

    def change(self, relation: str, codes: Codes, weights: npt.NDArray[np.int64]) -> FactChange:
        """Codes of this epoch as a change: codes of symbols may have other meanings, or none, in another one."""
        types = self.types(relation)
        if not types:
            return FactChange(relation, [()] * len(codes), weights)
        arrays = [self._array(codes[:, i], kind) for i, kind in enumerate(types)]
        return FactChange(relation, TypedFacts(types, pa.table(arrays, columns(len(types)))), weights)

    def _array(self, codes: npt.NDArray[np.int64], kind: ColumnType) -> pa.Array:
        if kind is ColumnType.SYMBOL:
            return strings(self._texts(codes))
        whole = integers(np.ascontiguousarray(codes))
        if kind is ColumnType.FLOAT:
            # A code has the bits of the float.
            return whole.view(pa.float64())
        return whole.cast(ARROW_TYPES[kind])

    def _texts(self, codes: npt.NDArray[np.int64]) -> list[str]:
        """The strings of codes; only the chunks that have them are read."""
        distinct, places = np.unique(codes, return_inverse=True)
        chunks = self._manifest.symbols
        home = np.searchsorted([chunk.first for chunk in chunks], distinct, side="right") - 1
        texts: list[str] = []
        for code, number in zip(distinct.tolist(), home.tolist(), strict=True):
            chunk = chunks[number]
            if chunk.id not in self._chunks:
                self._chunks[chunk.id] = decode_symbols(self._store.get([chunk.id])[0])
            known, place = self._chunks[chunk.id], code - chunk.first
            text = known[place] if 0 <= place < len(known) else None
            if text is None:
                raise CorruptSnapshotError(
                    f"a fact of epoch {self._manifest.epoch} has a symbol that is not there"
                )
            texts.append(text)
        return [texts[place] for place in places.tolist()]


def _facts(now: _Epoch, then: _Epoch) -> Iterator[FactChange]:
    for relation in dict.fromkeys((*now.entries, *then.entries)):
        held = relation in now.entries and now.entries[relation].counts.asserted > 0
        wanted = relation in then.entries and then.entries[relation].counts.asserted > 0
        if held and wanted and now.types(relation) == then.types(relation):
            if now.entries[relation].id != then.entries[relation].id:
                # By codes: what stands behind equal codes is equal. A string may have got another code since; then its
                # tuples go and come again, which is nothing.
                gone, come = _difference(now.facts(relation), then.facts(relation))
                yield from _changes(now, relation, gone)
                yield from _changes(then, relation, come)
            continue
        if held:
            codes, weights = now.facts(relation)
            yield now.change(relation, codes, -weights)
        if wanted:
            yield from _changes(then, relation, then.facts(relation))


def _changes(epoch: _Epoch, relation: str, facts: Facts) -> Iterator[FactChange]:
    if len(facts[0]):
        yield epoch.change(relation, *facts)


def _difference(now: Facts, then: Facts) -> tuple[Facts, Facts]:
    """What the tuples of two epochs gain from the first to the second: those whose weights fall, and those whose
    weights rise.
    """
    codes = np.concatenate([now[0], then[0]])
    weights = np.concatenate([-now[1], then[1]])
    order = sort_order(codes)
    codes, weights = codes[order], weights[order]
    starts = np.flatnonzero(np.concatenate([[True], (codes[1:] != codes[:-1]).any(axis=1)]))
    codes, weights = codes[starts], np.add.reduceat(weights, starts)
    return (codes[weights < 0], weights[weights < 0]), (codes[weights > 0], weights[weights > 0])
