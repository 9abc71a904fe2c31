"""What surrounds every page: the bar with the name of the page, the navigation, light and dark, and the keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from nicegui import ui

from service.console.here import Here, Page

_COLOURS: Final = {"primary": "#1f5fa8", "secondary": "#4d6b88", "accent": "#8a4fbf", "positive": "#1d7f4e"}
_STYLE: Final = """
.nicegui-content { padding: 1rem; max-width: 100rem; margin: 0 auto; width: 100%; gap: 1rem }
.body--dark .text-primary, .body--dark .q-field__control { --q-primary: #7ab3f0 }
.zl-skip { position: absolute; left: -999px } .zl-skip:focus { left: 1rem; top: 1rem; z-index: 9999 }
.q-drawer .zl-here { background: color-mix(in srgb, currentColor 12%, transparent); font-weight: 600 }
@media (max-width: 600px) { .nicegui-content { padding: .6rem } .zl-wide { display: none } }
"""
# Keys are handled in the browser: a key pressed in a field is the field's.
_KEYS: Final = """
<script>
(() => {
  const places = %s;
  let after = 0;
  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || at.isContentEditable
        || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName)) return;
    const now = Date.now();
    if (event.key === "g") { after = now; return; }
    if (now - after < 1500 && places[event.key]) { event.preventDefault(); location.href = places[event.key]; }
    if (event.key === "?") document.getElementById("zl-help")?.click();
    after = 0;
  });
})();
</script>
"""
_THEMES: Final = {
    "auto": ("brightness_auto", "as the system", None),
    "light": ("light_mode", "light", False),
    "dark": ("dark_mode", "dark", True),
}
_THEME_COOKIE: Final = "zedlog_theme"


def surround(here: Here, pages: Sequence[Page], theme: str) -> None:
    """Build it, around the page that is being built."""
    visible = [page for page in pages if here.person.has(page.role)]
    ui.colors(**_COLOURS)
    ui.add_css(_STYLE)
    ui.add_head_html(_KEYS % json.dumps({page.key: page.path for page in visible if page.key}))
    with ui.header(elevated=True).classes("items-center no-wrap q-py-xs"):
        ui.link("To the content", "#content").classes("zl-skip")
        menu = ui.button(icon="menu").props('flat round color=white aria-label="Navigation"')
        ui.label(here.page.title).classes("text-h6").props('role="heading" aria-level=1')
        ui.space()
        _theme(theme)
        with _button("keyboard", "Keys").props("id=zl-help"):
            _help(visible)
        _person(here)
    # The strip at the edge from which the drawer can be drawn would take the taps on what lies under it.
    drawer = ui.left_drawer(bordered=True).props("width=210 breakpoint=900 no-swipe-open").classes("q-pa-sm")
    with drawer, ui.element("nav").props('aria-label="Pages"').classes("column w-full"):
        for page in visible:
            _link(page.path, page.icon, page.title, page == here.page)
        ui.separator().classes("q-my-sm")
        _link("/docs", "api", "HTTP API", False)
    menu.on_click(drawer.toggle)
    ui.element("a").props("id=content tabindex=-1")


def _link(target: str, icon: str, title: str, chosen: bool) -> None:
    link = ui.link(target=target).classes("no-underline text-inherit w-full")
    if chosen:
        link.props('aria-current="page"')
    with link, ui.row().classes("items-center no-wrap q-pa-sm rounded-borders gap-3") as row:
        ui.icon(icon, size="sm")
        ui.label(title)
        row.classes("zl-here" if chosen else "")


def _button(icon: str, label: str) -> ui.button:
    button = ui.button(icon=icon).props(f'flat round color=white aria-label="{label}"')
    with button:
        ui.tooltip(label)
    return button


def _theme(theme: str) -> None:
    names = list(_THEMES)
    dark = ui.dark_mode(_THEMES[theme][2])
    chosen = theme
    button = ui.button(icon=_THEMES[theme][0]).props('flat round color=white aria-label="Light or dark"')
    with button:
        told = ui.tooltip(f"Colours: {_THEMES[theme][1]}")

    def turn() -> None:
        nonlocal chosen
        chosen = names[(names.index(chosen) + 1) % len(names)]
        icon, words, value = _THEMES[chosen]
        dark.value = value
        button.props(f"icon={icon}")
        told.set_text(f"Colours: {words}")
        ui.run_javascript(
            f'document.cookie = "{_THEME_COOKIE}={chosen}; path=/console; max-age=31536000; samesite=strict"'
        )

    button.on_click(turn)


def theme_of(cookies: dict[str, str]) -> str:
    """What the person chose before."""
    found = cookies.get(_THEME_COOKIE, "auto")
    return found if found in _THEMES else "auto"


def _help(pages: Sequence[Page]) -> None:
    with ui.menu().props("auto-close"), ui.column().classes("q-pa-md gap-1"):
        for page in pages:
            if page.key:
                ui.label(f"g {page.key}   {page.title}").classes("font-mono whitespace-pre")
        ui.label("Ctrl+Enter   run").classes("font-mono whitespace-pre")
        ui.label("?   this list").classes("font-mono whitespace-pre")


def _person(here: Here) -> None:
    if not here.person.login:
        return
    with _button("person", here.person.name), ui.menu(), ui.column().classes("q-pa-md gap-2"):
        ui.label(here.person.name).classes("text-bold")
        ui.label(f"Role: {here.person.role}")
        ui.html('<form method="post" action="/console/logout"><button type="submit">Log out</button></form>')
