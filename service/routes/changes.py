"""`GET /v1/changes`: what each epoch changes, as it happens."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response

from engine.errors import (
    ArityError,
    BudgetExceededError,
    EvaluationCancelledError,
    EvaluationError,
    GapError,
    InvalidValueError,
    LimitReachedError,
    ProgramSyntaxError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownPrefixError,
    UnknownRelationError,
    UnsafeRuleError,
    UnsupportedFeatureError,
    shown,
)
from service.access.roles import needs
from service.context import service_of
from service.describe import EVENTS, READ_ERRORS, problems
from service.evaluation import until_gone
from service.feeds.events import FEED_TYPES, SSE
from service.feeds.feeds import Options
from service.feeds.request import About, about, position
from service.feeds.response import FeedResponse
from service.formats import NDJSON, answers_with, negotiate
from service.parameters import own_parameters
from service.principal import ForbiddenError, principal_of, still
from service.problems import InvalidParameterError
from service.reading import prefixes_for
from service.routes.relations import COLUMN_PARAMETERS
from service.settings import LEAST_HEARTBEAT, MOST_HEARTBEAT

router = APIRouter(tags=["changes"])

STREAM: dict[str, Any] = {
    "description": "Events without an end: `snapshot`, `change`, `progress`, `gap`, `problem`, `end`.",
    "content": {SSE: EVENTS, NDJSON: {"schema": {"type": "string"}}},
    "headers": {
        "Zedlog-Token": {
            "description": "The epoch after which the feed begins.",
            "schema": {"type": "string"},
        }
    },
}
FEED_ERRORS = (
    ProgramSyntaxError,
    ArityError,
    TypeMismatchError,
    UnknownPrefixError,
    UnsafeRuleError,
    UnsupportedFeatureError,
    UnknownRelationError,
    UnknownColumnError,
    InvalidValueError,
    EvaluationError,
    BudgetExceededError,
    EvaluationCancelledError,
    GapError,
    LimitReachedError,
    ForbiddenError,
    *READ_ERRORS,
)

answers_feed = answers_with(*FEED_TYPES)

Snapshot = Annotated[
    bool,
    Query(description="Begin with the state, in parts, and go on from its epoch without a gap."),
]
Follow = Annotated[
    bool, Query(description="With `false`, end when the newest epoch has been reached; nothing waits.")
]
Heartbeat = Annotated[
    float | None,
    Query(
        ge=LEAST_HEARTBEAT,
        le=MOST_HEARTBEAT,
        description="Seconds after which `progress` says up to which epoch nothing happened (15 unless the service is "
        "configured otherwise).",
    ),
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="The id of the last event that arrived, as an EventSource sends it. It takes precedence over "
        "`after`, and the state is not sent again.",
    ),
]


@router.get(
    "/v1/changes",
    summary="Follow the changes of relations or of a query",
    response_class=Response,
    responses={200: STREAM, **problems(*FEED_ERRORS)},
    dependencies=[Depends(answers_feed)],
    openapi_extra=needs("reader") | {"parameters": [COLUMN_PARAMETERS]},
    operation_id="getChanges",
)
async def get_changes(
    request: Request,
    relation: Annotated[
        list[str], Query(description="A relation; the parameter may be repeated.", examples=[["tc"]])
    ] = [],  # noqa: B006  # FastAPI copies it
    query: Annotated[
        str | None,
        Query(
            description="In place of relations: a query as `POST /v1/query` takes it.", examples=["tc(x, x)"]
        ),
    ] = None,
    after: Annotated[
        str | None,
        Query(
            description="An epoch, or a token: the changes after it. Without it, those after the newest.",
            examples=["7-5f2c09b1"],
        ),
    ] = None,
    snapshot: Snapshot = False,
    follow: Follow = True,
    heartbeat: Heartbeat = None,
    last_event_id: LastEventId = None,
) -> Response:
    """One event for each epoch that changes something of it: the tuples that appeared and those that went; a tuple is
    never both. Each event has the token of its epoch as its id. Whoever comes back with the last one, as `after` or
    `Last-Event-ID`, gets every later change once. A listener that does not read is cut off, and can come back.
    """
    own = own_parameters(request)
    parameters = request.query_params.multi_items()
    _check_once(parameters, {"relation"}, own)
    prefixes = await prefixes_for(service_of(request), query)
    wanted = about(relation, [pair for pair in parameters if pair[0] not in own], query, prefixes)
    start = last_event_id if last_event_id is not None else after
    return await stream(
        request, wanted, start, heartbeat, follow=follow, state=snapshot and last_event_id is None
    )


async def stream(
    request: Request,
    wanted: About,
    start: str | int | None,
    heartbeat: float | None,
    *,
    follow: bool,
    state: bool,
) -> Response:
    """The feed. start: the position after which it begins, as text from the request, or an epoch."""
    service = service_of(request)
    kind = negotiate(request, FEED_TYPES)
    principal = principal_of(request)
    principal.check_read(wanted.reads)
    after = start if not isinstance(start, str) else position(start, await service.client.incarnation())
    settings = service.settings
    options = Options(
        state,
        follow,
        heartbeat if heartbeat is not None else settings.feed_heartbeat,
        principal.rows,
        partial(still, request, principal),
    )
    listener = await until_gone(request, service.feeds.listen(wanted, after, options))
    return FeedResponse(listener, kind, settings.feed_send_timeout, service.feeds.metrics.cut_off)


def _check_once(parameters: list[tuple[str, str]], several: set[str], own: frozenset[str]) -> None:
    seen: set[str] = set()
    for name, _ in parameters:
        if name in seen and name in own - several:
            raise InvalidParameterError(f"the parameter {shown(name)} is given twice", parameter=name)
        seen.add(name)
