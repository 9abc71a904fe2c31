"""The names of RDF's formats, and the suffixes of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyoxigraph import RdfFormat

NTRIPLES, NQUADS = "ntriples", "nquads"
TURTLE, TRIG, RDFXML, JSONLD = "turtle", "trig", "rdfxml", "jsonld"
RDF: Final = "rdf"
"""Files in several of these formats; the name of each says which."""

LINES: Final = (NTRIPLES, NQUADS)
"""A statement a line, so that one that is wrong can be left out."""
DOCUMENTS: Final = (TURTLE, TRIG, RDFXML, JSONLD)
"""A file is a whole: what stands behind an error cannot be trusted."""
FORMATS: Final = (*LINES, *DOCUMENTS)
DATASETS: Final = (NQUADS, TRIG, JSONLD)
"""Those that can hold named graphs."""
SUFFIXES: Final = {
    ".nt": NTRIPLES,
    ".nq": NQUADS,
    ".ttl": TURTLE,
    ".trig": TRIG,
    ".rdf": RDFXML,
    ".owl": RDFXML,
    ".jsonld": JSONLD,
}


def oxigraph(format_: str) -> RdfFormat:
    """The format as pyoxigraph knows it."""
    # Imported here: only the work on files of RDF needs it.
    from pyoxigraph import RdfFormat

    known: dict[str, RdfFormat] = {
        NTRIPLES: RdfFormat.N_TRIPLES,
        NQUADS: RdfFormat.N_QUADS,
        TURTLE: RdfFormat.TURTLE,
        TRIG: RdfFormat.TRIG,
        RDFXML: RdfFormat.RDF_XML,
        JSONLD: RdfFormat.JSON_LD,
    }
    return known[format_]
