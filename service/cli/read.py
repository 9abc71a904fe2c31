"""`zedlog query | relations | epochs | status`: show what the service knows, on the terminal or into a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Annotated, Any

import typer
from rich.markup import escape

from engine.bulk.headers import typed_names
from engine.language.schema import Column, ColumnType
from service.cli import options
from service.cli.client import Json, Refused, ServiceClient, Unreachable
from service.cli.options import Format, OutputFormat
from service.cli.output import TABLE_ROWS, chosen, counted, milliseconds, note, out, write_rows

# Rows fetched in one request.
PAGE = 10_000


def query(
    goal: Annotated[
        str, typer.Argument(help="An atom or a conjunction; its variables are the columns of the answer.")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows. Default: all.")] = None,
    format: OutputFormat = None,
    types: Annotated[
        bool,
        typer.Option(
            "--types", help="CSV only: write the types into the header (name:type), for 'load' and 'import'."
        ),
    ] = False,
    prefixes: options.ShortIris = False,
    url: options.Url = options.URL,
) -> None:
    """Answer a query: an atom, or a conjunction with negation, conditions and aggregates.

    Examples:

    - `zedlog query 'tc(x, "b")'`
    - `zedlog query 'tc("a", y)' --format csv > reached.csv`
    - `zedlog query 'tc(x, y)' --format csv --types > tc.csv`: `zedlog load copy tc.csv --header` restores the types
    - `zedlog query 'edge(x, x)'`
    - `zedlog query 'tc("a", "c")'`: prints whether it holds
    - `zedlog query 'triple(x, rdf:type, c)' --prefixes`: with prefixes that '.prefix rdf: <...>' has declared
    """
    how = chosen(format)
    if types and how is not Format.CSV:
        raise typer.BadParameter(
            "types can only be written into the header of CSV; add --format csv", param_hint="--types"
        )
    # A table is held in memory and read by a person: fetch one row more than it shows, to know whether
    # there are more.
    shown = TABLE_ROWS + 1 if how is Format.TABLE and limit is None else limit
    with ServiceClient(url) as client:
        pages = client.query(goal, page=PAGE, limit=shown, prefixes=prefixes)
        first = next(pages)
        names = [column["name"] for column in first["columns"]]
        if not names:
            _print_holds(bool(first.get("holds", first["tuples"])), first, how)
            return
        if types:
            names = typed_names([_column(column) for column in first["columns"]])
        rows = chain.from_iterable(page["tuples"] for page in chain([first], pages))
        total = write_rows(names, _limited(rows, limit), how)
    if how is Format.TABLE and total <= TABLE_ROWS:
        # A longer table has said so itself.
        note(f"[dim]{counted(total, 'row')} at epoch {first['epoch']}[/]")


def _column(column: Json) -> Column:
    return Column(column["name"], None if column["type"] is None else ColumnType(column["type"]))


def _limited(rows: Iterator[Any], limit: int | None) -> Iterator[Any]:
    return rows if limit is None else islice(rows, limit)


def _print_holds(holds: bool, answer: Json, how: Format) -> None:
    if how is Format.TABLE:
        out.print(
            f"[bold green]yes[/], at epoch {answer['epoch']}"
            if holds
            else f"[bold]no[/], at epoch {answer['epoch']}"
        )
    else:
        write_rows(("holds",), [(holds,)], how)


def relations(format: OutputFormat = None, url: options.Url = options.URL) -> None:
    """List the relations: their columns, and how many tuples are asserted, derived, and present in all.

    Examples:

    - `zedlog relations`
    """
    with ServiceClient(url) as client:
        answer = client.get("/v1/relations")
    how = chosen(format)
    rows = [
        (
            r["relation"],
            _columns(r["columns"]),
            r["counts"]["asserted"],
            r["counts"]["derived"],
            r["counts"]["all"],
            _digest(r.get("digest"), how),
        )
        for r in answer["relations"]
    ]
    if how is Format.TABLE and not rows:
        note("There are no relations yet; create some with 'zedlog load' or 'zedlog rules add'.")
        return
    write_rows(
        ("relation", "columns", "asserted", "derived", "all", "digest"),
        rows,
        how,
        title=f"epoch {answer['epoch']}",
    )


def _digest(digest: str | None, how: Format) -> str:
    """In a table its first digits: enough to see by eye whether two are equal."""
    return (digest or "")[: 12 if how is Format.TABLE else None]


def _columns(columns: list[Json]) -> str:
    return ", ".join(f"{c['name']}: {c['type'] or '?'}" for c in columns)


def epochs(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many to list, newest first.")] = 20,
    format: OutputFormat = None,
    url: options.Url = options.URL,
) -> None:
    """List the last epochs: time, changes, duration, and how and why they were evaluated so.

    Examples:

    - `zedlog epochs --limit 5`
    - `zedlog epochs --format ndjson`
    """
    with ServiceClient(url) as client:
        answer = client.get("/v1/epochs", limit=limit)
    how = chosen(format)
    if how is Format.TABLE:
        rows = [_epoch_row(epoch) for epoch in answer["epochs"]]
        write_rows(("epoch", "when", "changes", "engine", "derivations", "evaluated"), rows, how)
    else:
        flat = [
            (e.get("epoch"), e.get("time"), e.get("changes"), *_cost(e), *_choice(e))
            for e in answer["epochs"]
        ]
        names = ("epoch", "time", "changes", "elapsed_ms", "strategy", "derivations")
        write_rows((*names, "placement", "abandoned", "estimate", "bootstrap", "reason"), flat, how)


def _cost(epoch: Json) -> tuple[Any, Any, Any]:
    return epoch.get("elapsed_ms"), epoch.get("strategy"), epoch.get("derivations")


def _choice(epoch: Json) -> tuple[Any, ...]:
    """The derivations, and the strategy and placement of an epoch; very old epochs do not record the latter."""
    cost = epoch.get("cost", {})
    counts = (cost.get(name, 0) for name in ("abandoned", "estimate", "bootstrap"))
    return epoch.get("placement"), *counts, epoch.get("reason")


def _epoch_row(epoch: Json) -> tuple[str, ...]:
    elapsed, strategy, derivations = _cost(epoch)
    placement, abandoned, _, _, reason = _choice(epoch)
    when = datetime.fromtimestamp(float(epoch.get("time", 0))).strftime("%m-%d %H:%M:%S")
    changes = ", ".join(
        f"{relation} {plain_counts(change)}" for relation, change in sorted(epoch.get("changes", {}).items())
    )
    return (
        str(epoch.get("epoch")),
        when,
        changes or "none",
        milliseconds(elapsed),
        f"{derivations:,}" + (f" ({abandoned:,} abandoned)" if abandoned else ""),
        f"{strategy}, {placement}" + ("" if reason == "maintained" else f": {reason}"),
    )


def plain_counts(change: Json) -> str:
    """`+3 -1` without colour."""
    parts = [f"+{change['inserted']:,}"] if change["inserted"] else []
    parts += [f"-{change['deleted']:,}"] if change["deleted"] else []
    return " ".join(parts)


def status(url: options.Url = options.URL) -> None:
    """Show whether the service, its storage and its engine are ready. Exit status 1 if they are not.

    Examples:

    - `zedlog status`
    """
    with ServiceClient(url) as client:
        try:
            ready = client.get("/readyz")
        except Refused as refusal:
            out.print(f"[bold yellow]not ready[/]: {refusal}")
            raise typer.Exit(1) from refusal
        try:
            known = client.get("/v1/relations")["relations"]
        except Refused as refusal:
            raise Unreachable(str(refusal)) from refusal
    tuples = sum(r["counts"]["all"] for r in known)
    out.print(f"[bold green]ready[/]: {client.url}")
    out.print(f"  database   {ready['database']}")
    out.print(f"  engine     {ready['engine']}, epoch {ready['epoch']}, {ready['lag']} waiting")
    out.print(f"  relations  {len(known)} with {counted(tuples, 'tuple')}")
    if ready.get("recovered") is not None:
        out.print(f"  started    {escape(ready['recovered'])}")
    for kind, what in (("full", "audit"), ("start", "at start")):
        last = ready["audits"][kind]
        if last is not None and (kind == "full" or last["status"] != "passed"):
            _print_audit(what, last)
    _print_activity(ready)


def _print_audit(what: str, last: Json) -> None:
    """The last self-audit in a line."""
    when = datetime.fromtimestamp(float(last["finished"])).strftime("%Y-%m-%d %H:%M:%S")
    if last["status"] == "passed":
        text = "no difference"
    elif last["status"] == "failed":
        text = f"[yellow]could not be completed[/]; 'zedlog audit {last['id']}' shows why"
    else:
        text = (
            f"[bold red]{counted(last['differing'], 'difference')}[/]; 'zedlog audit {last['id']}' shows them"
        )
    out.print(f"  {what:10} {text} ({when})")


def _print_activity(ready: Json) -> None:
    """Print what is running, and the faults of Zedlog itself, if there are any."""
    running = ready.get("running")
    if running is not None:
        what = f"transaction {running['first']}"
        if running["last"] != running["first"]:
            what = f"transactions {running['first']} to {running['last']}"
        where = f", at {', '.join(running['relations'])}" if running["relations"] else ""
        out.print(f"  running    {escape(what)} for {running['seconds']:.1f} s{escape(where)}")
    fault = ready.get("last_fault")
    if fault is not None:
        when = datetime.fromtimestamp(float(fault["time"])).strftime("%Y-%m-%d %H:%M:%S")
        refused = counted(ready["faults"], "transaction")
        out.print(
            f"  [yellow]faults[/]     {refused} refused because of bugs in Zedlog; the last one, {when}:"
        )
        out.print(f"             {escape(fault['first'])}: {escape(fault['message'])}")
