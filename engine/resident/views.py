"""Arrays by their address, and calls back into Python, for compiled loops over any number of relations.

numba needs to know the type of every argument, so a loop cannot take a list of relations. It takes a *board*, a table
of addresses with a line for each relation and each index, and views an array where it uses it: 5 ns, and no reference
is counted. The owner keeps the arrays alive, and writes their new addresses after it has enlarged them; so a view must
not be used after a call back.

A call back gets (what, a, b), three integers, and returns 0, or 1 if the loop is to stop. It is a ctypes function: it
takes the interpreter's lock itself. Where numba does not compile (NUMBA_DISABLE_JIT) the same functions are Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from engine.resident.layout import (
    ENTRY,
    HEADS,
    INDEX_COUNTERS,
    NODE,
    RELATION_COUNTERS,
    IndexArrays,
    RelationArrays,
)

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

# A relation's line on the board. NEXT of an index is the next index of its relation; FIRST is the first one, or NONE.
(
    ROWS_AT,
    ROWS_ROOM,
    ARITY,
    HEADS_AT,
    SLOTS_AT,
    SLOTS_ROOM,
    NODES_AT,
    NODES_ROOM,
    ENTRIES_AT,
    ENTRIES_ROOM,
    LOW_AT,
    HIGH_AT,
    HEAD_AT,
    MARKS_AT,
    FIRST,
    TRAITS,
    DONE_AT,
    PUSHED_ROWS_AT,
    PUSHED_HEIGHTS_AT,
    PUSHED_WEIGHTS_AT,
    PUSHED_ROOM,
    CHANGED_ROWS_AT,
    CHANGED_HEIGHTS_AT,
    CHANGED_WEIGHTS_AT,
    CHANGED_ROOM,
) = range(25)
RELATION_LINE = 25
# An index's line.
(
    KEY_COLUMNS_AT,
    KEY_COLUMNS,
    PAYLOAD_COLUMNS_AT,
    PAYLOAD_COLUMNS,
    KEY_SLOTS_AT,
    KEY_SLOTS_ROOM,
    KEYS_AT,
    KEYS_ROOM,
    KEY_START_AT,
    KEY_COUNT_AT,
    KEY_CLASS_AT,
    KEY_BOUND_AT,
    PAYLOAD_AT,
    POSTINGS_ROOM,
    ENTRY_AT,
    POSITION_AT,
    POSITION_ROOM,
    INDEX_HEAD_AT,
    NEXT,
) = range(19)
INDEX_LINE = 19

# TRAITS, a sum: journal of supports, and of entries; a fold on the clock reads it; folded in place.
PUSHES_KEPT, CHANGES_KEPT, CLOCKED, GROUPED = 1, 2, 4, 8


def _plain(dtype: npt.DTypeLike) -> Callable[[int, int], npt.NDArray[Any]]:
    size = np.dtype(dtype).itemsize

    def view(address: int, n: int) -> npt.NDArray[Any]:
        if n == 0:
            return np.empty(0, dtype)
        return np.frombuffer((ctypes.c_char * (int(n) * size)).from_address(int(address)), dtype)

    return view


def _compiled(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]  # numba is not typed
    def pointer(typing_context: Any, address: Any) -> Any:
        signature = types.CPointer(kind)(types.int64)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, code

    @numba.njit(inline="always")
    def view(address, n):
        return carray(pointer(address), n)

    return view


def _view(dtype: npt.DTypeLike) -> Any:
    if numba.config.DISABLE_JIT:
        return _plain(dtype)
    return _compiled(numba.typeof(np.empty(1, dtype)).dtype)  # type: ignore[no-untyped-call]  # as above


int64_at, int32_at, int8_at = _view(np.int64), _view(np.int32), _view(np.int8)
heads_at, _nodes_at, entries_at = _view(HEADS), _view(NODE), _view(ENTRY)


if numba.config.DISABLE_JIT:

    def call_back(address: int, what: int, a: int, b: int) -> int:
        """Call the function at `address`."""
        return int(CALLBACK(int(address))(int(what), int(a), int(b)))

    def address_of(array: npt.NDArray[Any]) -> int:
        """Where an array begins."""
        return array.ctypes.data
else:

    @intrinsic  # type: ignore[untyped-decorator]
    def call_back(typing_context: Any, address: Any, what: Any, a: Any, b: Any) -> Any:
        """Call the function at `address`."""
        integer = ir.IntType(64)
        kind = ir.FunctionType(integer, [integer] * 3)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

        return types.int64(types.int64, types.int64, types.int64, types.int64), code

    @numba.njit(inline="always")
    def address_of(array):
        """Where an array begins."""
        return np.int64(array.ctypes.data)


@numba.njit(nogil=True)
def relation_on(board, n):
    """The arrays of relation n of a board, int64[relations, RELATION_LINE]."""
    line = board[n]
    rows, arity = line[ROWS_ROOM], line[ARITY]
    return RelationArrays(
        int64_at(line[ROWS_AT], rows * arity).reshape(rows, arity),
        heads_at(line[HEADS_AT], rows),
        int32_at(line[SLOTS_AT], line[SLOTS_ROOM]),
        _nodes_at(line[NODES_AT], line[NODES_ROOM]),
        entries_at(line[ENTRIES_AT], line[ENTRIES_ROOM]),
        int64_at(line[LOW_AT], arity),
        int64_at(line[HIGH_AT], arity),
        int64_at(line[HEAD_AT], RELATION_COUNTERS),
    )


@numba.njit(nogil=True)
def index_on(board, n):
    """The arrays of index n of a board, int64[indexes, INDEX_LINE]."""
    line = board[n]
    columns, payload = line[KEY_COLUMNS], line[PAYLOAD_COLUMNS]
    keys, postings = line[KEYS_ROOM], line[POSTINGS_ROOM]
    return IndexArrays(
        int64_at(line[KEY_COLUMNS_AT], columns),
        int64_at(line[PAYLOAD_COLUMNS_AT], payload),
        int32_at(line[KEY_SLOTS_AT], line[KEY_SLOTS_ROOM]),
        int64_at(line[KEYS_AT], keys * columns).reshape(keys, columns),
        int32_at(line[KEY_START_AT], keys),
        int32_at(line[KEY_COUNT_AT], keys),
        int8_at(line[KEY_CLASS_AT], keys),
        int32_at(line[KEY_BOUND_AT], keys),
        int64_at(line[PAYLOAD_AT], postings * payload).reshape(postings, payload),
        int32_at(line[ENTRY_AT], postings),
        int32_at(line[POSITION_AT], line[POSITION_ROOM]),
        int64_at(line[INDEX_HEAD_AT], INDEX_COUNTERS),
    )


def write_relation(line: npt.NDArray[np.int64], a: RelationArrays) -> None:
    """Write the addresses of a relation's arrays into its line."""
    line[:FIRST] = (
        a.rows.ctypes.data,
        *a.rows.shape,
        a.heads.ctypes.data,
        a.slots.ctypes.data,
        len(a.slots),
        a.nodes.ctypes.data,
        len(a.nodes),
        a.entries.ctypes.data,
        len(a.entries),
        a.low.ctypes.data,
        a.high.ctypes.data,
        a.head.ctypes.data,
        line[MARKS_AT],
    )


def write_index(line: npt.NDArray[np.int64], a: IndexArrays) -> None:
    """Write the addresses of an index's arrays into its line."""
    line[:NEXT] = (
        a.key_columns.ctypes.data,
        len(a.key_columns),
        a.payload_columns.ctypes.data,
        len(a.payload_columns),
        a.slots.ctypes.data,
        len(a.slots),
        a.keys.ctypes.data,
        len(a.keys),
        a.key_start.ctypes.data,
        a.key_count.ctypes.data,
        a.key_class.ctypes.data,
        a.key_bound.ctypes.data,
        a.payload.ctypes.data,
        len(a.payload),
        a.entry.ctypes.data,
        a.position.ctypes.data,
        len(a.position),
        a.head.ctypes.data,
    )
