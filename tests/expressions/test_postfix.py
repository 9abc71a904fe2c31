"""Postfix programs against the expressions that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.symbols import SymbolTable
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.expressions.postfix import comparison, number_term
from engine.language.parser import parse_rules
from engine.language.schema import ColumnType
from engine.language.syntax import Comparison
from engine.resident import climb

NUMBERS = {"x": ColumnType.NUMBER, "y": ColumnType.NUMBER, "z": ColumnType.NUMBER}
KNOWN = ("x", "y", "z")
SIZES = st.one_of(
    st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, -(2**31) - 1])
)
terms = st.recursive(
    st.one_of(st.sampled_from(KNOWN), st.integers(-5, 5).map(lambda n: f"({n})")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)
rows = st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5)


def compared(text: str) -> Comparison:
    literal = parse_rules(f"p(x, y, z) :- q(x, y, z), {text}.")[0].body[1]
    assert isinstance(literal, Comparison)
    return literal


def columns(values: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[:, i] for i, name in enumerate(KNOWN)}


@given(term=terms, values=rows)
def test_a_term_has_its_value_or_is_left_to_its_expression(term: str, values: list[tuple[int, int, int]]):
    codes = np.array(values, np.int64)
    written = compared(f"w = {term}").right
    program = number_term(written, NUMBERS, KNOWN)
    assert program is not None
    found, fits = climb._computed(codes, np.array(program, np.int64))
    try:
        expected = compile_term(written, NUMBERS).evaluate(columns(codes), len(codes), SymbolTable())
    except EvaluationError:
        assert not fits
        return
    if fits:
        assert found.tolist() == expected.tolist()


@given(left=terms, right=terms, operator=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), values=rows)
def test_a_comparison_is_true_where_its_condition_is(
    left: str, right: str, operator: str, values: list[tuple[int, int, int]]
):
    codes = np.array(values, np.int64)
    literal = compared(f"{left} {operator} {right}")
    program = comparison(literal, NUMBERS, KNOWN, lambda _: 0)
    assert program is not None
    found, fits = climb._computed(codes, np.array(program, np.int64))
    if fits:
        condition = compile_condition(literal, NUMBERS)
        assert found.tolist() == condition.evaluate(columns(codes), len(codes), SymbolTable()).tolist()


def test_symbols_are_the_same_or_not():
    types = {"x": ColumnType.SYMBOL, "y": ColumnType.SYMBOL, "z": ColumnType.SYMBOL}
    codes = np.array([[4, 5, 6], [7, 5, 6]], np.int64)
    program = comparison(compared('x != "a"'), types, KNOWN, lambda constant: {"a": 7}[str(constant.value)])
    assert program is not None
    assert climb._computed(codes, np.array(program, np.int64))[0].tolist() == [1, 0]


@pytest.mark.parametrize("text", ["x / y = 1", "x ^ y > 2", "x % 2 = 0", "-x > 1"])
def test_other_operations_are_left_to_python(text: str):
    assert comparison(compared(text), NUMBERS, KNOWN, lambda _: 0) is None


@pytest.mark.parametrize(("kind", "text"), [(ColumnType.FLOAT, "x < y"), (ColumnType.SYMBOL, "x < y")])
def test_other_types_are_left_to_python(kind: ColumnType, text: str):
    assert comparison(compared(text), dict.fromkeys(KNOWN, kind), KNOWN, lambda _: 0) is None
