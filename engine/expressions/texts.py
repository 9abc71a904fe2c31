"""The symbols of one evaluation: those of the table, and those that occur only in intermediate results.

In: texts and codes. Out: codes and texts. Codes of the table are 0 and more; a text that the table does not hold gets a
negative code, which lives as long as the evaluation. `settle` interns those that remain in a result.
Always: within one evaluation equal texts have equal codes. The table grows only by results and by the arguments of
`ord`, not by what a condition computes, by parts of a longer text, or by an evaluation that fails. This matters because
symbols are kept and published.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable


class Texts:
    """A symbol table with an overlay of texts that are not in it."""

    def __init__(self, table: SymbolTable) -> None:
        self._table = table
        self._own: list[str] = []
        self._codes: dict[str, int] = {}

    def intern(self, text: str) -> int:
        """The code of `text`; the table is not changed."""
        # The overlay first: a text that `settle` interned meanwhile keeps the code that columns have for it.
        code = self._codes.get(text)
        if code is None:
            code = self._table.find(text)
            if code is None:
                self._own.append(text)
                code = self._codes[text] = -len(self._own)
        return code

    def intern_all(self, texts: Sequence[str]) -> Codes:
        """The codes of many texts, int64[n]."""
        if self._table.is_far:
            # One question for all of them; the answers are remembered.
            self._table.find_all(texts)
        return np.array([self.intern(text) for text in texts], np.int64)

    def text(self, code: int) -> str:
        return self._table.text(code) if code >= 0 else self._own[-code - 1]

    def texts(self, codes: Codes) -> list[str]:
        """The texts of many codes."""
        if not self._own:
            return self._table.texts(codes)
        if self._table.is_far:
            self._table.texts(codes[codes >= 0])
        return [self.text(code) for code in codes.tolist()]

    def settle(self, codes: Codes) -> Codes:
        """The same symbols with codes of the table; new ones are interned in the order of their first row."""
        new = codes < 0
        if not new.any():
            return codes
        settled = codes.copy()
        settled[new] = self._table.intern_all([self.text(code) for code in codes[new].tolist()])
        return settled
