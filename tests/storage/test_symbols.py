"""Symbols that nothing uses any more leave the snapshot, and stay in the older ones."""

from __future__ import annotations

import asyncio

import pytest
import redis

from engine.data.transaction import Transaction
from engine.database import writer
from engine.server.recovery import read_state
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.publisher import Publisher
from engine.storage.retention import Retention
from tests.storage.writing import new_publisher
from zedlog import Reasoner


def test_the_snapshot_forgets_too_and_older_epochs_do_not(
    server: EmbeddedServer,
    client: redis.Redis,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "_FEW_SYMBOLS", 10)
    publisher = new_publisher(client, database, Retention(epochs=4, seconds=0))
    r = Reasoner("resident")

    def commit(publisher: Publisher, r: Reasoner, facts: list[tuple[str, int]]) -> None:
        changes = [{"relation": "p", "tuples": [[text]], "weight": weight} for text, weight in facts]
        record = r.commit([Transaction.parse(facts=changes)]).record
        assert record is not None
        publisher.publish(record, [], f"{record.epoch}-1")

    async def read(epoch: int) -> list[str]:
        reader = DatabaseClient.connect(server.url, database)
        try:
            page = await (await reader.snapshot(epoch)).facts("p")
            return sorted(text for (text,) in page.tuples)
        finally:
            await reader.close()

    def texts() -> list[str | None]:
        return list(read_state(publisher).symbols)

    commit(publisher, r, [("stays", 1)])
    for i in range(6):
        commit(publisher, r, [(f"{i}-{j}", 1) for j in range(20)])
        assert asyncio.run(read(r.epoch)) == sorted(["stays", *(f"{i}-{j}" for j in range(20))])
        commit(publisher, r, [(f"{i}-{j}", -1) for j in range(20)])
        # The epoch before is read as it was.
        assert len(asyncio.run(read(r.epoch - 1))) == 21
        assert asyncio.run(read(r.epoch)) == ["stays"]
    known = texts()
    assert len(known) == 121
    assert known[0] == "stays"
    assert sum(text is not None for text in known) <= 41
    # A restart goes on with the same codes, and forgets what was left.
    state = read_state(publisher)
    again = Reasoner.restore(state, "resident")
    publisher = new_publisher(client, database, Retention(epochs=4, seconds=0))
    commit(publisher, again, [("6-1", 1), ("0-1", 1)])
    assert asyncio.run(read(again.epoch)) == ["0-1", "6-1", "stays"]
    assert [text for text in texts() if text is not None] == ["stays", "6-1", "0-1"]
    assert texts().index("6-1") == 121
