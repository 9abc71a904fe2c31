"""All rows of a query as a file: `GET /console/export?q=...&format=csv`, streamed page by page from one epoch.

Always: the file has every row of the epoch that the first page was read from. What fails before the first page is
answered with the API's error; what fails later ends the connection, so that a browser does not take a part for the
whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from service.console.client import Client, ServiceError
from service.console.here import client_of, person_of

# The files by the ending of their names: the media type that the API is asked for, and the one of the file.
FORMATS: Final = {
    "csv": ("text/csv", "text/csv; charset=utf-8"),
    "json": ("application/json", "application/json"),
    "arrow": ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
}
_PAGE_ROWS: Final = 20_000


async def export(request: Request) -> Response:
    """The file. Parameters: q, format (csv, json, arrow), and as_of for an older epoch."""
    parameters = request.query_params
    format = parameters.get("format", "csv")
    if format not in FORMATS:
        return PlainTextResponse(f"format must be one of {', '.join(FORMATS)}\n", 400)
    as_of = parameters.get("as_of", "")
    if as_of and not (as_of.isascii() and as_of.isdigit()):
        return PlainTextResponse("as_of must be the number of an epoch\n", 400)
    client = client_of(request)
    try:
        rows = (await person_of(request, client)).rows
        body: dict[str, Any] = {
            "query": parameters.get("q", ""),
            "limit": min(_PAGE_ROWS, rows or _PAGE_ROWS),
        }
        if as_of:
            body["as_of"] = int(as_of)
        first = await _page(client, body, format)
    except ServiceError as error:
        await client.close()
        return PlainTextResponse(f"{error.code}: {error.detail}\n", error.status)
    _, media = FORMATS[format]
    headers = {"Content-Disposition": f'attachment; filename="query.{format}"', "Cache-Control": "no-store"}
    return StreamingResponse(_file(client, body, format, first), media_type=media, headers=headers)


async def _page(client: Client, body: dict[str, Any], format: str) -> httpx.Response:
    return await client.answer("POST", "/v1/query", json=body, headers={"Accept": FORMATS[format][0]})


async def _file(
    client: Client, body: dict[str, Any], format: str, first: httpx.Response
) -> AsyncIterator[bytes]:
    join = {"csv": _join_csv, "json": _join_json, "arrow": _join_arrow}[format]
    try:
        async for chunk in join(_pages(client, body, format, first)):
            yield chunk
    finally:
        await client.close()


async def _pages(
    client: Client, body: dict[str, Any], format: str, page: httpx.Response
) -> AsyncIterator[httpx.Response]:
    while True:
        yield page
        cursor = page.json()["cursor"] if format == "json" else page.headers.get("zedlog-cursor")
        if not cursor:
            return
        page = await _page(client, {**body, "cursor": cursor}, format)


async def _join_csv(pages: AsyncIterator[httpx.Response]) -> AsyncIterator[bytes]:
    """One line of names, though each page has one. Names have no line breaks."""
    first = True
    async for page in pages:
        yield page.content if first else page.content.partition(b"\r\n")[2]
        first = False


async def _join_json(pages: AsyncIterator[httpx.Response]) -> AsyncIterator[bytes]:
    """One document, as a page of the API that has all rows."""
    first = True
    async for page in pages:
        document = page.json()
        rows = orjson.dumps(document["tuples"])[1:-1]
        if first:
            rest = {
                name: document[name] for name in ("columns", "epoch", "token", "holds") if name in document
            }
            yield orjson.dumps(rest)[:-1] + b',"tuples":[' + rows
        elif rows:
            yield b",\n" + rows
        first = False
    yield b"]}\n"


async def _join_arrow(pages: AsyncIterator[httpx.Response]) -> AsyncIterator[bytes]:
    """One stream of record batches, one for each page."""
    import io

    import pyarrow as pa

    out = io.BytesIO()
    writer: Any = None
    async for page in pages:
        with pa.ipc.open_stream(page.content) as reader:
            if writer is None:
                writer = pa.ipc.new_stream(out, reader.schema)
            for batch in reader:
                writer.write_batch(batch)
        yield _taken(out)
    writer.close()
    yield _taken(out)


def _taken(out: Any) -> bytes:
    found: bytes = out.getvalue()
    out.seek(0)
    out.truncate()
    return found
