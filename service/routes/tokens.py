"""`/v1/tokens`: make, list and revoke access tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field, StrictInt, StrictStr
from starlette.responses import Response

from engine.errors import InvalidRequestError
from service.access.errors import TokenExistsError, UnknownTokenError
from service.access.roles import needs
from service.access.tokens import create, listed, new_token, revoke
from service.body import read_json
from service.context import service_of
from service.describe import BODY_ERRORS, json_body, problems
from service.formats import answers_json, json_response
from service.models import Strict
from service.parameters import only_known_parameters
from service.principal import Role
from service.problems import NotAcceptableError
from service.validation import read_as

router = APIRouter(tags=["access"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])

Relations = Annotated[list[StrictStr] | None, Field(description="By default, all relations.")]
Above0 = Annotated[float, Field(gt=0, lt=2**53)]


class TokenBody(Strict):
    """A token to be made."""

    name: Annotated[
        StrictStr, Field(min_length=1, max_length=64, description="The author of what is done with it.")
    ]
    role: Annotated[Role, Field(description="Each may do what those before it may do.")] = "reader"
    reads: Relations = None
    writes: Relations = None
    rows: Annotated[StrictInt | None, Field(ge=1, lt=2**53, description="The most rows of one answer.")] = (
        None
    )
    rate: Annotated[Above0 | None, Field(description="Requests a second, in each service process.")] = None
    body_bytes: Annotated[
        StrictInt | None, Field(ge=1, lt=2**53, description="The largest request body.")
    ] = None
    expires_in: Annotated[
        Above0 | None, Field(description="Seconds until it expires; by default it does not.")
    ] = None


class Token(BaseModel):
    """A token, without its secret. `reads` and `writes` are null where it is not narrowed to relations. Times are
    seconds since 1970."""

    name: str
    id: str
    role: str
    reads: list[str] | None
    writes: list[str] | None
    rows: int | None
    rate: float | None
    body_bytes: int | None
    created: float
    expires: float | None
    expired: bool


class NewToken(Token):
    """The token itself is in `token`, and is shown only this once."""

    token: str


class Tokens(BaseModel):
    """All tokens, by name."""

    tokens: list[Token]


@router.post(
    "/v1/tokens",
    status_code=201,
    summary="Make a token",
    response_model=NewToken,
    responses=problems(*BODY_ERRORS, TokenExistsError),
    openapi_extra=needs("admin")
    | json_body(
        TokenBody,
        {
            "reads two relations": {
                "name": "dashboard",
                "role": "reader",
                "reads": ["tc", "edge"],
                "rows": 1000,
            },
            "for 90 days": {"name": "loader", "role": "writer", "expires_in": 7776000},
        },
    ),
    operation_id="postToken",
)
async def post_token(request: Request) -> Response:
    """From now on the service asks for tokens, also on the loopback address. The token is in this answer and nowhere
    else: the database keeps only its hash.
    """
    service = service_of(request)
    body = read_as(TokenBody, await read_json(request, service.settings.max_body_bytes))
    token, text = new_token(
        body.name, body.role, body.reads, body.writes, body.rows, body.rate, body.body_bytes, body.expires_in
    )
    await create(service.client.tokens, token)
    service.tokens.forget()
    return json_response({**token.shown(), "token": text}, 201, {"Cache-Control": "no-store"})


@router.get(
    "/v1/tokens",
    summary="List the tokens",
    response_model=Tokens,
    responses=problems(NotAcceptableError),
    openapi_extra=needs("admin"),
    operation_id="getTokens",
)
async def get_tokens(request: Request) -> Response:
    """Names and rights, not the tokens themselves, which nobody has but their holders."""
    found = await listed(service_of(request).client.tokens)
    return json_response({"tokens": [token.shown() for token in found]})


@router.delete(
    "/v1/tokens/{name}",
    status_code=204,
    summary="Revoke a token",
    response_class=Response,
    responses=problems(UnknownTokenError, InvalidRequestError, NotAcceptableError),
    openapi_extra=needs("admin"),
    operation_id="deleteToken",
)
async def delete_token(
    request: Request, name: Annotated[str, Path(description="The token's name.", examples=["dashboard"])]
) -> Response:
    """Every service refuses it after at most a second."""
    service = service_of(request)
    await revoke(service.client.tokens, name)
    service.tokens.forget()
    return Response(status_code=204)
