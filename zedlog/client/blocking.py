"""Requests without an event loop: the methods of a connection, each run to its end."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from zedlog.client.connection import Connection
from zedlog.client.drivers import Blocking, blocking, iterating, same
from zedlog.client.feed import following
from zedlog.client.pages import query_pages


class BlockingConnection:
    """The arguments are those of a client. Use as a context manager."""

    Core = Connection

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 120.0,
        transport: Any = None,
    ) -> None:
        self.core = self.Core(Blocking, url, token=token, timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.core.url

    close = blocking(Connection.close, same)
    request = blocking(Connection.request, same)
    get = blocking(Connection.get, same)
    post = blocking(Connection.post, same)
    delete = blocking(Connection.delete, same)
    change = blocking(Connection.change, same)
    upload = blocking(Connection.upload, same)
    download = iterating(Connection.download)
    query_pages = iterating(query_pages)
    feed = iterating(following)
