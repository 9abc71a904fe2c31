"""What an `EvaluationError` says."""

from __future__ import annotations

import pickle

import pytest

from engine.data.symbols import SymbolTable
from engine.data.values import encode_column
from engine.errors import EvaluationError
from engine.language.schema import ColumnType
from tests.expressions.evaluation import INT_MAX, INT_MIN, condition, expression, holds, term


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
            f'to_number("x{INT_MAX}") has no value, because the text is not a number '
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
        holds('match("a", s)', s=["\ud800"])
    assert caught.value.detail["term"] == 'match("a", s)'
    assert caught.value.detail["operands"] == ["a", "\ud800"]


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


def test_the_rows_that_have_a_value_are_told_apart_whatever_the_reasons_of_the_others() -> None:
    columns = {
        "n": encode_column([1, INT_MAX, 8, 6, 9], ColumnType.NUMBER, SymbolTable()),
        "d": encode_column([2, 1, 0, 3, -2], ColumnType.NUMBER, SymbolTable()),
    }
    types = {"n": ColumnType.NUMBER, "d": ColumnType.NUMBER}
    values, rows = expression("2 ^ (n / d + 1)", types).where_defined(columns, 5, SymbolTable())
    assert rows is not None
    assert (values.tolist(), rows.tolist()) == ([2, 8], [0, 3])
    mask, rows = condition("n / d > 0", types).where_defined(columns, 5, SymbolTable())
    assert rows is not None
    assert (mask.tolist(), rows.tolist()) == ([False, True, True, False], [0, 1, 3, 4])
    values, rows = expression("n bor d", types).where_defined(columns, 5, SymbolTable())
    assert rows is None
    assert len(values) == 5
    values, rows = expression("1 / 0", {}).where_defined({}, 5, SymbolTable())
    assert rows is not None
    assert (len(values), len(rows)) == (0, 0)


def test_of_texts_only_those_without_a_value_are_left_out() -> None:
    symbols = SymbolTable()
    texts = ["12", "x", "12", "", "\ud800", "[a"]
    # Half a character is refused as a value of a fact; an older state may hold it.
    columns = {"s": symbols.intern_all(texts)}
    types = {"s": ColumnType.SYMBOL}
    before = len(symbols)
    values, rows = expression('cat(to_string(to_number(s)), "!")', types).where_defined(columns, 6, symbols)
    assert rows is not None
    assert rows.tolist() == [0, 2]
    assert symbols.texts(values) == ["12!", "12!"]
    assert len(symbols) == before + 1
    # A bad pattern is false; a text that is none has no value.
    mask, rows = condition('match(s, "12")', types).where_defined(columns, 6, symbols)
    assert (mask.tolist(), rows) == ([True, False, True, False, False, False], None)
    mask, rows = condition('match("12", s)', types).where_defined(columns, 6, symbols)
    assert rows is not None
    assert (mask.tolist(), rows.tolist()) == ([True, False, True, False, False], [0, 1, 2, 3, 5])
