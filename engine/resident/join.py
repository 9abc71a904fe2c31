"""Kernels of one step of a delta plan: bindings in, bindings out.

A table of bindings is int64[n, variables] with a height and a weight for each row (one element holds for all).
The step joins it with an index and keeps the `carry` columns and some payload columns:

    out(carry, payload, max(height, entry's height)) += weight * entry's weight

`expand` writes every derivation. `accumulate` is used if a variable is dropped: it walks the bindings grouped by
(carry, height) and sums one group's derivations in an accumulator before anything is written (sparse matrix product
after Gustavson, ACM TOMS 4(3), 1978: the join fused with its consolidation). Since weights form a ring, a variable that
nothing needs any more is summed away here. The accumulator is dense where one payload column of a small range stays,
else a hash table. A derivation costs one sequential read and one addition that mostly hits the first cache.

A call between compiled functions costs about 100 ns, because it counts references to its arrays, and an inlined call
may cost the same. Hence the work for each binding or derivation is written out in the loops, except for work that needs
few arrays or is rare.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.hashing import mix, seed
from engine.resident.index import ENTRY_RECORDS
from engine.resident.kernels import kernel
from engine.resident.layout import INDEX, NONE, RELATION, SIGNED

I64_1, I64_2 = types.int64[::1], types.int64[:, ::1]
I32_1, I8_1 = types.int32[::1], types.int8[::1]
BINDINGS = types.Tuple((I64_2, I32_1, I64_1))
GROUPS = types.Tuple((I32_1, I32_1, I32_1, I64_1))
SHAPE = types.Tuple((I64_1, I64_1, I64_2, types.boolean, types.int64))
SCRATCH = types.Tuple((I64_1, I8_1, I32_1))
_LIMIT = 2.0**62
BURST = 64
"""Postings that a call may visit for each row that it may write."""


@kernel(BINDINGS(I64_2, I32_1, I64_1, I64_2, I64_2, I64_1))
def select(codes, heights, weights, constants, equal, columns):
    """Start of a plan: the rows where codes[c] == v for each (c, v) of `constants` and codes[a] == codes[b] for each
    (a, b) of `equal`, reduced to `columns`."""
    n = 0
    out = np.empty((codes.shape[0], columns.size), np.int64)
    out_heights = np.empty(codes.shape[0] if heights.size != 1 else 1, np.int32)
    out_weights = np.empty(codes.shape[0] if weights.size != 1 else 1, np.int64)
    if heights.size == 1:
        out_heights[0] = heights[0]
    if weights.size == 1:
        out_weights[0] = weights[0]
    for i in range(codes.shape[0]):
        keep = True
        for c in range(constants.shape[0]):
            if codes[i, constants[c, 0]] != constants[c, 1]:
                keep = False
                break
        if keep:
            for c in range(equal.shape[0]):
                if codes[i, equal[c, 0]] != codes[i, equal[c, 1]]:
                    keep = False
                    break
        if not keep:
            continue
        for c in range(columns.size):
            out[n, c] = codes[i, columns[c]]
        if heights.size != 1:
            out_heights[n] = heights[i]
        if weights.size != 1:
            out_weights[n] = weights[i]
        n += 1
    return (
        out[:n],
        out_heights if heights.size == 1 else out_heights[:n],
        out_weights if weights.size == 1 else out_weights[:n],
    )


@kernel(types.Tuple((I32_1, types.int64))(INDEX, I64_2, I64_1, I64_1))
def probe(ix, table, sources, constants):
    """For each binding the key it meets, or NONE, and how many postings all of them meet.

    Key column c comes from table column sources[c], or, where that is negative, is constants[-1 - sources[c]].
    """
    mask = ix.slots.size - 1
    columns = sources.size
    found = np.empty(table.shape[0], np.int32)
    wanted = np.empty(columns, np.int64)
    total = np.int64(0)
    for i in range(table.shape[0]):
        h = seed()
        for c in range(columns):
            source = sources[c]
            code = table[i, source] if source >= 0 else constants[-1 - source]
            wanted[c] = code
            h = mix(h, code)
        slot = np.int64(h) & mask
        key = ix.slots[slot]
        while key != NONE:
            same = True
            for c in range(columns):
                if ix.keys[key, c] != wanted[c]:
                    same = False
                    break
            if same:
                total += ix.key_count[key]
                break
            slot = (slot + 1) & mask
            key = ix.slots[slot]
        found[i] = key
    return found, total


@kernel(types.Tuple((I32_1, I32_1, I64_1))(INDEX, I64_2, I32_1, I32_1, I64_1))
def group(ix, table, heights, found, carry):
    """The bindings that met a key, ordered so that equal (carry, height) stand together.

    Returns (order, starts, work): group g is order[starts[g]:starts[g + 1]], and meets work[g] postings. Groups are
    in order of first use. A binding of the same group as the one before it costs a comparison, others one probe.
    """
    n = table.shape[0]
    columns = carry.size
    of = np.empty(n, np.int32)
    first = np.empty(n, np.int32)
    sizes = np.empty(n, np.int32)
    work = np.empty(n, np.int64)
    size = 16
    while size < n * 2:
        size *= 2
    slots = np.full(size, NONE, np.int32)
    mask = size - 1
    groups = 0
    last = np.int32(NONE)
    kept = 0
    for i in range(n):
        if found[i] == NONE:
            of[i] = NONE
            continue
        kept += 1
        height = heights[0] if heights.size == 1 else heights[i]
        g = last
        if g != NONE:
            j = first[g]
            if heights.size != 1 and heights[j] != height:
                g = np.int32(NONE)
            else:
                for c in range(columns):
                    if table[j, carry[c]] != table[i, carry[c]]:
                        g = np.int32(NONE)
                        break
        if g == NONE:
            h = mix(seed(), height)
            for c in range(columns):
                h = mix(h, table[i, carry[c]])
            slot = np.int64(h) & mask
            while True:
                g = slots[slot]
                if g == NONE:
                    break
                j = first[g]
                same = heights.size == 1 or heights[j] == height
                if same:
                    for c in range(columns):
                        if table[j, carry[c]] != table[i, carry[c]]:
                            same = False
                            break
                if same:
                    break
                slot = (slot + 1) & mask
            if g == NONE:
                g = np.int32(groups)
                first[g] = i
                sizes[g] = 0
                work[g] = 0
                slots[slot] = g
                groups += 1
        of[i] = g
        sizes[g] += 1
        work[g] += ix.key_count[found[i]]
        last = g
    starts = np.empty(groups + 1, np.int32)
    starts[0] = 0
    for g in range(groups):
        starts[g + 1] = starts[g] + sizes[g]
        sizes[g] = starts[g]
    order = np.empty(kept, np.int32)
    for i in range(n):
        g = of[i]
        if g != NONE:
            order[sizes[g]] = i
            sizes[g] += 1
    return order, starts, work[:groups]


@numba.njit(inline="always")
def _passes(payload, j, equal):
    for c in range(equal.shape[0]):
        if payload[j, equal[c, 0]] != payload[j, equal[c, 1]]:
            return False
    return True


@numba.njit(inline="always")
def _posting(entries, entry, height, weight, use_heights):
    """The height and weight of a derivation, of those of its binding and of a posting's entry."""
    hw = entries[entry]["hw"]
    if use_heights and hw >> 1 > height:
        height = hw >> 1
    return height, -weight if hw & 1 else weight


