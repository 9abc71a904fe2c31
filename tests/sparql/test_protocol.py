"""The SPARQL 1.1 Protocol: methods, bodies, formats, headers; updates as transactions; errors and limits."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import rdflib

from tests.sparql.conftest import JSON, Endpoint

ONE = "INSERT DATA { <urn:a> <urn:p> <urn:b> }"
ALL = "SELECT ?s ?p ?o { ?s ?p ?o }"
XML, CSV, TSV = "application/sparql-results+xml", "text/csv", "text/tab-separated-values"


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["code"]) == (status, code), found
    return found


# ---- 2.1 query operation


def test_the_three_ways_to_ask_give_the_same_answer(endpoint: Endpoint) -> None:
    endpoint.done(ONE)
    http, accept = endpoint.http, {"accept": JSON}
    answers = [
        http.get("/sparql", params={"query": ALL}, headers=accept),
        http.post("/sparql", data={"query": ALL}, headers=accept),
        http.post("/sparql", content=ALL, headers={**accept, "content-type": "application/sparql-query"}),
        http.post(
            "/sparql",
            content=ALL.encode(),
            headers={**accept, "content-type": "application/sparql-query; charset=UTF-8"},
            params={"default-graph-uri": "urn:x-zedlog:default", "timeout": "5"},
        ),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["results"]["bindings"] == [
        {"s": {"type": "uri", "value": "urn:a"}, "p": {"type": "uri", "value": "urn:p"},
         "o": {"type": "uri", "value": "urn:b"}}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, JSON),
        ("*/*", JSON),
        (JSON, JSON),
        ("application/json", JSON),
        (XML, XML),
        (CSV, CSV),
        (TSV, TSV),
        (f"{XML};q=0.5, {CSV};q=0.8, */*;q=0.1", CSV),
        (f"{JSON};q=0, */*", XML),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", XML),
        ("text/turtle, */*;q=0.1", JSON),
    ],
)
def test_the_format_is_what_accept_prefers(accept: str | None, kind: str, endpoint: Endpoint) -> None:
    headers = {} if accept is None else {"accept": accept}
    for query in (ALL, "ASK { }"):
        answer = endpoint.http.get("/sparql", params={"query": query}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert answer.headers["vary"] == "Accept"


def test_what_the_formats_say(endpoint: Endpoint) -> None:
    endpoint.done('INSERT DATA { <urn:a> <urn:p> "x, \\"y\\""@en }')
    assert endpoint.get(ALL, CSV).text == 's,p,o\r\nurn:a,urn:p,"x, ""y"""\r\n'
    assert endpoint.get(ALL, TSV).text == '?s\t?p\t?o\n<urn:a>\t<urn:p>\t"x, \\"y\\""@en\n'
    assert '<literal xml:lang="en">x, "y"</literal>' in endpoint.get(ALL, XML).text.replace("&quot;", '"')
    assert endpoint.get("ASK { }", JSON).json() == {"head": {}, "boolean": True}


def test_the_wrong_kind_of_format_is_refused_and_the_right_ones_are_named(endpoint: Endpoint) -> None:
    found = problem(endpoint.get(ALL, "text/turtle"), 406, "not_acceptable")
    assert JSON in found["offered"]
    found = problem(endpoint.get("CONSTRUCT WHERE { ?s ?p ?o }", CSV), 406, "not_acceptable")
    assert "text/turtle" in found["offered"]
    problem(endpoint.get(ALL, "image/png"), 406, "not_acceptable")


def test_hints_count_where_accept_says_nothing(endpoint: Endpoint) -> None:
    for name in ("format", "output", "results"):
        assert endpoint.get(ALL, "*/*", **{name: "csv"}).headers["content-type"].startswith(CSV)
        assert endpoint.get(ALL, JSON, **{name: "csv"}).headers["content-type"] == JSON


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"query": [ALL, ALL]}, "invalid_parameter"),
        ({"update": ONE}, "invalid_parameter"),
        ({"query": ALL, "quary": "x"}, "invalid_parameter"),
        ({"query": ALL, "dry_run": "true"}, "invalid_parameter"),
        ({"query": ALL, "timeout": "0"}, "invalid_parameter"),
        ({"query": ALL, "timeout": "1e9"}, "invalid_parameter"),
        ({"query": ALL, "at_least": "x"}, "invalid_token"),
        ({"query": ""}, "sparql_syntax"),
    ],
)
def test_wrong_requests(parameters: dict[str, Any], code: str, endpoint: Endpoint) -> None:
    problem(endpoint.http.get("/sparql", params=parameters), 400, code)


