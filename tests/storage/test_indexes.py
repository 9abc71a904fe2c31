"""Reads through indexes are the reads of a scan: every page, domain, set of bound columns and epoch, whatever the
limit of memory, the run or the rewritten base; and what an index costs is bounded and told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.database.epoch import replaced
from engine.errors import CorruptSnapshotError, EpochNotRetainedError
from engine.storage import compaction, indexes, lookup, packed, snapshot
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.packed import Order, PackedRows, Part
from engine.storage.retention import Retention
from engine.storage.rows import Rows
from engine.storage.snapshot import Domain, Position, Snapshot
from tests.storage.writing import Model, State, change, epoch_record, new_publisher, number_schema

Row = tuple[int, ...]
Bound = dict[int, int]
LARGE = 1 << 30

CODES = st.sampled_from([-(2**63), -300, -1, 0, 1, 2, 3, 255, 2**40, 2**63 - 1])
NARROW = st.integers(0, 4)


@contextmanager
def small_sizes(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A few tuples make many blocks, runs of every kind, large and small parts, and pages of several steps."""
    for module, name, value in (
        (compaction, "BLOCK_ROWS", 4),
        (compaction, "BASE_FLOOR", 3),
        (compaction, "RUNS_PER_TIER", 2),
        (indexes, "SMALL_ROWS", 5),
        (indexes, "SCAN_BLOCKS", -10),
        (indexes, "_FETCHED", 2),
        (packed, "_LEAST_STEP", 2),
        (packed, "_MOST_COUNTED", 1),
        (lookup, "_MOST_ROWS", 5),
        (snapshot, "_SCAN_ROWS", 3),
    ):
        patch.setattr(module, name, value)
    yield


async def pages(pinned: Snapshot, bound: Bound, domain: Domain, limit: int) -> list[tuple[Row, int, bool]]:
    """All pages of r; a page that is not the last is full."""
    found: list[tuple[Row, int, bool]] = []
    after: Position | None = None
    while True:
        page = await pinned.facts("r", cast(dict[int, Any], bound), domain, limit, after)
        found += zip(page.tuples, page.weights, page.derived, strict=True)
        if page.next is None:
            return found
        assert len(page.tuples) == limit
        after = page.next


async def built(reader: DatabaseClient) -> None:
    while reader.indexes.running:
        await asyncio.sleep(0.001)


def expected(content: dict[Row, State], bound: Bound, domain: Domain) -> list[tuple[Row, int, bool]]:
    keep = {"all": lambda s: True, "asserted": lambda s: s[0] != 0, "derived": lambda s: s[1]}[domain]
    return [
        (row, *content[row])
        for row in sorted(content)
        if keep(content[row]) and all(row[i] == code for i, code in bound.items())
    ]


# ---- packed rows


def rows_of(tuples: dict[Row, State], arity: int) -> Rows:
    ordered = sorted(tuples)
    return Rows(
        np.array(ordered, np.int64).reshape(len(ordered), arity),
        np.array([tuples[row][0] for row in ordered], np.int64),
        np.array([tuples[row][1] for row in ordered], np.bool_),
        np.array([row[0] % 3 == 0 for row in ordered], np.bool_),
        np.array([abs(row[0] + row[1]) % HEIGHTS for row in ordered], np.int64),
    )


HEIGHTS = 300
STATES = st.tuples(st.sampled_from([0, 1, 2, 2**40]), st.booleans())
TUPLES = st.dictionaries(st.tuples(NARROW, CODES, CODES), STATES, max_size=40)


@given(TUPLES, st.tuples(NARROW, CODES, CODES))
@settings(max_examples=200)
def test_packed_rows_are_the_rows(tuples: dict[Row, State], key: Row) -> None:
    rows = rows_of(tuples, 3)
    kept = PackedRows.of(rows)
    for one, other in zip(
        *([getattr(those, name).tolist() for name in Rows.__slots__] for those in (rows, kept.all_rows())),
        strict=True,
    ):
        assert one == other
    assert kept.position(key) == sum(row <= key for row in tuples)
    assert [kept.key(i) for i in range(len(kept))] == sorted(tuples)


WANTED = st.dictionaries(
    st.integers(0, 2), st.lists(CODES | NARROW, min_size=1, max_size=4, unique=True).map(sorted), max_size=3
)


