"""A live feed of changes, as a page keeps it: what arrives is counted, and the last of it is held.

In: lines of `GET /v1/changes`. Out: the newest events, each with counts and some of its tuples. Always: after a pause,
a lost connection or a restart of the service the feed goes on after the last event that arrived, so that nothing is
missed and nothing comes twice. While it is paused nothing is open and nothing is collected: the changes wait where they
are kept anyway, with the epochs. Memory is bounded: HELD events, each with at most EXAMPLES tuples of a relation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

import httpx
import orjson

from service.console.client import Client, ServiceError

Json = dict[str, Any]
State = Literal["live", "waiting", "paused", "ended"]
HELD: Final = 100
EXAMPLES: Final = 10
_HEARTBEAT_SECONDS: Final = 5.0
_QUIET_SECONDS: Final = 4 * _HEARTBEAT_SECONDS
"""The feed sends something at each heartbeat; a connection on which nothing comes for longer is dead."""
_RETRY_SECONDS: Final = (0.2, 1.0, 3.0, 10.0)
_PASSING: Final = (429, 502, 503, 504)
"""States of a service that comes back."""


@dataclass(frozen=True, slots=True)
class Change:
    """An epoch's changes of one relation: how many tuples appeared and went, and the first of them."""

    relation: str
    inserted: int
    deleted: int
    examples: tuple[tuple[str, list[Any]], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """What an epoch changed."""

    epoch: int
    time: float | None
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Feed:
    """asked: the parameters of the call. state: `waiting` is for the service to come back; `ended`, and `problem` says
    why. position: the token of the last event. received: events since the beginning; `revision` counts everything that
    can be seen."""

    client: Client
    asked: Mapping[str, Any]
    position: str | None = None
    state: State = "paused"
    problem: str = ""
    epoch: int | None = None
    received: int = 0
    revision: int = 0
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=HELD))
    _task: asyncio.Task[None] | None = None

    def resume(self) -> None:
        """Go on after the last event."""
        if self._task is None or self._task.done():
            self._become("live")
            self._task = asyncio.create_task(self._run(), name="console feed")

    async def pause(self) -> None:
        """Close the connection; the position stays."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not self._has_ended:
            self._become("paused")

    @property
    def _has_ended(self) -> bool:
        return self.state == "ended"

    def _become(self, state: State, problem: str = "") -> None:
        self.state, self.problem = state, problem
        self.revision += 1

    def _end(self, code: str, detail: str) -> None:
        told = f"{code}: {detail}"
        if code == "gap":
            # There is no way to go on from here; whoever resumes begins anew, and has been told.
            self.position = None
            told += ". What came in between cannot be shown any more; Resume begins after the newest epoch"
        self._become("ended", told)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                async for event in self._listen():
                    failures = 0
                    self._take(event)
                problem = "the connection ended"
            except ServiceError as error:
                if error.status not in _PASSING:
                    self._end(error.code, error.detail)
                problem = error.detail
            except (httpx.HTTPError, OSError, TimeoutError) as error:
                problem = str(error) or "nothing was heard for too long"
            if self._has_ended:
                return
            self._become("waiting", problem)
            await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
            failures += 1

    async def _listen(self) -> AsyncIterator[Json]:
        """The events of one connection."""
        parameters = {**self.asked, "heartbeat": _HEARTBEAT_SECONDS}
        if self.position is not None:
            parameters["after"] = self.position
        headers = {"Accept": "application/x-ndjson"}
        async with self.client.stream("GET", "/v1/changes", params=parameters, headers=headers) as answer:
            # A feed that is paused before its first event must not miss what comes in between.
            self.position = self.position or answer.headers.get("zedlog-token")
            self._become("live")
            lines = aiter(answer.aiter_lines())
            while True:
                try:
                    async with asyncio.timeout(_QUIET_SECONDS):
                        line = await anext(lines)
                except StopAsyncIteration:
                    return
                if line:
                    yield orjson.loads(line)

    def _take(self, event: Json) -> None:
        name = event["event"]
        if name in ("gap", "problem"):
            self._end(event["code"], event["detail"])
            return
        if name == "change":
            changes = tuple(_change(relation, change) for relation, change in event["changes"].items())
            self.events.appendleft(Event(event["epoch"], event.get("time"), changes))
            self.received += 1
        # Only now is the event taken: whatever comes before this line would be sent again.
        self.epoch, self.position = event["epoch"], event["token"]
        self.revision += 1


def _change(relation: str, change: Json) -> Change:
    signed = (("+", "inserted"), ("-", "deleted"))
    examples = ((sign, row) for sign, way in signed for row in change[way])
    return Change(
        relation, len(change["inserted"]), len(change["deleted"]), tuple(islice(examples, EXAMPLES))
    )
