"""`/v1/whoami`: who makes the request, and with which rights."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.access.roles import needs
from service.describe import problems
from service.formats import answers_json, json_response
from service.parameters import only_known_parameters
from service.principal import LOCAL, Role, principal_of
from service.problems import NotAcceptableError

router = APIRouter(tags=["access"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])


class Whoami(BaseModel):
    """Who makes the request. `reads` and `writes` are null where the rights are not narrowed to relations; `rows` is
    the most rows of one answer, null where it is the service's own limit. `asked` is false where the service asks
    nobody for a token."""

    name: Annotated[str, Field(examples=["dashboard"])]
    role: Role
    reads: list[str] | None
    writes: list[str] | None
    rows: int | None
    asked: bool


@router.get(
    "/v1/whoami",
    summary="Who am I?",
    response_model=Whoami,
    responses=problems(NotAcceptableError),
    openapi_extra=needs("reader"),
    operation_id="getWhoami",
)
async def get_whoami(request: Request) -> Response:
    """The name and the rights of the token, or of everybody where the service asks for none."""
    principal = principal_of(request)
    return json_response(
        {
            "name": principal.name,
            "role": principal.role,
            "reads": None if principal.reads is None else sorted(principal.reads),
            "writes": None if principal.writes is None else sorted(principal.writes),
            "rows": principal.rows,
            "asked": principal != LOCAL,
        }
    )
