"""What the tests of the console rely on: a visitor notices what must not happen, whatever causes it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.visitor import Size, Visitor

URL = "http://127.0.0.1:9"


def faults(browser: Browser, html: str, size: Size = "desktop") -> list[str]:
    visitor = Visitor(browser, URL, size, "test")
    visitor.page.set_content(html)
    # A timer of the page runs after all that was there before it.
    visitor.page.evaluate("() => new Promise(done => setTimeout(done, 50))")
    visitor.close()
    return visitor.faults


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<img src='http://cdn.example/x.png'>", "a request to another host: http://cdn.example/x.png"),
        (
            "<link rel=stylesheet href='http://cdn.example/x.css'>",
            "a request to another host: http://cdn.example",
        ),
        (
            "<script>fetch('http://127.0.0.1:10/x').catch(() => 0)</script>",
            "a request to another host: http://127",
        ),
        (
            "<script>new WebSocket('ws://cdn.example/x')</script>",
            "a request to another host: ws://cdn.example/x",
        ),
        ("<script>console.error('broken')</script>", "an error in the console: broken"),
        (
            "<script>setTimeout(() => { throw new Error('thrown') })</script>",
            "an exception in the page: thrown",
        ),
        (
            "<script>Promise.reject(new Error('nobody waits'))</script>",
            "an exception in the page: nobody waits",
        ),
    ],
)
def test_what_goes_wrong_is_noted(browser: Browser, html: str, expected: str) -> None:
    assert any(fault.startswith(expected) for fault in faults(browser, html))


def test_a_good_page_has_no_faults(browser: Browser, size: Size) -> None:
    image = "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>"
    assert (
        faults(browser, f"<p>text</p>{image}<script>console.log('fine'); console.warn('fine')</script>", size)
        == []
    )


@pytest.mark.parametrize(("width", "fits"), [(390, True), (800, False)])
def test_a_page_that_is_too_wide_is_noticed(browser: Browser, width: int, fits: bool) -> None:
    visitor = Visitor(browser, URL, "phone", "test_visitor")
    head = "<!doctype html><meta name=viewport content='width=device-width, initial-scale=1'>"
    visitor.page.set_content(f"{head}<body style='margin: 0'><div style='width: {width}px'>wide</div>")
    if fits:
        visitor.shot("fits")
    else:
        with pytest.raises(AssertionError, match="800 pixels wide on a screen of 390"):
            visitor.shot("wide")
    visitor.close()
