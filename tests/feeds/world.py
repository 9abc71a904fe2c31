"""A database whose epochs a test commits one by one, and the feeds of a service over it, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import redis

from engine.data.transaction import Transaction
from engine.database.query import prepare
from engine.errors import ZedlogError
from engine.language.parser import parse_query
from engine.storage.client import DatabaseClient
from engine.storage.retention import Retention
from engine.storage.snapshot import Snapshot
from service.evaluation import Deadline, Evaluator
from service.feeds.events import Event
from service.feeds.feeds import Feeds, Options
from service.feeds.request import About
from service.feeds.selections import RelationFilter
from service.metrics import Metrics
from service.settings import Settings
from tests.storage.writing import new_publisher
from zedlog import Reasoner

T = TypeVar("T")
Rows = set[tuple[tuple[str, Any], ...]]
ALL = Retention(epochs=100_000)


class World:
    def __init__(
        self,
        client: redis.Redis,
        url: str,
        database: str,
        retention: Retention = ALL,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self.redis, self.database, self.retention = client, database, retention
        self.publisher = new_publisher(client, database, retention)
        self.reasoner = Reasoner()
        self.client = DatabaseClient.connect(url, database)
        self.settings = Settings(**(settings or {}))
        self.evaluator = Evaluator(self.settings)
        self.feeds = Feeds(self.settings, self.client, self.evaluator, Metrics())
        self._sent = 0

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.feeds.close())
        self.run(self.client.close())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def commit(self, transaction: Transaction) -> int | None:
        """One epoch; None if the transaction is refused."""
        done = self.reasoner.commit([transaction])
        if done.record is None:
            return None
        self._sent += 1
        self.publisher.publish(done.record, (), f"{self._sent}-0")
        return done.record.epoch

    def apply(self, **parts: Any) -> int:
        epoch = self.commit(Transaction.parse(**parts))
        assert epoch is not None
        return epoch

    def edges(self, *pairs: Sequence[Any], weight: int = 1, relation: str = "edge") -> int:
        return self.apply(facts=[{"relation": relation, "tuples": list(map(list, pairs)), "weight": weight}])

    def listen(self, wanted: About, after: int | None, **options: Any) -> list[Event]:
        """All events of a feed that ends with the newest epoch."""
        return self.run(collect(self.feeds, wanted, after, **options))


async def collect(feeds: Feeds, wanted: About, after: int | None, **options: Any) -> list[Event]:
    listener = await feeds.listen(
        wanted, after, Options(**{"state": False, "follow": False, "heartbeat": 15.0, **options})
    )
    try:
        return [event async for event in listener.events()]
    finally:
        await listener.close()


def typed(rows: Sequence[Sequence[Any]]) -> Rows:
    """Rows in which 1, 1.0 and true are different."""
    found = {tuple((type(value).__name__, value) for value in row) for row in rows}
    assert len(found) == len(rows), "a tuple is there twice"
    return found


async def state_at(world: World, wanted: About, epoch: int) -> dict[str, Rows]:
    """What a reader of that epoch gets, name by name; raises what it is refused with."""
    snapshot = await world.client.snapshot(epoch)
    if wanted.query is not None:
        query = prepare(parse_query(wanted.query.text), snapshot.schemas)
        rows, more = await world.evaluator.page(
            snapshot, query, f"{wanted.query.text}", 1_000_000, 0, Deadline(30)
        )
        assert more is None
        return {"answer": typed(rows)}
    return {relation: await _tuples(snapshot, wanted, relation) for relation in wanted.relations}


async def _tuples(snapshot: Snapshot, wanted: About, relation: str) -> Rows:
    schema = snapshot.schemas.get(relation)
    if schema is None:
        return set()
    bound = RelationFilter(wanted.relations, wanted.where).of(schema).bound
    if any(schema.columns[i].type is None for i in bound):
        return set()
    return typed((await snapshot.facts(relation, bound, limit=1_000_000)).tuples)


class Replay:
    """A listener's copy: it takes events, and says so if one of them is not possible."""

    def __init__(self, state: dict[str, Rows], epoch: int) -> None:
        self.state = {name: set(rows) for name, rows in state.items()}
        self.epoch = epoch

    def take(self, data: Mapping[str, Any]) -> None:
        """The data of a change."""
        assert data["epoch"] > self.epoch, "an epoch came twice, or not in order"
        self.epoch = data["epoch"]
        for name, change in data["changes"].items():
            held = self.state.setdefault(name, set())
            inserted, deleted = typed(change["inserted"]), typed(change["deleted"])
            assert not inserted & deleted, "a tuple is both in and out"
            assert deleted <= held, "what goes was not there"
            assert not inserted & (held - deleted), "what comes was there already"
            held -= deleted
            held |= inserted


def check(world: World, wanted: About, after: int, events: list[Event], newest: int) -> str:
    """Hold the events of a feed after an epoch against every epoch. How it ended: `end`, or the problem's code, which
    must be right."""
    copy = Replay(world.run(state_at(world, wanted, after)), after)
    changes = {event.data["epoch"]: event for event in events if event.name == "change"}
    last = events[-1]
    until = newest if last.name == "end" else last.data["position"]["epoch"]
    assert sorted(changes) == [event.data["epoch"] for event in events if event.name == "change"]
    for epoch in range(after + 1, until + 1):
        if epoch in changes:
            copy.take(changes[epoch].data)
        expected = world.run(state_at(world, wanted, epoch))
        held = {name: copy.state.get(name, set()) for name in expected}
        assert held == expected, (wanted, epoch)
    if last.name == "end":
        return "end"
    code = str(last.data["code"])
    if code != "meaning_changed":
        try:
            world.run(state_at(world, wanted, until + 1))
        except ZedlogError as error:
            assert error.code == code, (error, last.data)  # noqa: PT017  # also what was expected is an error
        else:
            raise AssertionError(f"the feed ended with {code}, though a reader is not refused: {last.data}")
    return code
