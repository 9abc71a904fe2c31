"""Operators on numbers against Python's integers, with all the edges of 64 bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import EvaluationError
from tests.expressions.evaluation import INT_MAX, INT_MIN, term

EDGES = [INT_MIN, INT_MIN + 1, -(2**32), -64, -2, -1, 0, 1, 2, 3, 63, 64, 2**31, 2**32, 3037000500, INT_MAX]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(-100, 100), st.integers(INT_MIN, INT_MAX))
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6)


def truncated(a: int, b: int) -> int:
    """C's division."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def power(a: int, b: int) -> int:
    if b < 0:
        raise ArithmeticError
    # Python would compute millions of digits.
    return a**b if abs(a) <= 1 or b <= 64 else 2**64


def signed(bits: int) -> int:
    """The number that the lowest 64 bits mean."""
    return (bits + 2**63) % 2**64 - 2**63


BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": truncated,
    "%": lambda a, b: a - truncated(a, b) * b,
    "^": power,
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
    "land": lambda a, b: int(bool(a) and bool(b)),
    "lor": lambda a, b: int(bool(a) or bool(b)),
    "lxor": lambda a, b: int(bool(a) is not bool(b)),
    "bshl": lambda a, b: signed(a << (b % 64)),
    "bshr": lambda a, b: a >> (b % 64),
}
UNARY: dict[str, Callable[[int], int]] = {
    "-": lambda a: -a,
    "bnot": lambda a: ~a,
    "lnot": lambda a: int(not a),
}


def exact(compute: Callable[..., int], *operands: int) -> int | None:
    """The result, or None where there is none in 64 bits."""
    try:
        result = compute(*operands)
    except ArithmeticError:
        return None
    return result if INT_MIN <= result <= INT_MAX else None


def first_without(expected: list[int | None]) -> int:
    return next(i for i, value in enumerate(expected) if value is None)


@pytest.mark.parametrize("operator", sorted(BINARY))
@given(rows=rows)
@example(rows=[(INT_MIN, -1)])
@example(rows=[(-2, 63)])
@example(rows=[(2, 63)])
@example(rows=[(7, 0), (INT_MIN, -1)])
@example(rows=[(1, 1), (INT_MAX, INT_MAX)])
def test_binary(operator: str, rows: list[tuple[int, int]]) -> None:
    a, b = zip(*rows, strict=True)
    expected = [exact(BINARY[operator], x, y) for x, y in rows]
    if None in expected:
        with pytest.raises(EvaluationError) as caught:
            term(f"a {operator} b", a=a, b=b)
        assert caught.value.detail["operands"] == list(rows[first_without(expected)])
    else:
        assert term(f"a {operator} b", a=a, b=b) == expected


@pytest.mark.parametrize("operator", sorted(BINARY))
@given(a=st.lists(numbers, min_size=1, max_size=4), b=numbers)
def test_binary_with_a_constant(operator: str, a: list[int], b: int) -> None:
    expected = [exact(BINARY[operator], x, b) for x in a]
    # In parentheses, for a ^ -1 is no term.
    if None in expected:
        with pytest.raises(EvaluationError) as caught:
            term(f"a {operator} ({b})", a=a)
        assert caught.value.detail["binding"] == {"a": a[first_without(expected)]}
    else:
        assert term(f"a {operator} ({b})", a=a) == expected


@pytest.mark.parametrize("operator", sorted(UNARY))
@given(a=st.lists(numbers, min_size=1, max_size=6))
def test_unary(operator: str, a: list[int]) -> None:
    expected = [exact(UNARY[operator], x) for x in a]
    if None in expected:
        with pytest.raises(EvaluationError) as caught:
            term(f"{operator} a", a=a)
        assert caught.value.detail["operands"] == [a[first_without(expected)]]
    else:
        assert term(f"{operator} a", a=a) == expected


@given(rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6))
def test_min_and_max(rows: list[tuple[int, int, int]]) -> None:
    a, b, c = zip(*rows, strict=True)
    assert term("min(a, b, c)", a=a, b=b, c=c) == [min(row) for row in rows]
    assert term("max(a, b, 5)", a=a, b=b) == [max(row[0], row[1], 5) for row in rows]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / (-2)", -3),
        ("-7 / (-2)", 3),
        ("7 % (-2)", 1),
        ("-7 % 2", -1),
        (f"({INT_MIN}) % (-1)", 0),
        ("0 ^ 0", 1),
        ("(-2) ^ 63", INT_MIN),
        ("(-3) ^ 3", -27),
        (f"(-1) ^ {INT_MAX}", -1),
        (f"0 ^ {INT_MAX}", 0),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("(-2) ^ 2", 4),
        ("1 bshl 63", INT_MIN),
        ("1 bshl 64", 1),
        ("1 bshl (-1)", INT_MIN),
        ("3 bshl 63", INT_MIN),
        ("-1 bshr 63", -1),
        ("-8 bshr 65", -4),
        ("6 band 3 bor 8", 10),
        ("6 bxor 3", 5),
        ("bnot 0", -1),
        ("1 + 2 * 3 - 4", 3),
    ],
)
def test_by_hand(text: str, value: int) -> None:
    assert term(text) == [value]


def test_overflow_in_the_middle_is_found_though_the_end_would_fit() -> None:
    with pytest.raises(EvaluationError) as caught:
        term("a * 2 - a", a=[1, 2**62])
    assert caught.value.detail["operands"] == [2**62, 2]
