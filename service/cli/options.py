"""Options that several commands share, and how a wrong one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from engine.errors import InvalidRequestError
from service.cli.client import DEFAULT_URL

Url = Annotated[
    str,
    typer.Option("--url", envvar="ZEDLOG_URL", help="The URL of the service.", show_envvar=True),
]
URL = DEFAULT_URL


Message = Annotated[
    str | None,
    typer.Option(
        "--message",
        "-m",
        metavar="TEXT",
        help="Why: kept with the transaction; lists of transactions and histories of facts show it.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="The facts count for this source, such as hr: they are retracted with the same --source, and "
        "'zedlog sources remove NAME' takes them all back.",
    ),
]
ShortIris = Annotated[
    bool,
    typer.Option("--prefixes", help="Write IRIs with the prefixes that the database declares: rdf:type."),
]
# Of delimited files.
Header = Annotated[
    bool,
    typer.Option(
        "--header", help="The first line names the columns, and may include their types (name:type)."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="One character, or tab, space, comma, semicolon, pipe. Default: by name, then by content."
    ),
]
Columns = Annotated[
    str | None, typer.Option(help="Which columns to take, counted from 1: --columns 1,3. Default: all.")
]
Types = Annotated[
    str | None,
    typer.Option(
        help="Their types: --types symbol,number. Default: the relation's, otherwise types that fit every row."
    ),
]


class Format(StrEnum):
    """How rows are written. `table` is for people; the others go into files and pipes."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


OutputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="How to write the rows. Default: a table on a terminal, otherwise csv."),
]


@contextmanager
def wrong_usage(option: str | None = None) -> Iterator[None]:
    """A value that the engine refuses is wrong usage of the command line (exit status 2)."""
    try:
        yield
    except InvalidRequestError as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
