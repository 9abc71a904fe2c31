"""`/v1/jobs`: list, show, follow and cancel bulk jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from engine.errors import JobNotCancellableError, UnknownJobError
from engine.storage.jobs import Job as StoredJob
from engine.storage.jobs import unknown_job
from service.access.rights import may_see_job
from service.access.roles import needs
from service.bulk_models import Job, Jobs
from service.context import Service, service_of
from service.describe import EVENTS, problems
from service.formats import answers_json, answers_with, json_response
from service.jobs import events, job_document
from service.parameters import only_known_parameters
from service.principal import Principal, principal_of
from service.problems import InvalidParameterError, NotAcceptableError

router = APIRouter(tags=["bulk"], dependencies=[Depends(only_known_parameters)])

JobId = Annotated[
    str, Path(description="The id that the submission returned.", examples=["j1f0a2b3c4d5e6f70"])
]
_EVENTS = "text/event-stream"


@router.get(
    "/v1/jobs",
    summary="List the jobs",
    response_model=Jobs,
    responses=problems(InvalidParameterError, NotAcceptableError),
    dependencies=[Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getJobs",
)
async def get_jobs(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """Newest first. The last thousand jobs are kept."""
    principal = principal_of(request)
    jobs = await service_of(request).client.jobs.list(limit)
    return json_response(
        {"jobs": [job_document(job, principal) for job in jobs if may_see_job(principal, job)]}
    )


@router.get(
    "/v1/jobs/{job_id}",
    summary="One job",
    response_model=Job,
    responses=problems(UnknownJobError, NotAcceptableError),
    dependencies=[Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getJob",
)
async def get_job(request: Request, job_id: JobId) -> Response:
    """The job's stages with their progress, and once it has ended, its result or problem document."""
    principal = principal_of(request)
    return json_response(job_document(await _job(service_of(request), job_id, principal), principal))


@router.get(
    "/v1/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: {"content": {_EVENTS: EVENTS}},
        **problems(UnknownJobError, NotAcceptableError),
    },
    dependencies=[Depends(answers_with(_EVENTS))],
    openapi_extra=needs("reader"),
    operation_id="getJobEvents",
)
async def get_job_events(request: Request, job_id: JobId) -> Response:
    """Server-Sent Events: `progress` with the whole job whenever it has changed, and `end` when the job has ended; then
    the stream ends.
    """
    service, principal = service_of(request), principal_of(request)
    job = await _job(service, job_id, principal)
    return StreamingResponse(
        events(service, job, principal), media_type=_EVENTS, headers={"Cache-Control": "no-store"}
    )


@router.delete(
    "/v1/jobs/{job_id}",
    status_code=202,
    summary="Cancel a job",
    response_model=Job,
    responses=problems(UnknownJobError, JobNotCancellableError, NotAcceptableError),
    dependencies=[Depends(answers_json)],
    openapi_extra=needs("writer"),
    operation_id="deleteJob",
)
async def delete_job(request: Request, job_id: JobId) -> Response:
    """A waiting job is cancelled at once, a running one within a second; it leaves nothing behind. An import whose
    transaction is already in the log can no longer be cancelled.
    """
    service, principal = service_of(request), principal_of(request)
    await _job(service, job_id, principal)
    await service.client.jobs.cancel(job_id)
    return json_response(job_document(await _job(service, job_id, principal), principal), 202)


async def _job(service: Service, job_id: str, principal: Principal) -> StoredJob:
    """The job, if the principal may know of it.

    Raises:
        UnknownJobError: it may not, or there is none with that id.
    """
    job = await service.client.jobs.get(job_id)
    if not may_see_job(principal, job):
        raise unknown_job(job_id)
    return job
