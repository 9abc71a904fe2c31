"""`POST /v1/imports`: import files as facts through Spark, as a job; `POST /v1/uploads`: send a file for an import."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from engine.bulk.request import FILE_NAME
from engine.errors import (
    BadRowsError,
    BodyTooLargeError,
    BulkStorageError,
    HeaderMismatchError,
    IdempotencyConflictError,
    InvalidRequestError,
    InvalidWeightError,
    JobAbandonedError,
    JobCancelledError,
    PackageMissingError,
    PathNotAllowedError,
    SourceRefusedError,
    SourceUnreachableError,
    SourceUnreadableError,
    SparkUnavailableError,
    StreamGapError,
    UnknownJobError,
    UnknownRelationError,
)
from service.access.rights import check_job
from service.access.roles import needs
from service.body import read_json
from service.bulk_models import ImportBody, Job, Upload
from service.context import service_of
from service.describe import BODY_ERRORS, STATE_ERRORS, json_body, problems
from service.formats import answers_json, json_response
from service.jobs import submit
from service.parameters import IdempotencyKey, only_known_parameters
from service.principal import principal_of
from service.problems import InvalidParameterError, NotAcceptableError
from service.uploads import receive
from service.validation import read_as

router = APIRouter(tags=["bulk"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])

OCTETS = "application/octet-stream"
Wait = Annotated[
    bool,
    Query(description="Wait until the job has ended; if the service's time limit passes first, answer 202."),
]
SUBMITTED = {
    "model": Job,
    "description": "The job is stored and will be carried out.",
    "headers": {"Location": {"description": "The URL of the job.", "schema": {"type": "string"}}},
}
ENDED = {"description": "With `wait=true`: the job has succeeded."}
JOB_ERRORS = (
    *BODY_ERRORS,
    IdempotencyConflictError,
    PathNotAllowedError,
    SparkUnavailableError,
    BulkStorageError,
    JobCancelledError,
    JobAbandonedError,
    # The job of an Idempotency-Key may be kept no longer.
    UnknownJobError,
)


@router.post(
    "/v1/imports",
    summary="Import files as one transaction",
    response_model=Job,
    responses={
        200: ENDED,
        202: SUBMITTED,
        **problems(
            *JOB_ERRORS,
            InvalidWeightError,
            SourceUnreadableError,
            SourceUnreachableError,
            SourceRefusedError,
            PackageMissingError,
            StreamGapError,
            HeaderMismatchError,
            BadRowsError,
            UnknownRelationError,
            *STATE_ERRORS,
        ),
    },
    openapi_extra=needs("writer")
    | json_body(
        ImportBody,
        {
            "triples": {"path": "lubm1.nt.gz"},
            "triples and the rules of RDFS": {"paths": ["ontology.ttl", "data.nt.gz"], "rules": "rdfs"},
            "CSV with a header": {"path": "edges.csv", "relation": "edge", "header": True},
            "some columns, bad rows left out": {
                "paths": ["a.tsv", "b.tsv"],
                "relation": "edge",
                "columns": [1, 3],
                "types": ["symbol", "symbol"],
                "on_error": "skip",
            },
            "what is new in a topic": {"path": "kafka://broker:9092/edges", "relation": "edge"},
            "a table of a database": {
                "path": "jdbc:postgresql://db/shop",
                "relation": "item",
                "options": {"table": "items", "connection": "shop"},
            },
        },
    ),
    operation_id="postImport",
)
async def post_import(
    request: Request, idempotency_key: IdempotencyKey = None, wait: Wait = False
) -> Response:
    """Spark reads and parses the files, checks the types, and sums the weights; the result is one transaction and one
    epoch, or nothing. Rows that cannot be read are counted, shown and written to a file; by default they fail the
    import.
    """
    service = service_of(request)
    checked = read_as(ImportBody, await read_json(request, service.settings.max_body_bytes)).request()
    principal = principal_of(request)
    check_job(principal, checked)
    checked = replace(checked, author=principal.author)
    # A dry run has keys of its own: no client's key holds a space.
    key = f"dry run {idempotency_key}" if checked.dry_run and idempotency_key else idempotency_key
    return await submit(service, "import", checked.as_json(), key, wait, principal)


@router.post(
    "/v1/uploads",
    status_code=201,
    summary="Send a file for an import",
    response_model=Upload,
    responses=problems(
        InvalidParameterError, InvalidRequestError, BodyTooLargeError, BulkStorageError, NotAcceptableError
    ),
    openapi_extra=needs("writer")
    | {
        "requestBody": {
            "required": True,
            "content": {OCTETS: {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
        }
    },
    operation_id="postUpload",
)
async def post_upload(
    request: Request,
    name: Annotated[
        str,
        Query(
            pattern=f"^{FILE_NAME.pattern}$",
            description="The file's name; its ending determines format and compression.",
            examples=["lubm1.nt.gz"],
        ),
    ],
) -> Response:
    """The body is the file itself, whatever its Content-Type. Put the answer's `upload` into the body of an import; a
    file that no import has used is deleted after a day.
    """
    settings = service_of(request).settings
    upload, size, digest = await receive(request, settings.uploads, name, settings.max_upload_bytes)
    return json_response({"upload": upload, "bytes": size, "sha256": digest}, 201)
