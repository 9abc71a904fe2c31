"""Mappings: `.rdf person(id, name) <http://example.org/person/{id}> a ex:Person; foaf:name name.`

In: the parts of the directive, as the parser reads them. Out: one clause that derives `triple` from the relation, with
a head for each triple:

    triple(rdf_iri("http://example.org/person/{}", id), "<...type>", "<http://example.org/Person>"),
    triple(rdf_iri("http://example.org/person/{}", id), "<...name>", rdf_literal(name)) :- person(id, name).

So a mapping is an abbreviation of rules, as a prefixed name is one of a symbol: from here on nobody knows of it. The
form is Turtle's, with names of columns for literals and R2RML's templates for IRIs.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from lark import Token

from engine.errors import DeclarationError, Span
from engine.language import rdf_terms
from engine.language.canonical import format_literal
from engine.language.expressions import in_range
from engine.language.parts import Clause, Fault, between, join, span_of
from engine.language.prefixes import abbreviates
from engine.language.schema import ColumnType
from engine.language.syntax import Atom, Constant, FunctorCall, Term, Variable

TRIPLE: Final = "triple"
_TYPE: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_COLUMN = re.compile(r"\{([^{}]*)\}")


class Property(NamedTuple):
    """What is said of the subject."""

    predicate: Term
    object: Term


def template(token: Token) -> Term:
    """An IRI in which columns stand in braces. `<{column}>` is the IRI that the column holds.

    Raises:
        Fault: it is relative.
    """
    text, span = token[1:-1], span_of(token)
    columns = [
        Variable(found[1], _inside(span, found.start(1) + 1, found.end(1) + 1))
        for found in _COLUMN.finditer(text)
    ]
    pieces = _COLUMN.sub(rdf_terms.HOLE, text)
    if pieces == rdf_terms.HOLE:
        return FunctorCall(rdf_terms.IRI, (*columns,), span)
    call = FunctorCall(rdf_terms.IRI, (Constant(pieces, ColumnType.SYMBOL, span), *columns), span)
    if rdf_terms.fault(call):
        message = f"a mapping needs absolute IRIs, such as <http://example.org/{{id}}>, not {token}"
        raise Fault(DeclarationError, message, span)
    return call if columns else Constant(f"<{text}>", ColumnType.SYMBOL, span)


def literal(parts: list[Any]) -> FunctorCall:
    """A value, perhaps with a datatype or a language."""
    value = parts[0]
    in_range(value)
    if len(parts) == 1:
        return FunctorCall(rdf_terms.LITERAL, (value,), value.span)
    # Behind `^^` stands the datatype; a language is one token.
    suffix = parts[-1]
    if isinstance(suffix, Token):
        suffix = Constant(suffix.value, ColumnType.SYMBOL, span_of(suffix))
    return FunctorCall(rdf_terms.LITERAL, (value, suffix), join(value.span, suffix.span))


def properties(parts: list[Any]) -> list[Property]:
    """One property for each object."""
    predicate, *objects = parts
    if isinstance(predicate, Token):
        predicate = Constant(_TYPE, ColumnType.SYMBOL, span_of(predicate))
    return [Property(predicate, object_) for object_ in objects]


def clause(parts: list[Any]) -> Clause:
    """The rules for which a mapping is short."""
    word, atom, subject, *lists, dot = parts
    span = between(word, dot)
    heads = [Atom(TRIPLE, (subject, *one), span) for properties in lists for one in properties]
    abbreviates(word, dot, f"{', '.join(map(format_literal, heads))} :- {format_literal(atom)}.")
    return Clause(heads, [[atom]], span)


def _inside(span: Span, start: int, end: int) -> Span:
    """A part of a token that stands in one line."""
    return Span(span.line, span.column + start, span.line, span.column + end)
