"""How a stored relation grows: one run per epoch, with runs merged now and then.

In: the relation as the last epoch left it and the epoch's change. Out: the relation after it. The blocks that already
exist are never changed; new ones go into the store.

A small change becomes one small run. Runs of about the same size are merged by eights (size-tiered, as in
log-structured merge trees: O'Neil et al. 1996), so a relation has O(log n) runs and a row is rewritten O(log
n) times. When all runs together pass a fraction of the base they are merged into it; only the base blocks
whose key range they touch are written again. A tombstone goes when nothing is left below it.

TupleCounts stay exact: a change says what each tuple was before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.maintenance.change import RelationChange
from engine.storage.blocks import BLOCK_ROWS, Present, encode_block
from engine.storage.manifest import BLOCK, BlockIndex, RelationManifest, Segment, TupleCounts
from engine.storage.objects import ObjectStore
from engine.storage.rows import Rows, concatenate, empty_rows, merge, rows_in_order, sort_order

# Runs of one size class that are merged into one; each class is eight times as large as the one before.
RUNS_PER_TIER = 8
# Runs go into the base when they have more rows than this fraction of it (and than a quarter of a block).
BASE_FRACTION = 0.25
BASE_FLOOR = BLOCK_ROWS // 4
# Base blocks that are merged at a time, so that memory stays bounded.
MERGED_BLOCKS = 256

EMPTY = TupleCounts(0, 0, 0)


def apply_change(
    relation: RelationManifest | None, counts: TupleCounts, change: RelationChange, store: ObjectStore
) -> tuple[RelationManifest, TupleCounts, Segment]:
    """The relation and its counts after the change, and the change itself as a segment with `present`."""
    order = sort_order(change.codes)
    rows = rows_in_order(change.codes, change.asserted, change.derived, change.hidden, change.height, order)
    arity, present = rows.arity, change.present.take(order)
    delta = write_segment(rows, store, present)
    after = _counts_after(counts, change)
    if after.all == 0:
        return RelationManifest(arity, ()), after, delta
    old = relation.segments if relation is not None else ()
    if not old:
        live = rows.live
        base = delta if bool(live.all()) else write_segment(rows.where(live), store)
        return RelationManifest(arity, (base,)), after, delta
    return RelationManifest(arity, _compact((*old, delta), arity, store)), after, delta


def write_segment(rows: Rows, store: ObjectStore, present: Present | None = None) -> Segment:
    """Sorted rows (at least one) as blocks."""
    return _segment(_write_blocks(rows, store, present), store)


def read_segment(segment: Segment, store: ObjectStore) -> Rows:
    """All rows of a segment."""
    index = store.index(segment)
    return concatenate(store.blocks(index.ids), index.first.shape[1])


def read_facts(relation: RelationManifest, store: ObjectStore) -> Rows:
    """The tuples of a relation that are asserted. Of the base, the largest part, only these are put together."""
    if not relation.segments:
        return empty_rows(relation.arity)
    base, *runs = relation.segments
    ids = store.index(base).ids
    facts = [
        block.where(block.asserted != 0)
        for start in range(0, len(ids), MERGED_BLOCKS)
        for block in store.blocks(ids[start : start + MERGED_BLOCKS])
    ]
    newest_first = [read_segment(run, store) for run in reversed(runs)]
    merged = merge([*newest_first, concatenate(facts, relation.arity)], relation.arity, drop_tombstones=True)
    return merged if bool(merged.asserted.all()) else merged.where(merged.asserted != 0)


def read_parts(relation: RelationManifest, store: ObjectStore) -> Iterator[Rows]:
    """All rows of a relation, in order and in parts, so that only some of the blocks of its base are in memory."""
    if not relation.segments:
        return
    base, *runs = relation.segments
    arity, index = relation.arity, store.index(base)
    overlay = merge([read_segment(run, store) for run in reversed(runs)], arity, drop_tombstones=False)
    home = _home_blocks(index, overlay.codes)
    for start in range(0, len(index), MERGED_BLOCKS):
        stop = min(start + MERGED_BLOCKS, len(index))
        low, high = np.searchsorted(home, [start, stop]).tolist()
        blocks = concatenate(store.blocks(index.ids[start:stop]), arity)
        yield merge([overlay.part(low, high), blocks], arity, drop_tombstones=True)


def _write_blocks(rows: Rows, store: ObjectStore, present: Present | None = None) -> BlockIndex:
    # Even parts, so that a block that grew by a few rows does not leave a block of a few rows behind.
    cuts = np.linspace(0, len(rows), max(1, round(len(rows) / BLOCK_ROWS)) + 1).astype(np.int64)
    starts, stops = cuts[:-1], cuts[1:]
    ids: list[str] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        part = rows.part(start, stop)
        ids.append(store.put(BLOCK, encode_block(part, None if present is None else present[start:stop])))
    if len(ids) == 1:
        # Small, and most often a run that is merged soon; the blocks of large segments are read when needed.
        store.remember(ids[0], rows)
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


def _segment(index: BlockIndex, store: ObjectStore) -> Segment:
    rows = int(index.rows.sum())
    return Segment(rows, None, index) if len(index) == 1 else Segment(rows, store.put_index(index), None)


def _tier(rows: int) -> int:
    """The size class of a run: the number of octal digits of its rows."""
    return (max(rows, 1).bit_length() - 1) // 3


def _compact(segments: tuple[Segment, ...], arity: int, store: ObjectStore) -> tuple[Segment, ...]:
    base, *runs = segments
    run_rows = sum(run.rows for run in runs)
    if run_rows > max(BASE_FLOOR, BASE_FRACTION * base.rows):
        return _merge_into_base(base, runs, arity, store)
    while len(runs) >= RUNS_PER_TIER:
        tier = _tier(runs[-1].rows)
        same = next((i for i, run in enumerate(reversed(runs)) if _tier(run.rows) > tier), len(runs))
        if same < RUNS_PER_TIER:
            break
        newest_first = [read_segment(run, store) for run in reversed(runs[-same:])]
        merged = write_segment(merge(newest_first, arity, drop_tombstones=False), store)
        runs[-same:] = [merged]
    return (base, *runs)


def _merge_into_base(
    base: Segment, runs: list[Segment], arity: int, store: ObjectStore
) -> tuple[Segment, ...]:
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
    joined = _join([part for part in parts if len(part)])
    return () if joined is None else (_segment(joined, store),)


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


def _join(parts: list[BlockIndex]) -> BlockIndex | None:
    if not parts:
        return None
    ids = tuple(name for part in parts for name in part.ids)
    rows = np.concatenate([part.rows for part in parts])
    first, last, low, high = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("first", "last", "low", "high")
    )
    return BlockIndex(ids, rows, first, last, low, high)


def _counts_after(counts: TupleCounts, change: RelationChange) -> TupleCounts:
    return TupleCounts(
        counts.all + int(change.present.sum(dtype=np.int64)),
        counts.asserted + int(np.count_nonzero(change.asserted)) - int(np.count_nonzero(change.was_asserted)),
        counts.derived + int(np.count_nonzero(change.derived)) - int(np.count_nonzero(change.was_derived)),
    )
