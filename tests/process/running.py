"""For process tests: an engine in a thread, and a synchronous face of the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.data.transaction import Transaction
from engine.server.audits import Audits
from engine.server.checkpoints import Checkpoints
from engine.server.loop import Engine, ReasonerFactory
from engine.server.settings import EngineOptions
from engine.storage.client import DatabaseClient
from engine.storage.outcome import Outcome
from tests.process.facts_reasoner import FactsReasoner

T = TypeVar("T")


class EngineThread:
    """An engine that runs until the block is left; `failure` is what `run` raised."""

    def __init__(
        self,
        redis_url: str,
        database: str,
        options: EngineOptions | None = None,
        factory: ReasonerFactory = FactsReasoner,
        checkpoints: Checkpoints | None = None,
        audits: Audits | None = None,
    ) -> None:
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        say = self.ready.set
        self.engine = Engine(
            redis_url, database, factory, options, lambda _: say(), checkpoints=checkpoints, audits=audits
        )
        self._thread = threading.Thread(target=self._run, name="engine")

    def _run(self) -> None:
        try:
            self.engine.run()
        except Exception as error:
            self.failure = error
        finally:
            self.ready.set()

    def __enter__(self) -> EngineThread:
        self._thread.start()
        assert self.ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


class Database:
    """The client's calls, one after the other, in an event loop of its own."""

    def __init__(self, redis_url: str, database: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = DatabaseClient.connect(redis_url, database)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.client.close())
        self._loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def apply(self, transaction: Transaction, key: str | None = None) -> Outcome:
        receipt = self.run(self.client.append(transaction, key))
        outcome = self.run(self.client.wait_outcome(receipt.transaction_id, 20))
        assert outcome is not None
        return outcome

    def facts(self, relation: str) -> dict[Any, int]:
        snapshot = self.run(self.client.snapshot())
        if relation not in snapshot.schemas:
            return {}
        page = self.run(snapshot.facts(relation, limit=100_000))
        return dict(zip(page.tuples, page.weights, strict=True))


def facts(relation: str, *rows: tuple[str | int, ...], weight: int = 1, **options: Any) -> Transaction:
    return Transaction.parse([{"relation": relation, "tuples": rows, "weight": weight}], **options)
