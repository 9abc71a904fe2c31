"""A relation of a million tuples does not slow a page: what a page is sent, and how much is on it, does not grow with
the relation. These are bounds on bytes and elements, not on times."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.visitor import WAIT_MS
from tests.live import LiveSystem

SIDE = 1_000
BYTES = 400_000
ELEMENTS = 4_000


@pytest.fixture(scope="module")
def large(live: LiveSystem) -> Iterator[httpx.Client]:
    """pair(x, y) of all numbers below a thousand."""
    body = {
        "facts": [{"relation": "n", "tuples": [[number] for number in range(SIDE)]}],
        "rules": [{"rule": "pair(x, y) :- n(x), n(y)."}],
    }
    with live.client(timeout=300) as client:
        assert client.post("/v1/transactions", json=body).json()["changes"]["pair"]["inserted"] == SIDE**2
        yield client


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/console", "1,000,000"),
        ("/console/query?q=pair(x, y)", "Rows 1 to 100; more follow"),
        ("/console/rules", "1,000,000"),
        ("/console/circuit", "2 strata, 1 rules"),
        ("/console/explain?tuple=pair(17, 4)", "pair(17,4) holds"),
        ("/console/changes?relation=pair&after=0", "1 epoch with changes"),
        ("/console/data", "Export"),
    ],
)
def test_a_page_is_as_small_as_with_few_tuples(
    visit: Visit, large: httpx.Client, path: str, shown: str
) -> None:
    me = visit("desktop")
    with me.transfer(BYTES):
        page = me.go(path)
        if "changes" in path:
            # An epoch of a million changes is more than one event may have, and the page says so.
            expect(page.get_by_text("change_too_large")).to_be_visible(timeout=WAIT_MS)
            large.post("/v1/facts", json={"relation": "n", "tuples": [[SIDE]]})
            page.get_by_label("After epoch").fill("1")
            page.get_by_role("button", name="Start").click()
        expect(page.get_by_text(shown).first).to_be_visible(timeout=WAIT_MS)
    assert me.elements() <= ELEMENTS
    me.shot(path.partition("?")[0].rpartition("/")[2])
