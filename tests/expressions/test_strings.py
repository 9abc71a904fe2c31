"""Functors and conditions on symbols: tables by hand, and properties against Python's strings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.data.values import Value
from engine.errors import EvaluationError
from engine.expressions import strings
from tests.expressions.evaluation import INT_MAX, INT_MIN, holds, term

symbols = st.one_of(st.text("ab", max_size=3), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
pairs = st.lists(st.tuples(symbols, symbols), min_size=1, max_size=8)
SMALL = st.integers(-3, 6)


@given(rows=pairs)
def test_cat_and_strlen(rows: list[tuple[str, str]]) -> None:
    a, b = zip(*rows, strict=True)
    assert term('cat(a, "-", b, a)', a=a, b=b) == [f"{x}-{y}{x}" for x, y in rows]
    assert term("strlen(cat(a, b))", a=a, b=b) == [len(x) + len(y) for x, y in rows]


@given(rows=st.lists(st.tuples(symbols, SMALL, SMALL), min_size=1, max_size=8))
def test_substr(rows: list[tuple[str, int, int]]) -> None:
    s, start, length = zip(*rows, strict=True)
    expected = [
        "" if i < 0 or i > len(x) else x[i:] if n < 0 else "".join(x[k] for k in range(i, min(i + n, len(x))))
        for x, i, n in rows
    ]
    assert term("substr(s, i, n)", s=s, i=start, n=length) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('cat("a", "b")', "ab"),
        ('cat("", "", "")', ""),
        ('strlen("")', 0),
        ('strlen("aé€😀")', 4),
        ('substr("hello", 1, 3)', "ell"),
        ('substr("hello", 3, 99)', "lo"),
        ('substr("hello", 5, 1)', ""),
        ('substr("hello", 6, 1)', ""),
        ('substr("hello", -1, 3)', ""),
        ('substr("hello", 1, -1)', "ello"),
        ('substr("hello", 1, 0)', ""),
        (f'substr("hello", 1, {INT_MAX})', "ello"),
        (f'substr("hello", {INT_MAX}, 1)', ""),
        ('substr("aé€😀", 2, 2)', "€😀"),
        ('to_number("42")', 42),
        ('to_number("-007")', -7),
        ('to_number("+5")', 5),
        ('to_number("  5")', 5),
        ('to_number("-0")', 0),
        (f'to_number("{INT_MAX}")', INT_MAX),
        (f'to_number("{INT_MIN}")', INT_MIN),
        (f'to_number("{"0" * 200}1")', 1),
        ('to_float("1.5")', 1.5),
        ('to_float("-.5e1")', -5.0),
        ('to_float("3")', 3.0),
        ('to_float("1e-999")', 0.0),
        ("to_string(-42)", "-42"),
        ("to_string(1.5)", "1.500000"),
        ("to_string(1e20)", "100000000000000000000.000000"),
        ("to_string(true)", "true"),
        ("to_string(false)", "false"),
        ('to_string("a")', "a"),
        ('max("a", "B", "ab")', "ab"),
        ('min("b", "a", "B")', "B"),
        ("max(true, false)", True),
        ("min(true, false)", False),
    ],
)
def test_by_hand(text: str, value: Value) -> None:
    assert term(text) == [value]
    assert type(term(text)[0]) is type(value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "abc", "12abc", "1.5", "0x1F", "5 ", "- 5", "--5", "1_000", "٣", str(2**63), "9" * 5000, "1\n"],
)
def test_no_number(text: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        term("to_number(s)", s=["1", text])
    assert caught.value.detail["operands"] == [text]


@pytest.mark.parametrize(
    "text", ["", ".", "e5", "nan", "inf", "-Infinity", "1e999", "1.5x", "0x1p3", "1_0.0", "1e", "1.0 "]
)
def test_no_float(text: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        term("to_float(s)", s=["1", text])
    assert caught.value.detail["operands"] == [text]


@given(st.lists(st.integers(INT_MIN, INT_MAX), min_size=1))
def test_numbers_survive_text(values: list[int]) -> None:
    assert term("to_number(to_string(a))", a=values) == values


@given(rows=pairs)
def test_contains(rows: list[tuple[str, str]]) -> None:
    a, b = zip(*rows, strict=True)
    assert holds("contains(a, b)", a=a, b=b) == [x in y for x, y in rows]
    assert holds("!contains(a, b)", a=a, b=b) == [x not in y for x, y in rows]
    assert holds('contains("a", b)', b=b) == ["a" in y for y in b]


# Patterns that RE2 and Python read alike.
PATTERNS = ["", "a", "a|b", "a*b?", "(ab)+", "[^a]", ".", ".*b", "a{2}", "(a|b){1,2}", r"\.", "a|", "(a+)+b"]


@given(st.lists(st.tuples(st.sampled_from(PATTERNS), st.text("ab.c", max_size=4)), min_size=1, max_size=8))
def test_match(rows: list[tuple[str, str]]) -> None:
    p, s = zip(*rows, strict=True)
    expected = [re.fullmatch(pattern, text) is not None for pattern, text in rows]
    assert holds("match(p, s)", p=p, s=s) == expected
    assert holds("!match(p, s)", p=p, s=s) == [not found for found in expected]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a.c", "abc", True),
        ("a.c", "xabc", False),
        ("a.c", "abcx", False),
        ("a.c", "a\nc", False),
        (".", "é", True),
        ("..", "😀", False),
        ("[[:alpha:]]+", "abc", True),
        ("a|ab", "ab", True),
        (r"\d+", "12", True),
        (r"\d+", "٣", False),
        ("a$", "a\n", False),
        ("(a+)+b", "a" * 2000, False),
    ],
)
def test_match_by_hand(pattern: str, text: str, found: bool) -> None:
    assert holds("match(p, s)", p=[pattern], s=[text]) == [found]


@pytest.mark.parametrize("pattern", ["(", "[", "a**", "a)|(b", r"(a)\1", "(?=a)", "a{2000}", r"\A(?:", "*"])
def test_a_bad_pattern_is_false_and_so_is_its_negation(
    pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Souffle. The warning comes once for a pattern."""
    strings._warn_of.cache_clear()
    for _ in range(2):
        assert holds("match(p, s)", p=["a", pattern, "a"], s=["a", "b", "c"]) == [True, False, False]
        assert holds("!match(p, s)", p=["a", pattern, "a"], s=["a", "b", "c"]) == [False, False, True]
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("zedlog.evaluation", "WARNING")
    assert repr(pattern) in warning.getMessage()


def test_match_of_what_is_no_unicode() -> None:
    with pytest.raises(EvaluationError, match="not valid Unicode"):
        holds("match(p, s)", p=["a"], s=["\ud800"])


def test_ord_is_the_code_in_the_table() -> None:
    table = SymbolTable(["z", "y"])
    assert term("ord(s)", table, s=["y", "z", "new"]) == [1, 0, 2]
    assert term("ord(cat(s, s))", table, s=["y"]) == [3]
    assert table.text(3) == "yy"


def test_a_text_stays_equal_to_itself_when_ord_interns_it() -> None:
    text = 'ord(cat(s, "!")) * strlen(cat(s, "!")) + ord(cat(s, "!"))'
    assert term(text, SymbolTable(["a"]), s=["a"]) == [1 * 2 + 1]
