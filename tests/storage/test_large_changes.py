"""Large relations: merged in pieces, blocks sent ahead, blocks written elsewhere; all as if it were done at once."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis

from engine.data.arrow import to_arrow
from engine.errors import CorruptSnapshotError, EngineLeaseError
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.storage import block_task, compaction, objects
from engine.storage.block_task import BlockTask, BlockWriter, Part, ReachTask
from engine.storage.compaction import apply_change, read_facts, read_parts
from engine.storage.digests import MODULUS, Digester, FewHashes
from engine.storage.keys import Keys
from engine.storage.manifest import BLOCK, BlockIndex, SymbolChunk, encode_symbols
from engine.storage.objects import ObjectStore
from engine.storage.publisher import Publisher
from engine.storage.scripts import STAGED_SECONDS
from tests.storage.writing import GONE, Model, State, change, epoch_record, new_publisher


def stored(publisher: Publisher, relation: str) -> dict[tuple[int, ...], State]:
    entry = publisher.manifest.relations.get(relation)
    found: dict[tuple[int, ...], State] = {}
    last: tuple[int, ...] = (-1,)
    for part in read_parts(publisher.store.relation(entry.id), publisher.store) if entry else ():
        rows = zip(part.codes.tolist(), part.asserted.tolist(), part.derived.tolist(), strict=True)
        for codes, asserted, derived in rows:
            assert tuple(codes) > last, "in order, and each tuple once"
            last = tuple(codes)
            found[last] = (asserted, derived)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_merges_in_pieces_and_blocks_sent_ahead_change_nothing(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Blocks of 4 rows, pieces of 3 blocks, and no more than 300 bytes held: after every epoch it is the model."""
    for name, value in {"BLOCK_ROWS": 4, "MERGED_BLOCKS": 3, "MERGED_ROWS": 12, "BASE_FLOOR": 8}.items():
        monkeypatch.setattr(compaction, name, value)
    monkeypatch.setattr(objects, "AHEAD_BYTES", 300)
    draw, model = random.Random(seed), Model()
    publisher = new_publisher(client, database)
    for epoch in range(1, 41):
        size = draw.choice([1, 3, 3, 3, 60])
        keys = {(draw.randrange(12), draw.randrange(40)) for _ in range(size)}
        states = {key: draw.choice([GONE, (1, False), (0, True), (2, True)]) for key in sorted(keys)}
        publisher.publish(epoch_record(epoch, {"r": change(model, "r", 2, states)}), [], f"{epoch}-1")
        assert stored(publisher, "r") == model["r"]
        assert not publisher.store.pending
        assert not publisher.store.ahead
    entry = publisher.manifest.relations["r"]
    facts = read_facts(publisher.store.relation(entry.id), publisher.store)
    held = {tuple(c): n for c, n in zip(facts.codes.tolist(), facts.asserted.tolist(), strict=True)}
    assert held == {row: state[0] for row, state in model["r"].items() if state[0]}
    # All that is named stays, and nothing else waits for its end.
    names = [Keys(database).object(name) for name in publisher._references._counts]
    assert {client.ttl(name) for name in names} == {-1}


