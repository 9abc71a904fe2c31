"""What an epoch did to one relation, in enough detail to undo and to report it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.resident import views
from engine.resident.layout import I32, I64, grown

_FIRST = 64
_KEPT = 1 << 16


class _Log:
    """(rows int32[n], heights int32[n], weights int64[n]), appended to by the compiled loop."""

    def __init__(self) -> None:
        self.rows: I32 = np.empty(0, np.int32)
        self.heights: I32 = np.empty(0, np.int32)
        self.weights: I64 = np.empty(0, np.int64)
        self.line = (0, 0, 0, 0)
        """The addresses of the arrays, and their length."""

    def grow(self, size: int) -> None:
        self.rows, self.heights = grown(self.rows, size), grown(self.heights, size)
        self.weights = grown(self.weights, size)
        self.line = (self.rows.ctypes.data, self.heights.ctypes.data, self.weights.ctypes.data, size)

    def until(self, n: int) -> tuple[I32, I32, I64]:
        return self.rows[:n], self.heights[:n], self.weights[:n]


class Logs:
    """The room of a journal, which may be used again for a later epoch's."""

    def __init__(self) -> None:
        self.done: I64 = np.zeros(2, np.int64)
        self.pushes, self.entries = _Log(), _Log()

    def cleared(self) -> Logs:
        """Room for another journal: this, unless it has grown large."""
        if len(self.pushes.rows) + len(self.entries.rows) > _KEPT:
            return Logs()
        self.done[:] = 0
        return self


class RelationJournal:
    """See the module. fresh: the relation was empty before: then pushes are not kept, and changes of entries only where
    the stratum is signed, since all that is there has come in the epoch. logs: room from an earlier journal, which
    nobody reads any more.
    """

    def __init__(self, fresh: bool, logs: Logs | None = None) -> None:
        self.fresh = fresh
        self._logs = logs or Logs()

    @property
    def pushes(self) -> tuple[I32, I32, I64]:
        """(rows, heights, weights) of the supports that were pushed."""
        return self._logs.pushes.until(int(self._logs.done[0]))

    @property
    def entries(self) -> tuple[I32, I32, I64]:
        """(rows, heights, weights) of the changes of entries."""
        return self._logs.entries.until(int(self._logs.done[1]))

    def write(self, line: I64) -> None:
        """Write the addresses into a relation's line (views.py)."""
        line[views.DONE_AT :] = (
            self._logs.done.ctypes.data,
            *self._logs.pushes.line,
            *self._logs.entries.line,
        )

    def grow(self, more: int, pushes: bool, announce: Callable[[int], None]) -> None:
        """Make room for `more` pushes, or changes of entries."""
        log = self._logs.pushes if pushes else self._logs.entries
        size = max(_FIRST, 2 * len(log.rows), int(self._logs.done[0 if pushes else 1]) + more)
        announce(16 * (size - len(log.rows)))
        log.grow(size)
