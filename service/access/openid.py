"""JSON Web Tokens of an OpenID provider: checked with the provider's public keys, and turned into principals.

Always: only asymmetric algorithms are accepted, whatever a token's header says, so a public key can never serve as the
secret of an HMAC; a token must have an expiry, and the audience of this service. Rights add up: `zedlog:reader` reads
everything, `zedlog:read:tc` reads `tc`; a token without any right of Zedlog is known, but may do nothing.

Keys are read again after `KEYS_SECONDS`, and sooner, but at most once in `AGAIN_SECONDS`, for a key that is not known.
Keys that were read last stay in use while the provider cannot be reached.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import orjson

from engine.errors import shown
from service.access.errors import ProviderUnavailableError, UnauthorizedError
from service.principal import ROLES, ForbiddenError, Principal, Role

log = logging.getLogger("zedlog.service")

ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""What a key of each kind may have signed with."""
KEYS_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 10.0
LEEWAY_SECONDS: Final = 10.0
_KNOWN_SECONDS: Final = 60.0
_KNOWN: Final = 1_000
_FETCH_SECONDS: Final = 5.0
_PREFIX: Final = "zedlog:"
_LONGEST_NAME: Final = 200

Key = tuple[Any, tuple[str, ...]]
Keys = dict[str | None, Key]


