"""`zedlog import FILE..`: import files, a topic or a table as facts through Spark, in one transaction; waits, with a
progress bar. `--follow`: again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.bulk.request import guess_format
from engine.errors import InvalidRequestError
from service.cli import options, outside
from service.cli.client import Json, ServiceClient
from service.cli.jobs import follow, report
from service.cli.output import note, out
from service.cli.transfer import transfer

_PORTION = 1 << 20
_EVERY = 5.0


def import_files(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Files or folders below the engine's import root, or URLs; kafka://host:port/topic, jdbc:...",
        ),
    ],
    url: options.Url = options.URL,
    relation: Annotated[
        str | None,
        typer.Option(
            help="The relation that the rows go into. Default: triple for RDF, the file's name for .facts."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="csv, tsv, jsonl, parquet, orc, avro, delta, iceberg, facts, or of RDF: ntriples, nquads, turtle, "
            "trig, rdfxml, jsonld, or rdf, "
            "where each name says which. Default: according to the names' endings."
        ),
    ] = None,
    upload: Annotated[
        bool, typer.Option("--upload", help="Send one file of this machine to the service first.")
    ] = False,
    header: options.Header = False,
    delimiter: Annotated[
        str | None, typer.Option(help="One character, or tab, space, comma, semicolon, pipe.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Fields of the file in the relation's order: --columns 1,3 or --columns from,to."),
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(help="Types of the columns that the relation does not fix: --types symbol,number."),
    ] = None,
    one_line: Annotated[
        bool,
        typer.Option(
            "--one-line",
            help="No quoted field contains a line break, so a large file can be read in parts.",
        ),
    ] = False,
    weight: Annotated[
        int, typer.Option(help="What each row adds to the weight of its tuple; -1 retracts.")
    ] = 1,
    weight_column: Annotated[str | None, typer.Option(help="The field that holds each row's weight.")] = None,
    as_set: Annotated[
        bool,
        typer.Option("--set", help="Adding what is there, or retracting what is not there, changes nothing."),
    ] = False,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="Leave out rows that cannot be read. Default: the import fails."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, but change nothing.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(help="An Idempotency-Key: the same import with the same key is carried out only once."),
    ] = None,
    message: options.Message = None,
    source: options.Source = None,
    rdfs: Annotated[
        bool, typer.Option("--rdfs", help="RDF: add the rules of RDFS in the same transaction.")
    ] = False,
    owl_rl: Annotated[
        bool,
        typer.Option(
            "--owl-rl",
            help="RDF: add the rules of OWL 2 RL for the axioms in the files, as 'zedlog owl' makes them.",
        ),
    ] = False,
    graphs: Annotated[
        bool,
        typer.Option(
            "--graphs",
            help="RDF: the name of the graph is a fourth column; the relation is then called quad.",
        ),
    ] = False,
    blank_nodes: Annotated[
        str | None,
        typer.Option(
            help="RDF: keep the labels of blank nodes, or keep those of files apart. Default: apart, and keep for "
            "N-Triples and N-Quads."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until the job has ended.")] = False,
    stream: outside.Stream = None,
    starting: outside.Starting = None,
    max_messages: outside.MaxMessages = None,
    weight_header: outside.WeightHeader = None,
    follow_on: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Read on what comes, until Ctrl-C: one transaction after the other.",
            rich_help_panel="Topics of Kafka",
        ),
    ] = False,
    every: outside.Every = None,
    connection: outside.Connection = None,
    table: outside.Table = None,
    query: outside.Query = None,
    partition_column: outside.PartitionColumn = None,
    lower_bound: outside.LowerBound = None,
    upper_bound: outside.UpperBound = None,
    partitions: outside.Partitions = None,
    version_as_of: outside.VersionAsOf = None,
    timestamp_as_of: outside.TimestampAsOf = None,
) -> None:
    """Import files, or what is new in a topic, or a table, as one transaction: one epoch, or nothing. Ctrl-C cancels
    it.

    Examples:

    - `zedlog import lubm1.nt.gz`
    - `zedlog import ontology.ttl data.nt.gz --rdfs`: triples, and the rules of RDFS, in one step
    - `zedlog import dataset.trig --graphs`: into quad(s, p, o, g)
    - `zedlog import edges.csv --relation edge --header`
    - `zedlog import part1.parquet part2.parquet --relation edge`
    - `zedlog import facts/`: a folder of Souffle's .facts
    - `zedlog import edges.tsv --relation edge --upload --skip`
    - `zedlog import kafka://broker:9092/edges --relation edge --follow`: each message counts once
    - `zedlog import jdbc:postgresql://db/shop --table items --relation item --connection shop`
    - `zedlog import lake/edges --format delta --version-as-of 3 --relation edge`
    - `zedlog import managers.parquet --relation manager --source hr -m "of January"`
    """
    if rdfs and owl_rl:
        raise typer.BadParameter(
            "an import adds one set of rules; give one of --rdfs and --owl-rl", param_hint="--rdfs"
        )
    topic = files[0].lower().startswith("kafka:")
    if follow_on and not topic:
        raise typer.BadParameter(
            "only a topic is read on; 'zedlog sync SOURCE .. --every 60' reads a table again and again",
            param_hint="--follow",
        )
    if (every is not None and not follow_on) or (follow_on and (detach or key or dry_run)):
        raise typer.BadParameter(
            "--every goes with --follow, and --detach, --key and --dry-run do not", param_hint="--follow"
        )
    how = outside.given(
        stream=stream,
        starting=starting,
        max_messages=max_messages,
        weight_header=weight_header,
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
    body: Json = {
        "options": how or None,
        "rules": "rdfs" if rdfs else "owl-rl" if owl_rl else None,
        "graphs": graphs or None,
        "blank_nodes": blank_nodes,
        "relation": relation,
        "format": format,
        "header": header,
        "columns": _columns(columns),
        "types": None if types is None else [part.strip() for part in types.split(",")],
        "multiline": not one_line,
        "weight": weight,
        "weight_column": _column(weight_column) if weight_column is not None else None,
        "mode": "set" if as_set else "zset",
        "on_error": "skip" if skip else "fail",
        "dry_run": dry_run,
        "message": message,
        "source": source,
    }
    if format is None and not outside.is_outside(files[0], format):
        body["format"] = _told_by_name(files)
    if delimiter is not None:
        # Here, for what reads files loads pyarrow, which the other commands do without.
        from service.delimited import delimiter_named

        try:
            body["delimiter"] = delimiter_named(delimiter)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--delimiter") from error
    body = {name: value for name, value in body.items() if value is not None}
    with ServiceClient(url) as client:
        if upload:
            body["upload"] = _upload(client, files)
        else:
            body["paths"] = files
        if follow_on:
            outside.read_on(client, body, every or _EVERY)
            return
        job = client.post("/v1/imports", body, key=key)
        if detach:
            out.print(job["job"])
            note(f"[dim]'zedlog jobs wait {job['job']}' waits for it[/]")
            return
        report(follow(client, job))


def _told_by_name(files: list[str]) -> str | None:
    """The format. A folder counts as Souffle's facts, because its name does not say a format and those come in
    folders."""
    try:
        return guess_format(files)
    except InvalidRequestError:
        return "facts" if files[0].endswith("/") else None


def _upload(client: ServiceClient, files: list[str]) -> str:
    if len(files) != 1:
        raise typer.BadParameter("only one file can be sent at a time", param_hint="--upload")
    path = Path(files[0])
    name = re.sub(r"[^A-Za-z0-9._-]", "_", path.name).lstrip(".-")[-100:]
    try:
        size = path.stat().st_size
        with path.open("rb") as stream, transfer() as progress:
            task = progress.add_task(f"sending {path.name}", total=size)

            def portions() -> Iterator[bytes]:
                while portion := stream.read(_PORTION):
                    progress.advance(task, len(portion))
                    yield portion

            return str(client.upload("/v1/uploads", name or "file", portions())["upload"])
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint="FILE") from error


def _columns(text: str | None) -> list[Any] | None:
    return None if text is None else [_column(part.strip()) for part in text.split(",")]


def _column(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdecimal() else text
