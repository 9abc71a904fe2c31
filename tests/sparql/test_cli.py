"""`zedlog sparql` as a user types it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service.cli.main import run
from tests.commands import Done
from tests.sparql.conftest import Endpoint

Sparql = Callable[..., Done]
DATA = 'INSERT DATA { <urn:a> <urn:name> "A"@en ; <urn:age> 5 . <urn:b> <urn:name> "B" }'
NAMES = "SELECT ?s ?n { ?s <urn:name> ?n } ORDER BY ?s"


@pytest.fixture
def sparql(endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sparql:
    monkeypatch.setenv("ZEDLOG_URL", str(endpoint.http.base_url))
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> Done:
        status = run(("sparql", *arguments))
        seen = capsys.readouterr()
        return Done(status, seen.out, seen.err)

    return call


def test_an_update_and_the_formats_of_a_query(sparql: Sparql, tmp_path: Path) -> None:
    tried = sparql("--update", DATA, "--dry-run")
    assert (tried.status, "dry run" in tried.out, "triple: +3" in tried.out) == (0, True, True)
    assert sparql(NAMES).out == "s,n\r\n"
    assert "triple: +3" in sparql("--update", DATA, "-m", "names").out
    assert sparql(NAMES).out == "s,n\r\nurn:a,A\r\nurn:b,B\r\n"
    assert sparql(NAMES, "--format", "tsv").out == '?s\t?n\n<urn:a>\t"A"@en\n<urn:b>\t"B"\n'
    assert len(json.loads(sparql(NAMES, "--format", "json").out)["results"]["bindings"]) == 2
    assert "<sparql" in sparql(NAMES, "--format", "xml").out
    table = sparql(
        "SELECT ?n ?a { ?s <urn:name> ?n OPTIONAL { ?s <urn:age> ?a } } ORDER BY ?s", "--format", "table"
    )
    assert ['"A"@en', "5"] in [
        [word.strip() for word in line.split("│")[1:-1]] for line in table.out.splitlines()
    ]
    assert "2 rows at epoch" in table.err
    assert sparql("ASK { <urn:a> ?p 5 }").out == "true\n"
    assert "yes, at epoch" in sparql("ASK { <urn:a> ?p 5 }", "--format", "table").out
    assert "no, at epoch" in sparql("ASK { <urn:a> ?p 6 }", "--format", "table").out
    graph = "CONSTRUCT { ?s <urn:called> ?n } WHERE { ?s <urn:name> ?n } "
    assert sparql(graph).out.count(" <urn:called> ") == 2
    assert "<urn:called>" in sparql(graph, "--format", "turtle").out
    file = tmp_path / "query.rq"
    file.write_text(NAMES)
    assert sparql(str(file)).out == "s,n\r\nurn:a,A\r\nurn:b,B\r\n"
    assert "triple: -3" in sparql("--update", "CLEAR ALL").out


def test_a_query_from_standard_input(sparql: Sparql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("ASK { }"))
    assert sparql("-").out == "true\n"


def test_what_is_wrong_is_said(sparql: Sparql) -> None:
    wrong = sparql("SELECT * {\n ?s ?p }")
    assert wrong.status == 1
    assert "(sparql_syntax)" in wrong.err
    assert "2 |  ?s ?p }" in wrong.err
    assert "LOAD is not supported" in sparql("--update", "LOAD <http://example.org/x>").err
    assert (sparql("no-such-file.rq").status, sparql("ASK {}", "--dry-run").status) == (1, 2)
    assert sparql("--update", DATA, "--format", "csv").status == 2
    assert "budget_exceeded" in sparql("SELECT * { ?a ?b ?c }", "--timeout", "0.000001").err
