"""How tuples lie in a DataFrame.

A relation's tuple of n columns is `c0 .. c(n-1)`, longs that hold codes (engine/data/values.py). Beside them:

    height       int     of a support or an entry
    support      long    how many derivations the tuple has of that height
    entry        long    present(height) - present(height - 1)
    weight       long    of a change
    derivations  long    rows that were summed up into this one
    fault        bool    the binding has no value for some term; it derives nothing
    rel          int     which relation of a stratum: the relations of one stratum travel in one frame, the narrower
                         ones padded with zeros, so that one query does the work of a whole height

Rows with the same tuple and height are summed up; no row means zero. That is all there is to a Z-set, so layers of
changes can be united freely.
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
    """Rows of this process.

    Once it has read some rows, Spark stops at the first empty chunk and says nothing of the rest, so it gets a single
    chunk. A Connect session takes an empty table only with a schema.
    """
    if rows.num_rows:
        return session.createDataFrame(rows.combine_chunks())
    return session.createDataFrame(rows, from_arrow_schema(rows.schema))


def long(value: int) -> Column:
    return F.lit(value).cast("long")


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns in the same order."""
    return reduce(DataFrame.union, frames)
