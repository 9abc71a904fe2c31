"""What is published is what is read: every page, domain, bound column and epoch, against a dict model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.database.epoch import RuleInfo
from engine.errors import (
    CorruptSnapshotError,
    EngineUnavailableError,
    EpochNotRetainedError,
    InvalidCursorError,
    InvalidRequestError,
    InvalidTokenError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownRelationError,
)
from engine.language.schema import Column, ColumnType, Schema
from engine.storage import blocks, compaction
from engine.storage.client import DatabaseClient, parse_token
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.retention import Retention
from engine.storage.snapshot import Domain, Position, Snapshot
from tests.storage.writing import Model, State, change, epoch_record, new_publisher, number_schema

Content = dict[tuple[Any, ...], State]


async def read_all(
    snapshot: Snapshot,
    relation: str,
    limit: int = 7,
    domain: Domain = "all",
    bound: dict[int, Any] | None = None,
) -> Content:
    """All pages, in order, no tuple twice."""
    content: Content = {}
    after: Position | None = None
    while True:
        page = await snapshot.facts(relation, bound, domain, limit, after)
        assert len(page.tuples) <= limit
        for row, weight, derived in zip(page.tuples, page.weights, page.derived, strict=True):
            assert row not in content
            content[row] = weight, derived
        if page.next is None:
            return content
        assert len(page.tuples) == limit
        after = page.next


def in_domain(content: Content, domain: Domain) -> Content:
    keep = {"all": lambda s: True, "asserted": lambda s: s[0] != 0, "derived": lambda s: s[1]}[domain]
    return {row: state for row, state in content.items() if keep(state)}


STATE = st.tuples(st.integers(0, 2), st.booleans())
ROW = st.tuples(st.integers(-4, 4), st.integers(0, 9))
EPOCHS = st.lists(st.dictionaries(ROW, STATE, min_size=1, max_size=12), min_size=1, max_size=14)


@given(EPOCHS, st.integers(1, 9))
@settings(max_examples=60)
def test_oracle_every_epoch_reads_as_the_model(
    server: EmbeddedServer, client: redis.Redis, epochs: list[Content], limit: int
) -> None:
    """Small blocks and tiers, so that a few tuples go through every kind of merge."""
    database = f"model-{client.incr('model')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "BLOCK_ROWS", 4)
        patch.setattr(compaction, "BASE_FLOOR", 3)
        patch.setattr(compaction, "RUNS_PER_TIER", 2)
        publisher = new_publisher(client, database)
        model: Model = {"r": {}}
        history: list[Content] = [{}]
        for number, states in enumerate(epochs, 1):
            record = epoch_record(number, {"r": change(model, "r", 2, states)})
            publisher.publish(record, (), f"{number}-1")
            history.append(dict(model["r"]))
    asyncio.run(check_history(server, database, history, limit))


async def check_history(server: EmbeddedServer, database: str, history: list[Content], limit: int) -> None:
    reader = DatabaseClient.connect(server.url, database)
    try:
        for number, content in enumerate(history[1:], 1):
            snapshot = await reader.snapshot(number)
            counts = snapshot.counts("r")
            assert await read_all(snapshot, "r", limit) == content
            assert list(await read_all(snapshot, "r", limit)) == sorted(content)
            assert (counts.all, counts.asserted, counts.derived) == (
                len(content),
                len(in_domain(content, "asserted")),
                len(in_domain(content, "derived")),
            )
            appeared = {(row, 1) for row in content.keys() - history[number - 1].keys()}
            went = {(row, -1) for row in history[number - 1].keys() - content.keys()}
            assert set(await snapshot.changes("r")) == appeared | went
        for bound in ({0: 1}, {1: 3}, {0: 2, 1: 0}, {1: 77}):
            for domain in ("all", "asserted", "derived"):
                expected = {r: s for r, s in content.items() if all(r[i] == v for i, v in bound.items())}
                found = await read_all(snapshot, "r", limit, domain, bound)
                assert found == in_domain(expected, domain)
    finally:
        await reader.close()


def test_a_large_relation_in_pages(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    rows = {(i % 97, i): (1, i % 3 == 0) for i in range(20_000)}
    publisher.publish(epoch_record(1, {"r": change(model, "r", 2, rows)}), (), "1-1")
    assert publisher.store.relation(publisher.manifest.relations["r"].id).segments[0].index_id is not None
    updates = [{(i % 97, i): (0, False) for i in range(e, 20_000, 50)} for e in range(12)]
    for number, states in enumerate(updates, 2):
        publisher.publish(epoch_record(number, {"r": change(model, "r", 2, states)}), (), f"{number}-1")

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            snapshot = await reader.snapshot()
            # By hand: i = 0 .. 19,999 without those with i % 50 < 12.
            assert snapshot.counts("r").all == 20_000 - 12 * 400
            assert await read_all(snapshot, "r", 999) == model["r"]
            column = await read_all(snapshot, "r", 100, bound={0: 5})
            assert column == {row: state for row, state in model["r"].items() if row[0] == 5}
            assert await read_all(snapshot, "r", 100, bound={1: 4_013}) == {(4_013 % 97, 4_013): (1, False)}
        finally:
            await reader.close()

    asyncio.run(read())


@pytest.mark.parametrize("arity", [0, 1, 5])
def test_other_arities(server: EmbeddedServer, client: redis.Redis, database: str, arity: int) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    row = tuple(range(arity))
    steps: list[State] = [(1, False), (1, True), (0, True), (0, False), (2, False)]
    for number, state in enumerate(steps, 1):
        publisher.publish(
            epoch_record(number, {"p": change(model, "p", arity, {row: state})}), (), f"{number}-1"
        )

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            for number, state in enumerate(steps, 1):
                expected = {} if state == (0, False) else {row: state}
                assert await read_all(await reader.snapshot(number), "p") == expected
        finally:
            await reader.close()

    asyncio.run(read())


SCHEMA = Schema(
    "s",
    (
        Column("who", ColumnType.SYMBOL),
        Column("size", ColumnType.FLOAT),
        Column("old", ColumnType.BOOL),
        Column("n", ColumnType.NUMBER),
    ),
)


def test_values_of_every_type(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    import numpy as np

    publisher = new_publisher(client, database)
    rows = [("ann", 1.5, True, -7), ("", -0.25, False, 2**63 - 1), ("zoë \U0001f600", 3e300, True, -(2**63))]
    bits = [int(np.float64(row[1]).view(np.int64)) for row in rows]
    codes = {(i, bits[i], int(row[2]), row[3]): (1, False) for i, row in enumerate(rows)}
    record = epoch_record(
        1,
        {"s": change({}, "s", 4, codes)},
        {"s": SCHEMA},
        symbols=[row[0] for row in rows],
        rules=(RuleInfo("r1", "a(x) :- s(x,_,_,_).", "canonical", 2),),
    )
    publisher.publish(record, (), "1-1")

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            snapshot = await reader.snapshot()
            assert snapshot.schemas == {"s": SCHEMA}
            assert snapshot.rules == record.rules
            assert set(await read_all(snapshot, "s")) == set(rows)
            for position in range(4):
                for row in rows:
                    expected = {r for r in rows if r[position] == row[position]}
                    assert set(await read_all(snapshot, "s", bound={position: row[position]})) == expected
            assert await read_all(snapshot, "s", bound={0: "nobody"}) == {}
            for position, wrong in ((0, 1), (1, 1), (2, 1), (3, 1.0), (3, True)):
                with pytest.raises(TypeMismatchError, match="holds"):
                    await snapshot.facts("s", {position: wrong})
            with pytest.raises(UnknownColumnError):
                await snapshot.facts("s", {4: 1})
            with pytest.raises(UnknownRelationError):
                await snapshot.facts("t")
            with pytest.raises(UnknownRelationError):
                snapshot.counts("t")
            with pytest.raises(InvalidCursorError):
                await snapshot.facts("s", after=(1,))
            with pytest.raises(InvalidRequestError):
                await snapshot.facts("s", limit=0)
            with pytest.raises(InvalidRequestError):
                await snapshot.facts("s", domain="some")  # type: ignore[arg-type]  # what is tested
            assert parse_token(snapshot.token, await reader.incarnation()) == 1
            for token in (
                "",
                "1",
                "1-zz",
                "01-" + publisher.incarnation,
                "1-00000000x",
                "-1-" + publisher.incarnation,
            ):
                with pytest.raises(InvalidTokenError):
                    parse_token(token, publisher.incarnation)
            with pytest.raises(InvalidTokenError, match="another database"):
                parse_token("1-" + "".join(reversed(publisher.incarnation)) + "", "00000000")
        finally:
            await reader.close()

    asyncio.run(read())


def test_symbols_over_many_epochs(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    """One to three new symbols an epoch: chunks are merged, codes stay."""
    publisher = new_publisher(client, database, Retention(epochs=4, seconds=0))
    schema = {"s": Schema("s", (Column("x", ColumnType.SYMBOL),))}
    model: Model = {}
    known = 0
    for number in range(1, 120):
        new = [f"symbol {known + i}" for i in range(1 + number % 3)]
        rows = {(known + i,): (1, False) for i in range(len(new))}
        publisher.publish(
            epoch_record(number, {"s": change(model, "s", 1, rows)}, schema, first_symbol=known, symbols=new),
            (),
            f"{number}-1",
        )
        known += len(new)
    # By hand: 119 = 39 * 3 + 2 epochs; 1, 2 and 3 new symbols in turn, beginning with 2.
    assert known == 39 * 6 + 2 + 3
    assert len(publisher.manifest.symbols) < 24

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            snapshot = await reader.snapshot()
            assert list(await read_all(snapshot, "s", 1000)) == [(f"symbol {i}",) for i in range(known)]
            assert list(await read_all(snapshot, "s", bound={0: "symbol 201"})) == [("symbol 201",)]
        finally:
            await reader.close()

    asyncio.run(read())


def test_epochs_outside_of_the_retention(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            with pytest.raises(EngineUnavailableError):
                await reader.snapshot()
            with pytest.raises(EngineUnavailableError):
                await reader.snapshot(3)
            model: Model = {}
            publisher = new_publisher(client, database, Retention(epochs=2, seconds=0))
            pinned = await reader.snapshot()
            assert (pinned.epoch, pinned.schemas) == (0, {})
            early = []
            for number in range(1, 5):
                record = epoch_record(number, {"r": change(model, "r", 1, {(number,): (1, False)})})
                publisher.publish(record, (), f"{number}-1")
                early.append(await reader.snapshot())
            assert await read_all(await reader.snapshot(3), "r") == {
                (1,): (1, False),
                (2,): (1, False),
                (3,): (1, False),
            }
            for missing in (-1, 0, 2, 5):
                with pytest.raises(EpochNotRetainedError):
                    await reader.snapshot(missing)
            # A pinned one whose blocks are gone says the same.
            with pytest.raises(EpochNotRetainedError):
                await early[0].facts("r")
            assert [e["epoch"] for e in await reader.epochs()] == [4, 3, 2, 1, 0]
            assert [e["epoch"] for e in await reader.epochs(before=3, limit=2)] == [2, 1]
            assert await reader.epochs(before=0) == []
            assert (await reader.epochs(limit=1))[0]["changes"] == {"r": {"inserted": 1, "deleted": 0}}
        finally:
            await reader.close()

    asyncio.run(read())


def test_damage_is_noticed(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    rows = {(i,): (1, False) for i in range(2 * blocks.BLOCK_ROWS)}
    publisher.publish(epoch_record(1, {"r": change({}, "r", 1, rows)}), (), "1-1")
    segment = publisher.store.relation(publisher.manifest.relations["r"].id).segments[0]
    first, second = (Keys(database).object(name) for name in publisher.store.index(segment).ids)
    data = client.get(first)
    assert isinstance(data, bytes)
    client.set(first, data[:-1] + bytes([data[-1] ^ 1]))
    client.delete(second)

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            snapshot = await reader.snapshot()
            with pytest.raises(CorruptSnapshotError, match="damaged"):
                await snapshot.facts("r", limit=10)
            with pytest.raises(CorruptSnapshotError, match="missing"):
                await snapshot.facts("r", {0: 2 * blocks.BLOCK_ROWS - 1})
        finally:
            await reader.close()

    asyncio.run(read())


def test_the_reader_keeps_to_its_bound(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    publisher = new_publisher(client, database)
    rows = {(i, i): (1, False) for i in range(60_000)}
    publisher.publish(
        epoch_record(1, {"r": change({}, "r", 2, rows)}, {"r": number_schema("r", 2)}), (), "1-1"
    )

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database, cache_bytes=300_000)
        try:
            assert len(await read_all(await reader.snapshot(), "r", 10_000)) == 60_000
            assert 100_000 < reader._reader._blocks.used_bytes <= 300_000
        finally:
            await reader.close()

    asyncio.run(read())
