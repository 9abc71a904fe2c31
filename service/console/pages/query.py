"""Query: an editor, the answer page by page, the answer as a file, and for each row the way to its explanation.

Always: the browser has one page of the answer and never more, however large the answer is; all pages are of one epoch.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from nicegui import background_tasks, ui

from service.console.client import ClientError, ServiceError
from service.console.editor import Editor
from service.console.export import FORMATS
from service.console.here import Here, Page, address
from service.console.rows import grid_columns, grid_rows, tuples_of

_SIZES: Final = (100, 500, 1_000)
_HISTORY: Final = "zedlog_queries"
_MOST_HISTORY: Final = 50
_MOST_CHIPS: Final = 40
# So many rows are shown without a bar to scroll them.
_FEW: Final = 12
_REMEMBER: Final = """
try {
  const old = JSON.parse(localStorage.getItem("%(key)s") || "[]").filter((one) => one.q !== %(text)s);
  localStorage.setItem("%(key)s", JSON.stringify([{ q: %(text)s, at: Date.now() }, ...old].slice(0, %(most)d)));
} catch (error) { /* a browser without storage has no history */ }
"""
_RECALL: Final = (
    f'try {{ return JSON.parse(localStorage.getItem("{_HISTORY}") || "[]"); }} catch (e) {{ return []; }}'
)


class QueryPage:
    """The page of one person: what was asked, and where in the answer they are."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._asked: dict[str, Any] = {}
        self._pages: list[str | None] = [None]
        self._document: dict[str, Any] = {}
        self._running: asyncio.Task[None] | None = None

    def build(self) -> None:
        here = self._here
        self._editor = Editor(here.parameters.get("q", ""), "Query", self.run)
        with ui.row().classes("items-center w-full gap-2"):
            self._run_button = ui.button("Run", icon="play_arrow", on_click=self.run)
            with self._run_button:
                ui.tooltip("Ctrl+Enter")
            self._stop_button = ui.button("Stop", icon="stop", on_click=self.stop).props("flat")
            self._stop_button.set_visibility(False)
            as_of = here.parameters.get("as_of", "")
            self._as_of = ui.input("As of epoch", value=as_of, placeholder="newest").props("dense clearable")
            self._as_of.classes("w-32")
            self._size = ui.select(list(_SIZES), value=_SIZES[0], label="Rows in a page").props("dense")
            self._size.classes("w-32")
            with ui.button("History", icon="history", on_click=self.recall).props("flat"):
                self._history = ui.menu().classes("max-w-xl")
            with ui.button("Export", icon="download").props("flat"), ui.menu():
                for format in FORMATS:
                    ui.menu_item(f"All rows as {format.upper()}", lambda format=format: self.export(format))
        self._told = ui.label().props('role="status"').classes("text-sm")
        self._error = ui.label().props('role="alert"').classes("text-negative whitespace-pre-wrap font-mono")
        self._answer = ui.column().classes("w-full gap-2")
        self._names = ui.row().classes("w-full gap-1 items-center")
        here.after_connect(self.start)

    async def start(self) -> None:
        with self._here.telling():
            relations = (await self._here.client.request("GET", "/v1/relations"))["relations"]
            self._editor.know(relations)
            self._offer(relations)
        if self._editor.text.strip():
            self.run()

    def _offer(self, relations: list[dict[str, Any]]) -> None:
        """The relations, each of which is a query with one click."""
        with self._names:
            if not relations:
                ui.label("There are no relations yet.")
                ui.link("Load the example, import a file or write a rule", "/console")
                return
            ui.label("Relations:").classes("text-sm")
            for one in relations[:_MOST_CHIPS]:
                atom = f"{one['relation']}({', '.join(column['name'] for column in one['columns'])})"
                chip = ui.chip(
                    f"{one['relation']} {one['counts']['all']:,}", on_click=lambda atom=atom: self.ask(atom)
                )
                chip.props("outline dense clickable")
                with chip:
                    ui.tooltip(atom)
            if len(relations) > _MOST_CHIPS:
                ui.label(f"and {len(relations) - _MOST_CHIPS:,} more, which the editor completes")

    # ---- asking

    def ask(self, text: str) -> None:
        """Ask another query."""
        self._editor.text = text
        self.run()

    def run(self) -> None:
        """Ask what is in the editor, from its first page."""
        self._asked = {"query": self._editor.text.strip(), "limit": self._limit()}
        as_of = (self._as_of.value or "").strip()
        if as_of and not (as_of.isascii() and as_of.isdigit() and int(as_of) < 2**63):
            self._refuse(
                "invalid_parameter", "As of epoch: write the number of an epoch, or nothing for the newest."
            )
            return
        if as_of:
            self._asked["as_of"] = int(as_of)
        self._here.remember(q=self._asked["query"], as_of=as_of or None)
        # The rows of another query must not look like those of this one, even if it is stopped.
        self._document = {}
        self._answer.clear()
        self._begin([None])

    def _limit(self) -> int:
        size, most = int(self._size.value), self._here.person.rows
        return size if most is None else min(size, most)

    def turn(self, step: int) -> None:
        """To the next page, or back; a second click before the page is there does nothing."""
        if self._running is None or self._running.done():
            self._begin([*self._pages, self._document["cursor"]] if step > 0 else self._pages[:-1])

    def stop(self) -> None:
        """Give the running query up; the service stops working on it."""
        if self._running is not None:
            self._running.cancel()

    def _begin(self, pages: list[str | None]) -> None:
        """pages: the cursors of the pages up to the one that is asked for."""
        self.stop()
        self._running = background_tasks.create(self._work(pages), name="query")

    async def _work(self, pages: list[str | None]) -> None:
        with self._here.tab:
            self._error.text = ""
            self._editor.unmark()
            self._told.text = "Running ..."
            self._stop_button.set_visibility(True)
            started = time.perf_counter()
            asked = dict(self._asked)
            if pages[-1] is not None:
                asked["cursor"] = pages[-1]
            try:
                document = await self._here.client.request("POST", "/v1/query", json=asked)
            except asyncio.CancelledError:
                if self._running is asyncio.current_task():
                    self._told.text = "Stopped."
                raise
            except ClientError as error:
                if not isinstance(error, ServiceError):
                    self._refuse("unavailable", str(error))
                    return
                if error.status == 401:
                    self._here.tell(error)
                self._refuse(error.code, error.problem.get("rendered") or error.detail)
                self._editor.mark(error.problem)
                return
            finally:
                if self._running is asyncio.current_task():
                    self._stop_button.set_visibility(False)
            self._document, self._pages = document, pages
            self._show((time.perf_counter() - started) * 1000)
            text = json.dumps(asked["query"])
            ui.run_javascript(_REMEMBER % {"key": _HISTORY, "text": text, "most": _MOST_HISTORY})

    def _refuse(self, code: str, text: str) -> None:
        self._told.text = ""
        self._answer.clear()
        self._error.text = f"{code}: {text}"

    # ---- the answer

    def _show(self, milliseconds: float) -> None:
        document, rows = self._document, self._document["tuples"]
        before = (len(self._pages) - 1) * self._asked["limit"]
        where = f"epoch {document['epoch']}, {milliseconds:,.0f} ms"
        self._answer.clear()
        if "holds" in document:
            self._told.text = f"{'true' if document['holds'] else 'false'} - {where}"
            self._explain(tuples_of(self._asked["query"], [], []))
            return
        if not rows:
            self._told.text = f"No rows - {where}"
            return
        more = document["cursor"] is not None
        end = "more follow" if more else "these are all" if not before else "these are the last"
        self._told.text = f"Rows {before + 1:,} to {before + len(rows):,}; {end} - {where}"
        columns = document["columns"]
        with self._answer:
            grid = ui.aggrid(
                {
                    "columnDefs": grid_columns(columns, rows),
                    "rowData": grid_rows(columns, rows),
                    "defaultColDef": {"sortable": True, "resizable": True, "minWidth": 90},
                    "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
                    "suppressFieldDotNotation": True,
                    "enableCellTextSelection": True,
                    "tooltipShowDelay": 300,
                    "domLayout": "autoHeight" if len(rows) <= _FEW else "normal",
                }
            ).style("height: auto" if len(rows) <= _FEW else "height: 32rem")
            grid.on("selectionChanged", self._chosen)
            self._grid = grid
            with ui.row().classes("items-center gap-2 w-full"):
                back = ui.button("Previous", icon="chevron_left", on_click=lambda: self.turn(-1)).props(
                    "flat dense"
                )
                back.set_enabled(len(self._pages) > 1)
                forth = ui.button("Next", on_click=lambda: self.turn(1)).props(
                    "flat dense icon-right=chevron_right"
                )
                forth.set_enabled(more)
                hint = "A click on a column's name sorts "
                hint += "the rows of this page, not the whole answer." if more or before else "the rows."
                ui.label(hint + " A click on a row, or the space bar, leads to its explanation.").classes(
                    "text-sm"
                )
            self._links = ui.row().classes("items-center gap-3 w-full")

    async def _chosen(self) -> None:
        chosen = await self._grid.get_selected_row()
        if chosen is None:
            return
        row = self._document["tuples"][chosen["i"]]
        self._links.clear()
        with self._links:
            self._explain(tuples_of(self._asked["query"], self._document["columns"], row), told=True)

    def _explain(self, tuples: list[str], *, told: bool = False) -> None:
        """Links to the explanations of tuples."""
        with self._links if told else self._answer:
            if tuples:
                ui.label("Why?").classes("text-bold")
            elif told:
                ui.label("This row stands for no single tuple, so there is nothing to explain.").classes(
                    "text-sm"
                )
            for one in tuples:
                at = self._document["epoch"] if "as_of" in self._asked else None
                ui.link(one, address("/console/explain", tuple=one, as_of=at)).classes("font-mono")

    # ---- files and history

    def export(self, format: str) -> None:
        """All rows of what was asked last, as a file."""
        if not self._asked.get("query"):
            ui.notify("Run a query first; then its rows can be exported.")
            return
        asked = {"q": self._asked["query"], "as_of": self._document.get("epoch"), "format": format}
        ui.navigate.to(address("/console/export", **asked))

    async def recall(self) -> None:
        """The last queries of this browser, which keeps them itself."""
        found = await ui.run_javascript(_RECALL)
        self._history.clear()
        with self._history:
            for one in found or ():
                ui.menu_item(str(one["q"]), lambda text=str(one["q"]): self.ask(text)).classes("font-mono")
            if not found:
                ui.menu_item("No queries yet").props("disable")
        self._history.open()


async def build(here: Here) -> None:
    QueryPage(here).build()


PAGE = Page("/console/query", "Query", "search", build, key="q")