def test_wrong_posts(endpoint: Endpoint) -> None:
    http = endpoint.http
    problem(http.post("/sparql", data={"query": ALL, "update": ONE}), 400, "invalid_request")
    problem(http.post("/sparql", data={}), 400, "invalid_request")
    problem(http.post("/sparql", data={"query": ALL, "timeout": "3"}), 400, "invalid_parameter")
    problem(http.post("/sparql", json={"query": ALL}), 415, "unsupported_media_type")
    problem(http.post("/sparql?dry_run=true", data={"query": ALL}), 400, "invalid_parameter")
    problem(
        http.post("/sparql", data={"query": ALL}, headers={"idempotency-key": "k"}), 400, "invalid_parameter"
    )
    problem(
        http.post("/sparql?using-graph-uri=urn:x-zedlog:default", data={"query": ALL}),
        400,
        "invalid_parameter",
    )
    problem(
        http.post("/sparql", content=b"\xff", headers={"content-type": "application/sparql-query"}),
        400,
        "invalid_value",
    )


def test_graphs_that_are_not_there(endpoint: Endpoint) -> None:
    for query in (ALL, "ASK { }"):
        problem(endpoint.get(query, **{"default-graph-uri": "urn:g"}), 422, "sparql_unsupported")
        problem(endpoint.get(query, **{"named-graph-uri": "urn:g"}), 422, "sparql_unsupported")
    found = problem(endpoint.get("SELECT *\nFROM <urn:g> { }"), 422, "sparql_unsupported")
    assert (found["line"], found["column"], found["source"]) == (2, 1, "FROM <urn:g> { }")
    problem(endpoint.update(ONE, params={"using-graph-uri": "urn:g"}), 422, "sparql_unsupported")
    assert endpoint.tuples() == set()


def test_a_syntax_error_is_shown_with_its_place(endpoint: Endpoint) -> None:
    found = problem(endpoint.get("SELECT * {\n  ?s ?p }"), 400, "sparql_syntax")
    assert (found["line"], found["source"]) == (2, "  ?s ?p }")
    assert found["rendered"].splitlines()[-1].strip() == "^"
    problem(endpoint.update("INSERT DATA { <urn:a> <urn:b> ?c }"), 400, "sparql_syntax")


def test_a_function_that_is_not_there_is_an_error(endpoint: Endpoint) -> None:
    found = problem(endpoint.get("SELECT (<urn:f>(1) AS ?x) { }"), 422, "evaluation_error")
    assert "<urn:f>" in found["detail"]


# ---- limits


def numbers(endpoint: Endpoint, count: int) -> None:
    endpoint.facts([[f"<urn:n:{i}>", "<urn:p>", "<urn:o>"] for i in range(count)])


def test_a_query_that_takes_too_long_is_ended_and_others_go_on(endpoint: Endpoint) -> None:
    numbers(endpoint, 2_000)
    endless = (
        "SELECT (COUNT(*) AS ?n) { ?a ?p ?x . ?b ?p ?x . ?c ?p ?x . ?d ?p ?x FILTER(STR(?a) < STR(?d)) }"
    )
    found = problem(endpoint.get(endless, timeout="0.4"), 422, "budget_exceeded")
    assert (found["budget"], found["timeout"]) == ("seconds", 0.4)
    assert endpoint.ask("ASK { <urn:n:1> ?p ?o }")
    found = problem(
        endpoint.update(
            f"INSERT {{ <urn:x> <urn:y> ?n }} WHERE {{ {{ {endless} }} }}", params={"timeout": "0.4"}
        ),
        422,
        "budget_exceeded",
    )
    assert len(endpoint.tuples()) == 2_000


def test_a_query_cannot_take_more_memory_than_it_may(endpoint: Endpoint) -> None:
    numbers(endpoint, 3_000)
    large = "SELECT ?a ?b ?c { ?a ?p ?x . ?b ?p ?x . ?c ?p ?x } ORDER BY ?a ?b ?c"
    found = problem(endpoint.get(large, timeout="60"), 422, "budget_exceeded")
    assert found["budget"] in ("memory", "seconds", "bytes")
    assert endpoint.ask("ASK { <urn:n:1> ?p ?o }")


# ---- 2.2 update operation