@numba.njit(nogil=True)
def _with_room(out, heights, weights, used, room):
    """The first `used` rows of what comes out, in arrays of `room` rows or more."""
    size = weights.size
    while size < room:
        size *= 2
    grown_out = np.empty((size, out.shape[1]), np.int64)
    grown_heights = np.empty(size, np.int32)
    grown_weights = np.empty(size, np.int64)
    grown_out[:used] = out[:used]
    grown_heights[:used] = heights[:used]
    grown_weights[:used] = weights[:used]
    return grown_out, grown_heights, grown_weights


@numba.njit(nogil=True)
def _larger(keys, heights, weights, used, room):
    """The first `used` sums of the hash accumulator, (payload, height) -> weight, with room for `room` or more.

    Returns (payloads, heights, weights, places, slots); places[s] is where in `slots` sum s stands.
    """
    size = heights.size
    while size < room:
        size *= 2
    kept = keys.shape[1]
    grown_keys = np.empty((size, kept), np.int64)
    grown_heights = np.empty(size, np.int32)
    grown_weights = np.empty(size, np.int64)
    places = np.empty(size, np.int32)
    slots = np.full(size * 2, NONE, np.int32)
    mask = slots.size - 1
    for other in range(used):
        h = mix(seed(), heights[other])
        for c in range(kept):
            grown_keys[other, c] = keys[other, c]
            h = mix(h, keys[other, c])
        grown_heights[other] = heights[other]
        grown_weights[other] = weights[other]
        slot = np.int64(h) & mask
        while slots[slot] != NONE:
            slot = (slot + 1) & mask
        slots[slot] = other
        places[other] = slot
    return grown_keys, grown_heights, grown_weights, places, slots


