"""Rows in the media type that the client asks for: JSON, NDJSON, CSV or an Arrow stream.

In: a page of rows with its columns. Out: a response. Always: the epoch, the token and the next cursor are in
the JSON document, and for the other types in the headers `Zedlog-Epoch`, `Zedlog-Token` and `Zedlog-Cursor`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from fastapi import Request
from starlette.responses import Response

from engine.data.values import Tuple
from engine.errors import shown
from engine.language.schema import Column, ColumnType
from service.problems import NotAcceptableError

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
ROW_TYPES: Final = (JSON, NDJSON, CSV, ARROW)
_QUALITY: Final = re.compile(r"0(\.[0-9]*)?|1(\.0*)?", re.ASCII)


def negotiate(request: Request, offered: Sequence[str]) -> str:
    """The offered media type that the Accept header prefers; among equals, the first.

    Raises:
        NotAcceptableError: the header accepts none of them.
    """
    header = ",".join(request.headers.getlist("accept")) or "*/*"
    if header in ("*/*", offered[0]):
        return offered[0]
    ranges = [_media_range(part) for part in header.split(",") if part.strip()]
    best, quality = offered[0], 0.0
    for kind in offered:
        # The most specific range that matches decides (RFC 9110, section 12.5.1).
        matching = [(r.count("*"), -q) for r, q in ranges if r in (kind, kind.split("/")[0] + "/*", "*/*")]
        if matching and -min(matching)[1] > quality:
            best, quality = kind, -min(matching)[1]
    if quality == 0.0:
        raise NotAcceptableError(
            f"the Accept header {shown(header)} allows none of the media types that this call can answer with: "
            f"{', '.join(offered)}",
            offered=list(offered),
        )
    return best


def answers_with(*offered: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency for calls that do not choose between media types: it refuses an Accept header that excludes all of
    `offered`, before anything is done.

    Raises:
        NotAcceptableError: from the dependency.
    """

    async def acceptable(request: Request) -> None:
        negotiate(request, offered)

    return acceptable


answers_json = answers_with(JSON)


def _media_range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            quality = float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return kind.lower(), quality


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(data), status, headers=dict(headers or {}), media_type=JSON)


def describe_columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [{"name": c.name, "type": c.type.value if c.type else None} for c in columns]


def rows_response(
    kind: str, columns: Sequence[Column], rows: Sequence[Tuple], document: Mapping[str, Any]
) -> Response:
    """The rows in media type `kind`. `document` has epoch, token, cursor, and the fields that only JSON shows."""
    if kind == JSON:
        return json_response({"columns": describe_columns(columns), "tuples": rows, **document})
    headers = {"Zedlog-Epoch": str(document["epoch"]), "Zedlog-Token": document["token"]}
    if document.get("cursor"):
        headers["Zedlog-Cursor"] = document["cursor"]
    content = _WRITERS[kind](columns, rows)
    return Response(content, headers=headers, media_type=kind)


def _ndjson(columns: Sequence[Column], rows: Sequence[Tuple]) -> bytes:
    names = [c.name for c in columns]
    return b"".join(
        orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE) for row in rows
    )


def _csv(columns: Sequence[Column], rows: Sequence[Tuple]) -> bytes:
    """RFC 4180, with a header line; booleans as in JSON."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([c.name for c in columns])
    if any(c.type in (ColumnType.BOOL, None) for c in columns):
        writer.writerows([_csv_value(v) for v in row] for row in rows)
    else:
        writer.writerows(rows)
    return out.getvalue().encode()


def _csv_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _arrow(columns: Sequence[Column], rows: Sequence[Tuple]) -> bytes:
    # Imported when first asked for: it takes a tenth of a second and most services never need it.
    import pyarrow as pa

    types = {
        ColumnType.SYMBOL: pa.string(),
        ColumnType.NUMBER: pa.int64(),
        ColumnType.FLOAT: pa.float64(),
        ColumnType.BOOL: pa.bool_(),
        None: pa.null(),
    }
    schema = pa.schema([(c.name, types[c.type]) for c in columns])
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [pa.array(v, type=t) for v, t in zip(values, schema.types, strict=True)]
    out = io.BytesIO()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return out.getvalue()


_WRITERS: Final[dict[str, Callable[[Sequence[Column], Sequence[Tuple]], bytes]]] = {
    NDJSON: _ndjson,
    CSV: _csv,
    ARROW: _arrow,
}
