"""The client's behaviour when the service refuses, restarts, or answers late; the network is a function."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import orjson
import pytest

from service.cli.client import ATTEMPTS, Refused, ServiceClient, Unreachable

Answer = Callable[[httpx.Request], httpx.Response]
DONE = {"epoch": 3, "changes": {}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zedlog.client.drivers.time.sleep", lambda _: None)


class Network:
    """Answers with each of `answers` in turn; keeps the requests."""

    def __init__(self, *answers: Answer | httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def client(self) -> ServiceClient:
        return ServiceClient("http://zedlog.test", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)


def problem(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"code": code, "detail": f"it is {code}", "status": status})


def test_a_problem_document_is_refused_with_its_code() -> None:
    network = Network(problem(409, "negative_weight"))
    with network.client() as client, pytest.raises(Refused, match="it is negative_weight") as caught:
        client.transaction({})
    assert (caught.value.status, caught.value.code) == (409, "negative_weight")


def test_an_error_that_is_no_problem_document_is_shown_as_it_is() -> None:
    network = Network(httpx.Response(502, text="bad gateway"))
    with network.client() as client, pytest.raises(Refused, match="bad gateway") as caught:
        client.get("/v1/rules")
    assert caught.value.code == "http_502"


def test_nothing_listening_says_how_to_start_it() -> None:
    network = Network(httpx.ConnectError("refused"))
    with network.client() as client, pytest.raises(Unreachable, match="Start one with 'zedlog serve'"):
        client.get("/v1/rules")
    assert len(network.requests) == 1


def test_a_read_outlives_a_restart_of_the_service() -> None:
    network = Network(
        httpx.Response(200, json={"n": 1}),
        httpx.ReadError("gone"),
        httpx.ConnectError("refused"),
        problem(503, "storage_unavailable"),
        httpx.Response(200, json={"n": 2}),
    )
    with network.client() as client:
        assert [client.get("/x"), client.get("/x")] == [{"n": 1}, {"n": 2}]


def test_a_write_with_a_key_is_sent_again_with_the_same_key_and_body() -> None:
    network = Network(
        httpx.ReadError("gone"), httpx.Response(200, json=DONE, headers={"Idempotency-Replayed": "true"})
    )
    with network.client() as client:
        assert client.transaction({"facts": []}, key="k1") == {**DONE, "replayed": True}
    first, second = network.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "k1"
    assert first.content == second.content == b'{"facts":[]}'


def test_a_write_without_a_key_is_never_sent_twice() -> None:
    network = Network(httpx.ReadError("gone"), httpx.Response(200, json=DONE))
    with network.client() as client, pytest.raises(Unreachable, match="was lost"):
        client.transaction({})
    assert len(network.requests) == 1


def test_it_gives_up_after_some_attempts() -> None:
    network = Network(*[problem(503, "storage_unavailable")] * ATTEMPTS)
    with network.client() as client, pytest.raises(Refused, match="storage_unavailable"):
        client.get("/x")
    assert len(network.requests) == ATTEMPTS


def test_an_answer_that_is_not_ready_is_waited_for() -> None:
    where = "/v1/transactions/5-0"
    network = Network(
        httpx.Response(202, json={"transaction": "5-0", "status": "pending", "status_url": where}),
        httpx.Response(200, json={"status": "pending", "status_url": where}),
        httpx.Response(200, json={"status": "committed", "status_url": where, "result": DONE}),
    )
    with network.client() as client:
        assert client.transaction({}) == {**DONE, "replayed": False}
    assert [r.url.path for r in network.requests] == ["/v1/transactions", where, where]


def test_a_refusal_that_comes_late_is_a_refusal() -> None:
    where = "/v1/transactions/5-0"
    network = Network(
        httpx.Response(202, json={"transaction": "5-0", "status": "pending", "status_url": where}),
        httpx.Response(200, json={"status": "refused", "problem": {"code": "type_mismatch", "status": 422}}),
    )
    with network.client() as client, pytest.raises(Refused) as caught:
        client.transaction({})
    assert (caught.value.code, caught.value.status) == ("type_mismatch", 422)


def test_a_transaction_that_stays_pending_says_so() -> None:
    pending = {"transaction": "5-0", "status": "pending", "status_url": "/v1/transactions/5-0"}
    network = Network(httpx.Response(202, json=pending))
    with network.client() as client, pytest.raises(Unreachable, match="5-0 is in the log, but no engine"):
        client.change("/v1/transactions", {}, patience=0)


def test_options_become_parameters() -> None:
    network = Network(httpx.Response(200, json=DONE), httpx.Response(200, json=DONE))
    with network.client() as client:
        client.transaction({}, dry_run=True, delta=True)
        client.transaction({})
    assert dict(network.requests[0].url.params) == {"dry_run": "true", "return": "delta"}
    assert dict(network.requests[1].url.params) == {}


def test_a_query_follows_its_cursor_up_to_the_limit() -> None:
    def page(rows: int, cursor: str | None) -> httpx.Response:
        return httpx.Response(200, json={"tuples": [[1]] * rows, "cursor": cursor})

    network = Network(page(2, "c1"), page(2, "c2"), page(1, "c3"))
    with network.client() as client:
        pages = list(client.query("p(x)", page=2, limit=5))
    assert [len(p["tuples"]) for p in pages] == [2, 2, 1]
    assert [orjson.loads(r.content) for r in network.requests] == [
        {"query": "p(x)", "limit": 2},
        {"query": "p(x)", "limit": 2, "cursor": "c1"},
        {"query": "p(x)", "limit": 1, "cursor": "c2"},
    ]


def test_something_else_on_the_port_is_named() -> None:
    network = Network(httpx.Response(200, text="<html>"))
    with network.client() as client, pytest.raises(Unreachable, match="is this a Zedlog service"):
        client.get("/v1/rules")


@pytest.mark.parametrize("url", ["ftp://host", "no-scheme"])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with ServiceClient(url) as client, pytest.raises(Unreachable, match="is not an http:// or https:// URL"):
        client.get("/v1/rules")
