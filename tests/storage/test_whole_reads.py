"""Reading what an evaluation needs: whole relations as codes, symbols that can grow, answers decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import redis

from engine.errors import CorruptSnapshotError, UnknownRelationError
from engine.language.schema import Column, ColumnType, Schema
from engine.storage import compaction, snapshot, symbol_chunks
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.reader import Texts
from engine.storage.snapshot_symbols import SnapshotSymbols
from tests.storage.writing import Model, change, epoch_record, new_publisher


def symbols(known: dict[str, int] | None = None) -> SnapshotSymbols:
    """a, b, c, d in two chunks."""
    return SnapshotSymbols(4, known or {}, [(0, Texts(["a", "b", "c"])), (3, Texts(["d"]))])


class TestSymbols:
    def test_the_snapshot_s_symbols_keep_their_codes(self) -> None:
        table = symbols()
        assert [table.find(text) for text in "abcdx"] == [0, 1, 2, 3, None]
        assert [table.text(code) for code in range(4)] == list("abcd")
        assert len(table) == 4

    def test_new_ones_come_after_them_and_go_again(self) -> None:
        table = symbols()
        assert table.intern_all(["x", "b", "y", "x"]).tolist() == [4, 1, 5, 4]
        assert (table.find("y"), table.text(5), len(table)) == (5, "y", 6)
        assert table.texts(np.array([5, 0, 3, 4, 2])) == ["y", "a", "d", "x", "c"]
        assert table.since(4) == ("x", "y")
        table.truncate(5)
        assert (table.find("y"), table.find("x"), len(table)) == (None, 4, 5)

    def test_known_codes_need_no_chunks(self) -> None:
        table = SnapshotSymbols(1_000, {"a": 17})
        assert table.intern("a") == 17
        assert table.intern("not there") == 1_000
        assert table.texts(np.array([1_000])) == ["not there"]


@pytest.fixture
def published(
    server: EmbeddedServer, client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[int, ...], Any]:
    """Relation r(number, symbol) over five small runs, with deletions; 60 symbols in chunks of 8."""
    monkeypatch.setattr(compaction, "BLOCK_ROWS", 8)
    monkeypatch.setattr(snapshot, "_SCAN_ROWS", 10)
    monkeypatch.setattr(symbol_chunks, "CHUNK_SYMBOLS", 8)
    publisher = new_publisher(client, database)
    schema = {"r": Schema("r", (Column("x", ColumnType.NUMBER), Column("s", ColumnType.SYMBOL)))}
    model: Model = {}
    first = 0
    for number in range(1, 6):
        states = {(i, i % 12 * 5): (1, False) for i in range(number, 80, 5)}
        states |= {(i, i % 12 * 5): (0, False) for i in range(number - 1, 20, 7)}
        texts = [f"s{first + i}" for i in range(12)]
        record = epoch_record(number, {"r": change(model, "r", 2, states)}, schema, (), first, texts)
        publisher.publish(record, (), f"{number}-1")
        first += 12
    return dict(model["r"])


def test_whole_relations_as_codes(
    server: EmbeddedServer, database: str, published: dict[tuple[int, ...], Any]
) -> None:
    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            pinned = await reader.snapshot()
            assert [tuple(row) for row in (await pinned.codes("r")).tolist()] == sorted(published)
            bound = (await pinned.codes("r", {1: "s25"})).tolist()
            assert [tuple(row) for row in bound] == sorted(row for row in published if row[1] == 25)
            assert len(bound) > 2
            assert (await pinned.codes("r", {1: "nothing"})).shape == (0, 2)
            # Enough is enough, to the block.
            assert 15 <= len(await pinned.codes("r", most=15)) < 15 + 10
            with pytest.raises(UnknownRelationError):
                await pinned.codes("q")
        finally:
            await reader.close()

    asyncio.run(read())


def test_symbols_and_decoding(
    server: EmbeddedServer, database: str, published: dict[tuple[int, ...], Any]
) -> None:
    columns = [Column("s", ColumnType.SYMBOL), Column("n", ColumnType.NUMBER)]

    async def read() -> None:
        reader = DatabaseClient.connect(server.url, database)
        try:
            pinned = await reader.snapshot()
            assert pinned.symbol_count == 60
            whole = await pinned.symbols((), complete=True)
            assert [whole.find(f"s{i}") for i in range(61)] == [*range(60), None]
            some = await pinned.symbols(["s33", "new"], complete=False)
            assert (some.find("s33"), some.find("new"), some.intern("new")) == (33, None, 60)
            codes = np.array([[61, 1], [0, 2], [59, 3], [60, 4]])
            decoded = await pinned.decode(codes, columns, ("new", "newer"))
            assert decoded == [("newer", 1), ("s0", 2), ("s59", 3), ("new", 4)]
            with pytest.raises(CorruptSnapshotError):
                await pinned.decode(codes, columns, ("new",))
        finally:
            await reader.close()

    asyncio.run(read())
