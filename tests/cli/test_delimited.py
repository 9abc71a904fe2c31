"""Delimited files: what is detected, what is kept, and what is refused with its line."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data import delimited
from engine.data.delimited import Reader
from engine.language.schema import ColumnType
from service.delimited import (
    BadFile,
    FileColumns,
    delimiter_named,
    first_line,
    guess_delimiter,
    header_types,
    rows,
    survey,
)

SYMBOL, NUMBER, FLOAT, BOOL = ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL


def read(
    text: str | bytes, layout: FileColumns, types: tuple[ColumnType, ...] | None = None
) -> list[tuple[object, ...]]:
    file = io.BytesIO(text.encode() if isinstance(text, str) else text)
    return list(rows(file, layout, survey(file, layout, types).types))


COMMA, TAB, SPACE = FileColumns(","), FileColumns("\t"), FileColumns(" ")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "0"], NUMBER),
        (["9223372036854775807", "-9223372036854775808"], NUMBER),
        (["9223372036854775808", "x"], SYMBOL),
        (["9007199254740992", "0.5"], FLOAT),
        (["1", "2.5"], FLOAT),
        (["1e5"], FLOAT),
        (["1e999", "x"], SYMBOL),
        (["9007199254740993"], NUMBER),
        (["007"], SYMBOL),
        (["+1"], SYMBOL),
        (["-0"], NUMBER),
        (["1", "x"], SYMBOL),
        (["true", "false"], BOOL),
        (["true", "1"], SYMBOL),
        (["True"], SYMBOL),
        (["nan"], SYMBOL),
        (["\u0661"], SYMBOL),
        ([" 1"], SYMBOL),
    ],
)
def test_type_is_what_every_row_agrees_to(values: list[str], kind: ColumnType) -> None:
    text = "".join(f"{value}\tx\n" for value in values)
    assert survey(io.BytesIO(text.encode()), TAB).types == (kind, SYMBOL)


def test_values_have_their_types() -> None:
    assert read("a,1,2.5,true\nb,-3,4,false\n", COMMA) == [("a", 1, 2.5, True), ("b", -3, 4.0, False)]


def test_survey_knows_digest_rows_and_size() -> None:
    data = b"a,1\n\nb,2\n"
    found = survey(io.BytesIO(data), COMMA)
    assert (found.rows, found.size, found.digest) == (2, len(data), hashlib.sha256(data).hexdigest())


def test_header_names_the_columns_and_is_no_row() -> None:
    layout = FileColumns(",", header=True)
    file = io.BytesIO(b"from,to\n1,2\n")
    found = survey(file, layout)
    assert (found.names, found.types, found.rows) == (("from", "to"), (NUMBER, NUMBER), 1)
    assert list(rows(file, layout, found.types)) == [(1, 2)]


def test_columns_pick_and_reorder() -> None:
    assert read("4 5 a\n6 7 b\n", FileColumns(" ", columns=(1, 0))) == [(5, 4), (7, 6)]


def test_comma_files_quote_and_tab_files_do_not() -> None:
    assert read('"a,b","say ""hi"""\n"two\nlines",x\n', COMMA) == [("a,b", 'say "hi"'), ("two\nlines", "x")]
    assert read('"a\tb"\n', TAB) == [('"a', 'b"')]


def test_windows_line_ends_and_byte_order_mark() -> None:
    assert read(b"\xef\xbb\xbf1,2\r\n3,4\r\n", COMMA) == [(1, 2), (3, 4)]


def test_last_line_without_end() -> None:
    assert read("1,2\n3,4", COMMA) == [(1, 2), (3, 4)]


def test_empty_file_has_no_rows() -> None:
    found = survey(io.BytesIO(b""), COMMA)
    assert (found.rows, found.types) == (0, ())


