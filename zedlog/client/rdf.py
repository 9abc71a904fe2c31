"""SPARQL, where the service offers it: the terms in rows are written as in N-Triples, as the facts of `triple` are."""

from __future__ import annotations

from typing import Any, Unpack

from zedlog.client.answers import AsyncAnswer
from zedlog.client.connection import Connection, new_key
from zedlog.client.errors import Json
from zedlog.client.models import Commit
from zedlog.client.pages import Pages
from zedlog.client.reading import At, token_of
from zedlog.client.transaction import Options

PATH = "/sparql"
_RESULTS, _GRAPH = "application/sparql-results+json", "application/n-triples"
_QUERY, _UPDATE = "application/sparql-query", "application/sparql-update"


class Rdf(Connection):
    async def sparql(
        self, query: str, *, at_least: At | None = None, timeout: float | None = None
    ) -> AsyncAnswer:
        """SELECT gives its variables as columns (None where one is not bound), ASK `holds`, CONSTRUCT and DESCRIBE the
        columns s, p and o."""
        response = await self.exchange(
            "POST",
            PATH,
            {"at_least": token_of(at_least), "timeout": timeout},
            query,
            {"content-type": _QUERY, "accept": f"{_RESULTS}, {_GRAPH}"},
            repeatable=True,
        )
        token = response.headers.get("zedlog-token", "")
        page = _page(response.content, response.headers.get("content-type", ""))
        page |= {"epoch": int(response.headers.get("zedlog-epoch", -1)), "token": token, "cursor": None}
        following = Pages(self, "POST", PATH, {})
        following.took(len(page["tuples"]), None)
        return AsyncAnswer(page, following)

    async def sparql_update(self, update: str, **options: Unpack[Options]) -> Commit:
        """INSERT and DELETE as one transaction. options: those of `transaction`, except `replaces` and `mode`."""
        answer = await self.change(
            PATH,
            update,
            content_type=_UPDATE,
            message=options.get("message"),
            source=options.get("source"),
            key=options.get("key") or new_key(),
            dry_run=options.get("dry_run", False),
            delta=options.get("delta", False),
            strategy=options.get("strategy"),
            placement=options.get("placement"),
        )
        return Commit.model_validate(answer)


def _page(content: bytes, kind: str) -> Json:
    import pyoxigraph as ox

    if kind.startswith(_GRAPH):
        triples = ox.parse(content, format=ox.RdfFormat.N_TRIPLES)
        return _rows(["s", "p", "o"], [[str(t.subject), str(t.predicate), str(t.object)] for t in triples])
    found: Any = ox.parse_query_results(content, format=ox.QueryResultsFormat.JSON)
    if isinstance(found, ox.QueryBoolean):
        return _rows([], [[]] if found else []) | {"holds": bool(found)}
    names = [variable.value for variable in found.variables]
    rows = [[None if term is None else str(term) for term in solution] for solution in found]
    return _rows(names, rows)


def _rows(names: list[str], rows: list[list[Any]]) -> Json:
    return {"columns": [{"name": name, "type": "symbol"} for name in names], "tuples": rows}
