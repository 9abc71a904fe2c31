"""A network that does what a test says: answers that are lost, and streams that are cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx

Fate = Callable[[httpx.Request], bool]


class Lossy(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends requests for good. lose: whether the answer to this request is lost, after the service has done its work.
    cuts: the answers of `path` end with an error after so many bytes, one after the other, as long as there are cuts.
    Keeps the requests."""

    def __init__(self, lose: Fate | None = None, cuts: Iterable[int] = (), path: str = "/v1/changes") -> None:
        self._blocking, self._waiting = httpx.HTTPTransport(), httpx.AsyncHTTPTransport()
        self._lose = lose or (lambda request: False)
        self._cuts, self._path = iter(cuts), path
        self.requests: list[httpx.Request] = []
        self.cuts = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._blocking.handle_request(request)
        self._meet_fate(request)
        return self._cut_off(request, response)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._waiting.handle_async_request(request)
        self._meet_fate(request)
        return self._cut_off(request, response)

    def _meet_fate(self, request: httpx.Request) -> None:
        self.requests.append(request)
        if self._lose(request):
            raise httpx.ReadError("the answer was lost", request=request)

    def _cut_off(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        left = next(self._cuts, None) if request.url.path == self._path else None
        if left is None:
            return response
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Cut(response.stream, left, self),
        )

    def close(self) -> None:
        self._blocking.close()

    async def aclose(self) -> None:
        await self._waiting.aclose()


class _Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, inner: Any, left: int, owner: Lossy) -> None:
        self._inner, self._left, self._owner = inner, left, owner

    def _part(self, part: bytes) -> bytes:
        taken, self._left = part[: self._left], self._left - len(part)
        return taken

    def _end(self) -> None:
        self._owner.cuts += 1
        raise httpx.ReadError("cut")

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            yield self._part(part)
            if self._left < 0:
                self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield self._part(part)
            if self._left < 0:
                self._end()

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


class Script(httpx.MockTransport):
    """Answers with each of `answers` in turn; keeps the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(self._answer)
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        # A response belongs to the client that reads it.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
