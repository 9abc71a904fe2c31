"""A database in Redis with its writer, step by step in this thread: what the engine process does, without its loop."""

from __future__ import annotations

import itertools
from typing import Any

import redis

from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.errors import EpochNotRetainedError, ZedlogError
from engine.server.answers import answer
from engine.server.recovery import read_state
from engine.server.rollback import resolved
from engine.storage.client import DatabaseClient
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.publisher import Publisher
from engine.storage.retention import Retention
from engine.storage.snapshot import Snapshot
from zedlog import Reasoner

State = dict[str, Any]


class Stand:
    """`step` commits and publishes one transaction; `restart` begins again from what is published."""

    def __init__(
        self,
        client: redis.Redis,
        database: str,
        retention: Retention | None = None,
        reasoner: Reasoner | None = None,
    ) -> None:
        self._client, self._database, self._retention = client, database, retention
        self._ids = itertools.count(1)
        self._open(reasoner or Reasoner("resident"))

    def _open(self, reasoner: Reasoner) -> None:
        # As if the last writer had died long ago.
        self._client.delete(Keys(self._database).lease)
        lease = Lease(self._client, self._database, 60)
        lease.take()
        self.publisher = Publisher(self._client, self._database, lease, self._retention)
        self.reasoner = reasoner

    def restart(self) -> None:
        self._open(self.reasoner)
        self.reasoner.close()
        self.reasoner = Reasoner.restore(read_state(self.publisher), "resident")

    def step(self, transaction: Transaction) -> EpochResult | ZedlogError:
        tried, name = transaction, f"{next(self._ids)}-0"
        try:
            if tried.rollback is not None:
                tried = resolved(tried, self.publisher)
        except EpochNotRetainedError as error:
            self.publisher.publish(None, [(name, answer(transaction, error, "x"))], name)
            return error
        group = self.reasoner.commit([tried])
        outcome = group.outcomes[0]
        told = answer(transaction, outcome, self.publisher.incarnation)
        self.publisher.publish(group.record, [(name, told)], name)
        return outcome


async def state_of(client: DatabaseClient, epoch: int | None = None) -> State:
    """All of an epoch: tuples with weights and derivations, those of sources, rules, declarations and types."""
    snapshot = (await client.snapshot(epoch)).with_hidden()
    return {
        "facts": {name: facts for name in snapshot.schemas if (facts := await _facts(snapshot, name))},
        "rules": {rule.canonical: rule.weight for rule in snapshot.rules},
        "declarations": sorted(snapshot.declarations.splitlines()),
        "types": {name: [c.type for c in schema.columns] for name, schema in snapshot.schemas.items()},
    }


async def _facts(snapshot: Snapshot, name: str) -> dict[Any, tuple[int, bool]]:
    page = await snapshot.facts(name, limit=100_000)
    return {row: (w, d) for row, w, d in zip(page.tuples, page.weights, page.derived, strict=True)}
