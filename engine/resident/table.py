"""Kernels over one relation: rows, supports by height, entries.

    support[height]   signed number of derivations of that height
    present(k)        the supports up to k sum to more than zero
    entry at k        present(k) - present(k - 1), one of -1, 0, +1

Every kernel that takes from a pool can stop because the pool is full: it returns how far it came, the caller enlarges
the arrays and calls it again from there. A weight overflow returns -1 - i for the offending i; everything before i is
done by then (and undone with the caller's log). Ids are int32, codes and counts int64.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.hashing import hash_row
from engine.resident.index import find_key
from engine.resident.kernels import kernel
from engine.resident.layout import (
    ASSERTED,
    ENTRIES,
    ENTRIES_USED,
    ENTRY_FREE,
    FREE,
    INDEX,
    LIVE,
    NEGATIVE,
    NODE_FREE,
    NODES,
    NODES_USED,
    NONE,
    RELATION,
    ROW_FREE,
    ROWS,
    WARM,
)

I64_1, I64_2 = types.int64[::1], types.int64[:, ::1]
I32_1, I8_1 = types.int32[::1], types.int8[::1]
_BLOCK = 32
_NEAR = 1 << 16
"""Slots of a table that is in the cache: then nothing is waited for."""
_MAX = np.iinfo(np.int64).max
_MIN = np.iinfo(np.int64).min


@numba.njit(inline="always")
def find(r, table, i):
    """The slot of row i of `table`: its row's slot, or the empty one where it would go."""
    arity = r.rows.shape[1]
    mask = r.slots.size - 1
    slot = np.int64(hash_row(table, i, arity)) & mask
    while True:
        row = r.slots[slot]
        if row == NONE:
            return slot
        same = True
        for c in range(arity):
            if r.rows[row, c] != table[i, c]:
                same = False
                break
        if same:
            return slot
        slot = (slot + 1) & mask


@kernel(types.void(RELATION, I32_1))
def rehash(r, slots):
    """Fill the empty table `slots` (a power of two) with the rows in use."""
    arity = r.rows.shape[1]
    mask = slots.size - 1
    for row in range(r.head[ROWS]):
        if r.heads[row]["entry"] != FREE:
            slot = np.int64(hash_row(r.rows, row, arity)) & mask
            while slots[slot] != NONE:
                slot = (slot + 1) & mask
            slots[slot] = row


