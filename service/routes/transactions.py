"""`/v1/transactions`: one atomic change, and its outcome; `POST /v1/facts`: a short form for changes of facts."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from engine.errors import (
    TransactionCancelledError,
    TransactionNotCancellableError,
    UnknownTransactionError,
    shown,
)
from engine.storage.client import DatabaseClient
from service.access.roles import needs
from service.body import decode_json, media_type, off_loop, read_body
from service.changes import facts_from_json, transaction_from_json
from service.context import service_of
from service.describe import WRITE_ERRORS, body_of, json_body, problems
from service.formats import answers_json, json_response
from service.models import Pending, TransactionBody, TransactionResult, TransactionStatus
from service.outcomes import problem_for, result_for
from service.parameters import QuickRoute, SourceName, Write, only_known_parameters
from service.principal import ForbiddenError, Principal, principal_of
from service.problems import NotAcceptableError, document
from service.reading import prefixes_for
from service.submission import status_url, submit

router = APIRouter(
    tags=["transactions"],
    dependencies=[Depends(only_known_parameters), Depends(answers_json)],
    route_class=QuickRoute,
)

# The log's ids are those of a Redis stream.
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
# An engine that runs hears of a cancellation in a quarter of that.
_CANCEL_SECONDS = 1.0

ACCEPTED = {
    "model": Pending,
    "description": "The transaction is in the log; its outcome is not known yet.",
    "headers": {"Location": {"description": "The URL of its outcome.", "schema": {"type": "string"}}},
}

COMMITTED = {
    "description": "The transaction is committed.",
    "headers": {
        "Idempotency-Replayed": {
            "description": "`true` if an earlier request with the same Idempotency-Key was applied.",
            "schema": {"type": "string"},
        }
    },
}

Mode = Annotated[
    Literal["zset", "set"],
    Query(description="With `set`, adding what is there, or retracting what is not there, has no effect."),
]

_EXAMPLES = {
    "facts and a rule": {
        "facts": [{"relation": "edge", "tuples": [["a", "b"], ["b", "c"]], "weight": 1}],
        "rules": [{"rule": "tc(x, y) :- edge(x, y).", "weight": 1}],
        "mode": "zset",
    },
    "a retraction": {"facts": [{"relation": "edge", "tuples": [["a", "b"]], "weight": -1}]},
}


@router.post(
    "/v1/transactions",
    summary="Apply facts and rules as one epoch",
    response_model=TransactionResult,
    responses={200: COMMITTED, 202: ACCEPTED, **problems(*WRITE_ERRORS)},
    openapi_extra=needs("writer") | json_body(TransactionBody, _EXAMPLES),
    operation_id="postTransaction",
)
async def post_transaction(request: Request, options: Write) -> Response:
    """Everything in the body is applied, or nothing. The answer comes when the epoch is committed, or with 202 when the
    service's time limit has passed. A transaction that was answered with 200 or 202 survives any crash. After a 503 or
    a lost connection, send it again with the same Idempotency-Key: it is applied only once.
    """
    started = time.perf_counter()
    service = service_of(request)
    media_type(request)
    body = await read_body(request, service.settings.max_body_bytes)
    prefixes = await prefixes_for(service, body.decode(errors="replace") if b'"program"' in body else None)
    transaction = await off_loop(
        len(body),
        lambda: transaction_from_json(
            decode_json(body), dry_run=options.dry_run, return_delta=options.return_delta, prefixes=prefixes
        ),
    )
    return await submit(service, transaction, options, started, principal_of(request))


_ONE_FACTS = {"$ref": "#/components/schemas/FactChange"}
_FACTS_SCHEMA = {"oneOf": [_ONE_FACTS, {"type": "array", "items": _ONE_FACTS}]}


@router.post(
    "/v1/facts",
    summary="Add or retract facts",
    response_model=TransactionResult,
    responses={200: COMMITTED, 202: ACCEPTED, **problems(*WRITE_ERRORS)},
    openapi_extra=needs("writer")
    | body_of(
        _FACTS_SCHEMA,
        {
            "add": {"relation": "edge", "tuples": [["a", "b"], ["b", "c"]]},
            "retract": {"relation": "edge", "tuples": [["a", "b"]], "weight": -1},
            "several relations": [
                {"relation": "edge", "tuples": [["a", "b"]]},
                {"relation": "node", "tuples": [["a"]]},
            ],
        },
    ),
    operation_id="postFacts",
)
async def post_facts(
    request: Request, options: Write, mode: Mode = "zset", source: SourceName = None
) -> Response:
    """One change of facts, or a list of them, as one transaction. A weight of -1 retracts."""
    started = time.perf_counter()
    service = service_of(request)
    media_type(request)
    body = await read_body(request, service.settings.max_body_bytes)
    transaction = await off_loop(
        len(body),
        lambda: facts_from_json(
            decode_json(body), mode=mode, dry_run=options.dry_run, return_delta=options.return_delta
        ),
    )
    return await submit(service, transaction.told(source=source), options, started, principal_of(request))


@router.get(
    "/v1/transactions/{transaction_id}",
    summary="Show the outcome of a transaction",
    response_model=TransactionStatus,
    response_model_exclude_none=True,
    responses=problems(UnknownTransactionError, NotAcceptableError),
    openapi_extra=needs("reader"),
    operation_id="getTransaction",
)
async def get_transaction(
    request: Request, transaction_id: Annotated[str, Path(examples=["1735689600000-0"])]
) -> Response:
    """`pending`, `committed` or `dry_run` with the result, or `refused` with the problem document."""
    return json_response(await _status(service_of(request).client, transaction_id, principal_of(request)))


@router.delete(
    "/v1/transactions/{transaction_id}",
    status_code=202,
    summary="Cancel a transaction",
    response_model=TransactionStatus,
    response_model_exclude_none=True,
    responses=problems(UnknownTransactionError, TransactionNotCancellableError, NotAcceptableError),
    openapi_extra=needs("writer"),
    operation_id="deleteTransaction",
)
async def delete_transaction(
    request: Request, transaction_id: Annotated[str, Path(examples=["1735689600000-0"])]
) -> Response:
    """A waiting transaction is refused (`cancelled`) when its turn comes; the evaluation of a running one ends within a
    moment, and it is refused in the same way. Transactions that share its epoch are applied without it. The answer is
    its status after at most a second: `pending` if the engine has not yet noticed the cancellation.
    """
    client, principal = service_of(request).client, principal_of(request)
    if principal.is_narrowed:
        raise ForbiddenError(
            "the transaction may be anybody's and change any relation, so whoever is narrowed to some relations "
            "cancels none",
            principal=principal.name,
        )
    before = await _status(client, transaction_id, principal)
    if before["status"] == "pending" and await client.cancel(transaction_id):
        await client.wait_outcome(transaction_id, _CANCEL_SECONDS)
    after = await _status(client, transaction_id, principal)
    cancelled = after["status"] == "refused" and after["problem"]["code"] == TransactionCancelledError.code
    if after["status"] != "pending" and not cancelled:
        undo = "; to undo it, send the opposite transaction" if after["status"] == "committed" else ""
        raise TransactionNotCancellableError(
            f"the transaction {transaction_id} already has its outcome: {after['status']}{undo}",
            transaction=transaction_id,
            outcome=after["status"],
        )
    return json_response(after, 202)


async def _status(client: DatabaseClient, transaction_id: str, principal: Principal) -> dict[str, Any]:
    """What is known about a transaction, and may be seen by the principal.

    Raises:
        UnknownTransactionError.
    """
    unknown = UnknownTransactionError(
        f"there is no transaction {shown(transaction_id)}, or its outcome is no longer kept",
        transaction=transaction_id,
    )
    if not _ID.fullmatch(transaction_id):
        raise unknown
    answer: dict[str, Any] = {"transaction": transaction_id, "status_url": status_url(transaction_id)}
    outcome = await client.outcome(transaction_id)
    if outcome is None and await client.is_pending(transaction_id):
        return {**answer, "status": "pending"}
    # It may have been committed between the two looks.
    outcome = outcome or await client.outcome(transaction_id)
    if outcome is None:
        raise unknown
    answer["status"] = outcome.status
    if outcome.status == "refused":
        return {**answer, "problem": document(problem_for(principal, outcome.body), answer["status_url"])}
    return {**answer, "result": {"transaction": transaction_id, **result_for(principal, outcome.body)}}
