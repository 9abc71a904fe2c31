"""The symbols of one snapshot, as a symbol table that can grow beside it.

In: the number of symbols that the snapshot has, codes that are known already, and its chunks of texts (or none, where
only known symbols will be asked for). Out: a `SymbolTable`. Always: a symbol of the snapshot keeps its code, a new one
gets the next code after them; the chunks belong to the reader's cache and are only read, so a table costs what is new
in it, however many symbols there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.storage.reader import Texts


class TextsNotReadError(Exception):
    """The text of a symbol of the snapshot is asked for, but the table has no chunks: an evaluation that computes no
    texts needs them all the same for the message of an error. It is to be done again with all chunks."""


class SnapshotSymbols(SymbolTable):
    """See the module. chunks: (code of the first symbol, texts), in ascending order."""

    def __init__(
        self, count: int, known: Mapping[str, int], chunks: Sequence[tuple[int, Texts]] = ()
    ) -> None:
        super().__init__()
        self._count = self._next = count
        self._known = dict(known)
        self._chunks = chunks
        self._firsts = np.array([first for first, _ in chunks], np.int64)

    def find(self, text: str) -> int | None:
        code = self._codes.get(text)
        if code is not None:
            return code
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
        return super().intern(text) if code is None else code

    def intern_all(self, texts: Sequence[str]) -> Codes:
        return np.array([self.intern(text) for text in texts], np.int64)

    def text(self, code: int) -> str:
        return self.texts(np.array([code], np.int64))[0]

    def texts(self, codes: Codes) -> list[str]:
        found = [""] * len(codes)
        home = np.searchsorted(self._firsts, codes, side="right") - 1
        home[codes >= self._count] = len(self._chunks)
        for chunk in np.unique(home).tolist():
            rows = np.flatnonzero(home == chunk)
            if chunk == len(self._chunks):
                known = super().texts(codes[rows])
            else:
                if chunk < 0 or not self._chunks:
                    raise TextsNotReadError
                first, texts = self._chunks[chunk]
                known = texts.at(codes[rows] - first)
            for row, text in zip(rows.tolist(), known, strict=True):
                found[row] = text
        return found

    def since(self, first: int) -> tuple[str, ...]:
        assert first >= self._count, "only the new symbols are listed"
        return tuple(super().since(first))
