"""`zedlog watch`: the changes of a relation or of a query, live, until Ctrl-C.

It goes on by itself after a lost connection, from the last epoch that it has shown, so nothing is shown twice and
nothing is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from engine.language.prefixes import Shortener
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.output import note, out, show
from service.cli.prefixes import declared_prefixes

_NAME = re.compile(r"[A-Za-z_?][A-Za-z0-9_?.]*", re.ASCII)


def watch(
    what: Annotated[
        str, typer.Argument(help="A relation's name, an atom, or a conjunction; quote it for the shell.")
    ],
    after: Annotated[
        str | None,
        typer.Option(
            help="An epoch or a token: begin with the changes after it. Default: what comes from now on."
        ),
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Show the state first: the tuples that are there.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write the service's events, one JSON object a line.")
    ] = False,
    prefixes: options.ShortIris = False,
    url: options.Url = options.URL,
) -> None:
    """Show the changes of a relation or of a query, live, until Ctrl-C.

    A line with `+` is a tuple that appeared, with `-` one that went, with `=` one that was there at the beginning; then
    come its epoch and the time. After a lost connection it goes on where it was.

    Examples:

    - `zedlog watch 'tc("a", x)'`

    - `zedlog watch edge --snapshot`

    - `zedlog watch 'tc(x, y), !edge(x, y)' --after 120 --json`
    """
    watching = _Watching(what, after, snapshot, as_json=json)
    if prefixes and json:
        raise typer.BadParameter(
            "the service's events have whole IRIs; leave out --json", param_hint="--prefixes"
        )
    with ServiceClient(url) as client:
        if prefixes:
            watching.row = Shortener(declared_prefixes(client)).row
        try:
            watching.run(client)
        except KeyboardInterrupt:
            pass
        finally:
            watching.say_where()


class _Watching:
    def __init__(self, what: str, after: str | None, snapshot: bool, *, as_json: bool) -> None:
        name = _NAME.fullmatch(what.strip())
        self._about = {"relation": what.strip()} if name else {"query": what}
        self._after, self._snapshot, self._json = after, snapshot, as_json
        self.row: Callable[[list[Any]], Iterable[Any]] = list
        """How a tuple is shown."""
        # Between the first and the last part of the state there is no position to come back with.
        self._token: str | None = None

    def run(self, client: ServiceClient) -> None:
        events = client.feed(
            "/v1/changes", self._about, after=self._after, snapshot=self._snapshot, lost=self._lost
        )
        for event in events:
            self._take(event)

    @staticmethod
    def _lost(why: str, position: str | None) -> None:
        place = f"after {position}" if position else "from the beginning"
        note(f"[yellow]{escape(why)}; going on {escape(place)}[/]")

    def say_where(self) -> None:
        if self._token is not None:
            note(f"[dim]shown up to {self._token}; to go on from there: --after {self._token}[/]")

    def _take(self, event: Json) -> None:
        kind = event["event"]
        if self._json and kind != "progress":
            sys.stdout.write(orjson.dumps(event).decode() + "\n")
            sys.stdout.flush()
        elif kind == "snapshot":
            self._write(event, self._state(event), None)
        elif kind == "change":
            self._write(event, self._changes(event), float(event["time"]))
            for name, columns in event.get("columns", {}).items():
                note(f"[dim]{escape(_columns(name, columns))}[/]")
        if kind != "snapshot" or event["last"]:
            self._token = str(event["token"])

    def _write(self, event: Json, lines: Iterator[tuple[str, str]], moment: float | None) -> None:
        when = (
            ""
            if moment is None
            else datetime.fromtimestamp(moment).astimezone().isoformat(" ", "milliseconds")
        )
        colours = {"+": "green", "-": "red", "=": "default"}
        for sign, text in lines:
            if sys.stdout.isatty():
                clock = f" {when[11:23]}" if when else ""
                tail = f"[dim]epoch {event['epoch']}{clock}[/]"
                out.print(f"[{colours[sign]}]{sign} {escape(text)}[/]  {tail}")
            else:
                sys.stdout.write(f"{sign}\t{event['epoch']}\t{when}\t{text}\n")
        sys.stdout.flush()

    def _state(self, event: Json) -> Iterator[tuple[str, str]]:
        for row in event["tuples"]:
            yield "=", _text(event["relation"], self.row(row))

    def _changes(self, event: Json) -> Iterator[tuple[str, str]]:
        for name, change in sorted(event["changes"].items()):
            for row in sorted(change["deleted"], key=str):
                yield "-", _text(name, self.row(row))
            for row in sorted(change["inserted"], key=str):
                yield "+", _text(name, self.row(row))


def _text(name: str, row: Iterable[Any]) -> str:
    return f"{'' if name == 'answer' else name}({', '.join(map(show, row))})"


def _columns(name: str, columns: list[Json] | None) -> str:
    if columns is None:
        return f"there is no relation {name} any more"
    named = ", ".join(f"{column['name']}: {column['type'] or '?'}" for column in columns)
    return f"{name} now has the columns {named or 'none'}"
