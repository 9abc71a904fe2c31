"""`zedlog blame | history | rollback`: what happened to tuples, and the way back."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from engine.language.parser import parse_goal
from engine.language.syntax import Constant, Variable
from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.edit import print_delta
from service.cli.options import OutputFormat
from service.cli.output import chosen, counted, moment, note, out, print_outcome, show, write_rows
from service.cli.prefixes import prefixes_for

Goal = Annotated[
    str,
    typer.Argument(help="""One atom, such as 'exposed("x", y)': constants bind columns, variables do not."""),
]
_PAGE = 1_000


def blame(
    goal: Goal,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="At most this many tuples.")] = 20,
    url: options.Url = options.URL,
) -> None:
    """Show since which epoch and transaction a tuple has been there without interruption.

    Also who sent the transaction, and which sources assert the tuple. Exit status 1 if there is no such tuple.

    Examples:

    - `zedlog blame 'exposed("x", "y")'`
    - `zedlog blame 'exposed("x", y)'`
    """
    with ServiceClient(url) as client:
        path, bound = _asked(client, goal)
        try:
            answer = client.get(f"{path}/blame", **bound, limit=limit)
        except Refused as refusal:
            if refusal.code != "unknown_relation":
                raise
            answer = {"facts": [], "more": False, "epoch": client.get("/v1/relations")["epoch"]}
        for fact in answer["facts"]:
            _print_blamed(answer["relation"], fact)
        if answer["more"]:
            note(f"[dim]and more; --limit shows up to {_PAGE:,}[/]")
        if answer["facts"]:
            return
        note(f"{escape(goal)} does not hold at epoch {answer['epoch']}")
        past = client.get(f"{path}/history", **bound, limit=1)
    if past["events"]:
        (event,) = past["events"]
        tuple_ = f"{past['relation']}({', '.join(map(show, event['tuple']))})"
        note(
            f"{escape(tuple_)} went at epoch {event['epoch']}, {moment(event['time'])}{_by(event['transactions'])}"
        )
    else:
        note(f"[dim]nor since epoch {past['oldest']}, the oldest that is kept[/]")
    raise typer.Exit(1)


def _print_blamed(relation: str, fact: Json) -> None:
    out.print(f"[bold]{escape(relation)}({escape(', '.join(map(show, fact['tuple'])))})[/]")
    if fact["exact"]:
        out.print(f"  since epoch {fact['since']}, {moment(fact['time'])}{_by(fact['transactions'])}")
    else:
        out.print(f"  at least since epoch {fact['since']}, the oldest that is kept")
    parts = [f"{escape(name)} ({weight})" for name, weight in fact["sources"].items()]
    free = fact["weight"] - sum(fact["sources"].values())
    if free:
        parts.append(f"without a source ({free})")
    if parts:
        out.print(f"  asserted by {', '.join(parts)}")
    if fact["derived"]:
        out.print("  derived by a rule")


def _by(transactions: list[Json] | None) -> str:
    """Through which transactions, in rich markup."""
    if transactions is None:
        return ", by transactions that are no longer kept"
    told = []
    for one in transactions[:3]:
        author = f" by {one['author']}" if one["author"] else ""
        source = f" for the source {one['source']}" if one["source"] else ""
        message = f": {one['message']}" if one["message"] else ""
        told.append(escape(f"transaction {one['transaction']}{author}{source}{message}"))
    more = f" and {counted(len(transactions) - 3, 'other')}" if len(transactions) > 3 else ""
    return f", {'; '.join(told)}{more}" if told else ""


def history(
    goal: Goal,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="At most this many events.")] = 50,
    format: OutputFormat = None,
    url: options.Url = options.URL,
) -> None:
    """Show when tuples came and went, and through which transactions.

    The newest change comes first; it goes as far back as epochs are kept.

    Examples:

    - `zedlog history 'exposed("x", y)'`
    - `zedlog history 'manages(x, y)' --format csv`
    """
    with ServiceClient(url) as client:
        path, bound = _asked(client, goal)
        answer = client.get(f"{path}/history", **bound, limit=limit)
    listed = []
    for event in answer["events"]:
        tuple_ = f"{answer['relation']}({', '.join(map(show, event['tuple']))})"
        done = event["transactions"] or []
        told = [
            ", ".join(t[name] for t in done if t[name])
            for name in ("transaction", "author", "source", "message")
        ]
        listed.append(
            (event["epoch"], moment(event["time"]), event["change"], tuple_, event["weight"], *told)
        )
    columns = ("epoch", "time", "change", "tuple", "weight", "transaction", "author", "source", "message")
    write_rows(columns, listed, chosen(format))
    if answer["cursor"] is not None:
        note("[dim]and more before that; --limit shows more[/]")
    note(f"[dim]epochs are kept back to {answer['oldest']}[/]")


def _asked(client: ServiceClient, goal: str) -> tuple[str, dict[str, str]]:
    """The path of the relation's facts, and the parameters that bind its columns."""
    atom = parse_goal(goal, prefixes_for(client, goal))
    path = f"/v1/relations/{atom.relation}"
    try:
        columns = client.get(path)["columns"]
    except Refused as refusal:
        if refusal.code != "unknown_relation":
            raise
        # It may have existed in an older epoch.
        columns = client.get(f"{path}/facts/history", limit=1)["columns"]
    if len(columns) != len(atom.terms):
        raise typer.BadParameter(
            f"{atom.relation} has {counted(len(columns), 'column')}, but the atom has {len(atom.terms)}",
            param_hint="GOAL",
        )
    names = [term.name for term in atom.terms if isinstance(term, Variable)]
    if len(set(names)) < len(names):
        raise typer.BadParameter("a variable may stand in one place only", param_hint="GOAL")
    bound = {
        f"where.{column['name']}": _text(term.value)
        for column, term in zip(columns, atom.terms, strict=True)
        if isinstance(term, Constant)
    }
    return f"{path}/facts", bound


def _text(value: Any) -> str:
    """A value as a parameter of a URL has it: a symbol without quotes."""
    return value if isinstance(value, str) else show(value)


def rollback(
    epoch: Annotated[int, typer.Argument(min=0, help="The epoch to go back to; it must still be kept.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, but change nothing.")
    ] = False,
    delta: Annotated[
        bool, typer.Option("--delta", help="Show the tuples that appeared and disappeared.")
    ] = False,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Why: kept with the transaction.")
    ] = None,
    url: options.Url = options.URL,
) -> None:
    """Make facts, rules and declarations what they were after an older epoch.

    It becomes a new epoch, and nothing is forgotten: a rollback can be rolled back. What sources assert goes back, too.
    `zedlog epochs` lists the epochs.

    Examples:

    - `zedlog rollback 41 --dry-run`
    - `zedlog rollback 41 -m "the import was wrong"`
    """
    body: Json = {"to": epoch}
    if message is not None:
        body["message"] = message
    with ServiceClient(url) as client:
        answer = client.change("/v1/rollback", body, dry_run=dry_run, delta=delta or dry_run)
    print_outcome(answer, dry_run=dry_run)
    if delta or dry_run:
        print_delta(answer)
