"""Checks of the invariants of a resident relation, for tests and debugging: complete, and therefore slow.

Always true of a relation between two epochs: a row is found under its own tuple; entries follow from supports by
their definition, height by height; each index holds each entry once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.circuit.normal import Fold
from engine.language.schema import ColumnType
from engine.resident.relation import Relation, state_of


def check_relation(relation: Relation) -> None:
    """Raise AssertionError unless table, supports, entries and indexes of a relation agree."""
    rows = relation.all_rows()
    codes = relation.codes(rows)
    assert len(rows) == relation.live
    assert (relation.rows_of(codes) == rows).all(), "a row is not found under its own tuple"
    present = relation.describe(rows)[2]
    assert ((present == 0) | (present == 1)).all(), "entries sum to 0 or 1"
    state = state_of(relation)
    check_entries(relation.name, relation.fold, state)
    expected = {t: sorted(h * 2 + (w < 0) for h, w in e.items()) for t, e in state["entries"].items()}
    for columns, keys in state["indexes"].items():
        found: dict[tuple[int, ...], list[int]] = {}
        rest_columns = [c for c in range(relation.arity) if c not in columns]
        for key, postings in keys.items():
            for rest, hw in postings:
                values = dict(zip((*columns, *rest_columns), (*key, *rest), strict=True))
                found.setdefault(tuple(values[c] for c in range(relation.arity)), []).append(hw)
        assert {t: sorted(h) for t, h in found.items()} == expected, f"index {columns} of {relation.name}"


def check_entries(name: str, fold: Fold | None, state: Mapping[str, Any]) -> None:
    """Entries follow from the supports of a relation's state; `fold`: that in place, if there is one."""
    if fold is not None:
        _check_groups(name, fold, state)
    plain = {} if fold is not None else state["supports"]
    for tuple_, supports in plain.items():
        entries = state["entries"].get(tuple_, {})
        total = last = 0
        for height in sorted({*supports, *entries}):
            total += supports.get(height, 0)
            now = int(total > 0)
            assert entries.get(height, 0) == now - last, (name, tuple_, supports, entries)
            last = now
    assert state["entries"].keys() <= state["supports"].keys(), "an entry without support"


def _check_groups(name: str, fold: Fold, state: Mapping[str, Any]) -> None:
    """At every height the one entry of a group is its extreme over what is present at that height."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for tuple_ in state["supports"]:
        groups.setdefault(tuple(tuple_[c] for c in fold.group), []).append(tuple_)
    best = max if fold.function == "max" else min

    def value(tuple_: tuple[int, ...]) -> float:
        code = tuple_[fold.place]
        return float(np.int64(code).view(np.float64)) if fold.type is ColumnType.FLOAT else code

    for members in groups.values():
        heights = {h for t in members for part in ("supports", "entries") for h in state[part].get(t, {})}
        for height in heights:
            present = [
                t for t in members if sum(c for h, c in state["supports"][t].items() if h <= height) > 0
            ]
            shown = [
                t
                for t in members
                if sum(w for h, w in state["entries"].get(t, {}).items() if h <= height) > 0
            ]
            assert shown == ([best(present, key=value)] if present else []), (name, members, height)
