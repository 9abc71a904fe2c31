"""Fact files: what is read, what is refused, and that the fast and the careful way agree."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.delimited import Reader
from engine.errors import InvalidValueError
from engine.files.layout import Layout
from engine.files.reading import read_facts
from engine.language.schema import Column, ColumnType, Schema

S, N, F, B = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL
PLAIN = Layout("r.facts")


def schema(*types: ColumnType) -> Schema:
    return Schema("r", tuple(Column(f"c{i}", kind) for i, kind in enumerate(types)), declared=True)


def read(data: str | bytes, *types: ColumnType, layout: Layout = PLAIN) -> list[tuple[Any, ...]]:
    raw = data.encode() if isinstance(data, str) else data
    table = read_facts(raw, "facts/r.facts", schema(*types), layout)
    rows = list(table.tuples())
    assert len(rows) == table.length
    return rows


def test_every_type() -> None:
    text = "a b\t-7\t2.5\ttrue\n\t+0012\t1e3\tfalse\n"
    assert read(text, S, N, F, B) == [("a b", -7, 2.5, True), ("", 12, 1000.0, False)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", []),
        ("a", [("a",)]),
        ("a\n", [("a",)]),
        ("a\r\nb\r\n", [("a",), ("b",)]),
        ("a\rb\n", [("a\rb",)]),
        ("a\r\r\n", [("a\r",)]),
        # A blank line is the empty symbol, as in Souffle; nothing is quoted, escaped or missing.
        ("a\n\nb\n", [("a",), ("",), ("b",)]),
        ('"a\n', [('"a',)]),
        ("\\t\n", [("\\t",)]),
        ("NULL\nNA\n", [("NULL",), ("NA",)]),
        ("\N{GREEK SMALL LETTER ALPHA}\N{SNOWMAN}\n", [("\N{GREEK SMALL LETTER ALPHA}\N{SNOWMAN}",)]),
        ("\ufeffa\n", [("a",)]),
    ],
)
def test_symbols_stand_as_they_are(text: str, rows: list[tuple[str]]) -> None:
    assert read(text, S) == rows


def test_numbers_have_64_bits() -> None:
    assert read("9223372036854775807\n-9223372036854775808\n", N) == [(2**63 - 1,), (-(2**63),)]


def test_white_space_before_a_number_is_skipped_as_by_stoll() -> None:
    assert read(" 5\t .5\n", N, F) == [(5, 0.5)]


@pytest.mark.parametrize(
    ("text", "types", "line", "column", "message"),
    [
        ("1\tx\n2\t3\n4\tab c\n", (N, S), None, None, None),
        ("1\n2\nx\n", (N,), 3, 1, "'x' is not a number"),
        ("1\t1\n2\t0x10\n", (N, N), 2, 2, "'0x10' is not a number"),
        ("1\t1\n2\t3 \n", (N, N), 2, 2, "'3 ' is not a number"),
        ("1\n9223372036854775808\n", (N,), 2, 1, "the number 9223372036854775808 does not fit into 64 bits"),
        ("a\t1.5\nb\tnan\n", (S, F), 2, 2, "'nan' is not a float"),
        ("1e999\n", (F,), 1, 1, "the float 1e999 does not fit into 64 bits"),
        ("0e9\n1e-999\n", (F,), 2, 1, "the float 1e-999 does not fit into 64 bits"),
        (
            "1\n18446744073709551615\n",
            (F,),
            2,
            1,
            "the number 18446744073709551615 does not fit into 64 bits",
        ),
        ("9007199254740992\n-9007199254740993\n", (F,), 2, 1, "no float is exactly the integer"),
        ("true\nTrue\n", (B,), 2, 1, "'True' is not a bool; write true or false"),
        ("1\n\n2\n", (N,), 2, 1, "'' is not a number"),
        (
            "a\tb\nc\n",
            (S, S),
            2,
            None,
            "1 field separated by tabs, but r(c0: symbol, c1: symbol) has 2",
        ),
        ("a\tb\tc\n", (S, S), 1, None, "3 fields separated by tabs"),
        ("a\tb\n\n", (S, S), 2, None, "1 field separated by tabs"),
        (b"a\nb\xff\n", (S,), 2, None, "byte 0xff is not UTF-8 text"),
        ("x\n", (), 1, None, "each line must be ()"),
    ],
)
def test_what_is_wrong_is_named(
    text: str | bytes,
    types: tuple[ColumnType, ...],
    line: int | None,
    column: int | None,
    message: str | None,
) -> None:
    if message is None:
        assert len(read(text, *types)) == 3
        return
    with pytest.raises(InvalidValueError) as caught:
        read(text, *types)
    place = f"facts/r.facts, line {line}" + (f", column {column} (c{column - 1}): " if column else ": ")
    assert str(caught.value).startswith(place)
    assert message in str(caught.value)
    assert caught.value.detail["file"] == "facts/r.facts"
    assert caught.value.detail["line"] == line
    assert caught.value.detail.get("column") == column


def test_nullary_relation() -> None:
    assert read("()\n") == [()]
    assert read("") == []


def test_delimiters() -> None:
    assert read("a,b\n", S, S, layout=Layout("f", delimiter=",")) == [("a", "b")]
    assert read("a::b:c\n", S, S, layout=Layout("f", delimiter="::")) == [("a", "b:c")]
    assert read("a|b\n", S, S, layout=Layout("f", delimiter="|")) == [("a", "b")]
    assert read("a§b\n", S, S, layout=Layout("f", delimiter="§")) == [("a", "b")]


def test_headers_are_skipped_and_counted() -> None:
    layout = Layout("f", headers=True)
    assert read("x\ty\n1\t2\n", N, N, layout=layout) == [(1, 2)]
    assert read("x\ty", N, N, layout=layout) == []
    with pytest.raises(InvalidValueError, match="line 3, column 1"):
        read("x\n1\nz\n", N, layout=layout)


def test_columns_are_picked_in_the_order_asked_for() -> None:
    layout = Layout("f", columns=(2, 0))
    assert read("1\tx\ta\n2\ty\tb\n", S, N, layout=layout) == [("a", 1), ("b", 2)]
    # A longer line is cut; the column that a message names is the file's.
    assert read("1\tx\ta\n2\ty\tb\tmore\n", S, N, layout=layout) == [("a", 1), ("b", 2)]
    with pytest.raises(InvalidValueError, match=r"line 2: 2 fields, but field 2 \(from 0\) is asked for"):
        read("1\tx\ta\n2\ty\n", S, N, layout=layout)
    with pytest.raises(InvalidValueError, match=r"line 1, column 1 \(c1\): 'no' is not a number"):
        read("no\tx\ta\n", S, N, layout=layout)


def test_rfc4180() -> None:
    layout = Layout("f", delimiter=",", rfc4180=True)
    assert read('"a,b",1\n"say ""hi""",2\nplain,3\n"",4\n', S, N, layout=layout) == [
        ("a,b", 1),
        ('say "hi"', 2),
        ("plain", 3),
        ("", 4),
    ]
    assert read('"two\nlines",1\nb,2\n', S, N, layout=layout) == [("two\nlines", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('a,1\n"b"c,2\n', "line 2: "),
        ('a,1\n"b,2\n', "line 2: "),
        ('"a\nb",1\n"c",x\n', r"line 3, column 2 \(c1\)"),
    ],
)
def test_rfc4180_is_strict(text: str, place: str) -> None:
    with pytest.raises(InvalidValueError, match=place):
        read(text, S, N, layout=Layout("f", delimiter=",", rfc4180=True))


