"""Digests are equal on both placements; an audit of a state on Spark compares what it has published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import redis

from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.manifest import RelationManifest
from tests.audit.published import FACTS, PROGRAM, Published
from tests.spark.conftest import java, on_spark, patient, source
from zedlog import Reasoner

__all__ = ["java", "on_spark", "source"]
pytestmark = patient

STEPS: list[dict[str, Any]] = [
    {"rules": PROGRAM, "facts": FACTS},
    {"facts": {"edge": [(("e", "f"), 1), (("c", "d"), -1), (("b", "c"), 2)]}},
    {"facts": {"cost": [(("d", 1), 1)], "road": [(("a", "b", 2), -1)]}},
    {"rules": [("far(x) :- node(x), !tc(x, x).", -1)], "facts": {"node": [(("a",), -1)]}},
]


def test_digests_on_both_placements_and_an_audit_on_spark(
    client: redis.Redis,
    server: EmbeddedServer,
    database: str,
    on_spark: Callable[..., Reasoner],
) -> None:
    here = Published(client, server.url, f"{database}-here", filled=False)
    there = Published(client, server.url, f"{database}-there", on_spark("mixed"), filled=False)
    # Other symbols come first, so that codes differ.
    here.apply(facts={"other": [(("q",), 1), (("d",), 1)]})
    for step in STEPS:
        ours, theirs = there.apply(**step), here.apply(**step)
        assert (ours.placement, theirs.placement) == ("spark", "resident")
        digests = here.digests()
        del digests["other"]
        assert there.digests() == digests
    report = there.audit()
    assert report.to_json()["differences"] == []
    (why,) = report.uncompared
    assert "because the state is on Spark" in why
    # All but `far`, which has lost its rule.
    assert (report.relations, report.postings) == (5, 0)
    assert report.tuples > 15
    _lose_a_tuple(there)
    found = there.audit().differences
    assert ("object", "tc") in [(d.kind, d.relation) for d in found]


def _lose_a_tuple(p: Published) -> None:
    keys = Keys(p.name)
    data = cast(bytes, p.client.get(keys.object(p.publisher.manifest.relations["tc"].id)))
    base = RelationManifest.decode(data).segments[0]
    p.client.delete(keys.object(p.publisher.store.index(base).ids[0]))
