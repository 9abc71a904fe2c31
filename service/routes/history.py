"""What happened: the transactions that are kept, when tuples came and went, and the way back to an older epoch."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from engine.data.transaction import Transaction
from engine.errors import (
    EpochNotRetainedError,
    InvalidCursorError,
    InvalidValueError,
    UnknownColumnError,
    UnknownRelationError,
)
from engine.language.schema import Schema
from engine.storage.client import DatabaseClient
from engine.storage.snapshot import Snapshot
from service.access.roles import needs
from service.body import read_json
from service.columns import bound_columns
from service.context import service_of
from service.cursor import Cursor, decode_cursor, encode_cursor, query_digest
from service.describe import BODY_ERRORS, PROGRAM_ERRORS, READ_ERRORS, STATE_ERRORS, json_body, problems
from service.formats import answers_json, describe_columns, json_response
from service.goal import schema_of
from service.history import LOOKED_AT, Transactions, entry, events, kept, last_schema, matching, since
from service.history_models import Blame, FactHistory, RollbackBody, TransactionList
from service.models import TransactionResult
from service.parameters import (
    AtLeast,
    PageCursor,
    Write,
    no_parameter_twice,
    only_known_parameters,
    own_parameters,
)
from service.principal import principal_of
from service.problems import InvalidParameterError, NotAcceptableError
from service.reading import pin
from service.routes.relations import COLUMN_PARAMETERS, RelationName
from service.routes.transactions import ACCEPTED, COMMITTED
from service.sources import sources_of_tuples
from service.submission import submit
from service.validation import read_as

router = APIRouter(tags=["history"], dependencies=[Depends(answers_json)])

READER, ADMIN = needs("reader"), needs("admin")
_ID = r"^[0-9]{1,20}-[0-9]{1,20}$"
_EPOCH = Query(ge=0, le=2**63 - 1)
_HISTORY_ERRORS = problems(
    UnknownRelationError, UnknownColumnError, InvalidValueError, InvalidCursorError, *READ_ERRORS
)
Time = Annotated[str | None, Query(max_length=40, examples=["2026-01-31T12:00:00Z"])]


@router.get(
    "/v1/transactions",
    summary="List the transactions",
    response_model=TransactionList,
    responses=problems(InvalidParameterError, NotAcceptableError),
    dependencies=[Depends(only_known_parameters)],
    openapi_extra=READER,
    operation_id="getTransactions",
)
async def get_transactions(
    request: Request,
    author: Annotated[str | None, Query(max_length=200)] = None,
    source: Annotated[str | None, Query(max_length=200)] = None,
    status: Literal["committed", "dry_run", "refused"] | None = None,
    relation: Annotated[
        str | None, Query(description="Only those that name it in their facts, or whose epoch changed it.")
    ] = None,
    from_epoch: Annotated[int, _EPOCH] = 0,
    to_epoch: Annotated[int, _EPOCH] = 2**63 - 1,
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        str | None,
        Query(pattern=_ID, description="Only transactions before this one.", examples=["1735689600000-0"]),
    ] = None,
) -> Response:
    """Those that have their outcome, newest first, as far as they are kept, with author, message and source. `since`
    and `until` are times (ISO 8601) at which they arrived, and belong to the range.
    """
    principal = principal_of(request)
    if relation is not None:
        principal.check_read([relation])
    newest = _id("until", until, "18446744073709551615") or "+"
    oldest = _id("since", since, "0") or "-"
    if before is not None and (newest == "+" or _place(before) <= _place(newest)):
        newest = f"({before}"
    fits = matching(author, source, status, relation, (from_epoch, to_epoch))
    found: list[dict[str, Any]] = []
    last, more = "", False
    looked = 0
    async for told in kept(service_of(request).client, newest, oldest):
        if len(found) == limit or (told.epoch is not None and told.epoch < from_epoch):
            more = len(found) == limit
            break
        last, looked = told.id, looked + 1
        shown_entry = entry(told, principal) if fits(told) else None
        if shown_entry is not None:
            found.append(shown_entry)
    else:
        more = looked == LOOKED_AT
    return json_response({"transactions": found, "before": last if more else None})


def _place(transaction_id: str) -> tuple[int, int]:
    left, _, right = transaction_id.partition("-")
    return int(left), int(right)


def _id(name: str, text: str | None, sequence: str) -> str | None:
    """The id that a transaction of a time has."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(
            f"{name} must be a time such as 2026-01-31T12:00:00Z, not {text!r}", parameter=name
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return f"{max(0, int(moment.timestamp() * 1000))}-{sequence}"


