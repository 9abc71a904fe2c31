"""Changes: what each epoch changes, live; paused and resumed without losing anything."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from service.console.feed import EXAMPLES, HELD, Event, Feed
from service.console.here import Here, Page, address
from service.console.rows import as_text
from service.console.timeline import clock

_REFRESH_SECONDS: Final = 0.4
_MOST_RELATIONS: Final = 100
_STATES: Final = {
    "live": ("Live", "positive"),
    "waiting": ("Waiting for the service", "warning"),
    "paused": ("Paused", "secondary"),
    "ended": ("Ended", "negative"),
}


async def build(here: Here) -> None:
    page = _Changes(here)
    page.build()
    here.after_connect(page.begin)


class _Changes:
    """The filter, the feed, and what is shown of it."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._feed: Feed | None = None
        self._shown = -1
        self._cards: dict[int, ui.element] = {}

    def build(self) -> None:
        given = self._here.parameters
        chosen = [name for name in given.get("relation", "").split(",") if name]
        with ui.row().classes("w-full items-end"):
            self._relations = (
                ui.select(chosen, value=chosen, multiple=True, label="Relations (none: all of them)")
                .props("use-chips clearable")
                .classes("grow")
                .style("min-width: 12rem")
            )
            self._query = (
                ui.input("or a query", placeholder='tc("a", x), !edge("a", x)', value=given.get("query", ""))
                .props("clearable input-class=font-mono spellcheck=false")
                .classes("grow")
                .on("keydown.enter", self.start)
            )
            after = given.get("after", "")
            self._after = ui.number(
                "After epoch (or the newest)",
                value=int(after) if after.isascii() and after.isdecimal() else None,
                min=0,
                format="%d",
            ).props('clearable style="width: 13rem"')
            ui.button("Start", icon="play_arrow", on_click=self.start)
        with ui.row().classes("w-full items-center"):
            self._state = ui.badge("", color="secondary").props("role=status")
            self._told = ui.label().classes("grow break-all").props("aria-live=polite")
            self._pause = ui.button("Pause", icon="pause", on_click=self._turn).props("outline")
            self._pause.set_visibility(False)
        self._list = ui.column().classes("w-full gap-2").props("role=log")
        ui.timer(_REFRESH_SECONDS, self._refresh)
        self._here.tab.on_delete(self._leave)

    async def begin(self) -> None:
        """Learn the relations, and start with what the address says."""
        with self._here.telling():
            found = await self._here.client.request("GET", "/v1/relations")
            names = [one["relation"] for one in found["relations"]]
            self._relations.set_options(names, value=[one for one in self._relations.value if one in names])
            if not names:
                self._told.set_text("The database is empty: there is nothing yet that could change.")
                return
        await self.start()

    async def start(self) -> None:
        """Begin with the filter as it is now."""
        await self._leave()
        query = (self._query.value or "").strip().removesuffix(".")
        relations = list(self._relations.value or ())
        after = None if self._after.value is None else int(self._after.value)
        self._here.remember(relation=",".join(relations), query=query, after=after)
        asked: dict[str, Any] = (
            {"query": query} if query else {"relation": relations or self._relations.options}
        )
        if not query and not asked["relation"]:
            return
        if not query and len(asked["relation"]) > _MOST_RELATIONS:
            self._told.set_text(f"Choose at most {_MOST_RELATIONS} relations, or write a query.")
            return
        self._list.clear()
        self._cards.clear()
        self._feed, self._shown = Feed(self._here.client, asked, None if after is None else str(after)), -1
        self._feed.resume()
        self._pause.set_visibility(True)

    async def _turn(self) -> None:
        feed = self._feed
        if feed is None:
            return
        if feed.state in ("paused", "ended"):
            feed.resume()
        else:
            await feed.pause()
        self._refresh()

    async def _leave(self) -> None:
        if self._feed is not None:
            await self._feed.pause()

    def _refresh(self) -> None:
        """Show what has come since the last time: however fast epochs come, the page changes a few times a second."""
        feed = self._feed
        if feed is None or feed.revision == self._shown:
            return
        self._shown = feed.revision
        words, colour = _STATES[feed.state]
        self._state.set_text(words)
        self._state.props(f"color={colour}")
        at = "" if feed.epoch is None else f", up to epoch {feed.epoch}"
        left = feed.received - len(feed.events)
        more = f"; the newest {HELD} are shown" if left > 0 else ""
        problem = f". {feed.problem}" if feed.problem else ""
        self._told.set_text(
            f"{feed.received:,} epoch{'' if feed.received == 1 else 's'} with changes{at}{more}{problem}"
        )
        resumes = feed.state in ("paused", "ended")
        self._pause.set_text("Resume" if resumes else "Pause")
        self._pause.props(f"icon={'play_arrow' if resumes else 'pause'}")
        held = {event.epoch for event in feed.events}
        for epoch in [epoch for epoch in self._cards if epoch not in held]:
            self._cards.pop(epoch).delete()
        for event in reversed(feed.events):
            if event.epoch not in self._cards:
                with self._list:
                    card = self._cards[event.epoch] = self._card(event)
                card.move(target_index=0)

    def _card(self, event: Event) -> ui.element:
        about_query = bool(self._feed and "query" in self._feed.asked)
        with ui.card().props("flat bordered").classes("w-full q-pa-sm gap-1") as card:
            time = "" if event.time is None else f", {clock(event.time)}"
            ui.label(f"Epoch {event.epoch}{time}").classes("text-bold")
            for change in event.changes:
                name = "the answer" if about_query else change.relation
                ui.label(f"{name}: +{change.inserted:,} -{change.deleted:,}").classes("text-caption")
                for sign, row in change.examples:
                    name = "" if about_query else change.relation
                    text = f"{name}({', '.join(map(as_text, row))})"
                    with ui.row().classes("no-wrap items-baseline gap-2"):
                        ui.label(f"{sign} {text}").classes("font-mono").style("overflow-wrap: anywhere")
                        if not about_query:
                            why = address("/console/explain", tuple=text, as_of=event.epoch, mode="change")
                            ui.link("why", why).classes("text-caption")
                left = change.inserted + change.deleted - len(change.examples)
                if left > 0:
                    ui.label(f"and {left:,} more (the first {EXAMPLES} are shown)").classes("text-caption")
        return card


PAGE = Page("/console/changes", "Changes", "stream", build, key="c")
