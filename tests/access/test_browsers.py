"""What a page in the user's browser may do to a service on the user's own machine: nothing that it should not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.access.conftest import Start
from tests.service.conftest import problem

RULE = b"tc(x, y) :- edge(x, y)."
TEXT = {"content-type": "text/plain"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:9999"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/rules"),
        ("POST", "/v1/transactions"),
        ("POST", "/v1/query"),
        ("POST", "/v1/uploads?name=x.csv"),
        ("DELETE", "/v1/rules/r1"),
        ("PUT", "/nowhere"),
    ],
)
def test_a_foreign_page_changes_nothing(
    method: str, path: str, headers: dict[str, str], start: Start
) -> None:
    service = start()
    answer = service.call(None, method, path, content=RULE, headers={**TEXT, **headers})
    problem(answer, 403, "origin_not_allowed")
    assert service.database.log == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost"},
        {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
def test_its_own_page_and_programs_may(headers: dict[str, str], start: Start) -> None:
    service = start()
    assert (
        service.call(None, "POST", "/v1/rules", content=RULE, headers={**TEXT, **headers}).status_code == 200
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8321",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "user@evil.example",
        "[::1",
    ],
)
def test_a_foreign_name_is_refused(host: str, start: Start) -> None:
    """DNS rebinding: for the browser, a page of evil.example, whose name now points here, is of the same origin."""
    answer = start().call(None, "GET", "/v1/rules", headers={"host": host})
    found = problem(answer, 403, "host_not_allowed")
    assert "--allowed-hosts" in found["detail"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8321",
        "zedlog.localhost",
        "127.0.0.1:8321",
        "[::1]:8321",
        "[::1]",
        "192.168.1.7:80",
    ],
)
def test_its_own_names_are_known(host: str, start: Start) -> None:
    assert start().call(None, "GET", "/v1/rules", headers={"host": host}).status_code == 200


def test_names_can_be_added(start: Start) -> None:
    service = start(allowed_hosts="zedlog.example, other.example")
    assert service.call(None, "GET", "/v1/rules", headers={"host": "Zedlog.example:443"}).status_code == 200
    problem(service.call(None, "GET", "/v1/rules", headers={"host": "x.example"}), 403, "host_not_allowed")


def test_an_insecure_service_for_others_checks_names_too(start: Start) -> None:
    service = start(insecure=True, host="0.0.0.0")
    problem(service.call(None, "GET", "/v1/rules", headers={"host": "evil.example"}), 403, "host_not_allowed")


def test_where_tokens_are_asked_for_any_name_will_do_unless_some_are_given(start: Start) -> None:
    service = start(host="0.0.0.0")
    service.make("a", "reader")
    assert service.call("a", "GET", "/v1/rules", headers={"host": "zedlog.example"}).status_code == 200


class TestOrigins:
    APP = "https://app.example"

    def test_an_answer_is_for_configured_origins_only(self, start: Start) -> None:
        service = start(allowed_origins=self.APP)
        answer = service.call(None, "GET", "/v1/rules", headers={"origin": self.APP})
        assert answer.headers["access-control-allow-origin"] == self.APP
        assert "Zedlog-Token" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "Origin"
        other = service.call(None, "GET", "/v1/rules", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        assert other.headers["vary"] == "Origin"
        # An error is for the page to read, too.
        refused = service.call("nonsense", "GET", "/v1/rules", headers={"origin": self.APP})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, self.APP)

    def test_a_configured_origin_may_change_something(self, start: Start) -> None:
        service = start(allowed_origins=self.APP)
        headers = {**TEXT, "origin": self.APP, "sec-fetch-site": "cross-site"}
        assert service.call(None, "POST", "/v1/rules", content=RULE, headers=headers).status_code == 200

    def test_a_preflight_says_yes_to_it_and_to_nobody_else(self, start: Start) -> None:
        service = start(allowed_origins=self.APP)
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        yes = service.call(None, "OPTIONS", "/v1/rules", headers={**asked, "origin": self.APP})
        assert (yes.status_code, yes.headers["access-control-allow-origin"]) == (204, self.APP)
        assert "POST" in yes.headers["access-control-allow-methods"]
        assert "Authorization" in yes.headers["access-control-allow-headers"]
        no = service.call(None, "OPTIONS", "/v1/rules", headers={**asked, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in no.headers

    def test_no_answer_is_for_other_origins_by_default(self, start: Start) -> None:
        answer = start().call(None, "GET", "/v1/rules", headers={"origin": self.APP})
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_websockets_are_closed(start: Start) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/rules", "headers": [], "method": "GET"}
    asyncio.run(start().app(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_request_has_an_id_and_a_line_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    import orjson

    service = start(access_log="stderr")
    text = service.make("kim", "reader")
    caplog.clear()
    answer = service.call("kim", "GET", "/v1/relations/edge?x=1", headers={"x-request-id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 101, 'a"'):
        made = service.call("kim", "GET", "/v1/rules", headers={"x-request-id": bad}).headers["x-request-id"]
        assert made != bad
        assert len(made) == 16
    service.call("nonsense", "POST", "/v1/facts")
    lines = [orjson.loads(r.getMessage()) for r in caplog.records if r.name == "zedlog.access"]
    first = lines[0]
    assert first.pop("ms") >= 0
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "request": "abc-1",
        "principal": "kim",
        "method": "GET",
        "path": "/v1/relations/edge",
        "status": answer.status_code,
    }
    assert [(line["principal"], line["status"]) for line in lines[1:]] == [("kim", 200)] * 3 + [
        ("anonymous", 401)
    ]
    assert text not in caplog.text
    assert "nonsense" not in caplog.text
