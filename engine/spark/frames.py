"""How tuples lie in a DataFrame.

A relation's tuple of n columns is `c0 .. c(n-1)`, longs that hold codes (engine/data/values.py). Further columns are:

    height       int     of a support or an entry
    support      long    how many derivations the tuple has of that height
    entry        long    present(height) - present(height - 1)
    weight       long    of a change
    derivations  long    rows that were summed up into this one
    fault        bool    whether some term has no value for the binding, which then derives nothing
    rel          int     which relation of a stratum: the relations of one stratum travel in one frame, the narrower
                         ones padded with zeros, so that one query does the work of a whole height

Rows with the same tuple and height are summed up, and a tuple without a row counts as zero. That makes a frame a Z-set,
so layers of changes can be united in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from engine.data.arrow import column

WEIGHT, DERIVATIONS, FAULT, REL = "weight", "derivations", "fault", "rel"


def padded(arity: int, width: int) -> list[Column]:
    """A tuple's columns, with zeros up to `width`."""
    return [F.col(column(i)) if i < arity else F.lit(0).cast("long").alias(column(i)) for i in range(width)]


def from_driver(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of this process as a DataFrame.

    Spark reads chunk by chunk, and silently drops the chunks after an empty one; so the rows are combined into a single
    chunk first. A Connect session accepts an empty table only with a schema.
    """
    if rows.num_rows:
        return session.createDataFrame(rows.combine_chunks())
    return session.createDataFrame(rows, from_arrow_schema(rows.schema))


def long(value: int) -> Column:
    return F.lit(value).cast("long")


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns in the same order."""
    return reduce(DataFrame.union, frames)
