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


class LineWriter:
    """Makes lines of the tuples of a relation, as many at a time as one likes. symbols: the distinct codes of all of
    them, ascending; texts: theirs, in the same order."""

    def __init__(self, symbols: npt.NDArray[np.int64], texts: Sequence[str]) -> None:
        # Imported when a store is filled: it takes a tenth of a second, and most services never need it.
        import pyarrow as pa

        self._symbols, self._texts = symbols, texts
        self._kinds = np.array([_kind(text) for text in texts], np.int8)
        self._known = pa.array(texts, pa.large_string())
        self._ends = pa.array([f"{text} .\n" for text in texts], pa.large_string())

    def lines(self, codes: Codes) -> Lines:
        """codes: int64[n, 3]."""
        places = np.searchsorted(self._symbols, codes)
        what = self._kinds[places] if len(places) else np.empty((0, 3), np.int8)
        triple = (what[:, 0] & (_IRI | _BLANK) != 0) & (what[:, 1] & _IRI != 0) & (what[:, 2] != 0)
        varied = triple & (what[:, 2] & _VARIED != 0)
        blank = triple & ~varied & ((what[:, 0] & _BLANK != 0) | (what[:, 2] & _BLANK != 0))
        texts = self._texts
        return Lines(
            self._joined(places[triple & ~varied & ~blank]),
            self._joined(places[blank]),
            [(texts[s], texts[p], texts[o]) for s, p, o in places[varied].tolist()],
            int(len(codes) - np.count_nonzero(triple)),
        )

    def _joined(self, places: npt.NDArray[np.int64]) -> bytes:
        if not len(places):
            return b""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [
            self._known.take(places[:, 0]),
            self._known.take(places[:, 1]),
            self._ends.take(places[:, 2]),
        ]
        joined: Any = pc.binary_join_element_wise(*columns, pa.scalar(" ", pa.large_string()))
        _, offsets, data = joined.buffers()
        # The texts of a column stand one behind the other, which is the file.
        return bytes(memoryview(data)[: np.frombuffer(offsets, np.int64, len(joined) + 1)[-1]])


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
