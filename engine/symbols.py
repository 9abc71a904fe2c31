"""Interned strings: a symbol's code is its place in an append-only list.

Codes are handed out in order of first use and never reused while the process lives, except that `truncate` takes back
the ones that a dropped epoch handed out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class SymbolTable:
    """Strings <-> codes 0, 1, 2 ..."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts: list[str] = list(texts)
        self._codes: dict[str, int] = {text: code for code, text in enumerate(self._texts)}
        self.nbytes = sum(map(_size, self._texts))
        """About the bytes that the table holds."""

    def __len__(self) -> int:
        return len(self._texts)

    def intern(self, text: str) -> int:
        """The code of `text`, a new one if it is new."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._texts)
            self._texts.append(text)
            self.nbytes += _size(text)
        return code

    def intern_all(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The codes of many strings, int64[n]."""
        get = self._codes.get
        codes = [get(text, -1) for text in texts]
        if -1 in codes:
            codes = [self.intern(text) if code < 0 else code for text, code in zip(texts, codes, strict=True)]
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
        """The strings with codes `first` and up."""
        return tuple(self._texts[first:])

    def truncate(self, length: int) -> None:
        """Forget all codes from `length` on."""
        for text in self._texts[length:]:
            del self._codes[text]
            self.nbytes -= _size(text)
        del self._texts[length:]


def _size(text: str) -> int:
    """A string, its code, and their places in the list and in the dictionary."""
    return sys.getsizeof(text) + 128
