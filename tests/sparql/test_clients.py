"""Clients of SPARQL that people have, unchanged: SPARQLWrapper, and rdflib's stores."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from urllib.error import HTTPError

import pytest
import rdflib
from rdflib import RDF, Literal, Namespace, URIRef
from rdflib.graph import DATASET_DEFAULT_GRAPH_ID
from rdflib.plugins.stores.sparqlstore import SPARQLStore, SPARQLUpdateStore
from SPARQLWrapper import (
    CSV,
    GET,
    JSON,
    N3,
    POST,
    POSTDIRECTLY,
    TSV,
    TURTLE,
    URLENCODED,
    XML,
    SPARQLWrapper,
)
from SPARQLWrapper.SPARQLExceptions import QueryBadFormed

from tests.sparql.conftest import Endpoint

EX = Namespace("http://example.org/")
DATA = 'PREFIX : <http://example.org/> INSERT DATA { :a :name "A"@en ; :knows :b . :b :name "B" ; :age 5 }'


@pytest.fixture
def filled(endpoint: Endpoint) -> Endpoint:
    endpoint.done(DATA)
    return endpoint


@pytest.mark.parametrize("method", [GET, POST])
@pytest.mark.parametrize("how", [URLENCODED, POSTDIRECTLY])
def test_sparqlwrapper_selects(method: str, how: str, filled: Endpoint) -> None:
    wrapper = SPARQLWrapper(filled.url)
    wrapper.setMethod(method)
    wrapper.setRequestMethod(how)
    wrapper.setQuery("SELECT ?s ?n { ?s <http://example.org/name> ?n } ORDER BY ?s")
    wrapper.setReturnFormat(JSON)
    rows = wrapper.query().convert()["results"]["bindings"]
    assert [(row["s"]["value"], row["n"]["value"], row["n"].get("xml:lang")) for row in rows] == [
        ("http://example.org/a", "A", "en"),
        ("http://example.org/b", "B", None),
    ]


def test_sparqlwrapper_in_all_its_formats(filled: Endpoint) -> None:
    wrapper = SPARQLWrapper(filled.url)
    select = "SELECT ?n { ?s <http://example.org/name> ?n } ORDER BY ?n"
    for kind, text in ((CSV, b"n\r\nA\r\nB\r\n"), (TSV, b'?n\n"A"@en\n"B"\n')):
        wrapper.setQuery(select)
        wrapper.setReturnFormat(kind)
        assert sorted(wrapper.query().convert().split()) == sorted(text.split())
    wrapper.setReturnFormat(XML)
    assert len(wrapper.query().convert().getElementsByTagName("result")) == 2
    wrapper.setQuery("ASK { ?s <http://example.org/age> 5 }")
    wrapper.setReturnFormat(JSON)
    assert wrapper.query().convert()["boolean"] is True
    wrapper.setQuery("CONSTRUCT WHERE { ?s <http://example.org/knows> ?o }")
    for kind in (TURTLE, N3):
        wrapper.setReturnFormat(kind)
        graph = rdflib.Graph().parse(data=wrapper.query().convert(), format="turtle")
        assert set(graph) == {(EX.a, EX.knows, EX.b)}
    wrapper.setReturnFormat(XML)
    with warnings.catch_warnings():
        # Of its own use of rdflib.
        warnings.simplefilter("ignore", DeprecationWarning)
        found = wrapper.query().convert()
    assert set(found) == {(EX.a, EX.knows, EX.b)}


def test_sparqlwrapper_updates_and_is_told_what_is_wrong(filled: Endpoint) -> None:
    wrapper = SPARQLWrapper(filled.url)
    wrapper.setMethod(POST)
    for how in (URLENCODED, POSTDIRECTLY):
        wrapper.setRequestMethod(how)
        wrapper.setQuery(f'INSERT DATA {{ <http://example.org/{how}> <http://example.org/name> "new" }}')
        wrapper.query()
        assert filled.ask(f'ASK {{ <http://example.org/{how}> ?p "new" }}')
    wrapper = SPARQLWrapper(filled.url)
    wrapper.setQuery("SELECT { nonsense")
    with pytest.raises(QueryBadFormed, match="sparql_syntax"):
        wrapper.query()


def test_rdflib_reads_through_its_store(filled: Endpoint) -> None:
    graph = rdflib.Graph(SPARQLStore(filled.url))
    assert set(graph.triples((EX.a, None, None))) == {
        (EX.a, EX.name, Literal("A", lang="en")),
        (EX.a, EX.knows, EX.b),
    }
    assert len(graph) == 4
    assert (EX.b, EX.age, Literal(5)) in graph
    assert {row.o for row in graph.query("SELECT ?o { ?s <http://example.org/knows> ?o }")} == {EX.b}
    assert graph.value(EX.b, EX.name) == Literal("B")


def unaware(url: str) -> rdflib.Graph:
    return rdflib.Graph(SPARQLUpdateStore(url, url, context_aware=False))


def default_graph(url: str) -> rdflib.Graph:
    return rdflib.Graph(SPARQLUpdateStore(url, url), identifier=DATASET_DEFAULT_GRAPH_ID)


def our_graph(url: str) -> rdflib.Graph:
    """rdflib names it in all that it sends."""
    return rdflib.Graph(SPARQLUpdateStore(url, url), identifier=URIRef("urn:x-zedlog:default"))


def dataset(url: str) -> rdflib.Graph:
    return rdflib.Dataset(SPARQLUpdateStore(url, url)).default_graph


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("made", [unaware, default_graph, our_graph, dataset])
def test_rdflib_writes_through_its_store(
    made: Callable[[str], rdflib.Graph], seed: int, endpoint: Endpoint
) -> None:
    """Its graph and one in memory, changed alike."""
    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        remote, local = made(endpoint.url), rdflib.Graph()
        objects = [
            EX.a,
            EX.b,
            Literal("x"),
            Literal("y", lang="en"),
            Literal(7),
            Literal('"\\\n'),
            Literal(True),
        ]
        for _ in range(25):
            triple = (rng.choice([EX.a, EX.b, EX.c]), rng.choice([EX.p, EX.q, RDF.type]), rng.choice(objects))
            match rng.randint(0, 6):
                case 0:
                    pattern = (triple[0], None, None) if rng.random() < 0.5 else triple
                    remote.remove(pattern)
                    local.remove(pattern)
                case 1:
                    text = f"DELETE {{ ?s ?p ?o }} INSERT {{ ?s {EX.moved.n3()} ?o }} WHERE {{ ?s ?p ?o ; a ?t }}"
                    remote.update(text)
                    local.update(text)
                case 2:
                    remote.set(triple)
                    local.set(triple)
                case 3 if made is not unaware:
                    # It names even a graph without a name here, and cannot.
                    more = [triple, (EX.d, EX.p, rng.choice(objects))]
                    remote += more
                    local += more
                case _:
                    remote.add(triple)
                    local.add(triple)
            assert set(remote) == set(local)
            if rng.random() < 0.3:
                asked = f"SELECT ?s ?o {{ ?s {EX.p.n3()} ?o }}"
                assert set(remote.query(asked)) == set(local.query(asked))
    assert {(URIRef(s[1:-1])) for s, _, _ in endpoint.tuples()} == set(local.subjects())


def test_a_dataset_of_rdflib(filled: Endpoint) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        data = rdflib.Dataset(SPARQLUpdateStore(filled.url, filled.url))
        data.update(f"INSERT {{ ?s {EX.seen.n3()} true }} WHERE {{ ?s {EX.age.n3()} ?a }}")
        data.add((EX.c, EX.name, Literal("C")))
        data.remove((EX.a, EX.knows, None))
        found = data.query("SELECT ?s ?o { ?s ?p ?o FILTER(isLiteral(?o)) }")
        assert {(str(row.s)[-1], str(row.o)) for row in found} == {
            ("a", "A"),
            ("b", "B"),
            ("b", "5"),
            ("b", "true"),
            ("c", "C"),
        }
        # Any other graph is refused, and nothing is put elsewhere than was asked.
        before = filled.tuples()
        with pytest.raises(HTTPError, match="422"):
            data.graph(EX.g)
        with pytest.raises(HTTPError, match="422"):
            rdflib.Graph(data.store, identifier=EX.g).add((EX.c, EX.p, EX.c))
        assert filled.tuples() == before
