"""Ten stories of a person at the console, one after the other: from an empty database to an explained, exported result.

Each size of screen has a system of its own, and each story goes on where the one before it ended, so a story alone
(`-k story_7`) needs those before it. The database of the stories is the example of the page Overview.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.visitor import SIZES, WAIT_MS, Size, Visitor
from tests.live import LiveSystem

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module", params=SIZES)
def size(request: pytest.FixtureRequest) -> Size:
    found: Size = request.param
    return found


@pytest.fixture(scope="module")
def live(size: Size, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """An empty database for each size."""
    with LiveSystem(tmp_path_factory.mktemp(f"stories-{size}")) as system:
        yield system


@pytest.fixture
def me(visit: Visit, size: Size) -> Visitor:
    return visit(size)


def button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def to(me: Visitor, title: str) -> Page:
    """By the navigation, which a phone hides."""
    page = me.page
    link = page.get_by_role("navigation", name="Pages").get_by_role("link", name=title)
    if me.size == "phone":
        button(page, "Navigation")
    link.click()
    page.wait_for_url(lambda url: title.lower() in url)
    page.wait_for_function("() => window.did_handshake")
    return page


def write(page: Page, label: str, text: str) -> None:
    """Type a program into an editor."""
    editor = page.get_by_label(label, exact=True)
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def test_story_1_an_empty_database_says_what_to_do_next(me: Visitor) -> None:
    page = me.go("/console")
    expect(page.get_by_text("This database is empty. What next?")).to_be_visible()
    me.shot("empty")
    button(page, "Load the example")
    expect(page.get_by_role("link", name="may_enter", exact=True)).to_be_visible()
    expect(page.get_by_text("This database is empty. What next?")).to_be_hidden()
    me.shot("loaded")


def test_story_2_a_file_is_dropped_looked_at_and_imported(me: Visitor) -> None:
    page = to(me.go("/console") and me, "Data")
    rows = "name,floor\nlab,2\nlobby,0\nvault,-1\n"
    page.locator("input[type=file]").set_input_files(
        {"name": "floor.csv", "mimeType": "text/csv", "buffer": rows.encode()}
    )
    # The first line is a header, because the second column has only numbers otherwise.
    expect(page.get_by_role("columnheader", name="floor")).to_be_visible()
    expect(page.get_by_role("cell", name="vault")).to_be_visible()
    assert page.get_by_label("Type of 2").input_value() in ("number", "")
    expect(page.get_by_text("number", exact=True).first).to_be_visible()
    me.shot("preview")
    page.get_by_text("Replace what a source asserts").click()
    page.get_by_label("Source", exact=True).fill("facility")
    button(page, "Preview")
    expect(page.get_by_text("A dry run: 3 tuples would change.")).to_be_visible()
    button(page, "Import")
    expect(page.get_by_text("3 tuples changed")).to_be_visible()
    expect(page.get_by_text("facility: floor (3)")).to_be_visible()
    me.shot("imported")


def test_story_3_a_rule_is_tried_before_it_is_kept(me: Visitor) -> None:
    page = me.go("/console/rules")
    write(page, "Rules", "climbs(p, x) :- may_enter(p, x), floor(x, n), n > 1.")
    button(page, "Preview")
    expect(page.get_by_text("Nothing is kept yet. This change would do:")).to_be_visible()
    expect(page.get_by_text('+ climbs("ada", "lab")')).to_be_visible()
    me.shot("preview")
    button(page, "Keep it")
    expect(page.get_by_text("This is epoch 3 now.")).to_be_visible()
    expect(page.get_by_role("table").get_by_text("climbs(p, x)").first).to_be_visible()


def test_story_4_a_query_is_asked_and_a_row_leads_to_its_explanation(me: Visitor) -> None:
    page = me.go("/console/query")
    write(page, "Query", "climbs(p, x)")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Rows 1 to 2; these are all")).to_be_visible()
    page.get_by_role("gridcell", name="ada").click()
    why = page.get_by_role("link", name='climbs("ada", "lab")')
    expect(why).to_be_visible()
    me.shot("row")
    why.click()
    page.wait_for_url("**/console/explain?tuple=*")
    expect(page.get_by_text('climbs("ada","lab") holds at epoch 3.')).to_be_visible()


def test_story_5_a_proof_is_opened_node_by_node(me: Visitor, live: LiveSystem) -> None:
    page = me.go('/console/explain?tuple=climbs("ada","lab")')
    tree = page.get_by_role("tree")
    middle = tree.get_by_text('may_enter("ada","lab")', exact=True)
    expect(middle).to_be_visible()
    expect(tree.get_by_text('floor("lab",2)', exact=True)).to_be_visible()
    expect(tree.get_by_text("fact, from facility")).to_be_visible()
    # What is inside is not on the page before it is opened.
    deep = tree.get_by_text('person("ada")', exact=True)
    expect(deep).to_have_count(0)
    middle.click()
    tree.get_by_text('may_enter("ada","house")', exact=True).click()
    expect(deep).to_be_visible()
    expect(tree.get_by_text('!blocked("ada")')).to_be_visible()
    me.shot("proof")
    with live.client() as client:
        proof = client.post("/v1/explain", json={"tuple": 'climbs("ada","lab")'}).json()
    for name in ("belongs", "allowed", "inside"):
        shown = next(node for node in proof["nodes"] if node.startswith(f"{name}("))
        expect(tree.get_by_text(shown, exact=True).first).to_be_visible()


def test_story_6_why_not_and_the_smallest_repair_is_tried_and_kept(me: Visitor) -> None:
    page = me.go("/console/explain")
    page.get_by_label("Tuple").fill('climbs("ben","lab")')
    page.keyboard.press("Enter")
    expect(page.get_by_text('climbs("ben","lab") does not hold at epoch 3.')).to_be_visible()
    # The address can be kept.
    page.wait_for_url("**/console/explain?tuple=climbs*")
    expect(page.get_by_text("Smallest repairs")).to_be_visible()
    # Each repair was tried by a dry run.
    expect(page.get_by_text('retract blocked("ben")', exact=True)).to_be_visible(timeout=2 * WAIT_MS)
    me.shot("repairs")
    page.get_by_text('retract blocked("ben")', exact=True).locator("xpath=..").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Nothing is kept yet.")).to_be_visible()
    expect(dialog.get_by_text('+ climbs("ben", "lab")')).to_be_visible()
    expect(dialog.get_by_text('- blocked("ben")')).to_be_visible()
    me.shot("preview")
    dialog.get_by_role("button", name="Keep it").click()
    expect(page.get_by_text('climbs("ben","lab") holds at epoch 4.')).to_be_visible()
    # The address keeps the epoch that was asked for, and opens the same answer.
    page.get_by_label("Epoch (or the newest)").fill("3")
    page.get_by_role("button", name="Explain").click()
    page.wait_for_url("**as_of=3*")
    page.reload()
    expect(page.get_by_text('climbs("ben","lab") does not hold at epoch 3.')).to_be_visible()


def test_story_7_changes_are_watched_paused_and_resumed_without_a_gap(me: Visitor, live: LiveSystem) -> None:
    page = me.go("/console/changes?relation=climbs&after=3")
    expect(page.get_by_text("1 epoch with changes, up to epoch 4")).to_be_visible()
    expect(page.get_by_text('+ climbs("ben", "lab")', exact=True)).to_be_visible()
    fact = {"relation": "blocked", "tuples": [["ben"]]}
    with live.client() as client:
        client.post("/v1/facts", json=fact)
        expect(page.get_by_text('- climbs("ben", "lab")', exact=True)).to_be_visible()
        button(page, "Pause")
        expect(page.get_by_text("Paused")).to_be_visible()
        for weight in (-1, 1, -1):
            client.post("/v1/facts", json={**fact, "weight": weight})
    expect(page.get_by_text("2 epochs with changes, up to epoch 5")).to_be_visible()
    me.shot("paused")
    button(page, "Resume")
    expect(page.get_by_text("5 epochs with changes, up to epoch 8")).to_be_visible()
    assert [
        text.split(",")[0]
        for text in page.get_by_text("Epoch ", exact=False).all_inner_texts()
        if "20" in text
    ][:5] == [f"Epoch {number}" for number in (8, 7, 6, 5, 4)]
    me.shot("resumed")


def test_story_8_the_circuit_is_looked_at(me: Visitor) -> None:
    page = to(me.go("/console") and me, "Circuit")
    expect(page.get_by_text("Epoch 8: update")).to_be_visible()
    node = page.locator("svg").get_by_text("climbs", exact=False).first
    expect(node).to_be_visible()
    me.shot("graph")
    page.get_by_text("climbs (not recursive)").first.click()
    expect(page.get_by_text("→ climbs(").first).to_be_visible()
    me.shot("plans")


def test_story_9_the_result_is_exported(me: Visitor) -> None:
    page = me.go("/console/query?q=climbs(p, x)")
    expect(page.get_by_text("Rows 1 to 3; these are all")).to_be_visible()
    button(page, "Export")
    with page.expect_download() as downloading:
        page.get_by_text("All rows as CSV").click()
    rows = list(csv.reader(io.StringIO(Path(downloading.value.path()).read_text())))
    assert rows[0] == ["p", "x"]
    assert sorted(rows[1:]) == [["ada", "lab"], ["ben", "lab"], ["dan", "lab"]]


def test_story_10_an_administrator_backs_up_and_gives_rights(
    me: Visitor, live: LiveSystem, visit: Visit
) -> None:
    page = to(me.go("/console") and me, "Admin")
    with page.expect_download() as downloading:
        page.get_by_text("Download a backup").click()
    with zipfile.ZipFile(downloading.value.path()) as backup:
        assert json.loads(backup.read("manifest.json"))["epoch"] == 8
    button(page, "Start an audit")
    expect(page.get_by_text("full, epoch 8").first).to_be_visible()
    expect(page.get_by_text("passed").first).to_be_visible()
    secrets = {}
    for name, role in (("root", "admin"), ("ann", "reader")):
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Role").click()
        page.get_by_role("option", name=role).click()
        button(page, "Make a token")
        secrets[name] = page.get_by_label("The token", exact=True).inner_text()
        me.shot(f"token-{name}")
        button(page, "Close")
        if name == "root":
            # It was the first: now everybody needs one, and so does this page.
            page.get_by_label("Access token").fill(secrets[name])
            button(page, "Log in")
            page.wait_for_url("**/console/admin")
            expect(page.get_by_text("root: admin")).to_be_visible()
    expect(page.get_by_text("ann: reader")).to_be_visible()
    assert secrets["ann"] not in page.content()
    ann = visit(me.size)
    ann.page.goto("/console/data")
    ann.page.get_by_label("Access token").fill(secrets["ann"])
    button(ann.page, "Log in")
    expect(ann.page.get_by_text("Importing needs a token with the role writer.")).to_be_visible()
    assert ann.page.locator("input[type=file]").count() == 0
    ann.shot("reader")
    page.get_by_text("ann: reader").locator("xpath=..").get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("ann: reader")).to_have_count(0)
    ann.page.reload()
    expect(ann.page.get_by_label("Access token")).to_be_visible()
