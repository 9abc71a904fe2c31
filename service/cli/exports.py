"""`zedlog export WHAT PATH`: export a relation, or the answers of a query, to files through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.language.operators import is_relation_name
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.export_follow import follow_changes
from service.cli.jobs import follow, report
from service.cli.output import note, out

_PANEL = "The changes of every epoch"


def export(
    what: Annotated[str, typer.Argument(help="A relation, or a query.")],
    path: Annotated[
        str,
        typer.Argument(help="A path below the engine's export root: far.csv becomes one file, far a folder."),
    ],
    url: options.Url = options.URL,
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, tsv, jsonl, or of RDF: ntriples, nquads, turtle, trig, rdfxml or jsonld. Default: "
            "according to the path's ending."
        ),
    ] = None,
    domain: Annotated[
        str, typer.Option(help="Which tuples of a relation: all, asserted or derived.")
    ] = "all",
    weights: Annotated[
        bool, typer.Option("--weights", help="With --domain asserted: add a last column with the weights.")
    ] = False,
    epoch: Annotated[int | None, typer.Option(help="Export an older epoch, if it is still retained.")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Write CSV or TSV without a first line of names.")
    ] = False,
    plain_header: Annotated[
        bool,
        typer.Option(
            "--plain-header",
            help="Write names without types into the first line, for other tools. Default: name:type.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse triples that RDF cannot represent. Default: leave them out."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    prefixes: Annotated[
        bool,
        typer.Option(
            "--prefixes",
            help="Turtle, TriG, RDF/XML: shorten IRIs with the prefixes that the database declares.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(help="An Idempotency-Key: the same export with the same key is carried out only once."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until the job has ended.")] = False,
    follow_on: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Write what each epoch changes as a file of its own into a folder of this machine, until Ctrl-C.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    until: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --follow: end when this epoch has been written.", rich_help_panel=_PANEL
        ),
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(
            help="With --follow: a subscription of this name keeps the epochs that are not written yet, also while "
            "this command does not run.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> None:
    """Export the tuples of one epoch to files. Ctrl-C cancels it.

    With --follow it goes on with what every later epoch changes: weight 1 for a tuple that appeared, -1 for one that
    went, and the epoch. Started again, it goes on where it was; the formats are parquet and delta.

    Examples:

    - `zedlog export tc closure --format parquet`
    - `zedlog export 'tc("a", x), !edge("a", x)' far.csv`
    - `zedlog export triple graph.ttl --prefixes`
    - `zedlog export tc lake/tc --follow --subscription lake`
    - `zedlog export tc lake/tc --follow --format delta --until 120`
    - `zedlog export edge edges.jsonl --domain asserted --weights`
    """
    if follow_on:
        others = (
            weights,
            overwrite,
            no_header,
            plain_header,
            strict,
            prefixes,
            detach,
            key,
            epoch is not None,
        )
        if any(others) or domain != "all" or format not in (None, "parquet", "delta"):
            raise typer.BadParameter(
                "with --follow there are only --format parquet or delta, --until and --subscription",
                param_hint="--follow",
            )
        with ServiceClient(url) as client:
            follow_changes(
                client,
                what,
                Path(path),
                as_delta=format == "delta",
                until=until,
                subscription=subscription,
            )
        return
    if until is not None or subscription is not None:
        raise typer.BadParameter("only with --follow", param_hint="--until")
    body: Json = {
        "relation" if is_relation_name(what) else "query": what,
        "path": path,
        "domain": domain,
        "weights": weights,
        "overwrite": overwrite,
        "header": not no_header,
        "types": not plain_header,
        "strict": strict,
        "prefixes": prefixes,
    }
    for name, value in (("format", format), ("epoch", epoch)):
        if value is not None:
            body[name] = value
    with ServiceClient(url) as client:
        job = client.post("/v1/exports", body, key=key)
        if detach:
            out.print(job["job"])
            note(f"[dim]'zedlog jobs wait {job['job']}' waits for it[/]")
            return
        report(follow(client, job))
