"""What is kept of the transactions of the past: read from the outcomes and the summaries of epochs, without a new key.

An outcome is kept under its transaction's id, in the order of the log, and says in its `meta` who asked for what. The
transactions of an epoch follow one another, and the epoch's summary names the first and the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
import redis.asyncio

from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.scripts import LIST_RESULTS

MOST = 1_000
"""Outcomes in one answer of the server."""


@dataclass(frozen=True, slots=True)
class Told:
    """A transaction that has its outcome. meta: what it said, asked for and changed, as engine/server/answers.py writes
    it, and `time`, when that was published; empty if a version without it wrote the outcome."""

    id: str
    status: str
    meta: Mapping[str, Any]

    @property
    def epoch(self) -> int | None:
        """The epoch that it was part of, or would have been part of."""
        return self.meta.get("epoch")

    @property
    def relations(self) -> set[str]:
        """The relations that it names in its facts, and those that its epoch changed."""
        return {*self.meta.get("facts", ()), *self.meta.get("changes", ())}


class HistoryClient:
    """The kept transactions of one database."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = keys
        self._list = client.register_script(LIST_RESULTS)

    async def transactions(self, newest: str = "+", oldest: str = "-", limit: int = MOST) -> list[Told]:
        """The newest up to `limit` (at most `MOST`) transactions between two ids, newest first; an id with a `(` before
        it is left out itself, `+` and `-` are the ends.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
        """
        with storage_errors():
            found = await self._list(keys=[self._keys.results], args=[newest, oldest, min(limit, MOST)])
        return [
            Told(name.decode(), status.decode(), orjson.loads(meta) if meta else {})
            for name, status, meta in cast(list[Any], found)
        ]

    async def of_epoch(self, epoch: int) -> list[Told] | None:
        """The transactions that are part of an epoch, the last one first, `MOST` of them at most; None if that is not
        known any more.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
        """
        with storage_errors():
            entries = await self._redis.xrange(self._keys.epochs, f"{epoch}-1", f"{epoch}-1")
        summary = orjson.loads(cast(list[Any], entries)[0][1][b"summary"]) if entries else {}
        if summary.get("first_transaction") is None:
            return None
        found = await self.transactions(summary["last_transaction"], summary["first_transaction"])
        own = [told for told in found if told.status == "committed" and told.epoch == epoch]
        return own or None
