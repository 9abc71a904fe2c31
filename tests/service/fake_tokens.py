"""Access tokens in memory with the interface of `TokenStore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class FakeTokens:
    """`reach` fails while Redis is away. reads: how often the table was read."""

    def __init__(self, reach: Callable[[], None]) -> None:
        self._reach = reach
        self.records: dict[str, Any] = {}
        self.reads = 0

    async def add(self, name: str, record: Mapping[str, Any]) -> bool:
        self._reach()
        return self.records.setdefault(name, dict(record)) == record

    async def all(self) -> list[dict[str, Any]]:
        self._reach()
        self.reads += 1
        return list(self.records.values())

    async def remove(self, name: str) -> bool:
        self._reach()
        return self.records.pop(name, None) is not None