@numba.njit(inline="always")
def _sum_hashed(keys, heights, weights, places, slots, used, postings, j, payload, height, weight):
    """Add `weight` to the sum of posting j's payload at a height; how many sums there are then."""
    h = mix(seed(), height)
    for c in range(payload.size):
        h = mix(h, postings[j, payload[c]])
    mask = slots.size - 1
    slot = np.int64(h) & mask
    other = slots[slot]
    while other != NONE:
        same = heights[other] == height
        if same:
            for c in range(payload.size):
                if keys[other, c] != postings[j, payload[c]]:
                    same = False
                    break
        if same:
            break
        slot = (slot + 1) & mask
        other = slots[slot]
    if other != NONE:
        weights[other] += weight
    else:
        for c in range(payload.size):
            keys[used, c] = postings[j, payload[c]]
        heights[used] = height
        weights[used] = weight
        places[used] = slot
        slots[slot] = used
        used += 1
    return used


@kernel(
    types.Tuple((I64_2, I32_1, I64_1, types.int64, types.boolean))(
        INDEX,
        ENTRY_RECORDS,
        BINDINGS,
        GROUPS,
        types.int64,
        types.int64,
        SHAPE,
        types.int64,
        SCRATCH,
        types.int64,
    ),
)
def accumulate(ix, entries, bindings, groups, begin, end, shape, low, scratch, limit):
    """The consolidated derivations of the groups begin .. end - 1.

    groups: what `probe` found, and (order, starts, work) of `group`. shape: (carry, payload, equal, use_heights, sign).
    scratch: (sums, marks, touched) of the dense accumulator, zero before and after; payload code p lies at p - low. No
    scratch (size 0): the hash accumulator takes all. Stops after the group that brings the output over `limit` rows, or
    the postings over `limit` times BURST (a quarter of that with the hash accumulator), so that a call ends soon.
    Returns (bindings, heights, weights, next group, overflow): overflow says that a sum could leave 64 bits.
    """
    table, heights, weights = bindings
    found, order, starts, work = groups
    carry, payload, equal, use_heights, sign = shape
    sums, marks, touched = scratch
    carried, kept = carry.size, payload.size
    dense = sums.size > 0
    span = sums.size
    column = payload[0] if kept == 1 else 0
    codes = ix.payload.ravel()
    width = np.int64(ix.payload.shape[1])
    stride = np.uint64(width)
    plain = equal.shape[0] == 0
    one_height, one_weight = heights.size == 1, weights.size == 1
    out = np.empty((64, carried + kept), np.int64)
    out_heights = np.empty(64, np.int32)
    out_weights = np.empty(64, np.int64)
    n = 0
    keys = np.empty((16, kept), np.int64)
    key_height = np.empty(16, np.int32)
    key_weight = np.empty(16, np.int64)
    places = np.empty(16, np.int32)
    slots = np.full(32, NONE, np.int32)
    largest = np.int64(1)
    for i in range(weights.size):
        largest = max(largest, abs(weights[i]))
    g = begin
    seen = np.int64(0)
    per_row = BURST if dense else BURST // 4
    while g < end and n <= limit and seen // per_row <= limit:
        seen += work[g]
        if np.float64(largest) * np.float64(work[g]) >= _LIMIT:
            return out[:n], out_heights[:n], out_weights[:n], g, True
        leader = order[starts[g]]
        base = heights[0] if one_height else heights[leader]
        scan = work[g] >= span
        used = 0
        met = 0  # places of `touched`: those of the dense accumulator that may hold a sum
        alone = np.int64(0)  # the sum where no payload column is kept
        for at in range(starts[g], starts[g + 1]):
            i = order[at]
            key = found[i]
            weight = (weights[0] if one_weight else weights[i]) * sign
            first = np.int64(ix.key_start[key])
            count = np.int64(ix.key_count[key])
            bound = ix.key_bound[key]
            fast = bound != SIGNED and (not use_heights or bound >> 1 <= base)
            if fast and plain and kept == 0:
                alone += weight * count
                continue
            if fast and plain and dense:
                if scan:
                    # The hot loop: unsigned positions, so that nothing is checked for being negative.
                    at_code = np.uint64(first * width + column)
                    end_code = np.uint64((first + count) * width)
                    while at_code < end_code:
                        sums[np.uint64(codes[at_code] - low)] += weight
                        at_code += stride
                else:
                    for j in range(first, first + count):
                        p = np.uint64(ix.payload[j, column] - low)
                        if marks[p] == 0:
                            marks[p] = 1
                            touched[met] = np.int32(p)
                            met += 1
                        sums[p] += weight
                continue
            if used + count > key_height.size:
                keys, key_height, key_weight, places, slots = _larger(
                    keys, key_height, key_weight, used, used + count
                )
            for j in range(first, first + count):
                if not plain and not _passes(ix.payload, j, equal):
                    continue
                height, signed = np.int64(base), weight
                if not fast:
                    height, signed = _posting(entries, ix.entry[j], height, weight, use_heights)
                if height != base or (kept != 0 and not dense):
                    used = _sum_hashed(
                        keys,
                        key_height,
                        key_weight,
                        places,
                        slots,
                        used,
                        ix.payload,
                        j,
                        payload,
                        height,
                        signed,
                    )
                elif kept == 0:
                    alone += signed
                else:
                    p = np.uint64(ix.payload[j, column] - low)
                    if not scan and marks[p] == 0:
                        marks[p] = 1
                        touched[met] = np.int32(p)
                        met += 1
                    sums[p] += signed
        if scan:
            for p in range(span):
                if sums[p] != 0:
                    touched[met] = p
                    met += 1
        if n + used + met + 1 > out_weights.size:
            out, out_heights, out_weights = _with_room(out, out_heights, out_weights, n, n + used + met + 1)
        begun = n
        if kept == 0 and alone != 0:
            out_heights[n] = base
            out_weights[n] = alone
            n += 1
        for at in range(met):
            p = np.int64(touched[at])
            marks[p] = 0
            if sums[p] != 0:
                out[n, carried] = p + low
                out_heights[n] = base
                out_weights[n] = sums[p]
                sums[p] = 0
                n += 1
        for other in range(used):
            slots[places[other]] = NONE
            if key_weight[other] != 0:
                for c in range(kept):
                    out[n, carried + c] = keys[other, c]
                out_heights[n] = key_height[other]
                out_weights[n] = key_weight[other]
                n += 1
        for row in range(begun, n):
            for c in range(carried):
                out[row, c] = table[leader, carry[c]]
        g += 1
    return out[:n], out_heights[:n], out_weights[:n], g, False


