"""The readers' view of the objects: asynchronous, cached by name, bounded.

An object never changes, so a cache needs no invalidation: what it holds is right, and unused objects are dropped. One
reader serves all snapshots of a `DatabaseClient`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import redis.asyncio

from engine.errors import CorruptSnapshotError
from engine.storage.blocks import Present, decode_block
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.manifest import (
    BlockIndex,
    RelationManifest,
    Segment,
    StoredProgram,
    SymbolChunk,
    decode_symbols,
)
from engine.storage.objects import FETCH_OBJECTS, Lru, checked
from engine.storage.rows import Rows

# What a string of a chunk costs in memory beside its characters: the object, its place in the list and in the
# map.
_SYMBOL_OVERHEAD = 170


@dataclass(slots=True)
class Texts:
    """The symbols of a chunk, None where one was forgotten; the way back from text to place is made when first asked
    for."""

    texts: list[str | None]
    _places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int | None:
        if not self._places:
            self._places = {known: i for i, known in enumerate(self.texts) if known is not None}
        return self._places.get(text)

    def at(self, places: npt.NDArray[np.int64]) -> list[str]:
        """The texts at places.

        Raises:
            CorruptSnapshotError: there is no text at one of them.
        """
        found = []
        for place in places.tolist():
            text = self.texts[place] if place < len(self.texts) else None
            if text is None:
                raise CorruptSnapshotError("a tuple of the snapshot has a symbol that is not there")
            found.append(text)
        return found


class ObjectReader:
    """Objects of one database, decoded."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, cache_bytes: int) -> None:
        self._redis = client
        self._keys = keys
        # Most of the memory is for tuples; symbols are looked at by every page and have their own share.
        self._blocks: Lru[Rows] = Lru(cache_bytes)
        self._symbols: Lru[Texts] = Lru(4 * cache_bytes)
        self._small: Lru[BlockIndex | RelationManifest | StoredProgram] = Lru(cache_bytes // 4)

    async def manifest_bytes(self, epoch: int) -> bytes | None:
        """The manifest of an epoch, or None when it is not kept."""
        with storage_errors():
            return cast(bytes | None, await self._redis.get(self._keys.manifest(epoch)))

    async def manifests(self, epochs: Sequence[int]) -> list[bytes | None]:
        """The manifests of epochs, in order; None for one that is not kept."""
        if not epochs:
            return []
        with storage_errors():
            found = await self._redis.mget([self._keys.manifest(epoch) for epoch in epochs])
        return cast(list[bytes | None], found)

    async def fetch(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of objects, in order.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
            CorruptSnapshotError: one is missing or damaged.
        """
        found: list[bytes] = []
        for start in range(0, len(names), FETCH_OBJECTS):
            part = names[start : start + FETCH_OBJECTS]
            with storage_errors():
                got = await self._redis.mget([self._keys.object(name) for name in part])
            answers = cast(list[bytes | None], got)
            found += [checked(name, data) for name, data in zip(part, answers, strict=True)]
        return found

    async def program(self, name: str) -> StoredProgram:
        found = self._small.get(name)
        if not isinstance(found, StoredProgram):
            data = (await self.fetch([name]))[0]
            found = StoredProgram.decode(data)
            self._small.put(name, found, 4 * len(data))
        return found

    async def relation(self, name: str) -> RelationManifest:
        found = self._small.get(name)
        if not isinstance(found, RelationManifest):
            data = (await self.fetch([name]))[0]
            found = RelationManifest.decode(data)
            self._small.put(name, found, 8 * len(data))
        return found

    async def indexes(self, segments: Sequence[Segment]) -> list[BlockIndex]:
        """The block indexes of segments, in order, read in one round trip."""
        found: dict[str, BlockIndex] = {}
        for segment in segments:
            index = self._small.get(segment.child) if segment.block is None else segment.block
            if isinstance(index, BlockIndex):
                found[segment.child] = index
        missing = [segment.child for segment in segments if segment.child not in found]
        for name, data in zip(missing, await self.fetch(missing), strict=True):
            found[name] = BlockIndex.decode(data)
            self._small.put(name, found[name], 2 * len(data))
        return [found[segment.child] for segment in segments]

    async def blocks(self, ids: Sequence[str]) -> dict[str, Rows]:
        """The rows of blocks by their names."""
        found: dict[str, Rows] = {}
        missing: list[str] = []
        for name in ids:
            rows = self._blocks.get(name)
            if rows is None:
                missing.append(name)
            else:
                found[name] = rows
        for name, data in zip(missing, await self.fetch(missing), strict=True):
            found[name] = decode_block(data)[0]
            self._blocks.put(name, found[name], found[name].nbytes)
        return found

    async def changes(
        self, segment: Segment, wanted: Mapping[int, npt.NDArray[np.int64]], blocks: int
    ) -> AsyncIterator[tuple[Rows, Present | None]]:
        """The blocks of an epoch's change, in order, with `present`; those which may have one of the codes that are
        `wanted` of some columns, ascending; `blocks` of them are read at a time. Not cached: each is read once by a
        feed."""
        index = (await self.indexes([segment]))[0]
        may = np.ones(len(index), np.bool_)
        for column, codes in wanted.items():
            first = np.searchsorted(codes, index.low[:, column])
            may &= first < np.searchsorted(codes, index.high[:, column], side="right")
        ids = [name for name, there in zip(index.ids, may.tolist(), strict=True) if there]
        for start in range(0, len(ids), blocks):
            for data in await self.fetch(ids[start : start + blocks]):
                yield decode_block(data)

    async def texts(self, chunks: Sequence[SymbolChunk]) -> list[Texts]:
        """The symbols of chunks, in order."""
        found = {chunk.id: self._symbols.get(chunk.id) for chunk in chunks}
        missing = [name for name, texts in found.items() if texts is None]
        for name, data in zip(missing, await self.fetch(missing), strict=True):
            known = Texts(decode_symbols(data))
            found[name] = known
            self._symbols.put(name, known, len(data) + _SYMBOL_OVERHEAD * len(known.texts))
        return [texts for chunk in chunks if (texts := found[chunk.id]) is not None]
