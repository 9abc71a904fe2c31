"""Blocks written where the rows are: by Spark's executors, each for its part of a relation.

In: the rows of one partition as Arrow batches, sorted by the tuple: (c0 .., asserted, derived, hidden, height), for a
change also (present, was_asserted, was_derived). Out: what was written, as rows of `SCHEMA`: an index of blocks, the
part of the digest, and numbers for the driver to check. The blocks themselves go to Redis under the names of their
content, with an expiry, until a publication confirms them; so a task that is done twice does no harm.

Always: the task holds some blocks, whatever its partition's size. A server that is away is told in a row of its own
(AWAY) and does not fail the job: the publication is then tried again, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.data.arrow import HEIGHT, array_of, codes_of
from engine.errors import CorruptSnapshotError, StorageUnavailableError
from engine.language.schema import Schema
from engine.maintenance.change import RelationChange
from engine.storage.blocks import BLOCK_ROWS, Present
from engine.storage.compaction import join, write_blocks
from engine.storage.connection import connect, storage_errors
from engine.storage.digests import Digester, FewHashes
from engine.storage.keys import Keys
from engine.storage.manifest import BLOCK, BlockIndex, SymbolChunk, object_id
from engine.storage.objects import ObjectStore
from engine.storage.rows import Rows
from engine.storage.scripts import PORTION_BYTES, STAGE, STAGED_SECONDS

BLOCKS, DIGEST, BYTES, AWAY, UNKNOWN = "blocks", "digest", "bytes", "away", "unknown"
LIVE, VISIBLE, ASSERTED, DERIVED = "live", "visible", "asserted", "derived"
NUMBERS = (LIVE, VISIBLE, ASSERTED, DERIVED, BYTES)
_LONGS = ", ".join(f"{name} long" for name in NUMBERS)
SCHEMA = f"{BLOCKS} binary, {DIGEST} string, {_LONGS}, {AWAY} string, {UNKNOWN} string"
_FIELDS = {BLOCKS: pa.binary(), DIGEST: pa.string(), **dict.fromkeys(NUMBERS, pa.int64()), AWAY: pa.string()}
_FIELDS[UNKNOWN] = pa.string()

_PIECE = 16 * BLOCK_ROWS
"""Rows that are encoded at a time."""
_BLOCKS_TOLD = 256
"""Blocks that a row of the output tells of."""


@dataclass(frozen=True, slots=True)
class Part:
    """What rows are written as. change: with what a change tells beside the relation's state. schema: for the digest;
    None if it is not wanted. chunks: the symbols of the snapshot."""

    arity: int
    change: bool
    schema: Schema | None
    chunks: tuple[SymbolChunk, ...]


class BlockWriter:
    """Writes the rows of one partition through `put`, which names an object's bytes; yields what it wrote."""

    def __init__(self, part: Part, put: Callable[[bytes], str], digester: Digester) -> None:
        self._part, self._put, self._digester = part, put, digester
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._indexes: list[BlockIndex] = []
        self._numbers = dict.fromkeys(NUMBERS, 0)
        self._digest = 0
        self._unknown: str | None = None

    def written(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._waiting.append(pa.Table.from_batches([batch]))
            self._rows += batch.num_rows
            while self._rows >= 2 * _PIECE:
                self._write(_PIECE)
                if sum(map(len, self._indexes)) >= _BLOCKS_TOLD:
                    yield self._told()
        if self._rows:
            self._write(self._rows)
        yield self._told()

    def _write(self, rows: int) -> None:
        """Write the first rows that wait."""
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting, self._rows = [table.slice(rows)], table.num_rows - rows
        table = table.slice(0, rows)
        codes = codes_of(table, self._part.arity)
        asserted, heights = array_of(table, "asserted"), array_of(table, HEIGHT)
        derived, hidden = _flags(table, "derived"), _flags(table, "hidden")
        blocks = Rows(np.asfortranarray(codes), asserted, derived, hidden, heights)
        present: Present | None = None
        if self._part.change:
            present = array_of(table, "present").astype(np.int8)
            told = (
                codes,
                asserted,
                derived,
                present,
                array_of(table, "was_asserted"),
                _flags(table, "was_derived"),
            )
            self._add_digest(RelationChange(*told, hidden))
        self._indexes.append(write_blocks(blocks, self._counted, present))
        n, live = self._numbers, blocks.live
        n[LIVE] += int(np.count_nonzero(live))
        n[VISIBLE] += int(np.count_nonzero(live & ~hidden))
        n[ASSERTED] += int(np.count_nonzero(asserted))
        n[DERIVED] += int(np.count_nonzero(derived))

    def _counted(self, data: bytes) -> str:
        self._numbers[BYTES] += len(data)
        return self._put(data)

    def _add_digest(self, change: RelationChange) -> None:
        schema, chunks = self._part.schema, self._part.chunks
        if schema is None or self._unknown is not None:
            return
        try:
            self._digest = self._digester.changed(self._digest, schema, change, chunks)
        except CorruptSnapshotError as error:
            self._unknown = str(error)

    def _told(self) -> pa.RecordBatch:
        """What was written since it was told last."""
        index = join(self._indexes)
        digest, self._digest, self._indexes = self._digest, 0, []
        numbers, self._numbers = self._numbers, dict.fromkeys(NUMBERS, 0)
        blocks = None if index is None else index.encode()
        return _row({BLOCKS: blocks, DIGEST: str(digest), **numbers, UNKNOWN: self._unknown})


@dataclass(frozen=True, slots=True)
class BlockTask:
    """The task, as it travels to the executors. url: of Redis, as they reach it."""

    url: str
    database: str
    part: Part

    def __repr__(self) -> str:
        # The address may have a password in it.
        return f"BlockTask({self.database})"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client, keys = connect(self.url), Keys(self.database)
        stager = _Stager(client, keys)
        store = ObjectStore(client, keys, 0)
        writer = BlockWriter(self.part, stager.put, Digester(store, FewHashes(store)))
        try:
            for told in writer.written(batches):
                # Nothing is told before it is there.
                stager.send()
                yield told
        except StorageUnavailableError as error:
            yield _row({AWAY: error.message})
        finally:
            client.close()


@dataclass(frozen=True, slots=True)
class ReachTask:
    """Says whether an executor reaches the Redis in which this engine has the lease: (problem)."""

    url: str
    database: str
    generation: str

    def __repr__(self) -> str:
        return f"ReachTask({self.database})"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        problem: str | None = None
        client = connect(self.url)
        try:
            with storage_errors():
                found: Any = client.get(Keys(self.database).generation)
            if found is None or found.decode() != self.generation:
                problem = "at that address they find another server"
        except StorageUnavailableError as error:
            problem = error.message
        finally:
            client.close()
        yield pa.RecordBatch.from_pydict({"problem": pa.array([problem], pa.string())})


class _Stager:
    """Sends blocks ahead, in portions."""

    def __init__(self, client: Any, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._waiting: dict[str, bytes] = {}
        self._size = 0

    def put(self, data: bytes) -> str:
        name = object_id(BLOCK, data)
        self._waiting[name] = data
        self._size += len(data)
        if self._size >= PORTION_BYTES:
            self.send()
        return name

    def send(self) -> None:
        if self._waiting:
            portion = [
                part for name, data in self._waiting.items() for part in (self._keys.object(name), data)
            ]
            with storage_errors():
                self._client.eval(STAGE, 0, STAGED_SECONDS, *portion)
        self._waiting, self._size = {}, 0


def _row(values: dict[str, Any]) -> pa.RecordBatch:
    values = {**dict.fromkeys(NUMBERS, 0), **values}
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(name)], kind) for name, kind in _FIELDS.items()], names=list(_FIELDS)
    )


def _flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.array(table.column(name).to_numpy(), np.bool_)


def in_order(indexes: Sequence[BlockIndex]) -> list[BlockIndex]:
    """Indexes whose blocks do not overlap, in the order of their tuples."""
    return sorted(indexes, key=lambda index: tuple(index.first[0].tolist()))
