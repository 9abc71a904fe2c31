"""`zedlog sparql`: ask a running service in SPARQL, or send it an update."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from service.cli import options
from service.cli.client import ServiceClient
from service.cli.edit import read_text
from service.cli.options import Format
from service.cli.output import TABLE_ROWS, counted, note, out, print_outcome, write_rows


class SparqlFormat(StrEnum):
    """How an answer is written: a table for people, or as the service sends it."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    XML = "xml"
    TURTLE = "turtle"
    NT = "nt"


_RESULTS = "application/sparql-results+json"
# For SELECT and ASK, and for CONSTRUCT and DESCRIBE.
_ACCEPT = {
    SparqlFormat.TABLE: f"{_RESULTS}, text/turtle",
    SparqlFormat.JSON: f"{_RESULTS}, application/ld+json",
    SparqlFormat.CSV: "text/csv, application/n-triples",
    SparqlFormat.TSV: "text/tab-separated-values, application/n-triples",
    SparqlFormat.XML: "application/sparql-results+xml, application/rdf+xml",
    SparqlFormat.TURTLE: "text/turtle",
    SparqlFormat.NT: "application/n-triples",
}


def sparql(
    text: Annotated[
        str, typer.Argument(help="The query or the update, or a file that holds it; '-' is standard input.")
    ],
    update: Annotated[
        bool, typer.Option("--update", help="It is an update: it changes facts of triple(s, p, o).")
    ] = False,
    format: Annotated[
        SparqlFormat | None,
        typer.Option(
            "--format", help="How to write the answer. Default: a table on a terminal, otherwise csv."
        ),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that it may take.")] = None,
    message: options.Message = None,
    source: options.Source = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --update: say what would change, without changing anything."),
    ] = False,
    url: options.Url = options.URL,
) -> None:
    """Ask in SPARQL over triple(s, p, o), asserted and derived; or change it with a SPARQL update.

    The first query makes the store that answers, which takes a second or two for a hundred thousand triples. The answer
    of CONSTRUCT and DESCRIBE is Turtle on a terminal, and N-Triples where CSV would be the default.

    Examples:

    - `zedlog sparql 'SELECT ?s ?o { ?s a ?o } LIMIT 10'`
    - `zedlog sparql query.rq --format json`
    - `zedlog sparql 'CONSTRUCT WHERE { ?s ?p ?o }' --format turtle > all.ttl`
    - `zedlog sparql --update 'DELETE { ?s ?p ?o } WHERE { ?s ?p ?o ; a <http://example.org/Old> }' --dry-run`
    """
    asked = _text(text)
    if not update and (dry_run or message is not None or source is not None):
        raise typer.BadParameter(
            "this is for updates; add --update", param_hint="--dry-run, --message, --source"
        )
    if update and format is not None:
        raise typer.BadParameter("an update has no answer to write", param_hint="--format")
    with ServiceClient(url) as client:
        if update:
            done = client.sparql_update(
                asked, timeout=timeout, message=message, source=source, dry_run=dry_run
            )
            print_outcome(done, dry_run=dry_run)
            return
        how = format or (SparqlFormat.TABLE if sys.stdout.isatty() else SparqlFormat.CSV)
        kind, epoch, data = client.sparql(asked, _ACCEPT[how], timeout=timeout)
    if how is SparqlFormat.TABLE and kind == _RESULTS:
        _show(orjson.loads(data), epoch)
    else:
        _write(data)


def _text(given: str) -> str:
    """The text itself, or that of a file, whose name has no spaces and braces if it is not there."""
    try:
        is_file = given == "-" or Path(given).is_file()
    except OSError:
        # Too long for a name.
        is_file = False
    return read_text(Path(given)) if is_file or not set(given) & set("{ \n") else given


def _write(data: bytes) -> None:
    # What the service sent, unchanged, for CSV ends its lines as its specification wants; the last line is ended.
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _show(answer: dict[str, Any], epoch: str) -> None:
    if "boolean" in answer:
        out.print(
            f"[bold green]yes[/], at epoch {epoch}" if answer["boolean"] else f"[bold]no[/], at epoch {epoch}"
        )
        return
    names = answer["head"]["vars"]
    rows = answer["results"]["bindings"]
    total = write_rows(names, ([_shown(row.get(name)) for name in names] for row in rows), Format.TABLE)
    if total <= TABLE_ROWS:
        note(f"[dim]{counted(total, 'row')} at epoch {epoch}[/]")


def _shown(term: dict[str, str] | None) -> str:
    """A term for a person: `<iri>`, text, 12, "text"@en."""
    if term is None:
        return ""
    value = term["value"]
    if term["type"] == "uri":
        return f"<{value}>"
    if term["type"] == "bnode":
        return f"_:{value}"
    if "xml:lang" in term:
        return f'"{value}"@{term["xml:lang"]}'
    kind = term.get("datatype", "").rpartition("#")[2]
    return value if not kind or kind in ("integer", "decimal", "double", "boolean") else f'"{value}"^^{kind}'
