"""Files of RDF in and out: every format and kind of term, named graphs, blank nodes, and what is wrong with a file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest
import rdflib

from engine.bulk.faults import explained
from engine.errors import (
    BadRowsError,
    InvalidRequestError,
    InvalidValueError,
    NegativeWeightError,
    SourceUnreadableError,
    TypeMismatchError,
)
from engine.language.schema import Column, ColumnType
from engine.rdf.statements import scope_of
from tests.bulk.conftest import Import
from tests.bulk.test_round_trip import exported
from tests.rdf.graphs import EX, assert_same, graph, of_tuples

TRIPLES = {"nt": "nt", "ttl": "turtle", "rdf": "xml"}
QUADS = {"nq": "nquads", "trig": "trig", "jsonld": "json-ld"}
SPO = [Column(name, ColumnType.SYMBOL) for name in "spo"]
SPOG = [*SPO, Column("g", ColumnType.SYMBOL)]


def written(made: rdflib.Graph, kind: str) -> bytes:
    """The graph as rdflib writes it; as the default graph in a format of datasets."""
    if kind in TRIPLES:
        return made.serialize(format=TRIPLES[kind], encoding="utf-8")
    dataset = rdflib.Dataset()
    for triple in made:
        dataset.add((*triple, rdflib.graph.DATASET_DEFAULT_GRAPH_ID))  # type: ignore[arg-type]
    return dataset.serialize(format=QUADS[kind], encoding="utf-8")


def read(path: Path, kind: str) -> rdflib.Graph:
    """What rdflib reads in a file, of a dataset the default graph."""
    if kind in TRIPLES:
        return rdflib.Graph().parse(path, format=TRIPLES[kind])
    dataset = rdflib.Dataset()
    dataset.parse(path, format=QUADS[kind])
    found = rdflib.Graph()
    for triple in dataset.default_graph:
        found.add(triple)
    return found


def test_oracle_random_graphs_keep_their_meaning_in_every_format_and_both_ways(bring: Import) -> None:
    seed = random.randrange(2**32)
    made = graph(random.Random(seed))
    plain: dict[str, set[Any]] = {}
    for kind in (*TRIPLES, *QUADS):
        file = bring.write(f"{kind}.{kind}.gz", written(made, kind))
        bring(path=file, relation=f"from_{kind}", blank_nodes="apart")
        rows = bring.weighted(f"from_{kind}")
        assert set(rows.values()) == {1}
        assert_same(of_tuples(rows), made, f"seed {seed}, from {kind}")
        plain[kind] = {row for row in rows if not any(term.startswith("_:") for term in row)}
    # The same term is the same symbol, whatever the format.
    assert all(rows == plain["nt"] for rows in plain.values()), f"seed {seed}"
    rows = [*bring.weighted("from_ttl")]
    for kind in (*TRIPLES, *QUADS):
        exported(bring, rows, SPO, path=f"out.{kind}")
        assert_same(read(bring.folder / f"out.{kind}", kind), made, f"seed {seed}, to {kind}")
        bring(path=f"out.{kind}", relation=f"again_{kind}", blank_nodes="keep")
        again = {*bring.weighted(f"again_{kind}")}
        if kind != "rdf":
            # To the label; RDF/XML has other labels where those are not names.
            assert again == {*rows}, f"seed {seed}, {kind}"


def test_named_graphs_are_a_fourth_column(bring: Import) -> None:
    quads = [
        ("<http://e/a>", "<http://e/p>", '"x"@en', "<http://e/g>"),
        ("<http://e/a>", "<http://e/p>", '"x"@en', ""),
        ("_:n", "<http://e/p>", '"a\\tb"', "_:g"),
        ("_:n", "<http://e/p>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', "<http://e/h>"),
    ]
    for kind in QUADS:
        exported(bring, quads, SPOG, path=f"d.{kind}")
        bring(path=f"d.{kind}", graphs=True, relation=f"quad_{kind}", blank_nodes="keep")
        assert {*bring.weighted(f"quad_{kind}")} == {*quads}, kind
        bring(path=f"d.{kind}", relation=f"triple_{kind}", blank_nodes="keep")
        # Without the names of graphs, one triple stands in two of them.
        assert bring.weighted(f"triple_{kind}") == {
            quad[:3]: 2 if quad[2] == '"x"@en' else 1 for quad in quads
        }
    bring(path=bring.write("t.nt", "<a> <p> <b> ."), graphs=True)
    assert bring.weighted("quad") == {("<a>", "<p>", "<b>", ""): 1}
    with pytest.raises(BadRowsError, match="not a triple of N-Triples"):
        bring(path=bring.write("u.nt", "<a> <p> <b> <g> ."), graphs=True)
    with pytest.raises(TypeMismatchError, match=r"turtle holds three symbols: subject, predicate, object$"):
        exported(bring, quads, SPOG, path="d.ttl")


def test_blank_nodes_of_files_are_kept_apart_and_are_the_same_the_next_time(bring: Import) -> None:
    first = bring.write("first.ttl", "_:x <http://p> [ <http://p> [] ] .")
    second = bring.write("second.ttl", "_:x <http://p> <http://o> .")
    lines = bring.write("third.nt", "_:x <http://p> <http://o> .")
    bring(paths=[first, second, lines])
    one, two = scope_of(first), scope_of(second)
    assert {*bring.weighted("triple")} == {
        (f"_:{one}_x", "<http://p>", f"_:{one}-0"),
        (f"_:{one}-0", "<http://p>", f"_:{one}-1"),
        (f"_:{two}_x", "<http://p>", "<http://o>"),
        ("_:x", "<http://p>", "<http://o>"),
    }
    bring(paths=[first, second, lines], weight=-1)
    assert not bring.weighted("triple")
    bring(paths=[second, lines], blank_nodes="keep")
    assert bring.weighted("triple") == {("_:x", "<http://p>", "<http://o>"): 2}
    bring(
        paths=[lines, bring.write("fourth.nt", "_:x <http://p> <http://o> .")],
        blank_nodes="apart",
        relation="r",
    )
    subjects = {row[0] for row in bring.weighted("r")}
    assert len(subjects) == 2
    assert all(subject.startswith("_:f") and subject.endswith("_x") for subject in subjects)


def test_errors_have_file_line_and_column(bring: Import) -> None:
    broken = bring.write("a.ttl", "@prefix e: <http://e/> .\n\ne:a e:b .\n")
    xml = bring.write("b.rdf", "<x/")
    lines = bring.write("c.nt", "bad\n<http://e/a> <http://e/b> <http://e/c> .\n")
    inside = bring.write("d.ttl", "<http://a> <http://b> <<( <http://a> <http://b> 1 )>> .")
    with pytest.raises(BadRowsError) as found:
        bring(paths=[broken, xml, lines, inside])
    assert "4 rows of 5 cannot be imported; the first is in a.ttl, line 3, column 9: . is not" in str(
        found.value
    )
    samples = {sample.pop("file"): sample for sample in found.value.detail["samples"]}
    assert samples["a.ttl"] == {"line": 3, "column": 9, "reason": ". is not a valid RDF object", "text": None}
    assert samples["c.nt"] == {"line": 1, "reason": "not a triple of N-Triples", "text": "bad"}
    assert "line" not in samples["b.rdf"]
    assert "tag not closed" in samples["b.rdf"]["reason"]
    assert "a triple inside a triple" in samples["d.ttl"]["reason"]
    assert len([json.loads(line) for line in bring.rejects.read_text().splitlines()]) == 4
    # Lines can be left out, and documents cannot.
    with pytest.raises(BadRowsError):
        bring(paths=[lines, broken], on_error="skip")
    good = bring.write("e.ttl", "<http://e/a> <http://e/b> <http://e/c> .")
    done = bring(paths=[lines, good], on_error="skip")
    assert (done.rejected.number, bring.weighted("triple")) == (
        1,
        {("<http://e/a>", "<http://e/b>", "<http://e/c>"): 2},
    )
    quads = bring.write("f.nq", "<a> <p> <b> <g> <h> .\n<a> <p> <b> <g> .\n<a> <p> <b> # .\n")
    done = bring(path=quads, graphs=True, on_error="skip")
    assert [sample["line"] for sample in done.rejected.samples] == [1, 3]
    assert bring.weighted("quad") == {("<a>", "<p>", "<b>", "<g>"): 1}
    with pytest.raises(BadRowsError, match="context is at another address, which is not fetched"):
        bring(path=bring.write("g.jsonld", '{"@context": "http://e/c", "@id": "http://e/a", "p": 1}'))


def test_a_damaged_file_is_unreadable(bring: Import) -> None:
    file = bring.write("a.ttl.gz", "<http://a> <http://b> <http://c> .\n" * 1000)
    path = bring.folder / file
    path.write_bytes(path.read_bytes()[:-20])
    request = {"path": file}
    with pytest.raises(Exception, match="Compressed file ended") as raised:
        bring(**request)
    from engine.bulk.sources import Source

    found = explained(raised.value, [Source(f"file://{path}", file, path)])
    assert isinstance(found, SourceUnreadableError)
    assert "a.ttl.gz is not a complete gzip file" in str(found)


def test_rdf_xml_refuses_what_it_cannot_hold(bring: Import) -> None:
    for row, why in (
        (("<http://a>", "<http://p/1>", '"x"'), "does not end in a name"),
        (("<http://a>", "<http://p/x>", '"a\\rb"'), "XML does not know"),
        (("<http://a>", "<http://p/x>", '"\\u0001"'), "XML does not know"),
    ):
        with pytest.raises(Exception, match="RDF/XML cannot hold") as raised:
            exported(bring, [row], SPO, path="out.rdf")
        found = explained(raised.value)
        assert isinstance(found, InvalidValueError)
        assert str(found).startswith("RDF/XML cannot hold the triple, because")
        assert why in str(found)
    rows = [("_:1", "<http://p/x>", "_:z-31"), ("_:a", "<http://p/x>", "_:1")]
    exported(bring, rows, SPO, path="labels.rdf")
    assert_same(read(bring.folder / "labels.rdf", "rdf"), of_tuples(rows), "labels that are no names of XML")


def test_generalised_triples_are_left_out_of_every_format(bring: Import) -> None:
    rows = [("<http://a>", "<http://p>", '"x"'), ('"x"', "<http://p>", "<http://a>")]
    done = exported(bring, rows, SPO, left_out=1, path="out.ttl")
    assert (done.rows, done.left_out) == (1, 1)
    quads = [(*row, graph) for row, graph in zip(rows, ("", "<http://g>"), strict=True)]
    assert exported(bring, quads, SPOG, left_out=1, path="out.trig").left_out == 1
    assert exported(bring, rows[1:], SPO, left_out=1, path="none.ttl").files == 1
    assert (bring.folder / "none.ttl").read_bytes() == b""


def test_prefixes_shorten_what_is_written(bring: Import) -> None:
    import pyarrow as pa

    from engine.bulk.exporting import write
    from engine.bulk.request import ExportRequest

    table = pa.table([[f"<{EX}a>"], [f"<{EX}p>"], ['"x"']], names=["c0", "c1", "c2"])
    for kind, start in (("ttl", "@prefix ex:"), ("trig", "@prefix ex:"), ("rdf", "<?xml")):
        name = f"out.{kind}"
        format_ = {"ttl": "turtle", "trig": "trig", "rdf": "rdfxml"}[kind]
        request = ExportRequest(path=name, format=format_, relation="r", prefixes=True)
        write(bring.session, table, SPO, request, bring.folder / name, "job", {"ex": str(EX)})
        text = (bring.folder / name).read_text()
        assert text.startswith(start)
        assert "ex:p" in text
        assert len(list(pyoxigraph.parse(text, format=pyoxigraph.RdfFormat.from_extension(kind)))) == 1
    with pytest.raises(InvalidRequestError, match='"prefixes" has no effect'):
        ExportRequest(path="x.nt", format="ntriples", relation="r", prefixes=True)


def test_an_import_of_weight_minus_one_undoes_one_that_was_not_there(bring: Import) -> None:
    file = bring.write("a.ttl", "<http://a> <http://b> 1 .")
    with pytest.raises(NegativeWeightError):
        bring(path=file, weight=-1)
