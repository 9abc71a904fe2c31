"""Bulk jobs in Redis: the services submit, watch and cancel them, the engine runs them.

In: a request as JSON. Out: `Job`, one job as readers see it. Always: a submitted job survives a crash of any process;
it is run by one engine at a time, the holder of the lease; and an import's transaction goes into the log at most once,
in the same atomic step that records it in the job. `JobQueue` is the engine's, synchronous side, `JobClient` the
services', asynchronous one.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import orjson
import redis
import redis.asyncio

from engine.errors import (
    IdempotencyConflictError,
    JobCancelledError,
    JobNotCancellableError,
    UnknownJobError,
    shown,
)
from engine.storage import job_scripts
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.log import IDEMPOTENCY_SECONDS

Kind = Literal["import", "export", "restore"]
QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"
ENDED: Final = (SUCCEEDED, FAILED, CANCELLED)
KEPT_JOBS: Final = 1_000
_JSON_FIELDS: Final = ("request", "stages", "result", "problem")


class LostJobError(Exception):
    """Another engine has taken the job over."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job. Times are seconds since 1970. stages: `{name, fraction, seconds}` in order, the last is the present one.
    result: what it did; problem: why it failed, as `ZedlogError.problem()`."""

    id: str
    kind: str
    status: str
    request: Mapping[str, Any]
    revision: int
    created: float
    started: float | None = None
    finished: float | None = None
    stages: tuple[Mapping[str, Any], ...] = ()
    transaction: str | None = None
    cancelling: bool = False
    result: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] | None = None
    attempts: int = field(default=0)

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @classmethod
    def decode(cls, job_id: str, raw: Mapping[bytes, bytes]) -> Job | None:
        if not raw:
            return None
        fields = {key.decode(): value for key, value in raw.items()}
        data = {name: orjson.loads(fields[name]) for name in _JSON_FIELDS if name in fields}

        def seconds(name: str) -> float | None:
            return float(fields[name]) if name in fields else None

        status = fields["status"].decode()
        return cls(
            id=job_id,
            kind=fields["kind"].decode(),
            status=status,
            request=data["request"],
            revision=int(fields["revision"]),
            created=float(fields["created"]),
            started=seconds("started"),
            finished=seconds("finished"),
            stages=tuple(data.get("stages", ())),
            transaction=fields["transaction"].decode() if "transaction" in fields else None,
            cancelling="cancel" in fields and status == RUNNING,
            result=data.get("result"),
            problem=data.get("problem"),
            attempts=int(fields.get("attempts", 0)),
        )


@dataclass(frozen=True, slots=True)
class JobReceipt:
    """The job is kept. `replayed`: an earlier request with the same Idempotency-Key submitted it."""

    job_id: str
    replayed: bool


class JobClient:
    """The services' side."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis = client
        self._keys = keys
        self._submit = client.register_script(job_scripts.SUBMIT)
        self._cancel = client.register_script(job_scripts.CANCEL)

    async def submit(
        self,
        kind: Kind,
        request: Mapping[str, Any],
        idempotency_key: str | None = None,
        digest: str | None = None,
    ) -> JobReceipt:
        """Put a job into the queue. digest: the value that distinguishes requests with the same key; by default of the
        request.

        Raises:
            IdempotencyConflictError: the key was used before with a different request.
            StorageUnavailableError: Redis cannot be reached.
        """
        body = orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
        job_id = f"j{secrets.token_hex(8)}"
        # Without a key it gets one of its own, so that the connection may send it again.
        name = hashlib.blake2b((idempotency_key or job_id).encode(), digest_size=16).hexdigest()
        digest = digest or hashlib.blake2b(kind.encode() + body, digest_size=16).hexdigest()
        keys = self._keys
        seconds = IDEMPOTENCY_SECONDS if idempotency_key is not None else 60
        with storage_errors():
            answer = await self._submit(
                keys=[keys.job_key(name), keys.job(job_id), keys.jobs, keys.job_queue],
                args=[digest, seconds, job_id, repr(time.time()), "kind", kind, "request", body],
            )
        found, what = bytes(answer[0]).decode(), int(answer[1])
        if what == 2 and idempotency_key is not None:
            raise IdempotencyConflictError(
                f"the Idempotency-Key {shown(idempotency_key[:200])} was used before with a different request",
                idempotency_key=idempotency_key,
                job=found,
            )
        return JobReceipt(found, what == 1 and idempotency_key is not None)

    async def get(self, job_id: str) -> Job:
        """A job.

        Raises:
            UnknownJobError: there is none with that id.
        """
        with storage_errors():
            raw = await cast(Any, self._redis.hgetall(self._keys.job(job_id)))
        job = Job.decode(job_id, raw)
        if job is None:
            raise unknown_job(job_id)
        return job

    async def list(self, limit: int) -> list[Job]:
        """The newest jobs first."""
        with storage_errors():
            found = cast(list[Any], await self._redis.zrevrange(self._keys.jobs, 0, limit - 1))
            ids = [bytes(name).decode() for name in found]
            pipeline = self._redis.pipeline(transaction=False)
            for job_id in ids:
                pipeline.hgetall(self._keys.job(job_id))
            raws = await pipeline.execute()
        return [
            job for name, raw in zip(ids, raws, strict=True) if (job := Job.decode(name, raw)) is not None
        ]

    async def cancel(self, job_id: str) -> None:
        """Ask to cancel a job: one that waits is cancelled at once, one that runs as soon as its engine notices the
        request.

        Raises:
            UnknownJobError: there is none with that id.
            JobNotCancellableError: it has ended, or its transaction is in the log.
        """
        keys = [self._keys.job(job_id), self._keys.job_queue]
        with storage_errors():
            status = bytes(await self._cancel(keys=keys, args=[job_id, repr(time.time())])).decode()
        if not status:
            raise unknown_job(job_id)
        if status == "applying":
            raise JobNotCancellableError(
                f"the transaction of the job {job_id} is already in the log and will be applied; "
                "to undo it, import the same files with the weight -1",
                job=job_id,
                status=RUNNING,
            )
        if status in ENDED:
            raise JobNotCancellableError(
                f"the job {job_id} has already ended with the status {status}", job=job_id, status=status
            )