@kernel(
    types.Tuple((I64_2, I32_1, I64_1, types.int64))(
        INDEX, ENTRY_RECORDS, BINDINGS, I32_1, types.int64, SHAPE, types.int64
    ),
)
def expand(ix, entries, bindings, found, begin, shape, limit):
    """Every derivation of the bindings from `begin` on, until the output passes `limit` rows, or the postings `limit`
    times BURST. found: of `probe`. shape: as of `accumulate`.

    Returns (bindings, heights, weights, next binding).
    """
    table, heights, weights = bindings
    carry, payload, equal, use_heights, sign = shape
    carried, kept = carry.size, payload.size
    plain = equal.shape[0] == 0
    one_height, one_weight = heights.size == 1, weights.size == 1
    out = np.empty((64, carried + kept), np.int64)
    out_heights = np.empty(64, np.int32)
    out_weights = np.empty(64, np.int64)
    n = 0
    i = begin
    seen = np.int64(0)
    while i < table.shape[0] and n <= limit and seen // BURST <= limit:
        key = found[i]
        if key == NONE:
            i += 1
            continue
        first = np.int64(ix.key_start[key])
        count = np.int64(ix.key_count[key])
        seen += count
        if n + count > out_weights.size:
            out, out_heights, out_weights = _with_room(out, out_heights, out_weights, n, n + count)
        base = heights[0] if one_height else heights[i]
        weight = (weights[0] if one_weight else weights[i]) * sign
        bound = ix.key_bound[key]
        fast = bound != SIGNED and (not use_heights or bound >> 1 <= base)
        for j in range(first, first + count):
            if not plain and not _passes(ix.payload, j, equal):
                continue
            height, signed = np.int64(base), weight
            if not fast:
                height, signed = _posting(entries, ix.entry[j], height, weight, use_heights)
            out_heights[n] = height
            out_weights[n] = signed
            for c in range(carried):
                out[n, c] = table[i, carry[c]]
            for c in range(kept):
                out[n, carried + c] = ix.payload[j, payload[c]]
            n += 1
        i += 1
    return out[:n], out_heights[:n], out_weights[:n], i


