"""Which segments are packed and sorted in memory: made at first use, bounded in bytes, dropped with the segment.

In: a pinned manifest, a relation, and for some columns the codes that are looked for. Out: the relation's parts with
the orders of those columns, or None: then a scan reads few blocks, or the parts are being made, or do not fit.

A segment never changes, so its packed rows and orders are right as long as they are kept. A large segment is packed
and sorted in the background, one relation at a time, in a worker thread; readers scan meanwhile, or wait if they ask
to. The small runs of a relation are joined into one part and filtered row by row. So a new epoch costs its own run.
When compaction has rewritten a large segment, the parts of the epoch before are used, with the epoch's own change on
top, which is the same content, until the new segment is ready in its turn.

The least recently used rows and orders go first. What a newer epoch has replaced goes as soon as its successor is
ready; for an older epoch nothing is made anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.database.epoch import replaced
from engine.errors import ZedlogError
from engine.storage.blocks import BLOCK_ROWS, decode_block
from engine.storage.lookup import at_most
from engine.storage.manifest import BlockIndex, Manifest, RelationManifest, Segment
from engine.storage.objects import Lru
from engine.storage.packed import Order, PackedRows, Part, Wanted, column_type, demanded, number_type
from engine.storage.reader import ObjectReader
from engine.storage.rows import Rows, concatenate, merge
from engine.storage.scan import matching

log = logging.getLogger("zedlog.storage")

# A segment of no more rows is not sorted, and joined with its neighbours up to this size.
SMALL_ROWS = 4 * BLOCK_ROWS
# A scan of no more blocks than this, besides one of each segment, needs no index.
SCAN_BLOCKS = 8
# Blocks that are fetched and unpacked at a time.
_FETCHED = 64
# Epochs, and parts, beyond which a relation's parts are not continued with changes.
_MOST_EPOCHS = 64
_MOST_PARTS = 64
_LAYOUT_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class IndexStats:
    """bytes: in use now. builds: how often rows were packed or sorted, and the seconds that took in all. running:
    builds that have begun and not ended."""

    bytes: int = 0
    builds: int = 0
    seconds: float = 0.0
    running: int = 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a relation consists of, oldest first: names of large segments, and small parts. exact: these are the
    segments of its own manifest, and not those of an earlier one with changes."""

    parts: tuple[str | PackedRows, ...]
    exact: bool

    @property
    def names(self) -> list[str]:
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def nbytes(self) -> int:
        return _LAYOUT_BYTES + sum(part.nbytes for part in self.parts if isinstance(part, PackedRows))


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest epoch for which a relation's layout is known, and the relation's object in it."""

    incarnation: str
    epoch: int
    id: str


class Indexes:
    """The indexes of one database's relations, for all snapshots of a `DatabaseClient`."""

    def __init__(self, reader: ObjectReader, capacity_bytes: int) -> None:
        self._reader = reader
        self._capacity = capacity_bytes
        # Packed rows under the segment's name, orders under that name and the column, layouts under the relation's.
        self._kept: Lru[PackedRows | Order | _Layout] = Lru(capacity_bytes)
        self._newest: dict[str, _Newest] = {}
        self._building: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        # Segments that proved larger than their estimate, and than the memory.
        self._too_large: set[str] = set()
        self._builds, self._seconds = 0, 0.0

    @property
    def stats(self) -> IndexStats:
        return IndexStats(self._kept.used_bytes, self._builds, self._seconds, len(self._building))

    async def close(self) -> None:
        """End what is being made."""
        running = list(self._building.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def parts(
        self, manifest: Manifest, relation: str, wanted: Wanted, *, wait: bool = False
    ) -> list[Part] | None:
        """The parts of a relation, if an index helps to find the wanted codes.

        wait: for the index, if it has to be made; otherwise the answer is None until it is there.

        Raises:
            CorruptSnapshotError, StorageUnavailableError: from reading a segment.
        """
        if not self._capacity or not wanted:
            return None
        columns = demanded(wanted)
        for attempt in range(3):
            found = await self._ready(manifest, relation)
            if found is not None and _suffices(found, wanted, columns):
                return found
            if attempt == 2 or not await self._is_worth_it(manifest, relation, wanted):
                return None
            task = self._start(manifest, relation, columns)
            if task is None or not wait:
                return None
            await asyncio.shield(task)
        return None

    async def present(self, manifest: Manifest, relation: str) -> list[Part] | None:
        """The parts of a relation if they are there already, with those orders that are there."""
        return await self._ready(manifest, relation) if self._capacity else None

    async def _is_worth_it(self, manifest: Manifest, relation: str, wanted: Wanted) -> bool:
        stored = await self._reader.relation(manifest.relations[relation].id)
        blocks, _ = matching(await self._reader.indexes(stored.segments), wanted)
        return blocks > SCAN_BLOCKS + len(stored.segments)

    # ---- the parts of a relation

    async def _ready(self, manifest: Manifest, relation: str) -> list[Part] | None:
        id_ = manifest.relations[relation].id
        layout = self._kept.get(id_)
        parts = self._resolved(layout) if isinstance(layout, _Layout) and layout.exact else None
        if parts is None:
            layout = await self._laid_out(manifest, relation)
            return None if layout is None else self._resolved(layout)
        known = self._newest.get(relation)
        if known is not None and known.id == id_ and known.epoch < manifest.epoch:
            self._newest[relation] = _Newest(manifest.incarnation, manifest.epoch, id_)
        return parts

    def _resolved(self, layout: _Layout) -> list[Part] | None:
        """The parts of a layout; None if one of them is no longer kept."""
        parts: list[Part] = []
        for part in layout.parts:
            if isinstance(part, PackedRows):
                parts.append(Part(part, {}))
                continue
            packed = self._kept.get(part)
            if not isinstance(packed, PackedRows):
                return None
            orders = {column: self._kept.get(_order(part, column)) for column in range(len(packed.columns))}
            parts.append(Part(packed, {c: order for c, order in orders.items() if isinstance(order, Order)}))
            self._kept.get(part)
        return parts

    async def _laid_out(self, manifest: Manifest, relation: str) -> _Layout | None:
        id_ = manifest.relations[relation].id
        stored = await self._reader.relation(id_)
        known = self._newest.get(relation)
        if known is not None and known.incarnation != manifest.incarnation:
            known = None
        layout = await self._exact(stored)
        if layout is None:
            # Perhaps the one that was made when this epoch was first read.
            kept = self._kept.get(id_)
            if isinstance(kept, _Layout) and self._resolved(kept) is not None:
                return kept
            layout = await self._continued(manifest, relation, known, stored.arity)
            if layout is None:
                return None
            self._start(manifest, relation, frozenset())
        if self._is_old(manifest, relation):
            return layout
        self._supersede(self._newest.get(relation), layout, stored)
        self._newest[relation] = _Newest(manifest.incarnation, manifest.epoch, id_)
        self._kept.put(id_, layout, layout.nbytes)
        return layout

    async def _exact(self, stored: RelationManifest) -> _Layout | None:
        """The segments of the manifest, if the large ones are there."""
        large = _large(stored.segments)
        # What has only small segments is scanned as fast.
        if not large or not all(isinstance(self._kept.get(s.child), PackedRows) for s in large):
            return None
        stack = _Stack(stored.arity, ())
        for segment in stored.segments:
            if segment.rows > SMALL_ROWS:
                stack.add_name(segment.child)
            else:
                stack.add_rows(await self._rows(segment, stored.arity))
        return stack.layout(exact=True)

    async def _continued(
        self, manifest: Manifest, relation: str, known: _Newest | None, arity: int
    ) -> _Layout | None:
        """The parts of an earlier epoch and the changes since then."""
        if known is None or not 0 < manifest.epoch - known.epoch <= _MOST_EPOCHS:
            return None
        before = self._kept.get(known.id)
        if not isinstance(before, _Layout) or self._resolved(before) is None:
            return None
        changes = await self._changes_since(known, manifest, relation)
        if changes is None or len(before.parts) + len(changes) > _MOST_PARTS:
            return None
        columns = self._columns_of(before)
        stack = _Stack(arity, before.parts)
        for segment in changes:
            if segment.rows <= SMALL_ROWS:
                stack.add_rows(await self._rows(segment, arity))
                continue
            if not await self._fits([segment], columns):
                return None
            await self._pack([segment], columns)
            stack.add_name(segment.child)
        layout = stack.layout(exact=False)
        # Room for the change may have cost another part.
        return layout if self._resolved(layout) is not None else None

    async def _changes_since(self, known: _Newest, manifest: Manifest, relation: str) -> list[Segment] | None:
        """What the epochs after the known one changed in the relation, oldest first; None if that is not known."""
        between = range(known.epoch + 1, manifest.epoch)
        data = await asyncio.gather(*(self._reader.manifest_bytes(epoch) for epoch in between))
        manifests = [Manifest.decode(found) for found in data if found is not None]
        if len(manifests) != len(between):
            return None
        changes: list[Segment] = []
        id_: str | None = known.id
        for step in (*manifests, manifest):
            change, entry = step.changes.get(relation), step.relations.get(relation)
            now = entry.id if entry is not None else None
            if replaced(relation) in step.changes or (change is None and now != id_):
                return None
            if change is not None:
                changes.append(change)
            id_ = now
        return changes

    async def _rows(self, segment: Segment, arity: int) -> Rows:
        ids = (await self._reader.indexes([segment]))[0].ids
        blocks = await self._reader.blocks(ids)
        return concatenate([blocks[name] for name in ids], arity)

    def _is_old(self, manifest: Manifest, relation: str) -> bool:
        """Whether a newer epoch of the relation is known."""
        known = self._newest.get(relation)
        same = known is not None and known.incarnation == manifest.incarnation
        return known is not None and same and known.epoch > manifest.epoch

    def _supersede(self, known: _Newest | None, layout: _Layout, stored: RelationManifest) -> None:
        """Drop what only the layout before has."""
        if known is None:
            return
        before = self._kept.get(known.id)
        self._kept.drop(known.id)
        if not isinstance(before, _Layout):
            return
        needed = {*layout.names, *(segment.child for segment in stored.segments)}
        for name in before.names:
            if name not in needed:
                self._forget(name, stored.arity)

    def _forget(self, name: str, arity: int) -> None:
        for column in range(arity):
            self._kept.drop(_order(name, column))
        self._kept.drop(name)

    def _columns_of(self, layout: _Layout) -> frozenset[int]:
        """The columns by which a layout's large parts are sorted."""
        parts = self._resolved(layout) or []
        return frozenset(column for part in parts for column in part.orders)

    # ---- making them

    def _start(self, manifest: Manifest, relation: str, columns: frozenset[int]) -> asyncio.Task[None] | None:
        """Have the large segments of a relation packed, and sorted by the columns, in the background."""
        running = self._building.get(relation)
        if running is not None:
            return running
        if self._is_old(manifest, relation):
            return None
        task = asyncio.create_task(self._build(manifest, relation, columns))
        self._building[relation] = task
        task.add_done_callback(lambda done: self._ended(relation, done))
        return task

    def _ended(self, relation: str, task: asyncio.Task[None]) -> None:
        self._building.pop(relation, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ZedlogError):
            # The epoch has been removed, or Redis is away; a reader finds out for itself.
            log.info("an index of %s was not made: %s", relation, error)
        elif error is not None:
            log.error("an index of %s was not made", relation, exc_info=error)

    async def _build(self, manifest: Manifest, relation: str, columns: frozenset[int]) -> None:
        stored = await self._reader.relation(manifest.relations[relation].id)
        large = _large(stored.segments)
        known = self._newest.get(relation)
        before = None if known is None else self._kept.get(known.id)
        # What takes the place of a sorted part is sorted likewise, if there is room.
        more = columns | (self._columns_of(before) if isinstance(before, _Layout) else frozenset())
        if not await self._fits(large, more):
            if not await self._fits(large, columns):
                return
            more = columns
        async with self._one_at_a_time:
            await self._pack(large, more)
        await self._laid_out(manifest, relation)

    async def _fits(self, segments: Sequence[Segment], columns: frozenset[int]) -> bool:
        """Whether there is room for all segments together, packed and sorted, if everything else goes."""
        if any(segment.child in self._too_large for segment in segments):
            return False
        indexes = await self._reader.indexes(segments)
        return sum(_size(index, columns) for index in indexes) <= self._capacity

    async def _pack(self, segments: Sequence[Segment], columns: frozenset[int]) -> None:
        """Pack and sort what is not there."""
        for segment, index in zip(segments, await self._reader.indexes(segments), strict=True):
            name = segment.child
            packed = self._kept.get(name)
            missing = [c for c in sorted(columns) if self._kept.get(_order(name, c)) is None]
            if isinstance(packed, PackedRows) and not missing:
                continue
            started = time.perf_counter()
            try:
                if not isinstance(packed, PackedRows):
                    packed = await self._packed(index)
                orders = {column: await asyncio.to_thread(Order.of, packed, column) for column in missing}
                # All at once, so that what it replaces serves until then. Rows are of more use than their orders, so
                # they are the last to go.
                self._kept.put(name, packed, packed.nbytes)
                self._kept.get(name)
                for column, order in orders.items():
                    self._kept.put(_order(name, column), order, order.nbytes)
                if self._kept.get(name) is None:
                    self._too_large.add(name)
                    self._forget(name, len(packed.columns))
            finally:
                self._builds += 1
                self._seconds += time.perf_counter() - started

    async def _packed(self, index: BlockIndex) -> PackedRows:
        low, high = index.low.min(axis=0).tolist(), index.high.max(axis=0).tolist()
        packed = PackedRows.empty(low, high, int(index.rows.sum()))
        start = 0
        for first in range(0, len(index), _FETCHED):
            blocks = await self._reader.fetch(index.ids[first : first + _FETCHED])
            start = await asyncio.to_thread(_fill, packed, start, blocks)
        return packed


class _Stack:
    """A layout while it grows: small parts that stand side by side become one."""

    def __init__(self, arity: int, parts: Iterable[str | PackedRows]) -> None:
        self._arity = arity
        self._parts: list[str | PackedRows | list[Rows]] = list(parts)

    def add_name(self, name: str) -> None:
        self._parts.append(name)

    def add_rows(self, rows: Rows) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, PackedRows) and len(last) + len(rows) <= SMALL_ROWS:
            self._parts[-1] = [last.all_rows(), rows]
        elif isinstance(last, list) and sum(map(len, last)) + len(rows) <= SMALL_ROWS:
            last.append(rows)
        else:
            self._parts.append([rows])

    def layout(self, *, exact: bool) -> _Layout:
        parts = (part if not isinstance(part, list) else self._joined(part) for part in self._parts)
        return _Layout(tuple(parts), exact)

    def _joined(self, rows: list[Rows]) -> PackedRows:
        # Tombstones stay, for there is something below them; below the first part there is nothing, and no harm.
        return PackedRows.of(merge(rows[::-1], self._arity, drop_tombstones=False))


def _suffices(parts: Sequence[Part], wanted: Wanted, columns: frozenset[int]) -> bool:
    """Whether all columns are sorted that should be, or few rows have to be looked at as it is."""
    sorted_ = all(columns <= part.orders.keys() for part in parts if len(part.packed) > SMALL_ROWS)
    return sorted_ or at_most(parts, wanted) <= SMALL_ROWS


def _large(segments: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.rows > SMALL_ROWS]


def _order(name: str, column: int) -> str:
    return f"{name}/{column}"


def _size(index: BlockIndex, columns: frozenset[int]) -> int:
    """Bytes that the rows of a segment take with the orders of the columns, weights other than 1 aside."""
    rows = int(index.rows.sum())
    low, high = index.low.min(axis=0).tolist(), index.high.max(axis=0).tolist()
    widths = [column_type(lo, hi).itemsize for lo, hi in zip(low, high, strict=True)]
    number = number_type(rows).itemsize
    return rows * (1 + sum(widths) + sum(widths[column] + number for column in columns))


def _fill(packed: PackedRows, start: int, blocks: Sequence[bytes]) -> int:
    for data in blocks:
        rows, _ = decode_block(data)
        packed.put(start, rows)
        start += len(rows)
    return start
