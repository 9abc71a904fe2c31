"""The symbols of a database whose texts are not in this process, because there are too many of them.

In: a source that has the texts, and answers batches. Out: codes of texts and texts of codes. Always: a far symbol keeps
its code, and its text is not held by the symbol table itself (engine/data/symbols.py), so no text has two codes. Far
symbols are never forgotten. What was asked for lately is kept here, also that a text is not a far one; so the constants
of rules, and the strings of a small transaction, are asked for once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")

KEPT = 100_000
"""So many answers are kept in each direction."""
SPAN = 1 << 18
"""So many texts are read at once when all of a range are needed."""


class FarTexts(Protocol):
    """Where the texts are. Each call costs a query, whatever it asks for."""

    def codes(self, texts: Sequence[str], /) -> dict[str, int]:
        """The codes of those of the texts that it has."""

    def texts(self, codes: Sequence[int], /) -> dict[int, str]:
        """The texts of those of the codes that it has."""

    def span(self, first: int, stop: int, /) -> dict[int, str]:
        """All texts that it has with the codes first <= code < stop."""

    def truncate(self, length: int, /) -> None:
        """Forget the texts with the codes from `length` on."""


class FarSymbols:
    """See the module. ranges: of codes, ascending, (first, stop). A code in a range may stand for nothing, because its
    symbol was forgotten before the symbols went far."""

    def __init__(self, source: FarTexts) -> None:
        self._source = source
        self.ranges: list[tuple[int, int]] = []
        self._texts: dict[int, str] = {}
        self._codes: dict[str, int | None] = {}

    @property
    def count(self) -> int:
        """How many codes the ranges have."""
        return sum(stop - first for first, stop in self.ranges)

    def add(self, first: int, stop: int) -> None:
        """The source has got these codes."""
        if self.ranges and self.ranges[-1][1] == first:
            first = self.ranges.pop()[0]
        self.ranges.append((first, stop))
        # Some of what it did not have may be there now.
        self._codes = {text: code for text, code in self._codes.items() if code is not None}

    def forget(self) -> None:
        """Nothing is far any more."""
        self._source.truncate(0)

    def truncate(self, length: int) -> None:
        """Forget the codes from `length` on."""
        if not self.ranges or self.ranges[-1][1] <= length:
            return
        self.ranges = [(first, min(stop, length)) for first, stop in self.ranges if first < length]
        self._texts = {code: text for code, text in self._texts.items() if code < length}
        self._codes = {text: code for text, code in self._codes.items() if code is None or code < length}
        self._source.truncate(length)

    def codes(self, texts: Sequence[str]) -> dict[str, int]:
        """The codes of those of the texts that are far symbols."""
        known = self._codes
        if missing := [text for text in dict.fromkeys(texts) if text not in known]:
            found = self._source.codes(missing)
            answers = {text: found.get(text) for text in missing}
            self._codes = _kept(known, answers)
            known = {**known, **answers}
        return {text: code for text in texts if (code := known[text]) is not None}

    def texts(self, codes: Sequence[int]) -> dict[int, str]:
        """The texts of these codes.

        Raises:
            KeyError: one of them does not stand for a far symbol.
        """
        known = self._texts
        if missing := [code for code in dict.fromkeys(codes) if code not in known]:
            found = self._source.texts(missing)
            self._texts = _kept(known, found)
            known = {**known, **found}
        return {code: known[code] for code in codes}

    def span(self, first: int, stop: int) -> dict[int, str]:
        """All far symbols with the codes first <= code < stop; none of them is kept here."""
        if not any(start < stop and first < end for start, end in self.ranges):
            return {}
        return self._source.span(first, stop)

    def all(self) -> Iterator[dict[int, str]]:
        """All far symbols, in parts."""
        for first, stop in self.ranges:
            for start in range(first, stop, SPAN):
                yield self._source.span(start, min(start + SPAN, stop))


def _kept(known: dict[K, V], new: dict[K, V]) -> dict[K, V]:
    """The latest answers, not more than are kept."""
    together = {**known, **new}
    return dict(islice(together.items(), max(0, len(together) - KEPT), None))


class Texts(Protocol):
    """A symbol table, as `NewTexts` needs it."""

    def span(self, first: int, stop: int, /) -> dict[int, str]: ...


class NewTexts(Sequence[str]):
    """The texts with the codes first <= code < stop, read when they are asked for: in slices, some at a time."""

    def __init__(self, symbols: Texts, first: int, stop: int) -> None:
        self._symbols = symbols
        self._first, self._stop = first, stop
        self._read: tuple[int, dict[int, str]] = (0, {})

    def __len__(self) -> int:
        return self._stop - self._first

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, int):
            return self._text(range(self._first, self._stop)[place])
        return [self._text(code) for code in range(self._first, self._stop)[place]]

    def _text(self, code: int) -> str:
        first, texts = self._read
        if code not in texts:
            first = self._first + (code - self._first) // SPAN * SPAN
            self._read = first, texts = first, self._symbols.span(first, min(first + SPAN, self._stop))
        return texts[code]
