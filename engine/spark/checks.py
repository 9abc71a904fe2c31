"""The whole state of a relation as plain data, and whether it is consistent; for tests and inspection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of
from engine.resident.checks import check_entries
from engine.spark.frames import united
from engine.spark.tables import Tables
from engine.spark.version import Version, collected

_LAYER = "layer"


def state_of(version: Version, tables: Tables) -> Mapping[str, Any]:
    """Facts, supports and entries in codes, in the form of `engine.resident.relation.state_of`; relations on Spark
    have no indexes."""
    facts: dict[tuple[int, ...], int] = {}
    supports: dict[tuple[int, ...], dict[int, int]] = {}
    entries: dict[tuple[int, ...], dict[int, int]] = {}
    table = collected(version, tables)
    tuples = map(tuple, codes_of(table, version.arity).tolist())
    values = (array_of(table, name).tolist() for name in (HEIGHT, SUPPORT, ENTRY))
    for key, height, support, entry in zip(tuples, *values, strict=True):
        if support:
            supports.setdefault(key, {})[height] = support
        if entry:
            entries.setdefault(key, {})[height] = entry
        if height == 0 and support:
            facts[key] = support
    return {"facts": facts, "supports": supports, "entries": entries, "indexes": {}}


def check_version(version: Version, tables: Tables) -> None:
    """Raise AssertionError unless supports, entries and counts of a relation agree."""
    state = state_of(version, tables)
    check_entries(version.name, version.fold, state)
    there = {key: sum(entries.values()) for key, entries in state["entries"].items()}
    present = sum(there.values())
    above = {key: sum(n for height, n in by.items() if height > 0) for key, by in state["supports"].items()}
    derived = sum(
        total > 0 and (version.fold is None or there.get(key, 0) > 0) for key, total in above.items()
    )
    counts = version.counts
    assert (counts.present, counts.asserted, counts.derived) == (present, len(state["facts"]), derived), (
        version.name
    )
    stored = version.stored
    if stored:
        frames = [table.frame.select(F.lit(i).alias(_LAYER)) for i, table in enumerate(stored)]
        found = tables.collect(united(frames).groupBy(_LAYER).count())
        sizes = dict(zip(*(array_of(found, name).tolist() for name in (_LAYER, "count")), strict=True))
        assert [sizes.get(i, 0) for i in range(len(stored))] == [table.rows for table in stored], (
            "a table's size is not what it says"
        )
