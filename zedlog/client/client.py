"""The two clients. What they do is written once, as coroutines (writing.py, reading.py and the others); `Client` runs
them to their end (drivers.py)."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from zedlog.client.admin import Admin
from zedlog.client.answers import Answer
from zedlog.client.blocking import BlockingConnection
from zedlog.client.bulk import Bulk
from zedlog.client.drivers import Waiting, blocking, calling, iterating, same
from zedlog.client.insight import Insight
from zedlog.client.rdf import Rdf
from zedlog.client.reading import Reading
from zedlog.client.subscriptions import Subscriptions
from zedlog.client.transaction import Transaction
from zedlog.client.writing import Writing


class Core(Writing, Reading, Insight, Subscriptions, Bulk, Admin, Rdf):
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

    subscribe = blocking(Core.subscribe, same)
    subscriptions = blocking(Core.subscriptions, same)
    subscription = blocking(Core.subscription, same)
    subscription_changes = iterating(Core.subscription_changes)
    ack = blocking(Core.ack, same)
    unsubscribe = blocking(Core.unsubscribe, same)

    import_files = blocking(Core.import_files, same)
    upload_file = blocking(Core.upload_file, same)
    export = blocking(Core.export, same)
    wait = blocking(Core.wait, same)
    job = blocking(Core.job, same)
    jobs = blocking(Core.jobs, same)
    cancel_job = blocking(Core.cancel_job, same)
    backup = blocking(Core.backup, same)
    restore = blocking(Core.restore, same)

    transactions = blocking(Core.transactions, same)
    cancel = blocking(Core.cancel, same)
    history = blocking(Core.history, same)
    blame = blocking(Core.blame, same)
    sources = blocking(Core.sources, same)
    audit = blocking(Core.audit, same)
    audits = blocking(Core.audits, same)
    tokens = blocking(Core.tokens, same)
    create_token = blocking(Core.create_token, same)
    revoke_token = blocking(Core.revoke_token, same)

    sparql = blocking(Core.sparql, Answer)
    sparql_update = blocking(Core.sparql_update, same)
