"""Tuples of the relation as what a store is filled with.

In: codes, int64[n, 3], and the texts of the distinct ones. Out: N-Triples for a store's bulk loader, made by column,
and the few tuples that need more care. Cost: a look at each distinct symbol, then some vectorised steps for all tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from service.sparql.terms import Row, stored


@dataclass(frozen=True, slots=True)
class Lines:
    """plain: lines without blank nodes, whose names a bulk loader would change; blank: lines with them. varied: tuples
    that a store gives back with another term. skipped: how many are not triples of RDF."""

    plain: bytes
    blank: bytes
    varied: list[Row]
    skipped: int


def lines_of(codes: Codes, symbols: npt.NDArray[np.int64], texts: Sequence[str]) -> Lines:
    """symbols: the distinct codes, ascending; texts: theirs, in the same order."""
    # Imported when a store is filled: it takes a tenth of a second, and most services never need it.
    import pyarrow as pa

    kinds = np.array([_kind(text) for text in texts], np.int8)
    places = np.searchsorted(symbols, codes)
    subjects, predicates, objects = (places[:, column] for column in range(3))
    what = kinds[places] if len(places) else np.empty((0, 3), np.int8)
    triple = (what[:, 0] & (_IRI | _BLANK) != 0) & (what[:, 1] & _IRI != 0) & (what[:, 2] != 0)
    varied = triple & (what[:, 2] & _VARIED != 0)
    blank = triple & ~varied & ((what[:, 0] & _BLANK != 0) | (what[:, 2] & _BLANK != 0))
    plain = triple & ~varied & ~blank
    known = pa.array(texts, pa.large_string())
    ends = pa.array([f"{text} .\n" for text in texts], pa.large_string())

    def joined(rows: npt.NDArray[np.bool_]) -> bytes:
        columns = known.take(subjects[rows]), known.take(predicates[rows]), ends.take(objects[rows])
        return _joined(columns)

    rows = [(texts[s], texts[p], texts[o]) for s, p, o in places[varied].tolist()]
    return Lines(joined(plain), joined(blank), rows, int(len(codes) - np.count_nonzero(triple)))


_IRI, _BLANK, _LITERAL, _VARIED = 1, 2, 4, 8


def _kind(text: str) -> int:
    known = stored(text)
    if known is None:
        return 0
    if known[0] == "<":
        return _IRI
    if known[0] == "_":
        return _BLANK
    return _LITERAL if known == text else _LITERAL | _VARIED


def _joined(columns: Sequence[Any]) -> bytes:
    import pyarrow.compute as pc

    joined: Any = pc.binary_join_element_wise(*columns, " ")
    if not len(joined):
        return b""
    _, offsets, data = joined.buffers()
    # The texts of a column stand one behind the other, which is the file.
    return bytes(memoryview(data)[: np.frombuffer(offsets, np.int64, len(joined) + 1)[-1]])
