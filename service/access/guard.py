"""The one middleware that every request passes: who makes it, from where, how often; and the line in the access log.

In: any request. Out: `scope["zedlog.principal"]`, or a problem document: 401 without a valid token, 403 for a foreign
Host or Origin, 413 and 429 beyond the principal's limits. Always: without a principal, only the calls that the API's
description marks `public`, and the console's login, are reached; this does not depend on the handlers, so a forgotten
one stays closed.

A browser lets any page send requests to a service on the user's own machine. So, with and without tokens:

- The Host must be a name of this service. A page whose own name was made to point here (DNS rebinding) has another one.
- What may change something must not come from a page of another origin: `Origin` or `Sec-Fetch-Site` say so. Nor may a
  connection (WebSocket), which only the console has; without a principal it is refused.
- Pages of other origins can read answers only if their origin is configured (CORS).

It is plain ASGI: a request costs some ten microseconds, most of them for its line in the log.
"""

from __future__ import annotations

import logging
import re
import secrets
import socket
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import orjson
from fastapi import Request
from starlette._utils import get_route_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import StorageUnavailableError, ZedlogError, shown
from service.access.errors import (
    HostNotAllowedError,
    OriginNotAllowedError,
    ProviderUnavailableError,
    RateLimitedError,
    UnauthorizedError,
)
from service.access.limits import RateLimits, limited
from service.access.openid import Provider
from service.access.roles import PUBLIC, Decisions
from service.access.sessions import Sessions, is_console
from service.access.settings import AccessSettings, address_of, is_loopback
from service.access.tokens import TokenTable
from service.principal import ANONYMOUS, LOCAL, ForbiddenError, Principal
from service.problems import respond_error

access_log = logging.getLogger("zedlog.access")

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
_ALIVE: Final = "/healthz"
_METRICS: Final = "/metrics"
_PREFLIGHT_SECONDS: Final = b"600"
_CORS_HEADERS: Final = b"Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id"
_CORS_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = (
    b"Idempotency-Replayed, Location, Retry-After, X-Request-Id, Zedlog-Cursor, Zedlog-Epoch, Zedlog-Token"
)
_READ: Final = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"authorization", b"x-request-id", b"content-length", b"cookie"}
)


