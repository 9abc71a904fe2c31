"""Relations seen as triples by `.rdf`, over HTTP: SPARQL says what rdflib says of a graph made from the same rows."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
from rdflib import RDF, XSD, Graph, Namespace, URIRef
from rdflib import Literal as RdflibLiteral

from tests.service.conftest import problem
from tests.sparql.conftest import Endpoint

EX = Namespace("http://example.org/")
PREFIXES = """.prefix ex: <http://example.org/>
.prefix xsd: <http://www.w3.org/2001/XMLSchema#>
"""
MAPPING = """.rdf staff(id, name, born, height, active, page, boss)
    <http://example.org/person/{id}> a ex:Person;
        ex:name name; ex:label name@en; ex:id id; ex:height height; ex:active active;
        ex:born born^^xsd:date; ex:page <{page}>; ex:boss <http://example.org/person/{boss}>;
        ex:tag <http://example.org/tag/{name}>.
"""
STRANGE = [
    "plain",
    'say "hi"',
    "two\nlines\r\n\tand a tab",
    "back\\slash \\n",
    "100% of <b>&amp;</b> {x} ?#/",
    "Ünïcödé 葉篤義 😀 \u200f \u00a0",
    "\x00\x01\x1f\x7f\x85\u2028",
    "",
    " ",
    "%41",
]
Row = tuple[int, str, str, float, bool, str, int]
ROWS: list[Row] = [
    (i, name, f"2001-02-{i + 1:02}", i / 8 - 0.5, i % 2 == 0, f"http://example.org/page?x={i}", i // 2)
    for i, name in enumerate(STRANGE)
]
QUERIES = [
    "SELECT ?s ?p ?o { ?s ?p ?o }",
    "SELECT ?name { ?s a ex:Person; ex:name ?name; ex:active true }",
    "SELECT ?a ?b { ?s ex:boss ?t . ?s ex:label ?a . ?t ex:label ?b FILTER(lang(?a) = 'en') }",
    "SELECT (SUM(?h) AS ?sum) (COUNT(*) AS ?n) { ?s ex:height ?h FILTER(?h > 0) }",
    "SELECT ?id { ?s ex:id ?id; ex:born ?d FILTER(?d > '2001-02-03'^^xsd:date) }",
    "SELECT ?t { ?s ex:tag ?t FILTER(?t = IRI(CONCAT('http://example.org/tag/', ENCODE_FOR_URI('say \"hi\"')))) }",
    "SELECT ?s (STRLEN(?n) AS ?l) { ?s ex:name ?n }",
]
HEAD = f"PREFIX ex: <{EX}> PREFIX xsd: <{XSD}> "


def encoded(text: str) -> str:
    """As R2RML says, for the characters of STRANGE: beyond ASCII only controls are encoded."""
    return "".join(char if ord(char) >= 0xA0 else quote(char, safe="") for char in text)


def graph_of(rows: list[Row]) -> Graph:
    graph = Graph()
    for id_, name, born, height, active, page, boss in rows:
        person = URIRef(f"{EX}person/{id_}")
        for predicate, object_ in (
            (RDF.type, EX.Person),
            (EX.name, RdflibLiteral(name)),
            (EX.label, RdflibLiteral(name, lang="en")),
            (EX.id, RdflibLiteral(id_)),
            (EX.height, RdflibLiteral(height)),
            (EX.active, RdflibLiteral(active)),
            (EX.born, RdflibLiteral(born, datatype=XSD.date)),
            (EX.page, URIRef(page)),
            (EX.boss, URIRef(f"{EX}person/{boss}")),
            (EX.tag, URIRef(f"{EX}tag/{encoded(name)}")),
        ):
            graph.add((person, predicate, object_))
    return graph


def compared(kind: str, value: str, datatype: str | None, lang: str | None) -> tuple[Any, ...]:
    """A term; numbers by their value, because the two write them differently."""
    if datatype == str(XSD.double):
        return (kind, float(value), datatype, lang)
    return (kind, value, datatype, lang)


def of_rdflib(graph: Graph, query: str) -> list[tuple[Any, ...]]:
    rows = []
    for row in graph.query(HEAD + query):
        terms: list[Any] = []
        for term in row:  # type: ignore[union-attr]  # rows of a SELECT
            if isinstance(term, RdflibLiteral):
                kind = None if term.datatype is None else str(term.datatype)
                terms.append(compared("literal", str(term), kind, term.language))
            else:
                terms.append(compared("uri", str(term), None, None))
        rows.append(tuple(terms))
    return sorted(rows, key=repr)


def of_service(endpoint: Endpoint, query: str) -> list[tuple[Any, ...]]:
    answer = endpoint.get(HEAD + query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    rows = [
        tuple(
            compared(t["type"], t["value"], t.get("datatype"), t.get("xml:lang"))
            for t in (row[name] for name in found["head"]["vars"])
        )
        for row in found["results"]["bindings"]
    ]
    return sorted(rows, key=repr)


def change(http: httpx.Client, rows: list[Row], weight: int) -> None:
    body = {"relation": "staff", "tuples": [list(row) for row in rows], "weight": weight}
    http.post("/v1/facts", json=body).raise_for_status()


def test_the_answers_are_those_of_a_graph_made_by_hand(endpoint: Endpoint) -> None:
    change(endpoint.http, ROWS[:4], 1)
    endpoint.rules(PREFIXES + MAPPING)
    change(endpoint.http, ROWS[4:], 1)
    for query in QUERIES:
        expected = of_rdflib(graph_of(ROWS), query)
        assert expected, query
        assert of_service(endpoint, query) == expected, query
    # An update of the relation is seen with its epoch, and so is what it takes away.
    changed = [(0, 'new "name"\n', *ROWS[0][2:]), *ROWS[3:]]
    body = {
        "facts": [
            {"relation": "staff", "tuples": [list(row) for row in ROWS[:3]], "weight": -1},
            {"relation": "staff", "tuples": [list(changed[0])], "weight": 1},
        ]
    }
    endpoint.http.post("/v1/transactions", json=body).raise_for_status()
    for query in QUERIES:
        assert of_service(endpoint, query) == of_rdflib(graph_of(changed), query), query
    # Export and import: what the mapping derives is written as imports write it.
    derived = endpoint.tuples()
    turtle = endpoint.get("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }", accept="text/turtle").text
    assert len(Graph().parse(data=turtle, format="turtle")) == len(derived) == len(graph_of(changed))
    # Removed as it was added.
    endpoint.rules(MAPPING, -1)
    assert endpoint.tuples() == set()
    assert not endpoint.ask("ASK { ?s ?p ?o }")
    assert endpoint.http.get("/v1/rules").json()["rules"] == []
    change(endpoint.http, changed, -1)


def test_it_is_rules_for_everybody(endpoint: Endpoint) -> None:
    """One rule by `POST /v1/rules` with `rule`, whole IRIs in the list, an explanation, and no effect of an update."""
    mapping = ".rdf thing(id, name) <http://example.org/thing/{id}> <http://example.org/name> name."
    rule = (
        'triple(rdf_iri("http://example.org/thing/{}", id), "<http://example.org/name>", rdf_literal(name)) '
        ":- thing(id, name)."
    )
    http = endpoint.http
    http.post("/v1/rules", json={"rule": mapping}).raise_for_status()
    http.post("/v1/facts", json={"relation": "thing", "tuples": [["a b", "x"]]}).raise_for_status()
    try:
        assert [one["rule"] for one in http.get("/v1/rules").json()["rules"]] == [rule]
        triple = ("<http://example.org/thing/a%20b>", "<http://example.org/name>", '"x"')
        assert endpoint.tuples() == {triple}
        assert endpoint.select("SELECT ?s ?o { ?s ex:name ?o }".replace("ex:name", triple[1])) == [
            (triple[0], triple[2])
        ]
        goal = f'triple("{triple[0]}", "{triple[1]}", "\\"x\\"")'
        explained = http.post("/v1/explain", json={"tuple": goal})
        assert explained.status_code == 200, explained.text
        # The value of the row, which the triple has only with its space encoded.
        assert re.search(r"\ba b\b", explained.text)
        # The triple is derived: to delete it has no effect.
        done = endpoint.done("DELETE WHERE { ?s ?p ?o }")
        assert done["changes"] == {}
        assert endpoint.tuples() == {triple}
    finally:
        http.post("/v1/rules", json={"rule": mapping, "weight": -1}).raise_for_status()
        http.post("/v1/facts", json={"relation": "thing", "tuples": [["a b", "x"]], "weight": -1})
    assert endpoint.tuples() == set()


def test_what_cannot_be_mapped_is_refused_with_its_place(endpoint: Endpoint) -> None:
    http = endpoint.http

    def sent(program: str) -> httpx.Response:
        return http.post("/v1/rules", json={"program": program})

    wrong = problem(sent(".rdf p(x)\n  <person/{x}> a <urn:C>."), 422, "declaration_conflict")
    assert (wrong["line"], wrong["column"]) == (2, 3)
    problem(sent(".rdf p(x) <urn:{x}> nowhere:name x."), 422, "unknown_prefix")
    problem(sent(".rdf p(x) <urn:{y}> <urn:p> x."), 422, "unsafe_rule")
    problem(sent(".rdf p(x) <urn:{x}> name x."), 422, "syntax_error")
    problem(sent('triple(rdf_iri("http://e/{}"), x, x) :- p(x).'), 422, "syntax_error")
    # A column that holds IRIs holds something else: the transaction is refused, and nothing changes.
    http.post("/v1/rules", json={"rule": ".rdf linked(x) <{x}> a <urn:C>."}).raise_for_status()
    bad = http.post("/v1/facts", json={"relation": "linked", "tuples": [["urn:a"], ["not an IRI"]]})
    assert "absolute IRI" in problem(bad, 422, "evaluation_error")["detail"]
    assert endpoint.tuples() == set()
