"""The way of one stratum up the heights, as one compiled loop (docs/evaluation.md).

Between two calls of compiled code Python spends more than a small step costs. So the loop does all that can be done
with arrays: it settles the scheduled rows, carries their changes through the plans (tape.py), pushes what comes out and
schedules it, keeps the journal, and counts derivations. It calls back into Python (views.py) for the rest: to enlarge
arrays, to ask the meter, for steps that compute values, and for joins that are so large that they are cut into
chunks or shared among threads. Python in turn calls it to push supports, and to start a plan with a batch.

The *ledger*, int64[LEDGER], is what both sides share: addresses of the schedule's and scratch arrays, counters, and the
arrays of a call back. A derivation that is counted here reaches the meter when Python is called, or at the end; `QUIET`
is how many may be counted before the meter has to be asked, because it could refuse or abandon from there on. `SMALL`
is how many postings a join may meet to be done here; if more entries than `MANY` are added, and more than there were,
the indexes are built anew.

The schedule: for each height and own relation a list of rows in a pool, and a heap of the heights that have any.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.expressions.postfix import (
    ADD,
    AT_LEAST,
    AT_MOST,
    COLUMN,
    CONSTANT,
    DEPTH,
    LEAST,
    LESS,
    MORE,
    MOST,
    MULTIPLY,
    SUBTRACT,
    UNEQUAL,
)
from engine.expressions.postfix import EQUAL as EQUAL_TO
from engine.resident import index as index_kernels
from engine.resident import join, table
from engine.resident.kernels import inner, kernel
from engine.resident.layout import (
    ENTRIES_USED,
    HELD,
    KEYS_USED,
    LIVE,
    NONE,
)
from engine.resident.tape import (
    ABSENT,
    ARRAYS,
    CARRY,
    CHECK,
    COMPUTED,
    COMPUTED_ARRAYS,
    COMPUTED_CARRY,
    COMPUTED_PROGRAM,
    CONSOLIDATE,
    CONSTANTS,
    EQUAL,
    EXTEND,
    HEAD_ARRAYS,
    HEAD_COLUMNS,
    HEAD_CONSTANTS,
    HEAD_RELATION,
    HEAD_SOURCES,
    INDEX_NUMBER,
    KEPT,
    KIND,
    LENGTH,
    LET,
    LOSSLESS,
    PAYLOAD,
    RELATION_NUMBER,
    SOURCES,
    START_ARRAYS,
    START_COLUMNS,
    START_CONSTANTS,
    START_EQUAL,
    STEPS,
    TRIVIAL,
    USE_HEIGHTS,
    WHERE,
)
from engine.resident.views import (
    CHANGED_HEIGHTS_AT,
    CHANGED_ROOM,
    CHANGED_ROWS_AT,
    CHANGED_WEIGHTS_AT,
    CHANGES_KEPT,
    CLOCKED,
    DONE_AT,
    ENTRIES_AT,
    ENTRIES_ROOM,
    FIRST,
    GROUPED,
    HEADS_AT,
    KEYS_ROOM,
    MARKS_AT,
    NEXT,
    POSTINGS_ROOM,
    PUSHED_HEIGHTS_AT,
    PUSHED_ROOM,
    PUSHED_ROWS_AT,
    PUSHED_WEIGHTS_AT,
    PUSHES_KEPT,
    ROWS_ROOM,
    TRAITS,
    address_of,
    call_back,
    entries_at,
    heads_at,
    index_on,
    int8_at,
    int32_at,
    int64_at,
    relation_on,
)

I64_1, I64_2 = types.int64[::1], types.int64[:, ::1]
I32_1, F64_1 = types.int32[::1], types.float64[::1]

# The ledger.
(
    CALL,
    OWN_RELATIONS,
    SIGNED_STRATUM,
    HEIGHT,
    SPENT,
    QUIET,
    PUSHED,
    TALLEST,
    HELD_TUPLES,
    MOST_TUPLES,
    WORK,
    HEAP_AT,
    HEAP,
    LISTS_AT,
    LISTS_ROOM,
    ITEMS_AT,
    ITEMS_ROOM,
    ITEMS,
    ITEM_FREE,
    ITEMS_FREE,
    PROFILE_AT,
    PROFILE_ROOM,
    PROFILE,
    SUMS_AT,
    SUM_MARKS_AT,
    SUMS_TOUCHED_AT,
    SUMS_ROOM,
    STEPPED,
    NOTED,
    SMALL,
    COLLECTED,
    DELETING,
    MANY,
    GIVEN,
) = range(34)
LEDGER = GIVEN + 8
# The tallies, float64: net and gross sums of the pushed weights, and the sign of what is being carried on.
NET, GROSS, DIRECTION = range(3)

# What a call back asks for.
(
    ASK_CHARGE,
    ASK_TIME,
    ASK_HEIGHT,
    ASK_TUPLES,
    ASK_ROOM,
    ASK_JOURNAL,
    ASK_HEIGHTS,
    ASK_ITEMS,
    ASK_PROFILE,
    ASK_SCRATCH,
    ASK_ENTRIES,
    ASK_POSTINGS,
    ASK_STEP,
    ASK_PLAN,
    ASK_GROUPS,
    ASK_CLOCK,
    ASK_NEXT,
    ASK_NOTE,
    ASK_MEMORY,
    ASK_COLLECT,
    ASK_INDEXES,
    OVERFLOWED,
) = range(22)

SPAN = 1 << 22
"""The dense accumulator's largest range: 13 bytes each for every thread."""
_TICK = 1 << 16
_HALF = np.int64(1) << 31
_NO_HEIGHT = np.iinfo(np.int32).max

