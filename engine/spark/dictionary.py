"""The dictionary on the executors: texts and codes of symbols that are too many for the engine process.

In: columns of texts, and the symbol table. Out: a code for each distinct text. Always: a text that the symbol table
knows, near or far, keeps its code; the new ones get the next codes without a gap, in an order that depends only on the
texts and on the number of partitions. The distinct new texts are spread by their hash and sorted within each partition;
the engine learns how many each partition has, and hands out ranges. So it sees one number for each partition; only when
the new texts are few do they come here, where later look-ups cost no query.

Each import that brings many new texts adds a layer (text, code), and many layers are joined to one. A look-up is one
query for all of its texts or codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.data.arrow import array_of
from engine.data.far import SPAN
from engine.data.symbols import SymbolTable
from engine.spark.frames import from_driver, long, united
from engine.spark.tables import ROWS, Table, Tables

TEXT, CODE = "text", "code"
_PART, _PLACE = "part", "place"
_PLACES = (1 << 33) - 1
"""Spark numbers the rows of a partition in the lower 33 bits."""
_LAYERS = 6


@dataclass(frozen=True, slots=True)
class _Layer:
    """Texts with the codes first <= code < stop; the table may have more."""

    first: int
    stop: int
    table: Table

    @property
    def frame(self) -> DataFrame:
        return self.table.frame.where(F.col(CODE) < long(self.stop)).select(TEXT, CODE)


class Dictionary:
    """See the module. It is the source of the far part of one symbol table. near_rows: up to so many new texts of
    an import are kept by the table itself.
    """

    def __init__(self, tables: Tables, near_rows: int) -> None:
        self._tables = tables
        self._near_rows = near_rows
        self._layers: list[_Layer] = []

    def release(self) -> None:
        for layer in self._layers:
            self._tables.release(layer.table)
        self._layers = []

    # ---- what an import brings

    def learn(
        self, rows: DataFrame, names: Sequence[str], symbols: SymbolTable
    ) -> tuple[DataFrame, list[Table]]:
        """Give a code to each text in these columns. Returns (text, code) with all symbols that there are then, and the
        tables behind it that are to be released after it was read.
        """
        self._compact()
        held: list[Table] = []
        try:
            texts, codes = symbols.near
            if texts:
                near = pa.table({TEXT: pa.array(texts, pa.string()), CODE: codes})
                held.append(self._tables.put(near))
            known = [*(layer.frame for layer in self._layers), *(table.frame for table in held)]
            found = rows.select(F.explode(F.array(*names)).alias(TEXT)).distinct()
            if known:
                found = found.join(united(known), TEXT, "left_anti")
            new = self._numbered(found, len(symbols))
            known.append(new.frame)
            if new.rows <= self._near_rows:
                held.append(new)
                here = self._tables.collect(new.frame).sort_by(CODE)
                symbols.intern_new(here.column(TEXT).to_pylist())
            else:
                self._layers.append(_Layer(len(symbols), len(symbols) + new.rows, new))
                symbols.add_far(self, new.rows)
            return united(known), held
        except BaseException:
            for table in held:
                self._tables.release(table)
            raise

    def _numbered(self, texts: DataFrame, first: int) -> Table:
        """Distinct texts with the codes from `first` on."""
        sorted_ = texts.repartition(self._tables.partitions, TEXT).sortWithinPartitions(TEXT)
        place = F.monotonically_increasing_id().bitwiseAND(long(_PLACES))
        placed = sorted_.select(TEXT, F.spark_partition_id().alias(_PART), place.alias(_PLACE))
        table, counts = self._tables.measured(placed, [_PART], [])
        sizes = dict(zip(array_of(counts, _PART).tolist(), array_of(counts, ROWS).tolist(), strict=True))
        before = accumulate((sizes.get(part, 0) for part in range(max(sizes, default=0))), initial=first)
        start = F.get(F.array(*map(long, before)), F.col(_PART))
        return table.view(table.frame.select(TEXT, (start + F.col(_PLACE)).alias(CODE)), table.rows)

    def fill(self, parts: Iterable[tuple[int, Sequence[str | None]]]) -> None:
        """Take texts from this process: (code of the first, texts), ascending; None stands for no symbol."""
        texts: list[str] = []
        codes: list[int] = []

        def put() -> None:
            if texts:
                rows = pa.table({TEXT: pa.array(texts, pa.string()), CODE: np.array(codes, np.int64)})
                table = self._tables.checkpoint(from_driver(self._tables.spark, rows), len(texts))
                self._layers.append(_Layer(codes[0], codes[-1] + 1, table))
                texts.clear()
                codes.clear()

        for first, part in parts:
            for code, text in enumerate(part, first):
                if text is not None:
                    texts.append(text)
                    codes.append(code)
            if len(texts) >= SPAN:
                put()
        put()
        self._compact()

    def _compact(self) -> None:
        """Make one layer of many."""
        if len(self._layers) <= _LAYERS:
            return
        before = self._layers
        spread = united([layer.frame for layer in before]).repartition(self._tables.partitions, TEXT)
        table = self._tables.checkpoint(spread)
        self._layers = [_Layer(before[0].first, before[-1].stop, table)]
        for layer in before:
            self._tables.release(layer.table)

    # ---- what the symbol table asks (engine/data/far.py)

    def codes(self, texts: Sequence[str]) -> dict[str, int]:
        valid = [text for text in texts if _is_unicode(text)]
        return {text: code for code, text in self._found(TEXT, pa.array(valid, pa.string())).items()}

    def texts(self, codes: Sequence[int]) -> dict[int, str]:
        return self._found(CODE, pa.array(codes, pa.int64()))

    def span(self, first: int, stop: int) -> dict[int, str]:
        within = [layer.frame for layer in self._layers if layer.first < stop and first < layer.stop]
        if not within:
            return {}
        wanted = (F.col(CODE) >= long(first)) & (F.col(CODE) < long(stop))
        return _by_code(self._tables.collect(united(within).where(wanted), small=False))

    def truncate(self, length: int) -> None:
        kept = []
        for layer in self._layers:
            if layer.first >= length:
                self._tables.release(layer.table)
            else:
                kept.append(_Layer(layer.first, min(layer.stop, length), layer.table))
        self._layers = kept

    def _found(self, name: str, values: pa.Array) -> dict[int, str]:
        if not len(values) or not self._layers:
            return {}
        wanted = self._tables.put(pa.table({name: values}))
        try:
            small = self._tables.small(wanted.rows)
            keys = F.broadcast(wanted.frame) if small or wanted.rows < SPAN else wanted.frame
            joined = united([layer.frame for layer in self._layers]).join(keys, name).select(TEXT, CODE)
            return _by_code(self._tables.collect(joined, small=small))
        finally:
            self._tables.release(wanted)


def _by_code(rows: pa.Table) -> dict[int, str]:
    return dict(zip(rows.column(CODE).to_pylist(), rows.column(TEXT).to_pylist(), strict=True))


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text; only then it can be a symbol."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
