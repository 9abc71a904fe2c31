"""The symbols of one snapshot, as a symbol table that can grow beside it.

In: the number of symbols that the snapshot has, codes that are known already, and its chunks of texts (or none, where
only known symbols will be asked for). Out: a `SymbolTable`. Always: a symbol of the snapshot keeps its code, a new one
gets the next code after them; the chunks belong to the reader's cache and are only read, so a table costs what is new
in it, however many symbols there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.storage.reader import Texts
from engine.symbols import SymbolTable

Codes = npt.NDArray[np.int64]


class SnapshotSymbols(SymbolTable):
    """See the module. chunks: (code of the first symbol, texts), in ascending order."""

    def __init__(
        self, count: int, known: Mapping[str, int], chunks: Sequence[tuple[int, Texts]] = ()
    ) -> None:
        super().__init__()
        self._count = count
        self._known = dict(known)
        self._chunks = chunks
        self._firsts = np.array([first for first, _ in chunks], np.int64)

    def __len__(self) -> int:
        return self._count + len(self._texts)

    def find(self, text: str) -> int | None:
        code = self._codes.get(text)
        if code is not None:
            return self._count + code
        code = self._known.get(text)
        if code is None:
            for first, texts in self._chunks:
                place = texts.place(text)
                if place is not None:
                    code = self._known[text] = first + place
                    break
        return code

    def intern(self, text: str) -> int:
        code = self.find(text)
        return self._count + super().intern(text) if code is None else code

    def intern_all(self, texts: Sequence[str]) -> Codes:
        return np.array([self.intern(text) for text in texts], np.int64)

    def text(self, code: int) -> str:
        if code >= self._count:
            return self._texts[code - self._count]
        chunk = int(np.searchsorted(self._firsts, code, side="right")) - 1
        first, texts = self._chunks[chunk]
        return texts.texts[code - first]

    def texts(self, codes: Codes) -> list[str]:
        found = [""] * len(codes)
        home = np.searchsorted(self._firsts, codes, side="right") - 1
        home[codes >= self._count] = len(self._chunks)
        for chunk in np.unique(home).tolist():
            rows = np.flatnonzero(home == chunk)
            if chunk == len(self._chunks):
                first, texts = self._count, self._texts
            else:
                first, texts = self._chunks[chunk][0], self._chunks[chunk][1].texts
            for row, place in zip(rows.tolist(), (codes[rows] - first).tolist(), strict=True):
                found[row] = texts[place]
        return found

    def since(self, first: int) -> tuple[str, ...]:
        assert first >= self._count, "only the new symbols are listed"
        return tuple(self._texts[first - self._count :])

    def truncate(self, length: int) -> None:
        super().truncate(length - self._count)
