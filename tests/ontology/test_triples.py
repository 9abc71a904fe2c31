"""RDF files: formats, escapes, and errors with their place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from engine.errors import InvalidRequestError, InvalidValueError
from engine.ontology.triples import parse_triples, read_triples

NT = rb"""
<http://e/s> <http://e/p> <http://e/o> . # a comment
_:b1 <http://e/p> "tab\there, \"quoted\", \u00e9\U0001F600"@en .
<http://e/s> <http://e/p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://e/s> <http://e/p> "plain"^^<http://www.w3.org/2001/XMLSchema#string> .
<> <http://e/p> "line\nbreak" .
"""
TERMS = [
    ("<http://e/s>", "<http://e/p>", "<http://e/o>"),
    ("_:b1", "<http://e/p>", '"tab\\there, \\"quoted\\", é\N{GRINNING FACE}"@en'),
    ("<http://e/s>", "<http://e/p>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    ("<http://e/s>", "<http://e/p>", '"plain"'),
    ("<>", "<http://e/p>", '"line\\nbreak"'),
]


def test_terms_are_canonical_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "x.nt").write_bytes(NT)
    (tmp_path / "x.nt.gz").write_bytes(gzip.compress(NT))
    assert read_triples(tmp_path / "x.nt") == read_triples(tmp_path / "x.nt.gz") == TERMS


def test_turtle_and_rdf_xml() -> None:
    expected = [("<http://e/s>", "<http://e/p>", '"v"')]
    assert list(parse_triples(b'@prefix : <http://e/> . :s :p "v" .', ".ttl", "x")) == expected
    xml = (
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        b'<rdf:Description rdf:about="http://e/s"><e:p>v</e:p></rdf:Description></rdf:RDF>'
    )
    assert list(parse_triples(xml, ".owl", "x")) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'<http://e/s> <http://e/p> "open .\n', 1),
        (b'<http://e/s> <http://e/p> "a" .\n<http://e/s> "b" "c" .\n', 2),
        (b'<http://e/s> <http://e/p> "a"\n', 2),
        (b'<http://e/s> <http://e/p> "\xff" .\n', 1),
        (b"<http://e/s> <http://e/p> x .\n", 1),
    ],
)
def test_errors_name_the_line(text: bytes, line: int) -> None:
    with pytest.raises(InvalidValueError) as caught:
        list(parse_triples(text, ".nt", "data/x.nt"))
    assert str(caught.value).startswith(f"data/x.nt, line {line}, column ")
    assert caught.value.detail["line"] == line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_triples(tmp_path / "none.nt")
    (tmp_path / "x.nt.gz").write_bytes(b"not packed")
    with pytest.raises(InvalidRequestError, match=r"cannot read .*gzip"):
        read_triples(tmp_path / "x.nt.gz")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InvalidRequestError, match=r"must end with one of \.nt, \.ttl"):
        read_triples(tmp_path / "x.json")
