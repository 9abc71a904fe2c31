"""Distinct rows against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.expressions.distinct import distinct_rows, ranks, sorted_distinct
from engine.expressions.texts import Texts
from tests.expressions.evaluation import INT_MAX, INT_MIN

codes = st.one_of(st.integers(-2, 3), st.sampled_from([INT_MIN, INT_MAX]))


@given(st.lists(st.tuples(codes, codes, codes), min_size=1, max_size=12))
def test_distinct_rows(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    expected: dict[tuple[int, int, int], int] = {}
    for i, row in enumerate(rows):
        expected.setdefault(row, i)
    first, place = distinct_rows(columns)
    assert first.tolist() == list(expected.values())
    assert [rows[i] for i in first[place].tolist()] == rows
    constant = np.array([7], np.int64)
    assert distinct_rows([constant, *columns])[0].tolist() == first.tolist()
    assert distinct_rows([constant, constant])[0].tolist() == [0]


@pytest.mark.parametrize(
    "column", [[5, 3, 5, 4], [5, 10**6, 5, -(10**6)], [INT_MAX, INT_MIN, 0, 0], [0, 0, 0, 0]]
)
def test_sorted_distinct(column: list[int]) -> None:
    values, place = sorted_distinct(np.array(column, np.int64))
    assert values.tolist() == sorted(set(column))
    assert values[place].tolist() == column


@given(st.lists(st.text(max_size=3), min_size=1), st.lists(st.text(max_size=3), min_size=1))
def test_ranks_are_in_the_order_of_the_texts(left: list[str], right: list[str]) -> None:
    texts = Texts(SymbolTable(["b", "a"]))
    a, b = ranks(texts, [texts.intern_all(left), texts.intern_all(right)])
    assert [[x < y for y in b.tolist()] for x in a.tolist()] == [[x < y for y in right] for x in left]
