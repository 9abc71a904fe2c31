"""`POST /v1/query`: a conjunction over the relations of one epoch, answered with named columns.

A single atom is read from the snapshot directly (goal.py, projection.py); everything else is evaluated
(evaluation.py).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from engine.data.values import Tuple
from engine.database.query import prepare
from engine.errors import (
    ArityError,
    BudgetExceededError,
    EvaluationCancelledError,
    EvaluationError,
    InvalidCursorError,
    ProgramSyntaxError,
    TypeMismatchError,
    UnknownPrefixError,
    UnknownRelationError,
    UnsafeRuleError,
    UnsupportedFeatureError,
)
from engine.language.parser import parse_query
from engine.language.prefixes import ANY_PREFIX, Shortener, may_use_prefixes
from engine.language.schema import Column, ColumnType
from engine.language.syntax import Query
from engine.storage.snapshot import Snapshot
from service.access.rights import check_query, visible_schemas
from service.access.roles import needs
from service.body import read_json
from service.changes import with_place
from service.context import Service, service_of
from service.cursor import Cursor, decode_cursor, encode_cursor, query_digest
from service.describe import BODY_ERRORS, READ_ERRORS, json_body, problems
from service.evaluation import Deadline, until_gone
from service.formats import ROW_TYPES, negotiate, rows_response
from service.goal import Selection, select
from service.models import QueryBody, QueryPage
from service.parameters import only_known_parameters, seconds_allowed
from service.principal import Principal, principal_of
from service.projection import projected_page
from service.reading import page_limit, pin
from service.routes.relations import ROWS
from service.validation import read_as

router = APIRouter(tags=["query"], dependencies=[Depends(only_known_parameters)])


_EXAMPLES = {
    "who reaches c": {"query": 'tc(x, "c")'},
    "cycles": {"query": "tc(x, x)", "limit": 100},
    "does it hold": {"query": 'tc("a", "c")'},
    "a conjunction": {
        "query": 'tc("a", x), !edge("a", x), n = count : { edge(x, _) }, n > 1',
        "timeout": 2.5,
    },
    "with a head": {"query": "q(y, count(x)) :- tc(x, y), x != y"},
}


@router.post(
    "/v1/query",
    summary="Answer a query",
    response_model=QueryPage,
    responses={
        200: ROWS,
        **problems(
            *BODY_ERRORS,
            ProgramSyntaxError,
            ArityError,
            TypeMismatchError,
            UnknownPrefixError,
            UnsafeRuleError,
            UnsupportedFeatureError,
            UnknownRelationError,
            EvaluationError,
            BudgetExceededError,
            EvaluationCancelledError,
            InvalidCursorError,
            *READ_ERRORS,
        ),
    },
    openapi_extra=needs("reader") | json_body(QueryBody, _EXAMPLES),
    operation_id="postQuery",
)
async def post_query(request: Request) -> Response:
    """The query is a conjunction of atoms, negated atoms, conditions and equations, with the terms, functors and
    aggregates of rules; `;` separates alternatives. The answer is the set of distinct bindings of its named variables,
    with the variables as columns in the order of their first use; `_` and the local variables of aggregates are left
    out. With a head, `q(x, n) :- ...`, the columns are the terms of the head; its name is only a label. A query without
    variables answers `holds`, with one empty row if it is true.

    It is evaluated over one epoch, without waiting for a running one. It is refused with `budget_exceeded` if it takes
    longer than `timeout`, or reads and computes more tuples than the service allows, and cancelled if its client
    disconnects.
    """
    service, principal = service_of(request), principal_of(request)
    kind = negotiate(request, ROW_TYPES)
    body = read_as(QueryBody, await read_json(request, service.settings.max_body_bytes))
    text = body.query
    limit = page_limit(service, body.limit, principal)
    deadline = Deadline(seconds_allowed(service.settings, body.timeout))
    digest = query_digest("query", text)
    start = None if body.cursor is None else decode_cursor(body.cursor, digest)
    query = with_place("query", lambda: parse_query(text, ANY_PREFIX))
    check_query(principal, query)
    snapshot = await pin(service, body.at_least, body.as_of, start)
    if may_use_prefixes(text):
        query = with_place("query", lambda: parse_query(text, snapshot.prefixes))
    work = _page(service, principal, snapshot, query, digest, limit, start, deadline)
    columns, rows, position = await until_gone(request, work)
    following = None if position is None else encode_cursor(Cursor(snapshot.token, list(position)), digest)
    document: dict[str, Any] = {"epoch": snapshot.epoch, "token": snapshot.token, "cursor": following}
    if not columns:
        document["holds"] = bool(rows)
    if body.prefixes:
        rows = list(map(Shortener(snapshot.prefixes).row, rows))
    return rows_response(kind, columns, rows, document)


async def _page(
    service: Service,
    principal: Principal,
    snapshot: Snapshot,
    query: Query,
    digest: str,
    limit: int,
    start: Cursor | None,
    deadline: Deadline,
) -> tuple[tuple[Column, ...], list[Tuple], Tuple | None]:
    """Columns, a page of distinct rows, and the position after it if there are more."""
    goal, schemas = query.goal, visible_schemas(principal, snapshot.schemas)
    if goal is not None:
        selection = with_place("query", lambda: select(goal, query.text, schemas))
        rows, after = await deadline.hold(_selected(service, snapshot, selection, digest, limit, start))
        return selection.columns, rows, after
    prepared = with_place("query", lambda: prepare(query, schemas))
    number = 0 if start is None else _number(start)
    rows, following = await service.evaluator.page(snapshot, prepared, digest, limit, number, deadline)
    return prepared.columns, rows, None if following is None else (following,)


async def _selected(
    service: Service, snapshot: Snapshot, selection: Selection, digest: str, limit: int, start: Cursor | None
) -> tuple[list[Tuple], Tuple | None]:
    """The same for a single atom, which needs no evaluation."""
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


def _number(start: Cursor) -> int:
    """The number of the cursor's row. A forged cursor must not cause an internal error."""
    match start.position:
        case [int(number)] if number >= 0 and not isinstance(number, bool):
            return number
    raise InvalidCursorError("the cursor is damaged; start again without one")


def _row(selection: Selection, start: Cursor) -> Tuple:
    """The cursor's row. A forged cursor must not make the comparison of rows fail."""
    python = {ColumnType.SYMBOL: str, ColumnType.NUMBER: int, ColumnType.FLOAT: float, ColumnType.BOOL: bool}
    row = tuple(start.position)
    if len(row) != len(selection.columns) or not all(
        c.type is not None and type(v) is python[c.type] for v, c in zip(row, selection.columns, strict=True)
    ):
        raise InvalidCursorError("the cursor is damaged; start again without one")
    return row
