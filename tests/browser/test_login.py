"""A person logs in with a token, sees what the token allows, and logs out. The service asks for tokens as soon as there
is one."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.visitor import WAIT_MS, Visitor
from tests.live import LiveSystem

expect.set_options(timeout=WAIT_MS)
QUERY = "/console/query?q=edge(x,y)"


@pytest.fixture(scope="module")
def tokens(live: LiveSystem) -> Iterator[dict[str, str]]:
    """By name: root, who may do all, and ann, who may read edge."""
    with live.client(timeout=240) as client:
        program = 'edge("a", "b"). salary("ada", 7).'
        client.post("/v1/rules", json={"program": program}).raise_for_status()
        secrets = {"root": made(client, {"name": "root", "role": "admin"})}
        client.headers["authorization"] = f"Bearer {secrets['root']}"
        secrets["ann"] = made(client, {"name": "ann", "role": "reader", "reads": ["edge"]})
        yield secrets


def made(client: httpx.Client, body: dict[str, object]) -> str:
    answer = client.post("/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def login(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Log in").click()


def logout(me: Visitor, name: str) -> None:
    me.page.wait_for_function("() => window.did_handshake")
    me.page.get_by_role("button", name=name, exact=True).click()
    me.shot(f"menu-{name}")
    me.page.get_by_role("button", name="Log out").click()
    me.page.wait_for_url("**/console/login")


def test_a_person_logs_in_and_out(visitor: Visitor, tokens: dict[str, str]) -> None:
    page = visitor.page
    page.goto(QUERY)
    page.wait_for_url("**/console/login?next=*")
    visitor.shot("asked")
    login(page, tokens["root"][:-1])
    expect(page.get_by_role("alert")).to_be_visible()
    # The browser tells of a refusal, and of nothing else.
    assert [("401" in fault) for fault in visitor.faults] == [True] * len(visitor.faults)
    visitor.faults.clear()
    assert tokens["root"][:-1] not in page.content()
    login(page, tokens["root"])
    # They are where they wanted to go.
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 1; these are all")
    assert page.url.endswith("?q=edge%28x%2Cy%29")
    assert tokens["root"] not in page.content()
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 1; these are all")
    logout(visitor, "root")
    for path in ("/console", "/console/admin", QUERY):
        page.goto(path)
        expect(page.get_by_label("Access token")).to_be_visible()
        assert "edge" not in page.inner_text("body")
    # The way back in the browser does not show it either.
    page.go_back()
    expect(page.get_by_label("Access token")).to_be_visible()


def test_two_persons_see_what_each_may(visit: Visit, tokens: dict[str, str]) -> None:
    root, ann = visit(), visit("phone")
    for me, name in ((root, "root"), (ann, "ann")):
        me.page.goto("/console")
        login(me.page, tokens[name])
        expect(me.page.get_by_role("link", name="edge", exact=True)).to_be_visible()
        me.shot(name)
    expect(root.page.get_by_role("link", name="salary", exact=True)).to_be_visible()
    assert "salary" not in ann.page.inner_text("body")
    ann.page.goto("/console/query?q=salary(x,y)")
    expect(ann.page.get_by_role("alert")).to_contain_text("forbidden")
    assert "ada" not in ann.page.inner_text("body")
    logout(ann, "ann")
    # Only of the one who has logged out the session ends.
    root.page.reload()
    expect(root.page.get_by_role("link", name="salary", exact=True)).to_be_visible()
