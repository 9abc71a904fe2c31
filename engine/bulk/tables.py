"""Tables outside of files: of a database through JDBC, of Delta and of Iceberg.

In: a checked request, the operator's connection. Out: `RawRows` of typed columns, as from Parquet. Always: the user and
the password are options of Spark's reader, which it leaves out of the plans that it shows; a database is asked for the
same rows by one query, or by one for each of the partitions that the request asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk.outside import DRIVERS, JDBC, TABLES, Connection, driver_of
from engine.bulk.reading import BLOCK, FILE, PLACE, RawRows, typed_rows
from engine.bulk.request import ImportRequest
from engine.bulk.sources import Source
from engine.language.schema import Schema

_LOGIN_SECONDS: Final = 15
_FETCH: Final = "10000"
_TRAVEL: Final = {
    "delta": ("versionAsOf", "timestampAsOf"),
    "iceberg": ("snapshot-id", "as-of-timestamp"),
}


def is_table(request: ImportRequest) -> bool:
    return request.kind in (JDBC, *TABLES)


def read_table(
    session: SparkSession, source: Source, request: ImportRequest, schema: Schema | None, known: Connection
) -> RawRows:
    """The rows of the table that the request names.

    Raises:
        HeaderMismatchError, TypeMismatchError, ArityError: its columns are not those of the relation.
    """
    how = request.options
    reader = session.read.format(request.format)
    name = source.name
    if request.kind == JDBC:
        # A driver that gets no answer would wait for as long as the system's own limit, which is minutes.
        if (jvm := getattr(session, "_jvm", None)) is not None:
            jvm.java.sql.DriverManager.setLoginTimeout(_LOGIN_SECONDS)
        name = how.table or "the query"
        given = {
            "url": request.paths[0],
            "dbtable": how.table,
            "query": how.query,
            "partitionColumn": how.partition_column,
            "lowerBound": how.lower_bound,
            "upperBound": how.upper_bound,
            "numPartitions": None if how.partitions is None else str(how.partitions),
        }
        found = DRIVERS.get(driver_of(request.paths[0]))
        driver = {} if found is None else {"driver": found[1]}
        options = {
            "fetchsize": _FETCH,
            **driver,
            **known.options,
            **{n: v for n, v in given.items() if v is not None},
        }
        rows = reader.options(**options).load()
    else:
        version, time = _TRAVEL[request.format]
        for option, value in ((version, how.version_as_of), (time, how.timestamp_as_of)):
            if value is not None:
                reader = reader.option(option, value)
        rows = reader.load(source.url)
    wanted = None if schema is None else [column.name for column in schema.columns]
    marks = [
        f"CAST({_quoted(name)} AS string) AS {FILE}",
        f"0L AS {BLOCK}",
        f"CAST(NULL AS bigint) AS {PLACE}",
    ]
    return replace(typed_rows(_lower(rows, wanted), request, wanted, schema, marks), table=True)


def _lower(rows: DataFrame, wanted: Sequence[str] | None) -> DataFrame:
    """Columns that a database writes in capitals have the relation's names, if these are the same but for that."""
    if wanted is None or set(rows.columns) == set(wanted):
        return rows
    named = {name.lower(): name for name in wanted}
    if len(named) != len(wanted) or not set(named) <= {name.lower() for name in rows.columns}:
        return rows
    return rows.select(*(F.col(f"`{name}`").alias(named.get(name.lower(), name)) for name in rows.columns))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
