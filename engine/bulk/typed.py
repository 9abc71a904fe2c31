"""Converts texts to typed columns in Spark, and says what is wrong with texts that are not values of their type.

In: columns of text. Out: columns of string, long, double or boolean; null if the text is not a value of the type.
Always: engine/data/written.py defines which texts are values, and these patterns are its patterns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from engine.data import written
from engine.language.schema import ColumnType

# To the very end: $ would pass over a line break there.
NUMBER: Final = rf"^(?:{written.NUMBER})\z"
_FLOAT = rf"^(?:{written.FLOAT})\z"
_PLAIN_NUMBER = rf"^(?:{written.PLAIN_NUMBER})\z"
_PLAIN_FLOAT = rf"^(?:{written.PLAIN_FLOAT})\z"
_LONG_INTEGER = rf"^(?:{written.LONG_INTEGER})\z"
SQL_TYPES: Final = {
    ColumnType.SYMBOL: "string",
    ColumnType.NUMBER: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.BOOL: "boolean",
}
# From the narrowest; a text that all rows agree to be of a type is of that type.
ORDER: Final = (ColumnType.BOOL, ColumnType.NUMBER, ColumnType.FLOAT)
TOO_HEAVY: Final = "the weights of equal rows add up to more than 64 bits"
"""The beginning of the message of a query that fails for that reason; the row follows, as JSON."""
SHOWN: Final = 60
"""Characters of a value that a message shows."""


def converted(text: Column, kind: ColumnType) -> Column:
    """The value that a text stands for, or null."""
    if kind is ColumnType.SYMBOL:
        return text
    if kind is ColumnType.NUMBER:
        return F.when(text.rlike(NUMBER), text.try_cast("bigint"))
    if kind is ColumnType.FLOAT:
        value = finite(F.when(text.rlike(_FLOAT), text.try_cast("double")))
        exact = is_exact(text.try_cast("bigint"))
        return F.when(
            ~text.rlike(_LONG_INTEGER) | exact, F.when((value != 0) | ~text.rlike(written.NOT_ZERO), value)
        )
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))


def is_exact(number: Column) -> Column:
    """Whether a float is equal to a long; false for null."""
    return F.coalesce(number.cast("double").try_cast("bigint") == number, F.lit(False))


def finite(value: Column) -> Column:
    """The double, or null where it is NaN or infinite; minus zero is zero."""
    return F.when(F.abs(value) < float("inf"), value + F.lit(0.0))


def looks_like(text: Column, kind: ColumnType) -> Column:
    """Whether a text of unknown type is written in the form of a value of `kind`, even if it is out of range."""
    if kind is ColumnType.NUMBER:
        return text.rlike(_PLAIN_NUMBER)
    if kind is ColumnType.FLOAT:
        return text.rlike(_PLAIN_FLOAT)
    return text.isin(*written.BOOLS)


def mismatch(name: str, position: int, kind: ColumnType, text: Column) -> Column:
    """Why a text is not a value of its column's type."""
    where = f"column {position + 1} ({name})"
    start, shown = F.lit(f"{where} holds {kind.value}, but '"), F.left(text, F.lit(SHOWN))
    reason = F.when(text.isNull(), F.lit(f"{where} has no value"))
    if kind in (ColumnType.NUMBER, ColumnType.FLOAT):
        integer = text.rlike(NUMBER)
        fits = text.try_cast("bigint").isNotNull()
        too_large = integer & ~fits
        if kind is ColumnType.FLOAT:
            reason = reason.when(
                integer & fits,
                F.concat(start, shown, F.lit("' is an integer that is not equal to any float")),
            )
            too_large |= text.rlike(_FLOAT) & ~integer
        reason = reason.when(too_large, F.concat(start, shown, F.lit("' does not fit into 64 bits")))
    return reason.otherwise(F.concat(start, shown, F.lit("' is none")))
