"""Fixtures of the tests in a real browser: the browser, and visitors of a running system (`live`, an empty database for
each module).

Without a browser they are skipped. CI names the browser in ZEDLOG_BROWSER, so that there they cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import ARGUMENTS, VARIABLE, executable
from tests.browser.visitor import SHOTS, SIZES, Size, Visitor
from tests.live import LiveSystem

Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module: Playwright's event loop stays the thread's as long as it runs, and other tests need their
    own."""
    path = executable()
    if path is None:
        pytest.skip(
            f"there is no chromium and no google-chrome here: run scripts/browser, or name one with {VARIABLE}"
        )
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> Size:
    """A laptop's screen, and a phone's."""
    found: Size = request.param
    return found


@pytest.fixture
def visit(browser: Browser, live: LiveSystem, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """`visit(size)` opens a browser window on the console. At the end of the test nothing may have gone wrong in any
    of them."""
    visitors: list[Visitor] = []

    def opened(size: Size = "desktop") -> Visitor:
        visitors.append(Visitor(browser, live.url, size, request.node.originalname))
        return visitors[-1]

    yield opened
    for number, visitor in enumerate(visitors, 1):
        visitor.page.screenshot(path=SHOTS / f"{visitor.name}-{visitor.size}-at-the-end-{number}.png")
        visitor.close()
    faults = [fault for visitor in visitors for fault in visitor.faults]
    assert not faults, "\n".join([*faults, live.logs()])


@pytest.fixture
def visitor(visit: Visit, size: Size) -> Visitor:
    """One window, at each size."""
    return visit(size)
