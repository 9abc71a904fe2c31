"""Files of RDF through imports and exports: mixed formats, named graphs, rejects, and rules in one step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyoxigraph
import pytest

from engine.bulk.exporting import write
from engine.bulk.faults import explained
from engine.bulk.request import ExportRequest
from engine.bulk.sources import Source
from engine.errors import BadRowsError, InvalidValueError, SourceUnreadableError, TypeMismatchError
from engine.language.canonical import rule_id
from engine.language.parser import parse_program
from engine.language.schema import Column, ColumnType
from engine.ontology import vocabulary as v
from engine.rdf.statements import scope_of
from tests.bulk.conftest import Import
from tests.bulk.test_round_trip import exported

SPO = [Column(name, ColumnType.SYMBOL) for name in "spo"]
SPOG = [*SPO, Column("g", ColumnType.SYMBOL)]
RDFS = Path(__file__).parents[2] / "programs" / "rdfs.dl"


def test_files_of_several_formats_are_one_import_and_can_be_undone(bring: Import) -> None:
    first = bring.write("a.ttl.gz", '_:x <http://p> [ <http://p> "x\\u0001"@EN ], <http://o> .')
    second = bring.write("b.rdf", '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http:/'
                         '/"><rdf:Description rdf:about="http://s" e:p="v"/></rdf:RDF>')  # fmt: skip
    third = bring.write("c.nt", '_:x <http://p> <http://o> .\n_:x <http://p> "\\u0041" .\n')
    fourth = bring.write("d.jsonld", '{"@id": "http://s", "http://p": ["v", 1]}')
    fifth = bring.write("e.nq", '<http://s> <http://p> "v" <http://g> .\n')
    files = [first, second, third, fourth, fifth]
    done = bring(paths=files)
    one = scope_of(first)
    assert bring.weighted("triple") == {
        (f"_:{one}_x", "<http://p>", f"_:{one}-0"): 1,
        (f"_:{one}-0", "<http://p>", '"x\\u0001"@en'): 1,
        (f"_:{one}_x", "<http://p>", "<http://o>"): 1,
        ("_:x", "<http://p>", "<http://o>"): 1,
        ("_:x", "<http://p>", '"A"'): 1,
        ("<http://s>", "<http://p>", '"v"'): 3,
        ("<http://s>", "<http://p>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'): 1,
    }
    assert (done.rows, done.tuples, done.weight) == (9, 7, 9)
    bring(paths=files, weight=-1)
    assert not bring.weighted("triple")
    # The same labels, kept and kept apart.
    bring(paths=[third], blank_nodes="apart", relation="r")
    assert all(row[0].startswith("_:f") and row[0].endswith("_x") for row in bring.weighted("r"))


def test_named_graphs_are_a_fourth_column(bring: Import) -> None:
    quads = [
        ("<http://e/a>", "<http://e/p>", '"x"@en', "<http://e/g>"),
        ("<http://e/a>", "<http://e/p>", '"x"@en', ""),
        ("_:n", "<http://e/p>", '"a\\tb"', "_:g"),
        ("_:n", "<http://e/p>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', "<http://e/h>"),
    ]
    for kind in ("nq", "trig"):
        exported(bring, quads, SPOG, path=f"d.{kind}")
    lines = bring.write("t.nt", "<a> <p> <b> .")
    bring(paths=["d.nq", "d.trig", lines], graphs=True, blank_nodes="keep")
    assert bring.weighted("quad") == {**dict.fromkeys(quads, 2), ("<a>", "<p>", "<b>", ""): 1}
    bring(path="d.nq")
    # Without the names of graphs, one triple stands in two of them.
    assert bring.weighted("triple") == {quad[:3]: 2 if quad[2] == '"x"@en' else 1 for quad in quads}
    with pytest.raises(TypeMismatchError, match=r"turtle holds three symbols: subject, predicate, object$"):
        exported(bring, quads, SPOG, path="d.ttl")


def test_errors_have_file_line_and_column_and_documents_fail_as_a_whole(bring: Import) -> None:
    broken = bring.write("a.ttl", "@prefix e: <http://e/> .\n\ne:a e:b .\n")
    xml = bring.write("b.rdf", "<x/")
    lines = bring.write("c.nt", "bad\n<http://e/a> <http://e/b> <http://e/c> .\n<a> <b> <c> <d> .\n")
    inside = bring.write("d.ttl", "<http://a> <http://b> <<( <http://a> <http://b> 1 )>> .")
    quads = bring.write("e.nq", "<a> <p> <b> <g> <h> .\n<a> <p> <b> <g> .\n")
    with pytest.raises(BadRowsError) as found:
        bring(paths=[broken, xml, lines, inside, quads], on_error="skip")
    assert "rows of 8 cannot be imported; the first is in a.ttl, line 3, column 9: . is not" in str(
        found.value
    )
    samples = {
        (sample.pop("file"), sample.pop("line", None)): sample for sample in found.value.detail["samples"]
    }
    assert samples == {
        ("a.ttl", 3): {"column": 9, "reason": ". is not a valid RDF object", "text": None},
        ("b.rdf", None): {
            "reason": "syntax error: tag not closed: `>` not found before end of input",
            "text": None,
        },
        ("c.nt", 1): {"reason": "not a triple of N-Triples", "text": "bad"},
        ("c.nt", 3): {"reason": "not a triple of N-Triples", "text": "<a> <b> <c> <d> ."},
        ("d.ttl", None): {
            "reason": "a triple inside a triple, or an IRI with a control character, < or >, which Zedlog's triples "
            "cannot hold",
            "text": '<http://a> <http://b> <<( <http://a> <http://b> "1"^^<http://www.w3.org/2001/XMLSchema#integer> '
            ")>> .",
        },
        ("e.nq", 1): {"reason": "not a quad of N-Quads", "text": "<a> <p> <b> <g> <h> ."},
    }
    done = bring(paths=[lines, quads], on_error="skip")
    assert (done.rejected.number, len(bring.weighted("triple"))) == (3, 2)


def test_a_damaged_file_is_unreadable(bring: Import) -> None:
    file = bring.write("a.ttl.gz", "<http://a> <http://b> <http://c> .\n" * 1000)
    path = bring.folder / file
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Exception, match="Compressed file ended") as raised:
        bring(path=file)
    found = explained(raised.value, [Source(f"file://{path}", file, path)])
    assert isinstance(found, SourceUnreadableError)
    assert "a.ttl.gz is not a complete gzip file" in str(found)


def test_exports_leave_out_generalised_triples_and_shorten_iris(bring: Import) -> None:
    rows = [("<http://a>", "<http://p/x>", '"x"'), ('"x"', "<http://p/x>", "<http://a>")]
    assert exported(bring, rows, SPO, left_out=1, path="out.ttl").left_out == 1
    quads = [(*row, graph) for row, graph in zip(rows, ("", "<http://g>"), strict=True)]
    assert exported(bring, quads, SPOG, left_out=1, path="out.trig").left_out == 1
    assert exported(bring, rows[1:], SPO, left_out=1, path="none.ttl").files == 1
    assert (bring.folder / "none.ttl").read_bytes() == b""
    table = pa.table([["<http://p/a>"], ["<http://p/x>"], ['"x"']], names=["c0", "c1", "c2"])
    request = ExportRequest(path="short.ttl", format="turtle", relation="r", prefixes=True)
    write(bring.session, table, SPO, request, bring.folder / "short.ttl", "job", {"p": "http://p/"})
    assert (bring.folder / "short.ttl").read_text() == '@prefix p: <http://p/> .\np:a p:x "x" .\n'
    with pytest.raises(Exception, match="RDF/XML cannot hold") as raised:
        exported(bring, [("<http://a>", "<http://p/1>", '"x"')], SPO, path="out.rdf")
    found = explained(raised.value)
    assert isinstance(found, InvalidValueError)
    assert str(found).startswith(
        "RDF/XML cannot hold the triple, because its property does not end in a name"
    )
    assert len(list(pyoxigraph.parse(path=bring.folder / "out.ttl", format=pyoxigraph.RdfFormat.TURTLE))) == 1


def test_triples_and_rules_come_and_go_in_one_transaction(bring: Import) -> None:
    ontology = bring.write(
        "o.ttl",
        "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
        ":A rdfs:subClassOf :B . :p a owl:SymmetricProperty . :p rdfs:domain :A . :A owl:disjointWith :C .\n"
        ":D owl:oneOf (:d) .",
    )
    data = bring.write("d.nt.gz", "<http://e/x> <http://e/p> <http://e/y> .\n")
    _, transaction = bring.read(paths=[ontology, data], rules="rdfs", dry_run=True)
    program = parse_program(RDFS.read_text())
    made = parse_program("\n".join(change.rule for change in transaction.rules))
    # The rules are those of the library.
    assert {rule_id(rule) for rule in made.rules} == {rule_id(rule) for rule in program.rules}
    done = bring(paths=[ontology, data], rules="rdfs")
    assert done.added is not None
    assert done.added.report == {"set": "rdfs", "number": 6, "facts": 0}
    kind = v.TYPE
    query = f'triple(x, "{kind}", "<http://e/B>")'
    assert bring.reasoner.query(query).tuples == [("<http://e/x>",)]
    bring(paths=[ontology, data], rules="rdfs", weight=-1)
    assert bring.reasoner.query("triple(x, _, _)").tuples == []
    assert not bring.reasoner.database.program.rule_infos
    done = bring(paths=[ontology, data], rules="owl-rl")
    assert done.added is not None
    report = done.added.report
    assert (report["set"], report["number"], report["not_covered"]) == ("owl-rl", 3, 2)
    assert report["for_example"] == ["A disjointWith C", "D EquivalentTo {d}: {d} as a conclusion"]
    assert report["facts"] == 1
    assert sorted(bring.reasoner.query(query).tuples) == [("<http://e/x>",), ("<http://e/y>",)]
    assert bring.reasoner.query(f'triple("<http://e/d>", "{kind}", "<http://e/D>")').tuples == [()]
    bring(paths=[ontology, data], rules="owl-rl", weight=-1)
    assert bring.reasoner.query("triple(x, _, _)").tuples == []
    assert not bring.reasoner.database.program.rule_infos
