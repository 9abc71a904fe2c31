"""Comparisons of every type against Python's, in every operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions.evaluation import INT_MAX, INT_MIN, holds

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": st.one_of(st.sampled_from([INT_MIN, -1, 0, 1, INT_MAX]), st.integers(INT_MIN, INT_MAX)),
    "float": st.one_of(
        st.sampled_from([0.0, -0.0, 1.5, -1.5]), st.floats(allow_nan=False, allow_infinity=False)
    ),
    "symbol": st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
    "bool": st.booleans(),
}


@pytest.mark.parametrize("type_", sorted(VALUES))
@pytest.mark.parametrize("name", sorted(OPERATORS))
@given(data=st.data())
def test_comparison(name: str, type_: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(VALUES[type_], VALUES[type_]), min_size=1, max_size=8))
    a, b = zip(*rows, strict=True)
    assert holds(f"a {name} b", a=a, b=b) == [OPERATORS[name](x, y) for x, y in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('s < "b"', [True, True, True, False, False, False]),
        ('"b" <= s', [False, False, False, True, True, True]),
        ('s != "a"', [True, True, False, True, True, True]),
        ('max(s, "b") = s', [False, False, False, True, True, True]),
        ('min(s, "b") = s', [True, True, True, True, False, False]),
    ],
)
def test_symbols_in_the_order_of_code_points(text: str, expected: list[bool]) -> None:
    # U+FFFF is before U+1F600, which UTF-16 would have the other way round.
    assert holds(text, s=["", "B", "a", "b", "\uffff", "😀"]) == expected
    assert holds('s < "😀"', s=["\uffff"]) == [True]


def test_constants_only() -> None:
    assert holds("1 + 1 = 2", x=[1, 2, 3]) == [True, True, True]
    assert holds('"b" < "a"', x=[1, 2]) == [False, False]
    assert holds("2.0 > 1.0") == [True]


def test_a_variable_twice() -> None:
    assert holds("x * x = x", x=[0, 1, 2]) == [True, True, False]
