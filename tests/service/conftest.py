"""An app over a database in memory, and a client that talks to it without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.service.fake import FakeClient

GRAPH = {
    "facts": [{"relation": "edge", "tuples": [["a", "b"], ["b", "c"], ["c", "c"]]}],
    "rules": [{"rule": "tc(x, y) :- edge(x, y)."}, {"rule": "tc(x, z) :- tc(x, y), edge(y, z)."}],
}


class Http:
    """Blocking calls over ASGI, so that tests read as a story."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.runner = asyncio.Runner()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.client.request(method, url, **options))

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.request("GET", url, **options)

    def post(self, url: str, json: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", url, json=json, **options)

    def delete(self, url: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", url, **options)

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


@pytest.fixture
def database() -> FakeClient:
    return FakeClient()


@pytest.fixture
def http(database: FakeClient, tmp_path: Path) -> Iterator[Http]:
    settings = Settings(
        max_body_bytes=100_000, wait_timeout=0.05, max_limit=5_000, batch_dir=tmp_path, max_upload_bytes=1_000
    )
    http = Http(create_app(settings, database))
    yield http
    http.close()


@pytest.fixture
def graph(http: Http, database: FakeClient) -> Http:
    """The same, with three edges and their closure in epoch 1."""
    assert http.post("/v1/transactions", GRAPH).status_code == 200
    assert database.epoch == 1
    return http


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a response, whose form is right and whose status and code are these."""
    document: dict[str, Any] = response.json()
    assert (response.status_code, document["code"]) == (status, code), document
    assert response.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["type"] == f"/problems/{code}"
    assert document["title"]
    assert document["instance"].startswith("/")
    return document
