"""Options that several commands share, and the one way to open a client from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from service.cli.client import DEFAULT_URL

Url = Annotated[
    str,
    typer.Option("--url", envvar="ZEDLOG_URL", help="Where the service listens.", show_envvar=True),
]
URL = DEFAULT_URL


class Format(StrEnum):
    """How rows are written. `table` is for people; the others go into files and pipes."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


OutputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="How to write the rows: a table on a terminal, else csv."),
]
