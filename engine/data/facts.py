"""Facts as typed columns, and from them codes.

Encoding is by columns: a symbol column becomes a dictionary first, so Python sees each distinct string once. About a
microsecond for each row of three symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from engine.data.arrow import column, numbers
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import float_codes
from engine.language.schema import ColumnType

ARROW_TYPES = {
    ColumnType.SYMBOL: pa.string(),
    ColumnType.NUMBER: pa.int64(),
    ColumnType.FLOAT: pa.float64(),
    ColumnType.BOOL: pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class TypedFacts:
    """Tuples of one relation as the columns `c0 ..` of an Arrow table, without nulls; the table may have further
    columns."""

    types: tuple[ColumnType, ...]
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def encode(self, relation: str, symbols: SymbolTable) -> Codes:
        """int64[n, arity]; new symbols are interned.

        Raises:
            InvalidValueError: a float is NaN or infinite.
        """
        codes = np.empty((len(self), len(self.types)), np.int64)
        for i, kind in enumerate(self.types):
            where = f"column {i + 1} of the facts of {relation}"
            codes[:, i] = encode_arrow(self.table.column(column(i)), kind, symbols, where)
        return codes


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Tuples of one relation in Parquet files with the columns `c0 ..` and `weight`, without nulls, that are not read
    yet.

    check: raises BatchUnreadableError unless each file is the one that was written. read: checks, and reads the tuples
    and their weights, int64[n]. first: one of the tuples.
    """

    types: tuple[ColumnType, ...]
    rows: int
    paths: tuple[str, ...]
    check: Callable[[], None]
    read: Callable[[], tuple[TypedFacts, Codes]]
    first: Callable[[], list[Any]]

    def __len__(self) -> int:
        return self.rows


def encode_arrow(
    values: pa.ChunkedArray, kind: ColumnType, symbols: SymbolTable, where: str = "a fact"
) -> Codes:
    """The codes of a column without nulls whose Arrow type is that of `kind`, int64[n]. where: its place, for errors.

    Raises:
        InvalidValueError: a float is NaN or infinite.
    """
    if kind is ColumnType.SYMBOL:
        # One dictionary for all chunks, in the order of first use, as when the rows came one by one.
        coded = values.combine_chunks().dictionary_encode()
        known = symbols.intern_all(coded.dictionary.to_pylist())
        codes: Codes = known[numbers(coded.indices)]
        return codes
    whole = values.combine_chunks()
    if kind is ColumnType.FLOAT:
        return float_codes(np.asarray(numbers(whole), np.float64), where)
    return np.asarray(numbers(whole.cast(pa.int64())), np.int64)
