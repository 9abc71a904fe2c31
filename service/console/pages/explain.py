"""Explain: why a tuple holds, why not, and why it changed, opened node by node."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from service.console.client import ClientError
from service.console.dry_run import propose
from service.console.here import Here, Page, address
from service.console.proof_tree import Entry, ProofTree

Json = dict[str, Any]
WAYS_PAGE: Final = 50
_REPAIRS: Final = 3
_REPAIR_SECONDS: Final = 60
_MODES: Final = {
    "why": "Why, or why not",
    "ways": "All ways to derive it",
    "change": "Why it changed at the epoch",
}
_ICONS: Final = {
    "fact": ("inventory_2", "positive"),
    "rule": ("functions", "primary"),
    "fold": ("calculate", "primary"),
    "open": ("help_outline", "secondary"),
    "withheld": ("lock", "secondary"),
    "absent": ("block", "secondary"),
    "condition": ("rule", "secondary"),
    "missing": ("cancel", "negative"),
    "fails": ("error_outline", "negative"),
    "cause": ("bolt", "accent"),
}
_HEADER: Final = """
<div class="row items-baseline no-wrap" style="gap: .4rem; min-width: 0">
  <q-icon :name="props.node.icon" :color="props.node.color" style="align-self: center"></q-icon>
  <div style="min-width: 0; overflow-wrap: anywhere">
    <span class="font-mono">{{ props.node.label }}</span>
    <span class="text-caption q-ml-sm" style="opacity: .8">{{ props.node.note }}</span>
    <a v-if="props.node.href" :href="props.node.href" class="q-ml-sm text-caption" @click.stop
       :aria-label="'Explain ' + props.node.label">explain</a>
  </div>
