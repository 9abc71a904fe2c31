"""Subscriptions: positions in the changes that the service keeps, for programs that must not miss one while they are
away."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from zedlog.client.connection import Connection, as_object, given
from zedlog.client.errors import Json
from zedlog.client.events import Event
from zedlog.client.feed import HEARTBEAT, Lost, as_objects, following
from zedlog.client.models import Subscription
from zedlog.client.reading import At, in_url, token_of

_ALL = "/v1/subscriptions"


class Subscriptions(Connection):
    async def subscribe(
        self,
        name: str,
        relations: str | Sequence[str] = (),
        query: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        start: At | None = None,
        limit: int | None = None,
    ) -> Subscription:
        """Make a subscription to the changes of relations, or of a query's answer: from now on they are kept until they
        are acknowledged. Made again with the same content, it keeps its position; the limit may be another one.

        where: columns that must have a value. start: a token or a transaction: begin with the changes after it; by
        default with what comes from now on. limit: the most epochs that are kept for it (10,000).

        Raises:
            Conflict: there is one of this name about something else.
            ServiceError, Unreachable: it cannot be made.
        """
        body: Json = {
            "relations": [relations] if isinstance(relations, str) else list(relations),
            "where": {column: in_url(value) for column, value in (where or {}).items()},
            "query": query,
            "start": token_of(start),
            "limit": limit,
        }
        response = await self.exchange("PUT", _path(name), {}, given(body), {}, repeatable=True)
        return Subscription.model_validate(as_object(response))

    async def subscriptions(self) -> list[Subscription]:
        """The subscriptions whose relations may be read: what each is about, its position, and whether it has a gap."""
        return [Subscription.model_validate(one) for one in (await self.get(_ALL))["subscriptions"]]

    async def subscription(self, name: str) -> Subscription:
        """One of them."""
        return Subscription.model_validate(await self.get(_path(name)))

    async def subscription_changes(
        self,
        name: str,
        snapshot: bool = False,
        *,
        follow: bool = True,
        progress: bool = False,
        heartbeat: float = HEARTBEAT,
        lost: Lost | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The same events as `changes` gives, from the position of a subscription on. What is not acknowledged with
        `ack` comes again when it is called again.

        Raises:
            Gap: changes after the position are no longer kept; begin with `snapshot=True`, and acknowledge its last
                part.
            ServiceError, Unreachable: the feed cannot be had.
        """
        events = following(
            self,
            f"{_path(name)}/changes",
            {},
            snapshot=snapshot,
            to_the_newest=not follow,
            heartbeat=heartbeat,
            lost=lost,
            kept=True,
        )
        async with aclosing(as_objects(events, progress)) as found:
            async for event in found:
                yield event

    async def ack(self, name: str, upto: Event | At) -> Subscription:
        """Everything up to this event (or its token, or a transaction) has been dealt with and need not be kept. An
        older one than before changes nothing."""
        token = upto.token if isinstance(upto, Event) else token_of(upto)
        path = f"{_path(name)}/ack"
        response = await self.exchange("POST", path, {}, {"token": token}, {}, repeatable=True)
        return Subscription.model_validate(as_object(response))

    async def unsubscribe(self, name: str) -> Subscription:
        """Delete a subscription: nothing is kept for it any more. Gives what it was."""
        return Subscription.model_validate(await self.delete(_path(name)))


def _path(name: str) -> str:
    return f"{_ALL}/{quote(name, safe='')}"
