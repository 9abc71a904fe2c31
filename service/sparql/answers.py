"""A query over a store, answered in the format that was asked for.

In: a store that nothing changes meanwhile, the query, and a format for each kind of answer. Out: the media type and the
whole answer, or a typed error. Always: an answer is complete, or it is an error; it is never cut off.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import orjson
from pyoxigraph import (
    QueryBoolean,
    QueryResultsFormat,
    QuerySolutions,
    QueryTriples,
    RdfFormat,
    Store,
    Triple,
    serialize,
)

from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    InvalidRequestError,
    ZedlogError,
)
from engine.rdf.writing import for_xml
from service.sparql.graphs import without_default
from service.sparql.syntax import syntax_error

Form = Literal["solutions", "boolean", "graph"]

RESULTS: Final = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}
GRAPHS: Final = {
    "text/turtle": RdfFormat.TURTLE,
    "application/n-triples": RdfFormat.N_TRIPLES,
    "application/rdf+xml": RdfFormat.RDF_XML,
    "application/ld+json": RdfFormat.JSON_LD,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A query. solutions, boolean, graph: the media types in which such answers are wanted; None: in none that there
    is. rows: the most solutions or triples of the answer; bytes: its most bytes."""

    query: str
    solutions: str | None
    boolean: str | None
    graph: str | None
    rows: int | None
    bytes: int


class NoFormatError(Exception):
    """The answer is of a form that is not wanted in any format; `form` says which."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.form: Form = form


def answer(store: Store, asked: Asked) -> tuple[str, bytes]:
    """The media type and the answer.

    Raises:
        SparqlSyntaxError, EvaluationError: from Oxigraph. BudgetExceededError: the answer is too large.
        InvalidRequestError: a graph cannot be written as RDF/XML. NoFormatError.
    """
    query = without_default(asked.query)
    if query != asked.query:
        # The grammar is that of the text as it was.
        evaluated(lambda: Store().query(asked.query), asked.query)
    found = evaluated(lambda: store.query(query), asked.query)
    if isinstance(found, QueryTriples):
        kind = _wanted(asked, "graph")
        return kind, _written(found, kind, asked)
    form: Form = "boolean" if isinstance(found, QueryBoolean) else "solutions"
    kind = _wanted(asked, form)
    out = _Bounded(asked.bytes)
    evaluated(lambda: found.serialize(out, format=RESULTS[kind]), asked.query)
    data = out.getvalue()
    if isinstance(found, QuerySolutions) and asked.rows is not None and asked.rows < len(data):
        rows = count_rows(data, kind)
        if rows > asked.rows:
            raise _too_many(asked.rows)
    return kind, data


def count_rows(data: bytes, kind: str) -> int:
    """How many solutions an answer of SELECT has."""
    match RESULTS[kind]:
        case QueryResultsFormat.JSON:
            return len(orjson.loads(data)["results"]["bindings"])
        case QueryResultsFormat.XML:
            # In texts, `<` is written otherwise.
            return data.count(b"<result>")
        case QueryResultsFormat.TSV:
            return data.count(b"\n") - 1
    return sum(1 for _ in csv.reader(io.StringIO(data.decode(), newline=""))) - 1


class _Bounded(io.BytesIO):
    """A file in memory that does not take more than it may."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: bytes) -> int:  # type: ignore[override]  # what is written is bytes
        if self.tell() + len(data) > self._most:
            raise BudgetExceededError(
                f"the answer is larger than the {self._most:,} bytes that one may have; make the query more selective, "
                "or ask for parts with LIMIT and OFFSET",
                budget="bytes",
                limit=self._most,
            )
        return super().write(data)


def _wanted(asked: Asked, form: Form) -> str:
    kind: str | None = getattr(asked, form)
    if kind is None:
        raise NoFormatError(form)
    return kind


def _written(found: QueryTriples, kind: str, asked: Asked) -> bytes:
    triples = evaluated(lambda: _distinct(found, asked.rows), asked.query)
    if GRAPHS[kind] == RdfFormat.RDF_XML:
        try:
            triples = list(map(for_xml, triples))
        except ValueError as error:
            raise InvalidRequestError(f"{error}, for example text/turtle") from None
    out = _Bounded(asked.bytes)
    evaluated(lambda: serialize(triples, out, format=GRAPHS[kind]), asked.query)
    return out.getvalue()


def _distinct(found: QueryTriples, most: int | None) -> list[Triple]:
    """A graph is a set; Oxigraph gives a triple as often as it is constructed."""
    triples: dict[Triple, None] = {}
    for triple in found:
        triples[triple] = None
        if most is not None and len(triples) > most:
            raise _too_many(most)
    return list(triples)


def _too_many(most: int) -> BudgetExceededError:
    return BudgetExceededError(
        f"the answer has more than the {most:,} rows that you may have in one; ask for parts with LIMIT and OFFSET",
        budget="rows",
        limit=most,
    )


def evaluated(work: Callable[[], T], text: str) -> T:
    """What Oxigraph does, with its errors as ours."""
    try:
        return work()
    except ZedlogError:
        raise
    except SyntaxError as error:
        raise syntax_error(text, str(error)) from None
    except (RuntimeError, ValueError, OSError) as error:
        raise EvaluationError(f"the query cannot be evaluated: {error}") from None
