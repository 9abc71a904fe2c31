"""`/v1/sources`: what sources assert; replace all of it, or take it back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from engine.data.sources import MAX_SOURCE, check_source
from engine.data.transaction import Transaction
from engine.errors import BadRowsError, InvalidRequestError, UnknownSourceError, did_you_mean, shown
from engine.storage.snapshot import Snapshot
from service.access.roles import needs
from service.body import JSON_TYPES, decode_json, media_type, off_loop, read_body
from service.context import service_of
from service.describe import READ_ERRORS, STATE_ERRORS, WRITE_ERRORS, body_of, problems
from service.formats import answers_json, json_response
from service.history_models import SourceAt, SourceBody, Sources
from service.models import TransactionResult
from service.parameters import AsOf, AtLeast, Write, only_known_parameters
from service.principal import Principal, principal_of
from service.problems import InvalidParameterError, NotAcceptableError, near
from service.reading import pin
from service.routes.transactions import ACCEPTED, COMMITTED
from service.sources import described, readable, sources_of
from service.submission import submit
from service.uploaded_rows import FILE_TYPES, read_rows
from service.validation import read_as

router = APIRouter(tags=["sources"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])

READER, WRITER = needs("reader"), needs("writer")
Name = Annotated[
    str, Path(min_length=1, max_length=MAX_SOURCE, description="The source's name.", examples=["hr"])
]
# Any bytes may be text of such a file.
_FILE: dict[str, Any] = {"schema": {}}


@router.get(
    "/v1/sources",
    summary="List the sources",
    response_model=Sources,
    responses=problems(*READ_ERRORS),
    openapi_extra=READER,
    operation_id="getSources",
)
async def get_sources(request: Request, at_least: AtLeast = None, as_of: AsOf = None) -> Response:
    """Every source that asserts facts: how many of which relations, and its last transaction."""
    principal, service = principal_of(request), service_of(request)
    snapshot = await pin(service, at_least, as_of)
    found = {name: readable(counts, principal) for name, counts in sources_of(snapshot).items()}
    seen = {name: counts for name, counts in found.items() if counts}
    sources = await described(service.client, seen, principal)
    return json_response({"sources": sources, "epoch": snapshot.epoch, "token": snapshot.token})


@router.get(
    "/v1/sources/{source}",
    summary="One source",
    response_model=SourceAt,
    responses=problems(UnknownSourceError, *READ_ERRORS),
    openapi_extra=READER,
    operation_id="getSource",
)
async def get_source(
    request: Request, source: Name, at_least: AtLeast = None, as_of: AsOf = None
) -> Response:
    """How many facts of which relations a source asserts, and its last transaction."""
    principal, service = principal_of(request), service_of(request)
    snapshot = await pin(service, at_least, as_of)
    counts = readable(_found(snapshot, source, principal), principal)
    (about,) = await described(service.client, {source: counts}, principal)
    return json_response({**about, "epoch": snapshot.epoch, "token": snapshot.token})


def _found(snapshot: Snapshot, source: str, principal: Principal) -> Mapping[str, int]:
    """What the source asserts, of which the principal may read something.

    Raises:
        UnknownSourceError.
    """
    known = {name: counts for name, counts in sources_of(snapshot).items() if readable(counts, principal)}
    if source not in known:
        names = near(source, known)
        raise UnknownSourceError(
            f"no facts of the source {shown(source)} exist in epoch {snapshot.epoch}.{did_you_mean(names)}",
            source=source,
            near=names,
        )
    return known[source]


@router.put(
    "/v1/sources/{source}",
    summary="Replace what a source asserts",
    response_model=TransactionResult,
    responses={200: COMMITTED, 202: ACCEPTED, **problems(*WRITE_ERRORS, BadRowsError)},
    openapi_extra={
        **body_of(
            {"$ref": "#/components/schemas/SourceBody"},
            {"facts": {"facts": {"manager": [["ann", "bob"]]}, "message": "of today"}},
            dict.fromkeys(FILE_TYPES, _FILE),
        ),
        **WRITER,
    },
    operation_id="putSource",
)
async def put_source(
    request: Request,
    source: Name,
    options: Write,
    relation: Annotated[
        str | None,
        Query(
            min_length=1,
            description="Replace only what the source asserts of this relation. A file needs it: these are its rows.",
            examples=["manager"],
        ),
    ] = None,
    header: Annotated[
        bool,
        Query(
            description="The first line of a CSV or TSV file names the columns, and may include their types."
        ),
    ] = False,
) -> Response:
    """The source asserts exactly these facts from now on, each with the weight 1. Only the difference to what it
    asserted before becomes an epoch; the engine finds it when the transaction's turn in the log comes. The body is
    JSON, with the facts of all relations, or a file with the rows of one relation. `dry_run=true&return=delta` shows
    the difference, and what would follow from it.
    """
    started = time.perf_counter()
    service, principal = service_of(request), principal_of(request)
    check_source(source)
    kind = media_type(request, (*JSON_TYPES, *FILE_TYPES))
    if kind in FILE_TYPES and relation is None:
        raise InvalidParameterError(
            "a file needs the relation whose rows it has: ?relation=", parameter="relation"
        )
    if kind not in FILE_TYPES and header:
        raise InvalidParameterError("header has no effect on JSON", parameter="header")
    if relation is not None:
        principal.check_write([relation])
    body = await read_body(request, service.settings.max_body_bytes)
    snapshot = await service.client.snapshot()
    schema = snapshot.schemas.get(relation or "")

    def work() -> Transaction:
        message = None
        if kind in FILE_TYPES:
            facts: Mapping[str, Any] = {relation or "": read_rows(kind, body, schema, header)}
        else:
            read = read_as(SourceBody, decode_json(body))
            facts, message = read.facts, read.message
        return _replacement(facts, relation, options.dry_run, options.return_delta, message)

    transaction = await off_loop(len(body), work)
    given = [change.relation for change in transaction.facts]
    principal.check_write(given)
    scoped = relation is not None
    if not scoped and principal.writes is not None:
        # Of what the source asserts now, all must be the principal's to change, and nothing else is touched.
        principal.check_write(sources_of(snapshot).get(source, {}))
        transaction, scoped = _naming(transaction, principal.writes), True
    return await submit(
        service,
        transaction.told(source=source, replaces="relations" if scoped else "source"),
        options,
        started,
        principal,
    )


def _replacement(
    facts: Any, relation: str | None, dry_run: bool, return_delta: bool, message: str | None
) -> Transaction:
    if not isinstance(facts, dict):
        raise InvalidRequestError(
            '"facts" must be an object: for each relation a list of tuples', field="facts"
        )
    other = next((name for name in facts if relation is not None and name != relation), None)
    if other is not None:
        raise InvalidRequestError(
            f"the body has facts of {shown(other)}, but only those of {shown(relation)} are to be replaced",
            field="facts",
        )
    if relation is not None:
        facts.setdefault(relation, [])
    parts = [{"relation": name, "tuples": rows} for name, rows in facts.items()]
    return Transaction.parse(parts, mode="set", dry_run=dry_run, return_delta=return_delta, message=message)


def _naming(transaction: Transaction, relations: frozenset[str]) -> Transaction:
    """The transaction, which names these relations too. It does not depend on what the database holds, so that it is
    the same when it is sent again.
    """
    named = {change.relation for change in transaction.facts}
    more = Transaction.parse([{"relation": name, "tuples": []} for name in sorted(relations - named)])
    return replace(transaction, facts=(*transaction.facts, *more.facts))


@router.delete(
    "/v1/sources/{source}",
    summary="Take back what a source asserts",
    response_model=TransactionResult,
    responses={
        200: COMMITTED,
        202: ACCEPTED,
        **problems(
            UnknownSourceError, InvalidRequestError, InvalidParameterError, NotAcceptableError, *STATE_ERRORS
        ),
    },
    openapi_extra=WRITER,
    operation_id="deleteSource",
)
async def delete_source(request: Request, source: Name, options: Write) -> Response:
    """All facts of the source go, in one epoch; what others assert stays. With an Idempotency-Key, a source that
    asserts nothing is no error, so that the call can be sent again.
    """
    started = time.perf_counter()
    service, principal = service_of(request), principal_of(request)
    check_source(source)
    snapshot = await service.client.snapshot()
    now = sources_of(snapshot).get(source, {})
    principal.check_write(now)
    if not now and options.idempotency_key is None:
        _found(snapshot, source, principal)
    transaction = Transaction(mode="set", dry_run=options.dry_run, return_delta=options.return_delta)
    scoped = principal.writes is not None
    if principal.writes is not None:
        transaction = _naming(transaction, principal.writes)
    return await submit(
        service,
        transaction.told(source=source, replaces="relations" if scoped else "source"),
        options,
        started,
        principal,
    )
