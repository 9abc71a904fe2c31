"""Answers of goals whose rows must be compared: repeated variables and `_`.

In: a snapshot and a `Selection`. Out: its distinct rows, sorted, so that a page is a slice after the last row of the
page before it. Always: the rows depend only on the epoch and the goal, so a chain of pages is stable: another process,
or this one after the rows have left the cache, computes the same rows again.

Cost: one scan of the tuples that have the bound values, in blocks, for each chain of pages as long as the cache holds
the rows; a page is then two binary searches. Goals with distinct variables in all free columns do not need this.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sized
from typing import Final, Generic, TypeVar

from engine.data.values import Tuple
from engine.storage.snapshot import Position, Snapshot
from service.goal import Selection

SCAN_BLOCK: Final = 20_000


R = TypeVar("R", bound=Sized)


class RowCache(Generic[R]):
    """The newest answers, by epoch token and query; at most `capacity` rows in all (a larger answer is not kept)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._rows: OrderedDict[tuple[str, str], R] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[str, str]) -> R | None:
        rows = self._rows.get(key)
        if rows is not None:
            self._rows.move_to_end(key)
        return rows

    def put(self, key: tuple[str, str], rows: R) -> None:
        if len(rows) > self.capacity or key in self._rows:
            return
        self._rows[key] = rows
        self._size += len(rows)
        while self._size > self.capacity:
            _, dropped = self._rows.popitem(last=False)
            self._size -= len(dropped)


ProjectionCache = RowCache[list[Tuple]]


async def distinct_rows(snapshot: Snapshot, selection: Selection) -> list[Tuple]:
    """All distinct rows of the selection, in ascending order of their values."""
    found: set[Tuple] = set()
    after: Position | None = None
    while True:
        page = await snapshot.facts(selection.relation, selection.bound, limit=SCAN_BLOCK, after=after)
        found.update(selection.project(page.tuples))
        if page.next is None:
            break
        after = page.next
        # A block takes some milliseconds; let other requests in between two of them.
        await asyncio.sleep(0)
    return await asyncio.to_thread(sorted, found) if len(found) > SCAN_BLOCK else sorted(found)


async def projected_page(
    cache: ProjectionCache,
    snapshot: Snapshot,
    selection: Selection,
    digest: str,
    limit: int,
    after: Tuple | None,
) -> tuple[list[Tuple], Tuple | None]:
    """Up to `limit` rows after the row `after`, and the last one of them if there are more."""
    key = (snapshot.token, digest)
    rows = cache.get(key)
    if rows is None:
        rows = await distinct_rows(snapshot, selection)
        cache.put(key, rows)
    start = 0 if after is None else bisect_right(rows, after)
    page = rows[start : start + limit]
    return page, page[-1] if start + limit < len(rows) else None
