"""A proxy between Zedlog and its Redis that can be slow, or lose every connection.

In: connections to a port. Out: connections to the server's socket file. It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from urllib.parse import unquote, urlsplit

_PORTION = 1 << 16


class Proxy:
    """`slow(seconds, delay)` and `lose(seconds)` may be called from any thread; a context."""

    def __init__(self, server_url: str) -> None:
        self._path = unquote(urlsplit(server_url).path)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._delay, self._slow_until, self._away_until = 0.0, 0.0, 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Proxy:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def slow(self, seconds: float, delay: float) -> None:
        """Every portion waits `delay` seconds, for a while."""
        self._delay, self._slow_until = delay, time.monotonic() + seconds

    def lose(self, seconds: float) -> None:
        """Cut every connection in the middle of whatever it carries, and take no new one for a while."""
        self._away_until = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if time.monotonic() < self._away_until:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        pipes = [
            asyncio.create_task(self._pipe(reader, far_writer)),
            asyncio.create_task(self._pipe(far_reader, writer)),
        ]
        self._pipes.update(pipes)
        await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for pipe in pipes:
            pipe.cancel()
        self._pipes.difference_update(pipes)
        self._open -= ends
        for end in ends:
            end.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while portion := await reader.read(_PORTION):
                if time.monotonic() < self._slow_until:
                    await asyncio.sleep(self._delay)
                writer.write(portion)
                await writer.drain()

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        for pipe in list(self._pipes):
            pipe.cancel()
        # The connections' tasks see that and end.
        await asyncio.sleep(0.1)
