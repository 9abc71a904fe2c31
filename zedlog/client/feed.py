"""Following a feed of changes through every interruption.

In: what the feed is about, and from where on. Out: the service's events as JSON, each change once, whatever was cut off
in between: the token of the last event that arrived as a whole is sent when coming back. Only the last part of a state
has a position: who is cut off before it begins with the state again, at part 0.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from zedlog.client.connection import Connection
from zedlog.client.errors import Json, ServiceError, Unreachable, error_of

if TYPE_CHECKING:
    from zedlog.client.events import Event

HEARTBEAT = 10.0
FIRST_PAUSE, LAST_PAUSE = 0.25, 5.0
_PASSING = (429, 502, 503, 504)
"""Answers that say nothing about the feed itself, when they come after it has begun."""

Lost = Callable[[str, str | None], None]
"""Is told why the feed was interrupted, and the token after which it goes on."""


async def following(
    connection: Connection,
    path: str,
    about: Mapping[str, Any],
    *,
    after: str | None = None,
    snapshot: bool = False,
    to_the_newest: bool = False,
    heartbeat: float = HEARTBEAT,
    lost: Lost | None = None,
    kept: bool = False,
) -> AsyncGenerator[Json, None]:
    """See the module. to_the_newest: end when the newest epoch has been reached. kept: the service itself knows where
    it begins (a subscription), and is told in a header where to go on.

    Raises:
        Gap: changes after the position are no longer kept.
        ServiceError: the feed cannot be had, or cannot go on.
        Unreachable: there is no service; once the feed has begun, it waits for the service to come back.
    """
    position, pause, begun = None, FIRST_PAUSE, False
    while True:
        parameters = {
            **about,
            "after": None if kept else position or after,
            "snapshot": "true" if snapshot and position is None else None,
            "follow": "false" if to_the_newest else None,
            "heartbeat": heartbeat,
        }
        headers: dict[str, str] = {"last-event-id": position} if kept and position else {}
        why = "the service has ended the feed"
        try:
            # A connection on which nothing came for so long is lost.
            coming = connection.events(path, parameters, headers=headers, silence=3 * heartbeat)
            async with aclosing(coming) as events:
                async for event in events:
                    begun, pause = True, FIRST_PAUSE
                    kind = event["event"]
                    if kind == "begun":
                        position = position or (None if snapshot else event["token"])
                        continue
                    if kind in ("gap", "problem"):
                        raise error_of(int(event["status"]), event)
                    if kind != "snapshot" or event["last"]:
                        position = str(event["token"])
                    yield event
                    if kind == "end" and event["reason"] == "caught_up":
                        return
        except ServiceError as error:
            if error.status not in _PASSING or not begun:
                raise
            why = error.detail
        except Unreachable as error:
            if not begun:
                raise
            why = str(error).partition("\n")[0]
        if lost is not None:
            lost(why, position)
        await connection.driver.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)


async def as_objects(events: AsyncGenerator[Json, None], progress: bool) -> AsyncGenerator[Event, None]:
    """The events as objects; those that only say that nothing has changed, if `progress`."""
    # Imported here: the command line follows feeds without the models, which take long to load.
    from zedlog.client.events import event_of

    async with aclosing(events):
        async for raw in events:
            event = event_of(raw) if progress or raw["event"] != "progress" else None
            if event is not None:
                yield event
