"""What holds on every page: dark colours that can be read, and keys. The circuit is zoomed by the wheel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Visit
from tests.browser.visitor import WAIT_MS, Visitor
from tests.live import LiveSystem

PROGRAM = """
.decl edge(x: symbol, y: symbol)
edge("a", "b"). edge("b", "c"). edge("c", "d").
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y), edge(y, z).
far(x) :- tc("a", x), !edge("a", x).
"""
# By the page's path what is there when it is complete.
PAGES = {
    '/console/explain?tuple=tc("a","d")': 'tc("a","d") holds at epoch',
    "/console/changes?relation=tc&after=0": "epoch with changes",
    "/console/data": "Export",
    "/console/admin": "Start an audit",
    "/console/circuit": "strata",
}
KEYS = {"explain": "e", "changes": "c", "data": "d", "admin": "a"}
FIELDS = {"explain": "Tuple", "changes": "or a query", "data": "File", "admin": "Name"}
# Text that differs too little from what is behind it, as (text, ratio); 3 is the least that WCAG 2.1 wants of large
# text and of controls.
FAINT = """() => {
  const parse = (colour) => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    if (colour.startsWith("color(")) for (let i = 0; i < 3; i++) found[i] *= 255;
    return found.length < 4 ? [...found, 1] : found;
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => one / 255).map(
      (one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (front, back) => back.slice(0, 3).map((one, i) => front[i] * front[3] + one * (1 - front[3]));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
  };
  const faint = [];
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data.trim()).join("");
    const box = element.getBoundingClientRect();
    if (!text || !box.width || !box.height || box.x < 0 || !element.checkVisibility({visibilityProperty: true,
        opacityProperty: true}) || element.closest("svg, .q-icon, [disabled], .disabled")) continue;
    const back = behind(element), front = over(parse(getComputedStyle(element).color), back);
    const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 3) faint.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return faint;
}"""


@pytest.fixture(scope="module", autouse=True)
def filled(live: LiveSystem) -> None:
    with live.client(timeout=240) as client:
        client.post("/v1/rules", json={"program": PROGRAM}).raise_for_status()


def shown(me: Visitor, path: str) -> Page:
    page = me.go(path)
    expect(page.get_by_text(PAGES[path]).first).to_be_visible(timeout=WAIT_MS)
    return page


def lightness(page: Page) -> int:
    """How light what is behind the page is: 0 to 255."""
    colours = page.evaluate(
        "() => [document.body, document.documentElement].map((one) => getComputedStyle(one).backgroundColor)"
    )
    for colour in colours:
        numbers = [float(one) for one in re.findall(r"[\d.]+", colour)]
        if len(numbers) == 3 or numbers[3]:
            return int(max(numbers[:3]))
    return 255


@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_read_in_dark_and_in_light(path: str, visit: Visit) -> None:
    me = visit()
    page = shown(me, path)
    assert lightness(page) > 200
    assert page.evaluate(FAINT) == []
    # By itself a page has the colours of the system.
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => document.body.classList.contains('body--dark')")
    # Colours change over a moment.
    page.wait_for_timeout(1_000)
    assert lightness(page) < 60
    assert page.evaluate(FAINT) == []
    me.shot(f"{page.url.partition('?')[0].rpartition('/')[2]}-dark")


@pytest.mark.parametrize("name", KEYS)
def test_keys_lead_to_a_page_and_belong_to_a_field_that_has_them(name: str, visit: Visit) -> None:
    me = visit()
    page = me.go("/console")
    page.keyboard.press("g")
    page.keyboard.press(KEYS[name])
    page.wait_for_url(f"**/console/{name}")
    page.wait_for_function("() => window.did_handshake")
    field = page.get_by_label(FIELDS[name], exact=True)
    field.fill("")
    field.press_sequentially("gq?")
    expect(field).to_have_value("gq?")
    expect(page.get_by_text("this list")).to_have_count(0)
    page.keyboard.press("Escape")
    field.blur()
    page.keyboard.press("?")
    expect(page.get_by_text("?   this list")).to_be_visible()
    assert page.url.partition("?")[0].endswith(f"/console/{name}")


def test_the_first_tab_leads_past_the_navigation(visit: Visit) -> None:
    page = shown(visit(), "/console/data")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/data#content")


def spread(chart: Locator) -> float:
    """How far apart the outermost names of the graph are."""
    boxes = [box for box in (one.bounding_box() for one in chart.locator("text").all()) if box]
    assert len(boxes) > 1
    return max(box["x"] for box in boxes) - min(box["x"] for box in boxes)


def wheel(page: Page, chart: Locator, up: int) -> float:
    """Turn the wheel over the graph, and wait for what comes of it."""
    before, box = spread(chart), chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -up)
    for _ in range(100):
        page.wait_for_timeout(100)
        if abs(spread(chart) - before) > 1:
            break
    # What moves has come to rest.
    page.wait_for_timeout(500)
    return spread(chart)


def test_the_wheel_zooms_the_circuit_and_the_whole_comes_back(visit: Visit) -> None:
    me = visit()
    page = shown(me, "/console/circuit")
    chart = page.get_by_role("img", name="The circuit as a graph").locator("svg")
    expect(chart.get_by_text("far", exact=False).first).to_be_visible()
    page.wait_for_timeout(1_000)
    whole = spread(chart)
    near = wheel(page, chart, 400)
    assert near > whole * 1.05
    me.shot("near")
    assert page.evaluate("() => window.scrollY") == 0, "the wheel has moved the page, too"
    assert wheel(page, chart, -400) < near
    wheel(page, chart, 400)
    page.get_by_role("button", name="Whole").click()
    page.wait_for_timeout(2_000)
    assert spread(chart) == pytest.approx(whole, abs=2)
