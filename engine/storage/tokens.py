"""The access tokens of a database, as its services keep them in Redis: plain records by the tokens' names.

In and out: JSON objects. What is in them, and what they allow, is the services' business (service/access/tokens.py);
the secret itself is never part of a record. Always: a name is taken at most once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson
import redis.asyncio

from engine.storage.connection import storage_errors
from engine.storage.keys import Keys


class TokenStore:
    """The records of one database. Every method raises StorageUnavailableError when Redis cannot be reached."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._key = keys.tokens

    async def add(self, name: str, record: Mapping[str, Any]) -> bool:
        """Keep a record; False if the name is taken, by another record."""
        body = orjson.dumps(record)
        with storage_errors():
            if await cast(Any, self._redis.hsetnx(self._key, name, body)):
                return True
            # The connection may have sent it twice.
            return bytes(await cast(Any, self._redis.hget(self._key, name)) or b"") == body

    async def all(self) -> list[dict[str, Any]]:
        """All records, in no particular order."""
        with storage_errors():
            found = cast(dict[bytes, bytes], await cast(Any, self._redis.hgetall(self._key)))
        return [orjson.loads(body) for body in found.values()]

    async def remove(self, name: str) -> bool:
        """Remove a record; whether there was one."""
        with storage_errors():
            return bool(await cast(Any, self._redis.hdel(self._key, name)))
