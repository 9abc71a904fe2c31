"""The client with which the console asks the API: Zedlog's own (zedlog/client), over the way inside (inside.py).

What it raises has the API's code and text. Pages read the documents of the API as they are; `stream` is for answers
that are read as they come, `answer` for those that are no JSON or whose headers matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from service.console.inside import BASE
from zedlog.client.client import AsyncClient
from zedlog.client.connection import checked
from zedlog.client.errors import ClientError, ServiceError, Unreachable

__all__ = ["Client", "ClientError", "ServiceError", "Unreachable"]

_SECONDS: Final = 120.0


class Client(AsyncClient):
    """A client of the app that the transport leads to. It has no token of its own: the transport adds the person's."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        super().__init__(BASE, token="", timeout=_SECONDS, transport=transport)
        self.http = httpx.AsyncClient(base_url=BASE, timeout=_SECONDS, transport=transport)

    async def answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A call that is sent once, and its answer as it is.

        Raises:
            ServiceError: the service refused.
        """
        return checked(await self.http.request(method, path, **options))

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """An answer that is read as it comes.

        Raises:
            ServiceError: the service refused.
        """
        async with self.http.stream(method, path, **options) as answer:
            if answer.is_error:
                await answer.aread()
            yield checked(answer)
