"""What a change would do, shown in a dialog, and the button that keeps it.

Always: nothing is kept before it was shown; what is kept is sent with an idempotency key, so that a second click cannot
apply it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from service.console.here import Here
from service.console.preview import TRANSACTIONS, draw, preview
from zedlog.client.connection import keyed, new_key

Json = dict[str, Any]


async def propose(
    here: Here, what: str, body: Mapping[str, Any], then: Callable[[Json], Awaitable[None]]
) -> None:
    """Show what a transaction would do, and let the person keep it. what: names it. then: is called with the result of
    the transaction."""
    with here.telling():
        found = await preview(here.client, TRANSACTIONS, body)
        key = new_key()
        with here.tab, ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 48rem"):
            ui.label(what).classes("text-subtitle1 break-all")
            draw(found)

            async def keep() -> None:
                button.disable()
                with here.telling():
                    result = await here.client.request("POST", TRANSACTIONS, json=body, headers=keyed(key))
                    dialog.close()
                    ui.notify(committed(result), type="positive")
                    await then(result)
                    return
                button.enable()

            with ui.row().classes("w-full justify-end"):
                ui.button("Close", on_click=dialog.close).props("flat")
                button = ui.button("Keep it", icon="check", color="positive", on_click=keep)
        dialog.on("hide", dialog.delete)
        dialog.open()


def committed(result: Mapping[str, Any]) -> str:
    """What the answer to a transaction says, in a line."""
    if "epoch" not in result:
        return f"It is in the log as transaction {result['transaction']}, and will be applied."
    total = changed(result)
    return f"Committed as epoch {result['epoch']}: {total:,} tuple{'' if total == 1 else 's'} changed."


def changed(result: Mapping[str, Any]) -> int:
    """How many tuples appeared or went, in all."""
    return sum(change["inserted"] + change["deleted"] for change in result["changes"].values())