@given(
    TUPLES, WANTED, st.sets(st.integers(1, 2)), st.none() | st.tuples(NARROW, CODES, CODES), st.integers(1, 9)
)
@settings(max_examples=300)
def test_a_part_finds_what_a_filter_finds(
    tuples: dict[Row, State], wanted: dict[int, list[int]], ordered: set[int], low: Row | None, most: int
) -> None:
    rows = PackedRows.of(rows_of(tuples, 3))
    part = Part(rows, {column: Order.of(rows, column) for column in ordered})
    codes = {column: np.array(values, np.int64) for column, values in wanted.items()}
    right = [row for row in sorted(tuples) if all(row[c] in values for c, values in wanted.items())]
    assert list(map(tuple, part.everything(codes).codes.tolist())) == right
    assert len(right) <= part.count(codes) <= len(tuples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_LEAST_STEP", 1)
        found: list[Row] = []
        end = low
        while True:
            selected, following = part.select(codes, end, most)
            assert all(end is None or tuple(row) > end for row in selected.codes.tolist())
            found += map(tuple, selected.codes.tolist())
            if following is None:
                break
            assert end is None or following > end
            assert all(tuple(row) <= following for row in selected.codes.tolist())
            end = following
    assert found == [row for row in right if low is None or row > low]


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [(0, 0, 1), (0, 255, 1), (-1, 255, 2), (0, 2**16, 4), (7, 7 + 2**32, 8), (-(2**63), 2**63 - 1, 8)],
)
def test_columns_take_the_bytes_that_they_need(low: int, high: int, size: int) -> None:
    rows = PackedRows.of(
        Rows(
            np.array([[low], [high]]),
            np.ones(2, np.int64),
            *[np.zeros(2, np.bool_)] * 2,
            np.zeros(2, np.int64),
        )
    )
    # By hand: the column's bytes and one of flags, for two rows; the order has four more for each row's number.
    assert rows.nbytes == 2 * (size + 1)
    assert Order.of(rows, 0).nbytes == 2 * (size + 4)


# ---- against a model, epoch by epoch

STATE = st.tuples(st.integers(0, 2), st.booleans())
EPOCH = st.dictionaries(
    st.tuples(st.integers(-2, 3), st.integers(0, 3), st.integers(0, 9)), STATE, min_size=1
)
BOUNDS: list[Bound] = [
    {0: 1}, {1: 2}, {2: 5}, {0: 2, 1: 0}, {0: 1, 2: 3}, {1: 1, 2: 4}, {0: 0, 1: 1, 2: 2}, {2: 77}
]  # fmt: skip


@given(
    st.lists(EPOCH, min_size=2, max_size=9),
    st.sampled_from([LARGE, 2_000, 400, 0]),
    st.booleans(),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_differential_indexed_reads_are_scans(
    server: EmbeddedServer,
    client: redis.Redis,
    epochs: list[dict[Row, State]],
    capacity: int,
    patient: bool,
    data: st.DataObject,
) -> None:
    """After each epoch some reads, of it and of earlier ones, while indexes are made or after they were."""
    database = f"indexes-{client.incr('indexes')}"

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=capacity)
        publisher = new_publisher(client, database)
        model: Model = {"r": {}}
        history: list[dict[Row, State]] = [{}]
        try:
            for number, states in enumerate(epochs, 1):
                record = epoch_record(
                    number, {"r": change(model, "r", 3, states)}, {"r": number_schema("r", 3)}
                )
                publisher.publish(record, (), f"{number}-1")
                history.append(dict(model["r"]))
                for epoch in (number, data.draw(st.integers(1, number), "an earlier epoch")):
                    pinned = await reader.snapshot(epoch)
                    bound = data.draw(st.sampled_from(BOUNDS), "bound")
                    domain: Domain = data.draw(st.sampled_from(["all", "asserted", "derived"]), "domain")
                    limit = data.draw(st.integers(1, 9), "limit")
                    content = expected(history[epoch], bound, domain)
                    for _ in range(2):
                        assert await pages(pinned, bound, domain, limit) == content
                        if patient:
                            await built(reader)
                    assert await pinned.estimate("r", cast(dict[int, Any], bound)) >= len(
                        expected(history[epoch], bound, "all")
                    )
                    await check_among(pinned, history[epoch], data)
                    assert reader.indexes.bytes <= capacity
        finally:
            await reader.close()

    with pytest.MonkeyPatch.context() as patch, small_sizes(patch):
        asyncio.run(story())


