"""A rollback makes everything what it was after an epoch that is kept: as a new epoch, whatever happened since."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import cast

import pytest
import redis

from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.errors import EpochNotRetainedError
from engine.server.loop import restore_reasoner
from engine.server.recovery import read_state
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.manifest import Manifest
from engine.storage.retention import Retention
from tests.history.model import SOURCES, random_body, transaction
from tests.history.stand import Stand, State, state_of
from tests.process.running import Database, EngineThread, facts
from tests.types.histories import History, as_transaction
from zedlog import Reasoner

KEPT = 8


@pytest.fixture
def few_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symbols that nothing uses are forgotten all the time; a string that comes again has another code."""
    monkeypatch.setattr("engine.database.writer._FEW_SYMBOLS", 2)


def transactions(rng: random.Random, seed: int) -> Iterator[Transaction]:
    """Facts with and without sources, rules, declarations, other types."""
    if rng.random() < 0.5:
        while True:
            yield transaction(random_body(rng))
    history = History(seed)
    while True:
        for change in history.transactions(1):
            history.state = history.state.after(change) or history.state
            made = as_transaction(change)
            if made.facts and rng.random() < 0.3:
                made = made.told(source=rng.choice(SOURCES))
            yield made


def changed(before: State, after: State) -> dict[str, tuple[int, int]]:
    """How many tuples of each relation come and go."""
    counts = {}
    for name in before["facts"].keys() | after["facts"].keys():
        old, new = before["facts"].get(name, {}), after["facts"].get(name, {})
        if before["types"].get(name) != after["types"].get(name):
            pair = len(new), len(old)
        else:
            pair = len(new.keys() - old.keys()), len(old.keys() - new.keys())
        if pair != (0, 0) and "(" not in name:
            counts[name] = pair
    return counts


