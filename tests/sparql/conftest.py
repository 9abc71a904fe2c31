"""One running system for the tests over HTTP; each test begins with no triples and no rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.embedded import client, database, server
from tests.feeds.conftest import make_world, world
from tests.live import LiveSystem

__all__ = ["client", "database", "make_world", "server", "world"]

XSD = "http://www.w3.org/2001/XMLSchema#"
JSON = "application/sparql-results+json"


class Endpoint:
    """What a client of SPARQL sees."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    @property
    def url(self) -> str:
        return str(self.http.base_url.join("/sparql"))

    def get(self, query: str, accept: str = JSON, **parameters: Any) -> httpx.Response:
        return self.http.get("/sparql", params={"query": query, **parameters}, headers={"accept": accept})

    def select(self, query: str) -> list[tuple[str | None, ...]]:
        """The solutions, each term as N-Triples writes it, in the order of the answer."""
        answer = self.get(query)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        names = found["head"]["vars"]
        return [
            tuple(term(row[name]) if name in row else None for name in names)
            for row in found["results"]["bindings"]
        ]

    def ask(self, query: str) -> bool:
        answer = self.get(query)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["boolean"])

    def update(self, text: str, **options: Any) -> httpx.Response:
        headers = {"content-type": "application/sparql-update", **options.pop("headers", {})}
        return self.http.post("/sparql", content=text, headers=headers, **options)

    def done(self, text: str, **options: Any) -> dict[str, Any]:
        answer = self.update(text, **options)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def rules(self, program: str, weight: int = 1) -> None:
        answer = self.http.post("/v1/rules", json={"program": program, "weight": weight})
        assert answer.status_code == 200, answer.text

    def facts(self, rows: list[list[str]], weight: int = 1) -> dict[str, Any]:
        answer = self.http.post("/v1/facts", json={"relation": "triple", "tuples": rows, "weight": weight})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def tuples(self) -> set[tuple[str, str, str]]:
        """The relation itself."""
        answer = self.http.get("/v1/relations/triple/facts", params={"limit": 100_000})
        return {(s, p, o) for s, p, o in answer.json()["tuples"]} if answer.status_code == 200 else set()


def term(value: dict[str, str]) -> str:
    if value["type"] == "uri":
        return f"<{value['value']}>"
    if value["type"] == "bnode":
        return f"_:{value['value']}"
    text = '"' + value["value"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if "xml:lang" in value:
        return f"{text}@{value['xml:lang']}"
    return f"{text}^^<{value['datatype']}>" if "datatype" in value else text


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    with pytest.MonkeyPatch.context() as patch:
        # So that a query of too much memory is one that a test can wait for.
        patch.setenv("ZEDLOG_SPARQL_QUERY_BYTES", str(256 * 1024**2))
        # A store is made at once, but not on a machine that is busy with other things.
        patch.setenv("ZEDLOG_WAIT_TIMEOUT", "120")
        with LiveSystem(tmp_path_factory.mktemp("sparql")) as running:
            yield running


@pytest.fixture
def endpoint(system: LiveSystem) -> Iterator[Endpoint]:
    with system.client() as http:
        one = Endpoint(http)
        for rule in http.get("/v1/rules").json()["rules"]:
            http.post("/v1/rules", json={"rule": rule["rule"], "weight": -rule["weight"]}).raise_for_status()
        for source in http.get("/v1/sources").json()["sources"]:
            http.delete(f"/v1/sources/{source['source']}").raise_for_status()
        rows = [list(row) for row in one.tuples()]
        if rows:
            body = {"facts": [{"relation": "triple", "tuples": rows, "weight": -1}], "mode": "set"}
            http.post("/v1/transactions", json=body).raise_for_status()
        yield one
