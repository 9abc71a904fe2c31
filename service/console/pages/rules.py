"""Rules: what there is, adding, changing and removing with a preview, and what the constraints found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from engine.errors import ZedlogError
from engine.language.parser import parse_program
from service.console.client import ClientError, ServiceError
from service.console.editor import Editor
from service.console.here import Here, Page, address
from service.console.preview import PATIENCE_SECONDS, RULES, TRANSACTIONS, Preview, draw, preview
from service.console.timeline import clock
from zedlog.client.connection import new_key

_ACTIONS: Final = """
<q-td :props="props">
<q-btn flat dense icon="edit" :aria-label="'Change ' + props.row.rule"
  @click="() => $parent.$emit('change', props.row)"/>
<q-btn flat dense icon="delete" :aria-label="'Remove ' + props.row.rule"
  @click="() => $parent.$emit('remove', props.row)"/></q-td>"""
_HEAD: Final = """
<q-td :props="props"><a :href="props.row.link" class="text-primary font-mono">{{ props.row.relation }}</a></q-td>"""
_VIOLATED: Final = "constraint_violated"


class RulesPage:
    """The page of one person. `_old`: the rule that the text in the editor takes the place of."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._old: Mapping[str, Any] | None = None
        self._tried: tuple[str, dict[str, Any]] | None = None
        self._columns: dict[str, list[str]] = {}

    def build(self) -> None:
        if self._here.person.has("writer"):
            self._build_editor()
        else:
            person = self._here.person
            ui.label(f"The role of {person.name} is {person.role}; changes need a writer.").classes("text-sm")
        ui.label("Rules").classes("text-h6").props('role="heading" aria-level=2')
        find = ui.input(placeholder="Find a rule").props('dense clearable aria-label="Find a rule"')
        self._table = self._build_table()
        self._table.bind_filter_from(find, "value")
        self._about = ui.label().classes("text-sm")
        ui.label("Constraints").classes("text-h6").props('role="heading" aria-level=2')
        self._constraints = ui.column().classes("w-full gap-2")
        self._here.after_connect(self.refresh)

    def _build_editor(self) -> None:
        self._title = ui.label("Add rules").classes("text-h6").props('role="heading" aria-level=2')
        self._editor = Editor(self._here.parameters.get("text", ""), "Rules", self.try_out)
        self._editor.element.on_value_change(lambda _: self._forget())
        with ui.row().classes("items-center gap-2"):
            with ui.button("Preview", icon="visibility", on_click=self.try_out):
                ui.tooltip("Ctrl+Enter")
            self._keep = ui.button("Keep it", icon="check", color="positive", on_click=self.keep)
            self._cancel = ui.button("Cancel", icon="close", on_click=self.begin).props("flat")
        ui.label(
            "Rules, declarations and facts, as program text. Nothing is kept before you have seen the preview."
        ).classes("text-sm")
        self._error = ui.label().props('role="alert"').classes("text-negative whitespace-pre-wrap font-mono")
        self._shown = ui.column().classes("w-full gap-1").props('aria-live="polite"')
        self.begin()

    def _build_table(self) -> ui.table:
        wide = {"classes": "zl-wide", "headerClasses": "zl-wide"}
        columns: list[dict[str, Any]] = [
            {"name": "stratum", "label": "Stratum", "field": "stratum", "sortable": True, **wide},
            {
                "name": "relation",
                "label": "Relation",
                "field": "relation",
                "align": "left",
                "sortable": True,
                **wide,
            },
            {
                "name": "rule",
                "label": "Rule",
                "field": "rule",
                "align": "left",
                "style": "white-space: normal",
            },
            {"name": "weight", "label": "Weight", "field": "weight", "sortable": True, **wide},
            {"name": "tuples", "label": "Derived in the relation", "field": "tuples", "sortable": True},
            {"name": "changed", "label": "Changed last", "field": "changed", "align": "left", **wide},
        ]
        columns[2]["classes"] = "font-mono"
        columns[4][":format"] = "(value) => value === null ? '' : value.toLocaleString('en')"
        if self._here.person.has("writer"):
            columns.append({"name": "actions", "label": "", "field": "id"})
        table = ui.table(columns=columns, rows=[], row_key="id", pagination=25).classes("w-full")
        table.props("dense flat bordered wrap-cells")
        table.add_slot("body-cell-actions", _ACTIONS)
        table.add_slot("body-cell-relation", _HEAD)
        table.on("change", lambda event: self.change(event.args))
        table.on("remove", lambda event: self.remove(event.args))
        return table

    # ---- what there is

    async def refresh(self) -> None:
        """Ask for all of it again."""
        client = self._here.client
        with self._here.telling():
            rules = await client.request("GET", "/v1/rules")
            known = (await client.request("GET", "/v1/relations"))["relations"]
            epochs = (await client.request("GET", "/v1/epochs", params={"limit": 100}))["epochs"]
            self._columns = {one["relation"]: [c["name"] for c in one["columns"]] for one in known}
            if self._here.person.has("writer"):
                self._editor.know(known)
            counts = {one["relation"]: one["counts"] for one in known}
            strata = await self._strata()
            self._table.rows = [self._row(rule, strata, counts, epochs) for rule in rules["rules"]]
            self._about.text = "" if rules["rules"] else "There are no rules yet."
            await self._draw_constraints(rules["declarations"], counts)

    async def _strata(self) -> dict[str, int]:
        """By rule: the number of its stratum. A token that may read only some relations does not see the circuit."""
        try:
            circuit = await self._here.client.request("GET", "/v1/circuit")
        except ServiceError as error:
            if error.status != 403:
                raise
            return {}
        return {rule["id"]: stratum["number"] for stratum in circuit["strata"] for rule in stratum["rules"]}

    def _row(
        self,
        rule: Mapping[str, Any],
        strata: Mapping[str, int],
        counts: Mapping[str, Mapping[str, int]],
        epochs: list[dict[str, Any]],
    ) -> dict[str, Any]:
        name = rule["canonical"].partition("(")[0].strip()
        last = next((one for one in epochs if name in one["changes"]), None)
        changed = ""
        if last is not None:
            change = last["changes"][name]
            changed = f"epoch {last['epoch']}: +{change['inserted']:,} -{change['deleted']:,}"
            changed += f", {last['elapsed_ms']:,.1f} ms"
        return {
            "id": rule["id"],
            "rule": rule["rule"],
            "canonical": rule["canonical"],
            "weight": rule["weight"],
            "relation": name,
            "stratum": strata.get(rule["id"]),
            "tuples": counts[name]["derived"] if name in counts else None,
            "changed": changed,
            "link": address("/console/query", q=f"{name}({', '.join(self._columns.get(name, ()))})"),
        }

    async def _draw_constraints(self, declarations: str, counts: Mapping[str, Mapping[str, int]]) -> None:
        try:
            declared = [one for one in parse_program(declarations).declarations if one.is_constraint]
        except ZedlogError:
            declared = []
        refused = await self._here.client.request(
            "GET", TRANSACTIONS, params={"status": "refused", "limit": 100}
        )
        found = [one for one in refused["transactions"] if (one["problem"] or {}).get("code") == _VIOLATED]
        self._constraints.clear()
        with self._constraints:
            if not declared:
                ui.label("No relation is declared as a constraint.").classes("text-sm")
            for one in declared:
                count = counts.get(one.relation, {}).get("all", 0)
                state = (
                    "holds: the relation is empty, as it must be"
                    if not count
                    else f"{count:,} tuples violate it"
                )
                columns = ", ".join(f"{column.name}: {column.type}" for column in one.columns)
                ui.label(f"{one.relation}({columns})").classes("font-mono text-bold")
                ui.label(state).classes("text-sm")
            if found:
                ui.label("Changes that constraints refused, the newest first:").classes("text-bold")
            for one in found[:20]:
                with ui.row().classes("items-baseline gap-3"):
                    ui.label(clock(one["time"])).classes("text-sm")
                    ui.label(one["problem"]["message"]).classes("text-sm break-words")

    # ---- adding, changing, removing

    def begin(self) -> None:
        """An empty editor for new rules."""
        self._edit("Add rules", None, "")

    def change(self, row: Mapping[str, Any]) -> None:
        """Put a rule into the editor; what is kept takes its place."""
        self._edit(f"Change {row['id']}", row, row["rule"])

    def _edit(self, title: str, old: Mapping[str, Any] | None, text: str) -> None:
        self._old = old
        self._title.text = title
        if text or old is not None or self._tried is not None:
            self._editor.text = text
        self._cancel.set_visibility(old is not None)
        self._forget()

    def _forget(self) -> None:
        """What was tried is no longer what would be kept."""
        self._tried = None
        self._keep.set_visibility(False)
        self._error.text = ""
        self._shown.clear()

    async def remove(self, row: Mapping[str, Any]) -> None:
        """Preview the removal of a rule, with all of its weight."""
        self._old = None
        self._cancel.set_visibility(True)
        self._title.text = f"Remove {row['id']}"
        await self._try(TRANSACTIONS, {"rules": [{"rule": row["canonical"], "weight": -row["weight"]}]})

    async def try_out(self) -> None:
        """Preview what is in the editor."""
        text = self._editor.text.strip()
        if not text:
            self._error.text = "Write a rule first, for example: reach(x, y) :- edge(x, y)."
            return
        if self._old is None:
            await self._try(RULES, {"program": text}, text)
            return
        old = {"rule": self._old["canonical"], "weight": -self._old["weight"]}
        new = {"rule": text, "weight": self._old["weight"]}
        await self._try(TRANSACTIONS, {"rules": [old, new]}, text)

    async def _try(self, path: str, body: dict[str, Any], rule: str = "") -> None:
        self._forget()
        ui.run_javascript("window.scrollTo({ top: 0 })")
        with self._shown:
            ui.spinner()
        try:
            found = await preview(self._here.client, path, body, rule)
        except ClientError as error:
            self._refuse(error)
            return
        self._tried = (path, body)
        self._show(found, kept=False)
        self._keep.set_visibility(True)

    async def keep(self) -> None:
        """Do what was tried."""
        if self._tried is None:
            return
        path, body = self._tried
        self._tried = None
        self._keep.set_visibility(False)
        try:
            # With a key, so that an answer that was lost does not apply it twice.
            done = await self._here.client.change(path, body, key=new_key(), patience=PATIENCE_SECONDS)
        except ClientError as error:
            self._refuse(error)
            return
        self._edit("Add rules", None, "")
        self._show(Preview(done), kept=True)
        await self.refresh()

    def _show(self, found: Preview, *, kept: bool) -> None:
        self._shown.clear()
        with self._shown, ui.card().classes("w-full gap-1").props("flat bordered"):
            draw(found, kept)

    def _refuse(self, error: ClientError) -> None:
        self._forget()
        if not isinstance(error, ServiceError):
            self._error.text = str(error)
            return
        if error.status == 401:
            self._here.tell(error)
        self._error.text = f"{error.code}: {error.problem.get('rendered') or error.detail}"
        self._editor.mark(error.problem)


async def build(here: Here) -> None:
    RulesPage(here).build()


PAGE = Page("/console/rules", "Rules", "rule", build, key="r")
