"""`zedlog serve`: the whole service from one command; `zedlog engine`: the engine process alone.

`run` starts, in this order, the embedded server (unless a Redis is named), the engine process and the HTTP service, and
keeps them running until a signal comes. The listening socket is opened here, before anything else: an address that is
already in use is noticed at once, and requests that arrive while the service restarts wait in the socket's queue.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.markup import escape

from engine.errors import ZedlogError
from engine.server.settings import EngineSettings
from service.access.exposure import check_exposure
from service.access.settings import AccessSettings
from service.cli.choices import ServeSettings, with_settings
from service.cli.output import err, fail, note, out
from service.cli.supervisor import Part, PartFailed, Supervisor

DEFAULT_PORT = 8321
_ENGINE_COMMAND = [sys.executable, "-m", "engine.server"]
# At the start, a log that has grown beyond this is put aside (one old one is kept).
LOG_BYTES = 10 * 1024 * 1024
# An engine that takes longer to get ready than this is rebuilding a database: say so.
PATIENCE_SECONDS = 3.0
# How the lines begin by which the engine logs how far it has come with them.
COMPILING = "compiling kernels"
LOADING = "the engine is loading its kernels and rebuilding the database"

Told = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What to run, and where. Port 0 means any free one. Without `redis_url` an embedded server is started.

    variables: additional environment variables for the engine and the service. access: who may use it; None: whoever
    reaches it, on this machine.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    database: str = "default"
    redis_url: str | None = None
    engine: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    access: AccessSettings | None = None

    @property
    def tls(self) -> bool:
        return self.access is not None and self.access.tls_cert is not None

    @property
    def access_log(self) -> str:
        """Where the service writes its line for each request."""
        if self.access is not None and "access_log" in self.access.model_fields_set:
            return self.access.access_log
        return str(self.data_dir.absolute() / "access.log")

    @property
    def log(self) -> Path:
        return self.data_dir / "zedlog.log"


@with_settings(ServeSettings, {"redis_url": "a server of its own, in the data directory"})
def serve(
    settings: ServeSettings,
    variables: Mapping[str, str],
    no_engine: Annotated[
        bool,
        typer.Option(
            "--no-engine", help="Start only the HTTP service; an engine runs elsewhere, or not at all."
        ),
    ] = False,
) -> None:
    """Start the service and keep it running until Ctrl-C.

    Examples:

    - `zedlog serve`
    - `zedlog serve --port 9000 --data-dir /var/lib/zedlog`
    - `zedlog serve --redis-url redis://redis.example:6379/0`
    - `zedlog serve --redis-url redis://redis.example:6379/0 --no-engine`: one more service
    - `zedlog token create admin --role admin --data-dir .zedlog`, then `zedlog serve --host 0.0.0.0 --tls-cert cert.pem
      --tls-key key.pem`: for other machines
    """
    redis_url = settings.redis_url if "redis_url" in settings.model_fields_set else None
    run(
        Deployment(
            settings.data_dir,
            settings.host,
            settings.port,
            settings.database,
            redis_url,
            not no_engine,
            variables,
            settings,
        )
    )


@with_settings(EngineSettings)
def engine(
    settings: EngineSettings,
    variables: Mapping[str, str],
    check: Annotated[
        bool,
        typer.Option("--check", help="Only show whether an engine serves the database (exit status 0 or 1)."),
    ] = False,
) -> None:
    """Run the engine process alone: one for each database, beside any number of services.

    Examples:

    - `zedlog engine --redis-url redis://redis.example:6379/0`
    - `zedlog engine --check`
    """
    if check:
        state = asyncio.run(_engine_state(settings.redis_url, settings.database))
        out.print(escape(state))
        raise typer.Exit(0 if state.startswith("running") else 1)
    # It becomes the engine process: signals and exit status are the engine's own.
    os.execve(_ENGINE_COMMAND[0], _ENGINE_COMMAND, {**os.environ, **variables})


def run(settings: Deployment, told: Told | None = None) -> None:
    """Start everything, and return when it has been stopped.

    `told(url)` is called in a thread of its own when the service is ready; the service is stopped when it
    returns False. What it raises is raised here.

    Raises:
        PartFailed: a process keeps ending, or the address is taken.
        ServerStartError: the embedded server does not start.
    """
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PartFailed(
            f"the data directory {settings.data_dir} cannot be used: {error.strerror}"
        ) from error
    with ExitStack() as stack:
        listener = stack.enter_context(_listening(settings.host, settings.port))
        url = _url(listener, settings.host, settings.tls)
        redis_url = settings.redis_url
        if redis_url is None:
            # Imported here, for it takes half a second, and every command imports this module.
            from engine.storage.embedded import EmbeddedServer

            redis_url = stack.enter_context(
                EmbeddedServer(settings.data_dir, on_restart=_say, on_repair=_say)
            ).url
        if settings.access is not None:
            asyncio.run(check_exposure(settings.access, redis_url, _database_options(settings)))
        _rotate(settings.log)
        supervisor = Supervisor(_parts(settings, redis_url, listener, url), settings.log, _say)
        supervisor.install_signals()
        try:
            with _readiness(url, settings) as ready:
                supervisor.start(ready)
            if not supervisor.stopping:
                _announce(settings, url, try_out=told is None)
                _watch(supervisor, url, told)
        finally:
            if told is None:
                note("[dim]stopping[/]")
            supervisor.stop()


def _watch(supervisor: Supervisor, url: str, told: Told | None) -> None:
    """Keep everything running, and run `told` in a thread."""
    failure: list[BaseException] = []

    def work(call: Told) -> None:
        try:
            if not call(url):
                supervisor.request_stop()
        # Whatever it is, it is raised again below, in the main thread; but what the service's own end causes is
        # no failure.
        except BaseException as error:
            if not supervisor.stopping:
                failure.append(error)
            supervisor.request_stop()

    if told is not None:
        threading.Thread(target=work, args=(told,), daemon=True).start()
    supervisor.watch()
    if failure:
        raise failure[0]


def _parts(settings: Deployment, redis_url: str, listener: socket.socket, url: str) -> list[Part]:
    environment = {
        **settings.variables,
        "ZEDLOG_REDIS_URL": redis_url,
        "ZEDLOG_DATABASE": settings.database,
        "ZEDLOG_DATA_DIR": str(settings.data_dir.absolute()),
        "ZEDLOG_HOST": settings.host,
        "ZEDLOG_ACCESS_LOG": settings.access_log,
    }
    command = [sys.executable, "-m", "service.cli.worker", "--fd", str(listener.fileno())]
    service = Part(
        "service", command, environment, [listener.fileno()], ready=lambda: _answers(f"{url}/healthz")
    )
    if not settings.engine:
        return [service]
    # Readers can do without an engine for a while, so its end is not the end of everything.
    return [Part("engine", _ENGINE_COMMAND, environment, essential=False), service]


@contextmanager
def _readiness(url: str, settings: Deployment) -> Iterator[Callable[[], bool]]:
    """Asks whether storage and engine are ready. If that takes long, it shows what the engine is doing."""
    started = time.monotonic()
    logged = settings.log.stat().st_size if settings.log.exists() else 0
    status = err.status("")
    shown = ""

    def ready() -> bool:
        nonlocal shown
        if not settings.engine or _answers(f"{url}/readyz"):
            return True
        if time.monotonic() - started > PATIENCE_SECONDS:
            doing = _last_line(settings.log, logged, COMPILING) or LOADING
            text = f"[dim]{escape(doing)} ...[/]"
            if err.is_terminal:
                status.update(text)
                status.start()
            elif shown != (now := doing.partition(",")[0]):
                note(text)
                shown = now
        time.sleep(0.2)
        return False

    try:
        yield ready
    finally:
        status.stop()


def _last_line(log: Path, start: int, text: str) -> str:
    """The last line of the log that contains the text, from the text on; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            found = file.read().decode(errors="replace").rpartition(text)
    except FileNotFoundError:
        return ""
    return text + found[2].partition("\n")[0] if found[1] else ""


