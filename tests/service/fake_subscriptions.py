"""Subscriptions in memory, with the interface of `SubscriptionClient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import SubscriptionConflictError, UnknownSubscriptionError
from engine.storage.subscriptions import Subscription


class FakeSubscriptions:
    """reach: raises where Redis is away."""

    def __init__(self, reach: Callable[[], None]) -> None:
        self._reach = reach
        self._held: dict[str, Subscription] = {}

    async def put(self, name: str, about: Mapping[str, Any], limit: int, epoch: int) -> bool:
        self._reach()
        known = self._held.get(name)
        if known is not None and known.about != about:
            raise SubscriptionConflictError("there is a subscription of that name", name=name)
        made = Subscription(name, about, limit, 1735689600.0, epoch)
        self._held[name] = made if known is None else replace(known, limit=limit)
        return known is None

    async def get(self, name: str) -> Subscription:
        self._reach()
        if name not in self._held:
            raise UnknownSubscriptionError("there is no subscription of that name", name=name)
        return self._held[name]

    async def all(self) -> list[Subscription]:
        self._reach()
        return [self._held[name] for name in sorted(self._held)]

    async def acknowledge(self, name: str, epoch: int) -> int:
        found = await self.get(name)
        self._held[name] = replace(found, epoch=max(found.epoch, epoch))
        return self._held[name].epoch

    async def delete(self, name: str) -> None:
        await self.get(name)
        del self._held[name]