def test_an_update_is_one_transaction(endpoint: Endpoint) -> None:
    first = endpoint.done("INSERT DATA { <urn:a> <urn:p> 1, 2 } ; DELETE DATA { <urn:a> <urn:p> 1 }")
    assert first["changes"] == {"triple": {"inserted": 1, "deleted": 0}}
    assert endpoint.tuples() == {("<urn:a>", "<urn:p>", '"2"^^<http://www.w3.org/2001/XMLSchema#integer>')}
    text = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?n } WHERE { ?s <urn:p> ?o BIND(?o * 10 AS ?n) }"
    answer = endpoint.http.post("/sparql", data={"update": text})
    done = answer.json()
    assert answer.status_code == 200
    assert done["epoch"] == first["epoch"] + 1
    assert done["changes"] == {"triple": {"inserted": 1, "deleted": 1}}
    assert answer.headers["zedlog-computed-at"] == str(first["epoch"])


def test_options_of_a_transaction(endpoint: Endpoint) -> None:
    tried = endpoint.done(ONE, params={"dry_run": "true", "return": "delta"})
    assert tried["delta"]["triple"]["inserted"] == [["<urn:a>", "<urn:p>", "<urn:b>"]]
    assert endpoint.tuples() == set()
    done = endpoint.done(ONE, params={"message": "why", "source": "sensor"})
    told = endpoint.http.get("/v1/transactions", params={"limit": 1}).json()["transactions"][0]
    assert (told["transaction"], told["message"]) == (done["transaction"], "why")
    assert [s["source"] for s in endpoint.http.get("/v1/sources").json()["sources"]] == ["sensor"]
    # What a source asserts is taken back with the source.
    problem(endpoint.update("DELETE WHERE { ?s ?p ?o }"), 409, "asserted_by_source")
    assert len(endpoint.tuples()) == 1
    endpoint.done("DELETE WHERE { ?s ?p ?o }", params={"source": "sensor"})
    assert endpoint.tuples() == set()
    later = endpoint.update(ONE, params={"wait": "false"})
    assert later.status_code == 202
    # Nothing to change is no error, whatever else is asked for.
    assert endpoint.done("DELETE WHERE { <urn:no> ?p ?o }", params={"source": "sensor"})["changes"] == {}


