"""`/sparql`: the SPARQL 1.1 Protocol over the relation `triple`; `GET /v1/sparql`: the store that answers it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from engine.data.transaction import FactChange, Transaction
from engine.errors import (
    BudgetExceededError,
    EvaluationCancelledError,
    EvaluationError,
    InvalidRequestError,
    SparqlSyntaxError,
    SparqlUnavailableError,
    SparqlUnsupportedError,
)
from service.access.roles import needs
from service.body import off_loop
from service.context import service_of
from service.describe import READ_ERRORS, WRITE_ERRORS, problems
from service.evaluation import until_gone
from service.formats import answers_json, json_response
from service.models import TransactionResult
from service.parameters import (
    AtLeast,
    SourceName,
    Write,
    WriteOptions,
    only_known_parameters,
    seconds_allowed,
)
from service.principal import Principal, principal_of
from service.problems import InvalidParameterError
from service.reading import pin
from service.routes.transactions import ACCEPTED
from service.sparql.answers import GRAPHS, RESULTS
from service.sparql.follower import TRIPLE
from service.sparql.graphs import check_query, operations
from service.sparql_protocol import FORM, QUERY, UPDATE, Asked, formats, none_of, read_request
from service.submission import submit

router = APIRouter(tags=["sparql"])

Graphs = Annotated[
    list[str] | None, Query(description="Only names of the default graph; there are no others.")
]
Hint = Annotated[
    list[str] | None,
    Query(description="A format, as some clients name it; counts where the Accept header says nothing."),
]
Timeout = Annotated[
    float | None,
    Query(gt=0, allow_inf_nan=False, description="Seconds that it may take, once the store is there."),
]

_TEXT = {"schema": {"type": "string"}}
_ANSWER = {
    "description": "The answer, or the description of the service.",
    "content": {kind: {"schema": {}} if kind.endswith("+json") else _TEXT for kind in (*RESULTS, *GRAPHS)},
    "headers": {
        "Zedlog-Epoch": {"description": "The epoch that it is about.", "schema": {"type": "integer"}},
        "Zedlog-Token": {"description": "The token of this epoch.", "schema": {"type": "string"}},
        "Zedlog-Skipped": {
            "description": "How many tuples of the relation are not triples of RDF, if there are any.",
            "schema": {"type": "integer"},
        },
    },
}
_QUERY_ERRORS = (
    InvalidRequestError,
    SparqlSyntaxError,
    SparqlUnsupportedError,
    SparqlUnavailableError,
    EvaluationError,
    BudgetExceededError,
    EvaluationCancelledError,
    *READ_ERRORS,
)
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}, "update": {"type": "string"}},
                }
            },
            QUERY: {**_TEXT, "example": "SELECT * WHERE { ?s ?p ?o } LIMIT 10"},
            UPDATE: {
                **_TEXT,
                "example": 'INSERT DATA { <http://example.org/a> <http://example.org/name> "A" }',
            },
        },
    }
}


class SparqlStore(BaseModel):
    """The store of this service process that answers SPARQL."""

    state: Literal["absent", "filling", "ready"] = Field(description="It is made when it is first asked for.")
    epoch: int = Field(description="The epoch that it is at; -1 while it is not there.")
    triples: int
    skipped: int = Field(description="Tuples of the relation that are not triples of RDF.")
    bytes: int = Field(description="The memory of its process.")
    limit: int = Field(description="The most memory that it may take.")
    fill_seconds: float = Field(description="How long it took to fill it.")
    filled: int = Field(description="How often it was filled since the service started.")
    followed: int = Field(description="How many epochs it followed.")


@router.get(
    "/sparql",
    summary="Answer a SPARQL query",
    responses={200: _ANSWER, **problems(*_QUERY_ERRORS)},
    response_class=Response,
    openapi_extra=needs("reader"),
    operation_id="getSparql",
)
async def get_sparql(
    request: Request,
    query: Annotated[str | None, Query(examples=["SELECT * WHERE { ?s ?p ?o } LIMIT 10"])] = None,
    default_graph_uri: Annotated[Graphs, Query(alias="default-graph-uri")] = None,
    named_graph_uri: Annotated[Graphs, Query(alias="named-graph-uri")] = None,
    timeout: Timeout = None,
    at_least: AtLeast = None,
    format: Hint = None,
    output: Hint = None,
    results: Hint = None,
) -> Response:
    """SELECT, ASK, CONSTRUCT or DESCRIBE over the relation `triple`, asserted and derived, as RDF: the SPARQL 1.1
    Protocol. Without any parameter, the description of the service as RDF.
    """
    service = service_of(request)
    asked = await read_request(request, service.settings.max_body_bytes)
    if asked.kind == "description":
        return _description(request, asked)
    return await _answer(request, asked, timeout, at_least)


@router.post(
    "/sparql",
    summary="Answer a SPARQL query, or apply a SPARQL update",
    response_model=TransactionResult,
    responses={
        200: {
            **_ANSWER,
            "description": "The answer; for an update, the result of its transaction as JSON.",
        },
        202: ACCEPTED,
        **problems(*_QUERY_ERRORS, *WRITE_ERRORS),
    },
    openapi_extra=needs("reader") | _BODY,
    operation_id="postSparql",
)
async def post_sparql(
    request: Request,
    options: Write,
    default_graph_uri: Annotated[Graphs, Query(alias="default-graph-uri")] = None,
    named_graph_uri: Annotated[Graphs, Query(alias="named-graph-uri")] = None,
    using_graph_uri: Annotated[Graphs, Query(alias="using-graph-uri")] = None,
    using_named_graph_uri: Annotated[Graphs, Query(alias="using-named-graph-uri")] = None,
    timeout: Timeout = None,
    at_least: AtLeast = None,
    source: SourceName = None,
    format: Hint = None,
    output: Hint = None,
    results: Hint = None,
) -> Response:
    """A query, as with GET; or an update, which needs the role writer: INSERT DATA, DELETE DATA, DELETE and INSERT with
    WHERE, CLEAR of the default graph. All operations of an update become one transaction. It is computed against one
    epoch, which the header `Zedlog-Computed-At` names, and changes facts: what rules derive stays as long as they do.
    """
    started = time.perf_counter()
    service = service_of(request)
    asked = await read_request(request, service.settings.max_body_bytes)
    if asked.kind == "update":
        return await _update(request, asked, options, timeout, at_least, source, started)
    if options.idempotency_key is not None:
        raise InvalidParameterError(
            "a query changes nothing, so it has no Idempotency-Key", parameter="Idempotency-Key"
        )
    return await _answer(request, asked, timeout, at_least)


@router.get(
    "/v1/sparql",
    summary="Show the store that answers SPARQL",
    response_model=SparqlStore,
    responses=problems(*READ_ERRORS),
    dependencies=[Depends(only_known_parameters), Depends(answers_json)],
    openapi_extra=needs("reader"),
    operation_id="getSparqlStore",
)
async def get_sparql_store(request: Request) -> Response:
    """Whether this process has one, for which epoch, and what it takes. Asking for it does not make it."""
    principal_of(request).check_read([TRIPLE])
    service = service_of(request)
    return json_response({**asdict(service.sparql.stats), "limit": service.settings.sparql_bytes})


async def _answer(request: Request, asked: Asked, timeout: float | None, at_least: str | None) -> Response:
    service, principal = service_of(request), principal_of(request)
    principal.check_read([TRIPLE])
    wanted = formats(request, asked.hints)
    await off_loop(len(asked.text), lambda: check_query(asked.text))
    seconds = seconds_allowed(service.settings, timeout)
    snapshot = await pin(service, at_least)
    sent: dict[str, Any] = {
        "query": asked.text,
        **{str(form): kind for form, kind in wanted.items()},
        "rows": principal.rows,
        "bytes": service.settings.sparql_answer_bytes,
    }

    async def work() -> tuple[str, dict[str, Any], bytes]:
        async with service.evaluator.workers:
            return await service.sparql.ask(b"Q", sent, snapshot, seconds)

    token, header, data = await until_gone(request, work())
    form = header.get("form")
    if form is not None:
        raise none_of(tuple(GRAPHS if form == "graph" else RESULTS))
    headers = {"Zedlog-Epoch": token.partition("-")[0], "Zedlog-Token": token, "Vary": "Accept"}
    if service.sparql.stats.skipped:
        headers["Zedlog-Skipped"] = str(service.sparql.stats.skipped)
    return Response(data, headers=headers, media_type=header["type"])


async def _update(
    request: Request,
    asked: Asked,
    options: WriteOptions,
    timeout: float | None,
    at_least: str | None,
    source: str | None,
    started: float,
) -> Response:
    service, principal = service_of(request), principal_of(request)
    await off_loop(len(asked.text), lambda: _check_update(principal, asked.text))
    seconds = seconds_allowed(service.settings, timeout)
    snapshot = await pin(service, at_least)
    sent = {"text": asked.text, "most": service.settings.sparql_update_triples}

    async def work() -> tuple[str, dict[str, Any], bytes]:
        async with service.evaluator.workers:
            return await service.sparql.ask(b"U", sent, snapshot, seconds)

    token, header, _ = await until_gone(request, work())
    changes = [(header["gone"], -1), (header["come"], 1)]
    transaction = Transaction(
        facts=tuple(FactChange(TRIPLE, rows, weight) for rows, weight in changes if rows),
        mode="set",
        dry_run=options.dry_run,
        return_delta=options.return_delta,
    )
    if transaction.facts:
        transaction = transaction.told(source=source)
    # What is computed from the same update may be something else by the time that it is sent again.
    same = orjson.dumps(["sparql", asked.text, source, options.message, principal.author])
    response = await submit(service, transaction, options, started, principal, same)
    response.headers["Zedlog-Computed-At"] = token.partition("-")[0]
    return response


def _check_update(principal: Principal, text: str) -> None:
    """Raise ForbiddenError unless it may change the relation and, where the update depends on it, read it."""
    principal.check_role("writer")
    principal.check_write([TRIPLE])
    found = operations(text)
    if found is None or any(operation.kind != "insert data" for operation in found):
        principal.check_read([TRIPLE])


_SD = "http://www.w3.org/ns/sparql-service-description#"
_FORMATS = "http://www.w3.org/ns/formats/"


def _description(request: Request, asked: Asked) -> Response:
    """SPARQL 1.1 Service Description."""
    # Imported here, because most services never need it.
    from pyoxigraph import BlankNode, NamedNode, Triple, serialize

    kind = formats(request, asked.hints)["graph"]
    if kind is None:
        raise none_of(tuple(GRAPHS))
    here, dataset, graph = BlankNode("service"), BlankNode("dataset"), BlankNode("graph")
    a = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")

    def sd(name: str) -> NamedNode:
        return NamedNode(_SD + name)

    names = ("SPARQL_Results_JSON", "SPARQL_Results_XML", "SPARQL_Results_CSV", "SPARQL_Results_TSV")
    written = (*names, "Turtle", "N-Triples", "RDF_XML", "JSON-LD")
    triples = [
        Triple(here, a, sd("Service")),
        Triple(here, sd("endpoint"), NamedNode(str(request.url.replace(query="")))),
        Triple(here, sd("supportedLanguage"), sd("SPARQL11Query")),
        Triple(here, sd("supportedLanguage"), sd("SPARQL11Update")),
        *(Triple(here, sd("resultFormat"), NamedNode(_FORMATS + name)) for name in written),
        Triple(here, sd("defaultDataset"), dataset),
        Triple(dataset, a, sd("Dataset")),
        Triple(dataset, sd("defaultGraph"), graph),
        Triple(graph, a, sd("Graph")),
    ]
    return Response(serialize(triples, format=GRAPHS[kind], prefixes={"sd": _SD}), media_type=kind)
