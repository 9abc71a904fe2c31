"""`zedlog sync` and `zedlog sources`: facts that are fed from files, and replaced or taken back as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from service.cli import options, outside
from service.cli.client import Json, ServiceClient
from service.cli.edit import print_delta
from service.cli.jobs import follow, report
from service.cli.load import Reading, opened
from service.cli.options import OutputFormat
from service.cli.output import chosen, counted, fail, moment, note, out, print_outcome, write_rows
from service.delimited import rows

sources_app = typer.Typer(
    no_args_is_help=True, help="List the sources of facts, or take back all that one of them asserts."
)

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Show the difference and what would follow from it, but change nothing."),
]
Delta = Annotated[bool, typer.Option("--delta", help="Show the tuples that appeared and disappeared.")]


def sync(
    source: Annotated[str, typer.Argument(help="The source's name, such as hr; it does not have to exist.")],
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="CSV or TSV text in UTF-8; '-' is standard input. Or one table that the engine reads: jdbc:..., or a "
            "path with --format.",
        ),
    ],
    relation: Annotated[
        str | None,
        typer.Option(help="The relation of the rows. Default: the name of each file, without its ending."),
    ] = None,
    header: options.Header = False,
    delimiter: options.Delimiter = None,
    columns: options.Columns = None,
    types: options.Types = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Accept a file without rows: all facts of the source go.")
    ] = False,
    dry_run: DryRun = False,
    delta: Delta = False,
    message: options.Message = None,
    url: options.Url = options.URL,
    format: Annotated[
        str | None,
        typer.Option(
            help="delta, iceberg, parquet, orc or avro: the engine reads it through Spark, below its import root.",
            rich_help_panel="Tables",
        ),
    ] = None,
    connection: outside.Connection = None,
    table: outside.Table = None,
    query: outside.Query = None,
    partition_column: outside.PartitionColumn = None,
    lower_bound: outside.LowerBound = None,
    upper_bound: outside.UpperBound = None,
    partitions: outside.Partitions = None,
    version_as_of: outside.VersionAsOf = None,
    timestamp_as_of: outside.TimestampAsOf = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="A table: do it again every so many seconds, until Ctrl-C.",
            rich_help_panel="Tables",
        ),
    ] = None,
) -> None:
    """Make a source assert exactly the rows of files, or of a table: only the difference is applied.

    In one epoch, what it asserted before and is not in the files any more is taken back, and what is new is added. What
    others assert stays, and so does what the source asserts of other relations.

    Examples:

    - `zedlog sync hr person.csv --header`
    - `zedlog sync hr person.csv manages.csv --dry-run`: show what would change
    - `zedlog sync hr jdbc:postgresql://db/hr --table person --relation person --connection hr --every 60`
    - `zedlog sync hr staff-2026-01.tsv --relation person -m "of January"`
    """
    if relation is not None and len(named) > 1:
        raise typer.BadParameter(
            "only with one file; several go into the relations of their names", param_hint="--relation"
        )
    options_ = outside.given(
        connection=connection,
        table=table,
        query=query,
        partition_column=partition_column,
        lower_bound=lower_bound,
        upper_bound=upper_bound,
        partitions=partitions,
        version_as_of=version_as_of,
        timestamp_as_of=timestamp_as_of,
    )
    if format is not None or outside.is_outside(named[0], format):
        if named[0].lower().startswith("kafka:"):
            raise typer.BadParameter(
                f"a topic is read on, and replaces nothing; use 'zedlog import {named[0]} --source {source} --follow'",
                param_hint="FILES",
            )
        if header or delimiter is not None or delta:
            raise typer.BadParameter(
                "--header and --delimiter are about text files, --delta is not shown for a table",
                param_hint="FILES",
            )
        asked = outside.given(relation=relation, format=format, message=message, types=_parts(types))
        asked |= outside.given(columns=_parts(columns), options=options_ or None)
        asked |= {"paths": named, "source": source, "replace": True, "mode": "set"}
        asked |= {"dry_run": dry_run, "allow_empty": allow_empty}
        with ServiceClient(url) as client:
            if every is None:
                report(follow(client, client.post("/v1/imports", asked)))
            elif dry_run:
                raise typer.BadParameter("a dry run is done once", param_hint="--every")
            else:
                outside.read_on(client, asked, every)
        return
    files = [Path(name) for name in named]
    if options_ or every is not None:
        raise typer.BadParameter("only a table that the engine reads has these options", param_hint="FILES")
    how = Reading.of(delimiter, header, columns, types)
    facts: dict[str, list[Any]] = {}
    declarations: list[str] = []
    with ServiceClient(url) as client:
        for name, file in _by_relation(files, relation).items():
            with opened(file) as stream:
                layout, found, declaration = how.examine(client, name, file, stream)
                if not found.rows and not allow_empty:
                    fail(
                        f"{file} holds no rows; with --allow-empty, all that {source} asserts of {name} is taken back"
                    )
                    note("Nothing was sent.")
                    raise typer.Exit(1)
                facts[name] = list(rows(stream, layout, found.types)) if found.rows else []
                declarations += [declaration] if declaration and found.rows else []
        body: Json = {
            "facts": [{"relation": name, "tuples": tuples} for name, tuples in facts.items()],
            "declarations": declarations,
            "mode": "set",
            "source": source,
            "replaces": "relations",
        }
        if message is not None:
            body["message"] = message
        answer = client.transaction(body, dry_run=dry_run, delta=delta or dry_run)
    sizes = ", ".join(f"{counted(len(tuples), 'row')} of {escape(name)}" for name, tuples in facts.items())
    note(f"{escape(source)} {'would assert' if dry_run else 'asserts'} {sizes}")
    print_outcome(answer, dry_run=dry_run)
    if delta or dry_run:
        print_delta(answer)


def _parts(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _by_relation(files: list[Path], relation: str | None) -> dict[str, Path]:
    """The files by the relations of their rows."""
    named: dict[str, Path] = {}
    for file in files:
        name = relation or file.name.split(".")[0]
        if name == "-":
            raise typer.BadParameter(
                "give the relation of standard input with --relation", param_hint="FILES"
            )
        if name in named:
            raise typer.BadParameter(f"two of the files are of {name}", param_hint="FILES")
        named[name] = file
    return named


@sources_app.command("list")
def list_sources(format: OutputFormat = None, url: options.Url = options.URL) -> None:
    """List the sources: how many facts of which relations each asserts, and its last transaction.

    Examples:

    - `zedlog sources list`
    """
    with ServiceClient(url) as client:
        answer = client.get("/v1/sources")
    how = chosen(format)
    listed = []
    for source in answer["sources"]:
        last = source["last_transaction"] or {}
        told = (moment(last.get("time")), last.get("author") or "", last.get("message") or "")
        for part in source["relations"]:
            listed.append((source["source"], part["relation"], part["facts"], *told))
    if how is options.Format.TABLE and not listed:
        note("No source asserts facts yet; 'zedlog sync' makes one assert the rows of a file.")
        return
    write_rows(("source", "relation", "facts", "last changed", "author", "message"), listed, how)


@sources_app.command("remove")
def remove_source(
    source: Annotated[str, typer.Argument(help="The source's name.")],
    dry_run: DryRun = False,
    delta: Delta = False,
    message: options.Message = None,
    url: options.Url = options.URL,
) -> None:
    """Take back all facts that a source asserts, in one epoch; what others assert stays.

    Examples:

    - `zedlog sources remove hr --dry-run`
    """
    with ServiceClient(url) as client:
        answer = client.change(
            f"/v1/sources/{quote(source, safe='')}",
            None,
            method="DELETE",
            dry_run=dry_run,
            delta=delta or dry_run,
            message=message,
        )
    print_outcome(answer, dry_run=dry_run)
    if delta or dry_run:
        print_delta(answer)
    out.print(f"{escape(source)} {'would assert' if dry_run else 'asserts'} nothing any more")
