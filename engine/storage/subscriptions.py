"""Named subscriptions: how far each consumer of changes has got, kept in Redis.

In: a name, what it is about (JSON that only the service understands), and a limit. Out: its position, the last epoch
that its consumer has acknowledged. The changes themselves are those of the retained manifests: the publisher keeps the
epochs from the smallest position on, up to limits (engine/storage/publisher.py). Always: a position only goes forward,
and only what was acknowledged is behind it, so a consumer that acknowledges what it has done misses nothing.

A subscription that is further behind than its limit no longer holds anything. Whether changes after its position are
missing then is seen from the oldest epoch that is left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
import redis.asyncio

from engine.errors import LimitReachedError, SubscriptionConflictError, UnknownSubscriptionError, shown
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.scripts import ACKNOWLEDGE, SUBSCRIBE

MOST = 1_000
"""Subscriptions of a database."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """about: as it was given. limit: epochs that are kept for it at the most. epoch: the last acknowledged one."""

    name: str
    about: Mapping[str, Any]
    limit: int
    created: float
    epoch: int

    @classmethod
    def decode(cls, name: str, data: bytes, epoch: float) -> Subscription:
        limit, created, about = data.split(b" ", 2)
        return cls(name, orjson.loads(about), int(limit), float(created), int(epoch))


class SubscriptionClient:
    """The services' side. Every method raises StorageUnavailableError when Redis cannot be reached."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = [keys.subscriptions, keys.acknowledged, keys.holding]
        self._subscribe = client.register_script(SUBSCRIBE)
        self._acknowledge = client.register_script(ACKNOWLEDGE)

    async def put(self, name: str, about: Mapping[str, Any], limit: int, epoch: int) -> bool:
        """Make a subscription whose position is `epoch`. One that exists keeps its position and gets the new limit.
        Whether it is new.

        Raises:
            SubscriptionConflictError: there is one of that name that is about something else.
            LimitReachedError: there are too many.
        """
        text = orjson.dumps(about, option=orjson.OPT_SORT_KEYS)
        arguments: list[str | bytes | int] = [name, limit, repr(time.time()), text, epoch, MOST]
        with storage_errors():
            answer = int(await self._subscribe(keys=self._keys, args=arguments))
        if answer == 2:
            raise SubscriptionConflictError(
                f"there is a subscription {shown(name)} already, and it is about something else; delete it first, or "
                "choose another name",
                name=name,
            )
        if answer == 3:
            raise LimitReachedError(
                f"a database has {MOST:,} subscriptions at the most; delete one", limit=MOST
            )
        return answer == 1

    async def get(self, name: str) -> Subscription:
        """Raises UnknownSubscriptionError."""
        definitions, acknowledged, _ = self._keys
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(definitions, name)
        pipeline.zscore(acknowledged, name)
        with storage_errors():
            data, epoch = await pipeline.execute()
        if data is None or epoch is None:
            raise unknown_subscription(name)
        return Subscription.decode(name, data, epoch)

    async def all(self) -> list[Subscription]:
        """All of them, by name."""
        definitions, acknowledged, _ = self._keys
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(definitions)
        pipeline.zrange(acknowledged, 0, -1, withscores=True)
        with storage_errors():
            found, positions = await pipeline.execute()
        epochs = dict(cast(list[tuple[bytes, float]], positions))
        return [
            Subscription.decode(name.decode(), data, epochs[name]) for name, data in sorted(found.items())
        ]

    async def acknowledge(self, name: str, epoch: int) -> int:
        """Say that everything up to an epoch has arrived; an older one than before changes nothing. Returns the
        position. Raises UnknownSubscriptionError."""
        with storage_errors():
            position = int(await self._acknowledge(keys=self._keys, args=[name, epoch]))
        if position < 0:
            raise unknown_subscription(name)
        return position

    async def delete(self, name: str) -> None:
        """Raises UnknownSubscriptionError."""
        definitions, acknowledged, holding = self._keys
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hdel(definitions, name)
        pipeline.zrem(acknowledged, name)
        pipeline.zrem(holding, name)
        with storage_errors():
            known, *_ = await pipeline.execute()
        if not known:
            raise unknown_subscription(name)


def unknown_subscription(name: str) -> UnknownSubscriptionError:
    """The error for a subscription that is not there."""
    return UnknownSubscriptionError(f"there is no subscription {shown(name)}", name=name)
