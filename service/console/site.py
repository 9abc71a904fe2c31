"""The pages of the console, and NiceGUI under them. Importing this module imports NiceGUI; mount.py does it when the
console is first used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from nicegui import ui
from nicegui.client import Client as Tab
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from service.console.client import ServiceError
from service.console.downloads import BACKUP, backup
from service.console.export import export
from service.console.frame import surround, theme_of
from service.console.here import Here, Page, address, client_of, person_of
from service.console.login import trouble_page
from service.console.pages import admin, changes, circuit, data, explain, overview, query, rules

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    query.PAGE,
    rules.PAGE,
    circuit.PAGE,
    explain.PAGE,
    changes.PAGE,
    data.PAGE,
    admin.PAGE,
)
"""In the order of the navigation."""

_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1f5fa8"/>'
    '<path d="M9 9h14L10 23h13" fill="none" stroke="#fff" stroke-width="3.4" stroke-linejoin="round" '
    'stroke-linecap="round"/></svg>'
)
# A page waits for the API before it is sent only to learn who opens it.
_PAGE_SECONDS: Final = 30.0
# A browser that was away for this long finds its page as it was.
_RECONNECT_SECONDS: Final = 15.0


@asynccontextmanager
async def running() -> AsyncIterator[ASGIApp]:
    """NiceGUI with all pages, until the end of the block. NiceGUI is one for the whole process."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_route("/console/export", export)
    app.add_route(BACKUP, backup)
    for page in PAGES:
        _register(page)
    ui.run_with(
        app,
        title="Zedlog",
        favicon=_ICON,
        dark=None,
        language="en-US",
        reconnect_timeout=_RECONNECT_SECONDS,
        binding_refresh_interval=0.5,
        show_welcome_message=False,
    )
    async with app.router.lifespan_context(app):
        yield app


def _register(page: Page) -> None:
    async def opened(request: Request, client: Tab) -> Response | None:
        access = client_of(request)
        client.on_delete(access.close)
        try:
            person = await person_of(request, access)
        except ServiceError as error:
            if error.status == 401:
                where = address(page.path, **dict(request.query_params))
                return RedirectResponse(address("/console/login", next=where), 303)
            return HTMLResponse(trouble_page(error.code, error.detail), 503)
        here = Here(page, access, person, client, dict(request.query_params))
        surround(here, PAGES, theme_of(request.cookies))
        await page.build(here)
        return None

    ui.page(page.path, title=f"{page.title} - Zedlog", response_timeout=_PAGE_SECONDS)(opened)
