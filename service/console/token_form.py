"""Making an access token: its rights, and its secret, which is shown once.

Always: the secret is in the browser's window and nowhere else; it is not kept by the page, and gone when its window is
closed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui

from service.console.here import Here

Json = dict[str, Any]
_DAY_SECONDS: Final = 86_400
_ROLES: Final = {
    "reader": "reader: asks and reads",
    "writer": "writer: also changes facts and rules",
    "admin": "admin: also tokens, audits, backups",
}


class TokenForm:
    """The form. made: is called when the window with a new token was closed."""

    def __init__(self, here: Here, made: Callable[[], Awaitable[None]]) -> None:
        self._here, self._made = here, made
        with ui.row().classes("w-full items-end"):
            self._name = ui.input("Name", placeholder="dashboard").props("spellcheck=false maxlength=64")
            self._role = ui.select(_ROLES, value="reader", label="Role").style("min-width: 14rem")
            self._reads = ui.input("Reads only", placeholder="tc, edge (empty: all)").props(
                "spellcheck=false"
            )
            self._writes = ui.input("Writes only", placeholder="edge (empty: all)").props("spellcheck=false")
            self._days = ui.number("Days (or without end)", min=1, format="%g").style("width: 12rem")
            ui.button("Make a token", icon="key", on_click=self._make)
        with ui.row().classes("no-wrap items-center") as self._warning:
            ui.icon("warning", color="warning", size="sm")
            ui.label(
                "This would be the first token: from then on the service asks everybody for one, also on this machine, "
                "and also you. Make one with the role admin first."
            )
        self._warning.set_visibility(False)

    def know(self, names: list[str]) -> None:
        """The tokens that there are."""
        self._warning.set_visibility(not names)

    async def _make(self) -> None:
        name = (self._name.value or "").strip()
        if not name:
            ui.notify("Give the token a name: it is the author of what is done with it.", type="warning")
            return
        body: Json = {"name": name, "role": self._role.value}
        for right, given in (("reads", self._reads.value), ("writes", self._writes.value)):
            relations = [one.strip() for one in (given or "").split(",") if one.strip()]
            if relations:
                body[right] = relations
        if self._days.value is not None:
            body["expires_in"] = self._days.value * _DAY_SECONDS
        with self._here.telling():
            found = await self._here.client.request("POST", "/v1/tokens", json=body)
            self._name.set_value("")
            await self._show(found["name"], found["token"])

    async def _show(self, name: str, secret: str) -> None:
        with ui.dialog().props("persistent") as dialog, ui.card().style("max-width: 40rem"):
            ui.label(f"The token {name}").classes("text-subtitle1")
            ui.label("It is shown only now: nobody can read it again. Keep it where secrets are kept.")
            ui.label(secret).classes("font-mono break-all").props('id=new-token aria-label="The token"')
            with ui.row().classes("w-full justify-end"):
                ui.button(
                    "Copy",
                    icon="content_copy",
                    on_click=lambda: ui.run_javascript(
                        f"navigator.clipboard.writeText({json.dumps(secret)})"
                    ),
                ).props("outline")
                ui.button("Close", on_click=lambda: dialog.submit(True))
        await dialog
        dialog.delete()
        # With the first token this leads to the login.
        await self._made()
