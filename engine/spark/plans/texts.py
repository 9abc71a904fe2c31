"""Terms and conditions that need the texts of symbols, or powers of floats: computed in the driver, for the distinct
operands only.

In: bindings and a term or condition over them. Out: the bindings with one more column, its value, which is NULL where
there is none. Only the driver has the symbol table. So one query brings the distinct operands there, engine/expressions
evaluates them, as it does for the resident placement, and the result is joined to the bindings. This costs that query,
and the bindings are computed twice. For the order of two symbols, only the distinct symbols come to the driver, and
their ranks go back: there are fewer symbols than pairs, of which there may be as many as bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.data.arrow import array_of
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.expressions import compile_condition, compile_term
from engine.expressions.distinct import ranks
from engine.expressions.texts import Texts
from engine.language.schema import ColumnType
from engine.language.syntax import Comparison, Constant, Term, Variable
from engine.maintenance.placement import Encode
from engine.spark.frames import long
from engine.spark.plans.terms import ORDER, Name, Types, type_of
from engine.spark.tables import Table, Tables

VALUE = "value"
Array = npt.NDArray[Any]
WhereDefined = Callable[[Mapping[str, Codes], int, SymbolTable], tuple[Array, Array | None]]
"""Gives the values of the rows that have one, and which rows these are, or None where all have one."""


class InDriver:
    """Evaluates such terms and conditions; `release` gives back the storage of the results. `small`: there are few
    bindings."""

    def __init__(self, tables: Tables, encode: Encode) -> None:
        self._tables = tables
        self._encode = encode
        self._held: list[Table] = []

    def release(self) -> None:
        for table in self._held:
            self._tables.release(table)
        self._held.clear()

    def value(
        self, bindings: DataFrame, term: Term, types: Types, name: Name, small: bool
    ) -> tuple[DataFrame, Column]:
        """The bindings with the term's code, and the column that holds it."""
        expression = compile_term(term, types)
        return self._joined(bindings, expression.variables, name, expression.where_defined, small)

    def condition(
        self, bindings: DataFrame, comparison: Comparison, types: Types, name: Name, small: bool
    ) -> tuple[DataFrame, Column]:
        """The same for the truth of a condition."""
        if is_order_of_symbols(comparison, types):
            return self._ranked(bindings, comparison, name, small)
        condition = compile_condition(comparison, types)
        return self._joined(bindings, condition.variables, name, condition.where_defined, small)

    def _joined(
        self,
        bindings: DataFrame,
        variables: Sequence[str],
        name: Name,
        where_defined: WhereDefined,
        small: bool,
    ) -> tuple[DataFrame, Column]:
        keys = [name(variable) for variable in variables]
        if not keys:
            values, found = _whole(where_defined, {}, 1, self._encode.symbols)
            return bindings, F.lit(values[0].item() if found[0] else None)
        # In order, so that new symbols get the same codes however Spark cuts the rows.
        operands = self._tables.collect(bindings.select(*keys).dropna().distinct(), small)
        operands = operands.sort_by([(key, "ascending") for key in keys])
        columns = {variable: array_of(operands, name(variable)) for variable in variables}
        values, found = _whole(where_defined, columns, operands.num_rows, self._encode.symbols)
        result = pa.array(values, mask=~found)
        return self._with(bindings, operands.append_column(VALUE, result), keys), F.col(VALUE)

    def _ranked(
        self, bindings: DataFrame, comparison: Comparison, name: Name, small: bool
    ) -> tuple[DataFrame, Column]:
        sides = comparison.left, comparison.right
        keys = list(dict.fromkeys(name(side.name) for side in sides if isinstance(side, Variable)))
        codes = np.empty(0, np.int64)
        if keys:
            symbols = bindings.select(F.explode(F.array(*keys)).alias(VALUE)).dropna().distinct()
            codes = array_of(self._tables.collect(symbols, small), VALUE)
        constants = [self._encode(side) for side in sides if isinstance(side, Constant)]
        codes = np.unique(np.concatenate((codes, np.array(constants, np.int64))))
        rank = ranks(Texts(self._encode.symbols), [codes])[0] if len(codes) else codes
        for key in keys:
            table = pa.table({key: codes, f"rank_{key}": rank})
            bindings = self._with(bindings, table, [key])

        def place(side: Term) -> Column:
            if isinstance(side, Variable):
                return F.col(f"rank_{name(side.name)}")
            assert isinstance(side, Constant), "is_order_of_symbols says so"
            return long(int(rank[np.searchsorted(codes, self._encode(side))]))

        return bindings, ORDER[comparison.operator](place(sides[0]), place(sides[1]))

    def _with(self, bindings: DataFrame, table: pa.Table, keys: list[str]) -> DataFrame:
        """The bindings with the columns of `table`, which has one row for each distinct key."""
        small = self._tables.small(table.num_rows)
        held = self._tables.put(table)
        self._held.append(held)
        return bindings.join(F.broadcast(held.frame) if small else held.frame, keys, "left")


def is_order_of_symbols(comparison: Comparison, types: Types) -> bool:
    """Whether it compares two symbols that are there, by their order."""
    sides = comparison.left, comparison.right
    return (
        comparison.operator in ORDER
        and all(isinstance(side, Variable | Constant) for side in sides)
        and ColumnType.SYMBOL in (type_of(sides[0], types), type_of(sides[1], types))
    )


def _whole(
    where_defined: WhereDefined, columns: Mapping[str, Codes], n: int, symbols: SymbolTable
) -> tuple[Array, Array]:
    """The values of n rows, and which rows have one."""
    values, rows = where_defined(columns, n, symbols)
    if rows is None:
        return values, np.ones(n, np.bool_)
    found = np.zeros(n, np.bool_)
    found[rows] = True
    whole = np.zeros(n, values.dtype)
    whole[rows] = values
    return whole, found
