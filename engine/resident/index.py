"""Kernels over one hash index: from the codes of the key's columns to a block of postings.

A posting consists of the codes of the other columns (the payload) and its entry's id, so that a join reads one
contiguous block for each key and touches nothing else. Blocks have sizes 2**c; a full one moves to a block twice as
large and its old place goes to the free list of its size. `position` finds an entry's posting in O(1).
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.hashing import mix, seed
from engine.resident.kernels import kernel
from engine.resident.layout import (
    BLOCK_FREE,
    ENTRY,
    HELD,
    INDEX,
    KEY_FREE,
    KEYS,
    KEYS_USED,
    NONE,
    POSTINGS,
    SIGNED,
)

I64_1, I64_2 = types.int64[::1], types.int64[:, ::1]
I32_1 = types.int32[::1]
ENTRY_RECORDS = numba.typeof(np.empty(1, ENTRY))


@numba.njit(inline="always")
def find_key(ix, table, i):
    """The slot of the key that row i of `table` (all columns of the relation) has, or an empty slot."""
    mask = ix.slots.size - 1
    columns = ix.key_columns.size
    h = seed()
    for c in range(columns):
        h = mix(h, table[i, ix.key_columns[c]])
    slot = np.int64(h) & mask
    while True:
        key = ix.slots[slot]
        if key == NONE:
            return slot
        same = True
        for c in range(columns):
            if ix.keys[key, c] != table[i, ix.key_columns[c]]:
                same = False
                break
        if same:
            return slot
        slot = (slot + 1) & mask


@numba.njit(inline="always")
def hash_key(ix, key):
    h = seed()
    for c in range(ix.key_columns.size):
        h = mix(h, ix.keys[key, c])
    return h


@kernel(types.void(INDEX, I32_1))
def rehash_keys(ix, slots):
    """Fill the empty table `slots` with the keys in use."""
    mask = slots.size - 1
    for old in range(ix.slots.size):
        key = ix.slots[old]
        if key != NONE:
            slot = np.int64(hash_key(ix, key)) & mask
            while slots[slot] != NONE:
                slot = (slot + 1) & mask
            slots[slot] = key


@numba.njit(inline="always")
def _has_block(ix, size_class):
    return (
        ix.head[BLOCK_FREE + size_class] != NONE
        or ix.head[POSTINGS] + (np.int64(1) << size_class) <= ix.entry.size
    )


@numba.njit(inline="always")
def _take_block(ix, size_class):
    ix.head[HELD] += np.int64(1) << size_class
    start = ix.head[BLOCK_FREE + size_class]
    if start != NONE:
        ix.head[BLOCK_FREE + size_class] = ix.entry[start]
        return start
    start = ix.head[POSTINGS]
    ix.head[POSTINGS] += np.int64(1) << size_class
    return start


@numba.njit(inline="always")
def _free_block(ix, start, size_class):
    ix.head[HELD] -= np.int64(1) << size_class
    ix.entry[start] = np.int32(ix.head[BLOCK_FREE + size_class])
    ix.head[BLOCK_FREE + size_class] = start


@kernel(types.int64(INDEX, I64_2, I32_1, I32_1, ENTRY_RECORDS, types.int64))
def add_postings(ix, rows, row_ids, ids, entries, begin):
    """A posting for the entry ids[i] of row row_ids[i]; returns how far it came before room ran out.

    `entries` is the relation's. `position` must hold the entries' capacity.
    """
    columns, payload = ix.key_columns.size, ix.payload_columns.size
    for i in range(begin, row_ids.size):
        row = row_ids[i]
        slot = find_key(ix, rows, row)
        key = ix.slots[slot]
        if key == NONE:
            if (ix.head[KEYS_USED] + 1) * 3 > ix.slots.size * 2 or not _has_block(ix, 0):
                return i
            if ix.head[KEY_FREE] != NONE:
                key = np.int32(ix.head[KEY_FREE])
                ix.head[KEY_FREE] = ix.key_start[key]
            else:
                if ix.head[KEYS] == ix.key_start.size:
                    return i
                key = np.int32(ix.head[KEYS])
                ix.head[KEYS] += 1
            ix.head[KEYS_USED] += 1
            for c in range(columns):
                ix.keys[key, c] = rows[row, ix.key_columns[c]]
            ix.key_start[key] = _take_block(ix, 0)
            ix.key_count[key] = 0
            ix.key_class[key] = 0
            ix.key_bound[key] = 0
            ix.slots[slot] = key
        count = ix.key_count[key]
        size_class = ix.key_class[key]
        if count == np.int64(1) << size_class:
            if not _has_block(ix, size_class + 1):
                return i
            old = ix.key_start[key]
            new = _take_block(ix, size_class + 1)
            for j in range(count):
                ix.entry[new + j] = ix.entry[old + j]
                for c in range(payload):
                    ix.payload[new + j, c] = ix.payload[old + j, c]
            _free_block(ix, old, size_class)
            ix.key_start[key] = new
            ix.key_class[key] = size_class + 1
        place = ix.key_start[key] + count
        entry = ids[i]
        ix.entry[place] = entry
        for c in range(payload):
            ix.payload[place, c] = rows[row, ix.payload_columns[c]]
        ix.position[entry] = count
        ix.key_count[key] = count + 1
        hw = entries[entry]["hw"]
        if hw & 1:
            ix.key_bound[key] = SIGNED
        elif hw > ix.key_bound[key]:
            ix.key_bound[key] = hw
    return row_ids.size


@kernel(types.void(INDEX, I64_2, I32_1, I32_1))
def remove_postings(ix, rows, row_ids, entries):
    """Take the postings of `entries` out: the block's last moves to the hole; an empty key goes altogether."""
    payload = ix.payload_columns.size
    mask = ix.slots.size - 1
    for i in range(row_ids.size):
        slot = find_key(ix, rows, row_ids[i])
        key = ix.slots[slot]
        start = ix.key_start[key]
        last = ix.key_count[key] - 1
        hole = ix.position[entries[i]]
        if hole != last:
            moved = ix.entry[start + last]
            ix.entry[start + hole] = moved
            for c in range(payload):
                ix.payload[start + hole, c] = ix.payload[start + last, c]
            ix.position[moved] = hole
        ix.key_count[key] = last
        size_class = ix.key_class[key]
        if last > 0:
            continue
        _free_block(ix, start, size_class)
        # Close the hole in the table of keys, as in table.free_rows.
        gap = slot
        slot = (gap + 1) & mask
        while ix.slots[slot] != NONE:
            home = np.int64(hash_key(ix, ix.slots[slot])) & mask
            if ((slot - home) & mask) >= ((slot - gap) & mask):
                ix.slots[gap] = ix.slots[slot]
                gap = slot
            slot = (slot + 1) & mask
        ix.slots[gap] = NONE
        ix.key_start[key] = np.int32(ix.head[KEY_FREE])
        ix.head[KEY_FREE] = key
        ix.head[KEYS_USED] -= 1


