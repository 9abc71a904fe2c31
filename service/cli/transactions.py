"""`zedlog transactions`: show the outcome of a transaction, or cancel one that is waiting or running."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.markup import escape

from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.output import note, out, print_outcome

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0

transactions_app = typer.Typer(no_args_is_help=True, help="Show the outcome of a transaction, or cancel one.")

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