def _answers(url: str) -> bool:
    try:
        # No proxy of the environment may stand between us and our own child, whose certificate is for other names.
        return httpx.get(url, timeout=2.0, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        raise PartFailed(
            f"cannot listen on {host}:{port}: {error.strerror or error}. "
            "Is Zedlog already running there? --port 0 chooses any free port."
        ) from error
    with listener:
        yield listener


def _database_options(settings: Deployment) -> str:
    """The options of `zedlog token` that name the same database."""
    place = (
        f"--data-dir {settings.data_dir}"
        if settings.redis_url is None
        else f"--redis-url {settings.redis_url}"
    )
    return place if settings.database == "default" else f"{place} --database {settings.database}"


def _url(listener: socket.socket, host: str, tls: bool) -> str:
    """The URL by which this machine reaches the service."""
    port = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'https' if tls else 'http'}://{reachable}:{port}"


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _say(text: str) -> None:
    note(f"[yellow]{escape(text)}[/]")


def _announce(settings: Deployment, url: str, *, try_out: bool) -> None:
    place = settings.redis_url or f"{settings.data_dir.absolute()} (embedded server)"
    out.print(f"[bold green]Zedlog is ready[/] on [bold]{url}[/] (API: {url}/docs)")
    out.print(f"  database  {escape(settings.database)} in {escape(place)}")
    out.print(f"  log file  {escape(str(settings.log.absolute()))}")
    if settings.access is None or not settings.access.no_console:
        out.print(f"  console   [bold]{url}/[/] in a browser")
    if settings.access is not None:
        _say_who_may_use_it(settings.access)
    if not settings.engine:
        out.print("  no engine was started here; 'zedlog status' shows whether one runs elsewhere")
    if try_out:
        _say_what_to_try(url)


def _say_who_may_use_it(access: AccessSettings) -> None:
    if access.insecure and not access.is_local:
        _say("  --insecure: everybody who reaches this address may read and change everything")
    elif access.asks_always:
        out.print("  access    with a token: --token or ZEDLOG_TOKEN of the other commands")
    if access.asks_always and not access.is_local and access.tls_cert is None:
        _say(
            "  not encrypted: tokens can be read on the way; give --tls-cert, or put a proxy with TLS in front of it"
        )


def _say_what_to_try(url: str) -> None:
    option = "" if url == f"http://127.0.0.1:{DEFAULT_PORT}" else f" --url {url}"
    out.print("  try       in another terminal:")
    for line in (
        f"zedlog rules add 'tc(x, y) :- edge(x, y).' 'tc(x, z) :- tc(x, y), edge(y, z).'{option}",
        f'zedlog facts add \'edge("a", "b"). edge("b", "c").\' --delta{option}',
        f"zedlog query 'tc(\"a\", x)'{option}",
    ):
        out.print(f"            {escape(line)}")
    out.print("[dim]Ctrl-C stops it.[/]")


async def _engine_state(redis_url: str, database: str) -> str:
    from engine.storage.client import DatabaseClient

    client = DatabaseClient.connect(redis_url, database)
    try:
        status = await client.status()
    except ZedlogError as error:
        fail(str(error))
        return "unknown"
    finally:
        await client.close()
    state = status.state if status.running else f"not running ({status.state})"
    return f"{state}, epoch {status.epoch}, {status.lag} waiting" + (
        f": {status.error}" if status.error else ""
    )