@router.get(
    "/v1/relations/{relation}/facts/history",
    summary="When tuples came and went",
    response_model=FactHistory,
    responses=_HISTORY_ERRORS,
    openapi_extra={"parameters": [COLUMN_PARAMETERS], **READER},
    dependencies=[Depends(no_parameter_twice)],
    operation_id="getFactHistory",
)
async def get_fact_history(
    request: Request,
    relation: RelationName,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: PageCursor = None,
    at_least: AtLeast = None,
) -> Response:
    """For the tuples whose columns have the bound values: each epoch in which one appeared, went, or changed its
    weight, newest first, as far back as epochs are kept. Also of a relation that existed in one of them only.
    """
    parameters = request.query_params.multi_items()
    own = own_parameters(request)
    digest = query_digest("history", relation, sorted(p for p in parameters if p[0] not in own))
    start = None if cursor is None else decode_cursor(cursor, digest)
    principal = principal_of(request)
    principal.check_read([relation])
    client = service_of(request).client
    # The epoch of the first page is where the next one goes on, also if others have been published since.
    snapshot = await pin(service_of(request), at_least, None, start)
    schema = await last_schema(client, snapshot, relation) or schema_of(snapshot.schemas, relation)
    bound = _bound(schema, parameters, own)
    begin, skipped = (snapshot, -1) if start is None else await _place_of(client, start)
    transactions = Transactions(client, principal)
    found: list[dict[str, Any]] = []
    following: str | None = None
    oldest = snapshot.oldest
    last: list[int] = []
    if bound is not None:
        async for at, number, values, present, weight, derived in events(client, begin, relation, bound):
            oldest = min(oldest, at.epoch)
            if number < 0 or (at is begin and number <= skipped):
                continue
            if len(found) == limit:
                following = encode_cursor(Cursor(snapshot.token, last), digest)
                break
            last = [at.epoch, number]
            found.append(
                {
                    "epoch": at.epoch,
                    "time": at.time,
                    "tuple": values,
                    "change": {1: "appeared", -1: "went", 0: "changed"}[present],
                    "weight": weight,
                    "derived": derived,
                    "transactions": await transactions.of(at.epoch),
                }
            )
    return json_response(
        {
            "relation": relation,
            "columns": describe_columns(schema.columns),
            "events": found,
            "oldest": oldest,
            "epoch": snapshot.epoch,
            "token": snapshot.token,
            "cursor": following,
        }
    )


async def _place_of(client: DatabaseClient, cursor: Cursor) -> tuple[Snapshot, int]:
    """The epoch in which a page goes on, and the last event in it that was shown.

    Raises:
        EpochNotRetainedError, InvalidCursorError.
    """
    match cursor.position:
        case [int(epoch), int(number)]:
            return await client.snapshot(epoch), number
    raise InvalidCursorError("the cursor is damaged; start again without a cursor")


@router.get(
    "/v1/relations/{relation}/facts/blame",
    summary="Since when tuples have been there",
    response_model=Blame,
    responses=_HISTORY_ERRORS,
    openapi_extra={"parameters": [COLUMN_PARAMETERS], **READER},
    dependencies=[Depends(no_parameter_twice)],
    operation_id="getFactBlame",
)
async def get_fact_blame(
    request: Request,
    relation: RelationName,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    at_least: AtLeast = None,
) -> Response:
    """For the tuples whose columns have the bound values, and which are there now: since which epoch each has been
    there without interruption, and the transactions of that epoch.
    """
    parameters = request.query_params.multi_items()
    own = own_parameters(request)
    principal = principal_of(request)
    principal.check_read([relation])
    client = service_of(request).client
    snapshot = await pin(service_of(request), at_least)
    schema = schema_of(snapshot.schemas, relation)
    bound = _bound(schema, parameters, own)
    blamed: list[dict[str, Any]] = []
    more = False
    if bound is not None:
        page = await snapshot.facts(relation, bound, "all", limit)
        more = page.next is not None
        transactions = Transactions(client, principal)
        epochs, oldest = await since(client, snapshot, relation, bound, page.tuples)
        by_source = await sources_of_tuples(snapshot, relation, page.tuples)
        for values, weight, derived in zip(page.tuples, page.weights, page.derived, strict=True):
            at = epochs.get(values)
            blamed.append(
                {
                    "tuple": values,
                    "since": oldest if at is None else at.epoch,
                    "exact": at is not None,
                    "time": None if at is None else at.time,
                    "weight": weight,
                    "derived": derived,
                    "sources": by_source.get(values, {}),
                    "transactions": None if at is None else await transactions.of(at.epoch),
                }
            )
    return json_response(
        {
            "relation": relation,
            "columns": describe_columns(schema.columns),
            "facts": blamed,
            "more": more,
            "oldest": snapshot.oldest,
            "epoch": snapshot.epoch,
            "token": snapshot.token,
        }
    )


def _bound(schema: Schema, parameters: list[tuple[str, str]], own: frozenset[str]) -> dict[int, Any] | None:
    """The bound columns; None if one of them has no type, so that no tuple can have the value."""
    bound = bound_columns(schema, parameters, own)
    return None if any(schema.columns[i].type is None for i in bound) else bound


@router.post(
    "/v1/rollback",
    summary="Go back to an older epoch",
    response_model=TransactionResult,
    responses={
        200: COMMITTED,
        202: ACCEPTED,
        **problems(*BODY_ERRORS, EpochNotRetainedError, *PROGRAM_ERRORS, *STATE_ERRORS),
    },
    dependencies=[Depends(only_known_parameters)],
    openapi_extra={
        **json_body(RollbackBody, {"an epoch": {"to": 7, "message": "the import was wrong"}}),
        **ADMIN,
    },
    operation_id="postRollback",
)
async def post_rollback(request: Request, options: Write) -> Response:
    """Facts (with those of sources), rules and declarations become what they were after the epoch `to`, in a new epoch;
    what is derived follows. Nothing of what happened in between is forgotten: a rollback can be rolled back. The
    difference is found when its turn in the log comes. With `dry_run=true&return=delta` it is only shown.
    """
    started = time.perf_counter()
    service = service_of(request)
    body = read_as(RollbackBody, await read_json(request, service.settings.max_body_bytes))
    transaction = Transaction(dry_run=options.dry_run, return_delta=options.return_delta)
    return await submit(
        service,
        transaction.told(message=body.message, rollback=body.to),
        options,
        started,
        principal_of(request),
    )
