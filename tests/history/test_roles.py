"""Who may see and change what of history and sources, when a principal is narrowed to some relations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.principal import Principal
from service.settings import Settings
from tests.service.behind import As
from tests.service.conftest import Http, problem
from tests.service.fake import FakeClient

ROLES = {
    ("get", "/v1/transactions"): "reader",
    ("get", "/v1/relations/{relation}/facts/history"): "reader",
    ("get", "/v1/relations/{relation}/facts/blame"): "reader",
    ("get", "/v1/sources"): "reader",
    ("get", "/v1/sources/{source}"): "reader",
    ("put", "/v1/sources/{source}"): "writer",
    ("delete", "/v1/sources/{source}"): "writer",
    ("post", "/v1/rollback"): "admin",
}


@pytest.fixture
def app(tmp_path: Path) -> As:
    return As(create_app(Settings(wait_timeout=0.05, batch_dir=tmp_path), FakeClient()), Principal("root"))


@pytest.fixture
def http(app: As) -> Iterator[Http]:
    http = Http(app)
    yield http
    http.close()


NARROW = Principal("nora", "writer", reads=frozenset({"open"}), writes=frozenset({"open"}))
READER = Principal("rita", "reader", reads=frozenset({"open"}))


def test_each_call_says_what_role_it_needs(app: As) -> None:
    described = app.app.openapi()["paths"]
    assert {key: described[key[1]][key[0]]["x-zedlog-role"] for key in ROLES} == ROLES


def test_a_reader_sees_only_what_it_may_read(app: As, http: Http) -> None:
    sent: dict[str, Any] = {"facts": {"open": [["a"]], "secret": [["b"]]}, "message": "both"}
    assert http.request("PUT", "/v1/sources/hr", json=sent).status_code == 200
    assert http.request("PUT", "/v1/sources/vault", json={"facts": {"secret": [["c"]]}}).status_code == 200
    http.post("/v1/facts", {"relation": "secret", "tuples": [["z"]], "weight": -1})
    app.now = READER
    (source,) = http.get("/v1/sources").json()["sources"]
    assert (source["source"], source["relations"]) == ("hr", [{"relation": "open", "facts": 1}])
    problem(http.get("/v1/sources/vault"), 404, "unknown_source")
    assert "vault" not in http.get("/v1/sources/vaul").text
    listed = http.get("/v1/transactions").json()["transactions"]
    assert [(one["message"], one["facts"], one["author"]) for one in listed] == [
        ("both", {"open": 1}, "root")
    ]
    assert set(listed[0]["changes"]) == {"open"}
    problem(http.get("/v1/transactions?relation=secret"), 403, "forbidden")
    problem(http.get("/v1/relations/secret/facts/history"), 403, "forbidden")
    problem(http.get("/v1/relations/secret/facts/blame"), 403, "forbidden")
    (event,) = http.get("/v1/relations/open/facts/history").json()["events"]
    assert (event["tuple"], event["change"], event["transactions"][0]["author"]) == (
        ["a"],
        "appeared",
        "root",
    )
    (blamed,) = http.get("/v1/relations/open/facts/blame?c0=a").json()["facts"]
    assert (blamed["since"], blamed["sources"]) == (1, {"hr": 1})


def test_a_writer_replaces_only_what_it_may_change(app: As, http: Http) -> None:
    http.request("PUT", "/v1/sources/hr", json={"facts": {"open": [["a"]], "secret": [["b"]]}})
    app.now = NARROW
    for sent in ({"facts": {"secret": []}}, {"facts": {"open": [["x"]]}}):
        # The second would take back what the source asserts of `secret`.
        problem(http.request("PUT", "/v1/sources/hr", json=sent), 403, "forbidden")
    problem(http.delete("/v1/sources/hr"), 403, "forbidden")
    problem(http.request("PUT", "/v1/sources/hr?relation=secret", json={"facts": {}}), 403, "forbidden")
    changed = http.request("PUT", "/v1/sources/hr?relation=open", json={"facts": {"open": [["x"]]}})
    assert changed.json()["changes"] == {"open": {"inserted": 1, "deleted": 1}}
    assert http.request("PUT", "/v1/sources/own", json={"facts": {"open": [["y"]]}}).status_code == 200
    once = {"Idempotency-Key": "once"}
    for _ in range(2):
        assert (
            http.request("PUT", "/v1/sources/own", json={"facts": {"open": []}}, headers=once).status_code
            == 200
        )
    problem(http.delete("/v1/sources/own"), 404, "unknown_source")
    once = {"Idempotency-Key": "twice"}
    for _ in range(2):
        assert http.delete("/v1/sources/own", headers=once).status_code == 200
    own = http.get("/v1/transactions?author=nora").json()["transactions"]
    assert {(one["author"], one["source"]) for one in own} == {("nora", "own"), ("nora", "hr")}


def test_the_author_is_the_principal_on_every_way_in(app: As, http: Http) -> None:
    app.now = Principal("ann")
    http.post("/v1/facts", {"relation": "r", "tuples": [["a"]]})
    http.post("/v1/rules", {"rule": "s(x) :- r(x)."})
    http.post("/v1/transactions", {"facts": []})
    http.post("/v1/rollback", {"to": 0})
    http.request("PUT", "/v1/sources/hr", json={"facts": {"r": [["b"]]}})
    http.delete("/v1/sources/hr")
    http.post("/v1/imports", {"path": "a.csv", "relation": "r", "source": "hr", "message": "m"})
    listed = http.get("/v1/transactions").json()["transactions"]
    assert [one["author"] for one in listed] == ["ann"] * 6
    (job,) = (job.request for job in app.app.state.service.client.jobs.jobs.values())
    assert (job["author"], job["source"], job["message"]) == ("ann", "hr", "m")