_select, _probe, _group = inner(join.select), inner(join.probe), inner(join.group)
_expand, _accumulate = inner(join.expand), inner(join.accumulate)
_check, _absent = inner(join.check), inner(join.absent)
_push, _settle = inner(table.push), inner(table.settle)
_remove_entries, _add_entries = inner(table.remove_entries), inner(table.add_entries)
_add_postings, _remove_postings = inner(index_kernels.add_postings), inner(index_kernels.remove_postings)


# ---- the meter


@numba.njit(nogil=True)
def count_work(ledger, units):
    """Count work; now and then ask whether the evaluation may go on."""
    ledger[WORK] += units
    if ledger[WORK] < _TICK:
        return 0
    ledger[WORK] = 0
    return call_back(ledger[CALL], ASK_TIME, 0, 0)


@numba.njit(nogil=True)
def _charge(ledger, step):
    """Count derivations that a step is about to enumerate. 1: it must not."""
    if ledger[SPENT] + step > ledger[QUIET]:
        return call_back(ledger[CALL], ASK_CHARGE, step, 0)
    if ledger[PROFILE] == ledger[PROFILE_ROOM] and call_back(ledger[CALL], ASK_PROFILE, 0, 0) != 0:
        return 1
    ledger[SPENT] += step
    n = ledger[PROFILE]
    profile = int64_at(ledger[PROFILE_AT], 2 * ledger[PROFILE_ROOM])
    if n > 0 and profile[2 * n - 2] == ledger[HEIGHT]:
        profile[2 * n - 1] += step
    else:
        profile[2 * n] = ledger[HEIGHT]
        profile[2 * n + 1] = step
        ledger[PROFILE] = n + 1
    return count_work(ledger, step)


# ---- the schedule


@numba.njit(nogil=True)
def _enqueue(ledger, height):
    heap = int32_at(ledger[HEAP_AT], ledger[LISTS_ROOM])
    at = ledger[HEAP]
    ledger[HEAP] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= height:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = height


@numba.njit(nogil=True)
def _dequeue(ledger):
    """Take the smallest height from the heap."""
    heap = int32_at(ledger[HEAP_AT], ledger[LISTS_ROOM])
    n = ledger[HEAP] - 1
    ledger[HEAP] = n
    top, last = heap[0], heap[n]
    at = np.int64(0)
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return np.int64(top)