</div>
"""


async def build(here: Here) -> None:
    explanation = _Explanation(here)
    with ui.row().classes("w-full items-end"):
        explanation.text = (
            ui.input("Tuple", placeholder='tc("a", "d")', value=here.parameters.get("tuple", ""))
            .props("autofocus clearable input-class=font-mono spellcheck=false")
            .classes("grow")
            .on("keydown.enter", explanation.ask)
        )
        chosen = here.parameters.get("mode", "why")
        explanation.mode = ui.select(_MODES, value=chosen if chosen in _MODES else "why", label="Question")
        explanation.epoch = ui.number(
            "Epoch (or the newest)",
            value=_number(here.parameters.get("as_of")),
            min=0,
            precision=0,
            format="%d",
        ).props('clearable style="width: 12rem"')
        explanation.origins = ui.checkbox(
            "Where facts come from", value=here.parameters.get("origins") == "yes"
        )
        ui.button("Explain", icon="account_tree", on_click=explanation.ask)
    explanation.told = ui.label().props("aria-live=polite").classes("break-all")
    explanation.answer = ui.column().classes("w-full")
    if explanation.text.value:
        here.after_connect(explanation.ask)
    else:
        explanation.told.set_text(
            'Write a tuple, such as tc("a", "d"), and press Enter. One that holds is proved, down to facts; of one '
            "that does not hold, the rules show how far they get."
        )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None


class _Explanation:
    """The question of a page, and its answer."""

    text: ui.input
    mode: ui.select
    epoch: ui.number
    origins: ui.checkbox
    told: ui.label
    answer: ui.column

    def __init__(self, here: Here) -> None:
        self._here = here

    async def ask(self) -> None:
        """Ask what the fields say, and show the answer."""
        text, mode = (self.text.value or "").strip().removesuffix("."), self.mode.value
        epoch = None if self.epoch.value is None else int(self.epoch.value)
        if not text:
            return
        if mode == "change" and epoch is None:
            self.told.set_text("Say at which epoch it changed.")
            return
        # Repairs are looked for afterwards: each is tried by a dry run, and the reasons need not wait for that.
        body: Json = {"tuple": text, "origins": self.origins.value, "repairs": 0}
        if mode == "ways":
            body |= {"all": True, "limit": WAYS_PAGE}
        if epoch is not None:
            body["changed_at" if mode == "change" else "as_of"] = epoch
        self._here.remember(
            tuple=text,
            as_of=epoch,
            mode=None if mode == "why" else mode,
            origins="yes" if body["origins"] else None,
        )
        self.told.set_text("…")
        found = None
        with self._here.telling():
            found = await self._here.client.request("POST", "/v1/explain", json=body)
        self.answer.clear()
        self.told.set_text("" if found is None else _said(found))
        if found is not None:
            with self.answer:
                await self._show(found, body)

    async def _explained(self, text: str, epoch: int) -> Json:
        """A tuple of the tree by itself."""
        body = {"node": text, "as_of": epoch, "origins": self.origins.value, "repairs": 0}
        found: Json = await self._here.client.request("POST", "/v1/explain", json=body)
        return found

    async def _show(self, found: Json, body: Json) -> None:
        proofs = ProofTree(self._explained, found["epoch"])
        tree = _Tree(self._here, proofs.top(found))
        if "derivations" not in found:
            await tree.open_first()
        if found.get("cursor"):
            cursor = found["cursor"]

            async def more() -> None:
                nonlocal cursor
                with self._here.telling():
                    page = await self._here.client.request(
                        "POST", "/v1/explain", json={**body, "cursor": cursor}
                    )
                    tree.add(proofs.top(page))
                    cursor = page.get("cursor")
                    button.set_visibility(cursor is not None)

            button = ui.button("More ways", on_click=more).props("flat")
        if not found.get("holds", True) and "as_of" not in body:
            await self._repairs(body)

    async def _repairs(self, body: Json) -> None:
        ui.label("Smallest repairs").classes("text-h6").props('role="heading" aria-level=2')
        with ui.row().classes("items-center no-wrap") as waiting:
            ui.spinner()
            ui.label("Changes of facts are being tried by dry runs …")
        found = None
        try:
            found = await self._here.client.request(
                "POST", "/v1/explain", json={**body, "repairs": _REPAIRS, "timeout": _REPAIR_SECONDS}
            )
        except ClientError as error:
            ui.label(str(error)).style("overflow-wrap: anywhere")
        waiting.delete()
        if found is None or "repairs" not in found:
            return
        search = found["search"]
        if not found["repairs"]:
            ui.label("No change of facts was found that makes it hold.")
        for repair in found["repairs"]:
            what = ", ".join(f"{one['change']} {one['fact']}" for one in repair)
            with ui.row().classes("w-full items-center"):
                ui.label(what).classes("font-mono grow").style("overflow-wrap: anywhere; flex-basis: 12rem")
                button = ui.button(
                    "Preview",
                    icon="visibility",
                    on_click=lambda _, r=repair, w=what: self._preview(found["root"], r, w),
                ).props("outline")
                button.set_visibility(self._here.person.has("writer"))
        if not search["complete"]:
            ui.label(f"The search ended at a limit: {search['limit']}").classes("text-caption")

    async def _preview(self, root: str, repair: list[Json], what: str) -> None:
        facts = [
            {"relation": one["relation"], "tuples": [one["tuple"]], "weight": one["weight"]} for one in repair
        ]
        body = {"facts": facts, "message": f"repair, so that {root} holds"[:2000]}

        async def again(_: Json) -> None:
            self.epoch.set_value(None)
            await self.ask()

        await propose(self._here, what, body, again)


def _said(found: Json) -> str:
    at = f"at epoch {found['epoch']}"
    if "after" in found:
        return f"{found['root']} {found.get('change', 'after the epoch')} {at}."
    if "derivations" in found:
        return f"{found['root']} holds {at}; there are {found['count']:,} ways to derive it."
    if not found["holds"]:
        return f"{found['root']} does not hold {at}."
    known = len(found["nodes"])
    left = "" if found["complete"] else "; what is not followed yet is asked for when it is opened"
    return f"{found['root']} holds {at}. The proof has {known:,} tuple{'' if known == 1 else 's'}{left}."


class _Tree:
    """The tree on the page. Only what was opened is sent to the browser."""

    def __init__(self, here: Here, entries: list[Entry]) -> None:
        self._here = here
        self._closed: dict[str, Entry] = {}
        self._nodes: dict[str, Json] = {}
        self._top: list[Json] = []
        self._tree = ui.tree([], on_expand=self._expanded).props("no-transition").classes("w-full")
        self._tree.add_slot("default-header", _HEADER)
        self.add(entries)

    def add(self, entries: list[Entry]) -> None:
        self._top += [self._node(f"{len(self._top) + number}", entry) for number, entry in enumerate(entries)]
        self._send()

    def _send(self) -> None:
        # Properties are copied when they are set.
        self._tree.props["nodes"] = list(self._top)
        self._tree.update()

    def _node(self, key: str, entry: Entry) -> Json:
        icon, color = _ICONS.get(entry.kind, ("more_horiz", "secondary"))
        href = None if entry.tuple is None else address("/console/explain", tuple=entry.tuple)
        node: Json = {
            "id": key,
            "label": entry.text,
            "note": entry.note,
            "icon": icon,
            "color": color,
            "href": href,
        }
        if entry.inside is not None:
            # The browser offers to open what has something inside.
            node["children"] = [
                {"id": f"{key}.", "label": "…", "note": "", "icon": "more_horiz", "color": "secondary"}
            ]
            self._closed[key] = entry
        self._nodes[key] = node
        return node

    async def open_first(self) -> None:
        """Open the entries at the top."""
        for node in list(self._top):
            await self._load(node["id"])
        self._tree.expand([node["id"] for node in self._top])

    async def _expanded(self, event: ValueChangeEventArguments[list[str]]) -> None:
        for key in [key for key in event.value if key in self._closed]:
            await self._load(key)

    async def _load(self, key: str) -> None:
        entry = self._closed.pop(key, None)
        if entry is None or entry.inside is None:
            return
        with self._here.telling():
            inside = await entry.inside()
            self._nodes[key]["children"] = [
                self._node(f"{key}.{number}", one) for number, one in enumerate(inside)
            ]
            self._send()
            return
        # It may be tried again: the error was shown.
        self._closed[key] = entry


PAGE = Page("/console/explain", "Explain", "account_tree", build, key="e")