@kernel(types.int64(RELATION, I64_2, I32_1, I64_1, I32_1, types.int64))
def push(r, tuples, heights, weights, out, begin):
    """support[heights[i]] of tuples[i] += weights[i]; rows are made as needed. out[i] becomes the row id.

    `heights` and `weights` may have one element, which then holds for all. Costs one random access to the table,
    the row, and the node each.
    """
    arity = r.rows.shape[1]
    one_height, one_weight = heights.size == 1, weights.size == 1
    likely = np.empty(_BLOCK, np.int32)
    warm = np.int32(0)
    far = r.slots.size > _NEAR
    for i in range(begin, tuples.shape[0]):
        ahead = (i - begin) % _BLOCK
        if not far:
            likely[ahead] = NONE
        elif ahead == 0:
            # The slots, rows and first nodes of a block are read in three loops of independent loads, so that the
            # processor waits for many cache misses at once; what they find is only a guess for the loop below.
            size = min(_BLOCK, tuples.shape[0] - i)
            mask = r.slots.size - 1
            for b in range(size):
                likely[b] = r.slots[np.int64(hash_row(tuples, i + b, arity)) & mask]
            for b in range(size):
                row = likely[b]
                if row != NONE:
                    for c in range(arity):
                        if r.rows[row, c] != tuples[i + b, c]:
                            likely[b] = NONE
                            break
            for b in range(size):
                if likely[b] != NONE and r.heads[likely[b]]["support"] != NONE:
                    warm ^= r.nodes[r.heads[likely[b]]["support"]]["height"]
        # Room for one row (and its table slot) and one node.
        if r.head[NODE_FREE] == NONE and r.head[NODES] == r.nodes.size:
            return i
        row = likely[ahead]
        slot = np.int64(0)
        if row == NONE:
            slot = find(r, tuples, i)
            row = r.slots[slot]
        if row == NONE:
            if r.head[ROW_FREE] != NONE:
                row = np.int32(r.head[ROW_FREE])
                r.head[ROW_FREE] = r.heads[row]["support"]
            else:
                if r.head[ROWS] == r.rows.shape[0]:
                    return i
                row = np.int32(r.head[ROWS])
                r.head[ROWS] += 1
            if (r.head[LIVE] + 1) * 3 > r.slots.size * 2:
                # Give the row back: the table must grow first.
                r.heads[row]["support"] = r.head[ROW_FREE]
                r.heads[row]["entry"] = FREE
                r.head[ROW_FREE] = row
                return i
            for c in range(arity):
                code = tuples[i, c]
                r.rows[row, c] = code
                if code < r.low[c]:
                    r.low[c] = code
                if code > r.high[c]:
                    r.high[c] = code
            r.heads[row]["support"] = NONE
            r.heads[row]["entry"] = NONE
            r.slots[slot] = row
            r.head[LIVE] += 1
        out[i] = row
        height = heights[0] if one_height else heights[i]
        weight = weights[0] if one_weight else weights[i]
        before = np.int32(NONE)
        node = r.heads[row]["support"]
        while node != NONE and r.nodes[node]["height"] != height:
            before = node
            node = r.nodes[node]["next"]
        if node == NONE:
            if weight == 0:
                continue
            if r.head[NODE_FREE] != NONE:
                node = np.int32(r.head[NODE_FREE])
                r.head[NODE_FREE] = r.nodes[node]["next"]
            else:
                node = np.int32(r.head[NODES])
                r.head[NODES] += 1
            r.nodes[node]["height"] = height
            r.nodes[node]["count"] = weight
            r.nodes[node]["next"] = r.heads[row]["support"]
            r.heads[row]["support"] = node
            r.head[NODES_USED] += 1
            if height == 0:
                r.head[ASSERTED] += 1
        else:
            count = r.nodes[node]["count"]
            if (weight > 0 and count > _MAX - weight) or (weight < 0 and count < _MIN - weight):
                return -1 - i
            count += weight
            if count != 0:
                r.nodes[node]["count"] = count
            else:
                if before == NONE:
                    r.heads[row]["support"] = r.nodes[node]["next"]
                else:
                    r.nodes[before]["next"] = r.nodes[node]["next"]
                r.nodes[node]["next"] = r.head[NODE_FREE]
                r.head[NODE_FREE] = node
                r.head[NODES_USED] -= 1
                if height == 0:
                    r.head[ASSERTED] -= 1
    # `warm` is stored so that the compiler keeps the loads.
    r.head[WARM] = warm
    return tuples.shape[0]