@numba.njit(nogil=True)
def schedule(ledger, relations, n, rows, heights):
    """Look at these rows of own relation n at their heights. In an unsigned stratum a tuple's only entry is at its
    smallest supported height: support above it changes nothing while that stands, and `settle` finds it if it falls.
    """
    one = heights.size == 1
    plain = ledger[SIGNED_STRATUM] == 0
    heads, entries = (
        heads_at(relations[n, HEADS_AT], relations[n, ROWS_ROOM]),
        entries_at(relations[n, ENTRIES_AT], relations[n, ENTRIES_ROOM]),
    )
    tallest = np.int64(heights[0])
    if not one:
        for i in range(rows.size):
            tallest = max(tallest, np.int64(heights[i]))
    if tallest >= ledger[LISTS_ROOM] and call_back(ledger[CALL], ASK_HEIGHTS, tallest, 0) != 0:
        return 1
    left = ledger[ITEMS_ROOM] - ledger[ITEMS] + ledger[ITEMS_FREE]
    if left < rows.size and call_back(ledger[CALL], ASK_ITEMS, rows.size, 0) != 0:
        return 1
    own = ledger[OWN_RELATIONS]
    # For each height and relation: the first item, and how many there are; then for each height, whether it is queued.
    lists = int32_at(ledger[LISTS_AT], ledger[LISTS_ROOM] * (2 * own + 1))
    items = int32_at(ledger[ITEMS_AT], 2 * ledger[ITEMS_ROOM])
    free, used, left = ledger[ITEM_FREE], ledger[ITEMS], ledger[ITEMS_FREE]
    for i in range(rows.size):
        height = np.int64(heights[0] if one else heights[i])
        if plain:
            entry = heads[rows[i]]["entry"]
            if entry != NONE:
                # At the present height it may be about to go.
                entered = entries[entry]["hw"] >> 1
                if entered < height and entered != ledger[HEIGHT]:
                    continue
        place = height * (2 * own + 1)
        if lists[place] == 0 and height != ledger[HEIGHT]:
            lists[place] = 1
            _enqueue(ledger, np.int32(height))
        if free != NONE:
            item = free
            free = np.int64(items[2 * item + 1])
            left -= 1
        else:
            item = used
            used += 1
        at = place + 1 + 2 * n
        items[2 * item] = rows[i]
        items[2 * item + 1] = lists[at] if lists[at + 1] > 0 else NONE
        lists[at] = item
        lists[at + 1] += 1
    ledger[ITEM_FREE], ledger[ITEMS], ledger[ITEMS_FREE] = free, used, left
    return 0


@numba.njit(nogil=True)
def _scheduled(ledger, height, n):
    """Take the rows of own relation n that are scheduled at a height, in the order in which they were put there."""
    own = ledger[OWN_RELATIONS]
    place = height * (2 * own + 1) + 1 + 2 * n
    lists = int32_at(ledger[LISTS_AT], ledger[LISTS_ROOM] * (2 * own + 1))
    items = int32_at(ledger[ITEMS_AT], 2 * ledger[ITEMS_ROOM])
    count = np.int64(lists[place + 1])
    rows = np.empty(count, np.int32)
    if count == 0:
        return rows
    item = first = np.int64(lists[place])
    last = item
    for i in range(count - 1, -1, -1):
        rows[i] = items[2 * item]
        last = item
        item = np.int64(items[2 * item + 1])
    items[2 * last + 1] = np.int32(ledger[ITEM_FREE])
    ledger[ITEM_FREE] = first
    ledger[ITEMS_FREE] += count
    # Zero also for a stratum with another number of relations.
    lists[place] = lists[place + 1] = 0
    if ledger[ITEMS_FREE] == ledger[ITEMS]:
        # All are free: they are taken in their order again.
        ledger[ITEM_FREE], ledger[ITEMS], ledger[ITEMS_FREE] = NONE, 0, 0
    return rows


# ---- supports


@numba.njit(nogil=True)
def _ask_with(ledger, what, a, b, codes, heights, weights):
    """Call back with bindings. They are arguments, so that they are alive meanwhile."""
    ledger[GIVEN] = address_of(codes)
    ledger[GIVEN + 1] = codes.shape[0]
    ledger[GIVEN + 2] = codes.shape[1]
    ledger[GIVEN + 3] = address_of(heights)
    ledger[GIVEN + 4] = heights.size
    ledger[GIVEN + 5] = address_of(weights)
    ledger[GIVEN + 6] = weights.size
    return call_back(ledger[CALL], what, a, b)


