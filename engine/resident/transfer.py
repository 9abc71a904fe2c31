"""A relation's supports and entries as Arrow: reads them out of the arrays, and fills new arrays with them.

The table has the columns (c0 .., height, support, entry), at most one row for a tuple and a height, and no row where
both are zero. Both directions cost a bounded number of kernel calls for each height, and O(n) in all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, to_arrow
from engine.maintenance.placement import PlacementState
from engine.maintenance.policy import BELOW, BootstrapCost
from engine.resident.layout import I32, I64
from engine.resident.relation import ONE, Relation


def to_table(relation: Relation) -> pa.Table:
    """All supports and entries of a relation."""
    rows, heights, counts = relation.supports()
    entry_rows, _, hw = relation.list_entries()
    # Tuple and height as one number, so that supports and entries of the same meet.
    keys = np.concatenate((_key(rows, heights), _key(entry_rows, hw >> 1)))
    both, place = np.unique(keys, return_inverse=True)
    support, entry = np.zeros(len(both), np.int64), np.zeros(len(both), np.int64)
    support[place[: len(rows)]] = counts
    np.add.at(entry, place[len(rows) :], 1 - 2 * (hw & 1).astype(np.int64))
    codes = relation.codes((both >> 32).astype(np.int32))
    return to_arrow(codes, height=(both & 0xFFFFFFFF).astype(np.int32), support=support, entry=entry)


def fill(relation: Relation, table: pa.Table) -> None:
    """Put the supports and entries of `table` into an empty relation."""
    codes = codes_of(table, relation.arity)
    heights = array_of(table, HEIGHT).astype(np.int32)
    rows = relation.push(codes, heights, array_of(table, SUPPORT))
    relation.group(rows)
    entries = array_of(table, ENTRY)
    held = np.flatnonzero(entries)
    order = held[np.argsort(heights[held], kind="stable")]
    cuts = np.flatnonzero(np.diff(heights[order])) + 1
    for part in np.split(order, cuts):
        if len(part):
            relation.change_entries(rows[part], entries[part], int(heights[part[0]]), 0)


def hold(relation: Relation, codes: I64) -> None:
    """Make tuples of an empty relation present at height 0."""
    rows = relation.push(codes, np.zeros(1, np.int32), ONE)
    relation.change_entries(rows, np.ones(len(rows), np.int64), 0, 0)


def _key(rows: I32, heights: I32) -> I64:
    return (rows.astype(np.int64) << 32) | heights.astype(np.int64)


def bootstrap_costs(state: PlacementState) -> dict[tuple[str, ...], BootstrapCost]:
    """The derivations that a bootstrap of each stratum would enumerate, from the supports alone: each support is a
    number of derivations.

    Those of height h start at height h - 1, and those of height 1 below the recursion.
    """
    costs = {}
    for stratum in state.circuit.strata:
        profile: dict[int, int] = {}
        pushed = 0
        for name in stratum.relations if stratum.derives else ():
            table = state.relations.get(name)
            if table is None:
                continue
            found, supports = array_of(table, HEIGHT), array_of(table, SUPPORT)
            sums = np.bincount(found, supports.astype(np.float64))
            pushed += int(np.count_nonzero(supports[found > 0]))
            for height in np.flatnonzero(sums[1:]).tolist():
                place = height if height else BELOW
                profile[place] = profile.get(place, 0) + int(sums[height + 1])
        if profile:
            costs[stratum.relations] = BootstrapCost.of(profile, pushed, float(sum(profile.values())))
    return costs
