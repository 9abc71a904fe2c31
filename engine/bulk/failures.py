"""Failures of what is read outside of files, as errors that a user can act on.

In: what Spark, or a driver of a database in it, raised. Out: one of engine/errors.py, which names the package to give,
the table, or what the database says; never a password. Drivers have messages of their own, but SQLSTATE and Spark's
conditions are the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from engine.bulk.faults import is_sparks
from engine.bulk.outside import DELTA, DRIVERS, ICEBERG, JDBC, KAFKA, Connection, driver_of
from engine.bulk.request import AVRO, ImportRequest
from engine.errors import (
    PackageMissingError,
    SourceRefusedError,
    SourceUnreachableError,
    SourceUnreadableError,
    ZedlogError,
)

_CAUSED, _DEPTH = "Caused by: ", 20
_NO_SOURCE = ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source", "Failed to find data source")
_NO_CLASS = (
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "NoSuchMethodError",
    "AbstractMethodError",
    "IncompatibleClassChangeError",
)
_NO_DRIVER = ("No suitable driver", *_NO_CLASS)
_NO_TABLE = re.compile(
    r"(?i)table .{0,120}not found|relation .{0,120}does not exist|table .{0,120}doesn't exist|no such table|"
    r"invalid object name|ORA-00942|table .{0,120}does not exist|42S02|42102|TABLE_OR_VIEW_NOT_FOUND"
)
_WRONG_USER = re.compile(
    r"(?i)wrong user name or password|password authentication failed|access denied|login failed|"
    r"authentication|ORA-01017|28P01|28000"
)
_AWAY = re.compile(
    r"(?i)connection refused|connection is broken|communications link failure|timed? ?out|unknown ?host|"
    r"could not connect|connection attempt failed|no route to host|connection .{0,40}reset"
)
_NO_DELTA = ("DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "is not a Delta table", "PATH_NOT_FOUND")
_NO_ICEBERG = ("NoSuchTableException", "Table does not exist", "TABLE_OR_VIEW_NOT_FOUND")
_NO_VERSION = re.compile(
    r"(?i)DELTA_VERSION_NOT_FOUND|DELTA_TIMESTAMP_\w+|VersionNotFoundException|cannot time travel|"
    r"cannot find (a )?snapshot|TemporallyUnstableInput"
)


def package_missing(kind: str, spark: str, driver: str = "") -> PackageMissingError:
    """The error for a package that Spark was not started with. spark: its version. driver: of a database."""
    short = ".".join(spark.split(".")[:2])
    names = {
        KAFKA: f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
        AVRO: f"org.apache.spark:spark-avro_2.13:{spark}",
        DELTA: f"io.delta:delta-spark_{short}_2.13:VERSION",
        ICEBERG: f"org.apache.iceberg:iceberg-spark-runtime-{short}_2.13:VERSION",
        JDBC: f"{DRIVERS[driver][0]}:VERSION"
        if driver in DRIVERS
        else "group:artifact:version of the driver",
    }
    what = f"the driver for jdbc:{driver}" if kind == JDBC else f"the package for {kind}"
    also = {DELTA: ", a release for", ICEBERG: ", a release for"}.get(kind, " for")
    return PackageMissingError(
        f"Spark runs without {what}; start the engine with --spark-packages {names[kind]}{also} Spark {spark}",
        package=names[kind],
        spark=spark,
    )


@contextmanager
def explaining(request: ImportRequest, known: Connection, spark: str) -> Iterator[None]:
    """A context in which failures of Spark that have to do with what is read are raised as errors of Zedlog."""
    try:
        yield
    except ZedlogError:
        raise
    except Exception as error:
        found = explained_outside(error, request, known, spark) if is_sparks(error) else None
        if found is None:
            raise
        # The cause may show what must not be shown.
        raise found from (None if known.hidden else error)


def explained_outside(
    error: Exception, request: ImportRequest, known: Connection, spark: str
) -> ZedlogError | None:
    """The meaning of a failure, or None: it has nothing to do with what is read."""
    text, kind = _with_causes(error), request.kind or request.format
    where = request.paths[0]
    if kind == JDBC:
        return _of_database(text, request, known, spark)
    if any(word in text for word in _NO_SOURCE) and kind in (KAFKA, AVRO, DELTA, ICEBERG):
        return package_missing(kind, spark)
    if kind in (DELTA, ICEBERG):
        if any(word in text for word in _NO_CLASS):
            return PackageMissingError(
                f"the package for {kind} does not work with Spark {spark}: {_line(text, _NO_CLASS)}; give a release "
                "for this version",
                spark=spark,
            )
        if any(word in text for word in (*_NO_DELTA, *_NO_ICEBERG)):
            return SourceUnreadableError(f"{where} is not a table of the format {kind}", file=where)
        if found := _NO_VERSION.search(text):
            asked = request.options.version_as_of or request.options.timestamp_as_of
            return SourceUnreadableError(
                f"{where} has no state {asked}: {_line(text, (found[0],))}", file=where
            )
    if kind == KAFKA and "OffsetOutOfRange" in text:
        return SourceUnreadableError(
            f"messages of {where} went away while they were read; run the import again", file=where
        )
    return None


def _of_database(text: str, request: ImportRequest, known: Connection, spark: str) -> ZedlogError | None:
    url = request.paths[0]
    driver = driver_of(url)
    # What the database says is the last cause.
    said = known.cleaned(_line(text.rpartition(_CAUSED)[2], ("Exception: ",)))
    if any(word in text for word in _NO_DRIVER):
        return package_missing(JDBC, spark, driver)
    if _NO_TABLE.search(text):
        what = request.options.table or request.options.query
        return SourceUnreadableError(f"the database {url} cannot read {what}: {said}", file=url)
    if _WRONG_USER.search(text):
        return SourceRefusedError(
            f"the database {url} refuses the user and the password: {said}; they are lines of a connection's file",
            url=url,
        )
    if _AWAY.search(text):
        return SourceUnreachableError(f"the database {url} cannot be reached: {said}", url=url)
    if "SQLException" in text or ".jdbc." in text or "SQLSTATE" in text:
        return SourceUnreadableError(f"the database {url} cannot be read: {said}", file=url)
    return None


def _with_causes(error: Exception) -> str:
    """The message, and those of the causes in Java, of which Spark's own may tell nothing."""
    texts = [str(error)]
    cause = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while cause is not None and len(texts) < _DEPTH:
        cause = cause.getCause()
        if cause is not None:
            texts.append(f"{_CAUSED}{cause.toString()}")
    return "\n".join(texts)


def _line(text: str, words: tuple[str, ...]) -> str:
    """The first line with one of the words, without the class of the exception."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")
    ]
    found = next(
        (line for word in words for line in lines if word in line), lines[0] if lines else "no message"
    )
    return re.sub(r"^(Caused by: |: )?([\w.$]+(Exception|Error): )?", "", found)[:400]
