"""Which role a call needs: its route says so in the API's description, as `x-zedlog-role`, and the guard asks here.

Always: an app cannot be made of a route that says nothing; so a new call is either decided or not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute

from service.principal import ROLES, Role

KEY: Final = "x-zedlog-role"
PUBLIC: Final[Literal["public"]] = "public"
"""Needs no token: says nothing of what the database holds, or only what a health check needs."""

# The pages that describe the calls and nothing else.
_PAGES: Final = ("/", "/openapi.json", "/docs")


Known = Role | Literal["public"]
_STRICTNESS: Final = (PUBLIC, *ROLES)


def needs(role: Known) -> dict[str, Any]:
    """The part of `openapi_extra` that decides about a call."""
    return {KEY: role}


class Decisions:
    """The roles of all calls, found before a request is routed: no kind of route can forget to ask.

    Cost: one look for a path without parameters, a regular expression for each other path for the rest.
    """

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        """Raises:
        RuntimeError: a route does not say which role it needs, or is of a kind that cannot say it.
        """
        self._exact: dict[str, dict[str, Known]] = {page: {"GET": PUBLIC, "HEAD": PUBLIC} for page in _PAGES}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Known]]] = []
        for route in (route for router in routers for route in router.routes):
            role = (route.openapi_extra or {}).get(KEY) if isinstance(route, APIRoute) else None
            if role not in (*ROLES, PUBLIC):
                raise RuntimeError(
                    f"the route {getattr(route, 'path', route)} does not say who may call it; give it openapi_extra="
                    'needs("reader"), "writer", "admin" or "public" (service/access/roles.py)'
                )
            assert isinstance(route, APIRoute)
            methods: dict[str, Known] = dict.fromkeys(route.methods or (), cast(Known, role))
            if route.param_convertors:
                self._patterns.append((route.path_regex, methods))
            else:
                self._exact.setdefault(route.path, {}).update(methods)
        for where in (*self._exact.values(), *(methods for _, methods in self._patterns)):
            if len({role == PUBLIC for role in where.values()}) > 1:
                raise RuntimeError(
                    "a path has public calls and others; a path is public as a whole, or not at all"
                )

    def of(self, method: str, path: str) -> Known | None:
        """The role that the call needs; None: there is no such call. Where several routes fit, the strictest counts."""
        found = [methods for methods in (self._exact.get(path),) if methods]
        found += [methods for pattern, methods in self._patterns if pattern.match(path)] if not found else []
        roles = [methods[method] for methods in found if method in methods]
        return max(roles, key=_STRICTNESS.index, default=None)

    def is_public(self, path: str) -> bool:
        """Whether a path needs no token."""
        found = self._exact.get(path)
        known = [found] if found else [methods for pattern, methods in self._patterns if pattern.match(path)]
        return bool(known) and all(role == PUBLIC for methods in known for role in methods.values())
