"""Documents of RDF to statements and back, without Spark: terms of every kind, blank nodes, errors."""

from __future__ import annotations

import bz2
import gzip
import random
from pathlib import Path

import pyoxigraph
import pytest
import rdflib

from engine.rdf.formats import DOCUMENTS, JSONLD, NQUADS, NTRIPLES, RDFXML, TRIG, TURTLE
from engine.rdf.statements import Wrong, scope_of, statements
from engine.rdf.writing import write_document
from tests.rdf.graphs import assert_same, graph, of_lines

RDFLIB = {
    NTRIPLES: "nt",
    NQUADS: "nquads",
    TURTLE: "turtle",
    TRIG: "trig",
    RDFXML: "xml",
    JSONLD: "json-ld",
}
DATASETS = (NQUADS, TRIG, JSONLD)
# Of rdflib, about itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def written(made: rdflib.Graph, kind: str) -> bytes:
    """The graph as rdflib writes it; as the default graph in a format of datasets."""
    if kind not in DATASETS:
        return made.serialize(format=RDFLIB[kind], encoding="utf-8")
    dataset = rdflib.Dataset()
    for triple in made:
        dataset.default_graph.add(triple)
    return dataset.serialize(format=RDFLIB[kind], encoding="utf-8")


def read(path: Path, kind: str) -> rdflib.Graph:
    """What rdflib reads in a file, of a dataset the default graph."""
    if kind not in DATASETS:
        return rdflib.Graph().parse(data=path.read_bytes(), format=RDFLIB[kind])
    dataset = rdflib.Dataset()
    dataset.parse(data=path.read_bytes(), format=RDFLIB[kind])
    found = rdflib.Graph()
    for triple in dataset.default_graph:
        found.add(triple)
    return found


def lines_of(path: Path, kind: str, scope: str = "f1", *, keep: bool = False) -> list[bytes]:
    lines: list[bytes] = []
    for found in statements(path, kind, scope, keep=keep):
        assert not isinstance(found, Wrong), found
        lines += found
    return lines


def wrong(path: Path, kind: str) -> Wrong:
    *_, last = statements(path, kind, "f1", keep=False)
    assert isinstance(last, Wrong)
    return last


