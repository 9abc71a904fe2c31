"""What the soak counts, and what it must not find."""

from __future__ import annotations

import threading
from collections import Counter

BAD = (
    "lost",
    "twice",
    "half epochs read",
    "wrong tuples",
    "wrong backups",
    "wrong in a feed",
    "unexpected answers",
)


class Tally:
    """Counters that several threads write, and the first descriptions of what is wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []

    def add(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def bad(self, what: str, number: int, description: str) -> None:
        """Something that must not be."""
        assert what in BAD
        if number:
            with self._lock:
                self.counts[what] += number
                if len(self.found) < 50:
                    self.found.append(f"{what}: {description}"[:2000])

    @property
    def clean(self) -> bool:
        return not any(self.counts[what] for what in BAD)
