"""RDF files to triples of terms.

In: a file of N-Triples, Turtle or RDF/XML, plain or compressed with gzip. Out: (subject, predicate, object) in the
order of the file, each term in the canonical syntax of N-Triples: `<iri>`, `_:blank`, `"text"`, `"text"@en`,
`"1"^^<type>`.
So terms of different kinds are different symbols, and none holds a tab or a line break. The parser is pyoxigraph's;
IRIs are taken as they are written, including relative ones, which occur in published data sets. About ten microseconds
a triple.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from engine.errors import InvalidRequestError, InvalidValueError, shown

Triple: TypeAlias = tuple[str, str, str]
_SUFFIXES = (".nt", ".ttl", ".rdf", ".owl", ".xml")


def read_triples(path: Path) -> list[Triple]:
    """All triples of a file; its name says which format it has (`x.nt`, `x.nt.gz`, `x.ttl`, ...).

    Raises:
        InvalidRequestError: the file cannot be read, or its name has no known suffix.
        InvalidValueError: it is not of that format; `detail` has file, line and column.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequestError(f"cannot read {path}: {reason}", file=str(path)) from error
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return list(parse_triples(data, suffix.lower(), str(path)))


def parse_triples(data: bytes, suffix: str, name: str) -> Iterator[Triple]:
    """The triples of a text. `suffix` says which format it has, `name` is what messages call it.

    Raises:
        InvalidRequestError, InvalidValueError: see `read_triples`.
    """
    # Imported here: only the work on ontologies needs it.
    from pyoxigraph import RdfFormat, parse

    formats = {
        ".nt": RdfFormat.N_TRIPLES,
        ".ttl": RdfFormat.TURTLE,
        ".rdf": RdfFormat.RDF_XML,
        ".owl": RdfFormat.RDF_XML,
        ".xml": RdfFormat.RDF_XML,
    }
    if suffix not in formats:
        known = ", ".join(_SUFFIXES)
        raise InvalidRequestError(f"{name}: the name must end with one of {known}, which .gz may follow")
    try:
        for triple in parse(data, format=formats[suffix], lenient=True):
            terms = (str(triple.subject), str(triple.predicate), str(triple.object))
            for term in terms:
                _check(term, name)
            yield terms
    except SyntaxError as error:
        where = f", line {error.lineno}, column {error.offset}" if error.lineno else ""
        # The parser's message begins with the place, and ends with it once more.
        reason = error.msg.partition(": ")[2] or error.msg
        raise InvalidValueError(
            f"{name}{where}: {reason}", file=name, line=error.lineno, column=error.offset
        ) from None


def _check(term: str, name: str) -> None:
    """Refuse a term with a tab or a line break (only an invalid IRI can hold one), or one that is itself a triple."""
    if any(c in term for c in "\t\n\r"):
        raise InvalidValueError(f"{name}: the term {shown(term)} contains a tab or a line break", file=name)
    if term.startswith("<<"):
        raise InvalidValueError(f"{name}: a triple inside a triple is not supported: {term}", file=name)
