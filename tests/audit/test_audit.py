"""An undamaged database has no differences; each kind of damage is found and named, in memory and in Redis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import numpy as np
import orjson
import pytest
import redis

from engine.audit.audit import audit
from engine.audit.report import LIMIT, NAMED, Report
from engine.resident import table
from engine.resident.layout import NONE
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.manifest import RelationManifest
from engine.storage.retention import Retention
from tests.audit.published import Published


@pytest.fixture
def published(client: redis.Redis, server: EmbeddedServer, database: str) -> Published:
    return Published(client, server.url, database)


def test_an_undamaged_database_has_no_differences(published: Published) -> None:
    report = published.audit()
    assert report.to_json()["differences"] == []
    assert (report.differing, report.uncompared) == (0, [])
    # edge 5, node 8, road 4, cost 5 with the hidden fact, tc, far.
    assert report.relations == 6
    assert report.tuples >= 5 + 8 + 4 + 5
    assert report.supports > report.tuples
    assert report.postings > 0
    assert report.objects >= 8
    assert report.bytes > 500


def test_an_empty_database_has_no_differences(
    client: redis.Redis, server: EmbeddedServer, database: str
) -> None:
    published = Published(client, server.url, database, filled=False)
    assert published.audit().differing == 0


def test_an_audit_changes_nothing(published: Published) -> None:
    before, symbols = published.reasoner.state(), len(published.reasoner.database.symbols)
    published.audit()
    assert published.reasoner.state() == before
    assert len(published.reasoner.database.symbols) == symbols
    published.apply(facts={"edge": [(("f", "a"), 1)]})
    assert published.audit().differing == 0


# ---- memory


def _support(p: Published) -> None:
    """One more derivation of tc("a", "c"), which is at height 2."""
    held = p.relation("tc")
    node = held.arrays.heads["support"][p.row("tc", "a", "c")]
    held.arrays.nodes["count"][node] ^= 1 << 2


def _weight(p: Published) -> None:
    held = p.relation("edge")
    held.arrays.nodes["count"][held.arrays.heads["support"][p.row("edge", "b", "c")]] ^= 1


def _entry(p: Published) -> None:
    held = p.relation("tc")
    held.arrays.entries["hw"][held.arrays.heads["entry"][p.row("tc", "a", "c")]] ^= 2


def _value(p: Published) -> None:
    p.relation("tc").arrays.rows[p.row("tc", "a", "c"), 1] ^= 1


def _posting(p: Published) -> None:
    index = p.relation("tc").indexes[(1,)].arrays
    index.payload[index.key_start[index.slots[index.slots != NONE][0]], 0] ^= 1


def _posted_entry(p: Published) -> None:
    index = p.relation("tc").indexes[(1,)].arrays
    index.entry[index.key_start[index.slots[index.slots != NONE][0]]] ^= 1


def _key(p: Published) -> None:
    index = p.relation("tc").indexes[(1,)].arrays
    index.keys[index.slots[index.slots != NONE][0], 0] ^= 1


def _slot(p: Published) -> None:
    slots = p.relation("tc").arrays.slots
    slots[np.flatnonzero(slots != NONE)[0]] = NONE


def _next(p: Published) -> None:
    held = p.relation("tc")
    held.arrays.nodes["next"][held.arrays.heads["support"][p.row("tc", "a", "c")]] = 1 << 20


def _circle(p: Published) -> None:
    held = p.relation("tc")
    node = held.arrays.heads["support"][p.row("tc", "a", "c")]
    held.arrays.nodes["next"][node] = node


def _symbol(p: Published) -> None:
    symbols = p.reasoner.database.symbols
    code = symbols.find("b")
    assert code is not None
    cast(Any, symbols)._texts[code] = "B"


def _fold(p: Published) -> None:
    """cost("c", 5) is the least; its supports are as many as before, but at another height."""
    held = p.relation("cost")
    held.arrays.nodes["height"][held.arrays.heads["support"][p.row("cost", "c", 5)]] += 4


IN_MEMORY: dict[str, tuple[Callable[[Published], None], str, str | None, tuple[Any, ...] | None]] = {
    "support": (_support, "support", "tc", ("a", "c")),
    "weight": (_weight, "weight", "edge", ("b", "c")),
    "entry": (_entry, "entry", "tc", ("a", "c")),
    "value": (_value, "table", "tc", None),
    "payload of a posting": (_posting, "index", "tc", None),
    "entry of a posting": (_posted_entry, "index", "tc", None),
    "key of an index": (_key, "index", "tc", None),
    "slot": (_slot, "table", "tc", None),
    "list that leads nowhere": (_next, "table", "tc", None),
    "list in a circle": (_circle, "table", "tc", None),
    "symbol": (_symbol, "symbol", None, None),
    "support of a fold": (_fold, "support", "cost", ("c", 5)),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_damage_in_memory_is_found_and_named(published: Published, kind: str) -> None:
    damage, told, relation, values = IN_MEMORY[kind]
    damage(published)
    report = published.audit()
    found = [d for d in report.differences if (d.kind, d.place, d.relation) == (told, "memory", relation)]
    assert found, report.to_json()
    if values is not None:
        assert list(values) in [d.tuple for d in found]
    # What is in Redis is as it was.
    assert {d.place for d in report.differences} == {"memory"}


def test_what_was_expected_and_what_was_found_is_told(published: Published) -> None:
    _weight(published)
    (difference,) = published.audit().differences
    assert (difference.kind, difference.expected, difference.found) == ("weight", 2, 3)


def test_a_missing_and_a_wrong_tuple_are_named(published: Published) -> None:
    """A tuple that turns into another one, with a table that finds it."""
    held = published.relation("node")
    row = published.row("node", "g")
    other = published.reasoner.database.symbols.intern("z")
    held.arrays.rows[row, 0] = other
    held.arrays.high[0] = other
    slots = np.full(len(held.arrays.slots), NONE, np.int32)
    table.rehash(held.arrays, slots)
    held.arrays = held.arrays._replace(slots=slots)
    tuples = [d for d in published.audit().differences if d.kind == "tuple" and d.place == "memory"]
    assert {(tuple(d.tuple or ()), d.expected) for d in tuples} == {(("z",), "absent"), (("g",), "present")}


# ---- Redis


def _objects(p: Published, kind: str, relation: str) -> list[str]:
    """The objects below a relation, of a kind: `r`, `b`."""
    keys = Keys(p.name)
    entry = p.publisher.manifest.relations[relation]
    if kind == "r":
        return [keys.object(entry.id)]
    data = cast(bytes, p.client.get(keys.object(entry.id)))
    found = RelationManifest.decode(data)
    return [keys.object(name) for s in found.segments for name in p.publisher.store.index(s).ids]


def _flip(client: redis.Redis, key: str) -> None:
    """One bit in the middle."""
    data = bytearray(cast(bytes, client.get(key)))
    data[len(data) // 2] ^= 8
    client.set(key, bytes(data))


def _chunk(p: Published) -> str:
    return Keys(p.name).object(p.publisher.manifest.symbols[0].id)


def _program(p: Published) -> str:
    return Keys(p.name).object(p.publisher.manifest.program_id)


STORED: dict[str, tuple[Callable[[Published], str], str | None]] = {
    "block of facts": (lambda p: _objects(p, "b", "edge")[0], "edge"),
    "block of derived tuples": (lambda p: _objects(p, "b", "tc")[0], "tc"),
    "run": (lambda p: _objects(p, "b", "tc")[-1], "tc"),
    "segments": (lambda p: _objects(p, "r", "tc")[0], "tc"),
    "symbols": (_chunk, None),
    "program": (_program, None),
}


@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "missing"])
@pytest.mark.parametrize("kind", STORED)
def test_a_damaged_or_missing_object_is_found_and_named(published: Published, kind: str, gone: bool) -> None:
    place, relation = STORED[kind]
    key = place(published)
    if gone:
        published.client.delete(key)
    else:
        _flip(published.client, key)
    report = published.audit()
    (difference,) = [d for d in report.differences if d.kind == "object"]
    assert difference.relation == relation
    name = key.rsplit(":", 1)[1]
    assert name in (difference.expected, difference.what.rsplit(" ", 1)[1])
    assert ("missing" if gone else "damaged") in difference.what
    # The memory is as it was, and is compared all the same.
    assert [d for d in report.differences if d.place == "memory"] == []
    assert report.supports > 0


def test_every_bit_of_every_object_counts(published: Published) -> None:
    """Bits at random places, one at a time, of all objects that the epoch names."""
    random = Random(5)
    manifest = published.publisher.manifest
    names = {manifest.program_id, *(chunk.id for chunk in manifest.symbols)}
    for relation, entry in manifest.relations.items():
        names |= {entry.id, *(key.rsplit(":", 1)[1] for key in _objects(published, "b", relation))}
    assert len(names) >= 12
    for name in sorted(names):
        key = Keys(published.name).object(name)
        right = cast(bytes, published.client.get(key))
        for _ in range(3):
            data = bytearray(right)
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            published.client.set(key, bytes(data))
            told = [d.expected for d in published.audit().differences if d.kind == "object"]
            assert told == [name]
        published.client.set(key, right)
    assert published.audit().differing == 0


def test_without_memory_what_is_stored_is_verified_all_the_same(published: Published) -> None:
    """Blocks are read again instead of being kept, and nothing is derived."""
    subject = replace(published.subject, memory=1)
    report = audit(subject)
    assert report.differing == 0
    (why,) = report.uncompared
    assert why.startswith("what follows from facts and rules: ")
    assert report.objects >= 8
    _flip(published.client, _objects(published, "b", "tc")[0])
    assert [(d.kind, d.relation) for d in audit(subject).differences] == [("object", "tc")]


def _edited(p: Published, change: Callable[[dict[str, Any]], None]) -> None:
    key = Keys(p.name).manifest(p.publisher.manifest.epoch)
    manifest = orjson.loads(cast(bytes, p.client.get(key)))
    change(manifest)
    p.client.set(key, orjson.dumps(manifest))


def test_a_digest_of_the_manifest_that_was_changed_is_found(published: Published) -> None:
    right = published.publisher.manifest.relations["tc"].digest
    assert right is not None
    _edited(published, lambda m: m["digests"].update(tc=f"{right ^ 1:032x}"))
    (difference,) = published.audit().differences
    assert (difference.kind, difference.relation) == ("digest", "tc")
    assert (difference.expected, difference.found) == (f"{right:032x}", f"{right ^ 1:032x}")


def test_a_count_of_the_manifest_that_was_changed_is_found(published: Published) -> None:
    _edited(published, lambda m: m["relations"]["tc"].__setitem__(1, 7))
    assert [(d.kind, "relations" in d.what) for d in published.audit().differences] == [("manifest", True)]


def test_a_missing_manifest_is_found(published: Published) -> None:
    published.client.delete(Keys(published.name).manifest(published.publisher.manifest.epoch))
    found = published.audit().differences
    assert ("manifest", "is missing" in found[0].what) == (found[0].kind, True)


def test_an_epoch_that_is_no_longer_retained_is_no_difference(
    client: redis.Redis, server: EmbeddedServer, database: str
) -> None:
    """A false alarm is worse than no audit: what the retention removed is not missing."""
    published = Published(client, server.url, database, retention=Retention(epochs=1, seconds=0.0))
    subject = published.subject
    state = published.reasoner
    published.publisher.publish(state.apply(facts={"edge": [(("x", "y"), 1)]}).record, (), "later-1")
    state.apply(facts={"edge": [(("x", "y"), -1)]})
    report = audit(subject)
    assert report.differing == 0, report.to_json()
    assert any("no longer retained" in why for why in report.uncompared)
    assert report.supports > 0


def test_a_published_state_that_does_not_follow_is_found(published: Published) -> None:
    """A publication that lost a derived tuple, with a digest that fits what was published."""
    result = published.reasoner.apply(facts={"edge": [(("f", "x"), 1)]})
    change = result.record.relations["tc"]
    kept = np.arange(len(change.codes)) > 0
    cut = replace(
        change,
        **{name: getattr(change, name)[kept] for name in ("codes", "asserted", "derived", "present")},
        was_asserted=change.was_asserted[kept],
        was_derived=change.was_derived[kept],
    )
    record = replace(result.record, relations={**result.record.relations, "tc": cut})
    published.publisher.publish(record, (), "9-1")
    report = published.audit()
    tuples = [d for d in report.differences if d.kind == "tuple"]
    assert [(d.place, d.relation, d.expected) for d in tuples] == [("snapshot", "tc", "present")]
    lost = published.reasoner.database.symbols.texts(change.codes[0])
    assert tuples[0].tuple == lost


def test_rules_that_are_not_the_stored_ones_are_found(published: Published) -> None:
    published.reasoner.apply(rules=[("far(x) :- node(x).", 1)])
    found = [d for d in published.audit().differences if d.kind == "program"]
    assert len(found) == 1
    assert found[0].expected is None


def test_many_differences_are_counted_and_the_first_are_named() -> None:
    report = Report(1)
    for relation in range(40):
        for number in range(NAMED + 3):
            report.add("tuple", "memory", "is held", f"r{relation}", (number,))
    assert report.differing == 40 * (NAMED + 3)
    assert len(report.differences) == LIMIT == report.to_json()["limit"]
    assert [d.tuple for d in report.differences[:NAMED]] == [[n] for n in range(NAMED)]


# ---- after a restart


def test_a_recovered_state_that_is_right(published: Published) -> None:
    published.restart()
    report = published.check_recovered()
    assert (report.differing, report.uncompared) == (0, [])
    assert report.relations == 6


def test_a_recovered_state_that_is_not_what_was_published_is_found(published: Published) -> None:
    published.restart()
    held = published.relation("edge")
    held.arrays.nodes["count"][held.arrays.heads["support"][published.row("edge", "b", "c")]] = 5
    found = published.check_recovered().differences
    assert [(d.kind, d.relation) for d in found] == [("digest", "edge"), ("weight", "edge")]
    assert (found[1].tuple, found[1].expected, found[1].found) == (["b", "c"], 2, 5)
