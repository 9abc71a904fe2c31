"""How the console reaches the service: over its HTTP API, in the same process, with the rights of one person.

In: requests of an httpx client. Out: the service's answers, streamed as they come, as over a socket. Always: every
request passes the guard with the token of the person's session, as it is at that moment: who logs out, or whose token
is revoked, gets 401 from then on. It arrives at the address at which the person's own request arrived, so that a
service that asks for tokens there asks here, too.

httpx has an ASGITransport of its own, which waits for the end of an answer, and a change feed has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
from starlette.types import ASGIApp, Message, Scope

BASE: Final = "http://localhost"
_CHUNKS: Final = 16


class Inside(httpx.AsyncBaseTransport):
    """A transport onto an ASGI app. server: the address where the person's request arrived. authorization: the header
    for the next request."""

    def __init__(
        self, app: ASGIApp, server: tuple[str, int | None] | None, authorization: Callable[[], bytes | None]
    ) -> None:
        self._app = app
        self._server = server
        self._authorization = authorization

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        given = self._authorization()
        if given is not None:
            headers = [one for one in headers if one[0] != b"authorization"] + [(b"authorization", given)]
        exchange = _Exchange(request)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": headers,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": self._server or ("127.0.0.1", None),
            "client": ("127.0.0.1", 0),
            "root_path": "",
        }
        await exchange.begin(self._app, scope)
        return httpx.Response(exchange.status, headers=exchange.headers, stream=exchange)


class _Exchange(httpx.AsyncByteStream):
    """One request and its answer, whose body is read as it comes; the app waits for a slow reader."""

    def __init__(self, request: httpx.Request) -> None:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        self._body = aiter(request.stream)
        self._sent = False
        self._left = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_CHUNKS)
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []

    async def begin(self, app: ASGIApp, scope: Scope) -> None:
        """Returns when the answer has begun; what the app raises before that is raised here."""
        self._task = asyncio.create_task(self._run(app, scope))
        waiting = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            raise
        finally:
            waiting.cancel()
        if not self._started.is_set():
            await self._task

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            if self._started.is_set() and not self._left.is_set():
                await self._chunks.put(None)

    async def _receive(self) -> Message:
        if not self._sent:
            try:
                return {"type": "http.request", "body": await anext(self._body), "more_body": True}
            except StopAsyncIteration:
                self._sent = True
                return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
            self._started.set()
        elif message["type"] == "http.response.body" and message.get("body") and not self._left.is_set():
            await self._chunks.put(message["body"])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        if self._task is not None and not self._left.is_set():
            await self._task

    async def aclose(self) -> None:
        """The reader leaves: the app is told so, and ended if it is still waiting."""
        self._left.set()
        task: asyncio.Task[Any] | None = self._task
        if task is not None and not task.done():
            while not self._chunks.empty():
                self._chunks.get_nowait()
            done, _ = await asyncio.wait({task}, timeout=1.0)
            if not done:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
