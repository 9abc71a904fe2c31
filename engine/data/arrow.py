"""Tuples of codes as Arrow tables: how they leave one placement and enter another.

A relation's tuple of n columns is `c0 .. c(n-1)`, 64-bit integers that hold codes (engine/data/values.py); beside them
stand `height`, `support` and `entry` (see engine/maintenance/placement.py). The same names are used inside Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.data.codes import Codes

Array = npt.NDArray[Any]

HEIGHT, SUPPORT, ENTRY = "height", "support", "entry"


def column(i: int) -> str:
    """The name of a relation's column."""
    return f"c{i}"


def columns(arity: int) -> list[str]:
    return [column(i) for i in range(arity)]


def to_arrow(codes: Codes, **more: Array) -> pa.Table:
    """int64[n, arity] and further columns (n values each, or one value for all rows) as an Arrow table."""
    n = len(codes)
    arrays = [pa.array(np.ascontiguousarray(codes[:, i])) for i in range(codes.shape[1])]
    extra = [pa.array(np.ascontiguousarray(np.broadcast_to(values, n))) for values in more.values()]
    return pa.table([*arrays, *extra], names=[*columns(codes.shape[1]), *more])


# `pa.array`, `pa.scalar` and `to_numpy` import pandas where that is installed, which takes longer than a small program
# does; so what a run over files needs of them is here.


def numbers(array: pa.Array) -> Array:
    """An Arrow array of numbers, without nulls, as a read-only numpy array over the same memory."""
    return np.from_dlpack(array)


def integers(codes: Codes) -> pa.Array:
    """int64[n], contiguous, as an Arrow array over the same memory."""
    return pa.Array.from_buffers(pa.int64(), len(codes), [None, pa.py_buffer(codes)])


def strings(texts: Sequence[str]) -> pa.Array:
    """Texts as an Arrow array of large strings."""
    content = "".join(texts)
    encoded = content.encode()
    lengths = map(len, texts) if len(content) == len(encoded) else (len(text.encode()) for text in texts)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(texts)), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.large_string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(encoded)]
    )


def codes_of(table: pa.Table, arity: int) -> Codes:
    """int64[n, arity]: the tuples of an Arrow table."""
    result = np.empty((table.num_rows, arity), np.int64)
    for i in range(arity):
        result[:, i] = table.column(column(i)).to_numpy()
    return result


def summed_by(table: pa.Table, key: list[str], values: list[str]) -> pa.Table:
    """(key, values): sums of `values` by `key`. A sum that exceeds 64 bits wraps around."""
    sums = table.group_by(key).aggregate([(value, "sum") for value in values])
    return sums.rename_columns([*key, *values])


def array_of(table: pa.Table, name: str) -> Codes:
    """One column, int64[n], a copy; an int column becomes long."""
    return np.array(table.column(name).to_numpy(), np.int64)
