"""Reading the arrays of a resident relation without trusting them.

The kernels follow the numbers in the arrays wherever they lead; an audit must not, because a damaged number would end
its process or never end. So the lists are followed here with numpy, all rows at a time: each step is checked to stay
within the arrays, and no more is read than the counters allow. Costs: a step for each element of the longest list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.resident.layout import (
    ENTRIES,
    FREE,
    KEYS,
    NODES,
    NONE,
    POSTINGS,
    ROWS,
    SIGNED,
    IndexArrays,
    RelationArrays,
)

Ids = npt.NDArray[np.int64]

# As in engine/resident/hashing.py.
_SEED, _MULTIPLIER, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


class Damaged(Exception):
    """A number in the arrays leads nowhere. The text says which, and goes on after the relation's name."""


def rows_in_use(arrays: RelationArrays) -> Ids:
    """The rows that have a support or an entry, ascending.

    Raises:
        Damaged: the counter of rows is wrong.
    """
    used = int(arrays.head[ROWS])
    if not 0 <= used <= len(arrays.rows):
        raise Damaged(f"has room for {len(arrays.rows)} rows, but its counter says {used}")
    heads = arrays.heads[:used]
    found = (heads["entry"] != FREE) & ((heads["entry"] != NONE) | (heads["support"] != NONE))
    return np.flatnonzero(found)


def supports(arrays: RelationArrays, rows: Ids) -> tuple[Ids, Ids, Ids]:
    """(place in `rows`, height, count) of every support. Raises Damaged."""
    first = arrays.heads["support"][rows]
    at, ids = _followed(first, arrays.nodes["next"], int(arrays.head[NODES]), "supports")
    return at, arrays.nodes["height"][ids].astype(np.int64), arrays.nodes["count"][ids]


def entries(arrays: RelationArrays, rows: Ids) -> tuple[Ids, Ids, Ids]:
    """(place in `rows`, entry id, height * 2 + sign) of every entry. Raises Damaged."""
    first = arrays.heads["entry"][rows]
    at, ids = _followed(first, arrays.entries["next"], int(arrays.head[ENTRIES]), "entries")
    return at, ids, arrays.entries["hw"][ids].astype(np.int64)


def _followed(first: npt.NDArray[Any], following: npt.NDArray[Any], used: int, what: str) -> tuple[Ids, Ids]:
    if not 0 <= used <= len(following):
        raise Damaged(f"has room for {len(following)} {what}, but its counter says {used}")
    at, ids = np.arange(len(first)), first.astype(np.int64)
    places: list[Ids] = [np.empty(0, np.int64)]
    found: list[Ids] = [np.empty(0, np.int64)]
    total = 0
    while True:
        going = ids != NONE
        at, ids = at[going], ids[going]
        if not len(ids):
            return np.concatenate(places), np.concatenate(found)
        if int(ids.min()) < 0 or int(ids.max()) >= used:
            raise Damaged(f"has a list of {what} that leads out of its arrays")
        total += len(ids)
        if total > used:
            raise Damaged(f"has lists of {what} that meet or go round in a circle")
        places.append(at)
        found.append(ids)
        ids = following[ids].astype(np.int64)


def check_slots(slots: npt.NDArray[np.int32], hashes: npt.NDArray[np.uint64], members: Ids) -> None:
    """Check that each member is found by probing from its hash: it is in the table once, and no slot before it is
    empty.

    hashes: of all ids that may be in the table. Raises Damaged.
    """
    held = np.flatnonzero(slots != NONE)
    ids = slots[held].astype(np.int64)
    if len(held) == len(slots):
        raise Damaged("has a hash table without an empty slot")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= len(hashes)):
        raise Damaged("has a hash table that leads out of its arrays")
    if not np.array_equal(np.sort(ids), members):
        raise Damaged("has a hash table that does not have each of its members once")
    home = (hashes[ids] & np.uint64(len(slots) - 1)).astype(np.int64)
    empty = np.concatenate(([0], np.cumsum(slots == NONE)))
    # Round the end of the table, where the slot comes before its home.
    between = empty[held] - empty[home] + np.where(held < home, empty[-1], 0)
    if between.any():
        raise Damaged("has a hash table in which some member is not found under its own hash")


def hashes(table: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The hashes of rows, as the kernels compute them."""
    found = np.full(len(table), _SEED)
    for column in table.T:
        found = (found ^ column.astype(np.uint64)) * _MULTIPLIER
        found ^= found >> _SHIFT
    return found


@dataclass(frozen=True, slots=True)
class Postings:
    """Of one index: the tuples, int64[n, arity], and the entry ids, int64[n]."""

    tuples: npt.NDArray[np.int64]
    entries: Ids


def postings(arrays: IndexArrays, arity: int, hw: npt.NDArray[Any]) -> Postings:
    """Every posting of an index, its table and the places of its postings checked. hw: of the relation's entries.

    Raises:
        Damaged: something leads nowhere, or contradicts something else.
    """
    keys = arrays.slots[arrays.slots != NONE].astype(np.int64)
    if not 0 <= int(arrays.head[KEYS]) <= len(arrays.keys):
        raise Damaged("has a wrong counter of keys")
    check_slots(arrays.slots, hashes(arrays.keys[: int(arrays.head[KEYS])]), np.sort(keys))
    starts = arrays.key_start[keys].astype(np.int64)
    counts = arrays.key_count[keys].astype(np.int64)
    room = min(len(arrays.entry), int(arrays.head[POSTINGS]))
    if len(keys) and (counts.min() < 1 or starts.min() < 0 or (starts + counts).max() > room):
        raise Damaged("has a key whose postings lie outside of its arrays")
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(starts, counts) + inside
    ids = arrays.entry[places].astype(np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= min(len(hw), len(arrays.position))):
        raise Damaged("has a posting of an entry that does not exist")
    if (arrays.position[ids] != inside).any():
        raise Damaged("has a posting whose place is noted wrongly")
    bound = np.repeat(arrays.key_bound[keys].astype(np.int64), counts)
    if ((hw[ids] > bound) | ((hw[ids] & 1 != 0) & (bound != SIGNED))).any():
        raise Damaged("has a key with an entry above its greatest height")
    tuples = np.empty((len(places), arity), np.int64)
    tuples[:, arrays.key_columns] = np.repeat(arrays.keys[keys], counts, axis=0)
    tuples[:, arrays.payload_columns] = arrays.payload[places]
    return Postings(tuples, ids)
