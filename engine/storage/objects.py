"""Objects by name: the writer's store, and the bounded cache that both sides use.

An object never changes, so a reader may keep it. `Lru` keeps the most recently used objects, up to a number of bytes.
`ObjectStore` is the writer's: new objects are kept in `pending` until the publication is done. Where they are many,
they are sent ahead of it, and only their names are kept (`ahead`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import redis

from engine.errors import CorruptSnapshotError
from engine.storage.blocks import decode_block
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.manifest import RELATION, SEGMENT, BlockIndex, RelationManifest, Segment, object_id
from engine.storage.rows import Rows

# So many objects are asked for at a time: some megabytes an answer.
FETCH_OBJECTS = 256
# More bytes of new objects are not held until their publication.
AHEAD_BYTES = 32 << 20


V = TypeVar("V")


class Lru(Generic[V]):
    """A map of bounded size in bytes; the least recently used items go first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._used = 0
        self._entries: OrderedDict[str, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        return self._used

    def get(self, name: str) -> V | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        self._entries.move_to_end(name)
        return entry[0]

    def put(self, name: str, value: V, size: int) -> None:
        if name in self._entries or size > self._capacity:
            return
        self._entries[name] = (value, size)
        self._used += size
        while self._used > self._capacity:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._used -= dropped

    def drop(self, name: str) -> None:
        if name in self._entries:
            self._used -= self._entries.pop(name)[1]


def checked(name: str, data: bytes | None) -> bytes:
    """The object's bytes, if they match its name.

    Raises:
        CorruptSnapshotError: it is missing, or its content differs from what was written.
    """
    if data is None:
        raise CorruptSnapshotError(f"the object {name} of the snapshot is missing", object=name)
    if object_id(name[0], data) != name:
        raise CorruptSnapshotError(f"the object {name} of the snapshot is damaged", object=name)
    return data


class ObjectStore:
    """The writer's view of the objects: puts into `pending`, reads from pending, cache or Redis."""

    def __init__(self, client: redis.Redis, keys: Keys, cache_bytes: int) -> None:
        self._redis = client
        self._keys = keys
        self._blocks: Lru[Rows] = Lru(cache_bytes)
        self._indexes: dict[str, BlockIndex] = {}
        self._relations: dict[str, RelationManifest] = {}
        self.pending: dict[str, bytes] = {}
        self.ahead: set[str] = set()
        self.written = 0
        """Bytes of the objects in both."""
        self.stage: Callable[[Mapping[str, bytes]], object] = lambda objects: None
        """Sends objects ahead; the publisher's."""
        self._held = 0

    def begin(self) -> None:
        """The next publication begins: what was put for another one is not written."""
        self.pending.clear()
        self.ahead.clear()
        self.written = self._held = 0

    def put(self, kind: str, data: bytes) -> str:
        """Name an object and have it written with the next publication."""
        name = object_id(kind, data)
        if name not in self.pending and name not in self.ahead:
            self.pending[name] = data
            self.written += len(data)
            self._held += len(data)
            if self._held > AHEAD_BYTES:
                self.send_ahead()
        return name

    def send_ahead(self) -> None:
        """Let others read what is pending, and do not hold it here any more."""
        self.stage(self.pending)
        self.ahead.update(self.pending)
        self.pending.clear()
        self._held = 0

    def put_elsewhere(self, names: Sequence[str], size: int) -> None:
        """Note objects of `size` bytes together that others have sent ahead."""
        self.ahead.update(names)
        self.written += size

    def put_index(self, index: BlockIndex) -> str:
        name = self.put(SEGMENT, index.encode())
        self._indexes[name] = index
        return name

    def put_relation(self, relation: RelationManifest) -> str:
        name = self.put(RELATION, relation.encode())
        self._relations[name] = relation
        return name

    def remember(self, block_id: str, rows: Rows) -> None:
        """Keep a block's rows at hand: it will probably be merged soon."""
        self._blocks.put(block_id, rows, rows.nbytes)

    def forget(self, name: str) -> None:
        """The object has been removed."""
        self._indexes.pop(name, None)
        self._relations.pop(name, None)

    def children(self, name: str) -> Sequence[str]:
        """The objects that an object names directly."""
        if name[0] == RELATION:
            return [segment.child for segment in self.relation(name).segments]
        return self._index(name).ids if name[0] == SEGMENT else ()

    def load(self, names: Sequence[str]) -> None:
        """Read relations and, below them, block indexes that will be needed, in few round trips."""
        wanted = [
            name for name in dict.fromkeys(names) if name[0] == RELATION and name not in self._relations
        ]
        for name, data in zip(wanted, self.get(wanted), strict=True):
            self._relations[name] = RelationManifest.decode(data)
        below = [child for name in names if name[0] == RELATION for child in self.children(name)]
        indexes = [
            name
            for name in dict.fromkeys([*names, *below])
            if name[0] == SEGMENT and name not in self._indexes
        ]
        for name, data in zip(indexes, self.get(indexes), strict=True):
            self._indexes[name] = BlockIndex.decode(data)

    def get(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of objects, in order.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
            CorruptSnapshotError: one is missing or damaged.
        """
        missing = [name for name in names if name not in self.pending]
        fetched: dict[str, bytes] = {}
        for start in range(0, len(missing), FETCH_OBJECTS):
            part = missing[start : start + FETCH_OBJECTS]
            with storage_errors():
                answers = cast(
                    list[bytes | None], self._redis.mget([self._keys.object(name) for name in part])
                )
            fetched.update((name, checked(name, data)) for name, data in zip(part, answers, strict=True))
        return [self.pending[name] if name in self.pending else fetched[name] for name in names]

    def index(self, segment: Segment) -> BlockIndex:
        """The blocks of a segment."""
        return segment.block if segment.block is not None else self._index(segment.child)

    def relation(self, name: str) -> RelationManifest:
        """The segments of a relation."""
        relation = self._relations.get(name)
        if relation is None:
            relation = self._relations[name] = RelationManifest.decode(self.get([name])[0])
        return relation

    def _index(self, name: str) -> BlockIndex:
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = BlockIndex.decode(self.get([name])[0])
        return index

    def blocks(self, ids: Sequence[str]) -> list[Rows]:
        """The rows of blocks, in order."""
        rows = {name: self._blocks.get(name) for name in ids}
        wanted = [name for name, found in rows.items() if found is None]
        for name, data in zip(wanted, self.get(wanted), strict=True):
            rows[name] = decode_block(data)[0]
            self.remember(name, rows[name])  # type: ignore[arg-type]  # just decoded, so not None
        return [found for name in ids if (found := rows[name]) is not None]
