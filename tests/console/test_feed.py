"""The live feed of a page: pauses, lost connections and gaps lose nothing silently, and memory is bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from service.console.client import ServiceError
from service.console.feed import EXAMPLES, HELD, Feed

Json = dict[str, Any]


class History:
    """A service with epochs 1, 2, ..., each of which changes one tuple; `newest` may be raised. cut: connections that
    end after so many events."""

    def __init__(self, newest: int, cut: list[int] | None = None, oldest: int = 0, width: int = 1) -> None:
        self.newest, self.cut, self.oldest, self.width = newest, cut or [], oldest, width
        self.asked: list[str | None] = []
        self.open = 0

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        after = options["params"].get("after")
        self.asked.append(after)
        start = self.newest if after is None else int(after.partition("-")[0])
        if start < self.oldest:
            raise ServiceError(410, {"code": "gap", "detail": "too old"})
        self.open += 1
        left = self.cut.pop(0) if self.cut else None
        try:
            headers = {"zedlog-token": f"{start}-x"}
            yield httpx.Response(200, headers=headers, content=self._lines(start, left))
        finally:
            self.open -= 1

    async def _lines(self, epoch: int, left: int | None) -> AsyncIterator[bytes]:
        while left is None or left > 0:
            if epoch >= self.newest:
                await asyncio.sleep(0.005)
                continue
            epoch += 1
            left = None if left is None else left - 1
            rows = [[epoch, number] for number in range(self.width)]
            event = {"event": "change", "epoch": epoch, "token": f"{epoch}-x", "time": 1.0}
            event["changes"] = {"r": {"inserted": rows, "deleted": []}}
            yield json.dumps(event).encode() + b"\n"


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def epochs(feed: Feed) -> list[int]:
    return [event.epoch for event in feed.events]


@pytest.mark.parametrize("cut", [[], [0], [1, 2], [3, 0, 1]])
def test_every_change_comes_once_whatever_connections_are_lost(cut: list[int]) -> None:
    async def story() -> None:
        history = History(8, cut)
        feed = Feed(history, {"relation": ["r"]}, "2")  # type: ignore[arg-type]
        feed.resume()
        await until(lambda: feed.epoch == 8)
        await feed.pause()
        assert epochs(feed) == [8, 7, 6, 5, 4, 3]
        assert feed.received == 6

    asyncio.run(story())


def test_while_it_is_paused_nothing_is_open_and_nothing_is_missed() -> None:
    async def story() -> None:
        history = History(3)
        feed = Feed(history, {"relation": ["r"]})  # type: ignore[arg-type]
        feed.resume()
        # Paused before anything has come: what comes in between is after the newest epoch of the beginning.
        await until(lambda: feed.position is not None)
        await feed.pause()
        assert (feed.state, history.open) == ("paused", 0)
        history.newest = 5
        feed.resume()
        await until(lambda: feed.epoch == 5)
        await feed.pause()
        assert epochs(feed) == [5, 4]
        assert history.asked == [None, "3-x"]

    asyncio.run(story())


def test_a_gap_is_said_and_the_feed_begins_anew_only_when_it_is_told_to() -> None:
    async def story() -> None:
        history = History(9, oldest=5)
        feed = Feed(history, {"relation": ["r"]}, "2")  # type: ignore[arg-type]
        feed.resume()
        await until(lambda: feed.state == "ended")
        assert "gap: too old" in feed.problem
        assert epochs(feed) == []
        feed.resume()
        await until(lambda: feed.position == "9-x")
        history.newest = 10
        await until(lambda: feed.epoch == 10)
        await feed.pause()
        assert epochs(feed) == [10]

    asyncio.run(story())


def test_memory_is_bounded_however_much_comes() -> None:
    async def story() -> None:
        history = History(3 * HELD, width=5 * EXAMPLES)
        feed = Feed(history, {"relation": ["r"]}, "0")  # type: ignore[arg-type]
        feed.resume()
        await until(lambda: feed.epoch == 3 * HELD)
        await feed.pause()
        assert feed.received == 3 * HELD
        assert epochs(feed) == list(range(3 * HELD, 2 * HELD, -1))
        for event in feed.events:
            (change,) = event.changes
            assert (change.inserted, len(change.examples)) == (5 * EXAMPLES, EXAMPLES)

    asyncio.run(story())
