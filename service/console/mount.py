"""The console as part of the app: who may see its pages, login and logout, and loading it when it is first used.

In: requests under `/console` and for what its pages load, which the guard has let through with the principal of the
session, or with none. Out: NiceGUI's answers, or the login page. Always: without a principal there is nothing but the
login page and the files of NiceGUI; a connection (WebSocket) without one was refused by the guard.

Loading NiceGUI takes two to three seconds of one core and some 75 MB. So it is imported in a thread when somebody opens
the console for the first time: neither the start of the API nor a service that only programs use pays for it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import ZedlogError
from service.access.errors import UnauthorizedError
from service.access.sessions import ROOT, Sessions, cookie_name, is_console, secret_of
from service.console.login import login_page, trouble_page
from service.context import log
from service.principal import ANONYMOUS

LOGIN: Final = f"{ROOT}/login"
LOGOUT: Final = f"{ROOT}/logout"
_FILES: Final = "/_nicegui/"
_PRIVATE_FILES: Final = ("/_nicegui/auto/", "/_nicegui/client/")
_MOST_FORM_BYTES: Final = 64 * 1024


class ConsoleRoute(BaseRoute):
    """The console's addresses, as a route of the app. `path` is its label in the metrics."""

    path: Final = ROOT

    def __init__(self, console: Console) -> None:
        self._console = console

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] in ("http", "websocket") and is_console(scope["path"]):
            return Match.FULL, {"route": self}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._console(scope, receive, send)


class Console:
    """The console of one app. `app` is the app itself, with guard and all: it is what the pages ask."""

    def __init__(self, app: ASGIApp, sessions: Sessions, tls: bool) -> None:
        self._app = app
        self._sessions = sessions
        self._tls = tls
        self._loading: asyncio.Task[ASGIApp] | None = None
        self._stack = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = _with_headers(scope, send)
            answer = await self._answer(scope, receive)
            if answer is not None:
                await answer(scope, receive, send)
                return
        site = await self._site()
        await site({**scope, "zedlog.api": self._app, "zedlog.sessions": self._sessions}, receive, send)

    async def close(self) -> None:
        """End what the pages were doing."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        await self._stack.aclose()
        self._loading = None

    async def _site(self) -> ASGIApp:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        # A visitor who leaves meanwhile does not end it for the others.
        return await asyncio.shield(self._loading)

    async def _load(self) -> ASGIApp:
        started = time.perf_counter()
        site = await asyncio.to_thread(import_module, "service.console.site")
        app: ASGIApp = await self._stack.enter_async_context(site.running())
        # As after the start (service/app.py): the collector need not look at all this again and again.
        gc.freeze()
        log.info("the console was loaded in %.1f s", time.perf_counter() - started)
        return app

    # ---- what is answered without NiceGUI

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        request, path = Request(scope, receive), scope["path"]
        if path == LOGIN:
            return await self._login(request)
        if path == LOGOUT:
            return self._logout(request)
        if path.startswith(_FILES) and not path.startswith(_PRIVATE_FILES):
            return None
        if scope.get("zedlog.principal") != ANONYMOUS:
            return None
        refusal: ZedlogError | None = scope.get("zedlog.refusal")
        if refusal is not None and not isinstance(refusal, UnauthorizedError):
            return HTMLResponse(trouble_page(refusal.code, refusal.message), 503)
        where = path + (f"?{request.url.query}" if request.url.query else "")
        if request.headers.get("sec-fetch-site") == "cross-site":
            # A browser that comes by a link of another site does not send the cookie; on a step from here it does.
            return HTMLResponse(login_page("", where, again=True))
        return RedirectResponse(f"{LOGIN}?next={quote(where, safe='')}", 303)

    async def _login(self, request: Request) -> Response:
        where = _inner(request.query_params.get("next"))
        if request.method in ("GET", "HEAD"):
            if request.scope.get("zedlog.principal") != ANONYMOUS:
                return RedirectResponse(where, 303)
            return HTMLResponse(login_page("", where))
        if request.method != "POST":
            return Response(status_code=405, headers={"Allow": "GET, POST"})
        # Imported here: a service whose console nobody opens has no use for the client.
        from service.console.client import Client, ServiceError
        from service.console.inside import Inside

        form = await _form(request)
        where, token = _inner(form.get("next")), form.get("token", "").strip()
        try:
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                wrong = "This is not a token. Paste all of it, and nothing else."
                raise ServiceError(401, {"code": "unauthorized", "detail": wrong})
            authorization = b"Bearer " + token.encode()
            transport = Inside(self._app, request.scope.get("server"), lambda: authorization)
            async with Client(transport) as client:
                await client.request("GET", "/v1/whoami")
        except ServiceError as error:
            return HTMLResponse(login_page(error.detail, where), error.status)
        old = secret_of(request.headers.get("host", "").encode(), request.headers.get("cookie", "").encode())
        if old is not None:
            self._sessions.close(old)
        return self._with_cookie(request, RedirectResponse(where, 303), self._sessions.open(token))

    def _logout(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405, headers={"Allow": "POST"})
        secret = secret_of(
            request.headers.get("host", "").encode(), request.headers.get("cookie", "").encode()
        )
        if secret is not None:
            self._sessions.close(secret)
        return self._with_cookie(request, RedirectResponse(LOGIN, 303), "")

    def _with_cookie(self, request: Request, answer: Response, secret: str) -> Response:
        answer.set_cookie(
            cookie_name(request.headers.get("host", "").encode()),
            secret,
            max_age=None if secret else 0,
            path="/",
            httponly=True,
            samesite="strict",
            secure=self._tls or request.url.scheme == "https",
        )
        return answer


def _inner(where: str | None) -> str:
    """An address of the console, whatever a link to the login page says."""
    inner = where is not None and (where == ROOT or where.startswith((f"{ROOT}/", f"{ROOT}?")))
    return where if inner and where is not None and where.isprintable() and "\\" not in where else ROOT


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM_BYTES:
            break
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _with_headers(scope: Scope, send: Send) -> Send:
    """Tells the browser to load nothing from elsewhere, and to show a page in no other site's frame."""
    host = Headers(scope=scope).get("host", "")
    policy = "; ".join(
        (
            "default-src 'self'",
            # NiceGUI's pages have scripts in them, and compile templates.
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            f"connect-src 'self' ws://{host} wss://{host}",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=(raw := list(message.get("headers", ()))))
            headers["content-security-policy"] = policy
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "same-origin"
            message = {**message, "headers": raw}
        await send(message)

    return sending


def mount(app: Any, sessions: Sessions, tls: bool) -> Console:
    """Add the console to an app."""
    console = Console(app, sessions, tls)
    app.router.routes.append(ConsoleRoute(console))
    return console
