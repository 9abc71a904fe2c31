"""The two clients. What they do is written once, as coroutines (writing.py, reading.py and the others); `Client` runs
them to their end (drivers.py)."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from zedlog.client.answers import Answer
from zedlog.client.blocking import BlockingConnection
from zedlog.client.drivers import Waiting, blocking, calling, iterating, same
from zedlog.client.insight import Insight
from zedlog.client.reading import Reading
from zedlog.client.transaction import Transaction
from zedlog.client.writing import Writing


class Core(Writing, Reading, Insight):
    """All that a client can do."""


class AsyncClient(Core):
    """A client of one service, for programs with an event loop.

        async with AsyncClient("http://127.0.0.1:8321") as client:
            async with client.transaction() as t:
                t.add("edge", [("a", "b")])
            answer = await client.query('edge("a", x)')
            print(await answer.rows)

    The URL is by default that of `ZEDLOG_URL`, or the local service; the token that of `ZEDLOG_TOKEN`. `timeout`:
    seconds to wait for an answer. `transport`: an `httpx.AsyncBaseTransport` in place of the network.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 120.0,
        transport: Any = None,
    ) -> None:
        super().__init__(Waiting, url, token=token, timeout=timeout, transport=transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client(BlockingConnection):
    """A client of one service.

        with Client("http://127.0.0.1:8321") as client:
            with client.transaction() as t:
                t.add("edge", [("a", "b")])
            print(client.query('edge("a", x)').rows)

    The URL is by default that of `ZEDLOG_URL`, or the local service; the token that of `ZEDLOG_TOKEN`. `timeout`:
    seconds to wait for an answer. `transport`: an `httpx.BaseTransport` in place of the network.
    """

    Core = Core

    transaction = calling(Core.transaction, Transaction)
    dry_run = calling(Core.dry_run, Transaction)
    commit = blocking(Core.commit, same)
    add = blocking(Core.add, same)
    remove = blocking(Core.remove, same)
    rule = blocking(Core.rule, same)
    remove_rule = blocking(Core.remove_rule, same)
    program = blocking(Core.program, same)
    rollback = blocking(Core.rollback, same)

    query = blocking(Core.query, Answer)
    facts = blocking(Core.facts, Answer)
    relations = blocking(Core.relations, same)
    relation = blocking(Core.relation, same)
    rules = blocking(Core.rules, same)
    declarations = blocking(Core.declarations, same)
    epochs = blocking(Core.epochs, same)
    circuit = blocking(Core.circuit, same)
    circuit_mermaid = blocking(Core.circuit_mermaid, same)
    status = blocking(Core.status, same)

    changes = iterating(Core.changes)
    explain = blocking(Core.explain, same)
