"""`POST /v1/exports`: export a relation or a query at one epoch to files, through Spark, as a job."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from engine.errors import (
    EngineUnavailableError,
    EpochNotRetainedError,
    TargetExistsError,
    UnknownRelationError,
)
from service.access.rights import check_job
from service.access.roles import needs
from service.body import read_json
from service.bulk_models import ExportBody, Job
from service.context import service_of
from service.describe import PROGRAM_ERRORS, json_body, problems
from service.formats import answers_json
from service.jobs import submit
from service.parameters import IdempotencyKey, only_known_parameters
from service.principal import principal_of
from service.routes.imports import ENDED, JOB_ERRORS, SUBMITTED, Wait
from service.validation import read_as

router = APIRouter(tags=["bulk"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])


@router.post(
    "/v1/exports",
    summary="Export tuples to files",
    response_model=Job,
    responses={
        200: ENDED,
        202: SUBMITTED,
        **problems(
            *JOB_ERRORS,
            *PROGRAM_ERRORS,
            TargetExistsError,
            UnknownRelationError,
            EpochNotRetainedError,
            EngineUnavailableError,
        ),
    },
    openapi_extra=needs("writer")
    | json_body(
        ExportBody,
        {
            "a relation": {"relation": "tc", "path": "closure", "format": "parquet"},
            "a query at an epoch": {
                "query": 'tc("a", x), !edge("a", x)',
                "path": "far.csv",
                "epoch": 7,
            },
            "facts with their weights": {
                "relation": "edge",
                "path": "edges.jsonl",
                "domain": "asserted",
                "weights": True,
            },
        },
    ),
    operation_id="postExport",
)
async def post_export(
    request: Request, idempotency_key: IdempotencyKey = None, wait: Wait = False
) -> Response:
    """Writes one pinned epoch completely, then moves it to its place in one step. A path with the format's suffix
    becomes one file, any other path a folder of several files.
    """
    service = service_of(request)
    checked = read_as(ExportBody, await read_json(request, service.settings.max_body_bytes)).request()
    check_job(principal_of(request), checked)
    return await submit(service, "export", checked.as_json(), idempotency_key, wait, principal_of(request))
