"""What is written as a value: one rule, in Python and in pyarrow, value by value and by columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.delimited import ValueFault, Values, all_look_like, values_of
from engine.data.written import (
    FLOAT,
    LONG_INTEGER,
    NUMBER,
    PLAIN_FLOAT,
    PLAIN_NUMBER,
    MisfitError,
    NotAValueError,
    for_re2,
    looks_like,
    value_of,
)
from engine.language.schema import ColumnType

S, N, F, B = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL


@pytest.mark.parametrize(
    ("text", "kind", "value", "looks"),
    [
        ("7", N, 7, True),
        ("-0", N, 0, True),
        ("+007", N, 7, False),
        ("2.", F, 2.0, False),
        (".5", F, 0.5, False),
        ("-1e3", F, -1000.0, True),
        ("3", F, 3.0, True),
        ("true", B, True, True),
        ("", S, "", True),
    ],
)
def test_values(text: str, kind: ColumnType, value: object, looks: bool) -> None:
    found = value_of(text, kind)
    assert (found, type(found)) == (value, type(value))
    assert looks_like(text, kind) is looks


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("1.5", N, NotAValueError),
        (" 1", N, NotAValueError),
        ("1\n", N, NotAValueError),
        ("\u0661", N, NotAValueError),
        ("0x10", N, NotAValueError),
        ("nan", F, NotAValueError),
        ("1.5\n", F, NotAValueError),
        (".", F, NotAValueError),
        ("True", B, NotAValueError),
        ("9223372036854775808", N, MisfitError),
        ("9" * 5000, N, MisfitError),
        ("9007199254740993", F, MisfitError),
        ("1e-999", F, MisfitError),
    ],
)
def test_what_is_not_a_value(text: str, kind: ColumnType, error: type[NotAValueError]) -> None:
    with pytest.raises(NotAValueError) as caught:
        value_of(text, kind)
    assert type(caught.value) is error
    with pytest.raises(ValueFault) as fault:
        values_of(pa.array(["1" if kind in (N, F) else "true", text]), kind)
    assert (fault.value.position, str(fault.value)) == (1, str(caught.value))


TEXT = st.one_of(
    st.text("+-.0123456789eE ", max_size=8),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(["true", "false", "True", "", "1\n", "0" * 30 + "1"]),
)


def outcome(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except (NotAValueError, ValueFault) as error:
        return str(error)


def as_list(values: Values) -> list[Any]:
    return values if isinstance(values, list) else values.tolist()


@given(st.lists(TEXT, max_size=4), st.sampled_from([N, F, B]))
def test_differential_by_columns_and_one_by_one(texts: list[str], kind: ColumnType) -> None:
    column = pa.array(texts, pa.string())
    assert all_look_like(column, kind) == all(looks_like(text, kind) for text in texts)
    expected = outcome(lambda: [value_of(text, kind) for text in texts])
    assert outcome(lambda: as_list(values_of(column, kind))) == expected


@given(TEXT)
def test_the_patterns_mean_the_same_to_re2(text: str) -> None:
    for pattern in (NUMBER, FLOAT, PLAIN_NUMBER, PLAIN_FLOAT, LONG_INTEGER):
        matched = pc.match_substring_regex(pa.array([text]), for_re2(pattern))[0].as_py()
        assert matched == (re.fullmatch(pattern, text) is not None)
