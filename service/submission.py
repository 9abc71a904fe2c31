"""From a checked transaction to its answer: append to the log, wait for the epoch, report the outcome.

Always: once `append` has returned, the transaction is in the log for good. So a wait that ends early, because time is
up or because Redis is no longer reachable, is answered with 202 and a URL for the outcome, not with an error.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from engine.data.transaction import Transaction
from engine.errors import StorageUnavailableError, UnknownTransactionError
from engine.storage.client import Outcome
from service.access.rights import check_transaction
from service.context import Service
from service.formats import json_response
from service.outcomes import problem_for, result_for
from service.parameters import WriteOptions
from service.principal import Principal
from service.problems import InvalidParameterError, respond


def status_url(transaction_id: str) -> str:
    return f"/v1/transactions/{transaction_id}"


async def submit(
    service: Service,
    transaction: Transaction,
    options: WriteOptions,
    started: float,
    principal: Principal,
    asked: bytes | None = None,
) -> Response:
    """Append and answer; `started` is `time.perf_counter()` at the request's arrival. asked: see
    `DatabaseClient.append`.

    Raises:
        ForbiddenError: the principal may not do all that the transaction does.
        InvalidParameterError: there are two messages.
        IdempotencyConflictError: the key was used with another body before.
        StorageUnavailableError: the log could not be written.
        UnknownTransactionError: the key belongs to a transaction whose outcome is no longer kept.
    """
    check_transaction(principal, transaction)
    if options.message is not None and transaction.message is not None:
        raise InvalidParameterError(
            "the message is given twice: as a parameter, and in the body", parameter="message"
        )
    chosen = replace(transaction, strategy=options.strategy, placement=options.placement)
    chosen = chosen.told(principal.author, options.message)
    # A dry run changes nothing, so it may be done again; its key stays free for the transaction that it tries.
    key = None if chosen.dry_run else options.idempotency_key
    receipt = await service.client.append(chosen, key, asked)
    headers = {"Idempotency-Replayed": "true"} if receipt.replayed else {}
    outcome: Outcome | None = None
    try:
        if options.wait:
            outcome = await service.client.wait_outcome(receipt.transaction_id, service.settings.wait_timeout)
        elif receipt.replayed:
            outcome = await service.client.outcome(receipt.transaction_id)
    except StorageUnavailableError:
        # The log has the transaction; only its outcome cannot be read now.
        outcome = None
    if outcome is None and receipt.replayed and not await _may_be_pending(service, receipt.transaction_id):
        raise UnknownTransactionError(
            f"the transaction {receipt.transaction_id} with this Idempotency-Key was processed before, "
            "and its outcome is no longer kept",
            transaction=receipt.transaction_id,
        )
    service.metrics.transactions.labels(outcome.status if outcome else "pending").inc()
    if outcome is None:
        return _accepted(receipt.transaction_id, headers)
    if outcome.status == "refused":
        return respond(
            {**problem_for(principal, outcome.body), "transaction": receipt.transaction_id},
            status_url(receipt.transaction_id),
            headers,
        )
    total = round((time.perf_counter() - started) * 1000, 3)
    body = {"transaction": receipt.transaction_id, **result_for(principal, outcome.body)}
    body["elapsed_ms"] = {**outcome.body["elapsed_ms"], "total": total}
    return json_response(body, 200, headers)


async def _may_be_pending(service: Service, transaction_id: str) -> bool:
    try:
        if await service.client.is_pending(transaction_id):
            return True
        # It may have been committed between the two looks.
        return await service.client.outcome(transaction_id) is not None
    except StorageUnavailableError:
        return True


def _accepted(transaction_id: str, headers: dict[str, str]) -> Response:
    url = status_url(transaction_id)
    body: dict[str, Any] = {"transaction": transaction_id, "status": "pending", "status_url": url}
    return json_response(body, 202, {**headers, "Location": url})