@numba.njit(nogil=True)
def _deliver(ledger, tallies, relations, n, tuples, heights, weights, counted):
    """Push supports to own relation n, keep them in the journal, and schedule their rows; or hand them over, where they
    are collected first. counted: they are derived.
    """
    size = tuples.shape[0]
    if counted:
        if weights.size == 1:
            net = np.float64(weights[0]) * size
            gross = abs(net)
        else:
            net = gross = 0.0
            for i in range(size):
                net += np.float64(weights[i])
                gross += abs(np.float64(weights[i]))
        ledger[PUSHED] += size
        tallies[NET] += net
        tallies[GROSS] += gross
    if ledger[COLLECTED] != 0:
        return _ask_with(ledger, ASK_COLLECT, n, 0, tuples, heights, weights)
    rows = np.empty(size, np.int32)
    r = relation_on(relations, n)
    live = r.head[LIVE]
    done = 0
    stop = 0
    while True:
        done = _push(r, tuples, heights, weights, rows, done)
        if done < 0:
            done = -1 - done
            call_back(ledger[CALL], OVERFLOWED, n, 0)
            stop = 1
        elif done < size:
            stop = call_back(ledger[CALL], ASK_ROOM, n, size - done)
            r = relation_on(relations, n)
        if stop != 0 or done == size:
            break
    ledger[HELD_TUPLES] += r.head[LIVE] - live
    keeps = relations[n, TRAITS] & PUSHES_KEPT and done > 0
    if keeps and not _keep_pushes(ledger, relations, n, rows, heights, weights, done):
        stop = 1
    if stop != 0:
        return 1
    if ledger[HELD_TUPLES] > ledger[MOST_TUPLES] and call_back(ledger[CALL], ASK_TUPLES, n, 0) != 0:
        return 1
    if count_work(ledger, size) != 0:
        return 1
    if ledger[DELETING] != 0:
        # What is over-deleted is scheduled at the end (dred.py).
        return 0
    return schedule(ledger, relations, n, rows, heights)


@numba.njit(nogil=True)
def _keep_pushes(ledger, relations, n, rows, heights, weights, size):
    """Write pushes into the journal; whether there was room."""
    line = relations[n]
    done = int64_at(line[DONE_AT], 2)
    if done[0] + size > line[PUSHED_ROOM] and call_back(ledger[CALL], ASK_JOURNAL, n, size) != 0:
        return False
    begin = done[0]
    kept_rows = int32_at(line[PUSHED_ROWS_AT], line[PUSHED_ROOM])
    kept_heights = int32_at(line[PUSHED_HEIGHTS_AT], line[PUSHED_ROOM])
    kept_weights = int64_at(line[PUSHED_WEIGHTS_AT], line[PUSHED_ROOM])
    for i in range(size):
        kept_rows[begin + i] = rows[i]
        kept_heights[begin + i] = heights[0] if heights.size == 1 else heights[i]
        kept_weights[begin + i] = weights[0] if weights.size == 1 else weights[i]
    done[0] = begin + size
    return True


# ---- plans


@numba.njit(nogil=True)
def _computed(codes, program):
    """The value of a postfix program for each binding, and whether all of them fit into 64 bits."""
    size = codes.shape[0]
    values = np.empty(size, np.int64)
    stack = np.empty(DEPTH, np.int64)
    for i in range(size):
        top = -1
        for at in range(0, program.size, 2):
            operation = program[at]
            if operation in (COLUMN, CONSTANT):
                top += 1
                stack[top] = codes[i, program[at + 1]] if operation == COLUMN else program[at + 1]
                continue
            a, b = stack[top - 1], stack[top]
            top -= 1
            if operation == ADD:
                found = a + b
                if ((a ^ found) & (b ^ found)) < 0:
                    return values, False
            elif operation == SUBTRACT:
                found = a - b
                if ((a ^ b) & (a ^ found)) < 0:
                    return values, False
            elif operation == MULTIPLY:
                if not (-_HALF < a < _HALF and -_HALF < b < _HALF):
                    # Perhaps too large.
                    return values, False
                found = a * b
            elif operation == LEAST:
                found = min(a, b)
            elif operation == MOST:
                found = max(a, b)
            else:
                found = np.int64(
                    (operation == EQUAL_TO and a == b)
                    or (operation == UNEQUAL and a != b)
                    or (operation == LESS and a < b)
                    or (operation == AT_MOST and a <= b)
                    or (operation == MORE and a > b)
                    or (operation == AT_LEAST and a >= b)
                )
            stack[top] = found
        values[i] = stack[0]
    return values, True


