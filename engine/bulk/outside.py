"""What an import reads that is not a file: a topic of Kafka, a table of a database, a table of Delta or Iceberg.

In: the path of an import, its format and its options. Out: what kind of thing it is, with checked options; and the
`Connection` that an operator has written down for it. Always: an option that has no effect on the kind is an error; a
password comes from the operator's file or from the engine's environment, never from a request, which is kept with the
job; and it is sent only to URLs that begin as the file says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from engine.errors import InvalidRequestError, PathNotAllowedError, SourceUnreadableError, shown

KAFKA, JDBC, DELTA, ICEBERG = "kafka", "jdbc", "delta", "iceberg"
TABLES: Final = (DELTA, ICEBERG)
"""Formats in which a folder is one table with a history."""
EARLIEST, LATEST = "earliest", "latest"
OFFSETS: Final = "kafka_offset"
"""The relation of positions: for each stream, relation and partition the offset of the next message."""
_EFFECT: Final = {
    KAFKA: ("connection", "stream", "starting", "max_messages", "weight_header"),
    JDBC: (
        "connection",
        "table",
        "query",
        "partition_column",
        "lower_bound",
        "upper_bound",
        "partitions",
    ),
    DELTA: ("version_as_of", "timestamp_as_of"),
    ICEBERG: ("version_as_of", "timestamp_as_of"),
}
DRIVERS: Final = {
    "postgresql": ("org.postgresql:postgresql", "org.postgresql.Driver"),
    "mysql": ("com.mysql:mysql-connector-j", "com.mysql.cj.jdbc.Driver"),
    "mariadb": ("org.mariadb.jdbc:mariadb-java-client", "org.mariadb.jdbc.Driver"),
    "sqlserver": ("com.microsoft.sqlserver:mssql-jdbc", "com.microsoft.sqlserver.jdbc.SQLServerDriver"),
    "oracle": ("com.oracle.database.jdbc:ojdbc11", "oracle.jdbc.OracleDriver"),
    "db2": ("com.ibm.db2:jcc", "com.ibm.db2.jcc.DB2Driver"),
    "h2": ("com.h2database:h2", "org.h2.Driver"),
    "sqlite": ("org.xerial:sqlite-jdbc", "org.sqlite.JDBC"),
    "derby": ("org.apache.derby:derby", "org.apache.derby.iapi.jdbc.AutoloadedDriver"),
}
"""Package and class of the drivers, by the second part of the URL. Java does not find by itself a driver that came with
Spark's packages; for another one than these, a connection's file has a line driver=CLASS."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_TOPIC: Final = re.compile(r"kafka://([^/\s]+)/([A-Za-z0-9._-]{1,249})", re.ASCII)
_SECRET: Final = re.compile(r"(?i)(password|passwd|pwd)\s*=|://[^/@\s]*:[^/@\s]*@")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ENDS: Final = "/:;?,&"


@dataclass(frozen=True, slots=True)
class Outside:
    """How something outside of files is read; see docs/streams.md.

    connection: the name of a file of the operator's. table, query: of a database, one of them. partition_column,
    lower_bound, upper_bound, partitions: how several tasks share a table. version_as_of, timestamp_as_of: an earlier
    state of a table. stream: the name under which the position in a topic is kept; None: the topic. starting: where a
    stream begins when it has no position. max_messages: of one transaction. weight_header: the header of a message that
    has its weight.
    """

    connection: str | None = None
    table: str | None = None
    query: str | None = None
    partition_column: str | None = None
    lower_bound: str | None = None
    upper_bound: str | None = None
    partitions: int | None = None
    version_as_of: str | None = None
    timestamp_as_of: str | None = None
    stream: str | None = None
    starting: str | None = None
    max_messages: int | None = None
    weight_header: str | None = None

    def as_json(self) -> dict[str, Any]:
        return dict(self._given())

    def _given(self) -> Iterator[tuple[str, Any]]:
        for one in fields(self):
            if (value := getattr(self, one.name)) is not None:
                yield one.name, value

    def check(self, kind: str | None) -> None:
        """Check that the options agree with the kind and with one another.

        Raises:
            InvalidRequestError: one has no effect, or others are missing.
        """
        for name, _ in self._given():
            if kind is None or name not in _EFFECT[kind]:
                known = ", ".join(k for k, names in _EFFECT.items() if name in names)
                raise InvalidRequestError(
                    f"{shown(name)} has an effect only on what is read from {known}", field=name
                )
        if self.connection is not None and not _NAME.fullmatch(self.connection):
            raise InvalidRequestError(
                f"{shown(self.connection)} is not the name of a connection", field="connection"
            )
        if kind == JDBC:
            if (self.table is None) == (self.query is None):
                raise InvalidRequestError(
                    'a database needs exactly one of "table" and "query"', field="table"
                )
            shares = (self.partition_column, self.lower_bound, self.upper_bound)
            if any(shares) and not (all(shares) and self.partitions):
                raise InvalidRequestError(
                    'several tasks share a table by "partition_column", "lower_bound", "upper_bound" and '
                    '"partitions" together',
                    field="partition_column",
                )
            if self.partitions and not self.partition_column:
                raise InvalidRequestError(
                    '"partitions" needs a "partition_column" with its bounds', field="partitions"
                )
            if self.query is not None and self.partition_column:
                raise InvalidRequestError(
                    '"partition_column" goes with "table", not with "query"; a query in brackets with a name may stand '
                    "in place of a table: (select ..) as t",
                    field="partition_column",
                )
        if self.version_as_of is not None and self.timestamp_as_of is not None:
            raise InvalidRequestError(
                'give one of "version_as_of" and "timestamp_as_of"', field="version_as_of"
            )


