"""Operators on floats against Python's floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.data.values import encode_column
from engine.errors import EvaluationError
from engine.language.schema import ColumnType
from tests.expressions.evaluation import expression, holds, term

EDGES = [0.0, 1.0, -1.0, 0.5, -2.5, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 1e-200]
floats = st.one_of(st.sampled_from(EDGES), st.floats(allow_nan=False, allow_infinity=False))
rows = st.lists(st.tuples(floats, floats), min_size=1, max_size=9)


def power(a: float, b: float) -> float:
    return math.pow(a, b)


BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": power,
}


def real(compute: Callable[[float, float], float], a: float, b: float) -> float | None:
    """The result, or None where it is not finite."""
    try:
        result = compute(a, b)
    except (ArithmeticError, ValueError):
        return None
    return result if math.isfinite(result) else None


@pytest.mark.parametrize("operator", sorted(BINARY))
@given(rows=rows)
@example(rows=[(1.0, 1.0), (1.0, 0.0)])
@example(rows=[(1e308, 10.0), (1e308, 1e308)])
@example(rows=[(-2.0, 0.5)])
@example(rows=[(0.0, -1.0)])
def test_binary(operator: str, rows: list[tuple[float, float]]) -> None:
    a, b = zip(*rows, strict=True)
    expected = [real(BINARY[operator], x, y) for x, y in rows]
    if None in expected:
        with pytest.raises(EvaluationError) as caught:
            term(f"a {operator} b", a=a, b=b)
        bad = next(i for i, value in enumerate(expected) if value is None)
        assert caught.value.detail["operands"] == [x + 0.0 for x in rows[bad]]
    elif operator == "^":
        # The libraries round the last digit of a power differently.
        assert term("a ^ b", a=a, b=b) == pytest.approx(expected, rel=1e-14, abs=1e-320)
    else:
        assert term(f"a {operator} b", a=a, b=b) == expected


@given(a=st.lists(floats, min_size=1))
def test_negation(a: list[float]) -> None:
    assert term("-a", a=a) == [-x for x in a]


@given(rows=rows)
def test_min_and_max(rows: list[tuple[float, float]]) -> None:
    a, b = zip(*rows, strict=True)
    assert term("min(a, b, 0.5)", a=a, b=b) == [min(x, y, 0.5) for x, y in rows]
    assert term("max(a, b)", a=a, b=b) == [max(x, y) for x, y in rows]


@pytest.mark.parametrize("text", ["-a", "a * (-1.0)", "a / (-5.0)", "-5e-324 / 10.0 + a", 'to_float("-0.0")'])
def test_negative_zero_is_zero(text: str) -> None:
    table = SymbolTable()
    columns = {"a": encode_column([0.0], ColumnType.FLOAT, table)}
    assert expression(text, {"a": ColumnType.FLOAT}).evaluate(columns, 1, table).tolist() == [0]
    assert holds(f"{text} = 0.0", a=[0.0]) == [True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a / 0.0", "divides by zero"),
        ("0.0 ^ (-a)", "divides by zero"),
        ("a * 1e308 * 10.0", "is outside of the range of 64-bit floats"),
        ("(-8.0) ^ (a / 3.0)", "is not a real number"),
    ],
)
def test_not_finite(text: str, reason: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        term(text, a=[1.0])
    assert caught.value.detail["reason"] == reason


def test_infinity_that_an_older_state_holds_passes_through_but_is_no_result() -> None:
    column = np.array([math.inf, -math.inf]).view(np.int64)
    least = expression("min(a, -a)", {"a": ColumnType.FLOAT}).evaluate({"a": column}, 2, SymbolTable())
    assert least.view(np.float64).tolist() == [-math.inf, -math.inf]
    with pytest.raises(EvaluationError, match=r"inf \+ 1\.0 is outside of the range"):
        expression("a + 1.0", {"a": ColumnType.FLOAT}).evaluate({"a": column}, 2, SymbolTable())


def test_a_power_does_not_depend_on_its_neighbours_or_the_memory_layout() -> None:
    rng = np.random.default_rng(7)
    base, exponent = rng.uniform(0.1, 50, 100), rng.uniform(-9, 9, 100)
    together = term("a ^ b", a=base.tolist(), b=exponent.tolist())
    alone = [term("a ^ b", a=[x], b=[y])[0] for x, y in zip(base.tolist(), exponent.tolist(), strict=True)]
    table = np.column_stack((base, exponent)).view(np.int64)
    compiled = expression("a ^ b", {"a": ColumnType.FLOAT, "b": ColumnType.FLOAT})
    strided = compiled.evaluate({"a": table[:, 0], "b": table[:, 1]}, 100, SymbolTable())
    assert together == alone == strided.view(np.float64).tolist()