@kernel(types.void(INDEX, I64_2, I32_1))
def compact(ix, payload, entry):
    """Move every key's block to the start of the new arrays, one after the other; no block is free afterwards."""
    end = np.int64(0)
    for slot in range(ix.slots.size):
        key = ix.slots[slot]
        if key == NONE:
            continue
        start = ix.key_start[key]
        for j in range(ix.key_count[key]):
            entry[end + j] = ix.entry[start + j]
            for c in range(payload.shape[1]):
                payload[end + j, c] = ix.payload[start + j, c]
        ix.key_start[key] = end
        end += np.int64(1) << ix.key_class[key]
    ix.head[POSTINGS] = end
    ix.head[BLOCK_FREE:] = NONE


@kernel(types.int64(INDEX, I64_2, I64_2, I32_1))
def list_postings(ix, keys, payload, entries):
    """All postings: key codes, payload codes, entry id; for descriptions and checks of the state."""
    n = 0
    for slot in range(ix.slots.size):
        key = ix.slots[slot]
        if key == NONE:
            continue
        for j in range(ix.key_count[key]):
            for c in range(ix.key_columns.size):
                keys[n, c] = ix.keys[key, c]
            for c in range(ix.payload_columns.size):
                payload[n, c] = ix.payload[ix.key_start[key] + j, c]
            entries[n] = ix.entry[ix.key_start[key] + j]
            n += 1
    return n