NOTHING: Final = Outside()


def kind_of(paths: Sequence[str], format_: str) -> str | None:
    """What an import reads, if it is not files.

    Raises:
        InvalidRequestError: the path is not of the kind's form, holds a password, or is one of several.
    """
    kinds = {path.split(":", 1)[0].lower() for path in paths if ":" in path} & {KAFKA, JDBC}
    kind = KAFKA if KAFKA in kinds else JDBC if JDBC in kinds else format_ if format_ in TABLES else None
    if kind is None:
        return None
    if len(paths) != 1:
        raise InvalidRequestError(f"an import reads one thing of the kind {kind} at a time", field="paths")
    if kind == KAFKA and not _TOPIC.fullmatch(paths[0]):
        raise InvalidRequestError(
            f"{shown(paths[0])} does not name a topic; write kafka://host:port,host:port/topic", field="path"
        )
    if kinds and _SECRET.search(paths[0]):
        raise InvalidRequestError(
            "the URL holds a password, which would be kept with the job; write it into a file of the engine's "
            "--connections folder and give its name as the connection",
            field="path",
        )
    return kind


def driver_of(url: str) -> str:
    """The second part of a URL of a database, which names its driver."""
    return url.split(":")[1].lower() if url.count(":") > 1 else ""


def topic_of(path: str) -> tuple[str, str]:
    """The brokers and the topic of a checked path."""
    found = _TOPIC.fullmatch(path)
    assert found is not None, "kind_of has checked it"
    return found[1], found[2]


@dataclass(frozen=True, slots=True)
class Connection:
    """Options for Spark, with the secrets among them. hidden: texts that no message may show."""

    options: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    def cleaned(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self.hidden:
            text = text.replace(secret, "***")
        return text


def connection(folder: Path | None, name: str | None, url: str) -> Connection:
    """The connection of this name, whose file must be for this URL.

    Raises:
        SourceUnreadableError: there is no such file, or it cannot be read. PathNotAllowedError: it is for other URLs.
    """
    if name is None:
        return Connection()
    if folder is None:
        raise SourceUnreadableError(
            f"there is no connection {name}: the engine was started without --connections FOLDER",
            connection=name,
        )
    path = folder / f"{name}.properties"
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SourceUnreadableError(
            f"the file {name}.properties of the engine's --connections folder cannot be read: {reason}",
            connection=name,
        ) from error
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise SourceUnreadableError(
                f"line {number} of {name}.properties is not of the form key=value", connection=name
            )
        options[key.strip()] = _VARIABLE.sub(lambda found: _variable(found[1], name), value.strip())
    start = options.pop("url", "")
    if not start:
        raise SourceUnreadableError(
            f"{name}.properties has no line url=..., which says to which URLs its password may be sent",
            connection=name,
        )
    if not (url == start or (url.startswith(start) and (start[-1] in _ENDS or url[len(start)] in _ENDS))):
        raise PathNotAllowedError(
            f"the connection {name} is for URLs that begin with {start}, and {url} does not", path=url
        )
    secrets = tuple(
        value for key, value in options.items() if value and re.search(r"(?i)password|secret|jaas|token", key)
    )
    return Connection(options, secrets)


def _variable(variable: str, name: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise SourceUnreadableError(
            f"{name}.properties uses the variable {variable}, which the engine's environment does not have",
            connection=name,
        )
    return value
