"""The clients' side of a database: append to the log, wait, read snapshots; asynchronous.

It holds no state of the database, only caches of immutable objects, so any number of processes may each have one. Reads
never wait for the engine. Every method raises StorageUnavailableError when Redis cannot be reached, and works again
without further steps when Redis is back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import orjson
import redis.asyncio

from engine.data.transaction import Transaction
from engine.errors import EngineUnavailableError, EpochNotRetainedError, InvalidRequestError
from engine.storage.announcements import Announcements, stream_id
from engine.storage.appends import Appends
from engine.storage.audits import AuditClient
from engine.storage.begun import Mark
from engine.storage.connection import connect_async, storage_errors
from engine.storage.head import FIELDS, Head
from engine.storage.history import HistoryClient
from engine.storage.holds import holding
from engine.storage.indexes import Indexes, IndexStats
from engine.storage.jobs import JobClient
from engine.storage.keys import Keys
from engine.storage.log import START, Append
from engine.storage.outcome import EngineStatus, Outcome, Receipt
from engine.storage.reader import ObjectReader
from engine.storage.scripts import IN_LOG
from engine.storage.snapshot import Snapshot
from engine.storage.subscriptions import SubscriptionClient
from engine.storage.token import format_token, parse_token
from engine.storage.tokens import TokenStore

__all__ = ["DatabaseClient", "EngineStatus", "Outcome", "Receipt", "format_token", "parse_token"]

_NOTHING_PUBLISHED = "no engine has served this database yet"


class DatabaseClient:
    """The client of a database in Redis, for any number of tasks of one event loop; any number of processes may have
    one.
    """

    def __init__(
        self, client: redis.asyncio.Redis, database: str, cache_bytes: int, index_bytes: int
    ) -> None:
        self._redis = client
        self._keys = Keys(database)
        self._reader = ObjectReader(client, self._keys, cache_bytes)
        self._indexes = Indexes(self._reader, index_bytes)
        self._announcements = Announcements(client, self._keys)
        self._appends = Appends(client)
        self._in_log = client.register_script(IN_LOG)
        self._newest: tuple[Head, Snapshot] | None = None
        self.jobs = JobClient(client, self._keys)
        self.tokens = TokenStore(client, self._keys)
        self.history = HistoryClient(client, self._keys)
        self.subscriptions = SubscriptionClient(client, self._keys)
        self.audits = AuditClient(client, self._keys)

    @classmethod
    def connect(
        cls, redis_url: str, database: str, *, cache_bytes: int = 64 << 20, index_bytes: int = 0
    ) -> DatabaseClient:
        """Make a client; connects when first used, so it does not fail when Redis is away.

        cache_bytes: the most memory for blocks. index_bytes: the most memory for indexes, which are made when a read
        has use for one; 0: every read is a scan.

        Raises:
            InvalidRequestError: the URL or the database's name is not well-formed.
        """
        return cls(connect_async(redis_url), database, cache_bytes, index_bytes)

    async def append(
        self, tx: Transaction, idempotency_key: str | None = None, asked: bytes | None = None
    ) -> Receipt:
        """Write a transaction to the log. When this returns, the transaction survives.

        asked: what the client sent, where the transaction was computed from it: with the same key, the same of this is
        the same request, whatever would be computed from it now.

        Raises:
            IdempotencyConflictError: the key came with another body before.
            StorageUnavailableError: Redis cannot be reached. Where the connection broke before the answer,
            the
                transaction may have been written; with an Idempotency-Key it is safe to try again.
        """
        append = Append.prepare(self._keys, tx.encode(), idempotency_key, asked)
        return append.receipt(await self._appends.send(append))

    async def outcome(self, transaction_id: str) -> Outcome | None:
        """What became of a transaction, or None: not yet known, or no longer kept, or never there."""
        if stream_id(transaction_id) is None:
            return None
        return (await self._announcements.outcomes([transaction_id]))[0]

    async def wait_outcome(self, transaction_id: str, timeout: float) -> Outcome | None:
        """The same, waiting up to `timeout` seconds for it. None at once when it is no longer kept."""
        if stream_id(transaction_id) is None:
            return None
        return await self._announcements.wait_outcome(transaction_id, timeout)

    async def is_pending(self, transaction_id: str) -> bool:
        """Whether the transaction is in the log and has no outcome yet."""
        wanted = stream_id(transaction_id)
        if wanted is None:
            return False
        with storage_errors():
            if not await self._in_log(keys=[self._keys.log], args=[transaction_id]):
                return False
        head = await self._head()
        last = stream_id(head.last_id) if head else None
        return last is None or wanted > last

    async def cancel(self, transaction_id: str) -> bool:
        """Ask the engine to cancel a transaction that has no outcome yet; False if there is no such transaction.

        The engine refuses it (code `cancelled`), unless it commits it before it notices the request.
        """
        if not await self.is_pending(transaction_id):
            return False
        with storage_errors():
            await self._redis.sadd(self._keys.cancels, transaction_id)
        return True

    async def snapshot(self, epoch: int | None = None) -> Snapshot:
        """Pin an epoch, the newest one by default.

        Raises:
            EpochNotRetainedError: it is in the future or no longer kept.
            EngineUnavailableError: nothing has been published yet: no engine ever served this database.
        """
        if epoch is not None:
            return await self._snapshot_of(epoch)
        while True:
            head = await self._head()
            if head is None:
                raise EngineUnavailableError(_NOTHING_PUBLISHED)
            if self._newest is not None and _same_publication(self._newest[0], head):
                return self._newest[1]
            data = await self._reader.manifest_bytes(head.epoch)
            # Gone already: many epochs were published in between, with a short retention. Take the newest
            # again.
            if data is not None:
                snapshot = await Snapshot.load(data, self._reader, self._indexes)
                self._newest = head, snapshot
                return snapshot

    async def snapshots(self, epochs: Sequence[int]) -> list[Snapshot]:
        """Those of the epochs that are kept, in the order given, in one round trip and few more.

        Raises:
            StorageUnavailableError, CorruptSnapshotError.
        """
        found = await self._reader.manifests(epochs)
        return [await Snapshot.load(data, self._reader, self._indexes) for data in found if data is not None]

    def hold(self, epoch: int) -> AbstractAsyncContextManager[None]:
        """A context during which an epoch that is retained stays so, for a reader that takes long."""
        return holding(self._redis, self._keys, epoch)

    async def wait_epoch(self, epoch: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds until an epoch is published; whether it is.

        Raises:
            EpochNotRetainedError: the epoch does not exist, and the transactions that wait in the log cannot produce
            it.
        """
        head = await self._head()
        newest = head.epoch if head else -1
        end = time.monotonic() + timeout
        while newest < epoch:
            status = await self.status()
            newest = status.epoch
            # Each entry of the log makes one epoch at most; before the first publication epoch 0 is to come, too.
            if epoch > max(newest, 0) + status.lag:
                raise _not_to_come(epoch, newest)
            left = end - time.monotonic()
            if newest < epoch and left <= 0:
                return False
            # Each epoch that comes may leave too few entries for this one.
            await self._announcements.wait_epoch(min(epoch, newest + 1), left)
        return True

    async def beyond(self, epoch: int, timeout: float) -> int | None:
        """The newest epoch, as soon as it is another one than `epoch`; None if that is not in time. It is smaller where
        Redis came back with an older state. Costs no request while epochs are announced."""
        return await self._announcements.beyond(epoch, timeout)

    async def epochs(self, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Summaries of epochs, newest first, of epochs < `before`: epoch, time (seconds), transactions,
        changes {relation: {inserted, deleted}}, strategy, placement, derivations, reason, elapsed_ms."""
        if limit < 1:
            raise InvalidRequestError(f"the limit must be at least 1, not {limit}")
        if before is not None and before < 1:
            return []
        newest = "+" if before is None else f"{min(before, 2**63) - 1}-1"
        with storage_errors():
            entries = await self._redis.xrevrange(self._keys.epochs, max=newest, count=limit)
        return [orjson.loads(fields[b"summary"]) for _, fields in cast(list[Any], entries)]

    async def status(self) -> EngineStatus:
        """The engine's state, as its heartbeat tells it."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(self._keys.status)
        pipeline.exists(self._keys.lease)
        pipeline.hmget(self._keys.head, list(FIELDS))
        pipeline.exists(self._keys.log)
        pipeline.hgetall(self._keys.begun)
        with storage_errors():
            status, alive, fields, has_log, begun = await pipeline.execute()
            # What was ever added, whatever has been trimmed since.
            added = (await self._redis.xinfo_stream(self._keys.log))["entries-added"] if has_log else 0
        head = Head.decode(fields)
        state = status.get(b"state", b"absent").decode()
        error = status.get(b"error", b"").decode() or None
        if not alive and state in ("running", "recovering"):
            state, error = "lost", "the engine's heartbeat has stopped"
        running = bool(alive) and state == "running"
        mark = Mark.decode(begun) if running else None
        ahead = mark is not None and mark.is_ahead(head.last_id if head else START)
        fault = status.get(b"fault")
        return EngineStatus(
            running=running,
            state=state,
            epoch=head.epoch if head else -1,
            lag=max(0, added - (head.processed if head else 0)),
            error=error,
            evaluating=mark.running(time.time()) if mark is not None and ahead else None,
            faults=int(status.get(b"faults", 0)),
            fault=None if fault is None else orjson.loads(fault),
            recovered=status.get(b"recovered", b"").decode() or None,
        )

    async def incarnation(self) -> str:
        """The database's id, to be used with `parse_token`. EngineUnavailableError before the first
        publication."""
        head = await self._head()
        if head is None:
            raise EngineUnavailableError(_NOTHING_PUBLISHED)
        return head.incarnation

    @property
    def indexes(self) -> IndexStats:
        """What the indexes of this client take and took."""
        return self._indexes.stats

    async def close(self) -> None:
        """Close the connections and end the background tasks."""
        await self._indexes.close()
        await self._announcements.close()
        await self._redis.aclose(close_connection_pool=True)

    async def _head(self) -> Head | None:
        with storage_errors():
            fields = await self._redis.hmget(self._keys.head, list(FIELDS))
        return Head.decode(cast(list[bytes | None], fields))

    async def _snapshot_of(self, epoch: int) -> Snapshot:
        data = await self._reader.manifest_bytes(epoch) if epoch >= 0 else None
        if data is not None:
            return await Snapshot.load(data, self._reader, self._indexes)
        head = await self._head()
        if head is None:
            raise EngineUnavailableError(_NOTHING_PUBLISHED)
        why = f"the newest is {head.epoch}" if epoch > head.epoch else "its snapshot is no longer kept"
        raise EpochNotRetainedError(f"there is no epoch {epoch}: {why}", epoch=epoch, newest=head.epoch)


def _not_to_come(epoch: int, newest: int) -> EpochNotRetainedError:
    return EpochNotRetainedError(
        f"there is no epoch {epoch}: the newest is {newest}, and no waiting transaction can produce epoch {epoch}",
        epoch=epoch,
        newest=newest,
    )


def _same_publication(one: Head, other: Head) -> bool:
    return (one.incarnation, one.epoch, one.epoch_time) == (other.incarnation, other.epoch, other.epoch_time)
