"""`POST /v1/query`: a goal over one relation, answered with named columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from engine.errors import (
    ArityError,
    InvalidCursorError,
    InvalidRequestError,
    ProgramSyntaxError,
    TypeMismatchError,
    UnknownRelationError,
    UnsupportedFeatureError,
)
from engine.language.schema import ColumnType
from engine.storage.snapshot import Snapshot
from engine.transaction import Tuple
from service.body import read_json
from service.changes import check_object, with_place
from service.context import Service, service_of
from service.cursor import Cursor, decode_cursor, encode_cursor, query_digest
from service.describe import BODY_ERRORS, READ_ERRORS, json_body, problems
from service.formats import ROW_TYPES, negotiate, rows_response
from service.goal import Selection, select
from service.models import QueryBody, QueryPage
from service.parameters import only_known_parameters
from service.problems import NotAcceptableError
from service.projection import projected_page
from service.reading import page_limit, pin
from service.routes.relations import ROWS

router = APIRouter(tags=["query"], dependencies=[Depends(only_known_parameters)])

_FIELDS = ("query", "limit", "cursor", "at_least", "as_of")
_EXAMPLES = {
    "who reaches c": {"query": 'tc(x, "c")'},
    "cycles": {"query": "tc(x, x)", "limit": 100},
    "does it hold": {"query": 'tc("a", "c")'},
}


@router.post(
    "/v1/query",
    summary="Answer a goal",
    response_model=QueryPage,
    responses={
        200: ROWS,
        **problems(
            *BODY_ERRORS,
            ProgramSyntaxError,
            ArityError,
            TypeMismatchError,
            UnsupportedFeatureError,
            UnknownRelationError,
            InvalidCursorError,
            NotAcceptableError,
            *READ_ERRORS,
        ),
    },
    openapi_extra=json_body(QueryBody, _EXAMPLES),
    operation_id="postQuery",
)
async def post_query(request: Request) -> Response:
    """The goal is one atom: constants bind, a repeated variable asks for equal columns, `_` is left out. The
    answer is the distinct bindings of the variables, in the order in which they are written. A goal without
    variables answers `holds`, and one empty row where it does.
    """
    service = service_of(request)
    kind = negotiate(request, ROW_TYPES)
    body = check_object(
        await read_json(request, service.settings.max_body_bytes), "the body", _FIELDS, ("query",)
    )
    text = _text(body, "query")
    assert text is not None
    limit = page_limit(service, _count(body, "limit", 1))
    digest = query_digest("query", text)
    cursor = _text(body, "cursor")
    start = None if cursor is None else decode_cursor(cursor, digest)
    snapshot = await pin(service, _text(body, "at_least"), _count(body, "as_of", 0), start)
    selection = with_place("query", lambda: select(text, snapshot.schemas))
    rows, position = await _rows(service, snapshot, selection, digest, limit, start)
    following = None if position is None else encode_cursor(Cursor(snapshot.token, list(position)), digest)
    document: dict[str, Any] = {"epoch": snapshot.epoch, "token": snapshot.token, "cursor": following}
    if not selection.columns:
        document["holds"] = bool(rows)
    return rows_response(kind, selection.columns, rows, document)


async def _rows(
    service: Service, snapshot: Snapshot, selection: Selection, digest: str, limit: int, start: Cursor | None
) -> tuple[list[Tuple], Tuple | None]:
    """A page of distinct rows, and the position after it if there are more."""
    free = snapshot.schemas[selection.relation].columns
    if any(free[i].type is None for i in selection.bound):
        return [], None
    if not selection.columns:
        page = await snapshot.facts(selection.relation, selection.bound, limit=1)
        return [()] if page.tuples else [], None
    if selection.needs_projection:
        # JSON keeps a whole float apart from an integer, so a row comes back as it was.
        after = None if start is None else _row(selection, start)
        return await projected_page(service.projections, snapshot, selection, digest, limit, after)
    position = None if start is None else tuple(start.position)
    page = await snapshot.facts(selection.relation, selection.bound, limit=limit, after=position)
    return list(selection.project(page.tuples)), page.next


def _row(selection: Selection, start: Cursor) -> Tuple:
    """The cursor's row. A forged cursor must not make the comparison of rows fail."""
    python = {ColumnType.SYMBOL: str, ColumnType.NUMBER: int, ColumnType.FLOAT: float, ColumnType.BOOL: bool}
    row = tuple(start.position)
    if len(row) != len(selection.columns) or not all(
        c.type is not None and type(v) is python[c.type] for v, c in zip(row, selection.columns, strict=True)
    ):
        raise InvalidCursorError("the cursor is damaged; start again without one")
    return row


def _text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is None and field != "query":
        return None
    if not isinstance(value, str):
        raise InvalidRequestError(f"{field} must be a string, not {value!r}", field=field)
    return value


def _count(body: Mapping[str, Any], field: str, least: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if type(value) is not int or not least <= value < 2**63:
        raise InvalidRequestError(
            f"{field} must be an integer of at least {least}, not {value!r}", field=field
        )
    return value