def test_gzip_is_recognised() -> None:
    assert read(gzip.compress(b"1\n2\n"), N) == [(1,), (2,)]
    with pytest.raises(InvalidValueError, match="begins like a gzip file, but cannot be decompressed"):
        read(gzip.compress(b"1\n2\n")[:-4], N)


FIELD = st.text(
    st.characters(codec="utf-8", exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=4
)
NUMBER = st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), st.sampled_from(["+1", " 2", "x", "", "1e3"]))
FLOAT = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr), st.sampled_from(["1.", ".5", "-3", "inf"])
)


@given(
    st.lists(st.tuples(FIELD, NUMBER, FLOAT), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_differential_the_fast_way_and_the_careful_way(
    rows: list[tuple[str, str, str]], end: str, last: bool
) -> None:
    """The same tuples, or the same error."""
    data = end.join("\t".join(row) for row in rows) + (end if last and rows else "")

    def outcome() -> object:
        try:
            return repr(read(data, S, N, F))
        except InvalidValueError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "_regular", lambda *_: False)
        assert outcome() == found


def test_a_regular_file_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "_careful_rows", lambda _: iter(()))
    assert read("a\t1\t2.5\ttrue\r\nb\t2\t-1e-3\tfalse\r\n", S, N, F, B) == [
        ("a", 1, 2.5, True),
        ("b", 2, -0.001, False),
    ]
