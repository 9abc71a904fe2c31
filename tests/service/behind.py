"""An app that is called by principals for whom there is no token."""

from __future__ import annotations

from typing import Any

from starlette.middleware import Middleware

from service.principal import Principal


class As:
    """The app, for whichever principal `now` is: behind the guard, which decides who makes a request."""

    def __init__(self, app: Any, now: Principal) -> None:
        self.app, self.now = app, now
        app.user_middleware.append(Middleware(_Behind, who=self))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


class _Behind:
    def __init__(self, app: Any, who: As) -> None:
        self._app, self._who = app, who

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["zedlog.principal"] = self._who.now
        await self._app(scope, receive, send)
