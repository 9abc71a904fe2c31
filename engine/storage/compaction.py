"""How a stored relation grows: one run per epoch, with runs merged now and then.

In: the relation as the last epoch left it and the epoch's change. Out: the relation after it. The blocks that already
exist are never changed; new ones go into the store.

A small change becomes one small run. Runs of about the same size are merged by eights (size-tiered, as in
log-structured merge trees: O'Neil et al. 1996), so a relation has O(log n) runs and a row is rewritten O(log
n) times. When all runs together pass a fraction of the base they are merged into it; only the base blocks
whose key range they touch are written again. A tombstone goes when nothing is left below it.

Large runs and bases are merged in pieces, by ranges of keys, so that no merge holds more than some million rows.

TupleCounts stay exact: a change says what each tuple was before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.maintenance.change import Change, RelationChange
from engine.storage.blocks import BLOCK_ROWS, Present, encode_block
from engine.storage.manifest import BLOCK, BlockIndex, RelationManifest, Segment, TupleCounts
from engine.storage.objects import ObjectStore
from engine.storage.rows import Key, Rows, above, concatenate, merge, rows_in_order, sort_order

# Runs of one size class that are merged into one; each class is eight times as large as the one before.
RUNS_PER_TIER = 8
# Runs go into the base when they have more rows than this fraction of it (and than a quarter of a block).
BASE_FRACTION = 0.25
BASE_FLOOR = BLOCK_ROWS // 4
# Base blocks that are merged at a time, so that memory stays bounded.
MERGED_BLOCKS = 256
# Rows of runs up to which they are merged as a whole into those base blocks that they touch.
MERGED_ROWS = MERGED_BLOCKS * BLOCK_ROWS

EMPTY = TupleCounts(0, 0, 0)


def apply_change(
    relation: RelationManifest | None, counts: TupleCounts, change: RelationChange, store: ObjectStore
) -> tuple[RelationManifest, TupleCounts, Segment]:
    """The relation and its counts after the change, and the change itself as a segment with `present`."""
    order = sort_order(change.codes)
    rows = rows_in_order(change.codes, change.asserted, change.derived, change.hidden, change.height, order)
    arity, present = rows.arity, change.present.take(order)
    delta = write_segment(rows, store, present)
    after = counts_after(counts, change)
    if after.all == 0:
        return RelationManifest(arity, ()), after, delta
    old = relation.segments if relation is not None else ()
    if not old:
        live = rows.live
        base = delta if bool(live.all()) else write_segment(rows.where(live), store)
        return RelationManifest(arity, (base,)), after, delta
    return RelationManifest(arity, compact((*old, delta), arity, store)), after, delta


def write_segment(rows: Rows, store: ObjectStore, present: Present | None = None) -> Segment:
    """Sorted rows (at least one) as blocks."""
    return segment_of(_write_blocks(rows, store, present), store)


def read_segment(segment: Segment, store: ObjectStore) -> Rows:
    """All rows of a segment."""
    index = store.index(segment)
    return concatenate(store.blocks(index.ids), index.first.shape[1])


def read_facts(relation: RelationManifest, store: ObjectStore) -> Rows:
    """The tuples of a relation that are asserted; only these are put together."""
    facts = [part.where(part.asserted != 0) for part in read_parts(relation, store)]
    return concatenate(facts, relation.arity)


def read_parts(relation: RelationManifest, store: ObjectStore) -> Iterator[Rows]:
    """All rows of a relation, in order and in parts, so that only some of its blocks are in memory."""
    if not relation.segments:
        return
    base, *runs = relation.segments
    if _rows(runs) > MERGED_ROWS:
        yield from _pieces([*reversed(runs), base], relation.arity, store, drop_tombstones=True)
        return
    arity, index = relation.arity, store.index(base)
    overlay = merge([read_segment(run, store) for run in reversed(runs)], arity, drop_tombstones=False)
    home = _home_blocks(index, overlay.codes)
    for start in range(0, len(index), MERGED_BLOCKS):
        stop = min(start + MERGED_BLOCKS, len(index))
        low, high = np.searchsorted(home, [start, stop]).tolist()
        blocks = concatenate(store.blocks(index.ids[start:stop]), arity)
        yield merge([overlay.part(low, high), blocks], arity, drop_tombstones=True)


def _rows(segments: Sequence[Segment]) -> int:
    return sum(segment.rows for segment in segments)


def _pieces(
    newest_first: Sequence[Segment], arity: int, store: ObjectStore, *, drop_tombstones: bool
) -> Iterator[Rows]:
    """The merge of segments, in order and in pieces, each from some MERGED_BLOCKS blocks."""
    indexes = [store.index(segment) for segment in newest_first]
    lasts = np.concatenate([index.last for index in indexes])
    cuts = lasts[sort_order(lasts)][MERGED_BLOCKS - 1 : -1 : MERGED_BLOCKS]
    low: Key | None = None
    for high in [*(tuple(map(int, cut)) for cut in cuts), None]:
        parts = [_between(index, low, high, store) for index in indexes]
        piece = merge(parts, arity, drop_tombstones=drop_tombstones)
        if len(piece):
            yield piece
        low = high


def _between(index: BlockIndex, low: Key | None, high: Key | None, store: ObjectStore) -> Rows:
    """The rows of a segment above `low` and up to `high`; None: without end."""
    wanted = _in_range(index.last, index.first, low, high)
    rows = concatenate(
        store.blocks([index.ids[i] for i in np.flatnonzero(wanted).tolist()]), index.first.shape[1]
    )
    inside = _in_range(rows.codes, rows.codes, low, high)
    return rows if inside.all() else rows.where(inside)


def _in_range(last: Codes, first: Codes, low: Key | None, high: Key | None) -> npt.NDArray[np.bool_]:
    inside = np.ones(len(last), np.bool_)
    if low is not None:
        inside &= above(last, low)
    if high is not None:
        inside &= ~above(first, high)
    return inside


def _write_blocks(rows: Rows, store: ObjectStore, present: Present | None = None) -> BlockIndex:
    index = write_blocks(rows, lambda data: store.put(BLOCK, data), present)
    if len(index) == 1:
        # Small, and most often a run that is merged soon; the blocks of large segments are read when needed.
        store.remember(index.ids[0], rows)
    return index


def write_blocks(rows: Rows, put: Callable[[bytes], str], present: Present | None = None) -> BlockIndex:
    """Sorted rows (at least one) as blocks, which `put` writes and names."""
    # Even parts, so that a block that grew by a few rows does not leave a block of a few rows behind.
    cuts = np.linspace(0, len(rows), max(1, round(len(rows) / BLOCK_ROWS)) + 1).astype(np.int64)
    starts, stops = cuts[:-1], cuts[1:]
    ids: list[str] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        part = rows.part(start, stop)
        ids.append(put(encode_block(part, None if present is None else present[start:stop])))
    return BlockIndex(
        ids=tuple(ids),
        rows=(stops - starts).astype(np.int64),
        first=rows.codes[starts],
        last=rows.codes[stops - 1],
        low=_by_block(np.minimum, rows.codes, starts),
        high=_by_block(np.maximum, rows.codes, starts),
    )


def _by_block(reduce: np.ufunc, codes: Codes, starts: npt.NDArray[np.int64]) -> Codes:
    bounds = np.empty((len(starts), codes.shape[1]), np.int64)
    for column in range(codes.shape[1]):
        bounds[:, column] = reduce.reduceat(codes[:, column], starts)
    return bounds


def segment_of(index: BlockIndex, store: ObjectStore) -> Segment:
    """Blocks that are written as a segment."""
    rows = int(index.rows.sum())
    return Segment(rows, None, index) if len(index) == 1 else Segment(rows, store.put_index(index), None)


def _tier(rows: int) -> int:
    """The size class of a run: the number of octal digits of its rows."""
    return (max(rows, 1).bit_length() - 1) // 3


def is_due(segments: Sequence[Segment]) -> bool:
    """Whether the runs are to go into the base."""
    base, *runs = segments
    return _rows(runs) > max(BASE_FLOOR, BASE_FRACTION * base.rows)


def compact(segments: tuple[Segment, ...], arity: int, store: ObjectStore) -> tuple[Segment, ...]:
    """The segments of a relation to which a run was added, with runs merged."""
    base, *runs = segments
    if is_due(segments):
        return _merge_into_base(base, runs, arity, store)
    while len(runs) >= RUNS_PER_TIER:
        tier = _tier(runs[-1].rows)
        same = next((i for i, run in enumerate(reversed(runs)) if _tier(run.rows) > tier), len(runs))
        if same < RUNS_PER_TIER:
            break
        newest_first = runs[: -same - 1 : -1]
        written = [
            _write_blocks(piece, store)
            for piece in _pieces(newest_first, arity, store, drop_tombstones=False)
        ]
        merged = join(written)
        assert merged is not None, "the runs have rows"
        runs[-same:] = [segment_of(merged, store)]
    return (base, *runs)


def _merge_into_base(
    base: Segment, runs: list[Segment], arity: int, store: ObjectStore
) -> tuple[Segment, ...]:
    if _rows(runs) > MERGED_ROWS:
        pieces = _pieces([*reversed(runs), base], arity, store, drop_tombstones=True)
        whole = join([_write_blocks(piece, store) for piece in pieces])
        return () if whole is None else (segment_of(whole, store),)
    index = store.index(base)
    overlay = merge([read_segment(run, store) for run in reversed(runs)], arity, drop_tombstones=False)
    home = _home_blocks(index, overlay.codes)
    touched = np.unique(home)
    kept_rows = int(index.rows.sum()) + len(overlay)
    # Many deletions leave blocks with few rows; then everything is cut anew.
    sparse = len(index) > 2 * (kept_rows // BLOCK_ROWS + 1)
    groups = _groups(np.arange(len(index)) if sparse else touched)
    parts: list[BlockIndex] = []
    done = 0
    for start, stop in groups:
        parts.append(_slice(index, done, start))
        low, high = np.searchsorted(home, [start, stop])
        old = concatenate(store.blocks(index.ids[start:stop]), arity)
        new = merge([overlay.part(int(low), int(high)), old], arity, drop_tombstones=True)
        if len(new):
            parts.append(_write_blocks(new, store))
        done = stop
    parts.append(_slice(index, done, len(index)))
    joined = join([part for part in parts if len(part)])
    return () if joined is None else (segment_of(joined, store),)


def _home_blocks(index: BlockIndex, codes: Codes) -> npt.NDArray[np.int64]:
    """int64[n], ascending: for each tuple the base block into whose key range it falls.

    Block i takes the keys after the last one of block i - 1 up to its own last one; the last block takes the
    rest.
    """
    n = codes.shape[0]
    order = sort_order(np.concatenate([codes, index.last]))
    # Stable, so a tuple equal to a block's last key comes before it: it belongs to that block.
    is_last = order >= n
    home: npt.NDArray[np.int64] = np.cumsum(is_last)[~is_last]
    return np.minimum(home, len(index) - 1, out=home)


def _groups(blocks: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring block numbers as (start, stop), of bounded length."""
    if not len(blocks):
        return
    for part in np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1):
        for start in range(int(part[0]), int(part[-1]) + 1, MERGED_BLOCKS):
            yield start, min(start + MERGED_BLOCKS, int(part[-1]) + 1)


def _slice(index: BlockIndex, start: int, stop: int) -> BlockIndex:
    part = slice(start, stop)
    return BlockIndex(
        index.ids[part],
        index.rows[part],
        index.first[part],
        index.last[part],
        index.low[part],
        index.high[part],
    )


def join(parts: Sequence[BlockIndex]) -> BlockIndex | None:
    """The parts one after the other; None if there are none."""
    if not parts:
        return None
    ids = tuple(name for part in parts for name in part.ids)
    rows = np.concatenate([part.rows for part in parts])
    first, last, low, high = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("first", "last", "low", "high")
    )
    return BlockIndex(ids, rows, first, last, low, high)


def counts_after(counts: TupleCounts, change: Change) -> TupleCounts:
    net = change.net
    return TupleCounts(counts.all + net.present, counts.asserted + net.asserted, counts.derived + net.derived)
