"""Sorting, merging and looking up rows, against Python's own sort and dicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CorruptSnapshotError
from engine.storage.blocks import decode_block, encode_block
from engine.storage.rows import Rows, above, merge, rows_in_order, sort_order

INT64 = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
WEIGHTS = st.one_of(st.integers(0, 2), st.integers(0, 2**63 - 1))
HEIGHTS = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 2**31 - 1))
Content = dict[tuple[int, ...], tuple[int, bool, bool, int]]


@st.composite
def states(draw: st.DrawFn, arity: int) -> Content:
    """(weight, derived, hidden, height) of tuples; what is hidden is asserted, and not derived."""
    row = st.tuples(*[INT64] * arity)
    plain = st.tuples(WEIGHTS, st.booleans(), st.just(False), HEIGHTS)
    hidden = st.tuples(st.integers(1, 3), st.just(False), st.just(True), st.just(0))
    return draw(st.dictionaries(row, st.one_of(plain, plain, hidden), max_size=12))


def rows_of(content: Content, arity: int) -> Rows:
    codes = np.array(list(content), np.int64).reshape(len(content), arity)
    asserted, heights = (np.array([s[i] for s in content.values()], np.int64) for i in (0, 3))
    derived, hidden = (np.array([s[i] for s in content.values()], np.bool_) for i in (1, 2))
    return rows_in_order(
        codes,
        asserted,
        derived,
        hidden if hidden.any() else None,
        heights if heights.any() else None,
        sort_order(codes),
    )


def content_of(rows: Rows) -> Content:
    keys = [rows.key(i) for i in range(len(rows))]
    assert keys == sorted(set(keys))
    columns = rows.asserted, rows.derived, rows.hidden, rows.heights
    values = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(keys, values, strict=True))


@given(st.data(), st.integers(0, 3))
def test_oracle_sort_is_pythons_sort(data: st.DataObject, arity: int) -> None:
    rows = data.draw(st.lists(st.tuples(*[INT64] * arity), max_size=20))
    order = sort_order(np.array(rows, np.int64).reshape(len(rows), arity))
    assert order.tolist() == sorted(range(len(rows)), key=lambda i: rows[i])


@given(st.data(), st.integers(0, 3), st.booleans())
def test_oracle_merge_is_dict_update(data: st.DataObject, arity: int, drop: bool) -> None:
    newest_first = data.draw(st.lists(states(arity), min_size=1, max_size=4))
    expected: Content = {}
    for content in reversed(newest_first):
        expected |= content
    if drop:
        expected = {row: state for row, state in expected.items() if state[:2] != (0, False)}
    merged = merge([rows_of(content, arity) for content in newest_first], arity, drop_tombstones=drop)
    assert content_of(merged) == expected


@given(st.data(), st.integers(1, 3))
def test_oracle_above(data: st.DataObject, arity: int) -> None:
    rows = rows_of(data.draw(states(arity)), arity)
    wanted = list(data.draw(states(arity))) + [rows.key(i) for i in range(0, len(rows), 2)]
    wanted = list(dict.fromkeys(wanted))
    for key in wanted:
        assert above(rows.codes, key).tolist() == [rows.key(i) > key for i in range(len(rows))]


@given(st.data(), st.integers(0, 3), st.booleans())
def test_block_gives_back_its_rows(data: st.DataObject, arity: int, with_present: bool) -> None:
    rows = rows_of(data.draw(states(arity)), arity)
    present = np.arange(len(rows)).astype(np.int8) % 3 - 1 if with_present else None
    decoded, decoded_present = decode_block(encode_block(rows, present))
    assert content_of(decoded) == content_of(rows)
    assert (decoded_present is None) == (present is None)
    assert present is None or (decoded_present == present).all()


def test_block_size_follows_the_range() -> None:
    def size(codes: list[list[int]]) -> int:
        n = len(codes)
        return len(
            encode_block(
                Rows(
                    np.array(codes), np.ones(n, np.int64), *[np.zeros(n, np.bool_)] * 2, np.zeros(n, np.int64)
                )
            )
        )

    # By hand: 256 rows; the first column needs 1 byte a row, the second 0, 2 or 8.
    head = size([[0, 0]])
    assert size([[i, 5] for i in range(256)]) == head + 256
    assert size([[i, 257 * i] for i in range(256)]) == head + 256 + 512
    assert size([[i, 2**62 * (i % 2)] for i in range(256)]) == head + 256 + 8 * 256


@pytest.mark.parametrize("damage", [b"", b"Zb1\0", b"XXXX" + bytes(40)])
def test_damaged_block_is_said_to_be(damage: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_block(damage)


def test_truncated_block_is_said_to_be() -> None:
    whole = encode_block(
        Rows(np.arange(10)[:, None], np.ones(10, np.int64), *[np.zeros(10, np.bool_)] * 2, np.arange(10))
    )
    for length in range(len(whole)):
        with pytest.raises(CorruptSnapshotError):
            decode_block(whole[:length])
