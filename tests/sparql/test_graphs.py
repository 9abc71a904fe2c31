"""The default graph called by a name means the same as the default graph."""

from __future__ import annotations

import random

import pytest
from pyoxigraph import NamedNode, Quad, QueryBoolean, QuerySolutions, Store
from rdflib import URIRef
from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore

from engine.errors import SparqlSyntaxError, SparqlUnsupportedError
from service.sparql.answers import Asked, answer
from service.sparql.graphs import DEFAULT_GRAPHS, check_query, operations, without_default
from service.sparql.store import row_of
from service.sparql.terms import Row
from tests.sparql.test_updates import PREFIX, after, effect, loaded, random_operation, row

NAME = "urn:x-rdflib:default"
A, B = row("a p b"), row("b p c")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("SELECT * { GRAPH <N> { ?s ?p ?o } }", "SELECT * { { ?s ?p ?o } }"),
        ("SELECT * FROM <N> FROM <N> { graph\n<N>{} }", "SELECT * { {} }"),
        ("ASK { ?s ?p ?o GRAPH #<x>\n <N> { ?s ?p 1 } FILTER(1<2) }",
         "ASK { ?s ?p ?o #<x>\n { ?s ?p 1 } FILTER(1<2) }"),
        ("PREFIX d: <urn:x-zedlog:> ASK { GRAPH d:default { } GRAPH d:other { } }",
         "PREFIX d: <urn:x-zedlog:> ASK { { } GRAPH d:other { } }"),
        ("BASE <http://www.openrdf.org/schema/> ASK { GRAPH <sesame#nil> { } GRAPH <sesame> { } }",
         "BASE <http://www.openrdf.org/schema/> ASK { { } GRAPH <sesame> { } }"),
        ("ASK { GRAPH <urn:x-zedlog:d\\u0065fault> { } }", "ASK { { } }"),
        ("INSERT DATA { GRAPH <N> { :a :b :c } }", "INSERT DATA { :a :b :c . }"),
        ("INSERT DATA { GRAPH <N> { } . GRAPH <N> { :a :b :c . } . :d :e :f GRAPH <N> { } }",
         "INSERT DATA { :a :b :c . :d :e :f . }"),
        ("DELETE DATA { :a :b :c GRAPH <N> { :d :e [ :f () ] } . :g :h :i }",
         "DELETE DATA { :a :b :c . :d :e [ :f () ] . :g :h :i }"),
        ("DELETE WHERE { GRAPH <N> { ?s ?p ?o } ?o ?q ?r }", "DELETE WHERE { ?s ?p ?o . ?o ?q ?r }"),
        ("WITH <N> DELETE { ?s ?p ?o } USING <N> WHERE { GRAPH <N> { ?s ?p ?o } }",
         "DELETE { ?s ?p ?o } WHERE { { ?s ?p ?o } }"),
        ("CLEAR GRAPH <N>", "CLEAR GRAPH <N>"),
        ("INSERT { GRAPH ?g { ?s ?p ?o } } USING NAMED <N> WHERE { GRAPH ?g { ?s ?p '<N>' } }",
         "INSERT { GRAPH ?g { ?s ?p ?o } } USING NAMED <N> WHERE { GRAPH ?g { ?s ?p '<N>' } }"),
        ("INSERT DATA { GRAPH :no { :from :with :graph } }", "INSERT DATA { GRAPH :no { :from :with :graph } }"),
    ],
)  # fmt: skip
def test_the_text_without_the_names(text: str, plain: str) -> None:
    text = text.replace("<N>", f"<{NAME}>")
    found = without_default(text)
    assert found.split() == plain.replace("<N>", f"<{NAME}>").split()
    # Nothing has moved.
    assert len(found) == len(text)
    assert all(now in (was, " ", ".") for was, now in zip(text, found, strict=True))


@pytest.mark.parametrize("name", DEFAULT_GRAPHS)
def test_each_name_is_one_of_the_default_graph(name: str) -> None:
    assert effect({A}, f"INSERT DATA {{ GRAPH <{name}> {{ :b :p :c }} }}") == (set(), {B})
    assert after({A, B}, f"WITH <{name}> DELETE {{ ?s :p :c }} WHERE {{ ?s :p :c }}") == {A}


def as_rdflib_sends(text: str) -> str:
    """What its store makes of an update of a graph that has a name."""
    sent: list[str] = []

    class Recorded(SPARQLUpdateStore):
        def _update(self, update: str) -> None:
            sent.append(update)

    Recorded("urn:here", "urn:here").update(PREFIX + text, queryGraph=URIRef(NAME))
    return "".join(sent)


def named(rows: set[Row]) -> Store:
    """The triples in a graph that really has the name, and nothing in the default graph."""
    store = Store()
    for quad in loaded(rows).store:
        store.add(Quad(quad.subject, quad.predicate, quad.object, NamedNode(NAME)))
    return store


