"""Interned strings: a symbol's code is a number, handed out in order of first use.

A code is never given to a second string, so that older snapshots stay readable. `truncate` takes back the codes that a
dropped epoch handed out; only these are given out again. `keep` forgets the strings whose codes are no longer used; a
string that comes back later is a new symbol.

The texts of some codes may be elsewhere (engine/data/far.py): their symbols are asked for, many at once, and count as
held, but they are never forgotten. A string gets a new code only if neither this table nor the far part has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from engine.data.far import FarSymbols, FarTexts, NewTexts


class SymbolTable:
    """Strings <-> codes 0, 1, 2 ... A table that is made from a list of texts has a gap where the list holds None.

    nbytes: about how many bytes the table occupies.
    """

    _far: FarSymbols | None = None

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
        return len(self._codes) + (0 if self._far is None else self._far.count)

    def intern(self, text: str) -> int:
        """The code of `text`, a new one if it is new."""
        code = self._codes.get(text)
        if code is None and self._far is not None:
            code = self._far.codes((text,)).get(text)
        return self._new(text) if code is None else code

    def _new(self, text: str) -> int:
        code = self._codes[text] = self._next
        self._texts[code] = text
        self._next += 1
        self.nbytes += _size(text)
        return code

    def intern_new(self, texts: Iterable[str]) -> None:
        """Give the next codes to texts that the table, with its far part, does not hold."""
        for text in texts:
            self._new(text)

    def intern_all(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The codes of many strings, int64[n]."""
        codes = list(map(self._codes.get, texts))
        if None in codes:
            if self._far is None:
                codes = list(map(self.intern, texts))
            else:
                far = self._far.codes([text for text, code in zip(texts, codes, strict=True) if code is None])
                codes = [self._among(far, text) for text in texts]
        return np.array(codes, np.int64)

    def _among(self, far: dict[str, int], text: str) -> int:
        """The code of a text; `far` has those of the texts that are far symbols."""
        code = self._codes.get(text)
        if code is None:
            code = far.get(text)
        return self._new(text) if code is None else code

    def find(self, text: str) -> int | None:
        """The code of `text`, or None; nothing is interned."""
        code = self._codes.get(text)
        return self._far.codes((text,)).get(text) if code is None and self._far is not None else code

    def find_all(self, texts: Sequence[str]) -> list[int | None]:
        """The same for many texts."""
        codes = list(map(self._codes.get, texts))
        if self._far is None or None not in codes:
            return codes
        far = self._far.codes([text for text, code in zip(texts, codes, strict=True) if code is None])
        return [far.get(text) if code is None else code for text, code in zip(texts, codes, strict=True)]

    def text(self, code: int) -> str:
        if self._far is None or code in self._texts:
            return self._texts[code]
        return self._far.texts((code,))[code]

    def texts(self, codes: npt.NDArray[np.int64]) -> list[str]:
        """The strings of many codes."""
        texts, wanted = self._texts, codes.tolist()
        if self._far is not None:
            texts = {**self._far.texts([code for code in wanted if code not in texts]), **texts}
        return [texts[code] for code in wanted]

    def span(self, first: int, stop: int) -> dict[int, str]:
        """The strings with the codes first <= code < stop, by their codes, without those that were forgotten."""
        near = {code: self._texts[code] for code in range(first, stop) if code in self._texts}
        return near if self._far is None else {**self._far.span(first, stop), **near}

    def since(self, first: int) -> Sequence[str]:
        """The strings with the codes from `first` on; none of them may have been forgotten. Where there are far ones
        among them, all are read only when they are asked for.
        """
        if self._far is not None and any(stop > first for _, stop in self._far.ranges):
            return NewTexts(self, first, self._next)
        return tuple(self._texts[code] for code in range(first, self._next))

    def all(self) -> tuple[str | None, ...]:
        """The arguments from which an equal table can be made."""
        texts = self._texts
        if self._far is not None:
            texts = {code: text for part in self._far.all() for code, text in part.items()} | texts
        return tuple(texts.get(code) for code in range(self._next))

    def truncate(self, length: int) -> None:
        """Take back all codes from `length` on."""
        if length >= self._next:
            return
        codes = range(length, self._next)
        for code in codes if self._far is None else [code for code in self._texts if code >= length]:
            text = self._texts.pop(code, None)
            if text is not None:
                del self._codes[text]
                self.nbytes -= _size(text)
        self._next = length
        if self._far is not None:
            self._far.truncate(length)

    # ---- symbols whose texts are elsewhere

    @property
    def near(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The strings that are in this process, and their codes."""
        return list(self._codes), np.fromiter(self._codes.values(), np.int64, len(self._codes))

    @property
    def is_far(self) -> bool:
        """Whether the texts of some codes are elsewhere."""
        return self._far is not None

    def add_far(self, source: FarTexts, count: int) -> None:
        """The next `count` codes are those of texts that only `source` has. It is the same one each time."""
        if not count:
            return
        if self._far is None:
            self._far = FarSymbols(source)
        self._far.add(self._next, self._next + count)
        self._next += count

    def bring_near(self) -> None:
        """Take all texts into this process, before their source goes."""
        if self._far is None:
            return
        for part in list(self._far.all()):
            for code, text in part.items():
                self._texts[code], self._codes[text] = text, code
                self.nbytes += _size(text)
        far, self._far = self._far, None
        far.forget()

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
