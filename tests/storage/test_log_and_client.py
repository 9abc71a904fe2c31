"""The log, idempotency, waiting, status, and Redis going away, over a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis

from engine.data.transaction import Transaction
from engine.errors import (
    CorruptLogError,
    EpochNotRetainedError,
    IdempotencyConflictError,
    InvalidRequestError,
    StorageUnavailableError,
)
from engine.storage.announcements import stream_id
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.log import START, EpochLog
from engine.storage.outcome import EngineStatus, Outcome
from tests.storage.writing import epoch_record, new_publisher

HOURS = 10_000.0
"""A wait whose end no test sees: what is waited for has to be announced."""


def facts(*rows: int) -> Transaction:
    return Transaction.parse([{"relation": "e", "tuples": [[row] for row in rows]}])


def test_the_log_keeps_order_and_content(client: redis.Redis, database: str) -> None:
    log = EpochLog(client, database)
    assert log.read(START, 10, 1000) == []
    assert log.wait(START, 0.01) is None
    ids = [log.append(facts(i)).transaction_id for i in range(5)]
    assert ids == sorted(ids, key=stream_id)
    assert [entry.transaction() for entry in log.read(START, 10, 10_000)] == [facts(i) for i in range(5)]
    assert [entry.id for entry in log.read(ids[1], 2, 10_000)] == ids[2:4]
    first = log.wait(ids[3], 0.01)
    assert first is not None
    assert first.id == ids[4]
    # At most so many bytes, but always one.
    size = len(facts(0).encode()) + len("tx")
    assert [entry.id for entry in log.read(START, 10, 2 * size + 1)] == ids[:2]
    assert [entry.id for entry in log.read(START, 10, 1)] == ids[:1]
    assert len(log) == 5


def test_an_idempotency_key_appends_once(client: redis.Redis, database: str) -> None:
    log = EpochLog(client, database)
    first = log.append(facts(1), "key")
    again = log.append(facts(1), "key")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.transaction_id == again.transaction_id
    with pytest.raises(IdempotencyConflictError) as conflict:
        log.append(facts(2), "key")
    assert conflict.value.detail["transaction_id"] == first.transaction_id
    assert log.append(facts(2), "other key").transaction_id != first.transaction_id
    assert log.append(facts(2), "kéy " * 500).replayed is False
    assert len(log) == 3
    expiring = [client.ttl(key) for key in client.scan_iter(f"{Keys(database).prefix}idem:*")]
    assert len(expiring) == 3
    assert all(604_000 < seconds <= 604_800 for seconds in expiring)


@pytest.mark.parametrize(
    "fields",
    [
        {"tx": b"{"},
        {"tx": b"[]"},
        {"tx": b'{"facts": [1]}'},
        {"tx": b'{"unknown": 1}'},
        {"other": b"x"},
        {"tx": b"\xff"},
    ],
)
def test_an_unreadable_entry_is_named(client: redis.Redis, database: str, fields: dict[str, bytes]) -> None:
    log = EpochLog(client, database)
    number = client.xadd(Keys(database).log, fields).decode()
    with pytest.raises(CorruptLogError, match=number):
        log.read(START, 1, 1)[0].transaction()


def test_stream_ids() -> None:
    assert stream_id("12-3") == (12, 3)
    assert stream_id("2-10") > stream_id("2-9")  # type: ignore[operator]  # both are ids
    for wrong in (
        "",
        "-",
        "1",
        "1-",
        "-1",
        "a-1",
        "1-b",
        "1-2-3",
        "\u0661-1",
        f"{2**64}-0",
        "9" * 5000 + "-1",
    ):
        assert stream_id(wrong) is None


def test_waiting_for_outcomes_and_epochs(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)

    async def run() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            receipts = [await reader.append(facts(i)) for i in range(3)]
            ids = [receipt.transaction_id for receipt in receipts]
            assert [await reader.is_pending(i) for i in ids] == [True] * 3
            assert await reader.is_pending("1-1") is False
            assert await reader.is_pending("x") is False
            assert await reader.wait_outcome(ids[0], 0.02) is None
            assert await reader.wait_epoch(1, 0.02) is False
            # Three entries can make epochs 1 to 3 and no other.
            assert await reader.wait_epoch(3, 0.02) is False
            with pytest.raises(EpochNotRetainedError, match="no epoch 4: the newest is 0"):
                await reader.wait_epoch(4, 60)
            third = asyncio.ensure_future(reader.wait_epoch(3, 60))
            waits: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(reader.wait_outcome(i, HOURS)) for i in ids
            ]
            waits += [
                asyncio.ensure_future(reader.wait_outcome(ids[0], HOURS)),
                asyncio.ensure_future(reader.wait_epoch(1, HOURS)),
            ]
            await asyncio.sleep(0.05)
            outcomes = [(i, Outcome("committed", {"id": i})) for i in ids[:2]]
            await asyncio.to_thread(publisher.publish, epoch_record(1, {}), outcomes, ids[1])
            told = asyncio.gather(waits[0], waits[1], waits[3], waits[4])
            first, second, again, epoch = await asyncio.wait_for(told, 60)
            assert (first, second) == (outcomes[0][1], outcomes[1][1])
            assert again == first
            assert epoch is True
            assert not waits[2].done()
            assert (await reader.status()).lag == 1
            # Two entries made one epoch, so the one that is left can make epoch 2.
            with pytest.raises(EpochNotRetainedError, match="no epoch 3: the newest is 1"):
                await third
            await asyncio.to_thread(
                publisher.publish, None, [(ids[2], Outcome("refused", {"code": "x"}))], ids[2]
            )
            assert await waits[2] == Outcome("refused", {"code": "x"})
            assert (await reader.status()).lag == 0
            assert [await reader.is_pending(i) for i in ids] == [False] * 3
            # A new client, for whom all is over: it does not wait.
            other = DatabaseClient.connect(server.url, database)
            try:
                assert await other.wait_outcome(ids[0], 5) == first
                assert await other.wait_epoch(1, 5) is True
            finally:
                await other.close()
            # What is no longer kept is not waited for.
            client.delete(Keys(database).results)
            assert await asyncio.wait_for(reader.wait_outcome(ids[0], HOURS), 60) is None
            assert not reader._announcements._outcomes
            assert not reader._announcements._epochs
        finally:
            await reader.close()

    asyncio.run(run())


def test_many_wait_at_once(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)

    async def run() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            receipts = await asyncio.gather(*(reader.append(facts(i)) for i in range(300)))
            ids = sorted((receipt.transaction_id for receipt in receipts), key=stream_id)
            waits = [asyncio.ensure_future(reader.wait_outcome(i, 20)) for i in ids]
            outcomes = [(i, Outcome("committed", {"id": i})) for i in ids]
            await asyncio.to_thread(publisher.publish, epoch_record(1, {}), outcomes, ids[-1])
            assert await asyncio.gather(*waits) == [outcome for _, outcome in outcomes]
        finally:
            await reader.close()

    asyncio.run(run())


def test_more_outcomes_than_one_answer_brings(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    publisher = new_publisher(client, database)
    log = EpochLog(client, database)
    ids = [log.append(facts(i)).transaction_id for i in range(2_500)]

    async def run() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            assert await reader.wait_outcome(ids[0], 0.01) is None
            waits = [asyncio.ensure_future(reader.wait_outcome(i, 60)) for i in ids]
            await asyncio.sleep(0.05)
            outcomes = [(i, Outcome("committed", {"id": i})) for i in ids]
            await asyncio.to_thread(publisher.publish, epoch_record(1, {}), outcomes, ids[-1])
            assert await asyncio.gather(*waits) == [outcome for _, outcome in outcomes]
        finally:
            await reader.close()

    asyncio.run(run())


def test_appends_that_come_together_are_told_apart(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    async def run() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            first = await reader.append(facts(0), "key")
            asked = [reader.append(facts(1)), reader.append(facts(2), "key"), reader.append(facts(0), "key")]
            gone = asyncio.ensure_future(reader.append(facts(3)))
            asked.append(reader.append(facts(4)))
            answers = asyncio.gather(*asked, return_exceptions=True)
            await asyncio.sleep(0)
            # Its client goes away while it is being sent.
            gone.cancel()
            new, conflict, again, last = await answers
            assert isinstance(conflict, IdempotencyConflictError)
            assert (again.transaction_id, again.replayed) == (first.transaction_id, True)
            assert not new.replayed
            assert not last.replayed
            kept = EpochLog(client, database).read(START, 10, 10_000)
            assert [entry.transaction() for entry in kept if entry.id == new.transaction_id] == [facts(1)]
            assert [entry.transaction() for entry in kept if entry.id == last.transaction_id] == [facts(4)]
        finally:
            await reader.close()

    asyncio.run(run())


def test_status_without_an_engine(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    async def status() -> EngineStatus:
        reader = DatabaseClient.connect(server.url, database)
        try:
            return await reader.status()
        finally:
            await reader.close()

    assert asyncio.run(status()) == EngineStatus(False, "absent", -1, 0, None)
    EpochLog(client, database).append(facts(1))
    assert asyncio.run(status()) == EngineStatus(False, "absent", -1, 1, None)
    client.hset(Keys(database).status, mapping={"state": "running", "error": ""})
    assert asyncio.run(status()) == EngineStatus(False, "lost", -1, 1, "the engine's heartbeat has stopped")


def test_urls_and_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        DatabaseClient.connect("http://127.0.0.1", "main")
    with pytest.raises(InvalidRequestError):
        DatabaseClient.connect("redis://127.0.0.1:1/0", "not a name")


def test_redis_away_and_back(tmp_path: Path) -> None:
    """Every call says so while Redis is away; the same client works when it is back, with all that was
    acknowledged."""

    async def run(server: EmbeddedServer) -> None:
        reader = DatabaseClient.connect(server.url, "main")
        try:
            receipt = await reader.append(facts(1), "key")
            waiting = asyncio.ensure_future(reader.wait_outcome(receipt.transaction_id, 30))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.stop)
            with pytest.raises(StorageUnavailableError):
                await waiting
            calls: list[Any] = [
                reader.append(facts(2)),
                reader.append(facts(2), "k"),
                reader.outcome("1-1"),
                reader.wait_outcome("1-1", 1),
                reader.is_pending("1-1"),
                reader.snapshot(),
                reader.snapshot(1),
                reader.wait_epoch(1, 1),
                reader.epochs(),
                reader.status(),
                reader.incarnation(),
            ]
            for call in calls:
                with pytest.raises(StorageUnavailableError):
                    await call
            await asyncio.to_thread(server.start)
            assert (await reader.append(facts(1), "key")).replayed is True
            assert await reader.is_pending(receipt.transaction_id)
            later = await reader.append(facts(3))
            assert await reader.wait_outcome(later.transaction_id, 0.3) is None
        finally:
            await reader.close()

    with EmbeddedServer(tmp_path) as server:
        asyncio.run(run(server))