@numba.njit(nogil=True)
def _chosen(codes, heights, weights, carry, values, binds):
    """Bindings with a value as a new last column (binds), or those whose value is not 0; `carry` are what stays."""
    size = codes.shape[0]
    columns = carry.size + (1 if binds else 0)
    kept = size
    if not binds:
        kept = 0
        for i in range(size):
            kept += 1 if values[i] != 0 else 0
    out = np.empty((kept, columns), np.int64)
    out_heights = np.empty(kept if heights.size > 1 else 1, np.int32)
    out_weights = np.empty(kept if weights.size > 1 else 1, np.int64)
    if heights.size == 1:
        out_heights[0] = heights[0]
    if weights.size == 1:
        out_weights[0] = weights[0]
    n = 0
    for i in range(size):
        if not binds and values[i] == 0:
            continue
        for c in range(carry.size):
            out[n, c] = codes[i, carry[c]]
        if binds:
            out[n, carry.size] = values[i]
        if heights.size > 1:
            out_heights[n] = heights[i]
        if weights.size > 1:
            out_weights[n] = weights[i]
        n += 1
    return out, out_heights, out_weights


@numba.njit(nogil=True)
def _through(ledger, tallies, relations, indexes, tape, plan, codes, heights, weights):
    """Carry a batch through a plan; all of its atoms see the relations as they are."""
    at = plan + START_ARRAYS
    if not tape[plan + TRIVIAL]:
        constants = tape[at : at + 2 * tape[plan + START_CONSTANTS]].reshape(tape[plan + START_CONSTANTS], 2)
        at += constants.size
        equal = tape[at : at + 2 * tape[plan + START_EQUAL]].reshape(tape[plan + START_EQUAL], 2)
        at += equal.size
        columns = tape[at : at + tape[plan + START_COLUMNS]]
        codes, heights, weights = _select(codes, heights, weights, constants, equal, columns)
    steps = tape[plan + STEPS]
    if steps == 0 and codes.shape[0] > 0 and _charge(ledger, codes.shape[0]) != 0:
        return 1
    at = plan + tape[plan + LENGTH]
    for number in range(steps):
        if codes.shape[0] == 0:
            return 0
        step = tape[at : at + tape[at + LENGTH]]
        kind = step[KIND]
        if kind == COMPUTED:
            return _ask_with(ledger, ASK_STEP, plan, number, codes, heights, weights)
        if kind in (LET, WHERE):
            place = COMPUTED_ARRAYS + step[COMPUTED_CARRY]
            values, defined = _computed(codes, step[place : place + step[COMPUTED_PROGRAM]])
            if not defined:
                return _ask_with(ledger, ASK_STEP, plan, number, codes, heights, weights)
            if _charge(ledger, codes.shape[0]) != 0:
                return 1
            carry = step[COMPUTED_ARRAYS:place]
            codes, heights, weights = _chosen(codes, heights, weights, carry, values, kind == LET)
            at += step.size
            continue
        place = ARRAYS
        sources = step[place : place + step[SOURCES]]
        place += sources.size
        constants = step[place : place + step[CONSTANTS]]
        place += constants.size
        carry = step[place : place + step[CARRY]]
        place += carry.size
        use_heights = step[USE_HEIGHTS] != 0
        r = relation_on(relations, step[RELATION_NUMBER])
        if kind == EXTEND:
            payload = step[place : place + step[PAYLOAD]]
            place += payload.size
            equal = step[place : place + 2 * step[EQUAL]].reshape(step[EQUAL], 2)
            ix = index_on(indexes, step[INDEX_NUMBER])
            found, total = _probe(ix, codes, sources, constants)
            if total > ledger[SMALL]:
                return _ask_with(ledger, ASK_STEP, plan, number, codes, heights, weights)
            if total == 0:
                return 0
            if _charge(ledger, total) != 0:
                return 1
            shape = (carry, payload, equal, use_heights, np.int64(1))
            bindings = (codes, heights, weights)
            alone = step[CONSOLIDATE] == 0 or (codes.shape[0] == 1 and step[LOSSLESS] != 0)
            if not alone:
                order, starts, work = _group(ix, codes, heights, found, carry)
                # Groups of one binding have nothing to sum up.
                alone = step[LOSSLESS] != 0 and work.size == order.size
            if alone:
                codes, heights, weights, _ = _expand(
                    ix, r.entries, bindings, found, np.int64(0), shape, ledger[SMALL]
                )
            else:
                low, span = np.int64(0), np.int64(0)
                if step[KEPT] != NONE:
                    low, high = r.low[step[KEPT]], r.high[step[KEPT]]
                    span = high - low + 1
                    if span <= 0 or span > SPAN:
                        low, span = np.int64(0), np.int64(0)
                if span > ledger[SUMS_ROOM] and call_back(ledger[CALL], ASK_SCRATCH, span, 0) != 0:
                    return 1
                scratch = (
                    int64_at(ledger[SUMS_AT], span),
                    int8_at(ledger[SUM_MARKS_AT], span),
                    int32_at(ledger[SUMS_TOUCHED_AT], span),
                )
                groups = (found, order, starts, work)
                codes, heights, weights, _, overflow = _accumulate(
                    ix,
                    r.entries,
                    bindings,
                    groups,
                    np.int64(0),
                    np.int64(work.size),
                    shape,
                    low,
                    scratch,
                    ledger[SMALL] * join.BURST,
                )
                if overflow:
                    call_back(ledger[CALL], OVERFLOWED, step[RELATION_NUMBER], 1)
                    return 1
        elif kind == CHECK:
            if _charge(ledger, codes.shape[0]) != 0:
                return 1
            codes, heights, weights = _check(
                r, codes, heights, weights, sources, constants, carry, use_heights, np.int64(1)
            )
        elif kind == ABSENT:
            if _charge(ledger, codes.shape[0]) != 0:
                return 1
            codes, heights, weights = _absent(r, codes, heights, weights, sources, constants, carry)
        at += step.size
    size = codes.shape[0]
    if size == 0:
        return 0
    columns = tape[at + HEAD_COLUMNS]
    if columns != NONE:
        place = at + HEAD_ARRAYS
        sources = tape[place : place + tape[at + HEAD_SOURCES]]
        place += sources.size
        constants = tape[place : place + tape[at + HEAD_CONSTANTS]]
        head = np.empty((size, columns), np.int64)
        for c in range(columns):
            source = sources[c]
            if source >= 0:
                for i in range(size):
                    head[i, c] = codes[i, source]
            else:
                for i in range(size):
                    head[i, c] = constants[-1 - source]
        codes = head
    above = np.empty(heights.size, np.int32)
    for i in range(heights.size):
        above[i] = heights[i] + 1
    return _deliver(ledger, tallies, relations, tape[at + HEAD_RELATION], codes, above, weights, True)