class Provider:
    """Checks tokens against one set of keys, a JWKS file or URL."""

    def __init__(
        self,
        keys: str,
        audience: str | None,
        issuer: str | None,
        roles: str,
        name: str,
        fetch: Callable[[str], Awaitable[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """roles, name: the claims that have the rights and the user's name. `fetch` and `clock` are for tests."""
        self._source = keys
        self._audience, self._issuer = audience, issuer
        self._roles, self._name = roles, name
        self._fetch = fetch or _fetch
        self._clock = clock
        self._keys: Keys = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading = asyncio.Lock()
        # By the digest of a token: whose it is, and until when that is known (time.time()).
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def principal(self, text: str) -> Principal:
        """Whose token it is.

        Raises:
            UnauthorizedError: it is not a token of this provider for this service, or it has expired.
            ForbiddenError: it is, but it gives no right here.
            ProviderUnavailableError: the keys have never been read, and cannot be read now.
        """
        digest = hashlib.sha256(text.encode(errors="replace")).digest()
        known = self._known.get(digest)
        if known is not None and time.time() < known[1]:
            return known[0]
        claims = await self._claims(text)
        principal = principal_of_claims(claims, self._roles, self._name)
        self._known[digest] = (
            principal,
            min(time.time() + _KNOWN_SECONDS, float(claims["exp"]) + LEEWAY_SECONDS),
        )
        self._known.move_to_end(digest)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return principal

    async def _claims(self, text: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(text)
            key, algorithms = await self._key(header.get("kid"))
            return jwt.decode(
                text,
                key=key,
                algorithms=algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "aud"] + (["iss"] if self._issuer is not None else [])},
            )
        except jwt.ExpiredSignatureError:
            raise UnauthorizedError(
                "the JSON Web Token has expired; get a new one from its provider"
            ) from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise UnauthorizedError(f"the JSON Web Token is not accepted: {error}") from None

    async def _key(self, kid: Any) -> Key:
        """The key of that id, and the algorithms that it may have signed with."""
        wanted = kid if isinstance(kid, str) else None
        await self._refresh(KEYS_SECONDS)
        found = self._find(wanted)
        if found is None:
            await self._refresh(AGAIN_SECONDS)
            found = self._find(wanted)
        if found is None:
            raise UnauthorizedError(
                f"the JSON Web Token is not accepted: its provider has no key {shown(wanted or 'without an id')}"
            )
        return found

    def _find(self, kid: str | None) -> Key | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def _refresh(self, age: float) -> None:
        """Read the keys if they are older than `age` seconds."""
        async with self._reading:
            now = self._clock()
            if self._read_at is not None and now - self._read_at < age:
                return
            if self._tried_at is not None and now - self._tried_at < AGAIN_SECONDS and self._keys:
                return
            self._tried_at = now
            try:
                self._keys = keys_of(await self._fetch(self._source))
            except (OSError, httpx.HTTPError, jwt.PyJWTError, ValueError, KeyError) as error:
                log.warning("the keys of %s cannot be read: %s", self._source, error)
                if not self._keys:
                    raise ProviderUnavailableError(
                        "the keys of the OpenID provider cannot be read now; the service's log says why"
                    ) from error
                return
            self._read_at = now
            # What was signed with a key that has gone is not accepted any more.
            self._known.clear()


async def _fetch(source: str) -> bytes:
    if not source.startswith(("https://", "http://")):
        return await asyncio.to_thread(Path(source).read_bytes)
    async with httpx.AsyncClient(timeout=_FETCH_SECONDS) as client:
        return (await client.get(source)).raise_for_status().content


def keys_of(document: bytes) -> Keys:
    """The keys of a JWKS document that verify signatures, by their ids; symmetric keys are left out.

    Raises:
        PyJWTError, ValueError, KeyError: it is not such a document, or has no such key.
    """
    found: Keys = {}
    for entry in orjson.loads(document)["keys"]:
        kind = ALGORITHMS.get(entry.get("kty"))
        if kind is None or entry.get("use", "sig") != "sig":
            continue
        named = entry.get("alg")
        if named is not None and named not in kind:
            continue
        try:
            key = jwt.PyJWK.from_dict(entry) if named else jwt.PyJWK.from_dict(entry, _usual(entry))
        except jwt.PyJWTError:
            # Of a curve, say, that nobody here knows; the others are as good as before.
            continue
        # The algorithms are ours to choose: a key of RSA, say, may sign in several ways.
        found[entry.get("kid")] = key.key, (named,) if named else _fitting(entry, kind)
    if not found:
        raise ValueError("there is no public key in it that verifies signatures")
    return found


_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


def _usual(entry: Mapping[str, Any]) -> str | None:
    return {"RSA": "RS256", "OKP": "EdDSA"}.get(entry["kty"]) or _CURVES.get(entry.get("crv", ""))


def _fitting(entry: Mapping[str, Any], kind: tuple[str, ...]) -> tuple[str, ...]:
    usual = _usual(entry)
    return kind if entry["kty"] == "RSA" or usual is None else (usual,)


def principal_of_claims(claims: Mapping[str, Any], roles: str, name: str) -> Principal:
    """The principal that the claims of a checked token describe. Its name begins with `jwt:`, which no other has.

    Raises:
        UnauthorizedError: the claim of the name is missing.
        ForbiddenError: the token gives no right here.
    """
    who = _claim(claims, name)
    if not isinstance(who, str) or not who or not who.isprintable() or len(who) > _LONGEST_NAME:
        raise UnauthorizedError(
            f"the JSON Web Token has no claim {shown(name)} that names the user in up to {_LONGEST_NAME} characters"
        )
    called = f"jwt:{who}"
    given = _claim(claims, roles)
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    rights = [
        word.removeprefix(_PREFIX) for word in words if isinstance(word, str) and word.startswith(_PREFIX)
    ]
    held: list[Role] = [role for role in ROLES if role in rights]
    reads, writes = _named("read:", rights), _named("write:", rights)
    if not (held or reads or writes):
        raise ForbiddenError(
            f"the token of {shown(called)} gives no right here; its provider puts rights such as zedlog:reader into "
            f"the claim {roles}",
            principal=called,
        )
    role: Role = max([*held, "writer" if writes else "reader"], key=ROLES.index)
    everything = bool(held)
    changes_all = "writer" in held or "admin" in held
    return Principal(
        called,
        role,
        None if everything else frozenset(reads),
        None if changes_all else frozenset(writes) if role == "writer" else None,
        id=called,
    )


def _named(kind: str, rights: Iterable[str]) -> set[str]:
    return {right.removeprefix(kind) for right in rights if right.startswith(kind) and right != kind}


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of that name, or the one to which the dots lead."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
