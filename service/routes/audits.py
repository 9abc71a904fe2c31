"""`/v1/audits`: ask the engine to audit itself, and see what it found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from engine.errors import StorageUnavailableError, UnknownAuditError
from service.access.roles import needs
from service.audits import audit_document
from service.context import service_of
from service.describe import problems
from service.formats import answers_json, json_response
from service.models import Audit, Audits
from service.parameters import only_known_parameters
from service.principal import ForbiddenError, principal_of
from service.problems import InvalidParameterError, NotAcceptableError

router = APIRouter(tags=["insight"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])

AuditId = Annotated[
    str, Path(description="The id that the request returned.", examples=["a1f0a2b3c4d5e6f70"])
]


@router.post(
    "/v1/audits",
    status_code=202,
    summary="Audit the database",
    response_model=Audit,
    responses=problems(InvalidParameterError, NotAcceptableError, ForbiddenError, StorageUnavailableError),
    openapi_extra=needs("admin"),
    operation_id="postAudit",
)
async def post_audit(request: Request) -> Response:
    """Ask the engine to derive everything again from facts and rules, to compare it with what it holds and with what is
    published, and to verify the snapshot in Redis. It does so in a process of low priority, while it goes on. If an
    audit waits already, the answer is that one.
    """
    audit = await service_of(request).client.audits.submit()
    document = audit_document(audit, principal_of(request))
    return json_response(document, 202, headers={"Location": document["status_url"]})


@router.get(
    "/v1/audits",
    summary="List the audits",
    response_model=Audits,
    responses=problems(InvalidParameterError, NotAcceptableError, StorageUnavailableError),
    openapi_extra=needs("reader"),
    operation_id="getAudits",
)
async def get_audits(request: Request, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
    """Newest first, with the comparisons that the engine makes after each start. The last hundred are kept. Differences
    in relations that you may not read are counted, but not shown.
    """
    principal = principal_of(request)
    audits = await service_of(request).client.audits.list(limit)
    return json_response({"audits": [audit_document(audit, principal) for audit in audits]})


@router.get(
    "/v1/audits/{audit_id}",
    summary="One audit",
    response_model=Audit,
    responses=problems(UnknownAuditError, NotAcceptableError, StorageUnavailableError),
    openapi_extra=needs("reader"),
    operation_id="getAudit",
)
async def get_audit(request: Request, audit_id: AuditId) -> Response:
    """What was compared, and the first differences. `status` is `passed`, `differs`, or `failed` if it could not be
    completed.
    """
    audit = await service_of(request).client.audits.get(audit_id)
    return json_response(audit_document(audit, principal_of(request)))
