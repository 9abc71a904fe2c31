"""Sources as readers see them: from the hidden collections of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.data.sources import origin
from engine.data.values import Tuple, Value
from engine.storage.client import DatabaseClient
from engine.storage.snapshot import Snapshot
from service.history import entry, kept
from service.principal import Principal


def sources_of(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """How many tuples each source asserts, by source and relation."""
    whole = snapshot.with_hidden()
    found: dict[str, dict[str, int]] = {}
    for name in snapshot.hidden:
        place = origin(name)
        if place is not None:
            relation, source = place
            found.setdefault(source, {})[relation] = whole.counts(name).asserted
    return {source: dict(sorted(counts.items())) for source, counts in sorted(found.items())}


def readable(counts: Mapping[str, int], principal: Principal) -> dict[str, int]:
    """The part of a source that a principal may read."""
    return {relation: count for relation, count in counts.items() if principal.may_read(relation)}


async def described(
    client: DatabaseClient, sources: Mapping[str, Mapping[str, int]], principal: Principal
) -> list[dict[str, Any]]:
    """Sources with their sizes and their last transactions."""
    last: dict[str, dict[str, Any] | None] = {}
    if sources:
        async for told in kept(client):
            source: str = told.meta.get("source", "")
            if source in sources and source not in last and told.status == "committed":
                last[source] = entry(told, principal)
                if len(last) == len(sources):
                    break
    return [
        {
            "source": source,
            "relations": [{"relation": relation, "facts": count} for relation, count in counts.items()],
            "facts": sum(counts.values()),
            "last_transaction": last.get(source),
        }
        for source, counts in sources.items()
    ]


async def sources_of_tuples(
    snapshot: Snapshot, relation: str, bound: Mapping[int, Value], tuples: Iterable[Tuple]
) -> dict[Tuple, dict[str, int]]:
    """The weights that sources give to tuples of a relation which have the bound values."""
    wanted = set(tuples)
    found: dict[Tuple, dict[str, int]] = {}
    whole = snapshot.with_hidden()
    for name in snapshot.hidden:
        place = origin(name)
        if place is None or place[0] != relation:
            continue
        after = None
        while True:
            page = await whole.facts(name, bound, "asserted", 10_000, after)
            for values, weight in zip(page.tuples, page.weights, strict=True):
                if values in wanted:
                    found.setdefault(values, {})[place[1]] = weight
            after = page.next
            if after is None:
                break
    return found