@pytest.mark.usefixtures("few_symbols")
@pytest.mark.parametrize("seed", range(40))
def test_a_rollback_gives_exactly_the_state_of_the_epoch(
    seed: int, server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    rng = random.Random(seed)
    stand = Stand(client, database, Retention(epochs=KEPT, seconds=0))
    states: dict[int, State] = {}

    async def test() -> None:
        reader = DatabaseClient.connect(server.url, database)
        states[0] = await state_of(reader)
        given = transactions(rng, seed)
        done = 0
        while stand.reasoner.epoch < 24:
            newest = stand.reasoner.epoch
            if done < newest and newest > 2 and rng.random() < 0.35:
                done = newest
                target = rng.randint(max(0, newest - KEPT + 1), newest)
                back = Transaction.parse(rollback=target)
                expected = changed(states[newest], states[target])
                dry = stand.step(Transaction.parse(rollback=target, dry_run=True))
                assert isinstance(dry, EpochResult), dry
                assert await state_of(reader) == states[newest]
                result = stand.step(back)
                assert isinstance(result, EpochResult), result
                assert result.counts == dry.counts == expected
                states[result.epoch] = await state_of(reader)
                assert states[result.epoch] == states[target]
                if rng.random() < 0.5:
                    # And the rollback is rolled back.
                    again = stand.step(Transaction.parse(rollback=newest))
                    assert isinstance(again, EpochResult), again
                    states[again.epoch] = await state_of(reader)
                    assert states[again.epoch] == states[newest]
                stand.reasoner.check_invariants()
                fresh = Reasoner.restore(read_state(stand.publisher))
                assert fresh.state() == stand.reasoner.state()
                fresh.check_invariants()
            else:
                stand.step(next(given))
                states[stand.reasoner.epoch] = await state_of(reader)
            if rng.random() < 0.1:
                stand.restart()
        await reader.close()

    asyncio.run(test())


def test_an_epoch_that_is_not_kept(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    stand = Stand(client, database, Retention(epochs=2, seconds=0))
    for i in range(5):
        stand.step(Transaction.parse([{"relation": "e", "tuples": [[i]]}]))
    for epoch in (0, 3, 6, 2**63 - 1):
        refused = stand.step(Transaction.parse(rollback=epoch))
        assert isinstance(refused, EpochNotRetainedError)
        assert refused.detail == {"epoch": epoch, "oldest": 4, "newest": 5}
    assert isinstance(stand.step(Transaction.parse(rollback=4)), EpochResult)
    assert sorted(stand.reasoner.facts("e")) == [(0,), (1,), (2,), (3,)]


@pytest.mark.usefixtures("few_symbols")
def test_values_of_every_type_come_back(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    stand = Stand(client, database)
    rows = [[1.5, True, "ä\n", -(2**63)], [-0.0, False, "", 2**63 - 1], [5e-324, True, "x" * 300, 0]]
    of_all = [{"relation": "all", "tuples": rows}, {"relation": "go", "tuples": [[]], "weight": 3}]
    stand.step(Transaction.parse(of_all, source="s"))
    before = {name: sorted(stand.reasoner.weighted(name)) for name in ("all", "go")}
    stand.step(Transaction.parse([], source="s", replaces="source"))
    for i in range(8):
        stand.step(Transaction.parse([{"relation": "all", "tuples": [[f"other {i} {j}"] for j in range(9)]}]))
        stand.step(
            Transaction.parse(
                [{"relation": "all", "tuples": [[f"other {i} {j}"] for j in range(9)], "weight": -1}]
            )
        )
    stand.step(Transaction.parse([{"relation": "all", "tuples": [["one column"]]}]))
    result = stand.step(Transaction.parse(rollback=1))
    assert isinstance(result, EpochResult), result
    assert {name: sorted(stand.reasoner.weighted(name)) for name in before} == before
    assert stand.reasoner.asserted_by("s", "go") == {(): 3}
    assert {type(value) for row in stand.reasoner.facts("all") for value in row} == {float, bool, str, int}


def test_a_damaged_epoch_refuses_the_rollback_and_nothing_else(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    with Database(server.url, database) as db, EngineThread(server.url, database, factory=restore_reasoner):
        db.apply(facts("e", (0,), source="hr"))
        db.apply(
            Transaction.parse(facts=[{"relation": "e", "tuples": [[1]]}], rules=[{"rule": "f(x) :- e(x)."}])
        )
        db.apply(facts("e", (2,), source="hr"))
        manifest = Manifest.decode(cast(bytes, client.get(Keys(database).manifest(1))))
        # Later epochs have another program.
        client.delete(Keys(database).object(manifest.program_id))
        refused = db.apply(Transaction.parse(rollback=1))
        assert (refused.status, refused.body["code"]) == ("refused", "corrupt_snapshot")
        assert db.apply(Transaction.parse(rollback=2)).status == "committed"
        assert db.facts("e") == {(0,): 1, (1,): 1}
        assert db.apply(Transaction.parse(rollback=99)).body["code"] == "epoch_not_retained"
        # Those that wait together are applied one after the other.
        many = [
            facts("e", (7,)),
            Transaction.parse(rollback=3),
            facts("e", (8,)),
            Transaction.parse(rollback=3),
        ]
        receipts = [db.run(db.client.append(one)) for one in many]
        outcomes = [db.run(db.client.wait_outcome(r.transaction_id, 20)) for r in receipts]
        assert [o.status for o in outcomes if o] == ["committed"] * 4
        assert db.facts("e") == {(0,): 1, (1,): 1, (2,): 1}


def test_only_what_differs_is_read(
    client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch, server: EmbeddedServer
) -> None:
    stand = Stand(client, database)
    stand.step(Transaction.parse([{"relation": name, "tuples": [[i] for i in range(50)]} for name in "abc"]))
    stand.step(Transaction.parse([{"relation": "b", "tuples": [[50]]}]))
    read: list[int] = []

    def noted(relation: object, store: object) -> object:
        from engine.storage.compaction import read_facts

        rows = read_facts(relation, store)  # type: ignore[arg-type]
        read.append(len(rows))
        return rows

    monkeypatch.setattr("engine.server.rollback.read_facts", noted)
    result = stand.step(Transaction.parse(rollback=1))
    assert isinstance(result, EpochResult)
    assert result.changes == {"b": [((50,), -1)]}
    assert read == [51, 50]
    assert not isinstance(stand.step(Transaction.parse(rollback=3)), EpochNotRetainedError)
    assert read == [51, 50]
