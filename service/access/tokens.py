"""Access tokens: made, checked, listed and revoked; and the table of them from which a service answers.

A token is `zedlog_ID_SECRET`. It is shown once, when it is made; the database keeps the SHA-256 of the secret, which
has 256 random bits and so needs no slow hash. Always: secrets are compared in constant time, also for an id that does
not exist. Cost: a service reads the table at most once in `FRESH_SECONDS`, so that a request costs no further round
trip, and a revoked token is refused after that time at the latest.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from engine.errors import InvalidRequestError, StorageUnavailableError, shown
from engine.language.operators import check_relation_name
from service.access.errors import TokenExistsError, UnknownTokenError
from service.principal import ANONYMOUS, LOCAL, ROLES, Principal, Role

PREFIX: Final = "zedlog_"
FRESH_SECONDS: Final = 1.0
_READ_SECONDS: Final = 2.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_NOBODY: Final = hashlib.sha256(b"").hexdigest()


class Store(Protocol):
    """Where the records are (engine/storage/tokens.py)."""

    async def add(self, name: str, record: Mapping[str, Any]) -> bool: ...
    async def all(self) -> list[dict[str, Any]]: ...
    async def remove(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token. created, expires: seconds since 1970. digest: SHA-256 of the secret, in hex."""

    id: str
    digest: str
    created: float
    expires: float | None
    principal: Principal

    def holds(self, now: float) -> bool:
        return self.expires is None or now < self.expires

    def shown(self) -> dict[str, Any]:
        """The token as people may see it: all but the digest."""
        who = self.principal
        return {
            "name": who.name,
            "id": self.id,
            "role": who.role,
            "reads": None if who.reads is None else sorted(who.reads),
            "writes": None if who.writes is None else sorted(who.writes),
            "rows": who.rows,
            "rate": who.rate,
            "body_bytes": who.body,
            "created": self.created,
            "expires": self.expires,
            "expired": not self.holds(time.time()),
        }

    def record(self) -> dict[str, Any]:
        return {**self.shown(), "digest": self.digest}

    @classmethod
    def restore(cls, record: Mapping[str, Any]) -> Token:
        """The inverse of `record`."""
        reads, writes = record["reads"], record["writes"]
        principal = Principal(
            record["name"],
            record["role"],
            None if reads is None else frozenset(reads),
            None if writes is None else frozenset(writes),
            record["rows"],
            record["body_bytes"],
            record["rate"],
            record["id"],
        )
        return cls(record["id"], record["digest"], record["created"], record["expires"], principal)


def new_token(
    name: str,
    role: str = "reader",
    reads: Iterable[str] | None = None,
    writes: Iterable[str] | None = None,
    rows: int | None = None,
    rate: float | None = None,
    body: int | None = None,
    seconds: float | None = None,
) -> tuple[Token, str]:
    """A token, and its text, which is nowhere else. seconds: how long it holds; None: until it is revoked.

    Raises:
        InvalidRequestError: something is not of the right form, or the rights contradict the role.
    """
    if not _NAME.fullmatch(name) or name in (LOCAL.name, ANONYMOUS.name):
        raise InvalidRequestError(
            f"{shown(name)} cannot be the name of a token: a name has up to 64 letters, digits, '.', '_', '@' and '-', "
            f"and is neither {LOCAL.name} nor {ANONYMOUS.name}",
            field="name",
        )
    if role not in ROLES:
        raise InvalidRequestError(
            f"the role must be one of {', '.join(ROLES)}, not {shown(role)}", field="role"
        )
    known: Role = role
    if known == "admin" and not (reads is None and writes is None):
        raise InvalidRequestError(
            "an admin can make tokens with all rights, so its own cannot be narrowed to relations; use the role writer",
            field="role",
        )
    if known == "reader" and writes is not None:
        raise InvalidRequestError("a reader changes nothing, so it has no relations to write", field="writes")
    for relation in (*(reads or ()), *(writes or ())):
        check_relation_name(relation)
    for field, number in (("rows", rows), ("rate", rate), ("body_bytes", body), ("seconds", seconds)):
        if number is not None and not 0 < number < 2**53:
            raise InvalidRequestError(f"{field} must be above 0, not {number}", field=field)
    now = time.time()
    id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    principal = Principal(
        name,
        known,
        None if reads is None else frozenset(reads),
        None if writes is None else frozenset(writes),
        rows,
        body,
        rate,
        id_,
    )
    token = Token(id_, _digest(secret), now, None if seconds is None else now + seconds, principal)
    return token, f"{PREFIX}{id_}_{secret}"


async def create(store: Store, token: Token) -> None:
    """Keep a token.

    Raises:
        TokenExistsError: its name is taken.
    """
    name = token.principal.name
    if not await store.add(name, token.record()):
        raise TokenExistsError(
            f"there is a token {shown(name)} already; choose another name, or revoke it first", name=name
        )


async def listed(store: Store) -> list[Token]:
    """All tokens, by name."""
    return sorted(map(Token.restore, await store.all()), key=lambda token: token.principal.name)


async def revoke(store: Store, name: str) -> None:
    """Remove a token.

    Raises:
        UnknownTokenError: there is none of that name.
    """
    if not await store.remove(name):
        raise UnknownTokenError(f"there is no token {shown(name)}", name=name)


class TokenTable:
    """The tokens as they were at most `FRESH_SECONDS` ago; while the storage is away, as they were when it went, since
    then nothing else can be read either."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens: dict[str, Token] | None = None
        self._due = 0.0
        self._reading = asyncio.Lock()

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self._due

    @property
    def has_any(self) -> bool:
        """Whether the database has a token; one that has expired counts, so that its end opens nothing."""
        return bool(self._tokens)

    async def refresh(self) -> None:
        """Read the table again if it is due.

        Raises:
            StorageUnavailableError: it has never been read, and cannot be read now.
        """
        async with self._reading:
            if self.is_fresh:
                return
            began = time.monotonic()
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    self._tokens = {token.id: token for token in await listed(self._store)}
            except (TimeoutError, StorageUnavailableError) as error:
                if self._tokens is None:
                    raise StorageUnavailableError("the tokens of the database cannot be read now") from error
            self._due = began + FRESH_SECONDS

    def forget(self) -> None:
        """Read the table at the next request: this service has just changed it."""
        self._due = 0.0

    def find(self, text: str) -> Principal | None:
        """Whose token a text is; None: nobody's, or it has expired."""
        id_, _, secret = text.removeprefix(PREFIX).partition("_")
        token = (self._tokens or {}).get(id_)
        equal = hmac.compare_digest(_digest(secret), _NOBODY if token is None else token.digest)
        return token.principal if token is not None and equal and token.holds(time.time()) else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