@kernel(
    types.Tuple((I32_1, I64_1, types.int64, I32_1, I32_1))(RELATION, I32_1, I8_1, types.int32, types.boolean),
)
def settle(r, touched, marks, k, signed):
    """Which entries at height k must change so that they are the differences, from height to height, of `distinct` of
    the supports.

    touched: row ids, repeats allowed. marks: scratch, one byte a row, all zero before and after. Returns
    (rows, weights, removals, later, later_heights): what to add to the entry at k of each row (1, -1, 2 or -2), how
    many of them have an entry at k now, and the rows to look at again at a larger height. In an unsigned stratum
    supports are never negative once complete and a tuple has one entry, so fewer heights need a look.
    """
    out = np.empty(touched.size, np.int32)
    weights = np.empty(touched.size, np.int64)
    later = np.empty(16, np.int32)
    later_heights = np.empty(16, np.int32)
    n = m = removals = 0
    for row in touched:
        if marks[row] != 0:
            continue
        marks[row] = 1
        below, upto = np.int64(0), np.int64(0)
        nearest = np.int32(-1)
        nodes = 0
        node = r.heads[row]["support"]
        while node != NONE:
            height = r.nodes[node]["height"]
            if height <= k:
                upto += r.nodes[node]["count"]
                if height < k:
                    below += r.nodes[node]["count"]
            else:
                nodes += 1
                if nearest == -1 or height < nearest:
                    nearest = height
            node = r.nodes[node]["next"]
        have = 0
        entry = r.heads[row]["entry"]
        while entry != NONE:
            hw = r.entries[entry]["hw"]
            if hw >> 1 == k:
                have += 1 - 2 * (hw & 1)
            elif hw >> 1 > k:
                nodes += 1
            entry = r.entries[entry]["next"]
        want = (1 if upto > 0 else 0) - (1 if below > 0 else 0)
        if want != have:
            out[n] = row
            weights[n] = want - have
            n += 1
            if have != 0:
                removals += 1
        if nodes == 0:
            continue
        while m + nodes > later.size:
            later = np.concatenate((later, np.empty(later.size, np.int32)))
            later_heights = np.concatenate((later_heights, np.empty(later_heights.size, np.int32)))
        entry = r.heads[row]["entry"]
        while entry != NONE:
            hw = r.entries[entry]["hw"]
            if hw >> 1 > k:
                later[m] = row
                later_heights[m] = hw >> 1
                m += 1
            entry = r.entries[entry]["next"]
        if signed:
            node = r.heads[row]["support"]
            while node != NONE:
                if r.nodes[node]["height"] > k:
                    later[m] = row
                    later_heights[m] = r.nodes[node]["height"]
                    m += 1
                node = r.nodes[node]["next"]
        elif upto <= 0 and nearest != -1:
            later[m] = row
            later_heights[m] = nearest
            m += 1
    for row in touched:
        marks[row] = 0
    return out[:n], weights[:n], removals, later[:m], later_heights[:m]


@numba.njit(inline="always")
def _ordered(code, is_float):
    """A code as an integer with the order of the values: the order of negative floats is reversed."""
    return code ^ np.int64(_MAX) if is_float and code < 0 else code


@numba.njit(inline="always")
def _presence(r, row, k):
    """The supports of a row below height k, and up to it."""
    below, upto = np.int64(0), np.int64(0)
    node = r.heads[row]["support"]
    while node != NONE:
        if r.nodes[node]["height"] <= k:
            upto += r.nodes[node]["count"]
            if r.nodes[node]["height"] < k:
                below += r.nodes[node]["count"]
        node = r.nodes[node]["next"]
    return below, upto


