"""Overview: the state of the parts, the relations, what the last epochs did; in an empty database, what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from service.console.client import ClientError, ServiceError
from service.console.example import PROGRAM, QUERY
from service.console.here import Here, Page, address
from service.console.timeline import chart, clock, sparkline, told
from zedlog.client.connection import new_key

_EPOCHS: Final = 100
# How often the page asks whether there is something new.
_SECONDS: Final = 5.0
_SPARK: Final = """
<q-td :props="props"><svg viewBox="0 0 100 20" width="100" height="20" role="img" :aria-label="props.row.told">
<title>{{ props.row.told }}</title><path :d="props.row.up" fill="#1d7f4e"/><path :d="props.row.down" fill="#d9363e"/>
</svg></q-td>"""
_NAME: Final = """
<q-td :props="props"><a :href="props.row.link" class="text-primary font-mono">{{ props.row.relation }}</a></q-td>"""


class Overview:
    """The page of one person."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._seen: tuple[Any, ...] = ()
        self._epochs: list[dict[str, Any]] = []

    def build(self) -> None:
        self._cards = ui.row().classes("w-full gap-3 items-stretch")
        self._next = ui.column().classes("w-full")
        with ui.column().classes("w-full gap-2") as self._content:
            ui.label("Epochs").classes("text-h6").props('role="heading" aria-level=2')
            self._chart = ui.echart(chart([], []), self._point).classes("w-full h-64")
            self._detail = ui.label("A click on a bar says what the epoch did.")
            self._detail.classes("text-sm whitespace-pre-line")
            ui.label("Relations").classes("text-h6").props('role="heading" aria-level=2')
            with ui.input(placeholder="Find a relation").props("dense clearable") as find:
                find.props('aria-label="Find a relation"')
            self._table = self._relations()
            self._table.bind_filter_from(find, "value")
        self._content.set_visibility(False)
        self._here.after_connect(self.refresh)
        ui.timer(_SECONDS, self.refresh, immediate=False)

    def _relations(self) -> ui.table:
        wide = {"classes": "zl-wide", "headerClasses": "zl-wide"}
        count = {"sortable": True, ":format": "(value) => value.toLocaleString('en')"}
        columns: list[dict[str, Any]] = [
            {"name": "relation", "label": "Relation", "field": "relation", "align": "left", "sortable": True},
            {"name": "columns", "label": "Columns", "field": "columns", "align": "left", **wide},
            {"name": "all", "label": "Tuples", "field": "all", **count},
            {"name": "asserted", "label": "Asserted", "field": "asserted", **count, **wide},
            {"name": "derived", "label": "Derived", "field": "derived", **count, **wide},
            {"name": "spark", "label": "Recent changes", "field": "told", "align": "left"},
        ]
        table = ui.table(columns=columns, rows=[], row_key="relation", pagination=25).classes("w-full")
        table.props("dense flat bordered")
        table.add_slot("body-cell-spark", _SPARK)
        table.add_slot("body-cell-relation", _NAME)
        return table

    async def refresh(self) -> None:
        """Ask again; draw again only what has changed."""
        client = self._here.client
        try:
            state = await self._state()
            epochs = await client.request("GET", "/v1/epochs", params={"limit": _EPOCHS})
            refused = await client.request(
                "GET", "/v1/transactions", params={"status": "refused", "limit": 50}
            )
            metrics = (await client.answer("GET", "/metrics")).text
            seen = (epochs["epochs"][:1], refused["transactions"][:1])
            relations = None if seen == self._seen else await client.request("GET", "/v1/relations")
        except ClientError as error:
            if isinstance(error, ServiceError) and error.status == 401:
                self._here.tell(error)
            self._draw_trouble(error)
            return
        self._epochs = epochs["epochs"]
        self._draw_state(state, epochs, metrics)
        if relations is not None:
            self._seen = seen
            self._draw(relations, refused["transactions"])

    async def _state(self) -> Mapping[str, Any]:
        """What `/readyz` says, ready or not."""
        try:
            found: Mapping[str, Any] = (await self._here.client.answer("GET", "/readyz")).json()
        except ServiceError as error:
            if error.status != 503:
                raise
            return error.problem
        return found

    def _draw_trouble(self, error: ClientError) -> None:
        self._cards.clear()
        with self._cards:
            self._card("The service", "cannot answer", str(error), bad=True)

    def _draw_state(self, state: Mapping[str, Any], epochs: Mapping[str, Any], metrics: str) -> None:
        missing = state.get("missing", ())
        engine = str(state.get("engine", "unknown"))
        running = epochs.get("running")
        waiting = f"{state.get('lag', 0):,} transactions waiting"
        if running:
            names = ", ".join(running["relations"][:3])
            waiting = f"evaluating for {running['seconds']:.1f} s" + (f": {names}" if names else "")
        newest = self._epochs[0] if self._epochs else None
        placed = sum(one["placement"] != "resident" for one in self._epochs)
        self._cards.clear()
        with self._cards:
            self._card("Engine", engine, waiting, bad="engine" in missing)
            self._card(
                "Redis", "away" if "redis" in missing else "connected", "log and snapshot", "redis" in missing
            )
            used = f"{placed:,} of the last {len(self._epochs):,} epochs used it"
            self._card("Spark", "in use" if placed else "not in use", used)
            at = f"{clock(newest['time'])}" if newest else ""
            self._card("Epoch", f"{newest['epoch']:,}" if newest else "none", at)
            memory, indexes = (
                _metric(metrics, name) for name in ("process_resident_memory_bytes", "zedlog_index_bytes")
            )
            self._card("Memory of the service", size(memory), f"{size(indexes)} of it indexes")
            faults = epochs.get("faults", 0)
            if faults:
                self._card(
                    "Faults of Zedlog itself", f"{faults:,}", "transactions refused because of bugs", bad=True
                )

    def _card(self, title: str, value: str, more: str, bad: bool = False) -> None:
        with ui.card().classes("gap-0 q-pa-sm min-w-40 flex-1").props("flat bordered"):
            ui.label(title).classes("text-sm")
            ui.label(value).classes("text-h6" + (" text-negative" if bad else ""))
            ui.label(more).classes("text-xs")

    def _draw(self, relations: Mapping[str, Any], refused: list[dict[str, Any]]) -> None:
        known = relations["relations"]
        self._content.set_visibility(bool(known))
        self._next.clear()
        if not known:
            with self._next:
                self._draw_next()
        self._table.rows = [self._row(one) for one in known]
        self._chart.options.clear()
        self._chart.options.update(chart(self._epochs, refused))
        self._chart.update()

    def _row(self, one: Mapping[str, Any]) -> dict[str, Any]:
        names = ", ".join(column["name"] for column in one["columns"])
        return {
            "relation": one["relation"],
            "columns": ", ".join(f"{c['name']}: {c['type'] or '?'}" for c in one["columns"]),
            **one["counts"],
            **sparkline(one["relation"], self._epochs),
            "link": address("/console/query", q=f"{one['relation']}({names})"),
        }

    def _point(self, event: Any) -> None:
        name = event.name
        found = [one for one in self._epochs if str(one["epoch"]) == name]
        self._detail.text = told(found[0]) if found else str(event.data.get("told", ""))

    # ---- an empty database

    def _draw_next(self) -> None:
        writes = self._here.person.has("writer")
        ui.label("This database is empty. What next?").classes("text-h6").props('role="heading" aria-level=2')
        with ui.row().classes("w-full gap-3 items-stretch"):
            with ui.card().classes("min-w-64 flex-1").props("flat bordered"):
                ui.label("Load the example").classes("text-bold")
                ui.label("Who may enter which building: five relations, six rules, a constraint.")
                button = ui.button("Load the example", icon="auto_stories", on_click=self._load)
                button.set_enabled(writes)
            with ui.card().classes("min-w-64 flex-1").props("flat bordered"):
                ui.label("Import a file").classes("text-bold")
                ui.label("CSV, Parquet, N-Triples and others become a relation.")
                ui.link("Import a file", "/console/data")
            with ui.card().classes("min-w-64 flex-1").props("flat bordered"):
                ui.label("Write a rule").classes("text-bold")
                ui.label("With a preview of what it would derive, before anything is kept.")
                ui.link("Write a rule", "/console/rules")
        if not writes:
            ui.label(
                f"The role of {self._here.person.name} is {self._here.person.role}; changes need a writer."
            )

    async def _load(self) -> None:
        with self._here.telling():
            done = await self._here.client.change("/v1/rules", {"program": PROGRAM}, key=new_key())
            ui.notify(f"The example was loaded in epoch {done['epoch']}.", type="positive")
            await self.refresh()
            with self._next:
                ui.link(f"Ask it: {QUERY}", address("/console/query", q=QUERY)).classes("font-mono")


def size(count: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:,.1f} {unit}"


def _metric(metrics: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def build(here: Here) -> None:
    Overview(here).build()


PAGE = Page("/console", "Overview", "dashboard", build, key="o")