def unknown_job(job_id: str) -> UnknownJobError:
    return UnknownJobError(f"there is no job {shown(job_id[:64])}, or it is no longer kept", job=job_id[:64])


class JobQueue:
    """The engine's side. `owner`: the lease under which it works."""

    def __init__(self, client: redis.Redis, database: str) -> None:
        self._redis = client
        self._keys = Keys(database)
        self.owner = ""
        scripts = (
            job_scripts.REQUEUE,
            job_scripts.CLAIM,
            job_scripts.UPDATE,
            job_scripts.APPEND,
            job_scripts.FINISH,
        )
        self._requeue, self._claim, self._update, self._append, self._finish = map(
            client.register_script, scripts
        )

    def begin(self, owner: str) -> None:
        """Work under a new lease; jobs that an earlier engine had taken are taken again."""
        self.owner = owner
        with storage_errors():
            self._requeue(keys=[self._keys.job_queue, self._keys.jobs_running])

    def take(self, timeout: float) -> Job | None:
        """The next job, waiting up to `timeout` seconds for one."""
        keys = self._keys
        with storage_errors():
            # Redis takes fractions of a second, whatever the stub says.
            wait = cast(int, timeout)
            found = self._redis.blmove(keys.job_queue, keys.jobs_running, wait, "LEFT", "RIGHT")
            if found is None:
                return None
            job_id = bytes(cast(bytes, found)).decode()
            args = [self.owner, repr(time.time()), job_id]
            if not self._claim(keys=[keys.job(job_id), keys.jobs_running], args=args):
                return None
            return Job.decode(job_id, cast(Any, self._redis.hgetall(keys.job(job_id))))

    def update(self, job_id: str, **fields: Any) -> None:
        """Note progress.

        Raises:
            LostJobError: the job is another engine's now.
            JobCancelledError: somebody wants it to stop.
        """
        with storage_errors():
            answer = self._update(keys=[self._keys.job(job_id)], args=[self.owner, *_flat(fields)])
        _heed(int(cast(int, answer)), job_id)

    def append(self, job_id: str, payload: bytes) -> str:
        """The id of the job's transaction, which is in the log when this returns.

        Raises:
            LostJobError, JobCancelledError: as for `update`; it is not in the log then.
        """
        keys = [self._keys.job(job_id), self._keys.log, self._keys.job_batches]
        with storage_errors():
            answer = cast(list[Any], self._append(keys=keys, args=[self.owner, payload, job_id]))
        if int(answer[0]) != 1:
            _heed(int(answer[0]), job_id)
        return bytes(answer[1]).decode()

    def finish(self, job_id: str, status: str, **fields: Any) -> None:
        """Record how the job ended.

        Raises:
            LostJobError: the job is another engine's now.
        """
        keys = [self._keys.job(job_id), self._keys.jobs_running, self._keys.jobs]
        end = {"status": status, "finished": repr(time.time()), **fields}
        with storage_errors():
            done = self._finish(
                keys=keys, args=[self.owner, job_id, KEPT_JOBS, self._keys.job(""), *_flat(end)]
            )
        _heed(int(cast(int, done)), job_id)

    def outcome(self, transaction_id: str) -> tuple[str, dict[str, Any]] | None:
        """What became of a transaction, or None: not known yet."""
        with storage_errors():
            found = cast(list[Any], self._redis.xrange(self._keys.results, transaction_id, transaction_id))
        if not found:
            return None
        fields = found[0][1]
        return fields[b"status"].decode(), orjson.loads(fields[b"body"])

    def named_batches(self) -> dict[str, str]:
        """Imports whose batch files a transaction names, with the transaction's id."""
        with storage_errors():
            found = cast(dict[bytes, bytes], self._redis.hgetall(self._keys.job_batches))
        return {key.decode(): value.decode() for key, value in found.items()}

    def forget_batches(self, imports: list[str]) -> None:
        """Forget these imports, whose files have been removed."""
        if imports:
            with storage_errors():
                self._redis.hdel(self._keys.job_batches, *imports)

    def oldest_entry(self) -> str | None:
        """The id of the first entry that the log still has."""
        with storage_errors():
            found = cast(list[Any], self._redis.xrange(self._keys.log, count=1))
        return bytes(found[0][0]).decode() if found else None

    def kept(self) -> set[str]:
        """The ids of all jobs that are kept."""
        with storage_errors():
            return {
                bytes(name).decode() for name in cast(list[Any], self._redis.zrange(self._keys.jobs, 0, -1))
            }

    def unfinished(self) -> set[str]:
        """The ids of jobs that wait or run."""
        with storage_errors():
            waiting = cast(list[Any], self._redis.lrange(self._keys.job_queue, 0, -1))
            running = cast(list[Any], self._redis.lrange(self._keys.jobs_running, 0, -1))
        return {bytes(name).decode() for name in [*waiting, *running]}


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [
        text
        for name, value in fields.items()
        for text in (name, orjson.dumps(value) if name in _JSON_FIELDS else value)
    ]


def _heed(answer: int, job_id: str) -> None:
    if answer == 0:
        raise LostJobError(job_id)
    if answer == 2:
        raise JobCancelledError(f"the job {job_id} was cancelled; it left nothing behind", job=job_id)
