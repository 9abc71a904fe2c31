"""Computed values as columns and in the driver: what engine/expressions says, bit by bit, also where there is none."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from engine.circuit.undefined import can_fail
from engine.data.symbols import SymbolTable
from engine.data.values import Encoder, encode_value
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.language.schema import ColumnType
from engine.language.syntax import BinaryOperation, Comparison, FunctorCall, Term, UnaryOperation, Variable
from engine.spark.plans.floats import ordered, to_code, to_double
from engine.spark.plans.terms import Terms, is_native
from engine.spark.session.session import SparkSource

MAX, MIN = 2**63 - 1, -(2**63)
NUMBERS = [0, 1, -1, 2, -2, 3, 7, -7, 10, 62, 63, 64, 65, 127, -63, 2**31, 3037000500, -3037000500]
NUMBERS += [MAX, MIN, MIN + 1, 2**62, -(2**62), 2**53 + 1]
FLOATS = [0.0, 1.0, -1.0, 0.5, -0.1, 1e308, -1e308, 5e-324, 1e-320, 3.0, 1e16, 0.1]
FLOATS += [sys.float_info.min, sys.float_info.max]
X, Y = Variable("x"), Variable("y")
EXTREMES: list[Term] = [FunctorCall("min", (X, Y)), FunctorCall("max", (BinaryOperation("*", X, Y), Y))]
CASES: list[tuple[ColumnType, Sequence[Any], list[Term]]] = [
    (
        ColumnType.NUMBER,
        NUMBERS,
        [
            BinaryOperation(o, X, Y)
            for o in ("+", "-", "*", "/", "%", "^", "band", "bor", "bxor", "bshl", "bshr")
        ]
        + [UnaryOperation("-", X), UnaryOperation("bnot", X), *EXTREMES],
    ),
    (
        ColumnType.FLOAT,
        FLOATS,
        [BinaryOperation(o, X, Y) for o in "+-*/"] + [UnaryOperation("-", X), *EXTREMES],
    ),
]


@pytest.mark.parametrize(("kind", "values", "terms"), CASES, ids=["numbers", "floats"])
def test_columns_are_what_the_expressions_say(
    source: SparkSource, kind: ColumnType, values: Sequence[Any], terms: list[Term]
) -> None:
    encode = Encoder(SymbolTable())
    pairs = list(itertools.product(values, repeat=2))
    codes = np.array([[encode_value(v, encode.symbols) for v in pair] for pair in pairs], np.int64)
    types = {"x": kind, "y": kind}
    conditions = [Comparison(o, BinaryOperation("+", X, Y), Y) for o in ("=", "!=", "<", "<=", ">", ">=")]
    conditions += [Comparison(o, X, Y) for o in ("=", "<", ">=")]
    columns = Terms(types, lambda name: name, encode)
    frame = source.session().createDataFrame(pa.table({"x": codes[:, 0], "y": codes[:, 1]}))
    found = frame.select(
        *(columns.code(term).alias(f"t{i}") for i, term in enumerate(terms)),
        *(columns.condition(c).cast("long").alias(f"c{i}") for i, c in enumerate(conditions)),
    ).toArrow()
    for i, term in enumerate(terms):
        assert is_native(term, types)
        assert found.column(f"t{i}").to_pylist() == by_row(compile_term(term, types).evaluate, codes), term
        assert can_fail(term) or None not in found.column(f"t{i}").to_pylist()
    for i, condition in enumerate(conditions):
        expected = by_row(compile_condition(condition, types).evaluate, codes)
        assert found.column(f"c{i}").to_pylist() == expected, condition


def by_row(evaluate: Any, codes: Any) -> list[int | None]:
    values: list[int | None] = []
    for x, y in codes:
        try:
            values.append(int(evaluate({"x": np.array([x]), "y": np.array([y])}, 1, SymbolTable())[0]))
        except EvaluationError:
            values.append(None)
    return values


def test_codes_of_floats_are_their_bits(source: SparkSource) -> None:
    """All powers of two with their neighbours, and random bits."""
    powers = 2.0 ** np.arange(-1074, 1024, dtype=np.float64)
    values = np.concatenate((powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf), [0.0, np.inf]))
    bits = np.random.default_rng(7).integers(MIN, MAX, 4_000, endpoint=True)
    some = bits[~np.isnan(bits.view(np.float64))].view(np.float64)
    # One code for both zeros.
    values = np.concatenate((values, -values, some)) + 0.0
    codes = values.view(np.int64)
    frame = source.session().createDataFrame(pa.table({"code": codes}))
    found = frame.select(to_double(F.col("code")).alias("value"), ordered(F.col("code")).alias("place"))
    found = found.select("value", "place", to_code(F.col("value")).alias("code")).toArrow()
    assert (found.column("value").to_numpy().view(np.int64) == codes).all()
    assert (found.column("code").to_numpy() == codes).all()
    place = found.column("place").to_numpy()
    assert (np.argsort(place, kind="stable") == np.argsort(values, kind="stable")).all()


def test_what_needs_texts_is_not_said_in_columns() -> None:
    types = {"x": ColumnType.SYMBOL, "y": ColumnType.SYMBOL, "u": ColumnType.FLOAT}
    for node in (
        FunctorCall("cat", (X, Y)),
        FunctorCall("strlen", (X,)),
        FunctorCall("rdf_iri", (X, Y)),
        FunctorCall("rdf_literal", (X,)),
        FunctorCall("rdf_literal", (Variable("u"),)),
        FunctorCall("min", (X, Y)),
        Comparison("<", X, Y),
        Comparison("contains", X, Y),
        Comparison("=", X, FunctorCall("cat", (Y, Y))),
        # Libraries round powers differently.
        BinaryOperation("^", Variable("u"), Variable("u")),
    ):
        assert not is_native(node, types), node
    assert is_native(Comparison("!=", X, Y), types)
    assert is_native(FunctorCall("ord", (X,)), types)
