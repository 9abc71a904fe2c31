"""Overview: what there is, and how it goes."""

from __future__ import annotations

from nicegui import ui

from service.console.here import Here, Page


async def build(here: Here) -> None:
    """The relations and how many tuples each has."""
    box = ui.column().classes("w-full")

    async def load() -> None:
        with here.telling():
            document = await here.client.request("GET", "/v1/relations")
            with box:
                ui.label(f"{len(document['relations'])} relations in epoch {document['epoch']}")

    here.after_connect(load)


PAGE = Page("/console", "Overview", "dashboard", build, key="o")
