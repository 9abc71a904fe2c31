"""Symbols as RDF terms.

A symbol is a term if it is written as the imports write terms: in the canonical form of N-Triples
(engine/ontology/triples.py). So a term has exactly one symbol, and an update can name what a query has shown. A store
of Oxigraph keeps numbers, truth values and times by their values: `"01"^^xsd:integer` is answered as
`"1"^^xsd:integer`. `stored` says how a term comes back; terms that come back alike are *variants* of each other.

Cost: a regular expression for nearly every symbol, some ten microseconds for literals with a value in an unusual form.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

from pyoxigraph import NamedNode, Quad, RdfFormat, Store, Triple, parse

Row: TypeAlias = tuple[str, str, str]
"""Subject, predicate and object as symbols."""

_XSD: Final = r"http://www\.w3\.org/2001/XMLSchema#"
_IRI: Final = r'<[^\x00-\x20<>"{}|^`\\]*>'
_TEXT: Final = r'"(?:[^"\\\x00-\x1f\x7f]|\\[tbnrf"\\])*"'
_DAY: Final = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_PLAIN: Final = re.compile(
    rf"{_IRI}|_:[A-Za-z0-9]+"
    rf"|{_TEXT}(?:@[a-z]{{1,8}}(?:-[a-z0-9]{{1,8}})*)?"
    rf"|{_TEXT}\^\^(?!<{_XSD})(?!<http://www\.w3\.org/1999/02/22-rdf-syntax-ns#){_IRI}"
    rf'|"(?:0|-?[1-9][0-9]{{0,17}})"\^\^<{_XSD}integer>'
    rf'|"-?(?:0|[1-9][0-9]{{0,9}})\.[0-9]{{0,7}}[1-9]"\^\^<{_XSD}decimal>'
    rf'|"(?:true|false)"\^\^<{_XSD}boolean>'
    rf'|"{_DAY}"\^\^<{_XSD}date>'
    rf'|"{_DAY}T{_TIME}Z?"\^\^<{_XSD}dateTime>',
    re.ASCII,
)
"""Terms that are canonical and come back from a store as they are."""


def stored(symbol: str) -> str | None:
    """The term as a store gives it back; None if the symbol is not a term in canonical form."""
    return symbol if _PLAIN.fullmatch(symbol) else _returned(symbol)


def stored_row(row: Row) -> Row | None:
    """The triple as a store gives it back; None if the tuple is not a triple of RDF."""
    subject, predicate, object_ = map(stored, row)
    if subject is None or predicate is None or object_ is None:
        return None
    if subject[0] == '"' or predicate[0] != "<":
        return None
    return subject, predicate, object_


@lru_cache(maxsize=100_000)
def _returned(symbol: str) -> str | None:
    if symbol[:1] not in ("<", "_", '"'):
        return None
    try:
        found = list(parse(f"<urn:s> <urn:p> {symbol} .", format=RdfFormat.N_TRIPLES, lenient=True))
    except (SyntaxError, UnicodeEncodeError):
        return None
    if len(found) != 1 or isinstance(found[0].object, Triple) or str(found[0].object) != symbol:
        return None
    term = found[0].object
    if not isinstance(term, NamedNode):
        scratch = Store()
        scratch.add(Quad(NamedNode("urn:s"), NamedNode("urn:p"), term))
        term = next(iter(scratch)).object
    return str(term)
