"""Lines of N-Quads to a document of RDF.

In: a file of lines whose terms are sound. Out: the same statements in Turtle, TriG, RDF/XML or JSON-LD. Always: other
readers of the format get the same terms. RDF/XML cannot hold every statement, and what it cannot hold is refused. Lines
that come sorted by graph and subject give the shorter documents. Memory is bounded, about five microseconds a
statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from engine.rdf.formats import DATASETS, RDFXML, oxigraph

if TYPE_CHECKING:
    from pyoxigraph import BlankNode, Quad, Triple

CANNOT_HOLD = "RDF/XML cannot hold the triple"
_NAME = re.compile(r"[^\W\d][\w.-]*", re.ASCII)
# XML has no way to write most control characters, and a carriage return would be read as a line feed.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_PROPERTY = re.compile(r"[^<>\"&\s]*[^\w.-][^\W\d][\w.-]*", re.ASCII)


def write_document(lines: Path, target: Path, format_: str, prefixes: Mapping[str, str]) -> None:
    """Write the statements of a file.

    Raises:
        ValueError: RDF/XML cannot hold one of them; the text begins with CANNOT_HOLD.
        OSError: a file cannot be read or written.
    """
    from pyoxigraph import RdfFormat, parse, serialize

    with lines.open("rb") as file, target.open("wb") as out:
        quads = parse(file, format=RdfFormat.N_QUADS, lenient=True)
        statements: Iterator[Quad] | Iterator[Triple] = quads
        if format_ == RDFXML:
            statements = (for_xml(quad.triple) for quad in quads)
        elif format_ not in DATASETS:
            statements = (quad.triple for quad in quads)
        serialize(statements, out, format=oxigraph(format_), prefixes=dict(prefixes) or None)


def for_xml(triple: Triple) -> Triple:
    """The triple, with labels of blank nodes that XML takes.

    Raises:
        ValueError: it cannot be written; the text begins with CANNOT_HOLD.
    """
    from pyoxigraph import BlankNode, Triple

    if not _PROPERTY.fullmatch(triple.predicate.value):
        raise ValueError(
            f"{CANNOT_HOLD}, because its property does not end in a name: {triple}; choose another format"
        )
    if _NOT_IN_XML.search(_texts(triple)):
        raise ValueError(
            f"{CANNOT_HOLD}, because XML does not know one of its characters: {triple}; choose another format"
        )
    subject, object_ = triple.subject, triple.object
    if not isinstance(subject, BlankNode) and not isinstance(object_, BlankNode):
        return triple
    return Triple(
        _renamed(subject) if isinstance(subject, BlankNode) else subject,
        triple.predicate,
        _renamed(object_) if isinstance(object_, BlankNode) else object_,
    )


def _texts(triple: Triple) -> str:
    return "\n".join(getattr(term, "value", "") for term in (triple.subject, triple.object))


def _renamed(node: BlankNode) -> BlankNode:
    """A node whose label is a name of XML, and differs from those of all other nodes."""
    from pyoxigraph import BlankNode

    label = node.value
    if _NAME.fullmatch(label) and not label.startswith("z-"):
        return node
    return BlankNode(f"z-{label.encode().hex()}")
