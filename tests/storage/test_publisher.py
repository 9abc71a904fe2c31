"""Publication: one atomic step, fenced, applied once, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
import redis

from engine.database.epoch import RuleInfo
from engine.errors import CorruptSnapshotError, EngineLeaseError, InvalidRequestError, StorageUnavailableError
from engine.storage import publisher as publisher_module
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.manifest import PROGRAM
from engine.storage.outcome import Outcome
from engine.storage.publisher import Publisher
from engine.storage.references import References
from engine.storage.retention import Retention
from tests.storage.writing import Model, change, epoch_record, new_publisher, number_schema


def keys_of(client: redis.Redis, database: str) -> set[bytes]:
    return set(client.scan_iter(match=f"{Keys(database).prefix}*".replace("[", "\\["), count=1000))


def publish_tuple(
    publisher: Publisher, model: Model, number: int, state: tuple[int, bool] = (1, False)
) -> None:
    record = epoch_record(number, {"r": change(model, "r", 2, {(number % 40, number % 7): state})})
    publisher.publish(record, [(f"{number}-1", Outcome("committed", {"epoch": number}))], f"{number}-1")


def test_nothing_is_left_behind(client: redis.Redis, database: str) -> None:
    """500 epochs with a retention of 4: the number of keys stays flat, and only named objects are there."""
    publisher = new_publisher(client, database, Retention(epochs=4, seconds=0, results=10, summaries=20))
    model: Model = {}
    sizes = []
    for number in range(1, 501):
        publish_tuple(publisher, model, number, (number % 3, number % 2 == 0))
        if number % 50 == 0:
            sizes.append(len(keys_of(client, database)))
    assert max(sizes[1:]) <= 40
    assert max(sizes[5:]) <= max(sizes[:5]) + 8
    named = {Keys(database).object(name).encode() for name in publisher._references._counts}
    objects = {key for key in keys_of(client, database) if b":o:" in key}
    assert objects == named
    # The writer's memory holds no more than that either.
    assert set(publisher.store._relations) | set(publisher.store._indexes) <= set(
        publisher._references._counts
    )
    assert not publisher.store.pending
    assert client.xlen(Keys(database).results) == 10
    assert client.xlen(Keys(database).epochs) == 20
    manifests = {key for key in keys_of(client, database) if b":manifest:" in key}
    assert manifests == {Keys(database).manifest(e).encode() for e in range(497, 501)}


def test_a_program_that_stays_is_not_written_again(client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    model: Model = {}
    rules = tuple(RuleInfo(f"r{i}", f"p{i}(x) :- q(x).", f"p{i}(v0) :- q(v0).", 1) for i in range(3))
    schemas = {"r": number_schema("r", 2)}

    def publish(number: int, rules: tuple[RuleInfo, ...]) -> set[str]:
        """The kinds of the objects that an epoch names, and that were not there."""
        before = set(publisher._references._counts)
        changes = {"r": change(model, "r", 2, {(number, number): (1, False)})}
        record = epoch_record(number, changes, schemas, rules)
        publisher.publish(record, [], f"{number}-1")
        return {name[0] for name in set(publisher._references._counts) - before}

    assert PROGRAM in publish(1, rules)
    assert PROGRAM not in publish(2, rules)
    assert PROGRAM in publish(3, rules[:2])
    assert PROGRAM not in publish(4, rules[:2][:2])
    # The first epoch of another writer writes what it is given; what is equal has the same name.
    other = new_publisher(client, database)
    other.publish(epoch_record(5, {}, schemas, rules[:2]), [], "5-1")
    assert other.manifest.program_id == publisher.manifest.program_id


def test_a_new_publisher_goes_on(client: redis.Redis, database: str) -> None:
    """After a restart the same garbage goes, and nothing that is named."""
    model: Model = {}
    for start in range(0, 60, 6):
        publisher = new_publisher(client, database, Retention(epochs=3, seconds=0))
        assert publisher.head.epoch == start
        for number in range(start + 1, start + 7):
            publish_tuple(publisher, model, number, (number % 2, number % 3 == 0))
    named = {Keys(database).object(name).encode() for name in publisher._references._counts}
    assert {key for key in keys_of(client, database) if b":o:" in key} == named


def test_young_epochs_stay(client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database, Retention(epochs=1, seconds=3600))
    for number in range(1, 9):
        publish_tuple(publisher, {}, number)
    assert publisher.manifest.oldest == 0


def test_a_fenced_engine_cannot_publish(client: redis.Redis, database: str) -> None:
    first_lease = Lease(client, database, 0.05)
    first_lease.take()
    first = Publisher(client, database, first_lease)
    model: Model = {}
    publish_tuple(first, model, 1)
    with pytest.raises(EngineLeaseError):
        Lease(client, database, 10).take()
    # It sleeps through its lease, which nobody takes: it may go on.
    client.delete(Keys(database).lease)
    publish_tuple(first, model, 2)
    client.delete(Keys(database).lease)
    second_lease = Lease(client, database, 10)
    second_lease.take()
    before = {key: client.dump(key) for key in keys_of(client, database)}
    with pytest.raises(EngineLeaseError, match="taken over"):
        publish_tuple(first, dict(model), 3)
    with pytest.raises(EngineLeaseError):
        first_lease.renew()
    assert {key: client.dump(key) for key in keys_of(client, database)} == before
    publish_tuple(Publisher(client, database, second_lease), model, 3)


def test_a_changed_head_is_noticed(client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    client.hset(Keys(database).head, "last_id", "7-7")
    before = keys_of(client, database)
    with pytest.raises(EngineLeaseError, match="changed"):
        publish_tuple(publisher, {}, 1)
    assert keys_of(client, database) == before


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_publication_of_unknown_fate_is_done_once(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch, lost: str, inline: bool
) -> None:
    if not inline:
        monkeypatch.setattr(publisher_module, "_INLINE_BYTES", 10)
        monkeypatch.setattr(publisher_module, "PORTION_BYTES", 100)
    publisher = new_publisher(client, database)
    model: Model = {}
    publish_tuple(publisher, model, 1)
    whole = publisher._script
    failures = [lost]

    def breaking(**arguments: Any) -> Any:
        if failures:
            failures.pop()
            if lost == "answer":
                whole(**arguments)
            raise redis.exceptions.ConnectionError("cut")
        return whole(**arguments)

    monkeypatch.setattr(publisher, "_script", breaking)
    record = epoch_record(2, {"r": change(model, "r", 2, {(5, 5): (4, False)})})
    arguments = (record, [("2-1", Outcome("committed", {"n": 1}))], "2-1")
    with pytest.raises(StorageUnavailableError):
        publisher.publish(*arguments)
    publisher.publish(*arguments)
    publish_tuple(publisher, model, 3)
    head = cast(dict[bytes, bytes], client.hgetall(Keys(database).head))
    assert (head[b"epoch"], head[b"last_id"], head[b"processed"]) == (b"3", b"3-1", b"3")
    assert client.xlen(Keys(database).results) == 3
    assert publisher.manifest.relations["r"].counts.all == len(model["r"]) == 3
    for key in keys_of(client, database) - {Keys(database).lease.encode()}:
        assert client.ttl(key) == -1, key


def test_staged_blocks_that_got_lost_are_sent_again(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_INLINE_BYTES", 10)
    publisher = new_publisher(client, database)
    stage, losses = publisher._stage_script, [1]

    def losing(**arguments: Any) -> Any:
        stage(**arguments)
        if losses:
            losses.pop()
            client.delete(cast(str, arguments["args"][1]))

    monkeypatch.setattr(publisher, "_stage_script", losing)
    publish_tuple(publisher, {}, 1)
    assert not losses
    named = {Keys(database).object(name).encode() for name in publisher._references._counts}
    assert {key for key in keys_of(client, database) if b":o:" in key} == named


def test_an_unpublished_block_expires_and_a_published_one_does_not(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fenced engine that stages what the new engine has already published must not make it expire."""
    monkeypatch.setattr(publisher_module, "_INLINE_BYTES", 10)
    old = new_publisher(client, database)
    new = new_publisher(client, database)
    publish_tuple(new, {}, 1)
    same, other = change({}, "r", 2, {(1, 1): (1, False)}), change({}, "q", 1, {(1,): (1, False)})
    with pytest.raises(EngineLeaseError):
        old.publish(epoch_record(1, {"r": same, "q": other}), (), "9-9")
    named = {Keys(database).object(name).encode() for name in new._references._counts}
    objects = {key for key in keys_of(client, database) if b":o:" in key}
    assert named < objects
    for key in objects:
        assert (client.ttl(key) == -1) == (key in named)


