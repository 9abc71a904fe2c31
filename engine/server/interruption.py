"""Whether the evaluation that runs now is to end, because one of its transactions was cancelled or the engine stops.

The evaluation itself asks, through `Budget.cancelled`, every few milliseconds; other threads set the answer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable

STOP_GRACE = 0.5
"""Seconds that an epoch may still take when the engine is told to stop; then it is dropped, and applied after the next
start. Nearly all epochs are committed in this time, so that their clients get an answer.
"""


class Interruption:
    """See the module. One for each engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: frozenset[str] = frozenset()
        self._end_at = math.inf
        self.cancelled: frozenset[str] = frozenset()
        """The transactions of the running epoch that are to be cancelled."""
        self.relations: tuple[str, ...] = ()
        """The relations of the stratum that is evaluated now."""

    def __call__(self) -> bool:
        """Whether the evaluation is to end."""
        return bool(self.cancelled) or time.monotonic() >= self._end_at

    def begin(self, ids: Iterable[str]) -> None:
        """An evaluation of these transactions begins."""
        with self._lock:
            self._running = frozenset(ids)
            self.cancelled = frozenset()
            self.relations = ()

    def cancel(self, ids: frozenset[str]) -> None:
        """These transactions are to be cancelled; those of another epoch do not matter."""
        with self._lock:
            self.cancelled |= ids & self._running

    def stop(self) -> None:
        """The engine stops: an epoch that runs may go on for `STOP_GRACE` only."""
        self._end_at = min(self._end_at, time.monotonic() + STOP_GRACE)

    def entered(self, relations: tuple[str, ...]) -> None:
        """The evaluation comes to a stratum."""
        self.relations = relations
