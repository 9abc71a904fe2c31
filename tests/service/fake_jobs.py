"""Bulk jobs in memory with the interface of `JobClient`; a test says what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.errors import IdempotencyConflictError, JobNotCancellableError
from engine.storage.jobs import Job, JobReceipt, unknown_job


class FakeJobs:
    """`reach` fails while Redis is away."""

    def __init__(self, reach: Callable[[], None]) -> None:
        self._reach = reach
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}

    def clear(self) -> None:
        self.jobs.clear()
        self.keys.clear()

    def change(self, job_id: str, **fields: Any) -> None:
        job = self.jobs[job_id]
        self.jobs[job_id] = replace(job, revision=job.revision + 1, **fields)

    async def submit(
        self, kind: str, request: dict[str, Any], idempotency_key: str | None = None
    ) -> JobReceipt:
        self._reach()
        known = self.keys.get(idempotency_key or "")
        if known is not None:
            if self.jobs[known].request != request:
                raise IdempotencyConflictError("the Idempotency-Key was used before with a different request")
            return JobReceipt(known, True)
        job_id = f"j{len(self.jobs):016x}"
        self.jobs[job_id] = Job(job_id, kind, "queued", request, 1, 1735689600.0)
        if idempotency_key is not None:
            self.keys[idempotency_key] = job_id
        return JobReceipt(job_id, False)

    async def get(self, job_id: str) -> Job:
        self._reach()
        if job_id not in self.jobs:
            raise unknown_job(job_id)
        return self.jobs[job_id]

    async def list(self, limit: int) -> list[Job]:
        self._reach()
        return list(reversed(self.jobs.values()))[:limit]

    async def cancel(self, job_id: str) -> None:
        job = await self.get(job_id)
        if job.ended:
            raise JobNotCancellableError(f"the job {job_id} has already ended with the status {job.status}")
        self.change(job_id, status="cancelled")
