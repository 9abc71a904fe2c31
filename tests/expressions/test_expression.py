"""Compiled terms as such: random terms against a naive evaluator, rows of nothing, memory layout, pickles."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.data.values import decode_column
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.language.schema import ColumnType
from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Constant,
    HeadAggregate,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
)
from tests.expressions.evaluation import condition, encoded, expression, parsed, term
from tests.expressions.test_numbers import BINARY, UNARY, exact, numbers

NUMBER, SYMBOL, FLOAT = ColumnType.NUMBER, ColumnType.SYMBOL, ColumnType.FLOAT


def terms() -> st.SearchStrategy[Term]:
    leaves: st.SearchStrategy[Term] = st.one_of(
        st.sampled_from("xy").map(Variable), numbers.map(lambda value: Constant(value, NUMBER))
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(BinaryOperation, st.sampled_from(sorted(BINARY)), inner, inner),
            st.builds(UnaryOperation, st.sampled_from(sorted(UNARY)), inner),
        ),
        max_leaves=8,
    )


def naive(node: Term, row: dict[str, int]) -> int | None:
    match node:
        case Variable():
            return row[node.name]
        case Constant(value=int(value)):
            return value
        case BinaryOperation():
            left, right = naive(node.left, row), naive(node.right, row)
            return None if left is None or right is None else exact(BINARY[node.operator], left, right)
        case UnaryOperation():
            operand = naive(node.operand, row)
            return None if operand is None else exact(UNARY[node.operator], operand)
    raise AssertionError(node)


@given(terms(), st.lists(st.fixed_dictionaries({"x": numbers, "y": numbers}), min_size=1, max_size=5))
def test_oracle_random_terms(tree: Term, rows: list[dict[str, int]]) -> None:
    compiled = compile_term(tree, {"x": NUMBER, "y": NUMBER})
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in "xy"}
    expected = [naive(tree, row) for row in rows]
    if None in expected:
        with pytest.raises(EvaluationError) as caught:
            compiled.evaluate(columns, len(rows), SymbolTable())
        binding = caught.value.detail["binding"]
        assert any(row == binding for row, value in zip(rows, expected, strict=True) if value is None)
    else:
        assert compiled.evaluate(columns, len(rows), SymbolTable()).tolist() == expected


SYMBOLS = st.text("ab1", max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries({"s": SYMBOLS, "t": SYMBOLS, "n": st.integers(-2, 4)}), min_size=2, max_size=8
)


@pytest.mark.parametrize(
    "text",
    [
        "cat(s, t)",
        "substr(cat(s, t), n, 2)",
        "strlen(s) * n",
        "to_string(n)",
        "max(s, t)",
        'min(cat(s, "a"), cat(t, "a"))',
        "n ^ 3 - n",
        "to_float(to_string(n)) / 3.0",
    ],
)
@given(rows=ROWS)
def test_batch_vs_singletons(text: str, rows: list[dict[str, Any]]) -> None:
    columns = {name: [row[name] for row in rows] for name in ("s", "t", "n")}
    single = [term(text, **{name: [value] for name, value in row.items()})[0] for row in rows]
    assert term(text, **columns) == single


def test_strided_columns() -> None:
    table = np.arange(12, dtype=np.int64).reshape(4, 3)
    columns = {"x": table[:, 0], "y": table[:, 2]}
    compiled = expression("x * 10 + y", {"x": NUMBER, "y": NUMBER})
    assert compiled.evaluate(columns, 4, SymbolTable()).tolist() == [2, 35, 68, 101]
    assert table.tolist() == np.arange(12).reshape(4, 3).tolist()


def test_a_variable_is_its_column() -> None:
    column = np.arange(3, dtype=np.int64)
    assert expression("x", {"x": NUMBER}).evaluate({"x": column}, 3, SymbolTable()) is column


def test_type_and_variables() -> None:
    compiled = expression("strlen(s) + n * n - m", {"s": SYMBOL, "n": NUMBER, "m": NUMBER, "other": FLOAT})
    assert compiled.type is NUMBER
    assert compiled.variables == ("s", "n", "m")
    assert str(compiled) == "strlen(s) + n * n - m"
    compared = condition("b < cat(a, b)", {"a": SYMBOL, "b": SYMBOL})
    assert compared.variables == ("b", "a")
    assert str(compared) == "b < cat(a, b)"


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("x", None),
        ("x + y", None),
        ("-x", None),
        ("min(x, y)", None),
        ("to_string(x)", SYMBOL),
        ("strlen(to_string(x)) + 1", NUMBER),
        ("1 / 0", NUMBER),
        ('cat("a", "b")', SYMBOL),
    ],
)
def test_no_rows(text: str, type_: ColumnType | None) -> None:
    compiled = expression(text, {"x": None, "y": None})
    assert compiled.type is type_
    table, empty = SymbolTable(), np.empty(0, np.int64)
    codes = compiled.evaluate({"x": empty, "y": empty}, 0, table)
    assert codes.shape == (0,)
    assert codes.dtype == np.int64
    assert len(table) == 0


@pytest.mark.parametrize("text", ["x = y", "x < y", "x + y > y", "1 / 0 = 1", 'match("(", "a")'])
def test_no_rows_for_a_condition(text: str) -> None:
    empty = np.empty(0, np.int64)
    mask = condition(text, {"x": None, "y": None}).evaluate({"x": empty, "y": empty}, 0, SymbolTable())
    assert mask.shape == (0,)
    assert mask.dtype == np.bool_


def test_only_results_are_interned_in_the_order_of_the_rows() -> None:
    table = SymbolTable(["b", "a"])
    assert term('cat(cat(s, "-"), cat(s, "+"))', table, s=["b", "a", "b"]) == ["b-b+", "a-a+", "b-b+"]
    assert table.since(2) == ("b-b+", "a-a+")
    compiled = condition('cat(s, "?") != "other"', {"s": SYMBOL})
    assert compiled.evaluate(encoded({"s": ["a"]}, table), 1, table).tolist() == [True]
    assert len(table) == 4


def test_equal_texts_have_one_code_wherever_they_come_from() -> None:
    table = SymbolTable(["ab", "a"])
    codes = expression('cat(s, "b")', {"s": SYMBOL}).evaluate(encoded({"s": ["a", ""]}, table), 2, table)
    assert codes[0] == 0
    assert decode_column(codes, SYMBOL, table) == ["ab", "b"]


def test_dropped_symbols_are_forgotten() -> None:
    table = SymbolTable(["a"])
    compiled = expression('cat(s, "b")', {"s": SYMBOL})
    columns = {"s": np.zeros(1, np.int64)}
    assert table.text(int(compiled.evaluate(columns, 1, table)[0])) == "ab"
    table.truncate(1)
    table.intern("other")
    assert table.text(int(compiled.evaluate(columns, 1, table)[0])) == "ab"


@pytest.mark.parametrize("text", ["x + 1", "-x", "min(x, 2)", "strlen(to_string(x)) ^ 2"])
def test_expressions_are_data(text: str) -> None:
    compiled = expression(text, {"x": NUMBER})
    again = pickle.loads(pickle.dumps(compiled))
    assert again == compiled == expression(text, {"x": NUMBER})
    assert hash(again) == hash(compiled)
    column = {"x": np.array([7], np.int64)}
    assert again.evaluate(column, 1, SymbolTable()) == compiled.evaluate(column, 1, SymbolTable())
    assert compiled != expression("x", {"x": NUMBER})
    assert compiled != expression(text, {"x": None})


def test_conditions_are_data() -> None:
    comparison = parsed('!match("a+", s)')
    compiled = compile_condition(comparison, {"s": SYMBOL})
    again = pickle.loads(pickle.dumps(compiled))
    assert again == compiled
    table = SymbolTable(["aa", "b"])
    assert again.evaluate({"s": np.arange(2)}, 2, table).tolist() == [False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        Wildcard(),
        HeadAggregate("min", Variable("x")),
        Aggregate("count", None, (Atom("p", ()),)),
        BinaryOperation("+", Variable("x"), Constant(1.0, FLOAT)),
        Variable("unknown"),
    ],
)
def test_what_only_our_own_fault_can_bring(wrong: Term) -> None:
    with pytest.raises(AssertionError):
        compile_term(wrong, {"x": NUMBER})
