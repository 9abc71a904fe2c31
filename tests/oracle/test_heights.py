"""The heights that an epoch tells are those of the entries, whatever the way to them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.data.values import decode
from engine.database.epoch import EpochResult
from engine.database.reasoner import Reasoner
from engine.maintenance.change import RelationChange

Heights = dict[str, dict[tuple[object, ...], int]]

LINEAR = ["tc(x, y) :- arc(x, y).", "tc(x, z) :- tc(x, y), arc(y, z)."]
SHORTEST = ["sp(y, min(c)) :- source(y), c = 0.", "sp(y, min(d + c)) :- sp(x, d), cost(x, y, c)."]
WITHOUT = [
    *LINEAR,
    "node(x) :- arc(x, _).",
    "node(y) :- arc(_, y).",
    "apart(x, y) :- node(x), node(y), !tc(x, y).",
]


def of_entries(reasoner: Reasoner) -> Heights:
    """The height of each tuple that is there: of its last entry of weight +1."""
    heights: Heights = {}
    for relation, tuples in reasoner.state()["entries"].items():
        for row, entries in tuples.items():
            if sum(entries.values()) > 0:
                heights.setdefault(relation, {})[row] = max(h for h, weight in entries.items() if weight > 0)
    return heights


def follow(heights: Heights, result: EpochResult, reasoner: Reasoner) -> None:
    """Bring the heights that were told up to date with an epoch, which must say what they were."""
    for name, change in result.record.relations.items():
        types = [column.type for column in result.record.changed_schemas[name].columns]
        rows = decode(change.codes, types, reasoner.database.symbols)
        held = heights.setdefault(name, {})
        assert change.height is not None
        assert change.was_height is not None
        for row, present, height, was in zip(
            rows, there(change), change.height.tolist(), change.was_height.tolist(), strict=True
        ):
            assert held.pop(row, 0) == was, (name, row)
            if present:
                held[row] = height
        if not held:
            del heights[name]


def there(change: RelationChange) -> list[bool]:
    """Which of the tuples are there after the epoch."""
    hidden = np.zeros(len(change.codes), np.bool_) if change.hidden is None else change.hidden
    there: list[bool] = (((change.asserted > 0) & ~hidden) | change.derived).tolist()
    return there


@pytest.mark.parametrize("strategy", ["auto", "update", "bootstrap"])
@pytest.mark.parametrize("program", [LINEAR, SHORTEST, WITHOUT], ids=["linear", "shortest", "without"])
def test_what_is_told_of_heights_is_what_the_entries_say(program: list[str], strategy: str) -> None:
    random_ = random.Random(7)
    reasoner, heights = Reasoner(placement="resident"), Heights()
    rules = [(rule, 1) for rule in program]
    start = {"source": [((0,), 1)]} if program is SHORTEST else {}
    follow(heights, reasoner.apply(facts=start, rules=rules), reasoner)
    held: dict[str, set[tuple[int, ...]]] = {"arc": set(), "cost": set(), "sp": set()}
    names = ["cost", "cost", "cost", "sp"] if program is SHORTEST else ["arc", "arc", "arc", "tc"]
    held["tc"] = set()
    for _ in range(60):
        name = random_.choice(names)
        if name == "cost":
            row: tuple[int, ...] = (random_.randrange(5), random_.randrange(5), random_.randrange(1, 9))
        else:
            row = random_.randrange(6), random_.randrange(6)
        weight = -1 if row in held[name] else 1
        held[name] ^= {row}
        result = reasoner.apply(facts={name: [(row, weight)]}, strategy=strategy)  # type: ignore[arg-type]
        follow(heights, result, reasoner)
        assert heights == of_entries(reasoner)


def test_a_shortcut_changes_heights_alone() -> None:
    reasoner = Reasoner(placement="resident")
    arcs = [((i, i + 1), 1) for i in range(5)]
    reasoner.apply(facts={"arc": arcs}, rules=[(rule, 1) for rule in LINEAR])
    result = reasoner.apply(facts={"arc": [((0, 3), 1)]})
    change = result.record.relations["tc"]
    told = {
        tuple(row): (was, now)
        for row, was, now in zip(
            change.codes.tolist(),
            change.was_height.tolist(),
            change.height.tolist(),
            strict=True,  # type: ignore[union-attr]
        )
    }
    # By hand: 0 -> 3 took three arcs and takes one; what lies behind comes nearer by two.
    assert told == {(0, 3): (3, 1), (0, 4): (4, 2), (0, 5): (5, 3)}
    assert not change.present.any()
    assert result.counts == {"arc": (1, 0)}
    assert result.changes == {"arc": [((0, 3), 1)]}
