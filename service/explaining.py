"""Explanations over pinned snapshots: which tuple, which states, and what is tried by dry runs.

In: a checked body and a principal. Out: a JSON document. Always: what the principal may not read is not in it; a
change that is tried goes through the log as a dry run, so it changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from engine.data.transaction import FactChange, Transaction
from engine.data.values import Value
from engine.errors import (
    EngineUnavailableError,
    EpochNotRetainedError,
    InvalidCursorError,
    InvalidRequestError,
)
from engine.explain.change import changed
from engine.explain.explainer import Explainer
from engine.explain.local import parsed
from engine.explain.repair import Limits
from engine.language.parser import parse_goal
from engine.language.prefixes import ANY_PREFIX
from engine.language.syntax import Constant
from engine.storage.explaining import SnapshotSource
from engine.storage.snapshot import Snapshot
from service.changes import with_place
from service.context import Service
from service.cursor import Cursor, decode_cursor, encode_cursor, query_digest
from service.evaluation import Deadline
from service.explain_models import ExplainBody
from service.goal import schema_of, select
from service.history import Transactions
from service.origins import Origins
from service.principal import Principal
from service.reading import page_limit, pin

Json = dict[str, Any]

# The part of the time that is kept for telling what was found.
_TO_TELL = 0.1


def asked_of(body: ExplainBody) -> tuple[str, str | None, list[Value]]:
    """The relation, the text if the tuple is one, and the values if it is a list.

    Raises:
        InvalidRequestError: it is not said, or twice. ProgramSyntaxError: the text is not an atom.
    """
    if (body.tuple is None) == (body.node is None):
        raise InvalidRequestError(
            'give either "tuple", what to explain, or "node", the id of a node to go on with'
        )
    text = body.node if body.node is not None else body.tuple
    where = "tuple" if body.node is None else "node"
    if isinstance(text, str):
        if body.relation is not None:
            raise InvalidRequestError(
                f'"relation" goes with a list of values; "{where}" is a text, which names its relation itself'
            )
        return with_place(where, lambda: parsed(text, ANY_PREFIX))[0], text, []
    assert isinstance(text, list)
    if body.relation is None:
        raise InvalidRequestError(
            'a list of values needs "relation" beside it, the relation that it is a tuple of'
        )
    return body.relation, None, text


def _values(snapshot: Snapshot, relation: str, text: str | None, values: list[Value]) -> list[Value]:
    """The values of the tuple, which fit the relation.

    Raises:
        UnknownRelationError, ArityError, TypeMismatchError: they do not.
    """
    if text is None:
        schema_of(snapshot.schemas, relation)
        return values
    goal = parse_goal(text, snapshot.prefixes)
    select(goal, text, snapshot.schemas)
    return [term.value for term in goal.terms if isinstance(term, Constant)]


async def explanation(service: Service, principal: Principal, body: ExplainBody, deadline: Deadline) -> Json:
    """The document that answers the body, when its time has begun. The search for repairs ends before the time does,
    so that what it has found can be told."""
    relation, text, given = asked_of(body)
    principal.check_read([relation])
    if body.changed_at is not None:
        return await _changed(service, principal, body, relation, text, given)
    digest = query_digest("explain", relation, text, given)
    start = None if body.cursor is None else decode_cursor(body.cursor, digest)
    snapshot = await pin(service, body.at_least, body.as_of, start)
    values = with_place("tuple", lambda: _values(snapshot, relation, text, given))
    explainer = _explainer(service, principal, snapshot, body)
    key = await explainer.key(relation, values)
    document: Json = {"epoch": snapshot.epoch, "token": snapshot.token}
    if not await explainer.holds(key):
        if not body.why_not:
            return {**document, "holds": False, "root": (await explainer.named(key))[0]}
        attempt = _Attempt(service, relation, (await explainer.named(key))[1])
        # A dry run tries a change of the newest state.
        newest = body.repairs and (await service.client.snapshot()).epoch == snapshot.epoch
        until = time.monotonic() + deadline.left() - deadline.seconds * _TO_TELL
        limits = Limits(wanted=body.repairs, until=until)
        found = await explainer.why_not(
            key, attempt.holds_after if newest else None, limits, principal.may_read
        )
        if body.repairs and not newest:
            found["search"] = {
                "complete": False,
                "dry_runs": 0,
                "limit": "repairs are tried at the newest epoch only",
            }
        return {**document, **found}
    if not body.all:
        return {**document, **await explainer.why(key, _least(body.size, principal))}
    first = 0 if start is None else _number(start)
    limit = _least(page_limit(service, body.limit), principal)
    found, following = await explainer.alternatives(key, first, limit)
    cursor = None if following is None else encode_cursor(Cursor(snapshot.token, [following]), digest)
    return {**document, **found, "cursor": cursor}


async def _changed(
    service: Service,
    principal: Principal,
    body: ExplainBody,
    relation: str,
    text: str | None,
    given: list[Value],
) -> Json:
    """Why a tuple came or went at an epoch."""
    epoch = body.changed_at
    assert epoch is not None
    if body.as_of is not None or body.all or body.cursor is not None:
        raise InvalidRequestError(
            '"changed_at" says which epochs are compared; leave out as_of, all and cursor'
        )
    after = await pin(service, body.at_least, epoch)
    before: Snapshot | None = None
    why = "there is no epoch before it"
    if epoch > 0:
        try:
            before = await service.client.snapshot(epoch - 1)
        except EpochNotRetainedError:
            why = f"epoch {epoch - 1} is no longer kept"
    known = after if before is None or relation in after.schemas else before
    values = with_place("tuple", lambda: _values(known, relation, text, given))
    explainers = [None if s is None else _explainer(service, principal, s, body) for s in (before, after)]
    assert explainers[1] is not None
    found = await changed(explainers[0], explainers[1], relation, values, _least(body.size, principal))
    document: Json = {"epoch": after.epoch, "token": after.token, "root": found["after"]["root"], **found}
    if before is None:
        document["before_unknown"] = why
    for summary in await service.client.epochs(epoch + 1, 1):
        if summary.get("epoch") == epoch:
            document["committed"] = {
                "time": summary.get("time"),
                "count": summary.get("transactions"),
                "transactions": await Transactions(service.client, principal).of(epoch),
            }
    return document


def _explainer(service: Service, principal: Principal, snapshot: Snapshot, body: ExplainBody) -> Explainer:
    readable = None if principal.reads is None else {n for n in snapshot.schemas if principal.may_read(n)}
    allowance = service.settings.query_tuples
    origins = Origins(service.client, snapshot, principal, body.origins)
    return Explainer(SnapshotSource(snapshot), readable, allowance, body.contributions, origins)


class _Attempt:
    """Tries changes of facts by dry runs."""

    def __init__(self, service: Service, relation: str, values: list[Value]) -> None:
        self._service = service
        self._relation, self._values = relation, values

    async def holds_after(self, changes: Sequence[tuple[str, list[Value], int]]) -> bool:
        """Whether the tuple is there after the changes.

        Raises:
            EngineUnavailableError: no engine has tried them in time.
        """
        facts = tuple(FactChange(relation, (tuple(row),), weight) for relation, row, weight in changes)
        transaction = Transaction.of(facts, (), dry_run=True, return_delta=True)
        client = self._service.client
        receipt = await client.append(transaction)
        try:
            outcome = await client.wait_outcome(receipt.transaction_id, self._service.settings.wait_timeout)
        except asyncio.CancelledError:
            # The time is over, and others wait for the engine.
            await client.cancel(receipt.transaction_id)
            raise
        if outcome is None:
            await client.cancel(receipt.transaction_id)
            raise EngineUnavailableError(
                "no engine has tried a repair in time; ask with repairs = 0 for an explanation without repairs"
            )
        delta = outcome.body.get("delta", {}) if outcome.status == "dry_run" else {}
        return self._values in [list(row) for row in delta.get(self._relation, {}).get("inserted", ())]


def _least(count: int, principal: Principal) -> int:
    """No more tuples than the principal may have in an answer."""
    return count if principal.rows is None else min(count, principal.rows)


def _number(start: Cursor) -> int:
    match start.position:
        case [int(number)] if number >= 0 and not isinstance(number, bool):
            return number
    raise InvalidCursorError("the cursor is damaged; start again without one")
