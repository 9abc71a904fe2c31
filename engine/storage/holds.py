"""Holds: an epoch that somebody reads for longer than epochs are retained stays readable as long as it is held.

A reader that takes minutes (a backup, say) writes the epoch into a sorted set, with a time until which that counts, and
renews it while it reads. The engine's heartbeat looks at the set a few times a second, and the publisher keeps all
epochs from the oldest held one on. A reader that was killed holds nothing after `HOLD_SECONDS`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import redis
import redis.asyncio

from engine.errors import StorageUnavailableError
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys

HOLD_SECONDS: Final = 60.0


@asynccontextmanager
async def holding(client: redis.asyncio.Redis, keys: Keys, epoch: int) -> AsyncIterator[None]:
    """Keep an epoch readable until the block is left.

    Raises:
        StorageUnavailableError: Redis cannot be reached at the beginning.
    """
    name = f"{epoch}-{secrets.token_hex(8)}"

    async def note() -> None:
        with storage_errors():
            await client.zadd(keys.holds, {name: time.time() + HOLD_SECONDS})

    async def renew() -> None:
        while True:
            await asyncio.sleep(HOLD_SECONDS / 4)
            with suppress(StorageUnavailableError):
                await note()

    await note()
    renewing = asyncio.create_task(renew(), name=f"zedlog hold of epoch {epoch}")
    try:
        yield
    finally:
        renewing.cancel()
        # It expires by itself.
        with suppress(StorageUnavailableError), storage_errors():
            await client.zrem(keys.holds, name)


def oldest_held(client: redis.Redis, keys: Keys) -> int | None:
    """The oldest epoch that is held now.

    Raises:
        StorageUnavailableError.
    """
    now = time.time()
    with storage_errors():
        found = cast(list[Any], client.zrange(keys.holds, 0, -1, withscores=True))
        if any(until <= now for _, until in found):
            client.zremrangebyscore(keys.holds, "-inf", now)
    held = [int(bytes(name).partition(b"-")[0]) for name, until in found if until > now]
    return min(held, default=None)