@numba.njit(inline="always")
def _row_of(r, table, i, sources, constants, wanted):
    """The row of the tuple that binding i gives, or NONE. sources: as in `probe`. wanted: scratch, a code a column."""
    arity = r.rows.shape[1]
    mask = r.slots.size - 1
    h = seed()
    for c in range(arity):
        source = sources[c]
        wanted[c] = table[i, source] if source >= 0 else constants[-1 - source]
        h = mix(h, wanted[c])
    slot = np.int64(h) & mask
    row = r.slots[slot]
    while row != NONE:
        same = True
        for c in range(arity):
            if r.rows[row, c] != wanted[c]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
        row = r.slots[slot]
    return row


@kernel(
    BINDINGS(RELATION, I64_2, I32_1, I64_1, I64_1, I64_1, I64_1, types.boolean, types.int64),
)
def check(r, table, heights, weights, sources, constants, carry, use_heights, sign):
    """A step whose atom is bound in every column: the bindings whose tuple has entries, one row for each entry."""
    one_height, one_weight = heights.size == 1, weights.size == 1
    out = np.empty((64, carry.size), np.int64)
    out_heights = np.empty(64, np.int32)
    out_weights = np.empty(64, np.int64)
    wanted = np.empty(r.rows.shape[1], np.int64)
    n = 0
    for i in range(table.shape[0]):
        row = _row_of(r, table, i, sources, constants, wanted)
        if row == NONE:
            continue
        entry = r.heads[row]["entry"]
        while entry != NONE:
            if n == out_weights.size:
                out, out_heights, out_weights = _with_room(out, out_heights, out_weights, n, n + 1)
            height = np.int64(heights[0] if one_height else heights[i])
            weight = (weights[0] if one_weight else weights[i]) * sign
            out_heights[n], out_weights[n] = _posting(r.entries, entry, height, weight, use_heights)
            for c in range(carry.size):
                out[n, c] = table[i, carry[c]]
            n += 1
            entry = r.entries[entry]["next"]
    return out[:n], out_heights[:n], out_weights[:n]


@kernel(BINDINGS(RELATION, I64_2, I32_1, I64_1, I64_1, I64_1, I64_1))
def absent(r, table, heights, weights, sources, constants, carry):
    """A step of a negated atom: the bindings whose tuple is not there (its entries sum to 0)."""
    one_height, one_weight = heights.size == 1, weights.size == 1
    out = np.empty((table.shape[0], carry.size), np.int64)
    out_heights = np.empty(table.shape[0], np.int32)
    out_weights = np.empty(table.shape[0], np.int64)
    wanted = np.empty(r.rows.shape[1], np.int64)
    n = 0
    for i in range(table.shape[0]):
        row = _row_of(r, table, i, sources, constants, wanted)
        present = 0
        if row != NONE:
            entry = r.heads[row]["entry"]
            while entry != NONE:
                present += 1 - 2 * (r.entries[entry]["hw"] & 1)
                entry = r.entries[entry]["next"]
        if present != 0:
            continue
        for c in range(carry.size):
            out[n, c] = table[i, carry[c]]
        out_heights[n] = heights[0] if one_height else heights[i]
        out_weights[n] = weights[0] if one_weight else weights[i]
        n += 1
    return out[:n], out_heights[:n], out_weights[:n]
