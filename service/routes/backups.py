"""`GET /v1/backup`: one epoch of the database as a zip; `POST /v1/restore`: a zip into an empty database, as a job."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response, StreamingResponse

from engine.backup.writing import backup
from engine.errors import (
    BodyTooLargeError,
    BulkStorageError,
    EngineUnavailableError,
    EpochNotRetainedError,
    IdempotencyConflictError,
    InvalidBackupError,
    InvalidRequestError,
    JobAbandonedError,
    JobCancelledError,
    NewerBackupError,
    NotEmptyError,
    UnknownJobError,
)
from engine.storage.snapshot import Snapshot
from service.access.roles import needs
from service.bulk_models import Job
from service.context import Service, service_of
from service.describe import PROGRAM_ERRORS, STATE_ERRORS, problems
from service.formats import answers_json, answers_with
from service.jobs import submit
from service.parameters import AsOf, IdempotencyKey, only_known_parameters
from service.principal import ForbiddenError, Principal, principal_of
from service.problems import InvalidParameterError, NotAcceptableError
from service.reading import pin
from service.routes.imports import ENDED, OCTETS, SUBMITTED, Wait
from service.uploads import receive

router = APIRouter(tags=["backup"], dependencies=[Depends(only_known_parameters)])

_ZIP = "application/zip"
_UPLOAD_NAME = "backup.zip"


@router.get(
    "/v1/backup",
    summary="Back up one epoch",
    response_class=Response,
    responses={
        200: {
            "content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}},
            "description": "A zip of Parquet and JSON. It is complete when it ends with its directory.",
            "headers": {
                "Zedlog-Epoch": {"description": "The epoch that is in it.", "schema": {"type": "integer"}},
                "Zedlog-Token": {"description": "The token of that epoch.", "schema": {"type": "string"}},
            },
        },
        **problems(
            InvalidParameterError,
            EpochNotRetainedError,
            EngineUnavailableError,
            NotAcceptableError,
            ForbiddenError,
        ),
    },
    dependencies=[Depends(answers_with(_ZIP))],
    openapi_extra=needs("admin"),
    operation_id="getBackup",
)
async def get_backup(request: Request, as_of: AsOf = None) -> Response:
    """Facts (and what of them each source asserts), rules and declarations of one epoch, the newest or `as_of`, while
    others go on writing: that epoch stays readable until the answer has been sent. Derived tuples are not in it; they
    follow from the rest. A connection that breaks leaves a file that every reader refuses.
    """
    _check_whole(principal_of(request))
    service = service_of(request)
    snapshot = await pin(service, None, as_of)
    name = f"{service.settings.database}-{snapshot.epoch}.zip"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Zedlog-Epoch": str(snapshot.epoch),
        "Zedlog-Token": snapshot.token,
    }
    return StreamingResponse(_held(service, snapshot), media_type=_ZIP, headers=headers)


async def _held(service: Service, snapshot: Snapshot) -> AsyncIterator[bytes]:
    async with service.client.hold(snapshot.epoch):
        async for portion in backup(snapshot, service.settings.database):
            yield portion


@router.post(
    "/v1/restore",
    summary="Restore a backup into an empty database",
    response_model=Job,
    responses={
        200: ENDED,
        202: SUBMITTED,
        **problems(
            InvalidParameterError,
            InvalidRequestError,
            BodyTooLargeError,
            NotAcceptableError,
            ForbiddenError,
            EngineUnavailableError,
            NotEmptyError,
            InvalidBackupError,
            NewerBackupError,
            BulkStorageError,
            IdempotencyConflictError,
            JobCancelledError,
            JobAbandonedError,
            UnknownJobError,
            *PROGRAM_ERRORS,
            *STATE_ERRORS,
        ),
    },
    dependencies=[Depends(answers_json)],
    openapi_extra={
        **needs("admin"),
        "requestBody": {
            "required": True,
            "content": {OCTETS: {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
        },
    },
    operation_id="postRestore",
)
async def post_restore(
    request: Request, idempotency_key: IdempotencyKey = None, wait: Wait = False
) -> Response:
    """The body is the zip, whatever its Content-Type. It is checked completely before anything is applied, then applied
    as one epoch; afterwards the numbers of tuples are compared with those of the backup (`differences` in the job's
    result). A file that is damaged is refused with the name of its damaged member, and a database that has facts, rules
    or declarations refuses every backup.
    """
    _check_whole(principal_of(request))
    service = service_of(request)
    if idempotency_key is None:
        # With a key it may be the repetition of a restore that was applied.
        _check_empty(await service.client.snapshot())
    settings = service.settings
    upload, size, digest = await receive(request, settings.uploads, _UPLOAD_NAME, settings.max_upload_bytes)
    job = {"paths": [upload], "uploaded": True, "bytes": size, "sha256": digest}
    return await submit(service, "restore", job, idempotency_key, wait, principal_of(request))


def _check_whole(principal: Principal) -> None:
    """A backup has everything, so whoever may see or change only some relations may not make or restore one."""
    if principal.reads is not None or principal.writes is not None:
        raise ForbiddenError(
            f'"{principal.name}" may see or change only some relations, but a backup has all of them',
            principal=principal.name,
        )


def _check_empty(snapshot: Snapshot) -> None:
    """Before the body is read; what counts is what the engine finds when its turn comes."""
    facts = [name for name in snapshot.schemas if snapshot.counts(name).asserted]
    if facts or snapshot.rules or snapshot.declarations:
        raise NotEmptyError(
            f"a backup is restored only into an empty database, but this one has facts of {len(facts)} relations, "
            f"{len(snapshot.rules)} rules{' and declarations' if snapshot.declarations else ''}; restore it into "
            "another database (zedlog serve --database NAME, or another --data-dir)",
            facts=len(facts),
            rules=len(snapshot.rules),
        )