@pytest.mark.parametrize(
    ("data", "layout", "types", "message"),
    [
        (b"a,b\nc\n", COMMA, None, "line 2: the number of fields is 1, but it is 2 in the first line"),
        (b"1,2\n3,x\n", COMMA, (NUMBER, NUMBER), "line 2, column 2: 'x' is not a number"),
        (b"1,2\n", COMMA, (NUMBER,), "line 1: 2 columns, but 1 types: number"),
        (b"1,2\n", FileColumns(",", columns=(2,)), None, "line 1: there is no column 3, only 2"),
        (b"a,b\nc,\xff\n", COMMA, None, "not UTF-8 text"),
        (b'"a,b\n', COMMA, None, "unexpected end of data"),
        (
            b"99999999999999999999\n",
            COMMA,
            (NUMBER,),
            "line 1, column 1: the number 99999999999999999999 does not fit",
        ),
        (b"9007199254740993\n", COMMA, (FLOAT,), "no float is exactly the integer 9007199254740993"),
    ],
)
def test_bad_files_are_refused_with_their_line(
    data: bytes, layout: FileColumns, types: tuple[ColumnType, ...] | None, message: str
) -> None:
    with pytest.raises(BadFile) as caught:
        survey(io.BytesIO(data), layout, types)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["18446744073709551615", "18446744073709551614"],
            "line 1, column 1: the number 18446744073709551615",
        ),
        (["1", "-9223372036854775809"], "line 2, column 1: the number -9223372036854775809 does not fit"),
        (
            ["1", "9223372036854775808", "1.5"],
            "line 2, column 1: the number 9223372036854775808 does not fit",
        ),
        (["0.5", "9007199254740993"], "line 2, column 1: no float is exactly the integer 9007199254740993"),
        (["-9007199254740993", "1e3"], "line 1, column 1: no float is exactly the integer -9007199254740993"),
        (["1.5", "1e999"], "line 2, column 1: the float 1e999 does not fit"),
        (["1.5", "1e-999"], "line 2, column 1: the float 1e-999 does not fit"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_unless_they_may_be_symbols(
    values: list[str], message: str
) -> None:
    text = "".join(f"{value},x\n" for value in values)
    with pytest.raises(BadFile, match="use --types with symbol") as caught:
        read(text, COMMA)
    assert message in str(caught.value)
    assert read(text, COMMA, (SYMBOL, SYMBOL)) == [(value, "x") for value in values]


def test_a_column_is_named_by_its_place_in_the_file() -> None:
    with pytest.raises(BadFile, match="line 1, column 3: the number"):
        read("a b 9223372036854775808\n", FileColumns(" ", columns=(2, 0)))


@pytest.mark.parametrize(
    ("line", "delimiter", "types"),
    [
        ("x:symbol,n:number", ",", (SYMBOL, NUMBER)),
        ('"x:symbol"\t"f:float"\t"b:bool"', "\t", (SYMBOL, FLOAT, BOOL)),
        ("x:symbol,n", ",", None),
        ("x:symbol,n:int", ",", None),
        (":symbol", ",", None),
        ("x,y", ",", None),
        ("", ",", None),
    ],
)
def test_a_header_may_say_types(line: str, delimiter: str, types: tuple[ColumnType, ...] | None) -> None:
    assert header_types(line, delimiter) == types


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_file_with_types_in_its_header_is_quoted_and_keeps_its_texts(delimiter: str) -> None:
    lines = ["x:symbol,n:number", '"1",1', '"",2', '"a,\t""b""\r\nc",3', "true,4"]
    text = "\n".join(line.replace(",", delimiter, 1) if i != 3 else line for i, line in enumerate(lines))
    text = text.replace('c",3', f'c"{delimiter}3')
    layout = FileColumns(delimiter, header=True, typed=True)
    assert survey(io.BytesIO(text.encode()), layout, (SYMBOL, NUMBER)).names == ("x", "n")
    expected = [("1", 1), ("", 2), ('a,\t"b"\r\nc', 3), ("true", 4)]
    assert read(text, layout, (SYMBOL, NUMBER)) == expected


@pytest.mark.parametrize(
    ("name", "line", "delimiter"),
    [
        ("edges.csv", "a;b", ","),
        ("edges.tsv", "a,b", "\t"),
        ("edge.facts", "a b", "\t"),
        ("graph.txt", "1 2 a", " "),
        ("graph.txt", "1\t2,3", "\t"),
        ("-", "a;b c", ";"),
        ("one", "a", ","),
    ],
)
def test_delimiter_is_guessed(name: str, line: str, delimiter: str) -> None:
    assert guess_delimiter(name, line) == delimiter


def test_delimiters_have_names() -> None:
    assert [delimiter_named(text) for text in ("tab", "\\t", "space", ",", "|")] == [
        "\t",
        "\t",
        " ",
        ",",
        "|",
    ]
    for wrong in ("", "ab", "\n", '"'):
        with pytest.raises(ValueError, match="one character"):
            delimiter_named(wrong)


def test_first_line_leaves_the_file_at_its_start() -> None:
    file = io.BytesIO(b"\xef\xbb\xbfa,b\r\nc,d\n")
    assert first_line(file) == "a,b"
    assert file.read(3) == b"\xef\xbb\xbf"


def test_a_stated_type_takes_what_a_guess_would_leave_a_symbol() -> None:
    assert survey(io.BytesIO(b"007,+1,.5\n"), COMMA).types == (SYMBOL, SYMBOL, SYMBOL)
    assert read("007,+1,.5\n", COMMA, (NUMBER, NUMBER, FLOAT)) == [(7, 1, 0.5)]


def test_rows_are_named_by_the_line_in_which_they_begin() -> None:
    with pytest.raises(BadFile, match="line 4, column 2: 'x' is not a number"):
        read('"two\nlines",1\n\n"a\nb",x\n', COMMA, (SYMBOL, NUMBER))
    with pytest.raises(BadFile, match="line 2, column 1: 'x' is not a number"):
        read("1\nx\n2,3\n", COMMA, (NUMBER,))
    with pytest.raises(BadFile, match="line 3: byte 0xff is not UTF-8 text"):
        read(b"1\n2\n\xff\n", COMMA)


def test_a_carriage_return_alone_ends_a_line_also_after_a_header() -> None:
    assert read("x\r1\r2\n3\n", FileColumns("\t", header=True)) == [(1,), (2,), (3,)]


PIECES = [
    "a",
    "1",
    "-2.5",
    "007",
    "true",
    '"',
    '"x,y"',
    ",",
    "\n",
    "\r\n",
    "\n\n",
    "\r",
    "\xe9",
    "1e999",
    "9223372036854775808",
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=14),
    st.sampled_from([COMMA, TAB, FileColumns(",", True), FileColumns(",", columns=(1, 0))]),
)
def test_differential_blocks_and_lines_come_to_the_same(pieces: list[str], layout: FileColumns) -> None:
    """However the file is cut into blocks, by pyarrow or line by line: the same tuples, or the same error."""
    data = "a,1\n" + "".join(pieces)

    def outcome() -> object:
        try:
            return repr(read(data, layout))
        except BadFile as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader.__init__, "__defaults__", (None, 1))
        assert outcome() == found
        patch.setattr(Reader, "_regular", lambda *_: False)
        assert outcome() == found


def test_a_large_file_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "_careful_rows", lambda _: iter(()))
    expected = [(f"name {i}", i, i / 4, i % 2 == 0) for i in range(30_000)]
    text = "".join(f"{name},{i},{f},{str(b).lower()}\n" for name, i, f, b in expected)
    assert len(text) > 2 * delimited.BLOCK_BYTES
    assert read(text, COMMA) == expected
