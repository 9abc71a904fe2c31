"""The console's addresses: who gets in, with which rights, and what a page of another site may do: nothing.

What is behind the gate is replaced by a stub that says who came in, so that these tests need no NiceGUI.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.access.sessions import IDLE_SECONDS, MOST, Sessions, cookie_name, is_console, secret_of
from service.console.mount import Console
from tests.access.conftest import Guarded, Start
from tests.service.conftest import problem

PAGES = ("/console", "/console/query?q=tc(x,y)", "/console/export?q=tc(x,y)", "/_nicegui/client/x/upload/1")


async def _stub(scope: Any, receive: Any, send: Any) -> None:
    name = scope["zedlog.principal"].name
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept", "subprotocol": name})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"page of {name}".encode()})


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    async def site(self: Console) -> Any:
        return _stub

    monkeypatch.setattr(Console, "_site", site)


@pytest.fixture
def asked(start: Start) -> Guarded:
    """A service that asks for tokens, with one for a reader of two relations."""
    service = start()
    service.make("kim", "reader", reads=["tc", "edge"])
    return service


def login(service: Guarded, token: str, **options: Any) -> httpx.Response:
    headers = {"content-type": "application/x-www-form-urlencoded", **options.pop("headers", {})}
    body = httpx.QueryParams({"token": token, **options}).__str__()
    answer = service.call(None, "POST", "/console/login", content=body, headers=headers)
    # Each test says itself which cookie is sent.
    service.client.cookies.clear()
    return answer


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def connect(service: Guarded, path: str = "/_nicegui_ws/socket.io/", **headers: str) -> list[dict[str, Any]]:
    """What a WebSocket with these headers is answered."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "ws",
        "server": ("127.0.0.1", 8321),
        "client": ("127.0.0.1", 1),
        "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    service.runner.run(service.app(scope, receive, send))
    return sent


REFUSED = [{"type": "websocket.close", "code": 1008}]


class TestConnections:
    """A page of any origin may open a WebSocket to any host, and the browser sends the host's cookies with it."""

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "http://localhost:9999"},
            {"origin": "https://localhost.evil.example"},
            {"origin": "null"},
            {"sec_fetch_site": "cross-site"},
            {"origin": "http://localhost", "sec_fetch_site": "same-site"},
            {"host": "evil.example", "origin": "http://evil.example"},
        ],
        ids=str,
    )
    def test_one_from_a_page_of_another_site_is_refused(self, headers: dict[str, str], start: Start) -> None:
        assert connect(start(), **headers) == REFUSED

    def test_a_session_does_not_help_it(self, asked: Guarded) -> None:
        cookie = cookie_of(login(asked, asked.tokens["kim"]))
        assert connect(asked, cookie=cookie, origin="https://evil.example") == REFUSED
        assert connect(asked, cookie=cookie, origin="http://localhost")[0]["subprotocol"] == "kim"

    def test_nor_does_an_origin_that_may_use_the_api(self, start: Start) -> None:
        service = start(allowed_origins="https://app.example")
        assert connect(service, origin="https://app.example") == REFUSED

    @pytest.mark.parametrize("headers", [{}, {"origin": "http://localhost"}], ids=str)
    def test_one_of_its_own_pages_is_accepted(self, headers: dict[str, str], start: Start) -> None:
        assert connect(start(), **headers) == [{"type": "websocket.accept", "subprotocol": "local"}]

    def test_without_a_session_there_is_none_where_tokens_are_asked_for(self, asked: Guarded) -> None:
        assert connect(asked, origin="http://localhost") == REFUSED
        assert connect(asked, origin="http://localhost", cookie="zedlog_console=guessed") == REFUSED
        assert connect(asked, authorization=f"Bearer {asked.tokens['kim']}")[0]["subprotocol"] == "kim"

    @pytest.mark.parametrize("path", ["/", "/v1/rules", "/metrics", "/_nicegui_wsx", "/consolex"])
    def test_there_are_none_elsewhere(self, path: str, start: Start) -> None:
        assert connect(start(), path) == REFUSED

    def test_there_are_none_without_a_console(self, start: Start) -> None:
        assert connect(start(no_console=True)) == REFUSED


