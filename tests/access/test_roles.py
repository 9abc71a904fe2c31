"""Every call of the API's description against every role: who gets in, and who does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import APIRouter

from service.access.roles import KEY, PUBLIC, Decisions, needs
from service.app import create_app
from service.openapi import rendered
from service.principal import ROLES
from service.problems import STATUS
from service.settings import Settings
from tests.access.conftest import Guarded, Start
from tests.service.conftest import problem
from tests.service.fake import FakeClient

# One row for each call; a new one has to be added here, by somebody who has thought about it.
DECISIONS = {
    "GET /v1/audits": "reader",
    "POST /v1/audits": "admin",
    "GET /v1/audits/{audit_id}": "reader",
    "GET /v1/backup": "admin",
    "GET /v1/changes": "reader",
    "GET /v1/circuit": "reader",
    "GET /v1/epochs": "reader",
    "POST /v1/explain": "reader",
    "POST /v1/exports": "writer",
    "POST /v1/facts": "writer",
    "POST /v1/imports": "writer",
    "GET /v1/jobs": "reader",
    "GET /v1/jobs/{job_id}": "reader",
    "DELETE /v1/jobs/{job_id}": "writer",
    "GET /v1/jobs/{job_id}/events": "reader",
    "POST /v1/query": "reader",
    "GET /v1/relations": "reader",
    "GET /v1/relations/{relation}": "reader",
    "GET /v1/relations/{relation}/facts": "reader",
    "GET /v1/relations/{relation}/facts/blame": "reader",
    "GET /v1/relations/{relation}/facts/history": "reader",
    "POST /v1/restore": "admin",
    "POST /v1/rollback": "admin",
    "GET /v1/rules": "reader",
    "POST /v1/rules": "writer",
    "GET /v1/rules/{rule_id}": "reader",
    "DELETE /v1/rules/{rule_id}": "writer",
    "GET /v1/sources": "reader",
    "GET /v1/sources/{source}": "reader",
    "PUT /v1/sources/{source}": "writer",
    "DELETE /v1/sources/{source}": "writer",
    "GET /v1/subscriptions": "reader",
    "GET /v1/subscriptions/{name}": "reader",
    "PUT /v1/subscriptions/{name}": "writer",
    "DELETE /v1/subscriptions/{name}": "writer",
    "POST /v1/subscriptions/{name}/ack": "writer",
    "GET /v1/subscriptions/{name}/changes": "reader",
    "GET /v1/tokens": "admin",
    "POST /v1/tokens": "admin",
    "DELETE /v1/tokens/{name}": "admin",
    "GET /v1/transactions": "reader",
    "POST /v1/transactions": "writer",
    "GET /v1/transactions/{transaction_id}": "reader",
    "DELETE /v1/transactions/{transaction_id}": "writer",
    "POST /v1/uploads": "writer",
    "GET /v1/whoami": "reader",
    "GET /sparql": "reader",
    "POST /sparql": "reader",
    "GET /v1/sparql": "reader",
    "GET /healthz": "public",
    "GET /metrics": "reader",
    "GET /problems": "public",
    "GET /problems/{code}": "public",
    "GET /readyz": "public",
}
DESCRIPTION = create_app(Settings(access_log="none"), FakeClient()).openapi()
CALLS = {
    f"{method.upper()} {path}": operation
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
}


def test_every_call_is_decided() -> None:
    assert {name: operation[KEY] for name, operation in CALLS.items()} == DECISIONS
    assert KEY.encode() in rendered()


@pytest.mark.parametrize("who", [None, "reader", "writer", "admin"])
@pytest.mark.parametrize("name", CALLS)
def test_each_role_reaches_what_it_may(name: str, who: str | None, guarded: Guarded) -> None:
    method, path = name.split()
    needed = CALLS[name][KEY]
    answer = guarded.call(who, method, re.sub(r"\{\w+\}", "x", path))
    if needed == PUBLIC:
        assert answer.status_code not in (401, 403)
    elif who is None:
        assert problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == 'Bearer realm="zedlog"'
    elif ROLES.index(who) < ROLES.index(needed):  # type: ignore[arg-type]  # one of them
        assert problem(answer, 403, "forbidden")["role"] == needed
    else:
        # It got past the checks; what it found behind them is told by other tests.
        assert answer.status_code not in (401, 403), answer.text


@pytest.mark.parametrize("name", CALLS)
def test_the_description_has_what_the_guard_may_answer(name: str) -> None:
    operation = CALLS[name]
    codes = {
        code
        for answer in operation["responses"].values()
        for content in answer.get("content", {}).values()
        for code in content.get("examples", ())
    }
    assert {"host_not_allowed", "origin_not_allowed"} <= codes
    tokens = {"unauthorized", "forbidden", "rate_limited"}
    assert codes & tokens == (set() if operation[KEY] == PUBLIC else tokens)
    assert operation["security"] == ([] if operation[KEY] == PUBLIC else [{}, {"token": []}])
    assert codes <= {error.code for error in STATUS}


@pytest.mark.parametrize(
    "path", ["/nowhere", "/v1/", "/v1/rules/", "//v1/rules", "/healthz/../v1/rules", "/problems/a/b"]
)
def test_without_a_token_even_unknown_paths_are_closed(path: str, guarded: Guarded) -> None:
    assert guarded.call(None, "GET", path).status_code == 401


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/docs", "/healthz", "/problems/forbidden"])
def test_what_is_open_is_open(path: str, guarded: Guarded) -> None:
    assert guarded.call(None, "GET", path).status_code < 400
    # Even with a token that nobody knows: a probe must not fail because its token has expired.
    assert guarded.call("nonsense", "GET", path).status_code < 400


def test_the_liveness_probe_does_not_need_the_storage(guarded: Guarded) -> None:
    guarded.database.redis_away = True
    guarded.app.state.service.tokens.forget()
    assert guarded.call(None, "GET", "/healthz").status_code == 200


def route(**options: Any) -> APIRouter:
    router = APIRouter()
    router.get("/v1/x", **options)(lambda: None)
    return router


def test_a_route_without_a_decision_is_refused() -> None:
    for options in ({}, {"openapi_extra": {}}, {"openapi_extra": {KEY: "somebody"}}):
        with pytest.raises(RuntimeError, match="/v1/x does not say who may call it"):
            Decisions([route(**options)])
    mounted = APIRouter()
    mounted.mount("/v1/y", lambda: None)
    with pytest.raises(RuntimeError, match="does not say who may call it"):
        Decisions([mounted])
    assert not Decisions([route(openapi_extra=needs("reader"))]).is_public("/v1/x")
    assert Decisions([route(openapi_extra=needs("public"))]).is_public("/v1/x")


def test_where_several_routes_fit_the_strictest_counts() -> None:
    router = APIRouter()
    router.get("/v1/{name}/x", openapi_extra=needs("reader"))(lambda: None)
    router.get("/v1/{name}/{what}", openapi_extra=needs("admin"))(lambda: None)
    decisions = Decisions([router])
    assert [decisions.of(*call) for call in (("GET", "/v1/a/x"), ("GET", "/v1/a/y"), ("PUT", "/v1/a/x"))] == [
        "admin",
        "admin",
        None,
    ]


def test_a_path_is_public_as_a_whole() -> None:
    router = route(openapi_extra=needs("public"))
    router.post("/v1/x", openapi_extra=needs("admin"))(lambda: None)
    with pytest.raises(RuntimeError, match="a path is public as a whole, or not at all"):
        Decisions([router])


def test_a_service_without_tokens_is_open_on_the_loopback_address(start: Start) -> None:
    service = start()
    body = {"relation": "edge", "tuples": [["a", "b"]]}
    assert service.call(None, "POST", "/v1/facts", json=body).status_code == 200
    assert problem(service.call("nonsense", "GET", "/v1/rules"), 401, "unauthorized")
    service.make("first", "reader")
    problem(service.call(None, "POST", "/v1/facts", json=body), 401, "unauthorized")


def test_tokens_can_be_asked_for_from_the_start(start: Start) -> None:
    problem(start(require_tokens=True).call(None, "GET", "/v1/rules"), 401, "unauthorized")


def test_insecure_asks_for_none_whatever_there_is(start: Start) -> None:
    service = start(insecure=True, host="0.0.0.0")
    service.make("first", "admin")
    assert service.call(None, "GET", "/v1/rules").status_code == 200


@pytest.mark.parametrize("base", ["http://10.1.2.3", "http://[2001:db8::1]:8321"])
def test_a_server_on_another_address_is_closed_whatever_its_settings_say(base: str, start: Start) -> None:
    """`uvicorn --host 0.0.0.0 --factory service.app:create_app` tells the app nothing of the address."""
    service = start(base=base)
    problem(service.call(None, "GET", "/v1/rules"), 401, "unauthorized")
    assert start(base="http://127.0.0.1").call(None, "GET", "/v1/rules").status_code == 200
    assert start(base="http://[::1]").call(None, "GET", "/v1/rules").status_code == 200


def test_while_it_is_unknown_whether_there_are_tokens_nothing_is_open(start: Start) -> None:
    service = start()
    service.database.redis_away = True
    problem(service.call(None, "GET", "/v1/rules"), 503, "storage_unavailable")
    # The metrics say that the storage is away, and nothing of what it holds.
    assert "zedlog_storage_up 0.0" in service.call(None, "GET", "/metrics").text


def test_known_tokens_outlive_an_outage_of_the_storage(guarded: Guarded) -> None:
    assert guarded.call("reader", "GET", "/v1/rules").status_code == 200
    guarded.database.redis_away = True
    guarded.app.state.service.tokens.forget()
    problem(guarded.call("reader", "GET", "/v1/rules"), 503, "storage_unavailable")
    problem(guarded.call(None, "GET", "/v1/rules"), 401, "unauthorized")
