"""Results as lines: order, escaping, headers; and that what is written reads back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.data.values import Value, encode_value
from engine.files import writing
from engine.files.layout import Layout
from engine.files.reading import read_facts
from engine.files.writing import SymbolTexts, write_tuples
from engine.language.schema import Column, ColumnType, Schema

S, N, F, B = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL
PLAIN = Layout("r.csv")


def schema(*types: ColumnType) -> Schema:
    return Schema("r", tuple(Column(f"c{i}", kind) for i, kind in enumerate(types)), declared=True)


def written(rows: list[tuple[Value, ...]], *types: ColumnType, layout: Layout = PLAIN) -> str:
    symbols = SymbolTable(["unused"])
    codes = np.array([[encode_value(v, symbols) for v in row] for row in rows], np.int64)
    codes = codes.reshape(len(rows), len(types))
    blocks = write_tuples(codes, schema(*types), SymbolTexts(symbols.since(0)), layout)
    return b"".join(blocks).decode()


def test_numbers_are_sorted_by_size() -> None:
    assert written([(10, 1), (-5, 2), (9, 3), (9, -3)], N, N) == "-5\t2\n9\t-3\n9\t3\n10\t1\n"


def test_symbols_are_sorted_by_code_point_and_stand_as_they_are() -> None:
    rows: list[tuple[Value, ...]] = [("b\tc",), ('"',), ("é",), ("B",), ("",), ("\\n",)]
    assert written(rows, S) == '\n"\nB\n\\n\nb\tc\né\n'


def test_floats_have_the_digits_that_souffle_writes() -> None:
    rows: list[tuple[Value, ...]] = [(0.1,), (1.0,), (-2.5,), (1e100,), (1 / 3,)]
    expected = "-2.5\n0.10000000000000001\n0.33333333333333331\n1\n1e+100\n"
    assert written(rows, F) == expected


def test_bools() -> None:
    assert written([(True,), (False,)], B) == "false\ntrue\n"


def test_headers_and_delimiter() -> None:
    assert written([("a", 1)], S, N, layout=Layout("f", headers=True, delimiter=" | ")) == "c0 | c1\na | 1\n"


def test_rfc4180_quotes_symbols() -> None:
    layout = Layout("f", rfc4180=True, delimiter=",")
    assert written([('say "hi"', 1), ("a,b", 2)], S, N, layout=layout) == '"a,b",2\n"say ""hi""",1\n'


def test_nothing_and_the_nullary_relation() -> None:
    assert written([], S, N) == ""
    assert written([()]) == "()\n"
    assert written([]) == ""


def test_blocks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_BLOCK", 3)
    rows: list[tuple[Value, ...]] = [(i, f"s{i}") for i in range(10)]
    assert written(rows[::-1], N, S) == "".join(f"{i}\ts{i}\n" for i in range(10))


ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
        st.booleans(),
    ),
    unique=True,
    max_size=8,
)


@given(ROWS)
def test_what_is_written_under_rfc4180_reads_back(rows: list[tuple[str, int, float, bool]]) -> None:
    layout = Layout("f", rfc4180=True, delimiter=",")
    text = written(list(rows), S, N, F, B, layout=layout)
    table = read_facts(text.encode(), "f", schema(S, N, F, B), layout)
    assert list(table.tuples()) == sorted(rows)


TEXTS = [
    "",
    "1",
    "-0",
    "true",
    "null",
    "1e3",
    '"',
    '""',
    "a,b",
    "a\\n",
    "é\U0001f600",
    "\x00",
    "\ufeffa",
    " a ",
    "a\rb",
]
QUOTED = [*TEXTS, "a\tb", "a\nb", "a\r\nb", "\r", "\n"]
NUMBERS = [-(2**63), 2**63 - 1, 0, 2**53 + 1]
FLOATS = [5e-324, -1.7976931348623157e308, 1e16, 99999999999999984.0, 2.0, 0.1, 0.0]


@pytest.mark.parametrize(
    ("layout", "texts"), [(PLAIN, TEXTS), (Layout("f", rfc4180=True, delimiter=","), QUOTED)]
)
def test_odd_values_of_each_type_read_back(layout: Layout, texts: list[str]) -> None:
    rows: list[tuple[Value, ...]] = [
        (i, text, NUMBERS[i % len(NUMBERS)], FLOATS[i % len(FLOATS)], i % 2 == 0)
        for i, text in enumerate(texts)
    ]
    text = written(rows, N, S, N, F, B, layout=layout)
    table = read_facts(text.encode(), "f", schema(N, S, N, F, B), layout)
    assert list(table.tuples()) == rows
