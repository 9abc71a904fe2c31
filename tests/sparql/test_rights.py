"""Who may read and change what through SPARQL; a service over a database in memory, with a real store."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.access.conftest import Guarded, start
from tests.service.conftest import problem
from tests.sparql.conftest import JSON

__all__ = ["start"]

ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"
ROW = ["<urn:a>", "<urn:p>", "<urn:b>"]
ADD = "INSERT DATA { <urn:n> <urn:p> <urn:m> }"


@pytest.fixture
def service(start: object) -> Iterator[Guarded]:
    made: Guarded = start(wait_timeout=120.0)  # type: ignore[operator]  # the fixture's function
    for role in ("reader", "writer", "admin"):
        made.make(role, role)
    rows = [[f"<urn:{i}>", "<urn:p>", "<urn:b>"] for i in range(5)]
    body = {
        "facts": [
            {"relation": "triple", "tuples": [ROW, *rows]},
            {"relation": "secret", "tuples": [["canary"]]},
        ]
    }
    assert made.call("writer", "POST", "/v1/transactions", json=body).status_code == 200
    yield made
    made.runner.run(made.app.state.service.sparql.close())


def ask(service: Guarded, who: str | None, query: str = ALL, method: str = "GET") -> httpx.Response:
    how = {"params": {"query": query}} if method == "GET" else {"data": {"query": query}}
    return service.call(who, method, "/sparql", headers={"accept": JSON}, **how)


def update(service: Guarded, who: str | None, text: str, **parameters: str) -> httpx.Response:
    return service.call(who, "POST", "/sparql", data={"update": text}, params=parameters)


def test_roles(service: Guarded) -> None:
    for method in ("GET", "POST"):
        assert len(ask(service, "reader", method=method).json()["results"]["bindings"]) == 6
        problem(ask(service, None, method=method), 401, "unauthorized")
    assert problem(update(service, "reader", ADD), 403, "forbidden")["role"] == "writer"
    problem(update(service, None, ADD), 401, "unauthorized")
    assert update(service, "writer", ADD).status_code == 200
    assert len(ask(service, "reader").json()["results"]["bindings"]) == 7


def test_whoever_may_not_read_the_relation_is_told_nothing_of_it(service: Guarded) -> None:
    service.make("narrow", reads=frozenset({"other"}))
    service.make("pen", "writer", reads=frozenset({"other"}), writes=frozenset({"triple"}))
    for who in ("narrow", "pen"):
        problem(ask(service, who), 403, "forbidden")
        problem(ask(service, who, "ASK { }"), 403, "forbidden")
        problem(service.call(who, "GET", "/v1/sparql"), 403, "forbidden")
    # What depends on the relation would tell of it.
    for text in (
        "DELETE WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }",
        "DELETE DATA { <urn:a> <urn:p> <urn:b> }",
        "CLEAR ALL",
        f"{ADD} ; CLEAR ALL",
        "not an update",
    ):
        problem(update(service, "pen", text), 403, "forbidden")
    done = update(service, "pen", ADD)
    assert (done.status_code, done.json()["changes"]) == (200, {})
    assert len(ask(service, "reader").json()["results"]["bindings"]) == 7


def test_whoever_may_not_change_the_relation_changes_nothing(service: Guarded) -> None:
    service.make("elsewhere", "writer", writes=frozenset({"other"}))
    for text in (ADD, "CLEAR ALL"):
        for dry in ("false", "true"):
            problem(update(service, "elsewhere", text, dry_run=dry), 403, "forbidden")
    assert len(ask(service, "elsewhere").json()["results"]["bindings"]) == 6


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        (ALL, JSON),
        (ALL, "application/sparql-results+xml"),
        (ALL, "text/csv"),
        (ALL, "text/tab-separated-values"),
        ("CONSTRUCT WHERE { ?s ?p ?o }", "text/turtle"),
    ],
)
def test_a_limit_of_rows_holds_and_an_answer_is_never_cut(query: str, accept: str, service: Guarded) -> None:
    service.make("few", rows=5)
    service.make("six", rows=6)

    def get(who: str, asked: str) -> httpx.Response:
        return service.call(who, "GET", "/sparql", params={"query": asked}, headers={"accept": accept})

    found = problem(get("few", query), 422, "budget_exceeded")
    assert (found["budget"], found["limit"]) == ("rows", 5)
    assert get("six", query).status_code == 200
    assert get("few", f"{query} LIMIT 5").status_code == 200


def test_who_changed_it_is_kept(service: Guarded) -> None:
    done = update(service, "writer", ADD, message="because").json()
    told = service.call("admin", "GET", "/v1/transactions", params={"limit": "1"}).json()["transactions"][0]
    assert (told["transaction"], told["author"], told["message"]) == (
        done["transaction"],
        "writer",
        "because",
    )