async def check_among(pinned: Snapshot, content: dict[Row, State], data: st.DataObject) -> None:
    columns = data.draw(st.sets(st.integers(0, 2), min_size=1, max_size=2), "among")
    among = {c: np.unique(data.draw(st.lists(st.integers(-3, 10), max_size=5), "codes")) for c in columns}
    among = {c: codes.astype(np.int64) for c, codes in among.items()}
    bound: Bound = data.draw(st.sampled_from([{}, {1: 2}, {0: 1}]), "bound besides")
    found = await pinned.codes("r", cast(dict[int, Any], bound), None, among)
    right = [
        row
        for row, _, _ in expected(content, bound, "all")
        if all(row[column] in codes.tolist() for column, codes in among.items())
    ]
    assert list(map(tuple, found.tolist())) == right


# ---- what is made, and when

WIDE = {(i, i % 50, i % 7): (1, False) for i in range(600)}


def publish(publisher: Any, model: Model, number: int, states: dict[Row, State]) -> None:
    record = epoch_record(number, {"r": change(model, "r", 3, states)}, {"r": number_schema("r", 3)})
    publisher.publish(record, (), f"{number}-1")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(compaction, "BLOCK_ROWS", 8)
    monkeypatch.setattr(compaction, "BASE_FLOOR", 2)
    monkeypatch.setattr(indexes, "SMALL_ROWS", 32)
    monkeypatch.setattr(packed, "_MOST_COUNTED", 32)
    return monkeypatch


class Counting:
    """How many blocks the reads of a client ask for; what an index is made from does not count."""

    def __init__(self, reader: DatabaseClient) -> None:
        self.blocks = 0
        blocks = reader._reader.blocks

        async def counted(ids: Any) -> Any:
            self.blocks += len(ids)
            return await blocks(ids)

        reader._reader.blocks = counted  # type: ignore[method-assign]  # only to count