@pytest.mark.parametrize("seed", range(25))
def test_differential_updates_do_what_they_do_in_a_graph_of_that_name(seed: int) -> None:
    rng = random.Random(seed)
    rows: set[Row] = set()
    oracle = named(rows)
    for _ in range(10):
        text = as_rdflib_sends(" ;\n".join(random_operation(rng) for _ in range(rng.choice([1, 2, 3]))))
        assert f"GRAPH <{NAME}>" in text
        oracle.update(text)
        rows = after(rows, text)
        assert {row_of(quad) for quad in oracle} == rows, (seed, text)
        assert all(str(quad.graph_name) == f"<{NAME}>" for quad in oracle)


QUERIES = [
    "SELECT ?s ?o WHERE { GRAPH <N> { ?s :p ?o } }",
    "SELECT ?s ?o { GRAPH <N> { ?s :p ?m } GRAPH <N> { ?m :q ?o } }",
    "SELECT ?s { { GRAPH <N> { ?s :p ?m } } UNION { GRAPH <N> { ?m :q ?s } } }",
    "SELECT ?s ?x { GRAPH <N> { ?s :p ?o OPTIONAL { ?o :q ?x } } }",
    "SELECT ?s { GRAPH <N> { ?s :p ?o FILTER NOT EXISTS { ?o :q ?s } } }",
    "SELECT ?s { GRAPH <N> { ?s :p ?o } FILTER EXISTS { GRAPH <N> { ?o ?any ?z } } }",
    "SELECT ?s { GRAPH <N> { ?s ?p ?o } MINUS { GRAPH <N> { ?s :q 1 } } }",
    "SELECT ?s ?n { GRAPH <N> { { SELECT ?s (COUNT(*) AS ?n) { ?s :p ?v } GROUP BY ?s } } }",
    "SELECT ?s ?o { GRAPH <N> { ?s (:p|:q)+ ?o } }",
    "ASK { GRAPH <N> { :a :p ?o . ?o :q ?x } }",
]


def solutions(store: Store, query: str) -> bool | list[tuple[str, ...]]:
    found = store.query(query)
    if isinstance(found, QueryBoolean):
        return bool(found)
    assert isinstance(found, QuerySolutions)
    return sorted(tuple(map(str, solution)) for solution in found)


@pytest.mark.parametrize("query", QUERIES)
def test_differential_queries_find_what_they_find_in_a_graph_of_that_name(query: str) -> None:
    rng = random.Random(query)
    query = PREFIX + query.replace("<N>", f"<{NAME}>")
    found = set()
    for _ in range(15):
        rows = {
            row(f"{rng.choice('abc')} {rng.choice('pq')} {rng.choice('abcd')}")
            for _ in range(rng.randint(0, 9))
        }
        seen = solutions(loaded(rows).store, without_default(query))
        assert seen == solutions(named(rows), query)
        found.add(str(seen))
    assert len(found) > 1


def asked(query: str) -> bytes:
    return answer(
        loaded({A, B}).store, Asked(PREFIX + query, "text/csv", "text/csv", "text/turtle", None, 10_000)
    )[1]


def test_it_is_no_named_graph() -> None:
    assert asked("SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } }") == b"g,s\r\n"
    # "If IRI is not a graph name in D: the empty multiset" (SPARQL 1.1 Query, section 18.6).
    for graph in ("?g", "<urn:other>"):
        assert asked(f"SELECT ?s {{ GRAPH {graph} {{ GRAPH <{NAME}> {{ ?s ?p ?o }} }} }}") == b"s\r\n"
    assert asked(f"SELECT ?s FROM <{NAME}> {{ ?s ?p :c }}") == b"s\r\nurn:x:b\r\n"
    with pytest.raises(SparqlUnsupportedError, match="FROM"):
        check_query(f"SELECT * FROM NAMED <{NAME}> {{ }}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { { ?s ?p ?o } UNION GRAPH <N> { ?s ?p ?o } }",
        "SELECT * { ?s ?p ?o OPTIONAL GRAPH <N> { ?s ?p ?o } }",
        "SELECT * { VALUES ?x GRAPH <N> { 1 2 } }",
        "SELECT * GRAPH <N> { ?s ?p ?o }",
        "CONSTRUCT WHERE { GRAPH <N> { ?s ?p ?o } }",
    ],
)
def test_what_is_not_sparql_with_the_name_is_not_sparql(query: str) -> None:
    query = query.replace("<N>", f"<{NAME}>")
    with pytest.raises(SparqlSyntaxError) as found:
        asked(query)
    assert "GRAPH" in found.value.detail["source"]
    with pytest.raises(SparqlSyntaxError):
        effect({A}, f"INSERT DATA {{ GRAPH <{NAME}> {{ :a :b :c }} . . }}")


def test_another_graph_is_refused_where_it_stands() -> None:
    text = f"INSERT DATA {{ GRAPH <{NAME}> {{ <urn:a> <urn:b> 1 }} GRAPH <urn:g> {{ <urn:a> <urn:b> 2 }} }}"
    with pytest.raises(SparqlUnsupportedError, match="GRAPH is not supported") as found:
        operations(text)
    assert (found.value.detail["source"], found.value.detail["column"]) == (text, text.rindex("GRAPH") + 1)
