"""Data: import by dropping a file, exports, jobs, and sources."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

from engine.bulk.request import EXPORT_FORMATS, suffixes
from service.console.dry_run import committed
from service.console.here import Here, Page
from service.console.import_form import ImportForm
from service.console.job_view import JobList, follow
from zedlog.client.connection import keyed, new_key

Json = dict[str, Any]
_RELATION, _QUERY = "A relation", "The answers of a query"


async def build(here: Here) -> None:
    page = _Data(here)
    page.build()
    here.after_connect(page.load)


def heading(text: str) -> None:
    """A heading of a part of the page."""
    ui.label(text).classes("text-h6").props('role="heading" aria-level=2')


class _Data:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._import: ImportForm | None = None

    def build(self) -> None:
        writer = self._here.person.has("writer")
        heading("Import")
        if writer:
            self._import = ImportForm(self._here, self.load)
        else:
            ui.label("Importing needs a token with the role writer.")
        heading("Export")
        if writer:
            self._export()
        else:
            ui.label(
                "Exporting needs a token with the role writer. A query's answers can be downloaded by anybody."
            )
        heading("Jobs")
        self._jobs = JobList(self._here)
        heading("Sources")
        self._sources = ui.column().classes("w-full gap-1")

    async def load(self) -> None:
        """Ask for what the page lists."""
        with self._here.telling():
            found = await self._here.client.request("GET", "/v1/relations")
            names = [one["relation"] for one in found["relations"]]
            if self._import is not None:
                self._import.know(names)
                chosen = self._relation.value if self._relation.value in names else next(iter(names), None)
                self._relation.set_options(names, value=chosen)
            await self._jobs.load()
            await self._show_sources()

    # ---- exports

    def _export(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            what = ui.radio([_RELATION, _QUERY], value=_RELATION).props("inline")
            with ui.row().classes("w-full items-end"):
                self._relation = (
                    ui.select([], label="Relation", with_input=True)
                    .style("min-width: 12rem")
                    .bind_visibility_from(what, "value", value=_RELATION)
                )
                query = (
                    ui.input("Query", placeholder='tc("a", x), !edge("a", x)')
                    .props("input-class=font-mono spellcheck=false")
                    .classes("grow")
                    .bind_visibility_from(what, "value", value=_QUERY)
                )
                kind = ui.select(list(EXPORT_FORMATS), value="csv", label="Format").style("min-width: 7rem")
                path = ui.input("File", placeholder="edges.csv").props("spellcheck=false")
                overwrite = ui.switch("Write over what exists", value=False)

            async def run() -> None:
                body: Json = {"format": kind.value, "overwrite": overwrite.value}
                if what.value == _RELATION:
                    body["relation"] = self._relation.value
                else:
                    body["query"] = (query.value or "").strip().removesuffix(".")
                if not body.get("relation") and not body.get("query"):
                    ui.notify("Say what is to be exported.", type="warning")
                    return
                body["path"] = (path.value or "").strip() or _path_of(body)
                outcome.clear()
                with outcome, self._here.telling():
                    key = keyed(new_key())
                    await follow(
                        self._here,
                        await self._here.client.request("POST", "/v1/exports", json=body, headers=key),
                    )
                    await self.load()

            ui.button("Export", icon="download", on_click=run)
            ui.label(
                "Files are written on the service's machine, below its export root. To get a result into this "
                "browser, use the page Query."
            ).classes("text-caption")
            outcome = ui.column().classes("w-full")

    # ---- sources

    async def _show_sources(self) -> None:
        found = (await self._here.client.request("GET", "/v1/sources"))["sources"]
        self._sources.clear()
        with self._sources:
            if not found:
                ui.label("No facts come from a named source.")
            for one in found:
                with ui.row().classes("w-full items-center"):
                    relations = ", ".join(
                        f"{each['relation']} ({each['facts']:,})" for each in one["relations"]
                    )
                    ui.label(f"{one['source']}: {relations}").classes("grow").style(
                        "overflow-wrap: anywhere; flex-basis: 12rem"
                    )
                    if self._here.person.has("writer"):
                        ui.button(
                            "Take back",
                            icon="undo",
                            on_click=lambda _, name=one["source"]: self._take_back(name),
                        ).props("outline")

    async def _take_back(self, source: str) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label(f"Take back everything that the source {source} asserts?")
            with ui.row().classes("w-full justify-end"):
                ui.button("Keep it", on_click=lambda: dialog.submit(False)).props("flat")
                ui.button("Take back", on_click=lambda: dialog.submit(True)).props("color=negative")
        if await dialog:
            with self._here.telling():
                result = await self._here.client.request("DELETE", f"/v1/sources/{quote(source, safe='')}")
                ui.notify(committed(result), type="positive")
                await self.load()
        dialog.delete()


def _path_of(body: Json) -> str:
    name = body.get("relation") or "answers"
    return name + suffixes(body["format"])[0]


PAGE = Page("/console/data", "Data", "swap_vert", build, key="d")
