"""Importing a file that was dropped on the page: its first rows, where they go, and what came of it.

There are two ways. A bulk job adds the rows of a file of any size, through Spark. A source is replaced with the file's
rows: only the difference becomes an epoch, and no Spark is needed; for files that fit into a request.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui
from nicegui.elements.upload_files import FileUpload
from nicegui.events import UploadEventArguments

from engine.bulk.request import STATEMENTS, TRIPLE
from service.console.dry_run import changed, committed
from service.console.file_preview import Preview, head_of, preview
from service.console.here import Here
from service.console.job_view import follow
from zedlog.client.connection import keyed, new_key

Json = dict[str, Any]
_TYPES: Final = ("symbol", "number", "float", "bool")
_MEDIA: Final = {"csv": "text/csv", "tsv": "text/tab-separated-values", "jsonl": "application/x-ndjson"}
_OWN_RELATION: Final = ("facts",)
_ADD, _REPLACE = "Add the rows (a bulk job)", "Replace what a source asserts"


class ImportForm:
    """A place to drop a file on, and the form that comes then. done: is called after an import."""

    def __init__(self, here: Here, done: Callable[[], Awaitable[None]]) -> None:
        self._here, self._done = here, done
        self._file: FileUpload | None = None
        self._relations: list[str] = []
        self._upload = (
            ui.upload(
                label="Drop a file here, or choose one with +", auto_upload=True, on_upload=self._received
            )
            .props("flat bordered aria-label='A file to import'")
            .classes("w-full")
        )
        ui.label(
            "CSV, TSV, JSON lines, Parquet, RDF (Turtle, N-Triples, RDF/XML and others) or Souffle's .facts; "
            "packed with gzip or bzip2, too."
        ).classes("text-caption")
        self._form = ui.column().classes("w-full")
        self._outcome = ui.column().classes("w-full")

    def know(self, relations: list[str]) -> None:
        """The relations that there are."""
        self._relations = relations

    async def _received(self, event: UploadEventArguments) -> None:
        self._file = event.file
        self._head, self._whole = await head_of(event.file.iterate(), event.file.name)
        self._outcome.clear()
        self._upload.reset()
        self._show(preview(event.file.name, self._head, self._whole))

    # ---- the form

    def _show(self, found: Preview, relation: str | None = None) -> None:
        file = self._file
        assert file is not None
        self._found = found
        self._form.clear()
        with self._form, ui.card().props("flat bordered").classes("w-full"):
            ui.label(f"{file.name}, {_size(file.size())}").classes("text-subtitle1 break-all")
            if found.problem:
                ui.label(found.problem).style("overflow-wrap: anywhere")
            if found.format is None:
                return
            self._table(found)
            with ui.row().classes("w-full items-end"):
                self._relation = ui.input(
                    "Relation",
                    value=relation or _relation_of(file.name, found.format),
                    autocomplete=self._relations,
                ).props("spellcheck=false")
                self._relation.set_visibility(found.format not in _OWN_RELATION)
                if found.format in ("csv", "tsv"):
                    ui.switch(
                        "The first line names the columns", value=found.header, on_change=self._turn_header
                    )
                self._skip = ui.switch("Leave out rows that cannot be read", value=False)
            ways = (
                [_ADD, _REPLACE]
                if file.name.lower().endswith(tuple(f".{kind}" for kind in _MEDIA))
                else [_ADD]
            )
            self._way = ui.radio(ways, value=_ADD)
            self._source = ui.input("Source", value=_relation_of(file.name, "")).bind_visibility_from(
                self._way, "value", value=_REPLACE
            )
            self._skip.bind_visibility_from(self._way, "value", value=_ADD)
            with ui.row() as self._buttons:
                ui.button("Preview", icon="visibility", on_click=lambda: self._run(dry_run=True)).props(
                    "outline"
                )
                ui.button("Import", icon="upload", on_click=lambda: self._run(dry_run=False))

    def _table(self, found: Preview) -> None:
        """The first rows, under names and types."""
        self._types: list[ui.select] = []
        if not found.rows:
            return
        names = found.names or tuple(f"column {number + 1}" for number in range(len(found.rows[0])))
        with (
            ui.element("div").classes("w-full overflow-auto").style("max-height: 40vh"),
            ui.element("table").style("border-spacing: .6rem .15rem; border-collapse: separate"),
        ):
            with ui.element("thead"), ui.element("tr"):
                for place, name in enumerate(names):
                    with ui.element("th").style("text-align: left; vertical-align: bottom"):
                        ui.label(name)
                        if found.types and not found.typed and found.format in _MEDIA:
                            self._types.append(
                                ui.select(list(_TYPES), value=found.types[place])
                                .props(f"dense options-dense aria-label='Type of {place + 1}'")
                                .style("min-width: 6rem")
                            )
                        elif found.types:
                            ui.label(found.types[place]).classes("text-caption")
            with ui.element("tbody"):
                for row in found.rows:
                    with ui.element("tr"):
                        for value in row:
                            with ui.element("td"):
                                ui.label(str(value)).classes("font-mono text-caption")

    def _turn_header(self, event: Any) -> None:
        assert self._file is not None
        found = preview(self._file.name, self._head, self._whole, bool(event.value))
        self._show(found, self._relation.value)

    # ---- what it does

    async def _run(self, *, dry_run: bool) -> None:
        self._outcome.clear()
        # A second click must not import a second time.
        self._buttons.set_visibility(False)
        with self._outcome, self._here.telling():
            if self._way.value == _REPLACE:
                await self._replace(dry_run)
            else:
                await self._add(dry_run)
            await self._done()
        self._buttons.set_visibility(True)

    async def _add(self, dry_run: bool) -> None:
        file, request = self._file, self._here.client.request
        assert file is not None
        spinner = ui.label(f"Sending {_size(file.size())} …")
        name = re.sub(r"[^A-Za-z0-9._-]", "_", file.name).lstrip(".-")[-100:] or "file"
        sent = await request("POST", "/v1/uploads", params={"name": name}, content=file.iterate())
        spinner.delete()
        body: Json = {
            "upload": sent["upload"],
            "format": self._found.format,
            "on_error": "skip" if self._skip.value else "fail",
            "dry_run": dry_run,
            "message": f"import of {file.name}"[:2000],
        }
        if self._found.format not in _OWN_RELATION:
            body["relation"] = (self._relation.value or "").strip()
        if self._found.format in ("csv", "tsv"):
            body["header"] = self._found.header
        types = [one.value for one in self._types]
        if types and tuple(types) != self._found.types:
            # Otherwise the import finds them, from all rows.
            body["types"] = types
        key = keyed(new_key())
        await follow(self._here, await request("POST", "/v1/imports", json=body, headers=key))

    async def _replace(self, dry_run: bool) -> None:
        file = self._file
        assert file is not None
        assert self._found.format is not None
        relation, source = (self._relation.value or "").strip(), (self._source.value or "").strip()
        if not relation or not source:
            ui.notify("Say which relation, and which source.", type="warning")
            return
        parameters: Json = {"relation": relation, "message": f"{file.name}"[:2000]}
        if self._found.format in ("csv", "tsv"):
            parameters["header"] = str(self._found.header).lower()
        if dry_run:
            parameters["dry_run"] = "true"
        result = await self._here.client.request(
            "PUT",
            f"/v1/sources/{quote(source, safe='')}",
            params=parameters,
            content=file.iterate(),
            headers={"Content-Type": _MEDIA[self._found.format]},
        )
        ui.label(f"A dry run: {changed(result):,} tuples would change." if dry_run else committed(result))
        for name, change in sorted(result.get("changes", {}).items()):
            ui.label(f"{name}: +{change['inserted']:,} -{change['deleted']:,}")


def _relation_of(name: str, kind: str) -> str:
    """A relation's name that is like the file's."""
    if kind in STATEMENTS:
        return TRIPLE
    stem = name.rpartition("/")[2].partition(".")[0]
    found = re.sub(r"\W", "_", stem, flags=re.ASCII).strip("_")
    return f"r_{found}" if not found or found[0].isdigit() else found


def _size(count: int) -> str:
    """A number of bytes in plain words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
