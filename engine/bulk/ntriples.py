"""N-Triples and N-Quads in Spark: lines to terms, in native expressions only.

In: a column of lines. Out: subject, predicate and object as symbols, and of a quad the graph, which is empty for the
default graph; null if the line is not a triple. Always: the
terms are written as `zedlog owl` writes them (engine/ontology/triples.py): escapes are resolved where N-Triples has
another way to write the character, `"x"^^xsd:string` is `"x"`, language tags are in lower case. So equal terms are
equal symbols, whoever wrote them.

The grammar is that of RDF 1.1 N-Triples, section 7 (https://www.w3.org/TR/n-triples/), with relative IRIs and the
characters in IRIs that published data sets have. One regular expression a line decides and cuts; character classes of
single characters and possessive loops make it take about two microseconds. A line with an escape or a control character
is not plain, and costs more: its terms are taken apart (`cut`, `normalised`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

_CONTROLS = "".join(f"\\x{c:02x}" for c in range(0x20))
_HEX4 = "[0-9A-Fa-f]{4}"
# A surrogate stands only in a pair, and no character is beyond U+10FFFF.
_PAIR = r"u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
_SCALAR = r"(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[dD][0-7][0-9A-Fa-f]{2})"
_UCHAR = rf"(?:u{_SCALAR}|{_PAIR}|U(?:0000{_SCALAR}|000[1-9A-Fa-f]{_HEX4}|0010{_HEX4}))"
_IRI = rf"<[^{_CONTROLS}<>\\]*+(?:\\{_UCHAR}[^{_CONTROLS}<>\\]*+)*+>"
_PLAIN_IRI = rf"<[^{_CONTROLS}\x7f<>\\]*+>"
_NAME = r"\p{L}\p{N}_:"
_BLANK = rf"_:[{_NAME}][{_NAME}·-]*+(?:\.++[{_NAME}·-]++)*+"
_TEXT = rf"\"[^\"\\\n\r]*+(?:\\(?:[tbnrf\"'\\]|{_UCHAR})[^\"\\\n\r]*+)*+\""
_PLAIN_TEXT = rf"\"[^{_CONTROLS}\x7f\"\\]*+\""
_TAG = r"@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--(?:ltr|rtl))?+"


def _literal(text: str, iri: str) -> str:
    return rf"{text}(?:{_TAG}|\^\^{iri})?+"


def _line(text: str, iri: str, *, quad: bool = False) -> str:
    space = r"[ \t]*+"
    graph = rf"(?:({iri}|{_BLANK}){space})?+" if quad else ""
    subject, object_ = rf"({iri}|{_BLANK})", rf"({iri}|{_BLANK}|{_literal(text, iri)})"
    # To the very end: $ would pass over a line separator there, which would stay behind the object.
    return rf"^{space}{subject}{space}({iri}){space}{object_}{space}{graph}\.{space}(?:#.*+)?\z"


_LITERAL = _literal(_TEXT, _IRI)
_LINE: Final = _line(_TEXT, _IRI)
_PLAIN_LINE: Final = _line(_PLAIN_TEXT, _PLAIN_IRI)
_QUAD: Final = _line(_TEXT, _IRI, quad=True)
_PLAIN_QUAD: Final = _line(_PLAIN_TEXT, _PLAIN_IRI, quad=True)
TERM: Final = rf"^(?:{_IRI}|{_BLANK}|{_LITERAL})\z"
NODE: Final = rf"^(?:{_IRI}|{_BLANK})\z"
IRI: Final = rf"^{_IRI}\z"
"""The terms that may be an object, a subject and a predicate."""

_BLANK_LINE = r"^[ \t]*+(?:#|\z)"
_XSD_STRING = "^^<http://www.w3.org/2001/XMLSchema#string>"
# Stands in no triple but in a comment behind it, so it says that a line was one, and where its terms end.
_MARK = "\x01"
_TOKEN = rf"(?s)\\{_PAIR}|\\u{_HEX4}|\\U[0-9A-Fa-f]{{8}}|\\.|[{_CONTROLS}\x7f]|[^{_CONTROLS}\x7f\\]++"
_WRITTEN = {
    **{chr(code): f"\\u{code:04X}" for code in (*range(0x20), 0x7F)},
    "\t": "\\t",
    "\b": "\\b",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
}
"""Characters that a literal holds as escapes."""


def is_blank(line: Column) -> Column:
    """Whether a line holds nothing but white space or a comment."""
    return line.rlike(_BLANK_LINE)


def marked(line: Column, *, quads: bool = False) -> Column:
    """A plain triple (without escapes and control characters) with marks between its terms; any other line as it is.
    quads: a graph may follow the object.
    """
    terms = f"$1{_MARK}$2{_MARK}$3"
    if quads:
        return F.regexp_replace(line, _PLAIN_QUAD, f"{terms}{_MARK}$4")
    return F.regexp_replace(line, _PLAIN_LINE, terms)


def is_plain(line: str, marked: str) -> str:
    """SQL: whether a line is a plain triple. line, marked: columns, the second of what `marked` makes of the first."""
    # A triple is never left as it was, for a mark stands where it has white space or `<`; and nothing else is changed
    # but bytes that are not UTF-8.
    return f"({marked} != {line} AND is_valid_utf8({line}))"


def plain_terms(marked: str) -> str:
    """SQL: array(subject, predicate, object), of a quad also the graph, of a plain triple. marked: a column of what
    `marked` makes of it.
    """
    return f"split({marked}, '{_MARK}', -1)"


def cut(line: Column, *, quads: bool = False) -> Column:
    """array(subject, predicate, object) as they are written in the line, and of a quad the graph; of another size if
    the line is not a triple.
    """
    # All terms but the object hold no tab, so what is left is the object, whatever is in it.
    if quads:
        marked = F.regexp_replace(line, _QUAD, _MARK + "$1\t$2\t$4\t$3")
        found = F.split(F.substring(marked, 2, 2**31 - 1), "\t", 4)
        found = F.array(*(F.get(found, F.lit(i)) for i in (0, 1, 3, 2)))
    else:
        marked = F.regexp_replace(line, _LINE, _MARK + "$1\t$2\t$3")
        found = F.split(F.substring(marked, 2, 2**31 - 1), "\t", 3)
    return F.when(marked.startswith(_MARK) & ~line.startswith(_MARK), found).otherwise(F.array())


def normalised(parts: Column) -> Column:
    """The same array with canonical escapes; null for an IRI with an escape that it must not have."""
    # The default graph has no name.
    return F.transform(parts, lambda term: F.when(term == "", term).otherwise(_normalised(term)))


def terms(parts: Column, *, quads: bool = False) -> list[Column]:
    """Subject, predicate and object of the array that `plain_terms` or `normalised` gives, and of quads the graph; null
    if the line was not a triple.
    """
    subject, predicate, object_ = (F.get(parts, F.lit(i)) for i in range(3))
    # Most objects end in > or a quote, and are what they should be.
    short = object_.endswith('"') | ~object_.startswith('"')
    found = [subject, predicate, F.when(short, object_).otherwise(_canonical_suffix(object_))]
    return [*found, F.get(parts, F.lit(3))] if quads else found


def _canonical_suffix(literal: Column) -> Column:
    tag = F.substring_index(literal, "@", -1)
    kept = F.length(literal) - F.length(tag)
    return (
        F.when(literal.endswith(_XSD_STRING), F.left(literal, F.length(literal) - len(_XSD_STRING)))
        .when(literal.endswith(">"), literal)
        .otherwise(F.concat(F.left(literal, kept), F.lower(tag)))
    )


def _normalised(term: Column) -> Column:
    tokens = F.regexp_extract_all(term, F.lit(_TOKEN), F.lit(0))
    text = F.array_join(F.transform(tokens, _token), "")
    return F.when(text.rlike(rf"^(?:\"|_:|<[^{_CONTROLS}<>\\]*+>\z)"), text)


def _token(token: Column) -> Column:
    """A piece of a term as it is written canonically: an escape, a control character, or other text."""
    always = F.create_map(*(F.lit(text) for pair in _WRITTEN.items() for text in pair))
    written = F.create_map(
        *(F.lit(text) for pair in (*_WRITTEN.items(), ('"', '\\"'), ("\\", "\\\\")) for text in pair)
    )
    units = F.unhex(F.replace(token, F.lit("\\u"), F.lit("")))
    character = F.when(
        token.startswith("\\U"), F.decode(F.unhex(F.substring(token, 3, 8)), "UTF-32")
    ).otherwise(F.decode(units, "UTF-16BE"))
    return (
        F.when(token.rlike(r"^\\[uU]"), F.coalesce(F.try_element_at(written, character), character))
        .when(token == "\\'", F.lit("'"))
        .otherwise(F.coalesce(F.try_element_at(always, token), token))
    )
