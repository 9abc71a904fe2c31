"""Sources as readers see them: from the hidden collections of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

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
    snapshot: Snapshot, relation: str, tuples: Iterable[Tuple]
) -> dict[Tuple, dict[str, int]]:
    """The weights that sources give to tuples of a relation. One look-up for each source of the relation."""
    names = {
        name: found_in[1]
        for name in snapshot.hidden
        if (found_in := origin(name)) is not None and found_in[0] == relation
    }
    wanted = dict.fromkeys(tuples)
    found: dict[Tuple, dict[str, int]] = {}
    if not names or not wanted:
        return found
    whole = snapshot.with_hidden()
    schema = whole.schemas[relation]
    codes: list[dict[Value, int | None]] = []
    for place, values in enumerate(zip(*wanted, strict=True)):
        codes.append({value: await whole.code(schema, place, value) for value in dict.fromkeys(values)})
    by_codes = {tuple(known[v] for known, v in zip(codes, row, strict=True)): row for row in wanted}
    among = {
        place: np.array(sorted({code for code in known.values() if code is not None}), np.int64)
        for place, known in enumerate(codes)
    }
    for name, source in names.items():
        rows = await whole.rows(name, {}, "asserted", None, among)
        for row, weight in zip(rows.codes.tolist(), rows.asserted.tolist(), strict=True):
            values = by_codes.get(tuple(row))
            if values is not None:
                found.setdefault(values, {})[source] = weight
    return found
