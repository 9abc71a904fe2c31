"""The rows that a query or a relation has at one epoch.

The first page is there when the answer is; the others are fetched when they are asked for, all from the same epoch,
and kept. `AsyncAnswer` is written once; `Answer` is the same for a program without an event loop.

    answer = client.query('tc("a", x)')
    answer.columns, answer.epoch, answer.rows          # in AsyncClient: await answer.rows
    answer.to_polars()                                 # or to_arrow, to_pandas
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from zedlog.client.drivers import each, finish
from zedlog.client.errors import ClientError, Json
from zedlog.client.html import rows_table

if TYPE_CHECKING:
    import pyarrow

    from zedlog.client.models import Row
    from zedlog.client.pages import Pages

ARROW = "application/vnd.apache.arrow.stream"
SHOWN_ROWS = 20
"""How many rows a notebook shows."""


class AsyncAnswer:
    """See the module. columns: the names; types: theirs (None where no row fixes one); holds: for a query without
    variables, whether it is true."""

    def __init__(self, first: Json, following: Pages) -> None:
        """first: the first page; following: the others."""
        self.columns: list[str] = [column["name"] for column in first["columns"]]
        self.types: list[str | None] = [column["type"] for column in first["columns"]]
        self.epoch: int = first["epoch"]
        self.token: str = first["token"]
        self.holds: bool | None = first.get("holds")
        self._following = following
        self._parts: list[list[Row]] = []
        self._weights: list[int] = []
        self._take(first)

    def _take(self, page: Json) -> None:
        self._parts.append([tuple(row) for row in page["tuples"]])
        self._weights += page.get("weights") or ()

    @property
    def complete(self) -> bool:
        """Whether all rows have been fetched."""
        return not self._following.more

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
            if self.complete:
                return
            self._take(await self._following.next())

    async def fetch(self) -> AsyncAnswer:
        """Fetch all rows that are missing."""
        while not self.complete:
            self._take(await self._following.next())
        return self

    async def all_rows(self) -> list[Row]:
        """All rows, as tuples."""
        return (await self.fetch()).fetched

    @property
    def rows(self) -> Coroutine[Any, Any, list[Row]]:
        """All rows, as tuples: `await answer.rows`."""
        return self.all_rows()

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
        following = self._following.copy()
        while following.more:
            response = await following.ask(ARROW)
            table = pa.ipc.open_stream(response.content).read_all()
            following.took(table.num_rows, response.headers.get("zedlog-cursor"))
            tables.append(table)
        return pa.concat_tables(tables)

    async def to_polars(self) -> Any:
        """The rows as a frame of Polars."""
        return needed("polars").from_arrow(await self.to_arrow())

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
        return finish(self.core.all_rows())

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

    def to_polars(self) -> Any:
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
