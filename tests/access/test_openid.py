"""JSON Web Tokens: good ones, and every way in which one is not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from service.access.errors import ProviderUnavailableError, UnauthorizedError
from service.access.openid import AGAIN_SECONDS, KEYS_SECONDS, Provider, keys_of, principal_of_claims
from service.principal import ForbiddenError, Principal
from tests.access.conftest import Start
from tests.service.conftest import problem

RSA, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
AUDIENCE, ISSUER = "zedlog", "https://id.example"


def jwk(key: Any, kid: str, **fields: Any) -> dict[str, Any]:
    kinds = {rsa.RSAPrivateKey: "RSA", ec.EllipticCurvePrivateKey: "EC", ed25519.Ed25519PrivateKey: "OKP"}
    kind = next(name for cls, name in kinds.items() if isinstance(key, cls))
    algorithm = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }
    return {**algorithm[kind].to_jwk(key.public_key(), as_dict=True), "kid": kid, **fields}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


KEYS = jwks(jwk(RSA, "r"), jwk(EC, "e"), jwk(ED, "d", alg="EdDSA", use="sig"))


def token(key: Any = RSA, kid: str | None = "r", alg: str = "RS256", **claims: Any) -> str:
    usual = {
        "sub": "kim",
        "aud": AUDIENCE,
        "iss": ISSUER,
        "exp": time.time() + 60,
        "roles": ["zedlog:reader"],
    }
    body = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return jwt.encode(body, key, algorithm=alg, headers={} if kid is None else {"kid": kid})


def part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def forged(alg: str, secret: bytes | None) -> str:
    """What no library would sign: the algorithm `none`, or an HMAC whose secret is the public key."""
    body = {"sub": "kim", "aud": AUDIENCE, "iss": ISSUER, "exp": time.time() + 60, "roles": ["zedlog:admin"]}
    signed = f"{part({'alg': alg, 'typ': 'JWT', 'kid': 'r'})}.{part(body)}"
    digest = b"" if secret is None else hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def public_pem() -> bytes:
    return RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


class Source:
    """Keys that change, or cannot be read; and a clock."""

    def __init__(self, keys: bytes | Exception = KEYS) -> None:
        self.keys, self.reads, self.now = keys, 0, 0.0
        self.provider = Provider(
            "https://id.example/keys", AUDIENCE, ISSUER, "roles", "sub", self.fetch, lambda: self.now
        )

    async def fetch(self, _: str) -> bytes:
        self.reads += 1
        if isinstance(self.keys, Exception):
            raise self.keys
        return self.keys

    def ask(self, text: str) -> Principal:
        return asyncio.run(self.provider.principal(text))


@pytest.mark.parametrize(
    "text",
    [
        token(),
        token(alg="PS512"),
        token(EC, "e", "ES256"),
        token(ED, "d", "EdDSA"),
        token(aud=["x", AUDIENCE]),
    ],
    ids=["RS256", "PS512", "ES256", "EdDSA", "several audiences"],
)
def test_a_good_token_is_accepted(text: str) -> None:
    principal = Source().ask(text)
    assert (principal.name, principal.role, principal.reads) == ("jwt:kim", "reader", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (token(exp=time.time() - 60), "has expired"),
        (token(exp=None), "exp"),
        (token(nbf=time.time() + 600), "not yet valid"),
        (token(aud="other"), "[Aa]udience"),
        (token(aud=None), "aud"),
        (token(iss="https://evil.example"), "[Ii]ssuer"),
        (token(iss=None), "iss"),
        (token(OTHER), "[Ss]ignature"),
        (token(kid="gone"), 'has no key "gone"'),
        (token(kid=None), "has no key"),
        (token(EC, "r", "ES256"), "alg"),
        (token(EC, "d", "ES256"), "alg"),
        (token("x" * 64, "r", "HS256"), "alg"),
        (forged("none", None), "alg"),
        (forged("None", None), "alg"),
        (forged("HS256", public_pem()), "alg"),
        (forged("RS256", None), "[Ss]ignature"),
        (token()[:-8] + "AAAAAAAA", "[Ss]ignature"),
        ("a.b.c", "not accepted"),
        ("..", "not accepted"),
        (token(sub=None), 'has no claim "sub"'),
        (token(sub="a\nb"), 'has no claim "sub"'),
        (token(sub="x" * 201), 'has no claim "sub"'),
    ],
)
def test_a_bad_token_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnauthorizedError, match=message):
        Source().ask(text)


@pytest.mark.parametrize(
    ("roles", "role", "reads", "writes"),
    [
        (["zedlog:reader"], "reader", None, None),
        (["zedlog:writer", "zedlog:reader"], "writer", None, None),
        (["zedlog:admin"], "admin", None, None),
        ("openid zedlog:writer email", "writer", None, None),
        (["zedlog:read:tc", "zedlog:read:edge"], "reader", {"tc", "edge"}, None),
        (["zedlog:read:tc", "zedlog:write:edge"], "writer", {"tc"}, {"edge"}),
        (["zedlog:write:edge"], "writer", set(), {"edge"}),
        (["zedlog:reader", "zedlog:write:edge"], "writer", None, {"edge"}),
        (["zedlog:writer", "zedlog:read:tc"], "writer", None, None),
    ],
)
def test_rights_add_up(roles: Any, role: str, reads: set[str] | None, writes: set[str] | None) -> None:
    found = principal_of_claims({"sub": "kim", "realm": {"roles": roles}}, "realm.roles", "sub")
    assert (found.role, found.reads, found.writes) == (role, reads, writes)


@pytest.mark.parametrize(
    "roles", [None, [], ["reader"], ["zedlog:"], ["zedlog:read:"], "zedlog:root", {"a": 1}, [1], 7]
)
def test_without_a_right_nothing_is_allowed(roles: Any) -> None:
    with pytest.raises(ForbiddenError, match="gives no right here"):
        principal_of_claims({"sub": "kim", "roles": roles}, "roles", "sub")


def test_keys_are_read_again_when_they_are_old_and_for_an_unknown_one_but_not_for_each() -> None:
    source = Source()
    source.ask(token())
    source.ask(token())
    assert source.reads == 1
    source.keys = jwks(jwk(OTHER, "new"))
    for _ in range(5):
        with pytest.raises(UnauthorizedError):
            source.ask(token(OTHER, "new"))
    assert source.reads == 1
    source.now += AGAIN_SECONDS
    assert source.ask(token(OTHER, "new")).name == "jwt:kim"
    assert source.reads == 2
    # The old key went with that, and so did what is remembered of its tokens.
    with pytest.raises(UnauthorizedError):
        source.ask(token())
    source.now += KEYS_SECONDS
    source.ask(token(OTHER, "new", jti="another"))
    assert source.reads == 3


def test_keys_stay_in_use_while_the_provider_is_away() -> None:
    source = Source()
    source.ask(token())
    source.keys = OSError("connection refused")
    source.now += 2 * KEYS_SECONDS
    assert source.ask(token(jti="another")).name == "jwt:kim"
    with pytest.raises(ProviderUnavailableError):
        Source(OSError("connection refused")).ask(token())


@pytest.mark.parametrize(
    "document", [b"", b"{}", b'{"keys": []}', jwks({"kty": "oct", "k": "c2VjcmV0", "kid": "r"})]
)
def test_a_document_without_public_keys_is_no_key_set(document: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        keys_of(document)
    with pytest.raises(ProviderUnavailableError):
        Source(document).ask(token())


def test_keys_that_do_not_verify_signatures_are_left_out() -> None:
    found = keys_of(
        jwks(jwk(RSA, "r", use="enc"), jwk(OTHER, "o", alg="HS256"), {"kty": "oct", "k": "YQ"}, jwk(EC, "e"))
    )
    assert {kid: algorithms for kid, (_, algorithms) in found.items()} == {"e": ("ES256",)}


def test_a_service_takes_both_kinds_of_tokens(start: Start, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(KEYS)
    service = start(jwt_keys=str(tmp_path / "keys.json"), jwt_audience=AUDIENCE, jwt_issuer=ISSUER)
    service.make("own", "reader")
    assert service.call("own", "GET", "/v1/rules").status_code == 200
    assert service.call(token(), "GET", "/v1/rules").status_code == 200
    problem(service.call(None, "GET", "/v1/rules"), 401, "unauthorized")
    problem(service.call(token(), "POST", "/v1/rules", json={"rule": "a(x) :- b(x)."}), 403, "forbidden")
    problem(service.call(token(roles=[]), "GET", "/v1/rules"), 403, "forbidden")
    problem(service.call(forged("none", None), "GET", "/v1/rules"), 401, "unauthorized")
    narrowed = token(roles=["zedlog:read:tc"])
    problem(service.call(narrowed, "GET", "/v1/relations/edge/facts"), 403, "forbidden")
    problem(service.call(narrowed, "GET", "/v1/relations/tc/facts"), 404, "unknown_relation")
