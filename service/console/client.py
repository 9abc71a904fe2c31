"""The client with which the console asks the API: Zedlog's own (zedlog/client), over the way inside (inside.py).

What it raises has the API's code and text. Pages read the documents of the API as they are; `stream` is for answers
that are read as they come, `answer` for those that are no JSON or whose headers matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from service.console.inside import BASE
from zedlog.client.client import AsyncClient
from zedlog.client.connection import checked, decoded
from zedlog.client.errors import ClientError, ServiceError, Unreachable

__all__ = ["Client", "ClientError", "ServiceError", "Unreachable"]

_SECONDS: Final = 120.0


class Client(AsyncClient):
    """A client of the app that the transport leads to. It has no token of its own: the transport adds the person's."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        super().__init__(BASE, token="", timeout=_SECONDS, transport=transport)

    async def __aenter__(self) -> Client:
        return self

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | str | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """As any client's; `content` may also be a file that is sent as it is read, which is sent once.

        Raises:
            ServiceError, Unreachable.
        """
        if content is None or isinstance(content, bytes | str):
            return await super().request(
                method, path, params=params, json=json, content=content, headers=headers
            )
        return decoded(await self.answer(method, path, params=params, content=content, headers=headers))

    async def answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A call that is sent once, and its answer as it is.

        Raises:
            ServiceError: the service refused.
        """
        return checked(await self.driver.send(method, path, **options))

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """An answer that is read as it comes.

        Raises:
            ServiceError: the service refused.
        """
        async with self.driver.stream(method, path, **options) as answer:
            yield checked(answer)
