"""What both clients do when answers are lost, late, or refusals; and what they send."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import httpx
import orjson
import pytest

from tests.client.conftest import Both
from tests.client.lossy import Lossy, Script
from tests.live import LiveSystem
from zedlog.client import errors
from zedlog.client.errors import Unreachable

Make = Callable[..., Both]
COMMIT = {
    "transaction": "5-0",
    "epoch": 3,
    "token": "3-ab",
    "changes": {"edge": {"inserted": 1, "deleted": 0}},
    "strategy": "update",
    "placement": "resident",
    "cost": {"derivations": 1},
    "elapsed_ms": {"engine": 1.0},
}
ROWS = {
    "columns": [{"name": "x", "type": "number"}],
    "tuples": [[1]],
    "epoch": 1,
    "token": "1-a",
    "cursor": None,
}


def problem(status: int, code: str, **fields: object) -> httpx.Response:
    body = {"code": code, "detail": f"it is {code}", "status": status, **fields}
    return httpx.Response(status, json=body)


def answer(body: object, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_a_transaction_whose_answers_are_lost_is_applied_once(
    live: LiveSystem, scripted: Make, kind: str, lost: int
) -> None:
    left = [lost]

    def lose(request: httpx.Request) -> bool:
        left[0] -= 1
        return left[0] >= 0

    network, relation = Lossy(lose), f"once_{kind}_{lost}"
    client = scripted(network, url=live.url)
    made = client.add(relation, [("a", 1)])
    assert made.replayed
    assert client.rows(client.facts(relation, domain="asserted")) == [("a", 1)]
    assert client.run(_weights(client, relation)) == [1]
    sent = [request for request in network.requests if request.method == "POST"]
    assert len(sent) == lost + 1
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert len({request.content for request in sent}) == 1
    # The same block once more is another transaction.
    assert not client.add(relation, [("a", 1)]).replayed
    assert client.run(_weights(client, relation)) == [2]


def _weights(client: Both, relation: str) -> object:
    answer = client.facts(relation, domain="asserted")
    return answer.weights if client.kind == "blocking" else answer.weights()


def test_a_key_of_ones_own_makes_a_second_sending_a_repetition(live: LiveSystem, kind: str) -> None:
    for replayed in (False, True):
        both = Both(kind, url=live.url)
        assert both.add(f"own_{kind}", [("a",)], key=f"my-{kind}").replayed is replayed
        both.close()


def test_a_request_without_a_key_is_sent_once(scripted: Make) -> None:
    network = Script(httpx.ReadError("gone"))
    with pytest.raises(Unreachable, match="was lost: gone"):
        scripted(network).request("POST", "/v1/facts", json={})
    assert len(network.requests) == 1


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/v1/rules", {}),
        ("POST", "/v1/query", {}),
        ("POST", "/v1/facts", {"Idempotency-Key": "k"}),
    ],
)
def test_what_may_be_repeated_is(scripted: Make, method: str, path: str, headers: dict[str, str]) -> None:
    network = Script(
        answer({"n": 0}),
        httpx.ReadError("gone"),
        httpx.ConnectError("refused"),
        problem(503, "x"),
        answer([1]),
    )
    client = scripted(network)
    assert client.request("GET", "/x") == {"n": 0}
    assert client.request(method, path, json={"a": 1}, headers=headers, params={"b": None}) == [1]
    assert {(r.method, r.url.path, r.url.query) for r in network.requests[1:]} == {
        (method, path.split("?")[0], b"")
    }


def test_nothing_listening_says_so_at_once(scripted: Make) -> None:
    network = Script(httpx.ConnectError("refused"))
    with pytest.raises(
        Unreachable, match="Start one with 'zedlog serve', or give the URL of another one, to the client"
    ):
        scripted(network).rules()
    assert len(network.requests) == 1


@pytest.mark.parametrize("url", ["ftp://host", "no-scheme", "http://[::1"])
def test_a_url_that_is_none_is_named(kind: str, url: str) -> None:
    with pytest.raises(Unreachable, match=re.escape(f"{url} is not a")):
        refused(kind, url)


def refused(kind: str, url: str) -> None:
    with closing(Both(kind, url=url)) as client:
        client.rules()


def test_the_rate_is_waited_for_also_when_the_connection_breaks_meanwhile(
    scripted: Make, no_pauses: list[float]
) -> None:
    slow = httpx.Response(429, headers={"retry-after": "7"}, json={"code": "rate_limited"})
    network = Script(slow, slow, httpx.ReadError("gone"), answer({"rules": []}))
    assert scripted(network).rules() == []
    assert no_pauses == [7.0, 7.0, 0.5]


def test_a_rate_that_does_not_end_is_an_error(scripted: Make, no_pauses: list[float]) -> None:
    slow = httpx.Response(429, headers={"retry-after": "1000"}, json={"code": "rate_limited"})
    with pytest.raises(errors.RateLimited):
        scripted(Script(slow, slow)).rules()
    assert no_pauses == [60.0]


def test_an_outcome_that_is_late_is_waited_for(scripted: Make) -> None:
    where = "/v1/transactions/5-0"
    pending = {"transaction": "5-0", "status": "pending", "status_url": where}
    network = Script(
        answer(pending, 202), answer(pending), answer({**pending, "status": "committed", "result": COMMIT})
    )
    made = scripted(network).add("edge", [("a",)])
    assert (made.epoch, made.token, str(made)) == (3, "3-ab", "epoch 3: edge +1 -0")
    refused = {**pending, "status": "refused", "problem": {"code": "negative_weight", "status": 409}}
    with pytest.raises(errors.NegativeWeight):
        scripted(Script(answer(pending, 202), answer(refused))).remove("edge", [("a",)])


@pytest.mark.parametrize(
    ("status", "code", "kind_"),
    [
        (400, "invalid_parameter", errors.InvalidRequest),
        (401, "unauthorized", errors.Unauthorized),
        (403, "forbidden", errors.Forbidden),
        (404, "unknown_rule", errors.NotFound),
        (404, "epoch_not_retained", errors.NotFound),
        (409, "target_exists", errors.Conflict),
        (409, "negative_weight", errors.NegativeWeight),
        (409, "constraint_violated", errors.ConstraintViolated),
        (410, "gap", errors.Gap),
        (413, "body_too_large", errors.InvalidRequest),
        (422, "syntax_error", errors.ProgramFault),
        (422, "not_stratified", errors.ProgramFault),
        (422, "sparql_syntax", errors.ProgramFault),
        (422, "unknown_prefix", errors.ProgramFault),
        (422, "budget_exceeded", errors.BudgetExceeded),
        (422, "bad_rows", errors.ServiceError),
        (500, "internal_error", errors.ServerFault),
        (507, "bulk_storage", errors.ServerFault),
        (503, "storage_unavailable", errors.Unavailable),
    ],
)
def test_errors_have_the_services_codes(
    scripted: Make, status: int, code: str, kind_: type[errors.ServiceError]
) -> None:
    with pytest.raises(errors.ServiceError, match=f"it is {code}") as caught:
        scripted(Script(*[problem(status, code, more=1)] * 6)).rules()
    error = caught.value
    assert (type(error), error.status, error.code, error.detail) == (kind_, status, code, f"it is {code}")
    assert error.problem["more"] == 1


def test_something_else_on_the_port_is_named(scripted: Make) -> None:
    with pytest.raises(Unreachable, match="is this a Zedlog service"):
        scripted(Script(httpx.Response(200, text="<html>"))).rules()
    with pytest.raises(errors.ServerFault, match="bad gateway") as caught:
        scripted(Script(httpx.Response(502, text="bad gateway"))).rules()
    assert caught.value.code == "http_502"


def test_the_token_and_the_url_come_from_the_environment(
    kind: str, no_pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", "http://elsewhere.test/")
    monkeypatch.setenv("ZEDLOG_TOKEN", " zedlog_a\n")
    network = Script(answer({"rules": []}), answer({"rules": []}))
    for client in (Both(kind, transport=network), Both(kind, transport=network, token="mine")):
        client.rules()
        client.close()
    assert [r.headers["authorization"] for r in network.requests] == ["Bearer zedlog_a", "Bearer mine"]
    assert {r.url.host for r in network.requests} == {"elsewhere.test"}
    with pytest.raises(Unreachable, match="token holds is not a token") as caught:
        Both(kind, token="a\nsecret")
    assert "secret" not in str(caught.value)


def test_a_page_is_no_larger_than_what_the_service_allows(scripted: Make) -> None:
    too_many = problem(400, "invalid_parameter", maximum=20)
    network = Script(too_many, answer({**ROWS, "cursor": "c"}), answer(ROWS))
    client = scripted(network)
    assert client.rows(client.query("p(x)", as_of=1, limit=50)) == [(1,), (1,)]
    assert [orjson.loads(r.content) for r in network.requests] == [
        {"query": "p(x)", "as_of": 1, "limit": 50},
        {"query": "p(x)", "as_of": 1, "limit": 20},
        {"query": "p(x)", "limit": 20, "cursor": "c"},
    ]
    with pytest.raises(errors.InvalidRequest):
        scripted(Script(too_many, too_many)).query("p(x)")


def test_other_media_types_are_handed_on(scripted: Make) -> None:
    network = Script(
        httpx.Response(200, text="graph TD", headers={"content-type": "text/plain; charset=utf-8"}),
        httpx.Response(200, content=b"\x00\x01", headers={"content-type": "application/octet-stream"}),
        httpx.Response(204),
    )
    client = scripted(network)
    assert client.circuit_mermaid() == "graph TD"
    assert client.request("GET", "/v1/backup", headers={"accept": "*/*"}) == b"\x00\x01"
    assert client.request("DELETE", "/v1/tokens/a") is None
