"""`zedlog import a.ttl b.nt.gz --rdfs` through the parts that `zedlog serve` runs: command, service, engine, Spark."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from engine.errors import SparkUnavailableError
from engine.spark.session.java import java_home
from tests.commands import Zedlog, zedlog
from tests.live import LiveSystem

__all__ = ["zedlog"]

ONTOLOGY = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://e/> .
:Professor rdfs:subClassOf :Person . :teaches rdfs:domain :Professor ; rdfs:subPropertyOf :knows .
"""
LINES = '<http://e/ada> <http://e/teaches> <http://e/logic> .\n<http://e/ada> <http://e/name> "Ada"@EN .\n'


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """A system that imports the files below its folder `in`."""
    try:
        java_home()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("rdf")
    (folder / "in").mkdir()
    (folder / "in" / "a.ttl").write_text(ONTOLOGY)
    (folder / "in" / "b.nt.gz").write_bytes(gzip.compress(LINES.encode()))
    with pytest.MonkeyPatch.context() as patch:
        # For the store of SPARQL, on a machine that is busy with other things.
        patch.setenv("ZEDLOG_WAIT_TIMEOUT", "120")
        for name, path in {"IMPORT_ROOT": "in", "EXPORT_ROOT": "out", "BATCH_DIR": "batches"}.items():
            patch.setenv(f"ZEDLOG_{name}", str(folder / path))
        with LiveSystem(folder) as system:
            yield system


def names(zedlog: Zedlog, query: str) -> list[str]:
    return zedlog("sparql", f"PREFIX : <http://e/> {query}", "--format", "csv").out.split()[1:]


def test_triples_and_rules_come_in_one_transaction_and_are_asked(zedlog: Zedlog, live: LiveSystem) -> None:
    tried = zedlog("import", "a.ttl", "b.nt.gz", "--rdfs", "--dry-run")
    assert tried.status == 0, tried.err
    assert names(zedlog, "SELECT ?p { ?p ?q ?o }") == []
    done = zedlog("import", "a.ttl", "b.nt.gz", "--rdfs")
    assert done.status == 0, done.err
    assert "imported 5 rows, 5 distinct tuples" in done.out
    with live.client() as client:
        assert client.get("/v1/relations").json()["epoch"] == 1
        assert len(client.get("/v1/rules").json()["rules"]) == 6
    assert names(zedlog, "SELECT ?c { :ada a ?c } ORDER BY ?c") == ["http://e/Person", "http://e/Professor"]
    assert names(zedlog, "SELECT ?x { :ada :knows ?x }") == ["http://e/logic"]
    assert names(zedlog, "SELECT (LANG(?n) AS ?tag) { :ada :name ?n }") == ["en"]
    # What is derived goes with the facts, and the rules with the import.
    back = zedlog("import", "a.ttl", "b.nt.gz", "--rdfs", "--weight", "-1")
    assert back.status == 0, back.err
    assert names(zedlog, "SELECT ?s { ?s ?p ?o }") == []
    assert zedlog("rules", "list").out.find("triple") == -1


def test_a_broken_document_brings_nothing(zedlog: Zedlog, live: LiveSystem) -> None:
    (live.folder / "in" / "broken.ttl").write_text(f"{ONTOLOGY}:a :b .\n")
    with live.client() as client:
        before = client.get("/v1/relations").json()["epoch"]
        failed = zedlog("import", "broken.ttl", "b.nt.gz", "--rdfs")
        assert failed.status == 1
        assert "broken.ttl, line 3" in failed.err
        assert client.get("/v1/relations").json()["epoch"] == before
