"""What the parser builds on the way to the syntax tree, and how it reports a fault.

Clauses and directives as they are written: types are not yet looked up, and a directive may still name several
relations. parser.py and declarations.py turn them into the tree. None of these objects outlives the parse.
"""

from __future__ import annotations

from typing import NamedTuple

from lark import Token

from engine.errors import ProgramError, Span
from engine.language.syntax import Atom, Constant, Literal


class Fault(Exception):
    """A fault in the text, raised where the text is not at hand; parser.py turns it into an `error` that shows the
    line."""

    def __init__(self, error: type[ProgramError], message: str, span: Span) -> None:
        super().__init__(message)
        self.error, self.message, self.span = error, message, span


class Clause(NamedTuple):
    """Facts (`alternatives` is None) or a rule with all its heads and alternatives."""

    heads: list[Atom]
    alternatives: list[list[Literal]] | None
    span: Span


class Names(NamedTuple):
    """Relation names with their places."""

    names: list[Token]


class ColumnText(NamedTuple):
    """A column of a declaration; its type is not yet looked up."""

    name: str
    type: Token
    span: Span


class FixpointText(NamedTuple):
    """`fixpoint(name=value, ...)` after a declaration; nothing is checked yet."""

    word: Token
    settings: list[tuple[Token, Constant]]
    end: Token


class DeclarationText(NamedTuple):
    """`.decl` of several relations with the same columns."""

    names: list[Token]
    columns: list[ColumnText]
    qualifiers: list[Token]
    fixpoints: list[FixpointText]
    span: Span


class TypeText(NamedTuple):
    """`.type name = base | base ...`."""

    name: Token
    bases: list[Token]
    span: Span


class PrefixText(NamedTuple):
    """`.prefix label: <iri>`."""

    label: str
    iri: str
    span: Span


class DirectiveText(NamedTuple):
    """`.input`, `.output` or `.printsize`, of several relations with the same parameters."""

    kind: str
    names: list[Token]
    parameters: list[tuple[str, str]]
    span: Span


class Parameters(NamedTuple):
    """The parameters of a directive, and where they end."""

    parameters: list[tuple[str, str]]
    end: Token


def span_of(token: Token) -> Span:
    """The region of one token."""
    return Span(token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 1)


def between(first: Token, last: Token) -> Span:
    return Span(first.line or 1, first.column or 1, last.end_line or 1, last.end_column or 1)


def join(first: Span, last: Span) -> Span:
    return Span(first.line, first.column, last.end_line, last.end_column)