# ---- heights


@numba.njit(nogil=True)
def _change_entries(ledger, relations, indexes, n, rows, weights, height, removals):
    """Add `weights` to the entries of rows of own relation n at a height, there and in every index."""
    more = rows.size
    r = relation_on(relations, n)
    short = r.head[ENTRIES_USED] + more > relations[n, ENTRIES_ROOM]
    at = relations[n, FIRST]
    while at != NONE and not short:
        ix = index_on(indexes, at)
        short = (
            ix.head[HELD] + more > indexes[at, POSTINGS_ROOM]
            or ix.head[KEYS_USED] + more > indexes[at, KEYS_ROOM]
        )
        at = indexes[at, NEXT]
    if short:
        # Before anything changes: what is done in part could not be undone.
        if call_back(ledger[CALL], ASK_ENTRIES, n, more) != 0:
            return 1
        r = relation_on(relations, n)
    out = np.empty(more, np.int32)
    ids = np.empty(more, np.int32)
    left = weights
    some = True
    if removals > 0:
        left = weights.copy()
        gone = _remove_entries(r, rows, left, np.int32(height), out, ids)
        at = relations[n, FIRST]
        while at != NONE:
            _remove_postings(index_on(indexes, at), r.rows, out[:gone], ids[:gone])
            at = indexes[at, NEXT]
        some = False
        for i in range(more):
            some = some or left[i] != 0
    if some:
        come = _add_entries(r, rows, left, np.int32(height), out, ids)
        at = relations[n, FIRST]
        if at != NONE and come > ledger[MANY] and 2 * come > r.head[ENTRIES_USED]:
            if call_back(ledger[CALL], ASK_INDEXES, n, 0) != 0:
                return 1
            at = np.int64(NONE)
        while at != NONE:
            done = 0
            while True:
                done = _add_postings(index_on(indexes, at), r.rows, out[:come], ids[:come], r.entries, done)
                if done == come:
                    break
                if call_back(ledger[CALL], ASK_POSTINGS, n, at) != 0:
                    return 1
            at = indexes[at, NEXT]
    line = relations[n]
    if line[TRAITS] & CHANGES_KEPT:
        done = int64_at(line[DONE_AT], 2)
        if done[1] + more > line[CHANGED_ROOM] and call_back(ledger[CALL], ASK_JOURNAL, n, -more) != 0:
            return 1
        begin = done[1]
        kept_rows = int32_at(line[CHANGED_ROWS_AT], line[CHANGED_ROOM])
        kept_heights = int32_at(line[CHANGED_HEIGHTS_AT], line[CHANGED_ROOM])
        kept_weights = int64_at(line[CHANGED_WEIGHTS_AT], line[CHANGED_ROOM])
        for i in range(more):
            kept_rows[begin + i] = rows[i]
            kept_heights[begin + i] = height
            kept_weights[begin + i] = weights[i]
        done[1] = begin + more
    return 0


