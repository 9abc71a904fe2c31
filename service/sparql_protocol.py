"""The SPARQL 1.1 Protocol: from a request to a query or an update, and from its Accept header to formats.

In: GET with the query in the URL; POST with a form, or with the text itself as the body. Out: what is asked, or a typed
error. Always: a parameter that is not known is an error, as everywhere in this service; the graphs of the protocol may
only name the one graph that there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl

from fastapi import Request

from engine.errors import InvalidRequestError, SparqlUnsupportedError, did_you_mean, shown
from service.body import decode_text, media_type, read_body
from service.formats import negotiate
from service.parameters import own_parameters
from service.problems import InvalidParameterError, NotAcceptableError, near
from service.sparql.answers import GRAPHS, RESULTS, Form
from service.sparql.graphs import DEFAULT_GRAPHS

FORM: Final = "application/x-www-form-urlencoded"
QUERY: Final = "application/sparql-query"
UPDATE: Final = "application/sparql-update"

_GRAPHS_OF: Final = {
    "query": ("default-graph-uri", "named-graph-uri"),
    "update": ("using-graph-uri", "using-named-graph-uri"),
}
_HINTS: Final = ("format", "output", "results")
"""Where clients say the format a second time, each in another way."""
_OF_UPDATES: Final = frozenset({"dry_run", "message", "placement", "return", "source", "strategy", "wait"})

_ALSO: Final = {
    "application/json": "application/sparql-results+json",
    "application/xml": "application/sparql-results+xml",
    "text/xml": "application/sparql-results+xml",
}
_GRAPHS_ALSO: Final = {
    "application/turtle": "text/turtle",
    "application/x-turtle": "text/turtle",
    "text/n3": "text/turtle",
    "text/rdf+n3": "text/turtle",
    "application/xml": "application/rdf+xml",
    "text/xml": "application/rdf+xml",
    "text/plain": "application/n-triples",
}
_SHORT: Final = {
    "json": "application/sparql-results+json",
    "xml": "application/sparql-results+xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "turtle": "text/turtle",
    "ttl": "text/turtle",
    "n3": "text/turtle",
    "nt": "application/n-triples",
    "rdf": "application/rdf+xml",
    "rdf+xml": "application/rdf+xml",
    "json-ld": "application/ld+json",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, an update, or nothing at all, which asks for the description of the service. hints: of formats, for a
    request whose Accept header says nothing."""

    kind: Literal["query", "update", "description"]
    text: str
    hints: tuple[str, ...]


async def read_request(request: Request, limit: int) -> Asked:
    """What a request asks for.

    Raises:
        InvalidRequestError, InvalidParameterError, UnsupportedMediaTypeError, BodyTooLargeError, InvalidValueError: it
            is not of the protocol. SparqlUnsupportedError: it names another graph.
    """
    own = own_parameters(request)
    given: list[tuple[str, str]] = list(request.query_params.multi_items())
    _check_names(given, own, "this call has no parameter")
    direct: tuple[str, str] | None = None
    if request.method == "POST":
        kind = media_type(request, (FORM, QUERY, UPDATE))
        text = decode_text(await read_body(request, limit))
        if kind == FORM:
            form = parse_qsl(text, keep_blank_values=True)
            known = {"query", "update", *_HINTS, *_GRAPHS_OF["query"], *_GRAPHS_OF["update"]}
            _check_names(form, known, "the form of a SPARQL request has no field")
            given += form
        else:
            direct = ("query" if kind == QUERY else "update"), text
    texts = [pair for pair in given if pair[0] in ("query", "update")] + ([direct] if direct else [])
    hints = tuple(value for name, value in given if name in _HINTS)
    if not given and request.method == "GET":
        return Asked("description", "", ())
    if len(texts) != 1:
        names = " and ".join(shown(name) for name, _ in texts)
        raise InvalidRequestError(
            f"a SPARQL request has one query or one update, and this one has {names or 'none'}"
        )
    what, text = texts[0]
    if what == "update" and request.method == "GET":
        raise InvalidRequestError(
            "an update is sent with POST, so that nothing that follows links changes data"
        )
    if what == "update":
        _check_graphs(given, "update")
        return Asked("update", text, hints)
    wrong = sorted({name for name, _ in given} & _OF_UPDATES)
    if wrong:
        raise InvalidParameterError(f"a query has no parameter {shown(wrong[0])}", parameter=wrong[0])
    _check_graphs(given, "query")
    return Asked("query", text, hints)


def _check_names(given: Sequence[tuple[str, str]], known: frozenset[str] | set[str], lacks: str) -> None:
    often = {*_HINTS, *_GRAPHS_OF["query"], *_GRAPHS_OF["update"]}
    seen: set[str] = set()
    for name, _ in given:
        if name not in known:
            raise InvalidParameterError(
                f"{lacks} {shown(name)}; it has {', '.join(sorted(known))}.{did_you_mean(near(name, known))}",
                parameter=name,
            )
        if name in seen and name not in often:
            raise InvalidParameterError(f"{shown(name)} is given twice", parameter=name)
        seen.add(name)


def _check_graphs(given: Sequence[tuple[str, str]], what: Literal["query", "update"]) -> None:
    other = "update" if what == "query" else "query"
    for name, value in given:
        if name in _GRAPHS_OF[other]:
            raise InvalidParameterError(f"{shown(name)} is for {other} requests", parameter=name)
        if name in _GRAPHS_OF[what] and value not in DEFAULT_GRAPHS:
            raise SparqlUnsupportedError(
                f"{name} names the graph {shown(value)}, and there are no named graphs here: the relation triple is "
                f"the default graph, which may be called {DEFAULT_GRAPHS[0]}",
                parameter=name,
            )


def formats(request: Request, hints: Sequence[str]) -> dict[Form, str | None]:
    """The media type for each form of answer; None where the Accept header allows none.

    Raises:
        NotAcceptableError: it allows none for any.
    """
    wanted: dict[Form, str | None] = {
        "solutions": _chosen(request, hints, RESULTS, _ALSO),
        "boolean": _chosen(request, hints, RESULTS, _ALSO),
        "graph": _chosen(request, hints, GRAPHS, _GRAPHS_ALSO),
    }
    if not any(wanted.values()):
        raise none_of((*RESULTS, *GRAPHS))
    return wanted


def none_of(offered: Sequence[str]) -> NotAcceptableError:
    return NotAcceptableError(
        f"the Accept header allows none of the media types of this answer: {', '.join(offered)}",
        offered=list(offered),
    )


def _chosen(
    request: Request, hints: Sequence[str], offered: Mapping[str, object], also: Mapping[str, str]
) -> str | None:
    accepted = {part.partition(";")[0].strip() for part in request.headers.get("accept", "").split(",")}
    if accepted <= {"", "*/*"}:
        for hint in hints:
            kind = _SHORT.get(hint.lower(), hint)
            if kind in offered:
                return kind
    try:
        found = negotiate(request, (*offered, *also))
    except NotAcceptableError:
        return None
    return also.get(found, found)
