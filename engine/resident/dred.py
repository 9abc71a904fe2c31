# mypy: ignore-errors
# Kernels are typed by their numba signatures.
"""Over-deletion, the first half of DRed (Gupta, Mumick, Subrahmanian: Maintaining Views Incrementally, SIGMOD 1993).

In: a stratum whose supports are up to date with everything from outside of it, and whose entries are still the old
ones; its journals say which supports were lost. Every tuple that lost a support loses its entry, whatever else supports
it, unless it is asserted; what was derived with it loses those derivations, at the heights that they had; and so on,
until nothing more is lost.

Out: supports are those of the tuples that are left, and every over-deleted tuple that still has one is scheduled at
the smallest height of its supports. This is the second half, the re-derivation: the ordinary way up the heights
(climb.py) enters those tuples again, and carries them on together with what the epoch adds.

Always: supports and entries fit together after each step, so that the order does not matter. Heights are gone through
in ascending order, again and again, because then the tuples that are deleted together are many.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.climb import (
    ASK_MEMORY,
    CALL,
    DELETING,
    F64_1,
    HEIGHT,
    I64_1,
    I64_2,
    OWN_RELATIONS,
    apply,
    count_work,
    schedule,
)
from engine.resident.kernels import kernel
from engine.resident.layout import NONE
from engine.resident.views import (
    CHANGED_ROOM,
    CHANGED_ROWS_AT,
    CHANGES_KEPT,
    DONE_AT,
    MARKS_AT,
    PUSHED_ROOM,
    PUSHED_ROWS_AT,
    PUSHED_WEIGHTS_AT,
    PUSHES_KEPT,
    ROWS_ROOM,
    TRAITS,
    call_back,
    int8_at,
    int32_at,
    int64_at,
    relation_on,
)

_ROOM = 1024
# Of a tuple that waits to be deleted.
_RELATION, _ROW, _NEXT = range(3)


@numba.njit(nogil=True)
def _losers(relations, n, begin, end):
    """The rows that lost a support in the pushes begin .. end of relation n's journal, have an entry and are not
    asserted; and the heights of their entries."""
    line = relations[n]
    r = relation_on(relations, n)
    marks = int8_at(line[MARKS_AT], line[ROWS_ROOM])
    pushed = int32_at(line[PUSHED_ROWS_AT], line[PUSHED_ROOM])
    weights = int64_at(line[PUSHED_WEIGHTS_AT], line[PUSHED_ROOM])
    rows, heights = np.empty(end - begin, np.int32), np.empty(end - begin, np.int32)
    found = 0
    for i in range(begin, end):
        row = pushed[i]
        entry = r.heads[row]["entry"]
        if weights[i] >= 0 or entry == NONE or marks[row] != 0:
            continue
        node = r.heads[row]["support"]
        while node != NONE and r.nodes[node]["height"] != 0:
            node = r.nodes[node]["next"]
        if node != NONE and r.nodes[node]["count"] > 0:
            continue
        marks[row] = 1
        rows[found] = row
        heights[found] = r.entries[entry]["hw"] >> 1
        found += 1
    for i in range(found):
        marks[rows[i]] = 0
    return rows[:found], heights[:found]


@numba.njit(nogil=True)
def _of_relation(relations, n, items, first, count):
    """The rows of relation n on a list of waiting tuples that still have their entries, each once; count: at most."""
    r = relation_on(relations, n)
    marks = int8_at(relations[n, MARKS_AT], relations[n, ROWS_ROOM])
    rows = np.empty(count, np.int32)
    found = 0
    at = first
    while at != NONE:
        row = items[at, _ROW]
        if items[at, _RELATION] == n and marks[row] == 0 and r.heads[row]["entry"] != NONE:
            marks[row] = 1
            rows[found] = row
            found += 1
        at = items[at, _NEXT]
    for i in range(found):
        marks[rows[i]] = 0
    return rows[:found]


@numba.njit(nogil=True)
def _supported(relations, n):
    """The over-deleted rows of relation n that are still supported, and the smallest heights of their supports."""
    line = relations[n]
    r = relation_on(relations, n)
    gone = int32_at(line[CHANGED_ROWS_AT], line[CHANGED_ROOM])[: int64_at(line[DONE_AT], 2)[1]]
    rows, heights = np.empty(gone.size, np.int32), np.empty(gone.size, np.int32)
    found = 0
    for row in gone:
        smallest = np.int32(NONE)
        node = r.heads[row]["support"]
        while node != NONE:
            height = r.nodes[node]["height"]
            if r.nodes[node]["count"] > 0 and (smallest == NONE or height < smallest):
                smallest = height
            node = r.nodes[node]["next"]
        if smallest != NONE:
            rows[found] = row
            heights[found] = smallest
            found += 1
    return rows[:found], heights[:found]


@kernel(types.int64(I64_1, F64_1, I64_2, I64_2, I64_1, I64_1, I64_1))
def over_delete(ledger, tallies, relations, indexes, tape, plans, bounds):
    """See the module. Arguments and result are those of `climb`, which has to follow. The stratum is unsigned, and its
    entries have not changed in the epoch."""
    own = ledger[OWN_RELATIONS]
    seen = np.zeros(own, np.int64)
    # By height the first waiting tuple; the waiting tuples; the first free place among them, and the used ones.
    lists = np.full(_ROOM, NONE, np.int32)
    items = np.empty((_ROOM, 3), np.int32)
    free, used, waiting = np.int64(NONE), 0, 0
    height = 0
    ledger[DELETING] = 1
    while True:
        for n in range(own):
            if relations[n, TRAITS] & PUSHES_KEPT == 0:
                # It was empty.
                continue
            pushed = int64_at(relations[n, DONE_AT], 2)[0]
            if pushed == seen[n]:
                continue
            rows, heights = _losers(relations, n, seen[n], pushed)
            seen[n] = pushed
            tallest = 0
            for i in range(rows.size):
                tallest = max(tallest, np.int64(heights[i]))
            if tallest >= lists.size:
                size = max(2 * lists.size, tallest + 1)
                if call_back(ledger[CALL], ASK_MEMORY, n, 4 * size) != 0:
                    return 1
                lists = np.concatenate((lists, np.full(size - lists.size, NONE, np.int32)))
            if waiting + rows.size > items.shape[0]:
                size = max(2 * items.shape[0], waiting + rows.size)
                if call_back(ledger[CALL], ASK_MEMORY, n, 12 * size) != 0:
                    return 1
                items = np.concatenate((items, np.empty((size - items.shape[0], 3), np.int32)))
            for i in range(rows.size):
                if free != NONE:
                    place = free
                    free = np.int64(items[place, _NEXT])
                else:
                    place = np.int64(used)
                    used += 1
                items[place, _RELATION] = n
                items[place, _ROW] = rows[i]
                items[place, _NEXT] = lists[heights[i]]
                lists[heights[i]] = place
            waiting += rows.size
        if waiting == 0:
            break
        while lists[height] == NONE:
            height = height + 1 if height + 1 < lists.size else 0
        ledger[HEIGHT] = height
        if count_work(ledger, 64) != 0:
            return 1
        first = np.int64(lists[height])
        lists[height] = NONE
        counts = np.zeros(own, np.int64)
        last = first
        while True:
            counts[items[last, _RELATION]] += 1
            if items[last, _NEXT] == NONE:
                break
            last = np.int64(items[last, _NEXT])
        for n in range(own):
            if counts[n] == 0:
                continue
            rows = _of_relation(relations, n, items, first, counts[n])
            if rows.size == 0:
                continue
            gone = np.full(rows.size, -1, np.int64)
            if (
                apply(
                    ledger,
                    tallies,
                    relations,
                    indexes,
                    tape,
                    plans,
                    bounds,
                    np.int64(n),
                    rows,
                    gone,
                    np.int64(rows.size),
                    np.int64(height),
                )
                != 0
            ):
                return 1
        waiting -= counts.sum()
        items[last, _NEXT] = free
        free = first
    ledger[DELETING] = 0
    ledger[HEIGHT] = -1
    for n in range(own):
        if relations[n, TRAITS] & CHANGES_KEPT == 0:
            continue
        rows, heights = _supported(relations, n)
        if rows.size > 0 and schedule(ledger, relations, n, rows, heights) != 0:
            return 1
    return 0
