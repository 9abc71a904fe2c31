"""Interned strings: a symbol's code is a number, handed out in order of first use.

A code is never given to a second string, so that older snapshots stay readable. `truncate` takes back the codes that a
dropped epoch handed out; only these are given out again. `keep` forgets the strings whose codes are no longer used; a
string that comes back later is a new symbol.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class SymbolTable:
    """Strings <-> codes 0, 1, 2 ... A table that is made from a list of texts has a gap where the list holds None.

    nbytes: about how many bytes the table occupies.
    """

    def __init__(self, texts: Iterable[str | None] = ()) -> None:
        self._texts: dict[int, str] = {}
        self._next = 0
        for text in texts:
            if text is not None:
                self._texts[self._next] = text
            self._next += 1
        self._codes: dict[str, int] = {text: code for code, text in self._texts.items()}
        self.nbytes = sum(map(_size, self._codes))

    def __len__(self) -> int:
        """How many codes were handed out, which is also the next code."""
        return self._next

    @property
    def held(self) -> int:
        """How many strings the table holds."""
        return len(self._codes)

    def intern(self, text: str) -> int:
        """The code of `text`, a new one if it is new."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = self._next
            self._texts[code] = text
            self._next += 1
            self.nbytes += _size(text)
        return code

    def intern_all(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The codes of many strings, int64[n]."""
        codes = list(map(self._codes.get, texts))
        if None in codes:
            codes = list(map(self.intern, texts))
        return np.array(codes, np.int64)

    def find(self, text: str) -> int | None:
        """The code of `text`, or None; nothing is interned."""
        return self._codes.get(text)

    def text(self, code: int) -> str:
        return self._texts[code]

    def texts(self, codes: npt.NDArray[np.int64]) -> list[str]:
        """The strings of many codes."""
        texts = self._texts
        return [texts[code] for code in codes.tolist()]

    def since(self, first: int) -> tuple[str, ...]:
        """The strings with the codes from `first` on; none of them may have been forgotten."""
        return tuple(self._texts[code] for code in range(first, self._next))

    def all(self) -> tuple[str | None, ...]:
        """The arguments from which an equal table can be made."""
        return tuple(self._texts.get(code) for code in range(self._next))

    def truncate(self, length: int) -> None:
        """Take back all codes from `length` on."""
        for code in range(length, self._next):
            text = self._texts.pop(code, None)
            if text is not None:
                del self._codes[text]
                self.nbytes -= _size(text)
        self._next = min(self._next, length)

    def keep(self, used: npt.NDArray[np.int64], texts: Iterable[str]) -> npt.NDArray[np.int64]:
        """Forget all symbols except those with the codes `used` and those in `texts`; returns the forgotten codes,
        ascending."""
        held = np.fromiter(self._texts, np.int64, len(self._texts))
        unused = held[~np.isin(held, used)]
        wanted = {self._codes.get(text) for text in texts}
        gone = np.array(sorted(code for code in unused.tolist() if code not in wanted), np.int64)
        for code in gone.tolist():
            text = self._texts.pop(code)
            del self._codes[text]
            self.nbytes -= _size(text)
        return gone


def _size(text: str) -> int:
    """A string, its code, and their places in both dictionaries."""
    return sys.getsizeof(text) + 220
