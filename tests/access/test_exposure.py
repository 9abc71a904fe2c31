"""A service that others could reach does not start open; its settings, TLS, and tokens on the command line."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.errors import InvalidRequestError, StorageUnavailableError
from engine.server.options import read_settings
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from service.access.exposure import check_exposure
from service.access.tokens import create, new_token
from service.cli.client import Refused, ServiceClient, Unreachable
from service.cli.main import run
from service.settings import Settings
from tests.live import ROOT, free_port
from tests.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("exposure") / "data") as running:
        yield running


async def with_token(url: str, database: str) -> None:
    client = DatabaseClient.connect(url, database)
    await create(client.tokens, new_token("kim")[0])
    await client.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "zedlog.example"])
def test_other_machines_are_not_served_without_a_token(host: str, server: EmbeddedServer) -> None:
    open_ = Settings(host=host, database="open")
    with pytest.raises(InvalidRequestError) as caught:
        asyncio.run(check_exposure(open_, server.url, "--data-dir d"))
    assert "zedlog token create admin --role admin --data-dir d" in caught.value.message
    assert "--insecure" in caught.value.message
    asyncio.run(with_token(server.url, f"kept-{len(host)}"))
    asyncio.run(check_exposure(Settings(host=host, database=f"kept-{len(host)}"), server.url, ""))
    asyncio.run(check_exposure(Settings(host=host, database="open", insecure=True), server.url, ""))
    keys = Settings(host=host, database="open", jwt_keys="https://id.example/keys", jwt_audience="zedlog")
    asyncio.run(check_exposure(keys, server.url, ""))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_is(host: str) -> None:
    # Without a look at the storage, which is not there.
    asyncio.run(check_exposure(Settings(host=host), "unix:///nowhere", ""))
    with pytest.raises(StorageUnavailableError):
        asyncio.run(check_exposure(Settings(host="0.0.0.0"), "unix:///nowhere", ""))


def test_serve_and_the_service_alone_refuse(
    tmp_path: Path, server: EmbeddedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    assert run(["serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", data]) == 1
    told = " ".join(capfd.readouterr().err.split())
    assert f"zedlog token create admin --role admin --data-dir {data}" in told
    environment = {
        **os.environ,
        "ZEDLOG_REDIS_URL": server.url,
        "ZEDLOG_HOST": "0.0.0.0",
        "ZEDLOG_DATABASE": "alone",
    }
    alone = subprocess.run(
        [sys.executable, "-m", "service"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert alone.returncode == 2
    assert f"zedlog token create admin --role admin --redis-url {server.url}" in alone.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"insecure": "true", "require_tokens": "true"}, "--insecure asks for no tokens"),
        ({"insecure": "true", "jwt_keys": "k", "jwt_audience": "a"}, "--insecure asks for no tokens"),
        ({"jwt_keys": "keys.json"}, "--jwt-keys needs --jwt-audience"),
        ({"jwt_keys": "http://id.example/keys", "jwt_audience": "a"}, "is not encrypted"),
        ({"tls_key": "k.pem"}, "--tls-key needs --tls-cert"),
        ({"tls_cert": "/nowhere/c.pem"}, "/nowhere/c.pem cannot be used"),
        ({"allowed_hosts": "a b"}, "--allowed-hosts (ZEDLOG_ALLOWED_HOSTS): .* is not a host"),
        ({"allowed_hosts": "http://a"}, "is not a host"),
        ({"allowed_origins": "app.example"}, "is not an origin"),
        ({"allowed_origins": "*"}, "is not an origin"),
        ({"allowed_origins": "https://a.example/"}, "is not an origin"),
        ({"token_rate": "0"}, "is not a number of seconds above 0"),
    ],
    ids=str,
)
def test_settings_that_would_not_hold_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read_settings(Settings, given)


def test_lists_may_be_given_with_commas() -> None:
    found = read_settings(
        Settings,
        {"allowed_hosts": ["A.example,b", "[::1]"], "allowed_origins": "https://A.example, http://b:1"},
    )
    assert found.allowed_hosts == {"a.example", "b", "::1"}
    assert found.allowed_origins == {"https://a.example", "http://b:1"}


# ---- the command line's client


def transport(seen: list[httpx.Request], *answers: httpx.Response) -> httpx.MockTransport:
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return left.pop(0)

    return httpx.MockTransport(answer)


def test_the_client_sends_the_token_and_waits_when_it_is_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEDLOG_TOKEN", " zedlog_a_b\n")
    waits: list[float] = []
    monkeypatch.setattr("zedlog.client.drivers.time.sleep", waits.append)
    seen: list[httpx.Request] = []
    slow = httpx.Response(429, headers={"retry-after": "7"}, json={"code": "rate_limited", "status": 429})
    with ServiceClient(
        "http://x", transport=transport(seen, slow, slow, httpx.Response(200, json={"n": 1}))
    ) as client:
        assert client.post("/v1/facts", {}) == {"n": 1}
    assert [request.headers["authorization"] for request in seen] == ["Bearer zedlog_a_b"] * 3
    assert waits == [7, 7]


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("zedlog.client.drivers.time.sleep", waits.append)
    slow = httpx.Response(429, headers={"retry-after": "1000"}, json={"code": "rate_limited", "status": 429})
    with (
        ServiceClient("http://x", transport=transport([], slow, slow)) as client,
        pytest.raises(Refused) as caught,
    ):
        client.post("/v1/facts", {})
    assert (caught.value.code, waits) == ("rate_limited", [60])


def test_what_cannot_be_a_token_is_not_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEDLOG_TOKEN", "a\nsecret")
    with pytest.raises(Unreachable) as caught:
        ServiceClient("http://x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token", "T", "--url", "URL", "rules", "list"],
        ["rules", "list", "--token", "T", "--url", "URL"],
        ["rules", "--token=T", "list", "--url", "URL"],
        ["--token", "other", "status", "--url", "URL", "--token=T"],
    ],
)
def test_a_token_holds_before_and_after_the_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_TOKEN", "from the environment")
    assert run([word.replace("URL", "http://127.0.0.1:9") for word in arguments]) == 1
    assert os.environ["ZEDLOG_TOKEN"] == "T"


def test_a_token_without_a_value_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list", "--token"]) == 2
    assert "'--token' requires an argument" in capsys.readouterr().err


# ---- the whole, encrypted


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost, signed with its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    places = folder / "cert.pem", folder / "key.pem"
    places[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    places[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return places


def test_serve_on_every_address_with_tls_and_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = certificate(tmp_path)
    data, port = tmp_path / "data", free_port()
    assert run(["token", "create", "kim", "--role", "admin", "--data-dir", str(data)]) == 0
    token = capsys.readouterr().out.strip()
    output = tmp_path / "output"
    arguments = ["serve", "--host", "0.0.0.0", "--port", str(port), "--data-dir", str(data), "--no-engine"]
    with output.open("wb") as out:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "service.cli.main",
                *arguments,
                "--tls-cert",
                str(cert),
                "--tls-key",
                str(key),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "200"},
        )
    try:
        until(
            lambda: "Zedlog is ready" in output.read_text() or process.poll() is not None,
            output.read_text,
            120,
        )
        assert f"https://127.0.0.1:{port}" in output.read_text()
        trusted = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/tokens").status_code == 401
            made = client.get("/v1/tokens", headers={"authorization": f"Bearer {token}"})
            assert [one["name"] for one in made.json()["tokens"]] == ["kim"]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{port}/healthz")
        log = (data / "access.log").read_text()
        assert '"principal":"kim"' in log
        assert token not in log + output.read_text()
    finally:
        process.terminate()
        process.wait(60)