def test_oracle_what_rdflib_writes_is_read(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for number in range(3):
        made = graph(rng)
        plain: dict[str, set[bytes]] = {}
        for kind in RDFLIB:
            path, why = tmp_path / f"{number}.{kind}", f"seed {seed}, graph {number}, {kind}"
            path.write_bytes(written(made, kind))
            found = lines_of(path, kind)
            # Not with what was to be written: rdflib loses some blank nodes that are in a circle in JSON-LD.
            assert_same(of_lines(found), read(path, kind), why)
            # The same term is the same text, whatever the format.
            plain[kind] = {line for line in found if b"_:" not in line}
            assert plain[kind] == plain[NTRIPLES] or kind == JSONLD, why


def test_oracle_what_is_written_is_read_by_rdflib_and_by_us(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for number in range(3):
        made = graph(rng, odd=number > 0)
        lines, path = tmp_path / "lines", tmp_path / "document"
        lines.write_bytes(written(made, NTRIPLES))
        found = lines_of(lines, NTRIPLES, keep=True)
        for kind in DOCUMENTS:
            why = f"seed {seed}, graph {number}, {kind}"
            write_document(lines, path, kind, {"ex": "http://example.org/ns#"} if number % 2 else {})
            if number == 0 or kind == RDFXML:
                assert_same(read(path, kind), made, why)
            if kind != RDFXML:
                # To the label; RDF/XML has other labels where those are not names.
                assert {*lines_of(path, kind, keep=True)} == {*found}, why
            assert_same(of_lines(lines_of(path, kind)), made, why)


def test_tags_are_in_lower_case_and_strings_have_no_type(tmp_path: Path) -> None:
    path = tmp_path / "a.ttl"
    path.write_text('<a> <p> "x"@EN-us, "y"^^<http://www.w3.org/2001/XMLSchema#string>, "\\u0041\\t" .')
    assert lines_of(path, TURTLE) == [
        b'<a> <p> "x"@en-us .',
        b'<a> <p> "y" .',
        b'<a> <p> "A\\t" .',
    ]


def test_blank_nodes_are_those_of_their_file_and_the_same_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "a.trig"
    path.write_text("_:x <p> [ <p> [] ], (1) . _:g { [] <p> _:x }")
    first, second = lines_of(path, TRIG), lines_of(path, TRIG)
    assert first == second
    assert len(first) == 6
    assert {term for line in first for term in line.split() if term.startswith(b"_:")} == {
        b"_:f1_x",
        b"_:f1_g",
        *(b"_:f1-%d" % i for i in range(4)),
    }
    assert not {*lines_of(path, TRIG, "f2")} & {*first}
    kept = lines_of(path, TRIG, keep=True)
    assert any(line.startswith(b"_:x ") for line in kept)
    assert (scope_of("a"), scope_of("b")) == (scope_of("a"), scope_of("b"))
    assert scope_of("a") != scope_of("b")


def test_many_blank_nodes_without_labels_are_all_found(tmp_path: Path) -> None:
    # What the parser makes up for them has sometimes fewer digits.
    path = tmp_path / "a.ttl"
    path.write_text("<s> <p> " + ", ".join(["[]"] * 2_000) + " .")
    assert lines_of(path, TURTLE) == [b"<s> <p> _:f1-%d ." % i for i in range(2_000)]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_compressed_files(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    suffix = ".gz" if pack is gzip.compress else ".bz2"
    path = tmp_path / f"a.ttl{suffix}"
    path.write_bytes(pack(b"<a> <b> <c> ."))
    assert lines_of(path, TURTLE) == [b"<a> <b> <c> ."]
    path.write_bytes(pack(b"<a> <b> <c> .\n" * 100_000)[:-30])
    with pytest.raises(EOFError):
        lines_of(path, TURTLE)


def test_the_first_error_ends_a_file_and_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("@prefix e: <http://e/> .\ne:a e:p e:b .\ne:a e:p .\ne:c e:p e:d .\n")
    first, last = statements(path, TURTLE, "f1", keep=False)
    assert first == [b"<http://e/a> <http://e/p> <http://e/b> ."]
    assert last == Wrong(". is not a valid RDF object", 3, 9)
    path.write_text('{"@id": "http://e/a", "http://e/p": 1')
    assert (wrong(path, JSONLD).line, wrong(path, JSONLD).reason[:13]) == (1, "Object values")
    path.write_text('{"@context": "http://e/c", "@id": "http://e/a", "p": 1}')
    assert wrong(path, JSONLD).reason.startswith("its context is at another address, which is not fetched")
    path.write_text("<x/")
    assert wrong(path, RDFXML) == Wrong(
        "syntax error: tag not closed: `>` not found before end of input", None, None
    )
    path.write_bytes(b'<a> <b> "\xff" .')
    assert "UTF-8" in wrong(path, TURTLE).reason


def document(tmp_path: Path, line: str, kind: str = RDFXML) -> rdflib.Graph:
    (tmp_path / "lines").write_text(line)
    write_document(tmp_path / "lines", tmp_path / "out", kind, {})
    return read(tmp_path / "out", kind)


def test_rdf_xml_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    for line, why in (
        ('<http://a> <http://p/1> "x" .', "its property does not end in a name"),
        ('<http://a> <http://p/> "x" .', "its property does not end in a name"),
        ('<http://a> <p> "x" .', "its property does not end in a name"),
        ('<http://a> <http://p/x> "a\\rb" .', "XML does not know one of its characters"),
        ('<http://a> <http://p/x> "\\u0001" .', "XML does not know one of its characters"),
        ('<http://a> <http://p/x> "\\uFFFE" .', "XML does not know one of its characters"),
    ):
        with pytest.raises(ValueError, match=f"RDF/XML cannot hold the triple, because {why}"):
            document(tmp_path, line)
        if "<p>" not in line:
            for kind in (TURTLE, TRIG, JSONLD):
                assert_same(document(tmp_path, line, kind), of_lines([line.encode()]), line)


def test_labels_that_are_no_names_of_xml_stay_different(tmp_path: Path) -> None:
    lines = ["_:1 <http://p/x> _:z-31 .", "_:a <http://p/x> _:1 .", "_:2b <http://p/x> _:a.b ."]
    made = document(tmp_path, "\n".join(lines))
    assert_same(made, of_lines([line.encode() for line in lines]), "labels")


def test_prefixes_shorten_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('<http://e/a> <http://e/p> "x" .\n<http://e/a> <http://e/q> "y" .\n')
    for kind in (TURTLE, TRIG, RDFXML):
        write_document(tmp_path / "lines", tmp_path / "out", kind, {"ex": "http://e/"})
        text = (tmp_path / "out").read_text()
        assert "ex:p" in text, kind
        assert "ex:q" in text, kind
        assert len(read(tmp_path / "out", kind)) == 2


def test_random_properties_come_back_from_rdf_xml_or_are_refused(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    alphabet = "ab1-._/#:é~%&"
    refused = 0
    for _ in range(300):
        name = "".join(rng.choices(alphabet, k=rng.randrange(1, 7)))
        line = f'<http://a> <http://p/{name}> "x" .'
        try:
            found = document(tmp_path, line)
        except ValueError:
            refused += 1
            continue
        assert_same(found, of_lines([line.encode()]), f"seed {seed}: {line}")
    assert 0 < refused < 300


def test_what_is_written_is_read_by_strict_parsers(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('<http://a> <http://p/x> "1"^^<http://t/y> <http://g> .\n')
    for kind, strict in ((TRIG, pyoxigraph.RdfFormat.TRIG), (JSONLD, pyoxigraph.RdfFormat.JSON_LD)):
        write_document(tmp_path / "lines", tmp_path / "out", kind, {})
        (quad,) = pyoxigraph.parse(path=tmp_path / "out", format=strict)
        assert str(quad.graph_name) == "<http://g>"
