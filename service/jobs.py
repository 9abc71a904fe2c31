"""Bulk jobs over HTTP: submit one, show it, wait for it, follow it.

Always: what is shown comes from Redis; the service itself keeps nothing about a job, so any service can answer for any
job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
from starlette.responses import Response

from engine.storage.jobs import Job, Kind
from service.access.rights import visible_job_result
from service.context import Service
from service.formats import json_response
from service.outcomes import problem_for
from service.principal import Principal
from service.problems import document, respond

POLL_SECONDS: Final = 0.2
_ALIVE_SECONDS: Final = 15.0


def status_url(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"


def job_document(job: Job, principal: Principal) -> dict[str, Any]:
    """A job as the principal may see it; that it may know of it has been checked."""
    url = status_url(job.id)
    request = {name: value for name, value in job.request.items() if value is not None}
    return {
        "job": job.id,
        "kind": job.kind,
        "status": job.status,
        "cancelling": job.cancelling,
        "request": request,
        "created": job.created,
        "started": job.started,
        "finished": job.finished,
        "stages": list(job.stages),
        "transaction": job.transaction,
        "result": visible_job_result(principal, job, job.result)
        if job.result is not None and job.status == "succeeded"
        else None,
        "problem": None if job.problem is None else document(problem_for(principal, job.problem), url),
        "status_url": url,
        "events_url": f"{url}/events",
    }


async def submit(
    service: Service,
    kind: Kind,
    request: dict[str, Any],
    idempotency_key: str | None,
    wait: bool,
    principal: Principal,
) -> Response:
    """Put the job into the queue and answer 202, or with `wait` its outcome.

    Raises:
        IdempotencyConflictError, StorageUnavailableError.
    """
    receipt = await service.client.jobs.submit(kind, request, idempotency_key)
    headers = {"Idempotency-Replayed": "true"} if receipt.replayed else {}
    url = status_url(receipt.job_id)
    job = await service.client.jobs.get(receipt.job_id)
    deadline = time.monotonic() + service.settings.wait_timeout
    while wait and not job.ended and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        job = await service.client.jobs.get(receipt.job_id)
    if not job.ended:
        return json_response(job_document(job, principal), 202, {**headers, "Location": url})
    if wait and job.problem is not None:
        return respond({**problem_for(principal, job.problem), "job": job.id}, url, headers)
    return json_response(job_document(job, principal), 200 if wait else 202, {**headers, "Location": url})


async def events(service: Service, job: Job, principal: Principal) -> AsyncIterator[bytes]:
    """Server-Sent Events: `progress` with the job whenever it has changed, and finally `end`."""
    said = -1
    alive = time.monotonic()
    while True:
        if job.revision != said:
            said, alive = job.revision, time.monotonic()
            name = "end" if job.ended else "progress"
            data = orjson.dumps(job_document(job, principal)).decode()
            yield f"event: {name}\nid: {said}\ndata: {data}\n\n".encode()
        elif time.monotonic() - alive > _ALIVE_SECONDS:
            alive = time.monotonic()
            yield b": alive\n\n"
        if job.ended:
            return
        await asyncio.sleep(POLL_SECONDS)
        job = await service.client.jobs.get(job.id)
