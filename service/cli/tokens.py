"""`zedlog token`: make, list and revoke access tokens, through a running service or directly in the storage.

The first token of a service that is to serve other machines cannot come from that service, since it does not start
without one; so with `--data-dir` or `--redis-url` the commands go to the storage itself, whose owner may do everything
anyway.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from engine.errors import InvalidRequestError, ServerStartError
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.options import wrong_usage
from service.cli.output import note, out, print_whole

if TYPE_CHECKING:
    from service.access.tokens import Store, Token

T = TypeVar("T")

token_app = typer.Typer(no_args_is_help=True, help="Make, list and revoke access tokens.")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STORAGE = "Without a running service"

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The data directory of `zedlog serve`.", rich_help_panel=_STORAGE),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        envvar="ZEDLOG_REDIS_URL",
        show_envvar=True,
        help="The Redis that holds the database.",
        rich_help_panel=_STORAGE,
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="ZEDLOG_DATABASE",
        show_envvar=True,
        help="The database's name there.",
        rich_help_panel=_STORAGE,
    ),
]
Name = Annotated[str, typer.Argument(help="The token's name: the author of what is done with it.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tokens are: in a storage, or behind the service at `url`."""

    url: str
    data_dir: Path | None
    redis_url: str | None
    database: str

    @property
    def is_storage(self) -> bool:
        return self.data_dir is not None or self.redis_url is not None

    def in_storage(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """`work` with the tokens in the storage."""

        async def do(redis_url: str) -> T:
            from engine.storage.client import DatabaseClient

            client = DatabaseClient.connect(redis_url, self.database)
            try:
                return await work(client.tokens)
            finally:
                await client.close()

        with self._storage() as redis_url:
            return asyncio.run(do(redis_url))

    @contextmanager
    def _storage(self) -> Iterator[str]:
        if self.data_dir is None:
            assert self.redis_url is not None, "one of them names the storage"
            yield self.redis_url
            return
        from engine.storage.embedded import EmbeddedServer

        server = EmbeddedServer(self.data_dir)
        try:
            server.start()
        except ServerStartError:
            # `zedlog serve` runs on it: its server takes the token too.
            try:
                running = EmbeddedServer.running_url(self.data_dir)
            except OSError:
                running = ""
            if not running:
                raise
            yield running
            return
        try:
            yield server.url
        finally:
            server.stop()


@token_app.command()
def create(
    name: Name,
    role: Annotated[
        str,
        typer.Option(
            metavar="reader|writer|admin",
            help="A reader asks, a writer also changes facts and rules, an admin also makes tokens.",
        ),
    ] = "reader",
    read: Annotated[
        list[str] | None,
        typer.Option("--read", metavar="RELATION", help="It may read only this relation. May be repeated."),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option(
            "--write", metavar="RELATION", help="It may change only this relation. May be repeated."
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="The most rows of one answer.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second that it may make, at each service process.")
    ] = None,
    body: Annotated[
        str | None, typer.Option("--body", metavar="SIZE", help="The largest request body, as 64KiB.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="It expires after this time: 30m, 12h, 90d, 4w."),
    ] = None,
    url: options.Url = options.URL,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    database: Database = "default",
) -> None:
    """Make a token and print it, this once. Only the token is on standard output.

    As soon as a database has a token, its services ask for one, on the loopback address too. With `--read`, but
    without `--write`, a writer may still change every relation.

    Examples:

    - `zedlog token create admin --role admin --data-dir .zedlog`: the first one, before the service starts
    - `zedlog token create dashboard --read tc --rows 1000 --rate 20 --expires 90d`
    - `zedlog token create loader --role writer --write edge --read edge`
    """
    place = Place(url, data_dir, redis_url, database)
    with wrong_usage("--expires"):
        seconds = None if expires is None else _seconds(expires)
    with wrong_usage("--body"):
        size = None if body is None else _size(body)
    if place.is_storage:
        from service.access import tokens

        with wrong_usage():
            made, text = tokens.new_token(name, role, read or None, write or None, rows, rate, size, seconds)
        first = place.in_storage(lambda store: _keep(store, made))
    else:
        sent: Json = {
            "name": name,
            "role": role,
            "reads": read or None,
            "writes": write or None,
            "rows": rows,
            "rate": rate,
            "body_bytes": size,
            "expires_in": seconds,
        }
        with ServiceClient(url) as client:
            first = not client.get("/v1/tokens")["tokens"]
            given = {field: value for field, value in sent.items() if value is not None}
            text = str(client.post("/v1/tokens", given)["token"])
    # Not through rich, which might break or colour it.
    typer.echo(text)
    note(
        f"[dim]This is the token {escape(name)}. It is shown only now. Commands take it from ZEDLOG_TOKEN or --token, "
        "other clients send the header 'Authorization: Bearer TOKEN'.[/]"
    )
    if first:
        note(
            "[yellow]It is the database's first token: from now on its services ask everybody for one, on the loopback "
            "address too.[/]"
        )


@token_app.command("list")
def list_tokens(
    url: options.Url = options.URL,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    database: Database = "default",
) -> None:
    """List the tokens and what they may do. The tokens themselves are not kept anywhere."""
    place = Place(url, data_dir, redis_url, database)
    if place.is_storage:
        from service.access import tokens

        found = [token.shown() for token in place.in_storage(tokens.listed)]
    else:
        with ServiceClient(url) as client:
            found = client.get("/v1/tokens")["tokens"]
    table = Table(header_style="bold")
    for column in ("name", "role", "reads", "writes", "rows", "requests/s", "made", "expires"):
        # A name is there to be copied.
        whole = max((len(token["name"]) for token in found), default=0) if column == "name" else None
        table.add_column(column, no_wrap=column not in ("reads", "writes"), min_width=whole)
    for token in found:
        table.add_row(
            escape(token["name"]),
            token["role"],
            _relations(token["reads"]),
            "" if token["role"] == "reader" else _relations(token["writes"]),
            "" if token["rows"] is None else f"{token['rows']:,}",
            "" if token["rate"] is None else f"{token['rate']:g}",
            _day(token["created"]),
            "never"
            if token["expires"] is None
            else "expired"
            if token["expired"]
            else _day(token["expires"]),
        )
    print_whole(table)


@token_app.command()
def revoke(
    name: Name,
    url: options.Url = options.URL,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    database: Database = "default",
) -> None:
    """Revoke a token. Services that run refuse it after a second at the latest."""
    place = Place(url, data_dir, redis_url, database)
    if place.is_storage:
        last = place.in_storage(lambda store: _remove(store, name))
        if last:
            note(
                "[yellow]The database has no token any more. A service on the loopback address asks for none now, "
                "unless it was started with --require-tokens; on any other address nobody can use it.[/]"
            )
    else:
        from urllib.parse import quote

        with ServiceClient(url) as client:
            client.delete(f"/v1/tokens/{quote(name, safe='')}")
    out.print(f"{escape(name)}: revoked")


async def _keep(store: Store, made: Token) -> bool:
    """Keep the token; whether it is the first one."""
    from service.access import tokens

    await tokens.create(store, made)
    return len(await store.all()) == 1


async def _remove(store: Store, name: str) -> bool:
    """Remove the token; whether it was the last one."""
    from service.access import tokens

    await tokens.revoke(store, name)
    return not await store.all()


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", text)
    if found is None:
        raise InvalidRequestError(f"{text} is not a time; write it as 30m, 12h, 90d or 4w")
    return float(found[1]) * _UNITS[found[2]]


def _size(text: str) -> int:
    from engine.maintenance.limits import parse_size

    return parse_size(text)


def _relations(names: list[str] | None) -> str:
    return "all" if names is None else escape(", ".join(names)) or "none"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")
