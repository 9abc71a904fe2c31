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
        ("/console/circuit", "1,000,000"),
        ("/console/explain?tuple=pair(17, 4)", "pair(17,4) holds"),
        ("/console/explain?tuple=pair(17, 4)&mode=ways", "pair(17,4) holds"),
        ("/console/changes?relation=pair&after=0", "1 epoch with changes"),
        ("/console/data", "Export"),
        ("/console/admin", "Start an audit"),
    ],
)
def test_a_page_is_as_small_as_with_few_tuples(
    visit: Visit, large: httpx.Client, path: str, shown: str
) -> None:
    me = visit("desktop")
    with me.transfer(BYTES):
        page = me.go(path)
        if "circuit" in path:
            page.get_by_text("pair (not recursive)").first.click()
        expect(page.get_by_text(shown).first).to_be_visible(timeout=WAIT_MS)
    assert me.received > 0, "nothing was counted"
    assert me.elements() <= ELEMENTS
    me.shot(path.partition("?")[0].rpartition("/")[2])


def test_what_comes_after_a_change_of_a_million_is_shown(visit: Visit, large: httpx.Client) -> None:
    me = visit("desktop")
    page = me.go("/console/changes?relation=pair")
    with me.transfer(BYTES):
        # A thousand pairs come, twice; the page shows some of them.
        for weight in (1, -1):
            fact = {"relation": "n", "tuples": [[SIDE]], "weight": weight}
            large.post("/v1/facts", json=fact).raise_for_status()
        expect(page.get_by_text("2 epochs with changes")).to_be_visible(timeout=WAIT_MS)
    assert me.elements() <= ELEMENTS