@numba.njit(nogil=True)
def apply(ledger, tallies, relations, indexes, tape, plans, bounds, n, rows, weights, removals, height):
    """One relation's entry changes at one height, through every plan that starts at it, and into the arrangements.

    plans[bounds[3 n + c] : bounds[3 n + c + 1]] are the plans whose other atoms of the relation see it as it was (c 0),
    both (1), or with the changes (2).
    """
    begin, end = bounds[3 * n], bounds[3 * n + 3]
    at = np.empty(1, np.int32)
    at[0] = height
    r = relation_on(relations, n)
    size, arity = rows.size, r.rows.shape[1]
    codes = np.empty((0, arity), np.int64)
    sent = weights
    if begin < end or ledger[NOTED] != 0:
        if size > ledger[SMALL] and call_back(ledger[CALL], ASK_MEMORY, n, 8 * arity * size) != 0:
            return 1
        codes = np.empty((size, arity), np.int64)
        for i in range(size):
            for c in range(arity):
                codes[i, c] = r.rows[rows[i], c]
        if ledger[NOTED] != 0 and _ask_with(ledger, ASK_NOTE, n, 0, codes, at, weights) != 0:
            return 1
        if removals == 0 and ledger[SIGNED_STRATUM] == 0:
            sent = np.ones(1, np.int64)
    direction = 0.0
    for i in range(sent.size):
        direction += 1.0 if sent[i] > 0 else -1.0
    tallies[DIRECTION] = direction / max(1, sent.size)
    for i in range(begin, end):
        if i == bounds[3 * n + 2]:
            break
        if i >= bounds[3 * n + 1]:
            if _ask_with(ledger, ASK_PLAN, plans[i], n, codes, at, sent) != 0:
                return 1
        elif _through(ledger, tallies, relations, indexes, tape, plans[i], codes, at, sent) != 0:
            return 1
    if _change_entries(ledger, relations, indexes, n, rows, weights, height, removals) != 0:
        return 1
    if relations[n, TRAITS] & CLOCKED and _ask_with(ledger, ASK_NOTE, n, 1, codes, rows, weights) != 0:
        return 1
    tallies[DIRECTION] = direction / max(1, sent.size)
    for i in range(bounds[3 * n + 2], end):
        if _through(ledger, tallies, relations, indexes, tape, plans[i], codes, at, sent) != 0:
            return 1
    return 0


