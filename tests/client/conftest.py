"""A client of a running system, and the same for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.live import LiveSystem
from zedlog import AsyncClient, Client


@pytest.fixture
def client(live: LiveSystem) -> Iterator[Client]:
    with Client(live.url) as made:
        yield made


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that clients would have made."""
    made: list[float] = []

    async def sleep(self: Any, seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("zedlog.client.drivers.Blocking.sleep", sleep)
    monkeypatch.setattr("zedlog.client.drivers.Waiting.sleep", sleep)
    return made


@pytest.fixture
def scripted(kind: str, no_pauses: list[float]) -> Iterator[Callable[..., Both]]:
    """Makes a client that a transport answers."""
    made: list[Both] = []

    def make(transport: Any, **options: Any) -> Both:
        made.append(Both(kind, transport=transport, **{"url": "http://zedlog.test", **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Both:
    """Calls a method of either client and gives what it gives: tests run over both."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self.client: Any = (Client if kind == "blocking" else AsyncClient)(**options)
        self.runner = asyncio.Runner()

    def run(self, work: Any) -> Any:
        """The value of what a method gave: a coroutine's result, or the value itself; a list of what it iterates."""
        if isinstance(work, Coroutine):
            return self.runner.run(work)
        if hasattr(work, "__aiter__"):
            return self.runner.run(_collected(work))
        return work

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        return lambda *args, **options: self.run(method(*args, **options))

    def rows(self, answer: Any) -> Any:
        return self.run(answer.rows)

    def send(self, transaction: Any, fill: Callable[[Any], None]) -> Any:
        """Fill a transaction in its block; its result."""
        if self.kind == "blocking":
            with transaction as t:
                fill(t)
        else:
            self.runner.run(_filled(transaction, fill))
        return transaction.result

    def close(self) -> None:
        self.run(self.client.close())
        self.runner.close()


async def _collected(items: Any) -> list[Any]:
    return [item async for item in items]


async def _filled(transaction: Any, fill: Callable[[Any], None]) -> None:
    async with transaction as t:
        fill(t)


@pytest.fixture(params=["blocking", "waiting"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def both(kind: str, live: LiveSystem) -> Iterator[Both]:
    made = Both(kind, url=live.url)
    yield made
    made.close()
