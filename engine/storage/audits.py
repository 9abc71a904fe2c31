"""Audits in Redis: services ask for them and show them, the engine does them.

In: a request. Out: `Audit`, one audit as readers see it, with its report as JSON once it has ended. Always: an audit is
done by the engine that holds the lease, one at a time; one whose engine ended is told to have failed when the next one
starts. The last `KEPT_AUDITS` are kept. `AuditQueue` is the engine's, synchronous side, `AuditClient` the services',
asynchronous one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, cast

import orjson
import redis
import redis.asyncio

from engine.errors import UnknownAuditError, shown
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys

Kind = Literal["full", "start"]
"""`full`: everything. `start`: the state that was recovered at the start, by its digests."""
Status = Literal["queued", "running", "passed", "differs", "failed"]
ENDED: Final = ("passed", "differs", "failed")
KEPT_AUDITS: Final = 100


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit. Times are seconds since 1970. cause: `request`, `schedule` or `start`. report: what was compared and
    found, as engine/audit/report.py has it; why: why it failed, in words."""

    id: str
    kind: Kind
    cause: str
    status: Status
    requested: float
    started: float | None = None
    finished: float | None = None
    report: Mapping[str, Any] | None = None
    why: str | None = None

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Audit:
        return cls(**orjson.loads(data))


@dataclass(frozen=True, slots=True)
class LastAudit:
    """The summary of an audit that has ended. epoch, differing: of its report, if it has one."""

    id: str
    kind: str
    status: str
    finished: float
    epoch: int | None
    differing: int | None
    why: str | None = None


def new_audit(kind: Kind, cause: str, status: Status = "queued") -> Audit:
    """An audit that begins now, or waits."""
    now = time.time()
    return Audit(f"a{secrets.token_hex(8)}", kind, cause, status, now, now if status == "running" else None)


class AuditClient:
    """The services' side."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = keys

    async def submit(self) -> Audit:
        """Ask for an audit of everything. If one waits already, that is the answer: it will see all that there is now.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
        """
        audit, keys = new_audit("full", "request"), self._keys
        with storage_errors():
            waiting = cast(list[Any], await cast(Any, self._redis.lrange(keys.audit_queue, 0, 0)))
            if waiting:
                data = await self._redis.get(keys.audit(bytes(waiting[0]).decode()))
                if data is not None:
                    return Audit.decode(cast(bytes, data))
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.set(keys.audit(audit.id), audit.encode())
            pipeline.zadd(keys.audits, {audit.id: audit.requested})
            pipeline.rpush(keys.audit_queue, audit.id)
            await pipeline.execute()
        return audit

    async def get(self, audit_id: str) -> Audit:
        """An audit.

        Raises:
            UnknownAuditError: there is none with that id.
        """
        with storage_errors():
            data = cast(bytes | None, await self._redis.get(self._keys.audit(audit_id)))
        if data is None:
            raise UnknownAuditError(f"there is no audit {shown(audit_id)}", audit=audit_id)
        return Audit.decode(data)

    async def list(self, limit: int) -> list[Audit]:
        """The newest audits first."""
        with storage_errors():
            names = cast(list[Any], await self._redis.zrevrange(self._keys.audits, 0, limit - 1))
            if not names:
                return []
            keys = [self._keys.audit(bytes(name).decode()) for name in names]
            found = cast(list[bytes | None], await self._redis.mget(keys))
        return [Audit.decode(data) for data in found if data is not None]

    async def last(self) -> dict[str, LastAudit]:
        """The last audit of each kind that has ended."""
        with storage_errors():
            found = await cast(Any, self._redis.hgetall(self._keys.last_audits))
        return {kind.decode(): LastAudit(**orjson.loads(data)) for kind, data in found.items()}


class AuditQueue:
    """The engine's side. Its calls raise StorageUnavailableError."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = keys

    def next(self) -> Audit | None:
        """The next audit that somebody asked for, which waits until it begins; None: there is none."""
        keys = self._keys
        with storage_errors():
            name = cast(bytes | None, self._redis.lindex(keys.audit_queue, 0))
            if name is None:
                return None
            data = cast(bytes | None, self._redis.get(keys.audit(name.decode())))
            if data is None:
                self._redis.lrem(keys.audit_queue, 0, name.decode())
        return None if data is None else Audit.decode(data)

    def begin(self, audit: Audit) -> Audit:
        """Note that it runs."""
        running = replace(audit, status="running", started=time.time())
        self._write(running)
        return running

    def end(self, audit: Audit, status: Status, report: Mapping[str, Any] | None, why: str | None) -> Audit:
        """Note how it ended, and drop the oldest audits."""
        ended = replace(audit, status=status, finished=time.time(), report=report, why=why)
        self._write(ended)
        keys = self._keys
        with storage_errors():
            old = cast(list[bytes], self._redis.zrange(keys.audits, 0, -KEPT_AUDITS - 1))
            if old:
                self._redis.delete(*(keys.audit(name.decode()) for name in old))
                self._redis.zrem(keys.audits, *old)
        return ended

    def abandon(self) -> None:
        """The audits of an engine that is gone have failed."""
        with storage_errors():
            names = cast(list[bytes], self._redis.zrange(self._keys.audits, 0, -1))
            found = self._redis.mget([self._keys.audit(n.decode()) for n in names]) if names else []
        for data in cast(list[bytes | None], found):
            audit = None if data is None else Audit.decode(data)
            if audit is not None and audit.status == "running":
                self.end(audit, "failed", None, "the engine ended while it ran; ask for it again")

    def _write(self, audit: Audit) -> None:
        keys, report = self._keys, audit.report or {}
        with storage_errors():
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.set(keys.audit(audit.id), audit.encode())
            pipeline.zadd(keys.audits, {audit.id: audit.requested})
            pipeline.lrem(keys.audit_queue, 0, audit.id)
            if audit.finished is not None:
                last = LastAudit(
                    audit.id,
                    audit.kind,
                    audit.status,
                    audit.finished,
                    report.get("epoch"),
                    report.get("differing"),
                    audit.why,
                )
                pipeline.hset(keys.last_audits, audit.kind, orjson.dumps(asdict(last)))
            pipeline.execute()
