"""Large changes stay on the executors, which publish them: the same as if they came through this process.

Everything is large here (`large`: no row may stay in the driver), and compared with the resident placement.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

from engine.data.values import decode
from engine.database.epoch import EpochResult
from engine.errors import SparkStateLostError, StorageUnavailableError
from engine.language.schema import Schema
from engine.maintenance.change import RelationChange
from engine.spark.placement import SparkPlacement
from engine.spark.stored import StoredChange
from engine.spark.tables import Tables
from engine.storage import by_executors, compaction
from engine.storage.blocks import decode_block
from engine.storage.compaction import read_parts
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from tests.audit.published import Published
from tests.embedded import client, database, server
from tests.spark.compare import apply_both, assert_same_state
from tests.spark.conftest import classic, patient
from zedlog import Reasoner

__all__ = ["client", "database", "server"]
pytestmark = patient

draw = random.Random(5)
EDGES = [(f"n{draw.randrange(9)}", f"n{draw.randrange(9)}") for _ in range(20)]
EDGES = sorted(set(EDGES))
RULES = [
    ("tc(x, y) :- edge(x, y).", 1),
    ("tc(x, z) :- tc(x, y), edge(y, z).", 1),
    ("far(x, y) :- edge(x, _), edge(_, y), !tc(x, y).", 1),
    ("best(x, min(v)) :- offer(x, v).", 1),
]
FACTS: dict[str, Any] = {
    "edge": [(edge, 1 + i % 3) for i, edge in enumerate(EDGES)],
    # Some facts contribute to a minimum only, and are hidden; some are derived as well.
    "best": [((0, 7), 1), ((2, 50), 1), ((1, 3), 2)],
    "offer": [((0, 3), 1), ((1, 3), 1), ((2, 51), 1), ((3, 1), 1)],
    "tc": [((*EDGES[0],), 4), (("n0", "elsewhere"), 1)],
}
STEPS: list[dict[str, Any]] = [
    {"rules": RULES, "facts": FACTS},
    # Little, so that it becomes a run above the base; with symbols that are new.
    {"facts": {"edge": [(("n8", "new"), 1)], "best": [((1, 3), -2)]}},
    # Much, so that the base is written again; and rules go, so that one relation is emptied.
    {
        "rules": [(RULES[1][0], -1), (RULES[2][0], -1)],
        "facts": {
            "edge": [(edge, -1 - i % 3) for i, edge in enumerate(EDGES) if i % 2],
            "offer": [((2, 51), -1), ((0, 3), -1)],
        },
    },
]


def rows_of(p: Published, relation: str) -> dict[Any, Any]:
    """What is stored of a relation, by its values."""
    entry = p.publisher.manifest.relations.get(relation)
    schema = p.reasoner.database.program.schemas[relation]
    found = {}
    for part in read_parts(p.publisher.store.relation(entry.id), p.publisher.store) if entry else ():
        values = zip(
            *(getattr(part, name).tolist() for name in ("asserted", "derived", "hidden", "heights")),
            strict=True,
        )
        found.update(zip(_values(p, schema, part.codes), values, strict=True))
    return found


def change_of(p: Published, result: EpochResult, relation: str) -> dict[Any, Any]:
    """What is stored of an epoch's change of a relation, which may be gone."""
    segment, schema = p.publisher.manifest.changes[relation], result.record.changed_schemas[relation]
    found = {}
    for data in p.publisher.store.get(p.publisher.store.index(segment).ids):
        rows, present = decode_block(data)
        assert present is not None
        told = zip(rows.asserted.tolist(), rows.derived.tolist(), present.tolist(), strict=True)
        found.update(zip(_values(p, schema, rows.codes), told, strict=True))
    return found


def _values(p: Published, schema: Schema, codes: Any) -> list[Any]:
    return decode(codes, [column.type for column in schema.columns], p.reasoner.database.symbols)


