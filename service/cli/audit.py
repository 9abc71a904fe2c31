"""`zedlog audit`: ask the engine to audit itself, and show what it found."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from engine.audit.report import in_words
from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.jobs import seconds, size
from service.cli.output import counted, err, note, out, print_whole

_POLL_SECONDS = 0.2
_ENGINE_SECONDS = 2.0
"""So long an audit may take before it is looked whether an engine runs."""
_COLOURS = {"passed": "green", "differs": "bold red", "failed": "yellow"}


def audit(
    id: Annotated[
        str | None, typer.Argument(help="Show this audit, or wait for it, instead of asking for a new one.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the audit to end, and show the result.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the last audits instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100, help="With --list: at most this many.")] = 20,
    url: options.Url = options.URL,
) -> None:
    """Audit the database: derive everything again, compare it, and verify the snapshot.

    What follows from facts and rules is compared with what the engine holds and with the snapshot in Redis, whose
    blocks are verified. The engine does it in a process of low priority, and goes on meanwhile. Exit status 1 if there
    is a difference, or if the audit could not be completed.

    Examples:

    - `zedlog audit --wait`
    - `zedlog audit --list`
    - `zedlog audit a1f0a2b3c4d5e6f70`
    """
    if list_ and (id is not None or wait):
        raise typer.BadParameter("it lists the audits, and takes no id and no --wait", param_hint="--list")
    with ServiceClient(url) as client:
        if list_:
            _print_list(client.get("/v1/audits", limit=limit)["audits"])
            return
        found = client.post("/v1/audits", {}) if id is None else client.get(f"/v1/audits/{id}")
        if wait:
            found = _ended(client, found)
    _print(found)
    if found["status"] in ("differs", "failed"):
        raise typer.Exit(1)


def _ended(client: ServiceClient, found: Json) -> Json:
    look = time.monotonic() + _ENGINE_SECONDS
    said = False
    with err.status("auditing ..."):
        while found["status"] in ("queued", "running"):
            time.sleep(_POLL_SECONDS)
            if not said and time.monotonic() >= look:
                said = _say_if_no_engine_runs(client, found)
                look = time.monotonic() + _ENGINE_SECONDS
            found = client.get(found["status_url"])
    return found


def _say_if_no_engine_runs(client: ServiceClient, found: Json) -> bool:
    """Whether that had to be said. It is no error: the engine may be on its way."""
    try:
        client.get("/readyz")
    except Refused as refusal:
        note(
            f"[yellow]still waiting for the audit: {escape(str(refusal))}[/]\n"
            "The engine does the audit as soon as one runs; 'zedlog engine' starts one. Ctrl-C only ends this wait: "
            f"the audit stays asked for, and 'zedlog audit {found['audit']} --wait' waits for it again."
        )
        return True
    return False


def _print_list(audits: list[Json]) -> None:
    table = Table(header_style="bold")
    for column in ("audit", "what", "result", "epoch", "ended", "took"):
        # An id is there to be copied.
        whole = max((len(one["audit"]) for one in audits), default=0) if column == "audit" else None
        table.add_column(column, no_wrap=True, min_width=whole)
    for one in audits:
        report = one["report"] or {}
        ended = one["finished"] and datetime.fromtimestamp(one["finished"]).strftime("%Y-%m-%d %H:%M:%S")
        took = seconds(report["seconds"]) if report else ""
        what = "comparison after the start" if one["kind"] == "start" else f"audit, by {one['cause']}"
        table.add_row(one["audit"], what, _state(one), str(report.get("epoch", "")), ended or "", took)
    print_whole(table)


def _state(one: Json) -> str:
    colour = _COLOURS.get(one["status"])
    text = one["status"]
    if one["report"] is not None and one["report"]["differing"]:
        text += f": {counted(one['report']['differing'], 'difference')}"
    return text if colour is None else f"[{colour}]{text}[/]"


def _print(found: Json) -> None:
    out.print(f"{escape(found['audit'])}: {_state(found)}")
    report = found["report"]
    if report is None:
        if found["why"] is not None:
            out.print(f"  {escape(found['why'])}")
        elif found["status"] in ("queued", "running"):
            note(f"[dim]'zedlog audit {found['audit']} --wait' waits for it[/]")
        return
    out.print(
        f"  epoch {report['epoch']}, in {seconds(report['seconds'])}: {counted(report['relations'], 'relation')}, "
        f"{counted(report['tuples'], 'tuple')}, {counted(report['supports'], 'support')}, "
        f"{counted(report['postings'], 'posting')} compared; {counted(report['objects'], 'object')}, "
        f"{size(report['bytes'])} verified"
    )
    for why in report["uncompared"]:
        out.print(f"  [yellow]not compared[/]: {escape(why)}")
    for one in report["differences"]:
        out.print(f"  {escape(in_words(one))}")
    more = report["differing"] - len(report["differences"]) - report["withheld"]
    if report["withheld"]:
        out.print(f"  {counted(report['withheld'], 'difference')} in relations that you may not read")
    if more > 0:
        out.print(f"  and {counted(more, 'more difference')}, which are not named")
