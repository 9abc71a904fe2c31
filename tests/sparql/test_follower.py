"""The store and the epochs: whatever happens to either, an answer is about the relation at the epoch that it says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    InternalError,
    SparqlSyntaxError,
    SparqlUnavailableError,
    SparqlUnsupportedError,
)
from engine.storage.retention import Retention
from service.sparql.follower import Follower, Limits
from service.sparql.terms import Row, stored_row
from tests.feeds.conftest import MakeWorld
from tests.feeds.world import World
from tests.sparql.conftest import JSON, XSD, term

MIB = 1024**2
LIMITS = Limits(1024 * MIB, 512 * MIB, 600.0, 120.0)
ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"


@pytest.fixture
def follow(world: World) -> Iterator[Callable[..., Follower]]:
    made: list[Follower] = []

    def start(limits: Limits = LIMITS) -> Follower:
        made.append(Follower(world.client, limits))
        return made[-1]

    yield start
    for one in made:
        world.run(one.close())


def row(number: int, object_: str = "<urn:o>") -> list[str]:
    return [f"<urn:{number}>", "<urn:p>", object_]


def write(world: World, *rows: list[str], weight: int = 1) -> int:
    return world.edges(*rows, weight=weight, relation="triple")


async def ask(world: World, follower: Follower, query: str = ALL, **more: Any) -> tuple[str, bytes]:
    asked = {
        "query": query,
        "solutions": JSON,
        "boolean": JSON,
        "graph": "text/turtle",
        "rows": None,
        "bytes": MIB,
    }
    snapshot = await world.client.snapshot()
    token, header, data = await follower.ask(b"Q", {**asked, **more}, snapshot, 20.0)
    assert header == {"type": JSON}
    return token, data


def rows_of(data: bytes) -> list[tuple[str, ...]]:
    found = orjson.loads(data)["results"]["bindings"]
    return sorted(tuple(term(one[name]) for name in "spo") for one in found)


def seen(world: World, follower: Follower) -> list[tuple[str, ...]]:
    token, data = world.run(ask(world, follower))
    assert token == world.run(world.client.snapshot()).token
    return rows_of(data)


def there(world: World) -> list[tuple[str, ...]]:
    """What should be seen, from the relation."""

    async def read() -> list[Any]:
        snapshot = await world.client.snapshot()
        return (await snapshot.facts("triple", limit=100_000)).tuples if "triple" in snapshot.schemas else []

    return sorted({found for one in world.run(read()) if (found := stored_row(one)) is not None})


OBJECTS = [
    "<urn:o>",
    '"a"',
    '"a"@en',
    "_:b",
    f'"1"^^<{XSD}integer>',
    f'"01"^^<{XSD}integer>',
    f'"1"^^<{XSD}int>',
    "no",
]
RULE = 'triple(x, "<urn:t>", z) :- triple(x, "<urn:p>", y), triple(y, "<urn:p>", z).'


@pytest.mark.parametrize("seed", range(3))
def test_random_histories(seed: int, world: World, follow: Callable[..., Follower]) -> None:
    rng = random.Random(seed)
    follower = follow()
    held: list[list[str]] = []
    world.apply(rules=[{"rule": RULE, "weight": 1}])
    for _ in range(25):
        for _ in range(rng.choice([1, 1, 3])):
            new = [
                row(rng.randint(0, 5), rng.choice([*OBJECTS, "<urn:1>", "<urn:2>"]))
                for _ in range(rng.randint(1, 4))
            ]
            held += new
            write(world, *new)
            gone = [held.pop(rng.randrange(len(held))) for _ in range(min(len(held), rng.randint(0, 4)))]
            if gone:
                write(world, *gone, weight=-1)
        assert seen(world, follower) == there(world)
    assert follower.stats.filled == 1
    assert follower.stats.triples == len(there(world))
    # A new one is the same.
    other = follow()
    assert seen(world, other) == there(world)
    assert other.stats.skipped == follower.stats.skipped


def test_an_empty_database_is_an_empty_graph(world: World, follow: Callable[..., Follower]) -> None:
    world.apply(facts=[{"relation": "other", "tuples": [[1]]}])
    follower = follow()
    assert seen(world, follower) == []
    write(world, row(1))
    assert len(seen(world, follower)) == 1


def test_epochs_that_are_no_longer_kept_fill_it_anew(
    make_world: MakeWorld, follow: Callable[..., Follower], world: World
) -> None:
    write(world, row(0))
    follower = follow()
    assert len(seen(world, follower)) == 1
    # While this loop does not run, the store does not follow.
    world.publisher._retention = Retention(epochs=2, seconds=0)
    for i in range(1, 20):
        write(world, row(i))
    assert len(seen(world, follower)) == 20
    assert follower.stats.filled == 2


def test_many_changes_fill_it_anew(
    world: World, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.sparql.follower._FEW", 10)
    follower = follow()
    write(world, row(0))
    assert len(seen(world, follower)) == 1
    for i in range(5):
        write(world, row(100 + i))
        write(world, row(100 + i), weight=-1)
        assert len(seen(world, follower)) == 1
    assert follower.stats.filled == 1
    write(world, row(200))
    assert len(seen(world, follower)) == 2
    assert follower.stats.filled == 2


def test_it_follows_by_itself_and_goes_when_nobody_asks(
    world: World, follow: Callable[..., Follower]
) -> None:
    follower = follow(Limits(1024 * MIB, 512 * MIB, 1.0, 120.0))
    write(world, row(0))
    assert len(seen(world, follower)) == 1
    newest = write(world, row(1))

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    world.run(asyncio.wait_for(until(lambda: follower.stats.epoch == newest), 20))
    world.run(asyncio.wait_for(until(lambda: follower.stats.state == "absent"), 20))
    assert follower.stats.bytes == 0
    assert len(seen(world, follower)) == 2
    assert follower.stats.filled == 2


def test_a_process_that_dies_is_made_anew(world: World, follow: Callable[..., Follower]) -> None:
    follower = follow()
    write(world, row(0))
    assert len(seen(world, follower)) == 1
    process = follower._process
    assert process is not None
    process._process.kill()
    process._process.wait()
    write(world, row(1))
    assert len(seen(world, follower)) == 2


def test_a_database_that_was_set_back(
    world: World, make_world: MakeWorld, follow: Callable[..., Follower], client: redis.Redis
) -> None:
    follower = follow()
    for i in range(5):
        write(world, row(i))
    assert len(seen(world, follower)) == 5
    for key in client.scan_iter(f"zedlog:{{{world.database}}}:*"):
        client.delete(key)
    other = make_world()
    write(other, row(9))
    assert world.run(world.client.snapshot()).epoch < follower.stats.epoch
    assert seen(world, follower) == [("<urn:9>", "<urn:p>", "<urn:o>")]


def test_relations_of_other_columns(world: World, follow: Callable[..., Follower]) -> None:
    follower = follow()
    write(world, row(1))
    assert len(seen(world, follower)) == 1
    write(world, row(1), weight=-1)
    world.apply(facts=[{"relation": "triple", "tuples": [["a", "b", 3]]}])
    with pytest.raises(SparqlUnsupportedError, match="three columns of symbols"):
        seen(world, follower)
    world.apply(facts=[{"relation": "triple", "tuples": [["a", "b", 3]], "weight": -1}])
    write(world, row(2))
    assert seen(world, follower) == [("<urn:2>", "<urn:p>", "<urn:o>")]


def test_many_at_once_each_see_one_epoch(world: World, follow: Callable[..., Follower]) -> None:
    follower = follow()
    write(world, row(0))

    async def reader() -> None:
        for _ in range(4):
            token, data = await ask(world, follower)
            # Each epoch has one triple more.
            assert len(rows_of(data)) == int(token.partition("-")[0]), token

    async def writer() -> None:
        for i in range(1, 12):
            write(world, row(i))
            await asyncio.sleep(0.01)

    async def all_of_them() -> None:
        await asyncio.gather(writer(), *(reader() for _ in range(4)))

    world.run(all_of_them())
    assert follower.stats.filled == 1


def test_limits(world: World, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch) -> None:
    write(world, *map(row, range(100)))
    with pytest.raises(SparqlUnsupportedError, match="sparql_bytes is 0"):
        seen(world, follow(Limits(0, MIB, 1.0, 1.0)))
    with pytest.raises(BudgetExceededError, match="100 triples") as found:
        seen(world, follow(Limits(50_000, MIB, 1.0, 1.0)))
    assert found.value.detail["budget"] == "bytes"
    # What it really takes counts, too: a process takes more than a megabyte.
    small = follow(Limits(1_000_000, MIB, 1.0, 120.0))
    with pytest.raises(BudgetExceededError, match="100 triples"):
        seen(world, small)
    assert (small.stats.state, small.stats.bytes) == ("absent", 0)
    follower = follow()
    with pytest.raises(BudgetExceededError, match="the 99 rows") as found:
        world.run(ask(world, follower, rows=99))
    assert len(rows_of(world.run(ask(world, follower, rows=100))[1])) == 100
    with pytest.raises(BudgetExceededError, match="the 2,000 bytes"):
        world.run(ask(world, follower, bytes=2_000))
    with pytest.raises(SparqlSyntaxError):
        world.run(ask(world, follower, "SELECT"))
    # No other service is asked, whatever the query is checked for.
    with pytest.raises(EvaluationError):
        world.run(ask(world, follower, "SELECT ?s ?p ?o { SERVICE <http://127.0.0.1:1024/> { ?s ?p ?o } }"))
    with pytest.raises(InternalError):
        world.run(ask(world, follower, solutions="no/format"))


def test_one_who_waits_is_told_while_it_is_being_filled(
    world: World, follow: Callable[..., Follower]
) -> None:
    write(world, row(0))
    follower = follow(Limits(1024 * MIB, 512 * MIB, 600.0, 0.0))
    with pytest.raises(SparqlUnavailableError, match="is being filled") as found:
        world.run(ask(world, follower))
    assert found.value.detail["state"] in ("absent", "filling")

    async def later() -> None:
        while follower.stats.state != "ready":
            await asyncio.sleep(0.01)

    world.run(asyncio.wait_for(later(), 20))
    assert len(seen(world, follower)) == 1


def test_a_query_whose_client_has_gone_is_ended(world: World, follow: Callable[..., Follower]) -> None:
    write(world, *map(row, range(1000)))
    follower = follow()
    assert len(seen(world, follower)) == 1000
    endless = "SELECT (COUNT(*) AS ?n) { ?a ?p ?x . ?b ?p ?x . ?c ?p ?x FILTER(STR(?a) < STR(?c)) }"

    async def cut_off() -> None:
        task = asyncio.ensure_future(ask(world, follower, endless))
        await asyncio.sleep(0.3)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        process = follower._process
        assert process is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not list the children of a process")
        while children.read_text().split():
            await asyncio.sleep(0.05)

    world.run(asyncio.wait_for(cut_off(), 15))
    assert len(seen(world, follower)) == 1000


def test_variants_are_rows(world: World) -> None:
    """The helper of these tests sees a triple as the store does."""
    one: Row = ("<urn:a>", "<urn:p>", f'"01"^^<{XSD}int>')
    assert stored_row(one) == ("<urn:a>", "<urn:p>", f'"1"^^<{XSD}integer>')