def test_epochs_are_published_alike_by_executors_through_the_driver_and_by_the_resident_placement(
    client: redis.Redis,
    server: EmbeddedServer,
    database: str,
    on_spark: Callable[..., Reasoner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal rows, changes, counts and digests after every epoch, with symbols, hidden facts, negation and minima."""
    for name, value in {"BLOCK_ROWS": 16, "BASE_FLOOR": 8}.items():
        monkeypatch.setattr(compaction, name, value)
    ways = {
        "executors": Published(
            client, server.url, f"{database}-a", on_spark("large", 3), filled=False, executors=True
        ),
        "driver": Published(client, server.url, f"{database}-b", on_spark("large", 3), filled=False),
        "resident": Published(client, server.url, f"{database}-c", filled=False),
    }
    # Other symbols come first, so that codes differ.
    ways["resident"].apply(facts={"other": [(("q",), 1)]})
    published = []
    whole = by_executors.ByExecutors._write

    def counting(self: Any, frame: Any, more: Any, *rest: Any) -> Any:
        written = whole(self, frame, more, *rest)
        published.append((self.why, "present" in more))
        return written

    monkeypatch.setattr(by_executors.ByExecutors, "_write", counting)
    for step in STEPS:
        results = {name: p.apply(**step) for name, p in ways.items()}
        expected = ways["resident"]
        stored = [type(change) for change in results["executors"].record.relations.values()]
        assert stored
        assert set(stored) == {StoredChange}
        relations = set(expected.publisher.manifest.relations) - {"other"}
        for name in ("executors", "driver"):
            p = ways[name]
            assert set(p.publisher.manifest.relations) == relations, name
            for relation in relations:
                ours, theirs = (one.publisher.manifest.relations[relation] for one in (p, expected))
                assert (ours.counts, ours.digest) == (theirs.counts, theirs.digest), (name, relation)
                assert rows_of(p, relation) == rows_of(expected, relation), (name, relation)
            changes = p.publisher.manifest.changes
            assert set(changes) == set(expected.publisher.manifest.changes), name
            for relation in changes:
                told = (change_of(ways[way], results[way], relation) for way in (name, "resident"))
                assert next(told) == next(told), (name, relation)
            assert p.publisher.store.pending == {}
            assert results[name].counts == results["resident"].counts
    reasons = {why for why, _ in published}
    assert reasons == {"", "the address of Redis is not known"}
    bases = [why for why, is_change in published if not is_change]
    assert set(bases) == reasons, "both ways have written bases anew"
    # Another process reads it: nothing was left to expire.
    named = [Keys(f"{database}-a").object(name) for name in ways["executors"].publisher._references._counts]
    assert {client.ttl(name) for name in named} == {-1}


def test_a_server_that_is_away_for_the_executors_is_tried_again(
    client: redis.Redis,
    server: EmbeddedServer,
    database: str,
    on_spark: Callable[..., Reasoner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publication fails as any other does, and is done once when it is sent again."""
    p = Published(client, server.url, database, on_spark("large"), filled=False, executors=True)
    p.apply(facts={"edge": [(("a", "b"), 1)]})
    result = p.reasoner.apply(facts={"edge": [(("b", "c"), 1)]})
    spark = p.publisher._on_spark
    assert isinstance(spark, by_executors.ByExecutors)
    url, spark._url = spark._url, "unix:///nowhere/at/all"
    with pytest.raises(StorageUnavailableError, match="executors could not write to Redis"):
        p.publisher.publish(result.record, (), "2-1")
    spark._url = url
    p.publisher.publish(result.record, (), "2-1")
    assert p.publisher.head.epoch == 2
    assert set(rows_of(p, "edge")) == {("a", "b"), ("b", "c")}


def test_executors_that_do_not_reach_redis_are_told_once(
    client: redis.Redis,
    database: str,
    on_spark: Callable[..., Reasoner],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Then the changes come through this process, and the summary of the epoch says why."""
    p = Published(client, "unix:///nowhere/at/all", database, on_spark("large"), filled=False, executors=True)
    p.apply(facts={"edge": [(("a", "b"), 1)]})
    p.apply(facts={"edge": [(("b", "c"), 1)]})
    assert set(rows_of(p, "edge")) == {("a", "b"), ("b", "c")}
    told = [record.message for record in caplog.records if "published through this process" in record.message]
    assert len(told) == 1
    ((_, fields),) = client.xrevrange(f"zedlog:{{{database}}}:epochs", count=1)
    assert b"executors do not reach Redis" in fields[b"summary"]


def test_what_changed_is_told_alike(on_spark: Callable[..., Reasoner]) -> None:
    """Rows and numbers of every change, and the state, in each step; the changes are read after later epochs too."""
    ours, theirs = on_spark("large"), Reasoner("resident")
    first = None
    for step in STEPS:
        apply_both(ours, theirs, step)
        assert_same_state(ours, theirs)
        if first is None:
            first = ours.apply(facts={"offer": [((7, 7), 1), ((8, 8), 1)]})
            theirs.apply(facts={"offer": [((7, 7), 1), ((8, 8), 1)]})
    assert first is not None
    assert sorted(first.changes["offer"]) == [((7, 7), 1), ((8, 8), 1)]


@classic
def test_tables_of_changes_are_given_back(on_spark: Callable[..., Reasoner]) -> None:
    """A change that somebody holds keeps its tuples; one that nobody has any more is given back in the next epoch, and
    all go when the placement is closed, after which a change says that it cannot be read."""
    reasoner = on_spark("large")
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement)
    tables: Tables = placement._tables

    def stored() -> int:
        gc.collect()
        tables.drain()
        return int(tables.spark._jsc.sc().getPersistentRDDs().size())

    before = stored()
    kept = reasoner.apply(facts={"r": [((i, i), 1) for i in range(30)]}, rules=[("s(x) :- r(x, _).", 1)])
    held = stored()
    for i in range(12):
        reasoner.apply(facts={"r": [((i, i), -1)]})
    assert stored() - held <= 12, "layers that are not compacted, and nothing for the changes"
    assert len(kept.changes["r"]) == 30
    change = kept.record.relations["s"]
    assert isinstance(change, StoredChange)
    reasoner.close()
    assert stored() == before
    with pytest.raises(SparkStateLostError, match="was closed"):
        change.here()


def test_small_changes_come_to_the_driver(on_spark: Callable[..., Reasoner]) -> None:
    reasoner = on_spark("small")
    result = reasoner.apply(facts={"r": [((1, 2), 3)]}, rules=[("s(x) :- r(x, _).", 1)])
    assert {type(change) for change in result.record.relations.values()} == {RelationChange}
    assert result.record.relations["r"].heaviest == 3