@kernel(
    types.Tuple((I32_1, I64_1, types.int64, I32_1, I32_1))(
        RELATION, INDEX, I32_1, I8_1, types.int32, types.int64, types.boolean, types.boolean
    ),
)
def settle_groups(r, groups, touched, marks, k, column, largest, is_float):
    """As `settle`, for a relation folded in place: its value at k is the extreme over the tuples present at k.

    groups: an index of all rows by the group's columns (its entry ids are row ids). marks: a byte a key. column: the
    folded one. largest: max, not min. Looks at every row of each touched group: an extreme that goes away is followed
    by the next best without a search.
    """
    out = np.empty(touched.size, np.int32)
    weights = np.empty(touched.size, np.int64)
    later = np.empty(16, np.int32)
    later_heights = np.empty(16, np.int32)
    keys = np.empty(touched.size, np.int32)
    n = m = removals = count = 0
    for row in touched:
        key = groups.slots[find_key(groups, r.rows, row)]
        if marks[key] == 0:
            marks[key] = 1
            keys[count] = key
            count += 1
    for at in range(count):
        key = keys[at]
        marks[key] = 0
        start = np.int64(groups.key_start[key])
        end = start + groups.key_count[key]
        new, old = np.int64(NONE), np.int64(NONE)
        new_value, old_value = np.int64(0), np.int64(0)
        for j in range(start, end):
            row = groups.entry[j]
            below, upto = _presence(r, row, k)
            value = _ordered(r.rows[row, column], is_float)
            if upto > 0 and (new == NONE or (value > new_value if largest else value < new_value)):
                new, new_value = np.int64(row), value
            if below > 0 and (old == NONE or (value > old_value if largest else value < old_value)):
                old, old_value = np.int64(row), value
        for j in range(start, end):
            row = groups.entry[j]
            have = 0
            ahead = 0
            entry = r.heads[row]["entry"]
            while entry != NONE:
                hw = r.entries[entry]["hw"]
                if hw >> 1 == k:
                    have += 1 - 2 * (hw & 1)
                elif hw >> 1 > k:
                    ahead += 1
                entry = r.entries[entry]["next"]
            node = r.heads[row]["support"]
            while node != NONE:
                if r.nodes[node]["height"] > k:
                    ahead += 1
                node = r.nodes[node]["next"]
            if m + ahead > later.size:
                more = max(ahead, later.size)
                later = np.concatenate((later, np.empty(more, np.int32)))
                later_heights = np.concatenate((later_heights, np.empty(more, np.int32)))
            entry = r.heads[row]["entry"]
            while entry != NONE:
                if r.entries[entry]["hw"] >> 1 > k:
                    later[m] = row
                    later_heights[m] = r.entries[entry]["hw"] >> 1
                    m += 1
                entry = r.entries[entry]["next"]
            node = r.heads[row]["support"]
            while node != NONE:
                if r.nodes[node]["height"] > k:
                    later[m] = row
                    later_heights[m] = r.nodes[node]["height"]
                    m += 1
                node = r.nodes[node]["next"]
            want = (1 if row == new else 0) - (1 if row == old else 0)
            if want != have:
                if n == out.size:
                    out = np.concatenate((out, np.empty(n + 16, np.int32)))
                    weights = np.concatenate((weights, np.empty(n + 16, np.int64)))
                out[n] = row
                weights[n] = want - have
                n += 1
                if have != 0:
                    removals += 1
    return out[:n], weights[:n], removals, later[:m], later_heights[:m]


@kernel(types.int64(RELATION, I32_1, I64_1, types.int32, I32_1, I32_1))
def remove_entries(r, rows, weights, k, out_rows, out_entries):
    """Take away the entries at height k that the change leaves out or turns round; returns how many.

    Their ids stand in out_entries (for the indexes) and are free for reuse from now on.
    """
    n = 0
    for i in range(rows.size):
        row = rows[i]
        before = np.int32(NONE)
        entry = r.heads[row]["entry"]
        while entry != NONE and r.entries[entry]["hw"] >> 1 != k:
            before = entry
            entry = r.entries[entry]["next"]
        if entry == NONE:
            continue
        if before == NONE:
            r.heads[row]["entry"] = r.entries[entry]["next"]
        else:
            r.entries[before]["next"] = r.entries[entry]["next"]
        if r.entries[entry]["hw"] & 1:
            r.head[NEGATIVE] -= 1
        r.entries[entry]["next"] = r.head[ENTRY_FREE]
        r.head[ENTRY_FREE] = entry
        r.head[ENTRIES_USED] -= 1
        out_rows[n] = row
        out_entries[n] = entry
        # What is left of the change, for `add_entries`: from the removed weight to the wanted one.
        weights[i] += 1 - 2 * (r.entries[entry]["hw"] & 1)
        n += 1
    return n


