"""How a relation and an index lie in memory: flat numpy arrays, grouped in named tuples that kernels take.

The life of a tuple: it becomes a *row* (int64 codes) found through an open-addressing table of row ids; its *supports*
are a short list of (height, count) nodes in no particular order; its *entries* are a list of (height, weight) nodes;
each demanded index holds one *posting* for each entry. Rows, support nodes, entries, keys and posting blocks come from
pools with free lists, so a store that becomes empty keeps no garbage.

Values that are read together are stored together (list heads, support nodes and entries are records), because a random
access costs more than anything else. Bytes for a tuple of a binary relation with one support and one entry: row 16,
list heads 8, table slot 6 to 12, support 16, entry 8; for each index a posting of 12 (payload and entry id), a position
of 4, and 24 or more for each key.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
Records = npt.NDArray[np.void]
Scalar = TypeVar("Scalar", bound=np.generic)

HEADS = np.dtype([("support", np.int32), ("entry", np.int32)])
NODE = np.dtype([("count", np.int64), ("height", np.int32), ("next", np.int32)])
ENTRY = np.dtype([("hw", np.int32), ("next", np.int32)])

NONE = -1
FREE = -2
"""The `entry` head of a row on the free list."""

# Counters of a relation (`head`).
(
    ROWS,
    ROW_FREE,
    LIVE,
    NODES,
    NODE_FREE,
    ENTRIES,
    ENTRY_FREE,
    NODES_USED,
    ENTRIES_USED,
    NEGATIVE,
    ASSERTED,
    WARM,
) = range(12)
# Counters of an index (`head`); BLOCK_FREE is the first of 32 free lists, one for each block size 2**c.
# HELD counts the places of all blocks in use.
KEYS, KEY_FREE, KEYS_USED, POSTINGS, HELD, BLOCK_FREE = range(6)
RELATION_COUNTERS = 12
INDEX_COUNTERS = BLOCK_FREE + 32

SIGNED = np.iinfo(np.int32).max
"""`key_bound` of a key that has had an entry of negative weight."""


class RelationArrays(NamedTuple):
    """The arrays of one relation."""

    rows: I64  # [rows, arity]
    heads: Records  # [rows] HEADS: node id or NONE (of a free row: the next one), entry id, NONE, or FREE
    slots: I32  # [power of two] row id or NONE
    nodes: Records  # [nodes] NODE, a list for each row
    entries: Records  # [entries] ENTRY, a list for each row; hw is height * 2 + (1 if the weight is -1)
    low: I64  # [arity] no code of the column is below
    high: I64  # [arity] no code of the column is above
    head: I64  # counters


class IndexArrays(NamedTuple):
    """The arrays of one index: keys in an open-addressing table, each with one block of postings."""

    key_columns: I64  # [k] positions of the key's columns
    payload_columns: I64  # [p] positions of the others
    slots: I32  # [power of two] key id or NONE
    keys: I64  # [keys, k]
    key_start: I32  # [keys] first posting; next free key for a free key
    key_count: I32  # [keys] postings
    key_class: I8  # [keys] the block holds 2**class postings
    key_bound: I32  # [keys] no posting's entry has a larger hw; SIGNED when one had a negative weight
    payload: I64  # [postings, p]
    entry: I32  # [postings] entry id; next free block for the first of a free block
    position: I32  # [entries] place of the entry's posting inside its key's block
    head: I64  # counters


_LEAST, _MOST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def new_relation(arity: int, capacity: int = 16) -> RelationArrays:
    """Arrays of an empty relation with room for `capacity` tuples (a power of two)."""
    head = np.zeros(RELATION_COUNTERS, np.int64)
    head[[ROW_FREE, NODE_FREE, ENTRY_FREE]] = NONE
    return RelationArrays(
        rows=np.empty((capacity, arity), np.int64),
        heads=np.empty(capacity, HEADS),
        slots=np.full(capacity * 2, NONE, np.int32),
        nodes=np.empty(capacity, NODE),
        entries=np.empty(capacity, ENTRY),
        low=np.full(arity, _MOST),
        high=np.full(arity, _LEAST),
        head=head,
    )


def new_index(arity: int, key_columns: tuple[int, ...], entries: int, capacity: int = 16) -> IndexArrays:
    """Arrays of an empty index over the columns `key_columns`; `entries` is the relation's entry capacity."""
    head = np.full(INDEX_COUNTERS, NONE, np.int64)
    head[[KEYS, KEYS_USED, POSTINGS, HELD]] = 0
    payload = [c for c in range(arity) if c not in key_columns]
    return IndexArrays(
        key_columns=np.array(key_columns, np.int64),
        payload_columns=np.array(payload, np.int64),
        slots=np.full(capacity * 2, NONE, np.int32),
        keys=np.empty((capacity, len(key_columns)), np.int64),
        key_start=np.empty(capacity, np.int32),
        key_count=np.empty(capacity, np.int32),
        key_class=np.empty(capacity, np.int8),
        key_bound=np.empty(capacity, np.int32),
        payload=np.empty((capacity, len(payload)), np.int64),
        entry=np.empty(capacity, np.int32),
        position=np.empty(entries, np.int32),
        head=head,
    )


RELATION = numba.typeof(new_relation(2))  # type: ignore[no-untyped-call]  # numba is not typed
INDEX = numba.typeof(new_index(2, (0,), 16))  # type: ignore[no-untyped-call]  # numba is not typed


def grown(array: npt.NDArray[Scalar], capacity: int) -> npt.NDArray[Scalar]:
    """A copy of `array` with room for `capacity` elements along the first axis; the new part is undefined."""
    larger = np.empty((capacity, *array.shape[1:]), array.dtype)
    # As bytes: numpy would copy records field by field, which takes six times as long.
    larger.reshape(-1).view(np.uint8)[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return larger


def nbytes(arrays: RelationArrays | IndexArrays) -> int:
    """Bytes reserved by the arrays."""
    return sum(array.nbytes for array in arrays)
