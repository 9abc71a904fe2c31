"""Kernels that build tables and indexes whole, from rows that are known to be distinct.

Adding one tuple after the other costs a cache miss wherever a table is larger than the cache, and copies whenever an
array grows. Here sizes are counted first, and a large table is filled one part after the other (Manegold et al.,
Optimizing main-memory join on modern hardware, TKDE 14(4), 2002): rows are distributed by the upper bits of their slot,
so that the slots of one part stay in the cache.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.hashing import hash_row, mix, seed
from engine.resident.index import ENTRY_RECORDS, find_key
from engine.resident.kernels import kernel
from engine.resident.layout import (
    ASSERTED,
    ENTRIES,
    ENTRIES_USED,
    HELD,
    INDEX,
    KEYS,
    KEYS_USED,
    LIVE,
    NODES,
    NODES_USED,
    NONE,
    POSTINGS,
    RELATION,
    ROWS,
    SIGNED,
)

I64_1, I64_2, I32_1 = types.int64[::1], types.int64[:, ::1], types.int32[::1]
_MOST = np.iinfo(np.int64).max
_PART = 1 << 15
"""Slots of a part: 128 KiB."""


@numba.njit(nogil=True)
def _in_parts(homes, shift, parts):
    """The numbers 0 .. n - 1 ordered by homes[i] >> shift."""
    ends = np.zeros(parts + 1, np.int64)
    for i in range(homes.size):
        ends[(homes[i] >> shift) + 1] += 1
    for part in range(parts):
        ends[part + 1] += ends[part]
    order = np.empty(homes.size, np.int32)
    for i in range(homes.size):
        part = homes[i] >> shift
        order[ends[part]] = i
        ends[part] += 1
    return order


@kernel(types.void(RELATION, I32_1))
def fill_slots(r, slots):
    """Fill the empty table `slots` (a power of two) with all rows; all of them are in use."""
    arity = r.rows.shape[1]
    n = r.head[ROWS]
    mask = slots.size - 1
    homes = np.empty(n, np.int32)
    for row in range(n):
        homes[row] = np.int64(hash_row(r.rows, row, arity)) & mask
    if slots.size <= 4 * _PART:
        for row in range(n):
            slot = np.int64(homes[row])
            while slots[slot] != NONE:
                slot = (slot + 1) & mask
            slots[slot] = row
        return
    shift = 15
    for row in _in_parts(homes, shift, slots.size >> shift):
        slot = np.int64(homes[row])
        while slots[slot] != NONE:
            slot = (slot + 1) & mask
        slots[slot] = row


@kernel(types.void(RELATION, RELATION))
def append(r, part):
    """Append all rows of `part` with their supports and entries; r has room for them, none of its rows is equal to one
    of these, and its slots are not looked at. All rows, nodes and entries of `part` are in use.
    """
    arity = r.rows.shape[1]
    row, node, entry = r.head[ROWS], r.head[NODES], r.head[ENTRIES]
    rows, nodes, entries = part.head[ROWS], part.head[NODES], part.head[ENTRIES]
    for i in range(rows):
        for c in range(arity):
            r.rows[row + i, c] = part.rows[i, c]
        support, first = part.heads[i]["support"], part.heads[i]["entry"]
        r.heads[row + i]["support"] = support if support == NONE else support + node
        r.heads[row + i]["entry"] = first if first == NONE else first + entry
    for i in range(nodes):
        following = part.nodes[i]["next"]
        r.nodes[node + i]["count"] = part.nodes[i]["count"]
        r.nodes[node + i]["height"] = part.nodes[i]["height"]
        r.nodes[node + i]["next"] = following if following == NONE else following + node
    for i in range(entries):
        following = part.entries[i]["next"]
        r.entries[entry + i]["hw"] = part.entries[i]["hw"]
        r.entries[entry + i]["next"] = following if following == NONE else following + entry
    for c in range(arity):
        r.low[c] = min(r.low[c], part.low[c])
        r.high[c] = max(r.high[c], part.high[c])
    r.head[ROWS] += rows
    r.head[LIVE] += rows
    r.head[NODES] += nodes
    r.head[NODES_USED] += nodes
    r.head[ENTRIES] += entries
    r.head[ENTRIES_USED] += entries
    r.head[ASSERTED] += part.head[ASSERTED]


@numba.njit(inline="always")
def _hash(ix, rows, row):
    h = seed()
    for c in range(ix.key_columns.size):
        h = mix(h, rows[row, ix.key_columns[c]])
    return h


@kernel(types.Tuple((I32_1, I32_1, I32_1))(INDEX, I64_2, I32_1))
def number_keys(ix, rows, row_ids):
    """The keys of rows, numbered by first use: (key of each row, a row of each key, rows of each key). ix: says which
    columns they are.
    """
    n = row_ids.size
    keys = np.empty(n, np.int32)
    first = np.empty(16, np.int32)
    counts = np.empty(16, np.int32)
    used = 0
    columns = ix.key_columns.size
    if columns == 1:
        column = ix.key_columns[0]
        low, high = _MOST, -_MOST
        for i in range(n):
            low, high = min(low, rows[row_ids[i], column]), max(high, rows[row_ids[i], column])
        span = high - low
        if 0 <= span < 2 * n + 64:
            # The codes lie closely together: their own table, without a hash and a comparison.
            numbers = np.full(span + 1, NONE, np.int32)
            for i in range(n):
                place = rows[row_ids[i], column] - low
                key = numbers[place]
                if key == NONE:
                    if used == first.size:
                        first = np.concatenate((first, np.empty(used, np.int32)))
                        counts = np.concatenate((counts, np.empty(used, np.int32)))
                    key = numbers[place] = np.int32(used)
                    first[used] = row_ids[i]
                    counts[used] = 0
                    used += 1
                keys[i] = key
                counts[key] += 1
            return keys, first[:used], counts[:used]
    size = 64
    slots = np.full(size, NONE, np.int32)
    mask = size - 1
    for i in range(n):
        row = row_ids[i]
        h = _hash(ix, rows, row)
        slot = np.int64(h) & mask
        while True:
            key = slots[slot]
            if key == NONE:
                break
            other = first[key]
            same = True
            for c in range(columns):
                if rows[other, ix.key_columns[c]] != rows[row, ix.key_columns[c]]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & mask
        if key == NONE:
            if used == first.size:
                first = np.concatenate((first, np.empty(used, np.int32)))
                counts = np.concatenate((counts, np.empty(used, np.int32)))
            key = np.int32(used)
            first[used] = row
            counts[used] = 0
            slots[slot] = key
            used += 1
            if used * 3 > size * 2:
                size *= 2
                mask = size - 1
                slots = np.full(size, NONE, np.int32)
                for other in range(used):
                    place = np.int64(_hash(ix, rows, first[other])) & mask
                    while slots[place] != NONE:
                        place = (place + 1) & mask
                    slots[place] = other
        keys[i] = key
        counts[key] += 1
    return keys, first[:used], counts[:used]


@kernel(types.void(INDEX, I64_2, I32_1, I32_1, ENTRY_RECORDS, I32_1, I32_1, I32_1))
def fill_index(ix, rows, row_ids, ids, entries, keys, first, counts):
    """Fill an empty index, whose arrays have room: a posting for the entry ids[i] of row row_ids[i], under the key
    keys[i] of `number_keys`.
    """
    columns, payload = ix.key_columns.size, ix.payload_columns.size
    end = np.int64(0)
    for key in range(first.size):
        row = first[key]
        slot = find_key(ix, rows, row)
        ix.slots[slot] = key
        for c in range(columns):
            ix.keys[key, c] = rows[row, ix.key_columns[c]]
        size_class = 0
        while (1 << size_class) < counts[key]:
            size_class += 1
        ix.key_start[key] = end
        ix.key_count[key] = 0
        ix.key_class[key] = size_class
        ix.key_bound[key] = 0
        end += np.int64(1) << size_class
    for i in range(row_ids.size):
        key = keys[i]
        place = np.int64(ix.key_start[key]) + ix.key_count[key]
        entry = ids[i]
        ix.entry[place] = entry
        for c in range(payload):
            ix.payload[place, c] = rows[row_ids[i], ix.payload_columns[c]]
        ix.position[entry] = ix.key_count[key]
        ix.key_count[key] += 1
        hw = entries[entry]["hw"]
        if hw & 1:
            ix.key_bound[key] = SIGNED
        elif hw > ix.key_bound[key]:
            ix.key_bound[key] = hw
    ix.head[KEYS] = first.size
    ix.head[KEYS_USED] = first.size
    ix.head[POSTINGS] = end
    ix.head[HELD] = end


@kernel(types.Tuple((I32_1, I64_1))(I64_1, types.int64))
def by_part(values, bits):
    """Numbers 0 .. n - 1 ordered by a hash of `values` of so many bits, and where each part begins; at last, n."""
    parts = 1 << bits
    homes = np.empty(values.size, np.int32)
    for i in range(values.size):
        homes[i] = np.int64(mix(seed(), values[i])) & (parts - 1)
    begins = np.zeros(parts + 1, np.int64)
    for i in range(homes.size):
        begins[homes[i] + 1] += 1
    for part in range(parts):
        begins[part + 1] += begins[part]
    return _in_parts(homes, 0, parts), begins
