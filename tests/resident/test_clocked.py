"""The parts of a fold on the height clock against plain Python: what waits by height, and what is present by group."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.circuit.normal import Fold
from engine.language.schema import ColumnType
from engine.language.syntax import Fixpoint
from engine.resident.clocked import ClockedFold, Contributions, Pending
from engine.resident.layout import I64
from engine.resident.relation import Relation

rows_by_height = st.lists(st.tuples(st.integers(0, 12), st.integers(-5, 5)), max_size=12)


@settings(max_examples=40)
@given(st.lists(rows_by_height, max_size=12))
def test_pending_gives_every_row_once_at_its_height(batches: list[list[tuple[int, int]]]) -> None:
    """Also what is added while heights are taken, as long as it lies ahead."""
    pending = Pending(1)
    waiting: list[tuple[int, int]] = []
    for height in range(13):
        for batch in batches[height : height + 1]:
            ahead = [pair for pair in batch if pair[0] >= height]
            waiting += ahead
            both = np.array(ahead, np.int64).reshape(len(ahead), 2)
            pending.add(both[:, 0].astype(np.int32), both[:, 1:])
        assert pending.lowest() == min((h for h, _ in waiting), default=None)
        taken = pending.take(height)[:, 0].tolist()
        assert sorted(taken) == sorted(value for h, value in waiting if h == height)
        waiting = [pair for pair in waiting if pair[0] != height]


def test_pending_keeps_few_runs() -> None:
    pending = Pending(1)
    for number in range(1_000):
        pending.add(np.array([number], np.int32), np.array([[number]], np.int64))
    assert len(pending._runs) <= 11
    assert [pending.take(h).tolist() for h in (0, 1, 2)] == [[[0]], [[1]], [[2]]]


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 9), max_size=5)), max_size=30))
def test_contributions_are_those_put_last(steps: list[dict[int, list[int]]]) -> None:
    """However often they are replaced: what is left behind is given back."""
    held: dict[int, list[int]] = {}
    contributions = Contributions()
    for step in steps:
        groups = np.array(sorted(step), np.int64)
        values = [value for group in sorted(step) for value in step[group]]
        owner = np.repeat(np.arange(len(groups)), [len(step[group]) for group in sorted(step)])
        contributions.of(groups)
        contributions.put(
            groups, owner, np.array([(v, -v) for v in values], np.int64).reshape(len(values), 2)
        )
        held |= step
        everything = np.arange(8)
        places, rows = contributions.of(everything)
        found = [rows[places == group, 0].tolist() for group in range(8)]
        assert found == [held.get(group, []) for group in range(8)]
        assert (rows[:, 0] == -rows[:, 1]).all()


def near(type_: ColumnType, tolerance: float, values: I64, held: I64) -> list[bool]:
    fold = Fold("t", 2, "sum", 1, type_, ("s",), fixpoint=Fixpoint(tolerance, 9))
    clocked = ClockedFold(fold, Relation("t", 2), [("s", Relation("s", 2), True)], lambda _: None)
    found: list[bool] = clocked._within(values, held).tolist()
    return found


def test_the_tolerance_is_exact_for_numbers_of_any_size() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    values, held = np.array([3, 3, low, high, high]), np.array([3, 5, high, low, high - 1])
    assert near(ColumnType.NUMBER, 0.0, values, held) == [True, False, False, False, False]
    assert near(ColumnType.NUMBER, 1.0, values, held) == [True, False, False, False, True]
    assert near(ColumnType.NUMBER, 2.5, values, held) == [True, True, False, False, True]


def test_the_tolerance_of_floats() -> None:
    values, held = np.array([1.0, 1.0, 1e308]), np.array([1.25, 1.5, -1e308])
    assert near(ColumnType.FLOAT, 0.25, values.view(np.int64), held.view(np.int64)) == [True, False, False]
