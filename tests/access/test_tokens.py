"""The life of a token: made, shown once, used, limited, expired, revoked."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequestError
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from service.access import tokens
from service.access.errors import TokenExistsError, UnknownTokenError
from service.access.tokens import FRESH_SECONDS, Token, TokenTable, new_token
from service.cli.main import run
from tests.access.conftest import Guarded, Start
from tests.service.conftest import problem
from tests.service.fake_tokens import FakeTokens

FACT = {"relation": "edge", "tuples": [["a", "b"]]}


def table() -> tuple[TokenTable, FakeTokens]:
    store = FakeTokens(lambda: None)
    return TokenTable(store), store


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(tokens.time, "time", lambda: self.now)
        monkeypatch.setattr(tokens.time, "monotonic", lambda: self.now)


def test_a_token_lives_from_its_making_to_its_revocation(guarded: Guarded) -> None:
    body = {"name": "loader", "role": "writer", "writes": ["edge"], "reads": [], "rows": 5, "rate": 100}
    made = guarded.call("admin", "POST", "/v1/tokens", json=body)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    text = made.json()["token"]
    assert guarded.call(text, "POST", "/v1/facts", json=FACT).status_code == 200
    listed = guarded.call("admin", "GET", "/v1/tokens")
    assert [token["name"] for token in listed.json()["tokens"]] == ["admin", "loader", "reader", "writer"]
    assert made.json() == {**listed.json()["tokens"][1], "token": text}
    assert text.rpartition("_")[2] not in listed.text
    assert "digest" not in listed.text
    problem(guarded.call("admin", "POST", "/v1/tokens", json=body), 409, "token_exists")
    assert guarded.call("admin", "DELETE", "/v1/tokens/loader").status_code == 204
    problem(guarded.call(text, "POST", "/v1/facts", json=FACT), 401, "unauthorized")
    problem(guarded.call("admin", "DELETE", "/v1/tokens/loader"), 404, "unknown_token")


def test_the_database_keeps_the_hash_and_nothing_else() -> None:
    token, text = new_token("kim", "reader", ["tc"])
    secret = text.split("_", 2)[2]
    assert len(secret) >= 43
    record = token.record()
    assert record["digest"] == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in str(record)
    assert Token.restore(record) == token
    assert "digest" not in token.shown()
    assert new_token("kim")[1] != new_token("kim")[1]


def test_a_secret_is_compared_in_constant_time_and_also_for_an_unknown_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(tokens.hmac, "compare_digest", compare)
    known, store = table()
    token, text = new_token("kim")

    async def ask() -> list[object]:
        await tokens.create(store, token)
        await known.refresh()
        return [
            known.find(text),
            known.find(text[:-1] + "!"),
            known.find("zedlog_000000000000_x"),
            known.find("ü"),
        ]

    found = asyncio.run(ask())
    assert found == [token.principal, None, None, None]
    assert [len(a) == len(b) == 64 for a, b in compared] == [True] * 4


def test_a_revoked_token_works_for_a_second_at_most_and_no_request_reads_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    known, store = table()
    token, text = new_token("kim")

    async def ask() -> object:
        if not known.is_fresh:
            await known.refresh()
        return known.find(text)

    async def story() -> None:
        await tokens.create(store, token)
        assert await ask() == token.principal
        await tokens.revoke(store, "kim")
        for _ in range(100):
            assert await ask() == token.principal
        assert store.reads == 1
        clock.now += FRESH_SECONDS
        assert await ask() is None
        assert store.reads == 2

    asyncio.run(story())


def test_many_requests_at_once_read_the_table_once() -> None:
    known, store = table()

    async def ask() -> None:
        await asyncio.gather(*(known.refresh() for _ in range(50)))

    asyncio.run(ask())
    assert store.reads == 1


def test_a_token_expires_and_its_end_opens_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    service = start()
    service.make("short", "admin", seconds=60)
    assert service.call("short", "GET", "/v1/rules").status_code == 200
    clock.now += 59.9
    assert service.call("short", "GET", "/v1/tokens").json()["tokens"][0]["expired"] is False
    clock.now += 0.2
    problem(service.call("short", "GET", "/v1/rules"), 401, "unauthorized")
    problem(service.call(None, "GET", "/v1/rules"), 401, "unauthorized")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "cannot be the name of a token"),
        ({"name": "a b"}, "cannot be the name of a token"),
        ({"name": "jwt:kim"}, "cannot be the name of a token"),
        ({"name": "local"}, "cannot be the name of a token"),
        ({"role": "root"}, "the role must be one of reader, writer, admin"),
        ({"role": "admin", "reads": ["a"]}, "an admin can make tokens with all rights"),
        ({"role": "reader", "writes": ["a"]}, "a reader changes nothing"),
        ({"reads": ["a b"]}, "a b"),
        ({"rows": 0}, "rows must be above 0"),
        ({"rate": -1}, "rate must be above 0"),
        ({"seconds": float("nan")}, "seconds must be above 0"),
    ],
    ids=str,
)
def test_what_cannot_be_a_token_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        new_token(**{"name": "kim", **wrong})


@pytest.mark.parametrize(
    "body",
    [{}, {"name": 1}, {"name": "x", "role": "root"}, {"name": "x", "read": ["a"]}, {"name": "x", "reads": "a"},
     {"name": "x", "role": "admin", "reads": []}, {"name": "x", "expires_in": 0}],
    ids=str,
)  # fmt: skip
def test_a_wrong_body_is_refused(body: dict[str, Any], guarded: Guarded) -> None:
    problem(guarded.call("admin", "POST", "/v1/tokens", json=body), 400, "invalid_request")
    assert "x" not in guarded.database.tokens.records


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer zedlog_x_y",
        "Bearer zedlog__",
        "Bearer \xff",
        "Bearer a.b.c",
    ],
)
def test_what_is_not_a_token_is_refused(header: str, guarded: Guarded) -> None:
    answer = guarded.request("GET", "/v1/rules", headers=[(b"authorization", header.encode("latin-1"))])
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == 'Bearer realm="zedlog", error="invalid_token"'


# ---- in Redis, and from the command line


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("tokens") / "data") as running:
        yield running


def test_redis_keeps_tokens_and_each_name_once(server: EmbeddedServer) -> None:
    async def story() -> None:
        client = DatabaseClient.connect(server.url, "one")
        other = DatabaseClient.connect(server.url, "two")
        try:
            token, _ = new_token("kim", "writer", ["a"], ["b"], rows=3, rate=1.5, body=10, seconds=60)
            await tokens.create(client.tokens, token)
            assert await tokens.listed(client.tokens) == [token]
            assert await tokens.listed(other.tokens) == []
            with pytest.raises(TokenExistsError):
                await tokens.create(client.tokens, new_token("kim")[0])
            assert await tokens.listed(client.tokens) == [token]
            # The same once more, as a connection that broke sends it.
            await tokens.create(client.tokens, token)
            await tokens.revoke(client.tokens, "kim")
            with pytest.raises(UnknownTokenError):
                await tokens.revoke(client.tokens, "kim")
        finally:
            await client.close()
            await other.close()

    asyncio.run(story())


def test_the_first_token_comes_from_the_storage_itself(
    tmp_path: Path,
    server: EmbeddedServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    # A directory that nothing runs on, one that a server runs on, and a Redis.
    for place in (
        ["--data-dir", str(tmp_path / "new")],
        ["--data-dir", str(server.data_dir)],
        ["--redis-url", server.url],
    ):
        database = ["--database", f"db{len(place[1])}{place[0][2]}"]
        assert run(["token", "create", "kim", "--role", "admin", "--expires", "90d", *place, *database]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith("zedlog_")
        assert shown.out.count("\n") == 1
        assert "the database's first token" in shown.err
        assert (
            run(
                ["token", "create", "lee", "--read", "tc", "--rate", "2", "--body", "1KiB", *place, *database]
            )
            == 0
        )
        assert "first token" not in capsys.readouterr().err
        assert run(["token", "list", *place, *database]) == 0
        listed = capsys.readouterr().out
        assert "kim" in listed
        assert "tc" in listed
        assert "zedlog_" not in listed
        assert run(["token", "create", "kim", *place, *database]) == 1
        assert "there is a token" in capsys.readouterr().err
        assert run(["token", "revoke", "kim", *place, *database]) == 0
        assert "no token any more" not in capsys.readouterr().err
        assert run(["token", "revoke", "lee", *place, *database]) == 0
        assert "no token any more" in capsys.readouterr().err
        assert run(["token", "revoke", "lee", *place, *database]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expires", "soon"], "soon is not a time"),
        (["--body", "much"], "much"),
        (["--role", "root"], "the role must be one of"),
        (["--write", "a"], "a reader changes nothing"),
    ],
)
def test_a_wrong_option_is_wrong_usage(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["token", "create", "kim", *arguments, "--data-dir", str(tmp_path / "d")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "d").exists()
