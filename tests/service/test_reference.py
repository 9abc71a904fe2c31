"""`/docs`: every call is on it, and it loads nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import orjson

from service.openapi import rendered
from service.reference import rendered as page
from tests.service.conftest import Http

DESCRIPTION = orjson.loads(rendered())


class Seen(HTMLParser):
    """The addresses that a page loads, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(given[name]) for name in ("src", "srcset", "data") if name in given]
        self.loads += [str(given["href"])] if tag == "link" else []
        self.ids += [str(given["id"])] if "id" in given else []
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def test_every_call_is_there_and_nothing_is_loaded(http: Http) -> None:
    answer = http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    seen = Seen()
    seen.feed(answer.text)
    assert seen.open == []
    assert seen.loads == []
    calls = {one["operationId"] for methods in DESCRIPTION["paths"].values() for one in methods.values()}
    assert calls <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert not re.search(r"@import|url\(", answer.text)


def test_what_the_description_says_is_text() -> None:
    call = {
        "operationId": "x",
        "summary": "<script>",
        "tags": ["t"],
        "responses": {"200": {"description": "<b>"}},
    }
    description = {
        "info": {"version": "1", "description": "`a<b`"},
        "tags": [{"name": "t", "description": "d"}],
        "paths": {"/x": {"get": {**call, "x-zedlog-role": "reader", "description": "<i>"}}},
        "components": {"schemas": {}},
    }
    found = page(description)
    for markup in ("<script>\n", "<b>", "<i>"):
        assert markup not in found.partition("<main>")[2].partition("</main>")[0].replace("<b>reader</b>", "")
    assert "<code>a&lt;b</code>" in found
