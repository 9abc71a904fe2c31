"""Results as Souffle writes them: codes to sorted lines of text.

In: the distinct tuples of a relation as int64 codes (engine/data/values.py) and the symbols' texts. Out: bytes, in
blocks. Always: lines are sorted by value, column after column (numbers by size, symbols by code point), so that two
runs give the same file; symbols are written as they are, or in double quotes with `rfc4180`; a float is written with
the 17 digits that restore its 64 bits. The work is done on whole columns: about half a microsecond a field, two for a
float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.data.arrow import integers, numbers, strings
from engine.data.codes import Codes
from engine.files.layout import Layout
from engine.language.schema import ColumnType, Schema

_BLOCK = 1 << 18
"""How many tuples become text at a time: this bounds the memory, and keeps each column's text far below 2 GB."""


class SymbolTexts:
    """The text of every code, and the order of the texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = strings(texts)
        self._ranks: Codes | None = None

    def texts(self, codes: Codes) -> pa.Array:
        return self._texts.take(integers(codes))

    def ranks(self, codes: Codes) -> Codes:
        """For each code the place of its text among all texts, in the order of UTF-8, which is that of code points."""
        if self._ranks is None:
            order = numbers(pc.sort_indices(self._texts))
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks[codes]


def write_tuples(codes: Codes, schema: Schema, symbols: SymbolTexts, layout: Layout) -> Iterator[bytes]:
    """The relation's tuples as lines, sorted, after a line of column names if the layout asks for one."""
    if layout.headers:
        yield (layout.delimiter.join(column.name for column in schema.columns) + "\n").encode()
    if schema.arity == 0:
        yield b"()\n" * min(len(codes), 1)
        return
    types = [column.type for column in schema.columns]
    codes = codes[_order(codes, types, symbols)]
    for start in range(0, len(codes), _BLOCK):
        yield _lines(codes[start : start + _BLOCK], types, symbols, layout)


def _order(codes: Codes, types: Sequence[ColumnType | None], symbols: SymbolTexts) -> npt.NDArray[np.intp]:
    """The order of the rows, sorted by value."""
    keys: list[npt.NDArray[np.int64] | npt.NDArray[np.float64]] = []
    for position, kind in enumerate(types):
        column = np.ascontiguousarray(codes[:, position])
        if kind is ColumnType.SYMBOL:
            keys.append(symbols.ranks(column))
        else:
            keys.append(column.view(np.float64) if kind is ColumnType.FLOAT else column)
    return np.lexsort(keys[::-1])


def _lines(codes: Codes, types: Sequence[ColumnType | None], symbols: SymbolTexts, layout: Layout) -> bytes:
    fields = [
        _fields(np.ascontiguousarray(codes[:, i]), kind, symbols, layout.rfc4180)
        for i, kind in enumerate(types)
    ]
    lines = pc.binary_join_element_wise(*fields, _text(layout.delimiter))
    ended = pc.binary_join_element_wise(lines, _text(""), _text("\n"))
    # The texts of an array lie behind each other in one buffer, which is the file's content already.
    _, offsets, content = ended.buffers()
    end = np.frombuffer(offsets, np.int64)[len(ended)]
    return memoryview(content)[:end].tobytes()


def _fields(column: Codes, kind: ColumnType | None, symbols: SymbolTexts, quoted: bool) -> pa.Array:
    """One column's values as texts."""
    if kind is ColumnType.NUMBER:
        return pc.cast(integers(column), pa.large_string())
    if kind is ColumnType.FLOAT:
        # As a C++ stream with 17 digits: 1 and 0.5, and 0.10000000000000001 for what is nearest to a tenth.
        return strings([f"{value:.17g}" for value in column.view(np.float64).tolist()])
    if kind is ColumnType.BOOL:
        return strings(["true" if code else "false" for code in column.tolist()])
    texts = symbols.texts(column)
    if not quoted:
        return texts
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text(""))


def _text(text: str) -> pa.Scalar:
    return strings([text])[0]
