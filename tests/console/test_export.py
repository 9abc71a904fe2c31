"""Files of all rows of an answer, over the API of an app with a database in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from service.access.sessions import Sessions
from service.app import create_app
from service.console import export
from service.settings import Settings
from tests.service.fake import FakeClient

ROWS = sorted((i, f"name {i}") for i in range(25))


Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def asked() -> Iterator[Ask]:
    """What a browser gets for the address."""
    api = create_app(Settings(access_log="none", no_console=True), FakeClient())
    site = Starlette(routes=[Route("/console/export", export.export)])

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await site({**scope, "zedlog.api": api, "zedlog.sessions": Sessions()}, receive, send)

    async def send(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_PAGE_ROWS", 10)
        for i, half in enumerate((ROWS[:20], ROWS[20:])):
            body = {"facts": [{"relation": "big", "tuples": half}]}
            answer = runner.run(send(api, "POST", "/v1/transactions", json=body))
            assert answer.json()["epoch"] == i + 1

        def ask(query: str = "big(n, s)", **parameters: Any) -> httpx.Response:
            return runner.run(send(mounted, "GET", "/console/export", params={"q": query, **parameters}))

        yield ask


def test_csv_has_one_line_of_names_and_all_rows(asked: Ask) -> None:
    answer = asked(format="csv")
    names, *lines = answer.text.splitlines()
    assert names == "n,s"
    assert sorted((int(n), s) for n, s in (line.split(",") for line in lines)) == ROWS
    assert answer.headers["content-disposition"] == 'attachment; filename="query.csv"'


def test_json_is_one_document(asked: Ask) -> None:
    document = orjson.loads(asked(format="json").content)
    assert sorted(map(tuple, document["tuples"])) == ROWS
    assert (document["epoch"], [one["name"] for one in document["columns"]]) == (2, ["n", "s"])


def test_arrow_is_one_stream(asked: Ask) -> None:
    table = pa.ipc.open_stream(asked(format="arrow").content).read_all()
    assert table.schema.names == ["n", "s"]
    found = table.to_pydict()
    assert sorted(zip(found["n"], found["s"], strict=True)) == ROWS


@pytest.mark.parametrize("format", ["csv", "json", "arrow"])
def test_an_older_epoch(format: str, asked: Ask) -> None:
    answer = asked(format=format, as_of="1")
    count = {
        "csv": lambda: len(answer.text.splitlines()) - 1,
        "json": lambda: len(answer.json()["tuples"]),
        "arrow": lambda: pa.ipc.open_stream(answer.content).read_all().num_rows,
    }[format]()
    assert count == 20


@pytest.mark.parametrize("format", ["csv", "json", "arrow"])
def test_no_rows_are_a_whole_file(format: str, asked: Ask) -> None:
    answer = asked('big(n, "nobody")', format=format)
    assert answer.status_code == 200
    if format == "json":
        assert answer.json()["tuples"] == []
    elif format == "csv":
        assert answer.text == "n\r\n"
    else:
        assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({"query": "big(n"}, 422, "syntax_error"),
        ({"query": "nothing(n)"}, 404, "unknown_relation"),
        ({"format": "xls"}, 400, "csv, json, arrow"),
        ({"as_of": "soon"}, 400, "number of an epoch"),
        ({"as_of": "99"}, 404, "epoch_not_retained"),
    ],
)
def test_what_cannot_be_exported(parameters: dict[str, str], status: int, text: str, asked: Ask) -> None:
    answer = asked(**parameters)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text
    assert "content-disposition" not in answer.headers
