"""Circuit: strata, rules and plans as a graph that is zoomed and moved, and as a list, with what the last epoch did."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments, ValueChangeEventArguments

from service.console.circuit_graph import LEGEND, MOST_NODES, Detail, details, options, plan_text, title
from service.console.here import Here, Page, address

Json = dict[str, Any]
_MOST_LISTED: Final = 200
_WORDS: Final = {"rules": "Relations and rules", "relations": "Relations", "strata": "Strata"}


async def build(here: Here) -> None:
    page = _Circuit(here)
    page.told = ui.label("…").props("aria-live=polite")
    page.place = ui.column().classes("w-full")
    here.after_connect(page.load)


class _Circuit:
    """What the API says of the circuit, and how it is drawn."""

    told: ui.label
    place: ui.column

    def __init__(self, here: Here) -> None:
        self._here = here
        self._circuit: Json = {}
        self._counts: dict[str, int] = {}
        self._epoch: Json | None = None

    async def load(self) -> None:
        """Ask for everything, and draw it."""
        ask = self._here.client.request
        with self._here.telling():
            self._circuit = await ask("GET", "/v1/circuit")
            relations = await ask("GET", "/v1/relations")
            self._counts = {one["relation"]: one["counts"]["all"] for one in relations["relations"]}
            epochs = (await ask("GET", "/v1/epochs", params={"limit": 1}))["epochs"]
            self._epoch = epochs[0] if epochs else None
            self._said()
            self.place.clear()
            with self.place:
                self._build()

    def _said(self) -> None:
        if not self._circuit["strata"]:
            self.told.set_text("The database is empty: rules make the circuit.")
            return
        rules = sum(len(stratum["rules"]) for stratum in self._circuit["strata"])
        text = f"{len(self._circuit['strata']):,} strata, {rules:,} rules, {len(self._circuit['indexes']):,} indexes."
        if self._epoch is not None:
            one = self._epoch
            derivations = one.get("cost", {}).get("derivations")
            work = "" if derivations is None else f", {derivations:,} derivations"
            text += f" Epoch {one['epoch']}: {one['strategy']}, {one['placement']}{work}, {one['elapsed_ms']:.1f} ms."
        away = sum(one.get("place") == "spark" for one in self._circuit["strata"])
        if away:
            text += f" {away:,} of the strata are on Spark, the others in the engine process."
        self.told.set_text(text)

    def _build(self) -> None:
        if not self._circuit["strata"]:
            return
        possible = details(self._circuit)
        asked = self._here.parameters.get("detail")
        with ui.row().classes("w-full items-center"):
            choice = ui.toggle(
                {one: _WORDS[one] for one in possible}, value=asked if asked in possible else possible[0]
            )
            ui.button("Whole", icon="fit_screen", on_click=lambda: self._draw(choice.value)).props("flat")
            ui.label("Wheel or pinch to zoom, drag to move, click for the plans.").classes(
                "text-caption zl-wide"
            )
        if len(self._circuit["strata"]) > MOST_NODES:
            ui.label(f"The first {MOST_NODES} strata are drawn.").classes("text-caption")
        with ui.row().classes("gap-3 text-caption"):
            for colour, words in LEGEND:
                with ui.row().classes("items-center gap-1"):
                    ui.element("span").style(
                        f"width: .8rem; height: .8rem; border-radius: 3px; background: {colour}"
                    )
                    ui.label(words)
        self._canvas = ui.column().classes("w-full")
        self._chosen = ui.column().classes("w-full").props("aria-live=polite")
        self._draw(choice.value)
        choice.on_value_change(lambda event: self._redraw(event.value))
        self._list()

    def _redraw(self, detail: Detail) -> None:
        self._here.remember(detail=detail)
        self._draw(detail)

    def _draw(self, detail: Detail) -> None:
        self._canvas.clear()
        with self._canvas:
            ui.echart(
                options(self._circuit, self._counts, self._epoch, detail),
                on_point_click=self._clicked,
                renderer="svg",
            ).classes("w-full rounded-borders").style(
                "height: 58vh; min-height: 22rem; border: 1px solid #8884"
            ).props('role=img aria-label="The circuit as a graph; the list below says the same"')

    def _clicked(self, event: EChartPointClickEventArguments) -> None:
        about = event.data.get("about") if isinstance(event.data, dict) else None
        if about is None:
            return
        stratum = self._circuit["strata"][about["stratum"]]
        rules = [one for one in stratum["rules"] if about["kind"] != "rule" or one["id"] == about["rule"]]
        self._chosen.clear()
        with self._chosen, ui.card().props("flat bordered").classes("w-full gap-2"):
            ui.label(about.get("relation") or title(stratum)).classes("text-subtitle1")
            if about["kind"] == "relation":
                relation = about["relation"]
                ui.link("Its tuples", address("/console/query", q=_goal(self._circuit, relation)))
                rules = [
                    one for one in rules if one["plans"] and one["plans"][0]["head"]["relation"] == relation
                ]
            _rules(rules)

    def _list(self) -> None:
        ui.label("Strata").classes("text-h6").props('role="heading" aria-level=2')
        for stratum in self._circuit["strata"][:_MOST_LISTED]:
            with ui.expansion(title(stratum)).classes("w-full").props("dense") as expansion:
                inside = ui.column().classes("w-full gap-2")

            def opened(
                event: ValueChangeEventArguments[bool], one: Json = stratum, box: ui.column = inside
            ) -> None:
                # Sent only when it is opened: a program may have hundreds of strata.
                if event.value and not box.default_slot.children:
                    with box:
                        self._stratum(one)

            expansion.on_value_change(opened)
        left = len(self._circuit["strata"]) - _MOST_LISTED
        if left > 0:
            ui.label(f"and {left:,} more; the graph and `zedlog plan` have all").classes("text-caption")

    def _stratum(self, stratum: Json) -> None:
        changes = (self._epoch or {}).get("changes", {})
        for relation in stratum["relations"]:
            change = changes.get(relation)
            last = "" if change is None else f", last epoch +{change['inserted']:,} -{change['deleted']:,}"
            ui.label(f"{relation}: {self._counts.get(relation, 0):,} tuples{last}")
        if stratum["pivot"]:
            columns = ", ".join(f"column {column + 1} of {name}" for name, column in stratum["pivot"].items())
            ui.label(f"Evaluated in blocks of {columns}.").classes("text-caption")
        for fold in stratum["folds"]:
            over = f" over {', '.join(fold['sources'])}" if fold["sources"] else ", in place"
            ui.label(f"{fold['target']}: {fold['function']} in column {fold['column'] + 1}{over}")
        _rules(stratum["rules"])


def _rules(rules: list[Json]) -> None:
    for rule in rules:
        with ui.column().classes("w-full gap-0"):
            ui.label(rule["rule"]).classes("font-mono").style("overflow-wrap: anywhere")
            ui.label(rule["id"]).classes("text-caption")
            for plan in rule["plans"]:
                ui.label(plan_text(plan)).classes("font-mono text-caption q-pl-md").style(
                    "overflow-wrap: anywhere"
                )


def _goal(circuit: Json, relation: str) -> str:
    """A query for the relation's tuples."""
    arity = circuit["relations"].get(relation, 0)
    return f"{relation}({', '.join(f'x{number + 1}' for number in range(arity))})"


PAGE = Page("/console/circuit", "Circuit", "schema", build, key="i")