class Guard:
    """The middleware."""

    def __init__(
        self,
        app: ASGIApp,
        settings: AccessSettings,
        tokens: TokenTable,
        provider: Provider | None,
        decisions: Decisions,
        sessions: Sessions | None = None,
    ) -> None:
        """sessions: of the console; None: there is no console."""
        self.app = app
        self._settings = settings
        self._tokens = tokens
        self._provider = provider
        self._decisions = decisions
        self._sessions = sessions
        self._limits = RateLimits(settings.token_rate)
        self._hosts = settings.allowed_hosts | {settings.host.lower().strip("[]"), "localhost"}
        if settings.insecure:
            self._hosts |= {socket.gethostname().lower()}
        self._checks_hosts = bool(settings.allowed_hosts) or settings.is_local or settings.insecure
        # Whether an address at which a request arrived can be reached by other machines.
        self._remote: dict[str, bool] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._connect(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name: value for name, value in scope["headers"] if name in _READ}
        request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = secrets.token_hex(8).encode()
        added = [(b"x-request-id", request_id)]
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        principal = ANONYMOUS
        scope["zedlog.principal"] = ANONYMOUS
        scope["zedlog.request_id"] = request_id.decode()
        try:
            try:
                self._check_host(headers.get(b"host"))
                added += self._check_origin(scope["method"], headers)
                if scope["method"] == "OPTIONS" and _is_preflight(scope):
                    await _preflight(answer)
                    return
                console = self._is_console(scope)
                authorization = headers.get(b"authorization")
                if console:
                    authorization = authorization or self._session(headers)
                principal = scope["zedlog.principal"] = await self._identify(scope, authorization)
                scope["zedlog.identify"] = partial(self._identify, scope, authorization)
                if not console:
                    # What a page of the console asks the API for is counted; what draws the page is not.
                    self._limits.take(principal)
                role = self._decisions.of(scope["method"], get_route_path(scope))
                if role is not None and role != PUBLIC:
                    principal.check_role(role)
                receive = limited(receive, principal, headers.get(b"content-length", b""))
            except ZedlogError as error:
                await _refuse(error, scope, receive, answer)
                return
            await self.app(scope, receive, answer)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                line = _line(scope, principal, status, started)
                # As `access_log.info`, but without a search for the place in the code, which takes half of the time.
                access_log.handle(logging.LogRecord(access_log.name, logging.INFO, "", 0, line, None, None))

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket. Only the console has them. A page of any origin may open one, and browsers send cookies with it;
        so the origin has to be this service itself."""
        headers = {name: value for name, value in scope["headers"] if name in _READ}
        try:
            if not self._is_console(scope):
                raise UnauthorizedError("there are no calls over WebSockets")
            self._check_host(headers.get(b"host"))
            if not _is_own(headers):
                raise OriginNotAllowedError("a page of another site opened this connection")
            authorization = headers.get(b"authorization") or self._session(headers)
            principal = await self._authenticate(scope, authorization, False)
        except ZedlogError:
            await send({"type": "websocket.close", "code": 1008})
            return
        scope["zedlog.principal"] = principal
        await self.app(scope, receive, send)

    def _is_console(self, scope: Scope) -> bool:
        return self._sessions is not None and is_console(get_route_path(scope))

    def _session(self, headers: dict[bytes, bytes]) -> bytes | None:
        """The header Authorization that the cookie of a browser stands for."""
        if self._sessions is None:
            return None
        return self._sessions.authorization(headers.get(b"host"), headers.get(b"cookie"))

    # ---- where a request comes from

    def _check_host(self, header: bytes | None) -> None:
        # Every browser sends one, and so does every client of HTTP/1.1. Where tokens are asked for on other addresses,
        # the names are known to the operator only, and a page of another name has no token.
        if header is None or not self._checks_hosts:
            return
        name = _name_of(header.decode("latin-1").lower())
        if name in self._hosts or name.endswith(".localhost") or address_of(name) is not None:
            return
        raise HostNotAllowedError(
            f"this service is not called {shown(name)}; if it is to be reached under that name, start it with "
            f"--allowed-hosts {name}",
            host=name,
        )

    def _check_origin(self, method: str, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """The headers that let the page of an allowed origin read the answer."""
        settings = self._settings
        vary = [(b"vary", b"Origin")] if settings.allowed_origins else []
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin and origin in settings.allowed_origins:
            return [
                *vary,
                (b"access-control-allow-origin", headers[b"origin"]),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        if method not in _SAFE_METHODS and not _is_own(headers):
            raise OriginNotAllowedError(
                f"a page of {shown(origin or 'another site')} sent this request, and only pages of this service, or of "
                "origins given with --allowed-origins, may do that",
                origin=origin or None,
            )
        return vary

    # ---- whose it is

    async def _identify(self, scope: Scope, authorization: bytes | None) -> Principal:
        path = get_route_path(scope)
        if path == _ALIVE:
            # It says that the process is alive, whatever has become of the storage.
            return ANONYMOUS
        public = self._is_console(scope) or self._decisions.is_public(path)
        try:
            return await self._authenticate(scope, authorization, public)
        except (
            UnauthorizedError,
            ForbiddenError,
            StorageUnavailableError,
            ProviderUnavailableError,
        ) as error:
            missing = isinstance(error, StorageUnavailableError)
            # The metrics say that the storage is away; that must not depend on it.
            scope["zedlog.refusal"] = error
            if public or (missing and path == _METRICS and not self._settings.asks_always):
                return ANONYMOUS
            raise

    async def _authenticate(self, scope: Scope, authorization: bytes | None, public: bool) -> Principal:
        if not self._tokens.is_fresh:
            await self._tokens.refresh()
        if authorization is not None:
            scheme, _, text = authorization.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise UnauthorizedError('the header Authorization must be "Bearer TOKEN"')
            text = text.strip()
            if self._provider is not None and text.count(".") == 2:
                return await self._provider.principal(text)
            found = self._tokens.find(text)
            if found is None:
                raise UnauthorizedError(
                    "the token is not known here: it is wrong, was revoked, or has expired"
                )
            return found
        if not self._asks(scope.get("server")):
            return LOCAL
        if public:
            return ANONYMOUS
        raise UnauthorizedError(
            'this service asks for a token: send the header "Authorization: Bearer TOKEN". '
            "`zedlog token create` makes one"
        )

    def _asks(self, server: Any) -> bool:
        """Whether a request needs a token that arrived at this address, (host, port)."""
        settings = self._settings
        if settings.insecure:
            return False
        if settings.asks_always or self._tokens.has_any:
            return True
        # Whatever the settings say: a server that was started on another address must not be open by mistake.
        host = server[0] if server else ""
        remote = self._remote.get(host)
        if remote is None:
            remote = self._remote[host] = address_of(host) is not None and not is_loopback(host)
        return remote


def _is_own(headers: dict[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this service, or from no page."""
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    own = not origin or origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1").lower()
    return own and headers.get(b"sec-fetch-site", b"") in (b"", b"same-origin", b"none")


def _name_of(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        address, closed, _ = host[1:].partition("]")
        return address if closed else ""
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_preflight(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"origin" in names and b"access-control-request-method" in names


async def _preflight(send: Send) -> None:
    """A browser's question whether a page may send a request. Without the headers of an allowed origin, which are added
    to every answer, this says no.
    """
    headers = [
        (b"access-control-allow-methods", _CORS_METHODS),
        (b"access-control-allow-headers", _CORS_HEADERS),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(error: ZedlogError, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {}
    if isinstance(error, UnauthorizedError):
        # What the challenge says of an error tells a client to get another token (RFC 6750, section 3.1).
        given = any(name == b"authorization" for name, _ in scope["headers"])
        headers["WWW-Authenticate"] = 'Bearer realm="zedlog"' + (', error="invalid_token"' if given else "")
    if isinstance(error, RateLimitedError):
        headers["Retry-After"] = str(error.detail["retry_after"])
    await respond_error(error, Request(scope, receive), headers)(scope, receive, send)


def _line(scope: Scope, principal: Principal, status: int, started: float) -> str:
    return orjson.dumps(
        {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request": scope["zedlog.request_id"],
            "principal": principal.name,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round((time.perf_counter() - started) * 1000, 3),
        }
    ).decode()
