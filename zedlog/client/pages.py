"""Calls that answer with rows, page by page, all from the epoch of the first page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from copy import copy
from typing import Any

from zedlog.client.connection import Connection, as_object, given
from zedlog.client.errors import InvalidRequest, Json

FIRST_ROWS = 1_000
PAGE_ROWS = 10_000
"""The rows of the first page and of the others, where nothing else is asked for."""


class Pages:
    """The pages that are still to come. fields: those of the call, in the body (POST) or as parameters (GET); page: the
    most rows of a page, at most what the service allows; limit: the most rows in all. `more`: whether there is another
    page."""

    def __init__(
        self,
        connection: Connection,
        method: str,
        path: str,
        fields: Mapping[str, Any],
        page: int | None = None,
        limit: int | None = None,
    ) -> None:
        self._connection, self._method, self._path = connection, method, path
        self._fields = dict(fields)
        self._page, self._left = page, limit
        self._cursor: str | None = None
        self.more = True

    def copy(self) -> Pages:
        """The same pages, to be read once more."""
        return copy(self)

    async def ask(self, accept: str | None = None) -> Any:
        """The response with the next page. `took` must be told what was in it."""
        size = self._page or (FIRST_ROWS if self._cursor is None else PAGE_ROWS)
        size = size if self._left is None else min(size, self._left)
        try:
            return await self._ask(size, accept)
        except InvalidRequest as error:
            # The service, or the token, allows less in one answer.
            most = error.problem.get("maximum")
            if not isinstance(most, int) or most >= size:
                raise
            self._page = most
            return await self._ask(most, accept)

    async def _ask(self, size: int, accept: str | None) -> Any:
        fields = given({**self._fields, "limit": size, "cursor": self._cursor})
        posted = self._method == "POST"
        return await self._connection.exchange(
            self._method,
            self._path,
            None if posted else fields,
            fields if posted else None,
            {} if accept is None else {"accept": accept},
            repeatable=True,
        )

    def took(self, rows: int, cursor: str | None) -> None:
        if self._left is not None:
            self._left -= rows
        # The cursor says which epoch it belongs to.
        self._fields |= {"as_of": None, "at_least": None}
        self._cursor = cursor
        self.more = cursor is not None and self._left != 0

    async def next(self) -> Json:
        """The next page as JSON."""
        page = as_object(await self.ask())
        self.took(len(page["tuples"]), page["cursor"])
        return page


async def query_pages(
    connection: Connection, goal: str, *, page: int, limit: int | None = None, prefixes: bool = False
) -> AsyncGenerator[Json, None]:
    """Answers of one goal as JSON, page by page, at most `limit` rows in all; there is always a first page. prefixes:
    whether IRIs are shortened."""
    fields = {"query": goal, "prefixes": prefixes or None}
    pages = Pages(connection, "POST", "/v1/query", fields, page, limit)
    while pages.more:
        yield await pages.next()
