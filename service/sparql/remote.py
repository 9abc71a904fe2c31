"""The service's end of the process that holds the store (process.py). For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import orjson

from engine import errors
from engine.errors import InternalError, ProgramError, Span, SparqlUnavailableError, ZedlogError

_ENDED = "the process of the SPARQL store has ended; ask again, and it is made anew"
_LINE = 1 << 26


class StoreProcess:
    """See the module."""

    def __init__(self) -> None:
        """Start it: some ten milliseconds until it can be used, which need not be waited for."""
        self._control, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "service.sparql.process", number],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def call(self, command: bytes, request: Mapping[str, Any], *data: bytes) -> dict[str, Any]:
        """The answer to a command that the process does itself.

        Raises:
            SparqlUnavailableError: the process has ended. ZedlogError: the work failed.
        """
        async with self._channel(command) as (reader, writer):
            await _say(writer, request, *data)
            return _checked(await _line(reader))

    async def fork(self, command: bytes, request: Mapping[str, Any]) -> tuple[int, dict[str, Any], bytes]:
        """The epoch, and the answer, of work on a copy. The copy's process is killed if the caller is cancelled.

        Raises:
            SparqlUnavailableError, ZedlogError: as for `call`. MemoryError: it needs more than it may have.
        """
        async with self._channel(command) as (reader, writer):
            begun = _checked(await _line(reader))
            try:
                await _say(writer, request)
                line = await reader.readline()
                if not line:
                    # Out of memory, and out of stack, end a process.
                    raise MemoryError
                header, data = _checked(orjson.loads(line)), await reader.read()
            except asyncio.CancelledError:
                await asyncio.shield(self._kill(begun["pid"]))
                raise
        return begun["epoch"], header, data

    async def _kill(self, pid: int) -> None:
        with contextlib.suppress(SparqlUnavailableError):
            await self.call(b"K", {"pid": pid})

    @contextlib.asynccontextmanager
    async def _channel(self, command: bytes) -> Any:
        own, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [command], [theirs.fileno()])
            except OSError:
                own.close()
                raise SparqlUnavailableError(_ENDED) from None
        reader, writer = await asyncio.open_connection(sock=own, limit=_LINE)
        try:
            yield reader, writer
        except (ConnectionError, ValueError):
            raise SparqlUnavailableError(_ENDED) from None
        finally:
            writer.close()

    def retire(self) -> None:
        """Let it end when its forks have ended."""
        self._control.close()

    def kill(self) -> None:
        """End it now, with all its forks."""
        self._control.close()
        self._process.kill()
        self._process.wait()


async def _say(writer: asyncio.StreamWriter, request: Mapping[str, Any], *data: bytes) -> None:
    writer.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
    for part in data:
        writer.write(part)
        await writer.drain()
    writer.write_eof()


async def _line(reader: asyncio.StreamReader) -> dict[str, Any]:
    line = await reader.readline()
    if not line:
        raise SparqlUnavailableError(_ENDED)
    told: dict[str, Any] = orjson.loads(line)
    return told


def _checked(header: dict[str, Any]) -> dict[str, Any]:
    """The header, unless it tells of an error."""
    name = header.get("error")
    if name is None:
        return header
    if name == "memory":
        raise MemoryError
    problem = dict(header["problem"])
    message = problem.pop("message")
    found = getattr(errors, name, None)
    if not (isinstance(found, type) and issubclass(found, ZedlogError)):
        raise InternalError(f"the SPARQL store failed: {message}")
    for known in ("code", "rendered"):
        problem.pop(known, None)
    if issubclass(found, ProgramError) and "line" in problem:
        line, column = problem.pop("line"), problem.pop("column")
        error: ZedlogError = found(message, span=Span(line, column, line, column + 1), **problem)
        return _raise(error)
    return _raise(found(message, **problem))


def _raise(error: ZedlogError) -> dict[str, Any]:
    raise error
