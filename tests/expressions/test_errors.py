"""What an `EvaluationError` says."""

from __future__ import annotations

import pickle

import pytest

from engine.errors import EvaluationError
from engine.symbols import SymbolTable
from tests.expressions.evaluation import INT_MAX, INT_MIN, holds, term


def test_everything_of_the_first_row_without_a_value() -> None:
    with pytest.raises(EvaluationError) as caught:
        term(
            "n / d + 1", n=[1, 7, 8], d=[2, 0, 0], name=["a", "b", "c"], share=[0.5, 1.5, 2.5], on=[True] * 3
        )
    error = caught.value
    assert error.problem() == {
        "code": "evaluation_error",
        "message": '7 / 0 divides by zero (in n / d, where n = 7, d = 0, name = "b", share = 1.5, on = true)',
        "operation": "/",
        "operands": [7, 0],
        "binding": {"n": 7, "d": 0, "name": "b", "share": 1.5, "on": True},
        "term": "n / d",
        "reason": "divides by zero",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1", f"{INT_MAX} + 1 is outside of the range of 64-bit numbers (in x + 1, where x = {INT_MAX})"),
        (
            "0 - x - 2",
            f"{-INT_MAX} - 2 is outside of the range of 64-bit numbers (in 0 - x - 2, where x = {INT_MAX})",
        ),
        (
            "x * x",
            f"{INT_MAX} * {INT_MAX} is outside of the range of 64-bit numbers (in x * x, where x = {INT_MAX})",
        ),
        ("2 ^ (-x)", f"2 ^ {-INT_MAX} has a negative exponent (in 2 ^ (-x), where x = {INT_MAX})"),
        ("x % (x - x)", f"{INT_MAX} % 0 divides by zero (in x % (x - x), where x = {INT_MAX})"),
        (
            'to_number(cat("x", to_string(x)))',
            f'to_number("x{INT_MAX}") has no value, because the text is no number '
            f'(in to_number(cat("x", to_string(x))), where x = {INT_MAX})',
        ),
    ],
)
def test_message(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        term(text, x=[INT_MAX])
    assert str(caught.value) == message


def test_without_variables() -> None:
    with pytest.raises(EvaluationError) as caught:
        term(f"-({INT_MIN} + 0)")
    assert str(caught.value) == f"-({INT_MIN}) is outside of the range of 64-bit numbers"
    assert caught.value.detail["binding"] == {}


def test_constant_subterm_that_fails_is_shown_with_the_first_row() -> None:
    with pytest.raises(EvaluationError) as caught:
        term("x + 1 / 0", x=[3, 4])
    assert caught.value.detail["binding"] == {"x": 3}


def test_in_a_condition() -> None:
    with pytest.raises(EvaluationError) as caught:
        holds("to_number(s) > 3", s=["4", "four"])
    assert caught.value.detail["operation"] == "to_number"
    with pytest.raises(EvaluationError) as caught:
        holds('match("(", s)', s=["a"])
    assert caught.value.detail["term"] == 'match("(", s)'
    assert caught.value.detail["operands"] == ["(", "a"]


def test_long_values_are_cut_in_the_message_only() -> None:
    with pytest.raises(EvaluationError) as caught:
        term("to_number(s)", s=["x" * 10_000])
    assert len(str(caught.value)) < 300
    assert caught.value.detail["operands"] == ["x" * 10_000]


def test_a_failed_evaluation_interns_nothing() -> None:
    table = SymbolTable(["b", "a"])
    with pytest.raises(EvaluationError):
        term('cat(s, to_string(1 / to_number("0")))', table, s=["b", "a"])
    assert len(table) == 2


def test_pickles() -> None:
    with pytest.raises(EvaluationError) as caught:
        term("x / 0", x=[1])
    assert pickle.loads(pickle.dumps(caught.value)).problem() == caught.value.problem()
