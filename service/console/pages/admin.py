"""Admin: tokens, audits, backups, and subscriptions, as far as the person may see and change them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from service.console.downloads import BACKUP
from service.console.here import Here, Page
from service.console.timeline import clock
from service.console.token_form import TokenForm

Json = dict[str, Any]
_AUDIT_COLOURS: Final = {"passed": "positive", "differs": "negative", "failed": "negative"}
_RUNNING: Final = ("queued", "running")
_LISTED: Final = 20
_MOST_DIFFERENCES: Final = 50


async def build(here: Here) -> None:
    page = _Admin(here)
    page.build()
    here.after_connect(page.load)


def _heading(text: str) -> None:
    ui.label(text).classes("text-h6").props('role="heading" aria-level=2')


class _Admin:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._admin = here.person.has("admin")

    def build(self) -> None:
        _heading("Access tokens")
        if self._admin:
            self._form = TokenForm(self._here, self._load_tokens)
            self._tokens = ui.column().classes("w-full gap-1")
        else:
            ui.label("Tokens are made and revoked with a token of the role admin.")
        _heading("Audits")
        ui.label(
            "An audit derives everything again from facts and rules, and compares it with what is held and published."
        )
        if self._admin:
            ui.button("Start an audit", icon="fact_check", on_click=self._audit).props("outline")
        self._audits = ui.column().classes("w-full gap-1")
        self._timer = ui.timer(1.5, self._load_audits, active=False, immediate=False)
        _heading("Backup")
        if self._admin:
            ui.label("One epoch of facts, rules and declarations, as a zip that can be read without Zedlog.")
            ui.link("Download a backup", BACKUP).props('download role="button"').classes("q-btn-item")
        else:
            ui.label("A backup has everything, so it needs a token of the role admin.")
        ui.label("To restore one, start a service with an empty database and send the file to it:")
        ui.label("zedlog restore BACKUP.zip").classes("font-mono")
        _heading("Subscriptions")
        self._subscriptions = ui.column().classes("w-full gap-1")

    async def load(self) -> None:
        """Ask for everything."""
        if self._admin:
            await self._load_tokens()
        await self._load_audits()
        await self._load_subscriptions()

    # ---- tokens

    async def _load_tokens(self) -> None:
        with self._here.telling():
            found = (await self._here.client.request("GET", "/v1/tokens"))["tokens"]
            self._form.know([one["name"] for one in found])
            self._tokens.clear()
            with self._tokens:
                if not found:
                    ui.label("There are no tokens: on this machine's own address nobody is asked for one.")
                for one in found:
                    self._token(one)

    def _token(self, one: Json) -> None:
        limits = []
        for right, words in (("reads", "reads"), ("writes", "writes")):
            if one[right] is not None:
                limits.append(f"{words} {', '.join(one[right]) or 'nothing'}")
        if one["rows"] is not None:
            limits.append(f"{one['rows']:,} rows an answer")
        if one["rate"] is not None:
            limits.append(f"{one['rate']:g} requests a second")
        if one["expires"] is not None:
            limits.append(f"{'expired' if one['expired'] else 'expires'} {clock(one['expires'])}")
        with ui.row().classes("w-full items-center"):
            ui.label(f"{one['name']}: {', '.join([one['role'], *limits])}").classes("grow").style(
                "overflow-wrap: anywhere; flex-basis: 12rem"
            )
            ui.button("Revoke", icon="key_off", on_click=lambda: self._revoke(one["name"])).props("outline")

    async def _revoke(self, name: str) -> None:
        if await _sure(f"Revoke the token {name}? Whoever uses it is refused from then on.", "Revoke"):
            with self._here.telling():
                await self._here.client.request("DELETE", f"/v1/tokens/{quote(name, safe='')}")
                await self._load_tokens()

    # ---- audits

    async def _audit(self) -> None:
        with self._here.telling():
            await self._here.client.request("POST", "/v1/audits")
            await self._load_audits()

    async def _load_audits(self) -> None:
        with self._here.telling():
            found = (await self._here.client.request("GET", "/v1/audits", params={"limit": _LISTED}))[
                "audits"
            ]
            self._timer.active = any(one["status"] in _RUNNING for one in found)
            self._audits.clear()
            with self._audits:
                if not found:
                    ui.label("No audit has been made yet.")
                for one in found:
                    _audit_row(one)

    # ---- subscriptions

    async def _load_subscriptions(self) -> None:
        with self._here.telling():
            found = await self._here.client.request("GET", "/v1/subscriptions")
            self._subscriptions.clear()
            with self._subscriptions:
                if not found["subscriptions"]:
                    ui.label("There are no subscriptions.")
                for one in found["subscriptions"]:
                    self._subscription(one)

    def _subscription(self, one: Json) -> None:
        about = one["query"] or ", ".join(one["relations"])
        state = (
            "has lost changes (gap)"
            if one["gap"]
            else f"{one['behind']:,} of at most {one['limit']:,} epochs behind"
        )
        with ui.row().classes("w-full items-center"):
            ui.label(f"{one['name']}: {about}; {state}").classes("grow").style(
                "overflow-wrap: anywhere; flex-basis: 12rem"
            )
            if self._here.person.has("writer"):
                ui.button("Delete", icon="delete", on_click=lambda: self._unsubscribe(one["name"])).props(
                    "outline"
                )

    async def _unsubscribe(self, name: str) -> None:
        if await _sure(f"Delete the subscription {name}? Nothing is kept for it from then on.", "Delete"):
            with self._here.telling():
                await self._here.client.request("DELETE", f"/v1/subscriptions/{quote(name, safe='')}")
                await self._load_subscriptions()


async def _sure(question: str, yes: str) -> bool:
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.row().classes("w-full justify-end"):
            ui.button("No", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button(yes, on_click=lambda: dialog.submit(True)).props("color=negative")
    answer = await dialog
    dialog.delete()
    return bool(answer)


def _audit_row(one: Json) -> None:
    report = one["report"]
    if report is not None:
        told = f"epoch {report['epoch']}, {report['tuples']:,} tuples, {report['supports']:,} supports, "
        told += f"{report['seconds']:.1f} s, {report['differing']:,} differences"
    else:
        told = one["why"] or ("waits for its turn" if one["status"] == "queued" else "")
    with ui.expansion().classes("w-full").props("dense") as row:
        with row.add_slot("header"), ui.row().classes("w-full items-center gap-2"):
            ui.badge(one["status"], color=_AUDIT_COLOURS.get(one["status"], "primary"))
            ui.label(f"{'full' if one['kind'] == 'full' else 'after a start'}, {told}").classes("grow").style(
                "overflow-wrap: anywhere; flex-basis: 12rem"
            )
            ui.label(clock(one["requested"])).classes("text-caption")
        ui.label(f"Asked for by: {one['cause']}.").classes("text-caption")
        if report is None:
            return
        for each in report["differences"][:_MOST_DIFFERENCES]:
            ui.label(f"{each['place']}, {each['relation']}: {each['tuple']} {each['what']}").classes(
                "font-mono text-caption"
            )
        for each in report["uncompared"]:
            ui.label(f"not compared: {each}").classes("text-caption")


PAGE = Page("/console/admin", "Admin", "admin_panel_settings", build, key="a")
