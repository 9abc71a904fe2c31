"""The listeners of one app, and the sources that they share.

A listener pulls: it asks its source for the change of the next epoch when it has sent the last one. So nothing waits
for a slow listener, and nothing is collected for it; what it comes too late for is read again, until it is no longer
kept. One task waits for new epochs for all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from engine.database.query import prepare
from engine.errors import (
    ChangeTooLargeError,
    EngineUnavailableError,
    EpochNotRetainedError,
    GapError,
    LimitReachedError,
    StorageUnavailableError,
    ZedlogError,
)
from engine.storage.client import DatabaseClient
from service.evaluation import Evaluator
from service.feeds.epochs import Epochs, Shared
from service.feeds.events import Event
from service.feeds.metrics import FeedMetrics
from service.feeds.queries import QuerySource, Views
from service.feeds.request import About
from service.feeds.selections import Chunk, Events, GoalFilter, RelationFilter, Selection
from service.formats import describe_columns
from service.metrics import Metrics
from service.problems import document
from service.settings import Settings

# Events of relations that are kept for those who come a little later; most of them say that nothing changed.
_KEPT_EVENTS, _KEPT_TUPLES = 5_000, 100_000
# How long to wait for new epochs at a time, and before the next try while Redis is away.
_WAIT_SECONDS, _AWAY_SECONDS = 30.0, 0.2


class State(Protocol):
    """What a feed is about, at one epoch."""

    def chunks(self) -> AsyncIterator[Chunk]:
        """(name, columns, some of the tuples); for each name at least once."""

    def close(self) -> None:
        """It will not be read any more."""


class Source(Protocol):
    """What listeners share."""

    async def begin(self, after: int | None, state: bool) -> tuple[int, State | None]:
        """Check that a feed can begin after an epoch, or after the newest; which one that is, and the state there."""

    async def change(self, epoch: int) -> Event | None:
        """What an epoch changed; None if nothing."""

    async def close(self) -> None:
        """Nobody listens any more."""


@dataclass(slots=True)
class _Users:
    source: Source
    count: int = 0


class Feeds:
    """See the module."""

    def __init__(
        self, settings: Settings, client: DatabaseClient, evaluator: Evaluator, metrics: Metrics
    ) -> None:
        self.settings = settings
        self.client = client
        self.metrics = FeedMetrics(metrics.registry)
        self.epochs = Epochs(client)
        self._evaluator = evaluator
        self._views = Views(settings.feed_queries)
        self._events: Events = Shared(_KEPT_EVENTS, _KEPT_TUPLES, lambda event: event.tuples if event else 0)
        self._sources: dict[Any, _Users] = {}
        self._listeners: set[Listener] = set()
        self._follower: asyncio.Task[None] | None = None
        self._tick = asyncio.Event()
        self.newest = -1

    async def listen(self, about: About, after: int | None, options: Options) -> Listener:
        """A listener, which must be closed.

        Raises:
            LimitReachedError, GapError, EpochNotRetainedError; and what the source raises.
        """
        if len(self._listeners) >= self.settings.feed_listeners:
            raise LimitReachedError(
                f"this service has {len(self._listeners):,} listeners already, which is the most; try again later",
                limit=self.settings.feed_listeners,
            )
        users = self._sources.get(about.key)
        if users is None:
            users = self._sources[about.key] = _Users(self._source(about))
        listener = Listener(self, users, options)
        users.count += 1
        self._listeners.add(listener)
        try:
            newest = await self.epochs.newest()
            if after is not None and after > newest.epoch:
                raise EpochNotRetainedError(
                    f"there is no epoch {after} yet: the newest is {newest.epoch}",
                    epoch=after,
                    newest=newest.epoch,
                )
            if self._follower is None or newest.epoch > self.newest:
                # Whoever asks after a write sees its epoch.
                self.newest = newest.epoch
                self.wake()
            if self._follower is None:
                self._follower = asyncio.create_task(self._follow(), name="zedlog feeds")
            await listener.begin(after)
        except BaseException:
            await listener.close()
            raise
        return listener

    async def check(self, about: About) -> None:
        """Raise what a feed that begins now would be refused with, as far as that needs no evaluation."""
        newest = await self.epochs.newest()
        if about.query is not None:
            prepare(about.query, newest.schemas)
        else:
            source = Selection(self.epochs, RelationFilter(about.relations, about.where), 1, self._events)
            await source.begin(None, False)

    def _source(self, about: About) -> Source:
        most = self.settings.feed_tuples
        if about.query is None:
            filter = RelationFilter(about.relations, about.where)
            return Selection(self.epochs, filter, most, self._events)
        if about.goal is not None:
            return Selection(self.epochs, GoalFilter(about.goal, about.query.text), most, self._events)
        return QuerySource(self.epochs, about.query, self._evaluator, self.settings, self._views)

    async def leave(self, listener: Listener, users: _Users) -> None:
        if listener not in self._listeners:
            return
        self._listeners.discard(listener)
        users.count -= 1
        if not users.count:
            for key in [key for key, held in self._sources.items() if held is users]:
                del self._sources[key]
            await users.source.close()
        if not self._listeners and self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def tick(self) -> asyncio.Event:
        """Is set when there is a new epoch, or the service ends."""
        return self._tick

    def wake(self) -> None:
        tick, self._tick = self._tick, asyncio.Event()
        tick.set()

    def observe(self) -> None:
        """Bring the gauges up to date."""
        self.metrics.listeners.set(len(self._listeners))
        self.metrics.queries.set(self._views.count)
        behind = [self.newest - one.epoch for one in self._listeners if one.epoch >= 0]
        self.metrics.lag.set(max(behind, default=0))

    async def close(self) -> None:
        follower, self._follower = self._follower, None
        # Python 3.11 loses a cancellation that meets the end of an inner wait, so it is repeated until it works.
        while follower is not None and not follower.done():
            follower.cancel()
            await asyncio.wait([follower], timeout=0.1)

    async def _follow(self) -> None:
        while self._follower is asyncio.current_task():
            try:
                newest = await self.client.beyond(self.newest, _WAIT_SECONDS)
            except ZedlogError:
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            if newest is None:
                continue
            if newest < self.newest:
                # Redis came back with an older state: epochs with the same numbers will be other ones.
                self.epochs.forget()
                self._events.clear()
                self._sources.clear()
            self.newest = newest
            self.wake()


@dataclass(frozen=True, slots=True)
class Options:
    """state: begin with it. follow: go on when the newest epoch has been reached. rows: the most tuples of an event, or
    of the state; None: as many as the service allows. still: raises if the listener may no longer listen."""

    state: bool
    follow: bool
    heartbeat: float
    rows: int | None = None
    still: Callable[[], Awaitable[None]] | None = None


class Listener:
    """One feed. `epoch` is its position: all changes up to there have been sent."""

    def __init__(self, feeds: Feeds, users: _Users, options: Options) -> None:
        self._feeds, self._users, self._options = feeds, users, options
        self._state: State | None = None
        self._token = ""
        self.epoch = -1
        self.closing = False

    async def begin(self, after: int | None) -> None:
        try:
            self.epoch, self._state = await self._users.source.begin(after, self._options.state)
            self._token = (await self._feeds.epochs.newest()).token
        except EpochNotRetainedError as error:
            raise await self._gap(-1 if after is None else after, error) from error

    async def close(self) -> None:
        if self._state is not None:
            self._state.close()
            self._state = None
        await self._feeds.leave(self, self._users)

    @property
    def token(self) -> str:
        """Its position, which a listener comes back with."""
        return f"{self.epoch}-{self._token.partition('-')[2]}"

    def end(self) -> None:
        """The service ends: say so to the listener."""
        self.closing = True
        self._feeds.wake()

    async def events(self) -> AsyncIterator[Event]:
        """What is to be sent, one after the other."""
        try:
            state = 0
            async for event in self._events():
                state = state + event.tuples if event.name == "snapshot" else 0
                try:
                    await self._check(state or event.tuples)
                except ZedlogError:
                    if event.name == "change":
                        # It is not sent, so it comes after the position.
                        self.epoch -= 1
                    raise
                self._count(event)
                yield event
        except ZedlogError as error:
            event = self._problem(error)
            self._count(event)
            yield event

    async def _events(self) -> AsyncIterator[Event]:
        options, feeds = self._options, self._feeds
        ends = time.monotonic() + feeds.settings.feed_seconds
        if self._state is not None:
            async for event in self._snapshot(self._state):
                yield event
            self._state.close()
            self._state = None
        else:
            yield self._progress()
        last = time.monotonic()
        while True:
            tick = feeds.tick()
            while self.epoch < feeds.newest and not self.closing and time.monotonic() < ends:
                position = self.epoch
                change = await self._next()
                if self.epoch == position:
                    # Redis is away; what is known is still true.
                    await _wait(tick, min(_AWAY_SECONDS, options.heartbeat))
                if change is None and time.monotonic() - last < options.heartbeat:
                    continue
                yield change or self._progress()
                last = time.monotonic()
            if self.epoch > feeds.newest:
                raise GapError(
                    "the database was set back to an older state; begin again with the state (snapshot=true)",
                    after=self.epoch,
                    newest=feeds.newest,
                )
            now = time.monotonic()
            why = (
                "shutdown"
                if self.closing
                else "time"
                if now >= ends
                else "caught_up"
                if not options.follow and self.epoch >= feeds.newest
                else None
            )
            if why is not None:
                yield Event("end", {**self._place(), "reason": why}, self.token)
                return
            if now - last >= options.heartbeat:
                yield self._progress()
                last = now = time.monotonic()
            if self.epoch >= feeds.newest:
                await _wait(tick, min(last + options.heartbeat, ends) - now)

    async def _next(self) -> Event | None:
        """The change of the next epoch. While Redis is away the position stays as it is."""
        try:
            change = await self._users.source.change(self.epoch + 1)
        except EpochNotRetainedError as error:
            raise await self._gap(self.epoch, error) from error
        except (StorageUnavailableError, EngineUnavailableError):
            return None
        self.epoch += 1
        return change

    async def _snapshot(self, state: State) -> AsyncIterator[Event]:
        """The state in parts. Only the last one has a position: who is cut off before it begins again."""
        part = 0
        waiting: dict[str, Any] | None = None
        async for name, columns, tuples in self._chunks(state):
            if waiting is not None:
                yield Event("snapshot", {**waiting, "last": False}, None, len(waiting["tuples"]))
            waiting = {
                **self._place(),
                "relation": name,
                "columns": describe_columns(columns),
                "tuples": tuples,
                "part": part,
            }
            part += 1
        if waiting is None:
            waiting = {**self._place(), "relation": None, "columns": [], "tuples": [], "part": 0}
        yield Event("snapshot", {**waiting, "last": True}, self.token, len(waiting["tuples"]))

    async def _chunks(self, state: State) -> AsyncIterator[Chunk]:
        try:
            async for chunk in state.chunks():
                yield chunk
        except EpochNotRetainedError as error:
            raise await self._gap(self.epoch, error) from error

    async def _gap(self, after: int, error: EpochNotRetainedError) -> ZedlogError:
        try:
            newest = await self._feeds.epochs.newest()
        except ZedlogError as other:
            return other
        if after > newest.epoch:
            return error
        return GapError(
            f"changes after epoch {after} are no longer kept: the oldest epoch that can be read is {newest.oldest}; "
            "begin again with the state (snapshot=true)",
            after=after,
            oldest=newest.oldest,
            newest=newest.epoch,
            token=newest.token,
        )

    async def _check(self, tuples: int) -> None:
        """Raise ZedlogError if the listener may no longer listen, or may not be sent so many tuples at once."""
        if self._options.still is not None:
            await self._options.still()
        most = self._options.rows
        if most is not None and tuples > most:
            raise ChangeTooLargeError(
                f"the feed would deliver {tuples:,} tuples at once, and its token is limited to {most:,}; follow fewer "
                "of them, by columns that are bound",
                limit=most,
            )

    def _place(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "token": self.token}

    def _progress(self) -> Event:
        return Event("progress", self._place(), self.token)

    def _problem(self, error: ZedlogError) -> Event:
        problem = document(error.problem(), "/v1/changes")
        name = "gap" if isinstance(error, GapError) else "problem"
        # Half of a state is no position.
        return Event(name, {**problem, "position": None if self._state is not None else self._place()})

    def _count(self, event: Event) -> None:
        metrics = self._feeds.metrics
        metrics.events.labels(event.name).inc()
        if event.name == "change":
            metrics.delay.observe(max(0.0, time.time() - event.data["time"]))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
