"""Following what changes, and explaining what holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from zedlog.client.connection import Connection
from zedlog.client.errors import Json
from zedlog.client.events import Event
from zedlog.client.explanation import Explanation, explain_body
from zedlog.client.feed import HEARTBEAT, Lost, as_objects, following
from zedlog.client.models import Commit
from zedlog.client.reading import At, in_url, token_of

_ALTERNATIVES = 1_000


class Insight(Connection):
    async def changes(
        self,
        relations: str | Sequence[str] = (),
        query: str | None = None,
        after: At | int | None = None,
        snapshot: bool = False,
        *,
        where: Mapping[str, Any] | None = None,
        follow: bool = True,
        progress: bool = False,
        heartbeat: float = HEARTBEAT,
        lost: Lost | None = None,
    ) -> AsyncGenerator[Event, None]:
        """What each epoch changes of relations or of a query's answer, as it happens: `Snapshot`, `Change`, and with
        `progress` also `Progress`. It goes on by itself after every interruption, and gives each change once.

        after: an epoch, a token, or a transaction: begin with the changes after it; by default with what comes from now
        on. snapshot: begin with the state. where: columns that must have a value. follow: False ends it when the
        newest epoch has been reached. lost: is told of interruptions.

        Raises:
            Gap: changes after the position are no longer kept; begin again with `snapshot=True`.
            ServiceError, Unreachable: the feed cannot be had.
        """
        names = [relations] if isinstance(relations, str) else list(relations)
        about: Json = {"relation": names or None, "query": query}
        about |= {f"where.{name}": in_url(value) for name, value in (where or {}).items()}
        start = token_of(str(after) if isinstance(after, int) else after)
        events = following(
            self,
            "/v1/changes",
            about,
            after=start,
            snapshot=snapshot,
            to_the_newest=not follow,
            heartbeat=heartbeat,
            lost=lost,
        )
        async with aclosing(as_objects(events, progress)) as found:
            async for event in found:
                yield event

    async def explain(
        self,
        what: str,
        values: Sequence[Any] | None = None,
        *,
        why_not: bool = False,
        at: int | None = None,
        at_least: At | None = None,
        changed_at: int | Commit | None = None,
        all: bool = False,
        origins: bool = False,
        repairs: int = 3,
        size: int | None = None,
        timeout: float | None = None,
    ) -> Explanation:
        """Why a tuple holds, or why it does not: `explain('tc("a", "d")')` or `explain("tc", ("a", "d"))`.

        why_not: for a tuple that does not hold, also look for at most `repairs` changes of facts that would make it
        hold. at: at this epoch. changed_at: why did it come or go there? all: list all ways to derive it. origins:
        since when its facts have been there. size: the most tuples that a proof follows.
        """
        fields = {
            "repairs": repairs if why_not else 0,
            "as_of": at,
            "at_least": token_of(at_least),
            "changed_at": changed_at.epoch if isinstance(changed_at, Commit) else changed_at,
            "origins": origins or None,
            "all": all or None,
            "limit": _ALTERNATIVES if all else None,
            "size": size,
            "timeout": timeout,
        }
        body = explain_body(what, values, fields)
        found = await self.post("/v1/explain", body)
        while found.get("cursor"):
            page = await self.post("/v1/explain", {**body, "cursor": found["cursor"]})
            found["derivations"] += page["derivations"]
            found["cursor"] = page["cursor"]
        return Explanation(found)