def rows_of(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches(max_chunksize=size)


@pytest.mark.parametrize("rows", [1, 5, 64, 700, 5000])
def test_blocks_written_elsewhere_are_those_that_the_writer_makes(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """A task with a partition of a change: the same rows, the same digest, counted alike; and the blocks are there."""
    monkeypatch.setattr(block_task, "_PIECE", 128)
    monkeypatch.setattr(block_task, "_BLOCKS_TOLD", 2)
    monkeypatch.setattr(block_task, "PORTION_BYTES", 500)
    rng = np.random.default_rng(rows)
    keys = Keys(database)
    store = ObjectStore(client, keys, 1 << 20)
    texts = [f"text {i}" for i in range(40)]
    chunks = []
    for first in (0, 25):
        data = encode_symbols(texts[first : first + (25 if first == 0 else 15)])
        name = objects.object_id("y", data)
        client.set(keys.object(name), data)
        chunks.append(SymbolChunk(name, first, 25 if first == 0 else 15))
    codes = np.stack([rng.integers(0, 40, rows), np.arange(rows), rng.integers(0, 40, rows)], axis=1)
    codes = codes[np.lexsort(codes.T[::-1])]
    flags = rng.integers(0, 2, (4, rows)).astype(bool)
    told = RelationChange(
        codes,
        rng.integers(0, 3, rows),
        flags[0],
        rng.integers(-1, 2, rows).astype(np.int8),
        rng.integers(0, 2, rows),
        flags[1],
        flags[2],
        rng.integers(0, 3, rows),
        np.zeros(rows, np.int64),
    )
    kinds = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.SYMBOL
    schema = Schema("r", tuple(Column(f"x{i}", kind) for i, kind in enumerate(kinds)))
    _, _, segment = apply_change(None, compaction.EMPTY, told, store)
    digest = Digester(store).changed(0, schema, told, chunks)
    table = to_arrow(
        codes,
        asserted=told.asserted,
        derived=told.derived,
        present=told.present.astype(np.int64),
        was_asserted=told.was_asserted,
        was_derived=told.was_derived,
        hidden=flags[2],
        height=told.height,
    )
    task = BlockTask(_url(client), database, Part(3, True, schema, tuple(chunks)))
    found = pa.Table.from_batches(list(task(iter(rows_of(table, 37)))))
    assert found.column("away").null_count == found.num_rows
    indexes = [BlockIndex.decode(data) for data in found.column("blocks").drop_null().to_pylist()]
    index = compaction.join(block_task.in_order(indexes[::-1]))
    assert index is not None
    mine, theirs = store.blocks(index.ids), store.blocks(store.index(segment).ids)
    for field in ("codes", "asserted", "derived", "hidden", "heights"):
        both = [np.concatenate([getattr(block, field) for block in blocks]) for blocks in (mine, theirs)]
        assert np.array_equal(*both), field
    assert sum(map(int, found.column("digest").to_pylist())) % MODULUS == digest
    assert sum(found.column("asserted").to_pylist()) == np.count_nonzero(told.asserted)
    assert sum(found.column("bytes").to_pylist()) >= rows
    assert all(0 < client.ttl(keys.object(name)) <= STAGED_SECONDS for name in index.ids)
    assert str(task) == f"BlockTask({database})", "the address may have a password in it"


def _url(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def test_symbols_of_few_chunks_have_the_same_hashes(client: redis.Redis, database: str) -> None:
    """Chunks come and go; a text that is missing is told, in both."""
    contents = {f"y{i}": encode_symbols([f"{i} {j}" for j in range(4)]) for i in range(100)}

    class Chunks:
        def get(self, names: Any) -> list[bytes]:
            return [contents[name] for name in names]

    chunks = [SymbolChunk(f"y{i}", 4 * i, 4) for i in range(100) if i != 7]
    codes = np.random.default_rng(1).integers(0, 28, (200, 3))
    codes[100:] += 32 + np.arange(100)[:, None] * 3
    few = FewHashes(Chunks())
    schema = Schema("r", tuple(Column(f"x{i}", ColumnType.SYMBOL) for i in range(3)))
    ones = np.ones(200, np.int64)
    told = RelationChange(codes, ones, ones > 2, ones.astype(np.int8), ones * 0, ones > 2)
    wanted = Digester(Chunks()).changed(5, schema, told, chunks)
    assert Digester(Chunks(), few).changed(5, schema, told, chunks) == wanted
    assert len(few._kept) <= 64
    for texts in (None, few):
        codes[50, 1] = 29
        with pytest.raises(CorruptSnapshotError, match="symbol 29"):
            Digester(Chunks(), texts).changed(5, schema, told, chunks)


def test_what_is_sent_ahead_and_lost_is_noticed(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the epoch is visible, and the writer is told to start again; so are those whose server is away."""
    monkeypatch.setattr(objects, "AHEAD_BYTES", 10)
    publisher, model = new_publisher(client, database), Model()
    whole = publisher._script

    def losing(**arguments: Any) -> Any:
        for name in client.scan_iter(match="*:o:b*"):
            if client.ttl(name) > 0:
                client.delete(name)
        return whole(**arguments)

    monkeypatch.setattr(publisher, "_script", losing)
    states = {(i, i): (1, False) for i in range(20)}
    with pytest.raises(EngineLeaseError, match="not in Redis any more"):
        publisher.publish(epoch_record(1, {"r": change(model, "r", 2, states)}), [], "1-1")
    again = new_publisher(client, database)
    assert again.head.epoch == 0
    again.publish(epoch_record(1, {"r": change(Model(), "r", 2, states)}), [], "1-1")
    assert stored(again, "r") == model["r"]


def test_what_is_sent_ahead_again_gets_its_full_time(client: redis.Redis, database: str) -> None:
    """An object of a try that failed an hour ago must not go just before it is confirmed; a published one stays."""
    publisher, keys = new_publisher(client, database), Keys(database)
    store = publisher.store
    name, other = store.put(BLOCK, b"one"), store.put(BLOCK, b"two")
    store.send_ahead()
    client.expire(keys.object(name), 5)
    client.persist(keys.object(other))
    publisher._stage({name: b"one", other: b"two"})
    assert client.ttl(keys.object(name)) > 3000
    assert client.ttl(keys.object(other)) == -1


def test_a_task_says_that_it_does_not_reach_the_server(client: redis.Redis, database: str) -> None:
    """Also where some other server is found; a task that writes says it too, and does not fail."""
    publisher = new_publisher(client, database)
    generation = str(publisher._lease.generation)

    def problem(url: str, generation: str) -> str | None:
        (batch,) = ReachTask(url, database, generation)(iter(()))
        answer: str | None = batch.column(0)[0].as_py()
        return answer

    assert problem(_url(client), generation) is None
    assert "another server" in (problem(_url(client), "99") or "")
    assert "cannot be reached" in (problem("unix:///nowhere/at/all", generation) or "")
    part = Part(1, False, None, ())
    none = np.zeros(1, np.bool_)
    table = to_arrow(
        np.ones((1, 1), np.int64),
        asserted=np.ones(1, np.int64),
        derived=none,
        hidden=none,
        height=np.zeros(1, np.int64),
    )
    (told,) = BlockTask("unix:///nowhere/at/all", database, part)(iter(rows_of(table, 10)))
    assert "cannot be reached" in told.column("away")[0].as_py()


def test_a_writer_without_rows_tells_of_none() -> None:
    (told,) = BlockWriter(Part(2, True, None, ()), lambda data: "b", Digester(None)).written(iter(()))  # type: ignore[arg-type]  # not read
    assert told.column("blocks")[0].as_py() is None
    assert told.column("digest")[0].as_py() == "0"