class TestPages:
    @pytest.mark.parametrize("path", PAGES)
    def test_where_no_tokens_are_asked_for_everybody_gets_in(self, path: str, start: Start) -> None:
        assert start().call(None, "GET", path).text == "page of local"

    @pytest.mark.parametrize("path", PAGES)
    def test_otherwise_one_has_to_log_in(self, path: str, asked: Guarded) -> None:
        answer = asked.call(None, "GET", path)
        assert answer.status_code == 303
        assert (
            answer.headers["location"] == f"/console/login?next={httpx.QueryParams({'': path}).__str__()[1:]}"
        )

    @pytest.mark.parametrize("path", PAGES)
    def test_a_foreign_name_and_a_foreign_page_are_refused(self, path: str, start: Start) -> None:
        service = start()
        answer = service.call(None, "GET", path, headers={"host": "evil.example"})
        problem(answer, 403, "host_not_allowed")
        answer = service.call(None, "POST", path, headers={"origin": "https://evil.example"})
        problem(answer, 403, "origin_not_allowed")

    def test_the_files_of_the_library_are_for_everybody(self, asked: Guarded) -> None:
        assert asked.call(None, "GET", "/_nicegui/3/static/nicegui.js").text == "page of anonymous"

    def test_a_page_loads_nothing_from_elsewhere_and_is_in_no_frame(self, start: Start) -> None:
        for path in ("/console", "/console/login"):
            headers = start().call(None, "GET", path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "http:" not in policy
            assert headers["x-content-type-options"] == "nosniff"

    def test_without_a_console_there_are_no_pages(self, start: Start) -> None:
        service = start(no_console=True)
        assert service.call(None, "GET", "/").headers["location"] == "/docs"
        problem(service.call(None, "GET", "/console"), 404, "not_found")
        assert service.call(None, "GET", "/v1/rules").status_code == 200

    def test_drawing_a_page_does_not_use_up_the_rate_of_a_token(self, start: Start) -> None:
        service = start()
        service.make("slow", "reader", rate=1)
        headers = {"cookie": cookie_of(login(service, service.tokens["slow"]))}
        assert [service.call(None, "GET", "/console", headers=headers).status_code for _ in range(20)] == [
            200
        ] * 20

    def test_without_the_storage_it_says_so_and_does_not_ask_for_a_token(self, start: Start) -> None:
        service = start()
        service.database.redis_away = True
        service.app.state.service.tokens.forget()
        answer = service.call(None, "GET", "/console")
        assert (answer.status_code, "storage_unavailable" in answer.text) == (503, True)


class TestSessions:
    def test_a_token_opens_one(self, asked: Guarded) -> None:
        answer = login(asked, asked.tokens["kim"], next="/console/query?q=tc(x,y)")
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/query?q=tc(x,y)")
        attributes = answer.headers["set-cookie"].lower()
        assert "httponly" in attributes
        assert "samesite=strict" in attributes
        assert "max-age" not in attributes
        assert asked.tokens["kim"] not in answer.text + str(answer.headers)
        page = asked.call(None, "GET", "/console", headers={"cookie": cookie_of(answer)})
        assert page.text == "page of kim"

    def test_it_counts_for_the_console_only(self, asked: Guarded) -> None:
        """So no other page can make the browser call the API with it."""
        headers = {"cookie": cookie_of(login(asked, asked.tokens["kim"]))}
        for path in ("/v1/rules", "/v1/whoami", "/metrics"):
            problem(asked.call(None, "GET", path, headers=headers), 401, "unauthorized")

    @pytest.mark.parametrize("token", ["", "nonsense", "two words", "caf\u00e9", "a\nb", "x" * 70_000])
    def test_a_wrong_token_opens_none(self, token: str, asked: Guarded) -> None:
        answer = login(asked, token)
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert "set-cookie" not in answer.headers

    def test_a_page_of_another_site_cannot_log_somebody_in(self, asked: Guarded) -> None:
        answer = login(asked, asked.tokens["kim"], headers={"origin": "https://evil.example"})
        problem(answer, 403, "origin_not_allowed")

    @pytest.mark.parametrize(
        "where",
        [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/consolex",
            "/docs",
            "/console/\r\nx: y",
            "javascript:1",
        ],
    )
    def test_it_leads_to_the_console_only(self, where: str, asked: Guarded) -> None:
        assert login(asked, asked.tokens["kim"], next=where).headers["location"] == "/console"
        page = asked.call(None, "GET", "/console/login", params={"next": where})
        assert 'name="next" value="/console"' in page.text

    def test_logging_out_ends_it(self, asked: Guarded) -> None:
        headers = {"cookie": cookie_of(login(asked, asked.tokens["kim"]))}
        assert asked.call(None, "GET", "/console/logout", headers=headers).status_code == 405
        answer = asked.call(None, "POST", "/console/logout", headers=headers)
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        assert asked.call(None, "GET", "/console", headers=headers).status_code == 303
        assert connect(asked, **headers) == REFUSED

    def test_revoking_the_token_ends_it(self, asked: Guarded) -> None:
        asked.make("root", "admin")
        headers = {"cookie": cookie_of(login(asked, asked.tokens["kim"]))}
        assert asked.call("root", "DELETE", "/v1/tokens/kim").status_code == 204
        assert asked.call(None, "GET", "/console", headers=headers).status_code == 303

    def test_logging_in_again_ends_the_one_before(self, asked: Guarded) -> None:
        old = {"cookie": cookie_of(login(asked, asked.tokens["kim"]))}
        login(asked, asked.tokens["kim"], headers=old)
        assert asked.call(None, "GET", "/console", headers=old).status_code == 303

    def test_a_link_from_another_site_finds_the_session_with_one_more_step(self, asked: Guarded) -> None:
        """A browser keeps the cookie back on the way from another site."""
        answer = asked.call(None, "GET", "/console/query?q=x", headers={"sec-fetch-site": "cross-site"})
        assert 'http-equiv="refresh" content="0; url=/console/query?q=x"' in answer.text

    def test_who_has_one_sees_no_login_page(self, asked: Guarded) -> None:
        headers = {"cookie": cookie_of(login(asked, asked.tokens["kim"]))}
        assert asked.call(None, "GET", "/console/login", headers=headers).headers["location"] == "/console"

    def test_it_ends_when_nobody_uses_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr("service.access.sessions.time.monotonic", lambda: now[0])
        sessions = Sessions()
        secret = sessions.open("token")
        now[0] = IDLE_SECONDS
        assert sessions.token(secret) == "token"
        now[0] = 2 * IDLE_SECONDS
        assert sessions.token(secret) == "token", "it was used"
        now[0] = 3 * IDLE_SECONDS + 1
        assert sessions.token(secret) is None

    def test_there_are_not_more_than_so_many(self) -> None:
        sessions = Sessions()
        first = sessions.open("first")
        for i in range(MOST):
            sessions.open(str(i))
        assert sessions.token(first) is None

    def test_services_on_two_ports_of_a_machine_have_cookies_of_their_own(self) -> None:
        assert len({cookie_name(host) for host in (b"localhost:8321", b"localhost:8322", b"localhost")}) == 3
        cookie = b"zedlog_console_8321=one; zedlog_console_8322=two"
        assert secret_of(b"localhost:8322", cookie) == "two"
        assert secret_of(b"localhost", cookie) is None
        assert secret_of(b"[::1]:8321", cookie) == "one"

    @pytest.mark.parametrize(
        "cookie", [b"", b"\xff\xfe", b"zedlog_console", b"a=b; ;;=", b"zedlog_console=\x00"]
    )
    def test_a_damaged_cookie_is_none(self, cookie: bytes) -> None:
        assert Sessions().authorization(b"localhost", cookie) is None


def test_what_is_the_consoles() -> None:
    for path in ("/console", "/console/query", "/_nicegui/x", "/_nicegui_ws/socket.io/"):
        assert is_console(path)
    for path in ("/", "/consoles", "/v1/console", "/_niceguix", "/docs", ""):
        assert not is_console(path)


def test_whoami(asked: Guarded, start: Start) -> None:
    found = asked.call("kim", "GET", "/v1/whoami").json()
    assert found == {
        "name": "kim",
        "role": "reader",
        "reads": ["edge", "tc"],
        "writes": None,
        "rows": None,
        "asked": True,
    }
    local = start().call(None, "GET", "/v1/whoami").json()
    assert (local["name"], local["role"], local["asked"]) == ("local", "admin", False)


def test_the_api_does_not_load_the_console(start: Start) -> None:
    """A service that only programs use pays nothing for it."""
    import subprocess
    import sys

    code = "import service.app, sys; sys.exit('nicegui' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
