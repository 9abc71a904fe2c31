"""The rows that a query or a relation has at one epoch.

The first page is there when the answer is; the others are fetched when they are asked for, all from the same epoch,
and kept. `AsyncAnswer` is written once; `Answer` is the same for a program without an event loop.

    answer = client.query('tc("a", x)')
    answer.columns, answer.epoch, answer.rows          # in AsyncClient: await answer.rows
    answer.to_polars()                                 # or to_arrow, to_pandas
"""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from zedlog.client.drivers import each, finish
from zedlog.client.errors import ClientError, Json
from zedlog.client.html import rows_table
from zedlog.client.models import Row

if TYPE_CHECKING:
    import polars
    import pyarrow

    from zedlog.client.connection import Connection

ARROW = "application/vnd.apache.arrow.stream"
SHOWN_ROWS = 20
"""How many rows a notebook shows."""


@dataclass(frozen=True)
class Asked:
    """A call that answers with rows, page by page. Its fields stand in the body (POST) or are parameters (GET)."""

    method: str
    path: str
    fields: Mapping[str, Any]

    async def send(
        self, connection: Connection, page: int | None, cursor: str | None, accept: str | None = None
    ) -> Any:
        """The response, for a page of at most so many rows."""
        following = {"limit": page, "cursor": cursor}
        # The cursor says which epoch it belongs to.
        first = {} if cursor is None else {"as_of": None, "at_least": None}
        fields = {n: v for n, v in {**self.fields, **first, **following}.items() if v is not None}
        headers = {} if accept is None else {"accept": accept}
        posted = self.method == "POST"
        return await connection.exchange(
            self.method,
            self.path,
            None if posted else fields,
            fields if posted else None,
            headers,
            repeatable=True,
        )


