"""A person at work on Overview, Query and Rules: from an empty database to rows, errors, rules and files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.visitor import WAIT_MS, Visitor
from tests.live import LiveSystem

EDITOR = ".cm-content"
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def empty(live: LiveSystem) -> None:
    """The database without anything in it."""
    with live.client() as client:
        if client.get("/v1/relations").json()["relations"]:
            client.post("/v1/rollback", json={"to": 0}).raise_for_status()
        assert client.get("/v1/relations").json()["relations"] == []


def load(live: LiveSystem, program: str) -> None:
    with live.client(timeout=240) as client:
        client.post("/v1/rules", json={"program": program}).raise_for_status()


def write(page: Page, text: str) -> None:
    page.locator(EDITOR).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def status(page: Page) -> str:
    return page.get_by_role("status").first.inner_text()


@pytest.mark.usefixtures("empty")
def test_from_an_empty_database_to_a_row_that_can_be_explained(visitor: Visitor) -> None:
    page = visitor.go("/")
    assert page.url.endswith("/console")
    expect(page.get_by_text("This database is empty. What next?")).to_be_visible()
    expect(page.get_by_role("link", name="Import a file")).to_have_attribute("href", "/console/data")
    visitor.shot("empty")
    page.get_by_role("button", name="Load the example").click()
    expect(page.get_by_role("cell", name="may_enter", exact=True)).to_be_visible()
    expect(page.get_by_text("bootstrap").or_(page.locator("canvas")).first).to_be_visible()
    visitor.shot("loaded")
    page.get_by_role("link", name='Ask it: may_enter(p, "lab")').click()
    expect(page.locator(".ag-center-cols-container .ag-row")).to_have_count(2)
    page.locator(".ag-row", has_text="ada").click()
    link = page.get_by_role("link", name='may_enter("ada", "lab")')
    expect(link).to_have_attribute("href", "/console/explain?tuple=may_enter%28%22ada%22%2C+%22lab%22%29")
    visitor.shot("row")


@pytest.mark.usefixtures("empty")
def test_an_error_is_marked_where_it_is_and_goes_when_it_is_mended(
    visitor: Visitor, live: LiveSystem
) -> None:
    load(live, 'edge("a", "b").')
    page = visitor.go("/console/query")
    write(page, "edge(x, y),\n edgy(x, y)")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("unknown_relation: line 2, column 2")
    expect(page.locator(".zl-error")).to_have_text("edgy(x, y)")
    visitor.shot("marked")
    write(page, "edge(x, y)")
    expect(page.locator(".zl-error")).to_have_count(0)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 1; these are all")
    assert "q=edge%28x%2C+y%29" in page.url, "the address can be kept"
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 1; these are all")


@pytest.mark.usefixtures("empty")
def test_the_editor_completes_relations(visit: Visit, live: LiveSystem) -> None:
    load(live, '.decl employs(company: symbol, person: symbol)\nemploys("acme", "ada").')
    page = visit().go("/console/query")
    expect(page.get_by_text("employs 1")).to_be_visible()
    # The label comes with the language: what is typed before is not completed.
    expect(page.get_by_role("textbox", name="Query")).to_be_visible()
    page.locator(EDITOR).click()
    page.keyboard.type("emp")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text(
        "employs(company: symbol, person: symbol)"
    )
    # CodeMirror takes an Enter only when its list has been there for a moment, so that nobody chooses by mistake.
    page.wait_for_timeout(500)
    page.keyboard.press("Enter")
    expect(page.locator(EDITOR)).to_have_text("employs(company, person)")


@pytest.mark.usefixtures("empty")
def test_a_million_tuples_do_not_reach_the_page(visit: Visit, live: LiveSystem) -> None:
    facts = " ".join(f"n({i})." for i in range(1000))
    load(live, f"{facts}\nbig(x, y) :- n(x), n(y).\nsmall(x) :- n(x), x < 150.")
    visitor = visit()
    page = visitor.go("/console")
    expect(page.get_by_role("cell", name="1,000,000").first).to_be_visible()
    page = visitor.go("/console/query?q=small(x)")
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 100; more follow")
    few = visitor.elements()
    page = visitor.go("/console/query")
    with visitor.transfer(60_000):
        write(page, "big(x, y)")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("status")).to_contain_text("Rows 1 to 100; more follow")
    assert visitor.elements() < few * 1.5
    expect(page.get_by_text("sorts the rows of this page, not the whole answer")).to_be_visible()
    with visitor.transfer(60_000):
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_role("status")).to_contain_text("Rows 101 to 200; more follow")
    with live.client() as client:
        client.post("/v1/rules", json={"program": "n(5000)."}).raise_for_status()
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 100; more follow - epoch")
    visitor.shot("million")


@pytest.mark.usefixtures("empty")
def test_an_answer_becomes_a_file(visitor: Visitor, live: LiveSystem) -> None:
    load(live, " ".join(f'p({i}, "name {i}").' for i in range(250)))
    page = visitor.go("/console/query?q=p(n,s)")
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 100")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_text("All rows as CSV").click()
    with Path(download.value.path()).open(newline="") as file:
        names, *rows = csv.reader(file)
    assert names == ["n", "s"]
    assert sorted((int(n), s) for n, s in rows) == [(i, f"name {i}") for i in range(250)]


@pytest.mark.usefixtures("empty")
def test_integers_are_exact(visit: Visit, live: LiveSystem) -> None:
    load(live, f"v({2**53 + 1}). v(7). v({-(2**63)}).")
    page = visit().go("/console/query?q=v(x)")
    page.locator(".ag-header-cell", has_text="x").click()
    cells = page.locator(".ag-center-cols-container .ag-row")
    expect(cells.nth(0)).to_be_visible()
    expect(page.locator('.ag-row[row-index="0"]')).to_have_text(str(-(2**63)))
    expect(page.locator('.ag-row[row-index="1"]')).to_have_text("7")
    expect(page.locator('.ag-row[row-index="2"]')).to_have_text(str(2**53 + 1))


@pytest.mark.usefixtures("empty")
def test_an_older_epoch_and_the_history_of_queries(visit: Visit, live: LiveSystem) -> None:
    load(live, 'edge("a", "b").')
    with live.client() as client:
        old = client.get("/v1/relations").json()["epoch"]
    load(live, 'edge("b", "c").')
    page = visit().go("/console/query?q=edge(x,y)")
    expect(page.get_by_role("status")).to_contain_text("Rows 1 to 2")
    page.get_by_label("As of epoch").fill(str(old))
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_contain_text(f"Rows 1 to 1; these are all - epoch {old}")
    page.get_by_role("button", name="History").click()
    expect(page.locator(".q-menu").get_by_text("edge(x,y)")).to_be_visible()


@pytest.mark.usefixtures("empty")
def test_a_rule_is_tried_kept_changed_and_removed(visitor: Visitor, live: LiveSystem) -> None:
    load(live, 'edge("a", "b"). edge("b", "c").')

    def derived() -> int:
        with live.client() as client:
            found = client.get("/v1/relations").json()["relations"]
            return sum(one["counts"]["derived"] for one in found)

    page = visitor.go("/console/rules")
    write(page, "back(y, x) :- edge(x, y).")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Nothing is kept yet.")).to_be_visible()
    expect(page.get_by_text('+ back("b", "a")')).to_be_visible()
    visitor.shot("preview")
    assert derived() == 0
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_text("This is epoch")).to_be_visible()
    expect(page.get_by_role("cell", name="back(y, x) :- edge(x, y).", exact=True)).to_be_visible()
    assert derived() == 2
    page.get_by_role("button", name="Change back(y, x)").click()
    expect(page.locator(EDITOR)).to_have_text("back(y, x) :- edge(x, y).")
    write(page, 'back(y, x) :- edge(x, y), x != "a".')
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text('- back("b", "a")')).to_be_visible()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("cell", name='back(y, x) :- edge(x, y), x != "a".', exact=True)).to_be_visible()
    assert derived() == 1
    page.get_by_role("button", name="Remove back(y, x)").click()
    expect(page.get_by_text('- back("c", "b")')).to_be_visible()
    assert derived() == 1
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_text("There are no rules yet.")).to_be_visible()
    assert derived() == 0
    visitor.shot("removed")


@pytest.mark.usefixtures("empty")
def test_what_was_tried_is_what_is_kept(visit: Visit, live: LiveSystem) -> None:
    """Another text has to be tried first."""
    load(live, 'edge("a", "b").')
    page = visit().go("/console/rules")
    write(page, "one(x) :- edge(x, _).")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("button", name="Keep it")).to_be_visible()
    write(page, "two(x) :- edge(_, x).")
    expect(page.get_by_role("button", name="Keep it")).to_be_hidden()


@pytest.mark.usefixtures("empty")
def test_constraints_and_what_they_found(visitor: Visitor, live: LiveSystem) -> None:
    load(live, '.decl loop(x: symbol) constraint\nloop(x) :- edge(x, x).\nedge("a", "b").')
    page = visitor.go("/console/rules")
    expect(page.get_by_text("holds: the relation is empty, as it must be")).to_be_visible()
    write(page, "edge(y, x) :- edge(x, y).\nedge(x, z) :- edge(x, y), edge(y, z).")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("loop is a constraint and must stay empty")
    with live.client() as client:
        assert client.post("/v1/rules", json={"program": 'edge("z", "z").'}).status_code == 409
    page.reload()
    expect(page.get_by_text('it would hold loop("z")').first).to_be_visible()
    visitor.shot("constraints")


def test_keys_and_colours(visit: Visit) -> None:
    page = visit().go("/console")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/console/query")
    page.wait_for_function("() => window.did_handshake")
    page.get_by_role("button", name="Light or dark").click()
    page.get_by_role("button", name="Light or dark").click()
    page.wait_for_function("() => document.body.classList.contains('body--dark')")
    page.wait_for_function("() => document.cookie.includes('zedlog_theme=dark')")
    page.reload()
    page.wait_for_function("() => document.body.classList.contains('body--dark')")


def test_a_phone_has_the_navigation_behind_a_button(visit: Visit) -> None:
    page = visit("phone").go("/console")
    expect(page.get_by_role("link", name="Rules")).not_to_be_in_viewport()
    page.get_by_role("button", name="Navigation").click()
    page.get_by_role("link", name="Rules").click()
    page.wait_for_url("**/console/rules")


def test_the_page_of_the_api(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/docs#getHealth")
    call = page.locator("#getHealth")
    call.get_by_role("button", name="Send").click()
    expect(call.locator("output")).to_contain_text('"status": "ok"')
    visitor.shot("docs")