@kernel(types.int64(RELATION, I32_1, I64_1, types.int32, I32_1, I32_1))
def add_entries(r, rows, weights, k, out_rows, out_entries):
    """Add an entry at height k of weight weights[i] (1, -1, or 0 for none); returns how many were added.

    Runs after `remove_entries` of the same batch; the caller has reserved room for rows.size entries.
    """
    n = 0
    for i in range(rows.size):
        if weights[i] == 0:
            continue
        row = rows[i]
        if r.head[ENTRY_FREE] != NONE:
            entry = np.int32(r.head[ENTRY_FREE])
            r.head[ENTRY_FREE] = r.entries[entry]["next"]
        else:
            entry = np.int32(r.head[ENTRIES])
            r.head[ENTRIES] += 1
        r.head[ENTRIES_USED] += 1
        if weights[i] < 0:
            r.head[NEGATIVE] += 1
        r.entries[entry]["hw"] = k * 2 + (1 if weights[i] < 0 else 0)
        r.entries[entry]["next"] = r.heads[row]["entry"]
        r.heads[row]["entry"] = entry
        out_rows[n] = row
        out_entries[n] = entry
        n += 1
    return n


@kernel(types.int64(RELATION, I32_1, I32_1, I32_1))
def list_entries(r, out_rows, out_entries, out_hw):
    """All entries: row, id and height-weight. The arrays hold head[ENTRIES_USED]; the last may be empty."""
    n = 0
    for row in range(r.head[ROWS]):
        entry = r.heads[row]["entry"]
        if entry == FREE:
            continue
        while entry != NONE:
            out_rows[n] = row
            out_entries[n] = entry
            if out_hw.size > 0:
                out_hw[n] = r.entries[entry]["hw"]
            n += 1
            entry = r.entries[entry]["next"]
    return n


@kernel(types.void(RELATION, I32_1, I64_1, I64_1, I64_1, I64_1))
def describe(r, rows, asserted, derived, present, height):
    """For each row: support at height 0, supports above it summed up, entries summed up, and the height of the last
    entry of weight +1 if they sum up to more than 0, else 0.
    """
    for i in range(rows.size):
        a, d, p, h = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        node = r.heads[rows[i]]["support"]
        while node != NONE:
            if r.nodes[node]["height"] == 0:
                a += r.nodes[node]["count"]
            else:
                d += r.nodes[node]["count"]
            node = r.nodes[node]["next"]
        entry = r.heads[rows[i]]["entry"]
        while entry != NONE:
            hw = r.entries[entry]["hw"]
            p += 1 - 2 * (hw & 1)
            if hw & 1 == 0:
                h = max(h, np.int64(hw >> 1))
            entry = r.entries[entry]["next"]
        asserted[i], derived[i], present[i], height[i] = a, d, p, h if p > 0 else 0