def test_it_is_made_once_in_the_background(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    publish(publisher, model, 1, WIDE)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            pinned = await reader.snapshot()
            # The first column is that of the order: its blocks are known, and few.
            assert len(await pages(pinned, {0: 17}, "all", 100)) == 1
            assert reader.indexes == indexes.IndexStats()
            # By hand: 600 / 50 rows.
            assert len(await pages(pinned, {1: 17}, "all", 100)) == 12
            await built(reader)
            stats = reader.indexes
            assert (stats.builds, stats.running, stats.seconds > 0) == (1, 0, True)
            # By hand: two, one and one bytes of columns and one of flags; the order has one and four.
            assert stats.bytes == 600 * (2 + 1 + 1 + 1) + 600 * (1 + 4) + indexes._LAYOUT_BYTES
            counting = Counting(reader)
            assert len(await pages(pinned, {1: 17}, "all", 5)) == 12
            assert len(await pages(pinned, {0: 67, 1: 17}, "all", 5)) == 1
            assert (counting.blocks, reader.indexes.builds) == (0, 1)
            await pages(pinned, {2: 1}, "all", 500)
            await built(reader)
            assert reader.indexes.builds == 2
            assert len(await pages(pinned, {1: 17, 2: 3}, "all", 5)) == 2
        finally:
            await reader.close()

    asyncio.run(story())


def test_an_epoch_costs_its_change(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    """Also when compaction rewrites the base: the parts before, and the change, serve until the new one is ready."""
    model: Model = {}
    publisher = new_publisher(client, database)
    publish(publisher, model, 1, WIDE)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            await pages(await reader.snapshot(), {1: 17}, "all", 100)
            await built(reader)
            base = publisher.store.relation(publisher.manifest.relations["r"].id).segments[0].child
            rewritten = 0
            for number in range(2, 80):
                states: dict[Row, State] = {(number * 13 + i, 17, i): (1, False) for i in range(5)}
                states[(number * 50 + 17, 17, (number * 50 + 17) % 7)] = (0, False)
                publish(publisher, model, number, states)
                segments = publisher.store.relation(publisher.manifest.relations["r"].id).segments
                rewritten += segments[0].child != base
                base = segments[0].child
                pinned = await reader.snapshot()
                counting = Counting(reader)
                content = await pages(pinned, {1: 17}, "all", 100)
                # Small runs only: the base has 75 blocks or more, and a scan reads them all.
                assert counting.blocks < 75
                assert content == expected(model["r"], {1: 17}, "all")
                if number % 5 == 0:
                    await built(reader)
                    assert await pages(pinned, {1: 17}, "all", 100) == content
            assert rewritten > 1
            await built(reader)
            await pages(pinned, {1: 17}, "all", 100)
            # What the new base replaced is gone: one packed segment and its order are left, and the layout.
            kept = [name for name in reader._indexes._kept._entries if name[0] in "sb"]
            large = [segment.child for segment in segments if segment.rows > indexes.SMALL_ROWS]
            assert sorted(kept) == sorted(n for name in large for n in (name, f"{name}/1"))
        finally:
            await reader.close()

    asyncio.run(story())


def test_what_does_not_fit_is_scanned(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    """600 rows take 3,000 bytes packed, and 3,000 for each order: two orders do not fit into 8,000."""
    publisher = new_publisher(client, database)
    publish(publisher, {}, 1, WIDE)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=8_000)
        tiny = DatabaseClient.connect(server.url, database, index_bytes=5_000)
        try:
            pinned = await reader.snapshot()
            for column, builds in ((1, 1), (1, 1), (2, 2), (2, 2), (1, 3)):
                await pages(pinned, {column: 3}, "all", 100)
                await built(reader)
                assert reader.indexes.builds == builds
                assert [n for n in reader._indexes._kept._entries if "/" in n][-1].endswith(f"/{column}")
                assert 6_000 <= reader.indexes.bytes <= 8_000
            # Both columns together do not fit; one that is there is used, the rest is filtered or scanned.
            assert len(await pages(pinned, {1: 17, 2: 3}, "all", 100)) == 2
            for _ in range(2):
                assert len(await pages(await tiny.snapshot(), {1: 17}, "all", 100)) == 12
                await built(tiny)
            assert tiny.indexes == indexes.IndexStats()
        finally:
            await reader.close()
            await tiny.close()

    asyncio.run(story())


def test_weights_that_take_more_than_was_estimated(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    """Weights other than 0 and 1 take 16 bytes each: 600 rows 12,600 bytes, where 3,000 were expected."""
    heavy: dict[Row, State] = {row: (row[0] + 2, False) for row in WIDE}
    publish(new_publisher(client, database), {}, 1, heavy)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=10_000)
        large = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            for one, builds, size in ((reader, 1, 0), (large, 1, 15_600 + indexes._LAYOUT_BYTES)):
                for _ in range(3):
                    found = await pages(await one.snapshot(), {1: 17}, "all", 5)
                    assert found == expected(heavy, {1: 17}, "all")
                    await built(one)
                assert (one.indexes.builds, one.indexes.bytes) == (builds, size)
        finally:
            await reader.close()
            await large.close()

    asyncio.run(story())


def test_nothing_is_made_for_an_older_epoch(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    publish(publisher, model, 1, WIDE)
    first = dict(model["r"])
    publish(publisher, model, 2, {(i, i % 50, i % 7): (0, False) for i in range(0, 600, 2)})

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            old, new = await reader.snapshot(1), await reader.snapshot()
            await pages(new, {1: 17}, "all", 100)
            await built(reader)
            for _ in range(2):
                assert await pages(old, {1: 17}, "all", 5) == expected(first, {1: 17}, "all")
                assert await pages(new, {1: 17}, "all", 5) == expected(model["r"], {1: 17}, "all")
                assert reader.indexes.running == 0
        finally:
            await reader.close()

    asyncio.run(story())


def test_a_removed_epoch_is_told(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    model: Model = {}
    publisher = new_publisher(client, database, Retention(epochs=1, seconds=0))
    publish(publisher, model, 1, WIDE)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            early = await reader.snapshot()
            publish(
                publisher,
                model,
                2,
                dict.fromkeys(WIDE, (0, False)) | {(i, 1, 1): (1, False) for i in range(400)},
            )
            for _ in range(2):
                with pytest.raises(EpochNotRetainedError):
                    await early.facts("r", {1: 17})
                await built(reader)
            with pytest.raises(EpochNotRetainedError):
                await early.codes("r", among={1: np.array([3, 17])})
            assert len(await pages(await reader.snapshot(), {1: 1}, "all", 1000)) == 400
        finally:
            await reader.close()

    asyncio.run(story())


def test_a_reader_that_waits_is_told_of_damage(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    publisher = new_publisher(client, database)
    publish(publisher, {}, 1, WIDE)
    segment = publisher.store.relation(publisher.manifest.relations["r"].id).segments[0]
    client.delete(Keys(database).object(publisher.store.index(segment).ids[3]))

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            pinned = await reader.snapshot()
            with pytest.raises(CorruptSnapshotError, match="missing"):
                await pinned.codes("r", among={1: np.array([3, 17])})
        finally:
            await reader.close()

    asyncio.run(story())


def test_closing_ends_what_is_being_made(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    publish(new_publisher(client, database), {}, 1, WIDE)

    async def endless(*_: object) -> PackedRows:
        await asyncio.Event().wait()
        raise AssertionError("it is never set")

    small.setattr(indexes.Indexes, "_packed", endless)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        await (await reader.snapshot()).facts("r", {1: 17})
        assert reader.indexes.running == 1
        await reader.close()
        assert reader.indexes.running == 0

    asyncio.run(story())


def test_many_codes_are_looked_up_and_most_are_scanned(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    small.setattr(snapshot, "_SCAN_ROWS", 100)
    publish(new_publisher(client, database), {}, 1, WIDE)

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            pinned = await reader.snapshot()
            for codes, scanned in (([3, 4, 900], False), (list(range(40)), True)):
                among = {1: np.array(codes, np.int64)}
                await pinned.codes("r", among=among)
                counting = Counting(reader)
                found = await pinned.codes("r", among=among)
                assert list(map(tuple, found.tolist())) == sorted(row for row in WIDE if row[1] in codes)
                # By hand: 600 rows in blocks of eight.
                assert counting.blocks >= 75 if scanned else counting.blocks == 0
                assert await pinned.estimate("r", among=among) == len(found)
        finally:
            await reader.close()

    asyncio.run(story())


def test_bounds_of_every_combination(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    publish(publisher, model, 1, WIDE)
    publish(publisher, model, 2, {(i, i % 50, i % 7): (0, i % 2 == 0) for i in range(100, 140)})

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)
        try:
            pinned = await reader.snapshot()
            for columns in itertools.chain.from_iterable(
                itertools.combinations(range(3), n) for n in (1, 2, 3)
            ):
                bound = {column: (110, 10, 5)[column] for column in columns}
                for _ in range(2):
                    for domain in ("all", "asserted", "derived"):
                        assert await pages(pinned, bound, domain, 3) == expected(model["r"], bound, domain)
                    await built(reader)
        finally:
            await reader.close()

    asyncio.run(story())


def test_a_relation_that_goes_and_comes_back_with_other_columns(
    server: EmbeddedServer, client: redis.Redis, database: str, small: pytest.MonkeyPatch
) -> None:
    model: Model = {}
    publisher = new_publisher(client, database)
    publish(publisher, model, 1, WIDE)
    emptied = dict.fromkeys(WIDE, (0, False))
    pairs: dict[Row, State] = {(i, i % 9): (1, False) for i in range(400)}

    async def story() -> None:
        reader = DatabaseClient.connect(server.url, database, index_bytes=LARGE)

        async def check(bound: Bound) -> None:
            pinned = await reader.snapshot()
            for _ in range(2):
                assert await pages(pinned, bound, "all", 7) == expected(model["r"], bound, "all")
                await built(reader)

        try:
            await check({1: 5})
            # Nothing is left, then the same comes back: at no time are there parts that say otherwise.
            publish(publisher, model, 2, emptied)
            assert await pages(await reader.snapshot(), {1: 5}, "all", 7) == []
            publish(publisher, model, 3, {row: (1, False) for row in WIDE if row[0] % 2})
            await check({1: 5})
            # In one epoch the tuples of three columns go and those of two come.
            gone = change(model, "r", 3, emptied)
            come = change(model, "r", 2, pairs)
            schemas = {"r": number_schema("r", 2), replaced("r"): number_schema("r", 3)}
            publisher.publish(epoch_record(4, {"r": come, replaced("r"): gone}, schemas), (), "4-1")
            await check({1: 5})
            await check({0: 5, 1: 5})
        finally:
            await reader.close()

    asyncio.run(story())
