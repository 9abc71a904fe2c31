"""`zedlog transactions`: list them, show the outcome of one, or cancel one that is waiting or running."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.markup import escape

from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.output import chosen, moment, note, out, print_outcome, write_rows

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0

transactions_app = typer.Typer(
    no_args_is_help=True, help="List the transactions, show the outcome of one, or cancel one."
)

Id = Annotated[str, typer.Argument(help="Its id.")]


@transactions_app.command()
def show(transaction: Id, url: options.Url = options.URL) -> None:
    """Show the outcome of a transaction. Exit status 1 if it was refused.

    Examples:

    - `zedlog transactions show 1735689600000-0`
    """
    with ServiceClient(url) as client:
        found = client.get(f"/v1/transactions/{transaction}")
    _report(found)


@transactions_app.command("list")
def list_transactions(
    author: Annotated[str | None, typer.Option(help="Only those of this author.")] = None,
    source: Annotated[str | None, typer.Option(help="Only those whose facts count for this source.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="committed|dry_run|refused", help="Only those with this outcome.")
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="Only those that name this relation in their facts, or whose epoch changed it."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those from this time on: 2026-01-31T12:00:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only those up to this time.")] = None,
    from_epoch: Annotated[int | None, typer.Option(min=0, help="Only those from this epoch on.")] = None,
    to_epoch: Annotated[int | None, typer.Option(min=0, help="Only those up to this epoch.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    format: options.OutputFormat = None,
    url: options.Url = options.URL,
) -> None:
    """List the transactions that are kept, newest first: what they changed, who sent them, and why.

    Examples:

    - `zedlog transactions list`
    - `zedlog transactions list --source hr --limit 5`
    - `zedlog transactions list --relation manages --since 2026-01-31`
    """
    asked = {"author": author, "source": source, "status": status, "relation": relation}
    asked |= {"since": since, "until": until}
    rows: list[tuple[str, ...]] = []
    before: str | None = None
    with ServiceClient(url) as client:
        while len(rows) < limit:
            page = client.get(
                "/v1/transactions",
                **asked,
                from_epoch=from_epoch,
                to_epoch=to_epoch,
                limit=min(limit - len(rows), 1000),
                before=before,
            )
            rows += map(_row, page["transactions"])
            before = page["before"]
            if before is None:
                break
    columns = ("transaction", "time", "epoch", "outcome", "author", "source", "message", "changes")
    write_rows(columns, rows, chosen(format))


def _row(entry: Json) -> tuple[str, ...]:
    outcome = entry["status"] if entry["problem"] is None else f"refused: {entry['problem']['code']}"
    if entry["rollback"] is not None and entry["status"] == "committed":
        outcome = f"rollback to {entry['rollback']}"
    changes = " ".join(
        f"{relation} +{change['inserted']} -{change['deleted']}"
        for relation, change in (entry["changes"] or {}).items()
    )
    told = (entry[name] or "" for name in ("author", "source", "message"))
    epoch = "" if entry["epoch"] is None else str(entry["epoch"])
    return entry["transaction"], moment(entry["time"]), epoch, outcome, *told, changes


@transactions_app.command()
def cancel(transaction: Id, url: options.Url = options.URL) -> None:
    """Cancel a transaction that is waiting or running; it changes nothing. `zedlog status` names the running one.

    Examples:

    - `zedlog transactions cancel 1735689600000-0`
    """
    with ServiceClient(url) as client:
        found = client.delete(f"/v1/transactions/{transaction}")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while found["status"] == "pending" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = client.get(f"/v1/transactions/{transaction}")
    if found["status"] == "refused" and found["problem"]["code"] == "cancelled":
        out.print(f"{escape(transaction)}: cancelled")
    elif found["status"] == "pending":
        note(
            f"[yellow]{escape(transaction)} is to be cancelled, but no engine has confirmed it within "
            f"{_PATIENCE_SECONDS:.0f} s; 'zedlog status' shows whether one is running[/]"
        )
    else:
        _report(found)


def _report(found: Json) -> None:
    """Print one transaction as the service describes it.

    Raises:
        Refused: the transaction was refused.
    """
    if found["status"] == "refused":
        raise Refused(int(found["problem"]["status"]), found["problem"])
    out.print(f"{escape(found['transaction'])}: {found['status']}")
    if found["status"] != "pending":
        print_outcome(found["result"], dry_run=found["status"] == "dry_run")
