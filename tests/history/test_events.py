"""The history of tuples is what a replay of the epochs shows, and blame is where the present stretch began."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import redis

from engine.data.transaction import Transaction
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.retention import Retention
from service.history import asserted_since, events, since
from service.sources import sources_of, sources_of_tuples
from tests.history.stand import Stand, State, state_of
from tests.history.test_rollback import transactions

KEPT = 10
ABSENT = 0, False


def replayed(states: dict[int, State], epoch: int, relation: str) -> dict[Any, tuple[int, int, bool]]:
    """What an epoch did to each tuple: +1, -1 or 0, and its weight and whether it is derived afterwards."""
    old, new = (states[e]["facts"].get(relation, {}) for e in (epoch - 1, epoch))
    if states[epoch - 1]["types"].get(relation) != states[epoch]["types"].get(relation):
        # Tuples of other types are other tuples, also where Python takes 1 for 1.0.
        return {("gone", *row): (-1, *ABSENT) for row in old} | {
            row: (1, *state) for row, state in new.items()
        }
    return {
        row: ((row in new) - (row in old), *new.get(row, ABSENT))
        for row in old.keys() | new.keys()
        if old.get(row, ABSENT) != new.get(row, ABSENT)
    }


@pytest.mark.parametrize("seed", range(25))
def test_history_is_the_difference_of_the_epochs(
    seed: int, server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    rng = random.Random(seed)
    stand = Stand(client, database, Retention(epochs=KEPT, seconds=0))
    given = transactions(rng, seed)
    states: dict[int, State] = {}

    async def test() -> None:
        reader = DatabaseClient.connect(server.url, database)
        states[0] = await state_of(reader)
        while stand.reasoner.epoch < 16:
            if rng.random() < 0.1:
                stand.step(Transaction.parse(rollback=max(0, stand.reasoner.epoch - 3)))
            else:
                stand.step(next(given))
            states[stand.reasoner.epoch] = await state_of(reader)
        newest = await reader.snapshot()
        oldest = newest.epoch - KEPT + 1
        assert newest.oldest == oldest
        for relation, schema in newest.schemas.items():
            rows = {row for state in states.values() for row in state["facts"].get(relation, {})}
            rows = {row for row in rows if len(row) == schema.arity}
            some = rng.sample(sorted(rows, key=str), min(3, len(rows)))
            for bound in ({}, *(dict(enumerate(row)) for row in some)):
                found: dict[int, dict[Any, Any]] = {}
                async for at, number, values, present, *after in events(reader, newest, relation, bound):
                    of_epoch = found.setdefault(at.epoch, {})
                    if number >= 0:
                        same = _same_types(states, at.epoch - 1, at.epoch, relation)
                        of_epoch[values if same or present > 0 else ("gone", *values)] = present, *after
                assert list(found) == list(range(newest.epoch, oldest - 1, -1))
                for epoch, changed in found.items():
                    expected = replayed(states, epoch, relation)
                    if bound:
                        wanted = tuple(bound.values())
                        expected = {r: c for r, c in expected.items() if r[-len(wanted) :] == wanted}
                        if not _same_types(states, epoch, newest.epoch, relation):
                            continue
                    assert changed == expected, (relation, epoch, bound)
            now = states[newest.epoch]["facts"].get(relation, {})
            began, _ = await since(reader, newest, relation, {}, now)
            for row in now:
                stretch = newest.epoch
                while (
                    stretch >= oldest
                    and row in states[stretch - 1]["facts"].get(relation, {})
                    and _same_types(states, stretch - 1, newest.epoch, relation)
                ):
                    stretch -= 1
                assert (began[row].epoch if row in began else None) == (
                    stretch if stretch >= oldest else None
                )
            facts = [(relation, row) for row, (weight, _) in now.items() if weight]
            asserted, _ = await asserted_since(reader, newest, facts)
            for fact in facts:
                stretch = newest.epoch
                while (
                    stretch >= oldest
                    and states[stretch - 1]["facts"].get(relation, {}).get(fact[1], (0, False))[0]
                    and _same_types(states, stretch - 1, newest.epoch, relation)
                ):
                    stretch -= 1
                assert (asserted[fact].epoch if fact in asserted else None) == (
                    stretch if stretch >= oldest else None
                )
        await reader.close()

    asyncio.run(test())


def _same_types(states: dict[int, State], one: int, other: int, relation: str) -> bool:
    return bool(states[one]["types"].get(relation) == states[other]["types"].get(relation))


def test_who_asserts_what(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    stand = Stand(client, database)
    edge = [{"relation": "edge", "tuples": [["a", "b"], ["b", "c"]]}]
    stand.step(Transaction.parse(edge, source="hr"))
    stand.step(Transaction.parse(edge[:1], source="crm", author="ann", message="why"))
    stand.step(Transaction.parse(edge))

    async def test() -> None:
        reader = DatabaseClient.connect(server.url, database)
        snapshot = await reader.snapshot()
        assert sources_of(snapshot) == {"crm": {"edge": 2}, "hr": {"edge": 2}}
        found = await sources_of_tuples(snapshot, "edge", [("a", "b")])
        assert found == {("a", "b"): {"crm": 1, "hr": 1}}
        assert list(snapshot.schemas) == ["edge"]
        assert snapshot.changed == ("edge",)
        assert snapshot.counts("edge").all == 2
        told = await reader.history.transactions()
        assert [(t.id, t.status, t.epoch) for t in told] == [(f"{i}-0", "committed", i) for i in (3, 2, 1)]
        assert (
            told[1].meta.items()
            >= {"author": "ann", "message": "why", "source": "crm", "facts": {"edge": 2}}.items()
        )
        assert [t.id for t in await reader.history.of_epoch(2) or []] == ["2-0"]
        assert await reader.history.of_epoch(9) is None
        assert [t.id for t in await reader.history.transactions("(3-0", "2-0")] == ["2-0"]
        await reader.close()

    asyncio.run(test())


def test_an_outcome_of_an_older_version_is_listed(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    stand = Stand(client, database)
    client.xadd(stand.publisher._keys.results, {"status": "committed", "body": "{}"}, "1-0")

    async def test() -> None:
        reader = DatabaseClient.connect(server.url, database)
        (told,) = await reader.history.transactions()
        assert (told.id, told.status, told.meta, told.epoch, told.relations) == (
            "1-0",
            "committed",
            {},
            None,
            set(),
        )
        await reader.close()

    asyncio.run(test())
