"""Publishes the large changes of an epoch on Spark: executors sort, pack and write the blocks.

In: a `StoredChange`, and the relation as the last epoch left it in the snapshot. Out: the relation after the epoch, the
change as a segment, the digest. The driver sees indexes of blocks, so its memory depends on their number.

A change becomes one more run, as any other. Where the runs are too large for the base, the executors write the base
anew from the relation's own state; where there was no relation, the change is the base.

Executors need Python tasks, and must reach the same Redis at the same address. That is tried once for each session.
Where it fails, the sorted rows come through the driver in portions: slower, and in bounded memory all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame

from engine.data.arrow import array_of, columns
from engine.errors import SparkUnavailableError, StorageUnavailableError
from engine.language.schema import Schema
from engine.spark.described import CHANGED, LIVE
from engine.spark.session.tasks import can_map, map_in_arrow
from engine.spark.stored import StoredChange
from engine.spark.tables import Tables
from engine.storage import block_task as told
from engine.storage.block_task import SCHEMA, BlockTask, BlockWriter, Part, ReachTask, in_order
from engine.storage.compaction import compact, counts_after, is_due, join, segment_of
from engine.storage.digests import MODULUS, Digester, FewHashes
from engine.storage.manifest import BLOCK, BlockIndex, RelationManifest, Segment, SymbolChunk, TupleCounts
from engine.storage.objects import ObjectStore

logger = logging.getLogger("zedlog.engine")

_PARTITION_ROWS = 2_000_000
"""Rows that one task sorts and writes, about."""
_PORTION_ROWS = 1 << 16
"""Rows that come through the driver at a time."""


@dataclass(frozen=True, slots=True)
class Written:
    """digest: the sum for the rows; None if it is not known. The numbers are of rows: those that are facts or derived,
    those of them that are not hidden, facts, derived ones."""

    index: BlockIndex
    digest: int | None
    live: int
    visible: int
    asserted: int
    derived: int


class ByExecutors:
    """See the module. url: of Redis; None if it is not known. generation: of the engine's lease."""

    def __init__(self, url: str | None, database: str, generation: str, store: ObjectStore) -> None:
        self._url, self._database, self._generation = url, database, generation
        self._store = store
        self._problems: WeakKeyDictionary[Tables, str] = WeakKeyDictionary()
        self.why = ""
        """Why the last change came through the driver; empty if it did not."""

    def apply(
        self,
        old: RelationManifest | None,
        counts: TupleCounts,
        change: StoredChange,
        schema: Schema | None,
        chunks: tuple[SymbolChunk, ...],
    ) -> tuple[RelationManifest, TupleCounts, Segment, int | None]:
        """The relation and its counts after the change, the change itself, and what it adds to the digest. schema:
        None if no digest is wanted. All that was put into the store before can be read by others.

        Raises:
            StorageUnavailableError: the executors do not reach Redis now.
            SparkStateLostError, SparkUnavailableError.
        """
        arity = change.arity
        written = self._write(
            change.frame, CHANGED, change.rows, Part(arity, True, schema, chunks), change.tables
        )
        delta = segment_of(written.index, self._store)
        assert delta.rows == change.rows, "every changed tuple is written"
        after = counts_after(counts, change)
        if after.all == 0:
            return RelationManifest(arity, ()), after, delta, written.digest
        segments = (*(old.segments if old is not None else ()), delta)
        if len(segments) == 1 and written.live == delta.rows:
            return RelationManifest(arity, segments), after, delta, written.digest
        if len(segments) == 1 or is_due(segments):
            base = self._write(change.live(), LIVE, after.all, Part(arity, False, None, ()), change.tables)
            found = TupleCounts(base.visible, base.asserted, base.derived)
            assert found == after, f"the state on Spark and the snapshot differ: {found}, {after}"
            return (
                RelationManifest(arity, (segment_of(base.index, self._store),)),
                after,
                delta,
                written.digest,
            )
        return RelationManifest(arity, compact(segments, arity, self._store)), after, delta, written.digest

    def _write(self, frame: DataFrame, more: Sequence[str], rows: int, part: Part, tables: Tables) -> Written:
        """Write rows, in the order of their tuples, as blocks."""
        key = columns(part.arity)
        number = max(tables.partitions, -(-rows // _PARTITION_ROWS))
        spread = frame.select(*key, *more).repartitionByRange(number, *key).sortWithinPartitions(*key)
        self.why = self._problem(tables)
        if self.why:
            parts = self._through_driver(spread, part, tables)
        else:
            assert self._url is not None, "without it they do not reach it"
            task = BlockTask(self._url, self._database, part)
            parts = tables.collect(map_in_arrow(spread, task, SCHEMA), small=False)
            away = parts.column(told.AWAY).drop_null()
            if len(away):
                raise StorageUnavailableError(
                    f"Spark's executors could not write to Redis: {away[0].as_py()}"
                )
        return self._read(parts)

    def _read(self, parts: pa.Table) -> Written:
        """What was written."""
        indexes = [BlockIndex.decode(data) for data in parts.column(told.BLOCKS).drop_null().to_pylist()]
        index = join(in_order(indexes))
        assert index is not None, "there were rows"
        if not self.why:
            self._store.put_elsewhere(index.ids, int(array_of(parts, told.BYTES).sum()))
        unknown = parts.column(told.UNKNOWN).drop_null()
        if len(unknown):
            logger.error("a relation has no digest from now on: %s", unknown[0].as_py())
        digest = sum(map(int, parts.column(told.DIGEST).drop_null().to_pylist())) % MODULUS
        names = (told.LIVE, told.VISIBLE, told.ASSERTED, told.DERIVED)
        return Written(
            index, None if len(unknown) else digest, *(int(array_of(parts, name).sum()) for name in names)
        )

    def _through_driver(self, spread: DataFrame, part: Part, tables: Tables) -> pa.Table:
        digester = Digester(self._store, FewHashes(self._store))
        writer = BlockWriter(part, lambda data: self._store.put(BLOCK, data), digester)
        return pa.Table.from_batches(list(writer.written(tables.portions(spread, _PORTION_ROWS))))

    def _problem(self, tables: Tables) -> str:
        """Why executors cannot write; tried once for each session."""
        if tables not in self._problems:
            found = self._problems[tables] = self._tried(tables)
            if found:
                logger.warning("large changes on Spark are published through this process: %s", found)
        return self._problems[tables]

    def _tried(self, tables: Tables) -> str:
        number = tables.partitions
        frame = tables.spark.range(0, number, 1, number)
        if self._url is None:
            return "the address of Redis is not known"
        if not can_map(frame):
            return "Spark cannot run Python tasks here"
        task = ReachTask(self._url, self._database, self._generation)
        try:
            found = tables.collect(map_in_arrow(frame, task, "problem string"), small=False)
        except SparkUnavailableError as error:
            return f"Spark's executors cannot run the task: {error.message}"
        problems = found.column("problem").drop_null()
        return f"Spark's executors do not reach Redis: {problems[0].as_py()}" if len(problems) else ""