class AsyncAnswer:
    """See the module. columns: the names; types: theirs (None where no row fixes one); holds: for a query without
    variables, whether it is true."""

    def __init__(
        self, connection: Connection, asked: Asked, first: Json, page: int | None, limit: int | None
    ) -> None:
        """page: the most rows of a page; limit: the most rows in all."""
        self.columns: list[str] = [column["name"] for column in first["columns"]]
        self.types: list[str | None] = [column["type"] for column in first["columns"]]
        self.epoch: int = first["epoch"]
        self.token: str = first["token"]
        self.holds: bool | None = first.get("holds")
        self._connection, self._asked, self._page = connection, asked, page
        self._limit = limit
        self._parts: list[list[Row]] = []
        self._weights: list[int] = []
        self._weighted = "weights" in first
        self._cursor: str | None = None
        self._take([tuple(row) for row in first["tuples"]], first.get("weights"), first["cursor"])

    def _take(self, rows: list[Row], weights: list[int] | None, cursor: str | None) -> None:
        self._parts.append(rows)
        self._weights += weights or ()
        self._cursor = None if self._left() == 0 else cursor

    def _left(self) -> int | None:
        return None if self._limit is None else self._limit - sum(map(len, self._parts))

    def _next_page(self) -> int | None:
        left = self._left()
        return self._page if left is None else left if self._page is None else min(left, self._page)

    @property
    def complete(self) -> bool:
        """Whether all rows have been fetched."""
        return self._cursor is None

    @property
    def fetched(self) -> list[Row]:
        """The rows that have been fetched so far."""
        return [row for part in self._parts for row in part]

    async def pages(self) -> AsyncGenerator[list[Row], None]:
        """The rows, page by page."""
        number = 0
        while True:
            while number < len(self._parts):
                yield self._parts[number]
                number += 1
            if self._cursor is None:
                return
            await self._fetch()

    async def _fetch(self) -> None:
        from zedlog.client.connection import as_object

        page = as_object(await self._asked.send(self._connection, self._next_page(), self._cursor))
        self._take([tuple(row) for row in page["tuples"]], page.get("weights"), page["cursor"])

    async def fetch(self) -> AsyncAnswer:
        """Fetch all rows that are missing."""
        while self._cursor is not None:
            await self._fetch()
        return self

    async def _all(self) -> list[Row]:
        await self.fetch()
        if len(self._parts) > 1:
            self._parts = [self.fetched]
        return self._parts[0]

    @property
    def rows(self) -> Any:
        """All rows, as tuples: `await answer.rows`."""
        return self._all()

    async def weights(self) -> list[int]:
        """The weights of the rows, where a relation was read with `domain="asserted"`."""
        await self.fetch()
        return self._weights

    async def __aiter__(self) -> AsyncIterator[Row]:
        async for page in self.pages():
            for row in page:
                yield row

    async def first(self) -> Row | None:
        """The first row, if there is one."""
        async for row in self:
            return row
        return None

    async def to_arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table. The pages that are missing come in Arrow's own format, and are not kept."""
        pa = needed("pyarrow")
        schema = pa.schema(
            [(name, _arrow_type(pa, kind)) for name, kind in zip(self.columns, self.types, strict=True)]
        )
        tables = [_table(pa, schema, part) for part in self._parts]
        cursor, left = self._cursor, self._left()
        while cursor is not None and left != 0:
            page = self._page if left is None else left if self._page is None else min(left, self._page)
            response = await self._asked.send(self._connection, page, cursor, ARROW)
            table = pa.ipc.open_stream(io.BytesIO(response.content)).read_all()
            tables.append(table)
            cursor = response.headers.get("zedlog-cursor")
            left = None if left is None else left - table.num_rows
        return pa.concat_tables(tables)

    async def to_polars(self) -> polars.DataFrame:
        """The rows as a frame of Polars."""
        needed("polars")
        import polars

        frame = polars.from_arrow(await self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    async def to_pandas(self) -> Any:
        """The rows as a frame of pandas."""
        needed("pandas")
        return (await self.to_arrow()).to_pandas()

    def __repr__(self) -> str:
        known = len(self.fetched)
        more = "" if self.complete else " fetched, and more"
        return (
            f"<answer at epoch {self.epoch}: {', '.join(self.columns) or 'no columns'}; {known:,} rows{more}>"
        )

    def _repr_html_(self) -> str:
        return rows_table(self.columns, self.types, self.fetched, SHOWN_ROWS, self._about())

    def _about(self) -> str:
        known = len(self.fetched)
        if self.holds is not None:
            return f"{'holds' if self.holds else 'does not hold'} at epoch {self.epoch}"
        count = f"{known:,} row{'' if known == 1 else 's'}" if self.complete else f"more than {known:,} rows"
        return f"{count} at epoch {self.epoch}"


class Answer:
    """See the module; `core` is the same for an event loop, served by a blocking driver."""

    def __init__(self, core: AsyncAnswer) -> None:
        self.core = core
        self.columns, self.types = core.columns, core.types
        self.epoch, self.token, self.holds = core.epoch, core.token, core.holds

    @property
    def rows(self) -> list[Row]:
        """All rows, as tuples."""
        return finish(self.core._all())

    @property
    def complete(self) -> bool:
        """Whether all rows have been fetched."""
        return self.core.complete

    @property
    def weights(self) -> list[int]:
        """The weights of the rows, where a relation was read with `domain="asserted"`."""
        return finish(self.core.weights())

    def pages(self) -> Iterator[list[Row]]:
        """The rows, page by page."""
        return each(self.core.pages())

    def fetch(self) -> Answer:
        """Fetch all rows that are missing."""
        finish(self.core.fetch())
        return self

    def first(self) -> Row | None:
        """The first row, if there is one."""
        return next(iter(self), None)

    def __iter__(self) -> Iterator[Row]:
        for page in self.pages():
            yield from page

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        """Whether there is a row: for a query without variables, whether it is true."""
        return self.first() is not None

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        return self.rows[at]

    def to_arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table."""
        return finish(self.core.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """The rows as a frame of Polars."""
        return finish(self.core.to_polars())

    def to_pandas(self) -> Any:
        """The rows as a frame of pandas."""
        return finish(self.core.to_pandas())

    def __repr__(self) -> str:
        return repr(self.core)

    def _repr_html_(self) -> str:
        return self.core._repr_html_()


def needed(module: str) -> Any:
    """A library that only some answers need.

    Raises:
        ClientError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ClientError(f"{module} is not installed; 'pip install {module}' installs it") from error


def _arrow_type(pa: Any, kind: str | None) -> Any:
    types = {"symbol": pa.string(), "number": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    return pa.null() if kind is None else types[kind]


def _table(pa: Any, schema: Any, rows: list[Row]) -> Any:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, type=kind) for column, kind in zip(values, schema.types, strict=True)],
        schema=schema,
    )