def test_outcomes_without_an_epoch(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    publisher.publish(None, [("5-1", Outcome("refused", {"code": "negative_weight"}))], "5-1")

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            assert (await reader.snapshot()).epoch == 0
            assert await reader.outcome("5-1") == Outcome("refused", {"code": "negative_weight"})
            assert await reader.outcome("5-2") is None
            assert await reader.outcome("nonsense") is None
        finally:
            await reader.close()

    asyncio.run(read())


def test_readers_under_publication_see_whole_epochs(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    """Every epoch moves one token round a ring in `r` and says in `at` where it is; both in one step."""
    publisher = new_publisher(client, database, Retention(epochs=4, seconds=2.0))
    model: Model = {}
    ring = 50

    def write() -> None:
        for number in range(1, 301):
            old, new = (number - 1) % ring, number % ring
            moved = (
                {(new,): (number, False)} if number == 1 else {(old,): (0, False), (new,): (number, False)}
            )
            sign: dict[tuple[int, ...], tuple[int, bool]] = {(number, new): (1, True)}
            if number > 1:
                sign[number - 1, old] = (0, False)
            record = epoch_record(
                number, {"r": change(model, "r", 1, moved), "at": change(model, "at", 2, sign)}
            )
            publisher.publish(record, (), f"{number}-1")

    async def read() -> list[int]:
        reader = DatabaseClient.connect(server.url, database)
        seen = []
        try:
            while not seen or seen[-1] < 300:
                snapshot = await reader.snapshot()
                if snapshot.epoch == 0:
                    continue
                at = await snapshot.facts("at")
                r = await snapshot.facts("r")
                assert at.tuples == [(snapshot.epoch, snapshot.epoch % ring)]
                assert (r.tuples, r.weights) == ([(snapshot.epoch % ring,)], [snapshot.epoch])
                seen.append(snapshot.epoch)
        finally:
            await reader.close()
        return seen

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = asyncio.run(read())
    finally:
        writer.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def test_a_missing_manifest_is_said(client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    publish_tuple(publisher, {}, 1)
    client.delete(Keys(database).manifest(1))
    with pytest.raises(CorruptSnapshotError, match="epoch 1"):
        new_publisher(client, database)


def test_options_are_checked() -> None:
    for wrong in ({"epochs": 0}, {"seconds": -1}, {"results": 0}, {"summaries": 0}):
        with pytest.raises(InvalidRequestError):
            Retention(**wrong)  # type: ignore[arg-type]  # a table of arguments
    for name in ("", "a b", "{x}", "x" * 65, "-x"):
        with pytest.raises(InvalidRequestError):
            Keys(name)


def test_references_count_parents() -> None:
    children = {"m": ["s"], "s": ["a", "b"], "t": ["b"]}
    references = References(lambda name: children.get(name, []))
    assert sorted(references.add(["s", "t"])) == ["a", "b", "s", "t"]
    assert references.add(["s"]) == []
    assert references.remove(["s"]) == []
    assert sorted(references.remove(["s"])) == ["a", "s"]
    assert sorted(references.remove(["t"])) == ["b", "t"]
    assert len(references) == 0
