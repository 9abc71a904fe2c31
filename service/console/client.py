"""The client with which the console asks the API; what it raises has the API's code and text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import httpx

from service.console.inside import BASE

TIMEOUT_SECONDS = 120.0


class ServiceError(Exception):
    """The service refused. problem: its document, with `line` and `column` for program text."""

    def __init__(self, status: int, code: str, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.problem = dict(problem or {})


class Client:
    """`async with Client(transport) as client: await client.request("GET", "/v1/rules")`."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE, timeout=TIMEOUT_SECONDS)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Any = None,
        json: Any = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The document that answers a request.

        Raises:
            ServiceError: the service refused.
        """
        answer = await self.answer(
            method, path, params=params, json=json, content=content, headers=dict(headers or {})
        )
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    async def answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The same, for answers that are no JSON, or whose headers matter."""
        answer = await self.http.request(method, path, **options)
        if answer.is_error:
            raise refusal(answer)
        return answer

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """An answer that is read as it comes.

        Raises:
            ServiceError: the service refused.
        """
        async with self.http.stream(method, path, **options) as answer:
            if answer.is_error:
                await answer.aread()
                raise refusal(answer)
            yield answer

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()


def refusal(answer: httpx.Response) -> ServiceError:
    """What a problem document says."""
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    code = str(problem.get("code", f"status_{answer.status_code}"))
    detail = str(problem.get("detail", answer.reason_phrase))
    return ServiceError(answer.status_code, code, detail, problem)