@kernel(I64_2(RELATION, types.Tuple((I32_1, I32_1, I64_1)), types.Tuple((I32_1, I32_1, I64_1))))
def moved(r, pushes, entries):
    """The rows of a journal, ascending: int64[n, 9] of the row, `describe` now, and `describe` before the journal.

    pushes, entries: (rows, heights, weights).
    """
    pushed, heights, weights = pushes
    changed, at, moves = entries
    rows = np.sort(np.concatenate((pushed, changed)))
    n = 0
    for i in range(rows.size):
        if i == 0 or rows[i] != rows[n - 1]:
            rows[n] = rows[i]
            n += 1
    rows = rows[:n]
    # The changes of entries by row and height, each sum once; and what is there now at these heights.
    keys = np.empty(changed.size, np.int64)
    for i in range(changed.size):
        keys[i] = (np.int64(changed[i]) << 32) | at[i]
    order = np.argsort(keys)
    ids, sums = np.empty(changed.size, np.int64), np.zeros(changed.size, np.int64)
    m = 0
    for i in order:
        if m == 0 or keys[i] != ids[m - 1]:
            ids[m] = keys[i]
            m += 1
        sums[m - 1] += moves[i]
    ids = ids[:m]
    found = np.zeros((n, 9), np.int64)
    for i in range(n):
        found[i, 0] = rows[i]
        node = r.heads[rows[i]]["support"]
        while node != NONE:
            found[i, 1 if r.nodes[node]["height"] == 0 else 2] += r.nodes[node]["count"]
            node = r.nodes[node]["next"]
        entry = r.heads[rows[i]]["entry"]
        while entry != NONE:
            hw = r.entries[entry]["hw"]
            weight, height = 1 - 2 * (hw & 1), np.int64(hw >> 1)
            found[i, 3] += weight
            if weight > 0:
                found[i, 4] = max(found[i, 4], height)
            key = (np.int64(rows[i]) << 32) | height
            place = np.searchsorted(ids, key)
            if place < m and ids[place] == key:
                # What was there before the journal.
                sums[place] -= weight
            elif weight > 0:
                found[i, 8] = max(found[i, 8], height)
            entry = r.entries[entry]["next"]
        for c in range(3):
            found[i, 5 + c] = found[i, 1 + c]
    for i in range(pushed.size):
        place = np.searchsorted(rows, pushed[i])
        found[place, 5 if heights[i] == 0 else 6] -= weights[i]
    for i in range(changed.size):
        found[np.searchsorted(rows, changed[i]), 7] -= moves[i]
    for i in range(m):
        if sums[i] < 0:
            place = np.searchsorted(rows, ids[i] >> 32)
            found[place, 8] = max(found[place, 8], ids[i] & 0xFFFFFFFF)
    for i in range(n):
        if found[i, 3] <= 0:
            found[i, 4] = 0
        if found[i, 7] <= 0:
            found[i, 8] = 0
    return found


@kernel(types.void(RELATION, I64_2, I32_1))
def look_up(r, tuples, out):
    """The row id of each tuple, or NONE."""
    for i in range(tuples.shape[0]):
        out[i] = r.slots[find(r, tuples, i)]


@kernel(types.int64(RELATION, I32_1))
def live_rows(r, out):
    """All rows in use, ascending; `out` holds head[LIVE]."""
    n = 0
    for row in range(r.head[ROWS]):
        if r.heads[row]["entry"] != FREE:
            out[n] = row
            n += 1
    return n


@kernel(types.int64(RELATION, I32_1))
def free_rows(r, rows):
    """Drop those of `rows` that have neither support nor entry; returns how many went.

    Deleting from an open-addressing table moves later members of the same run back (no tombstones), so a table
    that shrinks stays as fast as a new one. An id may stand in `rows` twice.
    """
    arity = r.rows.shape[1]
    mask = r.slots.size - 1
    n = 0
    for row in rows:
        if r.heads[row]["entry"] != NONE or r.heads[row]["support"] != NONE:
            continue
        hole = find(r, r.rows, row)
        slot = (hole + 1) & mask
        while r.slots[slot] != NONE:
            home = np.int64(hash_row(r.rows, r.slots[slot], arity)) & mask
            # May the member at `slot` move to the hole? Only if its home is not between the two.
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                r.slots[hole] = r.slots[slot]
                hole = slot
            slot = (slot + 1) & mask
        r.slots[hole] = NONE
        r.heads[row]["entry"] = FREE
        r.heads[row]["support"] = r.head[ROW_FREE]
        r.head[ROW_FREE] = row
        r.head[LIVE] -= 1
        n += 1
    return n


@kernel(types.int64(RELATION, I32_1, I32_1, I32_1, I64_1))
def list_supports(r, rows, out, heights, counts):
    """Every support of `rows`: position in `rows`, height, count; the arrays hold head[NODES_USED]."""
    n = 0
    for i in range(rows.size):
        node = r.heads[rows[i]]["support"]
        while node != NONE:
            out[n] = i
            heights[n] = r.nodes[node]["height"]
            counts[n] = r.nodes[node]["count"]
            n += 1
            node = r.nodes[node]["next"]
    return n