@numba.njit(nogil=True)
def _settle_height(ledger, tallies, relations, indexes, tape, plans, bounds, height, trait):
    """Bring the entries of the rows that are scheduled at a height up to date, and carry the changes on. trait: only of
    the relations with this trait; 0: of all."""
    if height >= ledger[LISTS_ROOM]:
        # A height of a fold on the clock alone.
        return 0
    changes = [(np.int64(0), np.empty(0, np.int32), np.empty(0, np.int64), np.int64(0))]
    changes.clear()
    for n in range(ledger[OWN_RELATIONS]):
        if trait != 0 and not relations[n, TRAITS] & trait:
            continue
        touched = _scheduled(ledger, height, n)
        if touched.size == 0:
            continue
        if touched.size > ledger[SMALL] and call_back(ledger[CALL], ASK_MEMORY, n, 32 * touched.size) != 0:
            return 1
        if relations[n, TRAITS] & GROUPED:
            none = np.empty((0, 0), np.int64)
            if _ask_with(ledger, ASK_GROUPS, n, height, none, touched, np.empty(0, np.int64)) != 0:
                return 1
            size = ledger[GIVEN + 1]
            rows = int32_at(ledger[GIVEN], size).copy()
            weights = int64_at(ledger[GIVEN + 2], size).copy()
            removals = ledger[GIVEN + 3]
            later = int32_at(ledger[GIVEN + 4], ledger[GIVEN + 5]).copy()
            heights = int32_at(ledger[GIVEN + 6], ledger[GIVEN + 5]).copy()
        else:
            marks = int8_at(relations[n, MARKS_AT], relations[n, ROWS_ROOM])
            rows, weights, removals, later, heights = _settle(
                relation_on(relations, n), touched, marks, np.int32(height), ledger[SIGNED_STRATUM] != 0
            )
        if later.size > 0 and schedule(ledger, relations, n, later, heights) != 0:
            return 1
        if rows.size > 0:
            changes.append((np.int64(n), rows, weights, np.int64(removals)))
    for n, rows, weights, removals in changes:
        if (
            apply(
                ledger, tallies, relations, indexes, tape, plans, bounds, n, rows, weights, removals, height
            )
            != 0
        ):
            return 1
    return 0


@kernel(types.int64(I64_1, F64_1, I64_2, I64_2, I64_1, I64_1, I64_1))
def climb(ledger, tallies, relations, indexes, tape, plans, bounds):
    """Bring entries, and whatever follows from them, up to date with the supports, height by height. 1: a call back
    wanted to stop.

    relations, indexes: the board; the stratum's own relations come first. tape: the plans; plans, bounds: those that
    start at own relations (`apply`).
    """
    while True:
        height = np.int64(_NO_HEIGHT)
        if ledger[HEAP] > 0:
            height = np.int64(int32_at(ledger[HEAP_AT], 1)[0])
        if ledger[STEPPED] != 0:
            # Folds on the clock have heights of their own.
            if call_back(ledger[CALL], ASK_NEXT, height, 0) != 0:
                return 1
            height = ledger[GIVEN]
        if height == _NO_HEIGHT:
            return 0
        if ledger[HEAP] > 0 and np.int64(int32_at(ledger[HEAP_AT], 1)[0]) == height:
            _dequeue(ledger)
            int32_at(ledger[LISTS_AT], ledger[LISTS_ROOM] * (2 * ledger[OWN_RELATIONS] + 1))[
                height * (2 * ledger[OWN_RELATIONS] + 1)
            ] = 0
        ledger[HEIGHT] = height
        if height > ledger[TALLEST] and call_back(ledger[CALL], ASK_HEIGHT, height, 0) != 0:
            return 1
        if count_work(ledger, 64) != 0:
            return 1
        if ledger[STEPPED] != 0:
            trait = np.int64(CLOCKED)
            if _settle_height(ledger, tallies, relations, indexes, tape, plans, bounds, height, trait) != 0:
                return 1
            if call_back(ledger[CALL], ASK_CLOCK, height, 0) != 0:
                return 1
        if _settle_height(ledger, tallies, relations, indexes, tape, plans, bounds, height, np.int64(0)) != 0:
            return 1


@kernel(types.int64(I64_1, F64_1, I64_2, types.int64, I64_2, I32_1, I64_1, types.boolean))
def deliver(ledger, tallies, relations, n, tuples, heights, weights, counted):
    """Push supports to own relation n, and schedule their rows. counted: they are derived. 1: as of `climb`."""
    return np.int64(_deliver(ledger, tallies, relations, n, tuples, heights, weights, counted))


@kernel(types.int64(I64_1, F64_1, I64_2, I64_2, I64_1, types.int64, I64_2, I32_1, I64_1))
def through(ledger, tallies, relations, indexes, tape, plan, codes, heights, weights):
    """Carry a batch through a plan whose atoms see the relations as they are. 1: as of `climb`."""
    return np.int64(_through(ledger, tallies, relations, indexes, tape, plan, codes, heights, weights))