def test_an_idempotency_key_counts_for_the_text(endpoint: Endpoint) -> None:
    endpoint.facts([["<urn:a>", "<urn:n>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>']])
    text = "DELETE { ?s <urn:n> ?n } INSERT { ?s <urn:n> ?m } WHERE { ?s <urn:n> ?n BIND(?n + 1 AS ?m) }"
    key = {"idempotency-key": f"sparql-{endpoint.facts([])['epoch']}"}
    first = endpoint.update(text, headers=key)
    # Computed again, it would make 3 of 2.
    again = endpoint.update(text, headers=key)
    assert again.json()["transaction"] == first.json()["transaction"]
    assert again.headers["idempotency-replayed"] == "true"
    assert endpoint.select("SELECT ?n { ?s <urn:n> ?n }") == [
        ('"2"^^<http://www.w3.org/2001/XMLSchema#integer>',)
    ]
    problem(endpoint.update(ONE, headers=key), 422, "idempotency_conflict")


def test_what_cannot_be_done_changes_nothing(endpoint: Endpoint) -> None:
    endpoint.done(ONE)
    before = endpoint.tuples()
    for text in (
        "LOAD <http://example.org/x>",
        "CREATE GRAPH <urn:g>",
        "INSERT DATA { GRAPH <urn:g> { <urn:a> a 1 } }",
    ):
        problem(endpoint.update(f"INSERT DATA {{ <urn:n> a 1 }} ; {text}"), 422, "sparql_unsupported")
    problem(endpoint.update("INSERT DATA { <urn:n> a 1 } ; garbage"), 400, "sparql_syntax")
    assert endpoint.tuples() == before


RULES = """
triple(x, "<urn:under>", z) :- triple(x, "<urn:under>", y), triple(y, "<urn:under>", z).
"""


def test_what_rules_derive_is_read_and_stays_while_it_follows(endpoint: Endpoint) -> None:
    endpoint.rules(RULES)
    endpoint.done("INSERT DATA { <urn:a> <urn:under> <urn:b> . <urn:b> <urn:under> <urn:c> }")
    above_a = "SELECT ?x { <urn:a> <urn:under> ?x } ORDER BY ?x"
    assert endpoint.select(above_a) == [("<urn:b>",), ("<urn:c>",)]
    # Derived and not asserted: nothing to delete.
    done = endpoint.done("DELETE DATA { <urn:a> <urn:under> <urn:c> }")
    assert done["changes"] == {}
    assert endpoint.select(above_a) == [("<urn:b>",), ("<urn:c>",)]
    # Asserted besides: it is deleted as a fact, and still follows.
    endpoint.done("INSERT DATA { <urn:a> <urn:under> <urn:c> }")
    endpoint.done("DELETE DATA { <urn:a> <urn:under> <urn:c> }")
    assert endpoint.select(above_a) == [("<urn:b>",), ("<urn:c>",)]
    endpoint.done("DELETE DATA { <urn:b> <urn:under> <urn:c> }")
    assert endpoint.select(above_a) == [("<urn:b>",)]


def test_a_fact_of_any_weight_goes_at_once(endpoint: Endpoint) -> None:
    row = ["<urn:a>", "<urn:p>", "<urn:b>"]
    endpoint.facts([row])
    endpoint.facts([row])
    endpoint.done("DELETE WHERE { <urn:a> ?p ?o }")
    assert endpoint.tuples() == set()


def test_tuples_that_are_not_triples_are_counted(endpoint: Endpoint) -> None:
    endpoint.facts([["alice", "knows", "bob"], ["<urn:a>", "<urn:p>", "<urn:b>"]])
    answer = endpoint.get(ALL)
    assert len(answer.json()["results"]["bindings"]) == 1
    assert answer.headers["zedlog-skipped"] == "1"
    endpoint.facts([["alice", "knows", "bob"]], weight=-1)
    assert "zedlog-skipped" not in endpoint.get(ALL).headers


# ---- epochs, and what there is to see


def test_an_answer_says_its_epoch_and_at_least_waits(endpoint: Endpoint) -> None:
    done = endpoint.done(ONE)
    answer = endpoint.get(ALL, at_least=done["token"])
    assert (answer.headers["zedlog-epoch"], answer.headers["zedlog-token"]) == (
        str(done["epoch"]),
        done["token"],
    )
    number, incarnation = done["token"].split("-")
    problem(endpoint.get(ALL, at_least=f"{int(number) + 10}-{incarnation}"), 404, "epoch_not_retained")
    later = endpoint.update("INSERT DATA { <urn:later> a 1 }", params={"wait": "false"})
    assert later.status_code == 202
    token = f"{int(number) + 1}-{incarnation}"
    assert endpoint.get("ASK { <urn:later> a 1 }", at_least=token).json()["boolean"]


def test_every_epoch_is_seen_at_once(endpoint: Endpoint) -> None:
    for i in range(30):
        endpoint.facts([[f"<urn:{i}>", "<urn:p>", "<urn:o>"]])
        assert endpoint.ask(f"ASK {{ <urn:{i}> <urn:p> <urn:o> }}")
    for i in range(30):
        endpoint.facts([[f"<urn:{i}>", "<urn:p>", "<urn:o>"]], weight=-1)
        assert not endpoint.ask(f"ASK {{ <urn:{i}> ?p ?o }}")


def test_the_store_says_what_it_is(endpoint: Endpoint) -> None:
    endpoint.done(ONE)
    assert endpoint.ask("ASK { ?s ?p ?o }")
    now = endpoint.http.get("/v1/sparql").json()
    assert (now["state"], now["triples"], now["skipped"]) == ("ready", 1, 0)
    assert 1_000_000 < now["bytes"] < now["limit"]
    assert now["filled"] >= 1
    metrics = endpoint.http.get("/metrics").text
    assert "\nzedlog_sparql_bytes " in metrics
    assert "\nzedlog_sparql_bytes 0.0\n" not in metrics


def test_without_a_query_the_service_describes_itself(endpoint: Endpoint) -> None:
    graph = rdflib.Graph().parse(data=endpoint.http.get("/sparql").text, format="turtle")
    sd = rdflib.Namespace("http://www.w3.org/ns/sparql-service-description#")
    (service,) = graph.subjects(rdflib.RDF.type, sd.Service)
    assert str(graph.value(service, sd.endpoint)) == endpoint.url
    assert set(graph.objects(service, sd.supportedLanguage)) == {sd.SPARQL11Query, sd.SPARQL11Update}
