"""Scan: a page of one relation out of its base and runs, in the order of the codes.

In: a relation's segments, bound columns, a domain, a position and a limit. Out: sorted rows, newest state of
each tuple. The base is walked from block to block; of each run only the rows in the same key range are looked
at, so a page costs what it reads and not what the relation holds. Blocks whose smallest and largest codes
exclude a bound column are not read. A bound column is part of the key, so rows may be filtered before the
newest of a tuple is picked; the domain is not, so it is filtered after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from engine.storage.blocks import BLOCK_ROWS
from engine.storage.manifest import BlockIndex, RelationManifest
from engine.storage.packed import Wanted
from engine.storage.reader import ObjectReader
from engine.storage.rows import Key, Mask, Rows, above, concatenate, in_domain, members, merge

# Most base blocks that are read in one round trip.
_MOST_BLOCKS = 64
# So many more rows of the base than a page needs are merged at once, because some may be deleted.
_SPARE = 32


async def scan(
    reader: ObjectReader,
    relation: RelationManifest,
    wanted: Wanted,
    domain: str,
    limit: int,
    after: Key | None,
) -> tuple[Rows, bool]:
    """Up to `limit` live rows greater than `after`, and whether there are more."""
    if not relation.segments:
        return concatenate([], relation.arity), False
    base, *runs = await reader.indexes(relation.segments)
    blocks = np.flatnonzero(_may_match(base, wanted, after))
    found: list[Rows] = []
    count, done, portion = 0, 0, 1 + limit // BLOCK_ROWS
    low = after
    while True:
        part = blocks[done : done + portion].tolist()
        last = done + len(part) >= len(blocks)
        high = None if last else base.last_key(part[-1])
        most = limit + 1 - count + _SPARE
        rows, reached = await _range(reader, relation.arity, (base, part), runs, wanted, low, high, most)
        rows = in_domain(rows, domain)
        found.append(rows)
        count += len(rows)
        if count > limit or (last and reached is None):
            break
        if reached is None:
            done += len(part)
            low, portion = high, min(2 * portion, _MOST_BLOCKS)
        else:
            done += sum(base.last_key(block) <= reached for block in part)
            low = reached
        # A long scan over cached blocks never waits for Redis; let others have their turn.
        await asyncio.sleep(0)
    page = concatenate(found, relation.arity)
    return page.part(0, limit), count > limit


async def _range(
    reader: ObjectReader,
    arity: int,
    base: tuple[BlockIndex, list[int]],
    runs: list[BlockIndex],
    wanted: Wanted,
    low: Key | None,
    high: Key | None,
    most: int,
) -> tuple[Rows, Key | None]:
    """The newest state of the matching tuples with low < tuple <= high, and None; where the base has more than `most`
    of them, those up to its row with this number, and the key of that.
    """
    newest_first: list[list[str]] = []
    for run in reversed(runs):
        mask = _may_match(run, wanted, low)
        if high is not None:
            mask &= ~above(run.first, high)
        newest_first.append([run.ids[i] for i in np.flatnonzero(mask).tolist()])
    newest_first.append([base[0].ids[i] for i in base[1]])
    rows = await reader.blocks([name for ids in newest_first for name in ids])
    parts = [
        concatenate([_select(rows[name], wanted, low, high) for name in ids], arity) for ids in newest_first
    ]
    reached = None
    if len(parts[-1]) > most:
        reached = parts[-1].key(most - 1)
        parts = [_select(part, {}, None, reached) for part in parts]
    return merge(parts, arity, drop_tombstones=True), reached


def matching(indexes: Sequence[BlockIndex], wanted: Wanted) -> tuple[int, int]:
    """How many blocks may have rows with the wanted codes, and how many rows these blocks have."""
    masks = [_may_match(index, wanted, None) for index in indexes]
    rows = sum(int(index.rows[mask].sum()) for index, mask in zip(indexes, masks, strict=True))
    return sum(map(np.count_nonzero, masks)), rows


def _may_match(index: BlockIndex, wanted: Wanted, after: Key | None) -> Mask:
    mask = np.ones(len(index), np.bool_)
    for column, codes in wanted.items():
        low, high = index.low[:, column], index.high[:, column]
        # Some code is not below the smallest, and not above the largest of the block.
        mask &= np.searchsorted(codes, low) < np.searchsorted(codes, high, side="right")
    if after is not None:
        mask &= above(index.last, after)
    return mask


def _select(rows: Rows, wanted: Wanted, low: Key | None, high: Key | None) -> Rows:
    mask: Mask | None = None
    for column, codes in wanted.items():
        equal = members(rows.codes[:, column], codes)
        mask = equal if mask is None else mask & equal
    if mask is not None:
        rows = rows.where(mask)
    # The rows are sorted, so a range is a slice; where it is the whole block, nothing is looked for.
    start, stop = 0, len(rows)
    if stop and low is not None and rows.key(0) <= low:
        start = stop - int(np.count_nonzero(above(rows.codes, low)))
    if stop and high is not None and rows.key(stop - 1) > high:
        stop -= int(np.count_nonzero(above(rows.codes, high)))
    return rows if stop - start == len(rows) else rows.part(start, max(start, stop))
