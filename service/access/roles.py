"""Which role a call needs: its route says so in the API's description, as `x-zedlog-role`, and here it is enforced.

Always: an app cannot be made of a route that says nothing; so a new call is either decided or not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute

from service.principal import ROLES, Role, principal_of

KEY: Final = "x-zedlog-role"
PUBLIC: Final = "public"
"""Needs no token: says nothing of what the database holds, or only what a health check needs."""

# FastAPI's own pages, which describe the calls and nothing else.
_PAGES: Final = ("/", "/openapi.json", "/docs", "/docs/oauth2-redirect")


def needs(role: Role | Literal["public"]) -> dict[str, Any]:
    """The part of `openapi_extra` that decides about a call."""
    return {KEY: role}


async def enough_role(request: Request) -> None:
    """Raise ForbiddenError unless the principal has the role that the request's route names."""
    role = request.scope["route"].openapi_extra[KEY]
    if role != PUBLIC:
        principal_of(request).check_role(role)


def decided(routers: Iterable[APIRouter]) -> Callable[[str], bool]:
    """Whether a path can be reached without a token.

    Raises:
        RuntimeError: a route does not say which role it needs, or is of a kind that cannot say it.
    """
    exact, patterns = set(_PAGES), []
    for router in routers:
        for route in router.routes:
            role = (route.openapi_extra or {}).get(KEY) if isinstance(route, APIRoute) else None
            if role not in (*ROLES, PUBLIC):
                raise RuntimeError(
                    f"the route {getattr(route, 'path', route)} does not say who may call it; give it openapi_extra="
                    f'needs("reader"), "writer", "admin" or "public" (service/access/roles.py)'
                )
            assert isinstance(route, APIRoute)
            if role != PUBLIC:
                continue
            if route.param_convertors:
                patterns.append(route.path_regex)
            else:
                exact.add(route.path)

    def is_public(path: str) -> bool:
        return path in exact or any(pattern.match(path) for pattern in patterns)

    _check_apart(routers, is_public)
    return is_public


def _check_apart(routers: Iterable[APIRouter], is_public: Callable[[str], bool]) -> None:
    """Paths are public or not as a whole, whatever the method."""
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            plain = re.sub(r"\{[^}]*\}", "x", route.path)
            if is_public(plain) and (route.openapi_extra or {})[KEY] != PUBLIC:
                raise RuntimeError(
                    f"the path {route.path} has a public call, so its other calls must be public too"
                )
