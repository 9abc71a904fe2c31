"""Texts to typed columns in Spark, and what is wrong with those that are none.

In: columns of text. Out: columns of string, long, double or boolean; null where the text is no value of the type.
Always: nothing is converted that is not written as a value of the type: no white space, no `1.5` or `1e3` for a
number, no NaN and no infinity.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from engine.language.schema import ColumnType

# To the very end: $ would pass over a line break there.
NUMBER: Final = r"^[+-]?[0-9]++\z"
FLOAT: Final = r"^[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?\z"
# What a column must look like to be taken for numbers where nobody has said its type: `007` is a name.
_PLAIN_NUMBER = r"^-?(?:0|[1-9][0-9]*+)\z"
_PLAIN_FLOAT = r"^-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?\z"
SQL_TYPES: Final = {
    ColumnType.SYMBOL: "string",
    ColumnType.NUMBER: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.BOOL: "boolean",
}
# From the narrowest; a text that all rows agree to be of a type is of that type.
ORDER: Final = (ColumnType.BOOL, ColumnType.NUMBER, ColumnType.FLOAT)
SHOWN: Final = 60
"""Characters of a value that a message shows."""


def converted(text: Column, kind: ColumnType) -> Column:
    """The value that a text stands for, or null."""
    if kind is ColumnType.SYMBOL:
        return text
    if kind is ColumnType.NUMBER:
        return F.when(text.rlike(NUMBER), text.try_cast("bigint"))
    if kind is ColumnType.FLOAT:
        return finite(F.when(text.rlike(FLOAT), text.try_cast("double")))
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))


def finite(value: Column) -> Column:
    """The double, or null where it is NaN or infinite; minus zero is zero."""
    return F.when(F.abs(value) < float("inf"), value + F.lit(0.0))


def looks_like(text: Column, kind: ColumnType) -> Column:
    """Whether a text whose type nobody has said may be of `kind`."""
    if kind is ColumnType.NUMBER:
        return text.rlike(_PLAIN_NUMBER) & text.try_cast("bigint").isNotNull()
    if kind is ColumnType.FLOAT:
        return text.rlike(_PLAIN_FLOAT) & converted(text, kind).isNotNull()
    return text.isin("true", "false")


def mismatch(name: str, position: int, kind: ColumnType, text: Column) -> Column:
    """Why a text is no value of its column."""
    where = f"column {position + 1} ({name})"
    return F.when(text.isNull(), F.lit(f"{where} has no value")).otherwise(
        F.concat(F.lit(f"{where} holds {kind.value}, but '"), F.left(text, F.lit(SHOWN)), F.lit("' is none"))
    )
