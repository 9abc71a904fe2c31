"""A person at the console: one page of the browser at one size, and all that went wrong while it was open.

Always: a request to another host, an error in the browser's console, an exception in the page and a crash are noted,
whoever caused them; `conftest.py` fails the test for each of them. Screenshots are files of the run, in SHOTS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, WebSocket

SHOTS = Path(__file__).resolve().parent.parent.parent / ".screenshots"
Size = Literal["desktop", "phone"]
SIZES: tuple[Size, ...] = ("desktop", "phone")
_VIEWS: dict[Size, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1366, "height": 768}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
_LOCAL_SCHEMES = ("data", "blob", "about")
WAIT_MS = 90_000
"""What is waited for on a page; only a failure waits so long."""
_WIDTH = "() => Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"


class Visitor:
    """`page` is Playwright's; `faults` says in words what must not happen and has happened."""

    def __init__(self, browser: Browser, url: str, size: Size, name: str) -> None:
        self.size, self.url = size, url
        self.faults: list[str] = []
        self.received = 0
        self.name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        self._context = browser.new_context(
            base_url=url, accept_downloads=True, reduced_motion="reduce", **_VIEWS[size]
        )
        self._context.set_default_timeout(WAIT_MS)
        self._context.on("request", self._on_request)
        self._context.on("console", self._on_console)
        self._context.on(
            "weberror", lambda error: self.faults.append(f"an exception in the page: {error.error}")
        )
        self._context.on("page", self._watch)
        self.page: Page = self._context.new_page()

    def _watch(self, page: Page) -> None:
        page.on("crash", lambda _: self.faults.append("the page crashed"))
        page.on("websocket", self._on_websocket)

    def _on_request(self, request: Request) -> None:
        self._check(request.url)

    def _on_websocket(self, socket: WebSocket) -> None:
        self._check(socket.url)
        socket.on("framereceived", lambda payload: self._count(len(payload)))

    def _count(self, size: int) -> None:
        self.received += size

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _LOCAL_SCHEMES and parts.netloc != urlsplit(self.url).netloc:
            self.faults.append(f"a request to another host: {url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            where = message.location
            self.faults.append(
                f"an error in the console: {message.text} ({where['url']}:{where['lineNumber']})"
            )

    def go(self, path: str) -> Page:
        """Open an address of the console; the page is there, and its connection to the service too."""
        self.page.goto(path)
        self.page.wait_for_function("() => window.did_handshake")
        return self.page

    def shot(self, what: str) -> None:
        """A screenshot, and the check that nothing makes the page wider than the screen."""
        self.page.screenshot(path=SHOTS / f"{self.name}-{self.size}-{what}.png", full_page=True)
        wide, most = self.page.evaluate(_WIDTH), _VIEWS[self.size]["viewport"]["width"]
        assert wide <= most, f"{self.page.url} is {wide} pixels wide on a screen of {most}"

    def elements(self) -> int:
        """How many elements the page has."""
        return int(self.page.evaluate("() => document.getElementsByTagName('*').length"))

    @contextmanager
    def transfer(self, most: int) -> Iterator[None]:
        """What is done in the block makes the service send at most this many bytes over the page's connection."""
        before = self.received
        yield
        sent = self.received - before
        assert sent <= most, (
            f"{sent} bytes were sent to {self.page.url}, of which {most} were expected at most"
        )

    def close(self) -> None:
        self._context.close()
