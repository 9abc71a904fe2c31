"""The arrays of one relation against a dictionary: supports, entries, indexes, growth, freeing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.resident.checks import check_relation
from engine.resident.relation import PushOverflow, Relation, state_of

CHANGE = st.tuples(
    st.lists(st.integers(-3, 3), min_size=2, max_size=2),
    st.integers(0, 4),
    st.sampled_from([-2, -1, 1, 2, 3]),
)


def push(relation: Relation, changes: list[tuple[list[int], int, int]]) -> np.ndarray:
    codes = np.array([t for t, _, _ in changes], np.int64).reshape(len(changes), 2)
    heights = np.array([h for _, h, _ in changes], np.int32)
    return relation.push(codes, heights, np.array([w for _, _, w in changes], np.int64))


def settle_all(relation: Relation, rows: np.ndarray) -> None:
    """What an epoch does at each height, for a signed stratum."""
    todo = {0: [rows]}
    while todo:
        height = min(todo)
        changed, weights, removals, later, heights = relation.settle(
            np.concatenate(todo.pop(height)), height, True
        )
        relation.change_entries(changed, weights, height, removals)
        for at in np.unique(heights):
            todo.setdefault(int(at), []).append(later[heights == at])


@settings(max_examples=60)
@given(st.lists(st.lists(CHANGE, min_size=1, max_size=30), max_size=6))
def test_supports_entries_and_indexes_equal_a_dictionary(batches: list[list[tuple[list[int], int, int]]]):
    relation = Relation("r", 2)
    model: dict[tuple[int, ...], dict[int, int]] = {}
    for number, batch in enumerate(batches):
        if number == 1:
            relation.add_index((0,))
        if number == 2:
            relation.add_index((1,))
            relation.add_index(())
        rows = push(relation, batch)
        for values, height, weight in batch:
            support = model.setdefault(tuple(values), {})
            support[height] = support.get(height, 0) + weight
        # Negative totals are possible here; a row is present where they are positive.
        settle_all(relation, rows)
        relation.free(np.unique(rows))
        model = {t: {h: c for h, c in s.items() if c} for t, s in model.items()}
        model = {t: s for t, s in model.items() if s}
        state = state_of(relation)
        assert state["supports"] == model
        assert relation.live == len(model)
        assert relation.asserted == sum(0 in s for s in model.values())
        for values, support in model.items():
            entries, total, last = {}, 0, 0
            for height in sorted(support):
                total += support[height]
                if (total > 0) != last:
                    entries[height] = int(total > 0) - last
                last = int(total > 0)
            assert state["entries"].get(values, {}) == entries
        for columns, keys in state["indexes"].items():
            assert sum(map(len, keys.values())) == relation.entries, columns


def test_growth_keeps_everything_and_emptying_gives_memory_back():
    relation = Relation("r", 2)
    relation.add_index((1,))
    codes = np.stack((np.arange(200_000), np.arange(200_000) % 7), axis=1)
    rows = relation.push(codes, np.zeros(1, np.int32), np.ones(1, np.int64))
    changed, weights, removals, _, _ = relation.settle(rows, 0, False)
    relation.change_entries(changed, weights, 0, removals)
    assert relation.entries == len(codes)
    assert (relation.rows_of(codes) == rows).all()
    assert (relation.codes(rows) == codes).all()
    full = relation.memory()
    relation.push(codes, np.zeros(1, np.int32), -np.ones(1, np.int64))
    changed, weights, removals, _, _ = relation.settle(rows, 0, False)
    assert removals == len(codes)
    relation.change_entries(changed, weights, 0, removals)
    relation.free(rows)
    assert relation.live == relation.entries == 0
    assert relation.memory() < full / 1000
    check_relation(relation)


def test_blocks_that_keys_have_grown_out_of_are_given_back():
    relation = Relation("r", 2)
    relation.add_index((0,))
    key, other = np.divmod(np.arange(130 * 1000), 1000)
    # Key after key grows a little at a time, so that small blocks are left behind all over.
    codes = np.stack((other, key), axis=1)
    for part in np.array_split(codes, 13):
        rows = relation.push(part, np.zeros(1, np.int32), np.ones(1, np.int64))
        changed, weights, removals, _, _ = relation.settle(rows, 0, False)
        relation.change_entries(changed, weights, 0, removals)
    before = state_of(relation)
    pool = len(relation.indexes[0,].arrays.entry)
    relation.free(rows[:1])
    assert len(relation.indexes[0,].arrays.entry) < pool * 0.8
    assert state_of(relation) == before
    relation.change_entries(rows[:5], -np.ones(5, np.int64), 0, 5)
    relation.change_entries(rows[:5], np.ones(5, np.int64), 0, 0)
    assert state_of(relation) == before
    check_relation(relation)


def test_random_deletion_keeps_the_table_findable():
    rng = np.random.default_rng(5)
    relation = Relation("r", 2)
    codes = rng.integers(0, 50, (2000, 2))
    codes = np.unique(codes, axis=0)
    rows = relation.push(codes, np.zeros(1, np.int32), np.ones(1, np.int64))
    gone = rng.random(len(codes)) < 0.6
    relation.push(codes[gone], np.zeros(1, np.int32), -np.ones(1, np.int64))
    relation.free(rows[gone])
    assert (relation.rows_of(codes[gone]) == -1).all()
    assert (relation.rows_of(codes[~gone]) == rows[~gone]).all()


@pytest.mark.parametrize(("start", "more"), [(2**63 - 1, 1), (-(2**63), -1), (2**62, 2**62), (1, 2**63 - 1)])
def test_a_count_that_leaves_64_bits_stops_the_push_and_says_what_was_pushed(start: int, more: int):
    relation = Relation("r", 1)
    first = relation.push(np.array([[5]]), np.zeros(1, np.int32), np.array([start]))
    with pytest.raises(PushOverflow) as stopped:
        relation.push(np.array([[4], [5], [6]]), np.zeros(1, np.int32), np.array([1, more, 1]))
    assert len(stopped.value.rows) == 1
    assert state_of(relation)["supports"] == {(5,): {0: start}, (4,): {0: 1}}
    assert stopped.value.error.code == "weight_overflow"
    assert len(first) == 1


def test_nullary_tuples():
    relation = Relation("p", 0)
    relation.add_index(())
    empty = np.empty((1, 0), np.int64)
    rows = relation.push(empty, np.zeros(1, np.int32), np.array([2]))
    changed, weights, removals, _, _ = relation.settle(rows, 0, False)
    relation.change_entries(changed, weights, 0, removals)
    assert relation.entries == 1
    check_relation(relation)
