"""`/v1/relations`: the relations, and their tuples by bound columns, page by page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from engine.errors import InvalidCursorError, InvalidValueError, UnknownColumnError, UnknownRelationError
from engine.language.prefixes import Shortener
from engine.storage.snapshot import Page, Snapshot
from service.access.rights import visible_schemas
from service.access.roles import needs
from service.columns import bound_columns
from service.context import service_of
from service.cursor import Cursor, decode_cursor, encode_cursor, query_digest
from service.describe import READ_ERRORS, problems
from service.formats import (
    ROW_TYPES,
    answers_json,
    describe_columns,
    json_response,
    negotiate,
    rows_response,
)
from service.goal import schema_of
from service.models import FactsPage, RelationAt, Relations
from service.parameters import (
    AsOf,
    AtLeast,
    Limit,
    PageCursor,
    QuickRoute,
    ShortenIris,
    no_parameter_twice,
    only_known_parameters,
    own_parameters,
)
from service.principal import principal_of
from service.reading import page_limit, pin

router = APIRouter(tags=["relations"], route_class=QuickRoute)

RelationName = Annotated[str, Path(description="The relation's name.", examples=["tc"])]

# OpenAPI's way to say "any further parameter": an object whose fields are parameters of their own.
COLUMN_PARAMETERS = {
    "name": "columns",
    "in": "query",
    "required": False,
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
    "examples": {"one column": {"value": {"x": "a"}}},
    "description": (
        "Bound columns, `?x=a&n=3`: each value is written according to the column's type, a symbol without quotes. "
        "For a column that has the name of a parameter of this call, write `where.` before it: `?where.limit=3`."
    ),
}

_IN_HEADERS = "For all media types except JSON, in the headers."
ROWS: dict[str, Any] = {
    "description": "A page of rows.",
    "content": {kind: {"schema": {"type": "string"}} for kind in ROW_TYPES[1:]},
    "headers": {
        name: {"description": _IN_HEADERS, "schema": {"type": "string"}}
        for name in ("Zedlog-Epoch", "Zedlog-Token", "Zedlog-Cursor")
    },
}


@router.get(
    "/v1/relations",
    summary="List the relations",
    response_model=Relations,
    responses=problems(*READ_ERRORS),
    dependencies=[Depends(only_known_parameters), Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getRelations",
)
async def get_relations(request: Request, at_least: AtLeast = None, as_of: AsOf = None) -> Response:
    """Schemas and sizes of all relations that a declaration, a fact or a rule mentions."""
    snapshot = await pin(service_of(request), at_least, as_of)
    names = visible_schemas(principal_of(request), snapshot.schemas)
    return json_response(
        {
            "relations": [_relation(snapshot, name) for name in sorted(names)],
            "epoch": snapshot.epoch,
            "token": snapshot.token,
        }
    )


@router.get(
    "/v1/relations/{relation}",
    summary="One relation",
    response_model=RelationAt,
    responses=problems(UnknownRelationError, *READ_ERRORS),
    dependencies=[Depends(only_known_parameters), Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getRelation",
)
async def get_relation(
    request: Request, relation: RelationName, at_least: AtLeast = None, as_of: AsOf = None
) -> Response:
    """Schema and size of one relation."""
    principal = principal_of(request)
    principal.check_read([relation])
    snapshot = await pin(service_of(request), at_least, as_of)
    schema_of(visible_schemas(principal, snapshot.schemas), relation)
    return json_response({**_relation(snapshot, relation), "epoch": snapshot.epoch, "token": snapshot.token})


def _relation(snapshot: Snapshot, name: str) -> dict[str, Any]:
    schema, counts = snapshot.schemas[name], snapshot.counts(name)
    return {
        "relation": name,
        "columns": describe_columns(schema.columns),
        "declared": schema.declared,
        "counts": {"all": counts.all, "asserted": counts.asserted, "derived": counts.derived},
        "digest": snapshot.digest(name),
    }


@router.get(
    "/v1/relations/{relation}/facts",
    summary="Read a relation's tuples",
    response_model=FactsPage,
    responses={
        200: ROWS,
        **problems(
            UnknownRelationError,
            UnknownColumnError,
            InvalidValueError,
            InvalidCursorError,
            *READ_ERRORS,
        ),
    },
    openapi_extra=needs("reader") | {"parameters": [COLUMN_PARAMETERS]},
    dependencies=[Depends(no_parameter_twice)],
    operation_id="getFacts",
)
async def get_facts(
    request: Request,
    relation: RelationName,
    limit: Limit = None,
    cursor: PageCursor = None,
    domain: Annotated[
        Literal["all", "asserted", "derived"],
        Query(
            description="`asserted`: the facts, with their weights; `derived`: the tuples that some rule derives."
        ),
    ] = "all",
    at_least: AtLeast = None,
    as_of: AsOf = None,
    prefixes: ShortenIris = False,
) -> Response:
    """Tuples whose columns have the bound values. All pages of one cursor chain read the same epoch. The order is
    unspecified, but the same for all pages of an epoch.
    """
    service, principal = service_of(request), principal_of(request)
    principal.check_read([relation])
    kind = negotiate(request, ROW_TYPES)
    parameters = request.query_params.multi_items()
    own = own_parameters(request)
    digest = query_digest("facts", relation, domain, sorted(p for p in parameters if p[0] not in own))
    start = None if cursor is None else decode_cursor(cursor, digest)
    size = page_limit(service, limit, principal)
    snapshot = await pin(service, at_least, as_of, start)
    schema = schema_of(visible_schemas(principal, snapshot.schemas), relation)
    bound = bound_columns(schema, parameters, own)
    if any(schema.columns[i].type is None for i in bound):
        # A column whose type nothing has fixed is a column of a relation without tuples.
        page = Page([], [], [], None)
    else:
        after = None if start is None else tuple(start.position)
        page = await snapshot.facts(relation, bound, domain, size, after)
    following = None if page.next is None else encode_cursor(Cursor(snapshot.token, list(page.next)), digest)
    document: dict[str, Any] = {
        "relation": relation,
        "epoch": snapshot.epoch,
        "token": snapshot.token,
        "cursor": following,
    }
    if domain == "asserted":
        document["weights"] = page.weights
    tuples = page.tuples
    if prefixes:
        tuples = list(map(Shortener(snapshot.prefixes).row, tuples))
    return rows_response(kind, schema.columns, tuples, document)
