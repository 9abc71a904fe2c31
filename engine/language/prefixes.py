"""Prefixes: `.prefix rdf: <...>`, and what a prefixed name such as `rdf:type` stands for.

In: the prefixes of a database, and while a text is parsed those that it declares itself. Out: for each prefixed name
the symbol that an import stores for the IRI, in the syntax of N-Triples: `<iri>`. So a prefixed name is only another
way to write a symbol: trees, canonical texts and the ids of rules have the whole IRI, and do not depend on prefixes.
Always: a text may use a prefix only after it has declared it, or if it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lark import Token

from engine.errors import DeclarationError, Span, UnknownPrefixError
from engine.language.constants import write_constant
from engine.language.operators import closest
from engine.language.parts import Fault, PrefixText, between, span_of
from engine.language.schema import ColumnType

Value: TypeAlias = str | int | float | bool
Prefixes: TypeAlias = Mapping[str, str]
"""IRIs by the names of prefixes, without the colon."""

NO_PREFIXES: Final[Prefixes] = {}
WELL_KNOWN: Final[Prefixes] = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""What a message proposes; nothing is declared but by a text."""

_NAME = re.compile(r":[\w%]")
_LOCAL = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})(?:[\w-]|\.(?=[\w%-])|%[0-9A-Fa-f]{2})*")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/')
_DATATYPE = '"^^<'


class AnyPrefix(dict[str, str]):
    """Takes every prefix for declared: for a look at a text before the database that it is meant for is known."""

    def __missing__(self, name: str) -> str:
        return f"prefix:{name}/"

    def __contains__(self, name: object) -> bool:
        return True


ANY_PREFIX: Final[Prefixes] = AnyPrefix()


def may_abbreviate(text: str) -> bool:
    """Whether the text may hold prefixed names or mappings; False is certain."""
    return may_use_prefixes(text) or ".rdf" in text


def may_use_prefixes(text: str) -> bool:
    """Whether the text may hold prefixed names; False is certain."""
    return _NAME.search(text) is not None


@dataclass(slots=True)
class Reading:
    """The prefixes of a text while it is parsed. used: where prefixed names and mappings stand, and what they
    abbreviate, as text."""

    given: Prefixes
    declared: dict[str, str] = field(default_factory=dict)
    used: list[tuple[int, int, str]] = field(default_factory=list)


_READING: ContextVar[Reading] = ContextVar("prefixes")


@contextmanager
def reading(given: Prefixes) -> Iterator[Reading]:
    """While this lasts, the parser knows the prefixes `given`, and those that the text declares."""
    known = Reading(given)
    token = _READING.set(known)
    try:
        yield known
    finally:
        _READING.reset(token)


def declare(word: Token, name: Token, iri: Token) -> PrefixText:
    """A `.prefix` directive, from which on the parsed text can use the prefix.

    Raises:
        Fault: the IRI is relative, or the text has declared the prefix otherwise.
    """
    label, whole = name[:-1], iri[1:-1]
    if not _ABSOLUTE.match(whole):
        raise Fault(
            DeclarationError,
            f"a prefix stands for the beginning of an absolute IRI, not for {iri}",
            span_of(iri),
        )
    declared = _READING.get().declared
    if declared.setdefault(label, whole) != whole:
        message = f"the prefix {label}: is declared twice in this text, before as <{declared[label]}>"
        raise Fault(DeclarationError, message, span_of(name))
    return PrefixText(label, whole, between(word, iri))


def symbol_of(token: Token) -> str:
    """The symbol that a prefixed name stands for.

    Raises:
        Fault: there is no such prefix.
    """
    known = _READING.get()
    label, _, local = token.partition(":")
    iri = known.declared.get(label)
    if iri is None and label in known.given:
        iri = known.given[label]
    if iri is None:
        raise Fault(UnknownPrefixError, _unknown(label, (*known.declared, *known.given)), _label_span(token))
    symbol = f"<{iri}{local}>"
    abbreviates(token, token, write_constant(symbol, ColumnType.SYMBOL))
    return symbol


def abbreviates(first: Token, last: Token, text: str) -> None:
    """What stands from one token to another is short for `text`."""
    _READING.get().used.append((first.start_pos or 0, last.end_pos or 0, text))


def _unknown(label: str, known: Iterable[str]) -> str:
    message = f"the prefix {label}: is not declared"
    near = closest(label, list(known))
    if near:
        return f"{message}; did you mean {near}:?"
    iri = WELL_KNOWN.get(label, "http://...")
    return f"{message}; declare it with .prefix {label}: <{iri}>"


def _label_span(token: Token) -> Span:
    span = span_of(token)
    return Span(span.line, span.column, span.line, span.column + token.index(":") + 1)


def format_prefix(label: str, iri: str) -> str:
    """The prefix as a directive that parses to the same."""
    return f".prefix {label}: <{iri}>"


def is_prefix(line: str) -> bool:
    """Whether a line of declarations, as `format_prefix` and `format_declaration` write them, is that of a prefix."""
    return line.startswith(".prefix ")


def label_of(name: str) -> str | None:
    """The label, if the name is that of a prefix, which ends in a colon; else None: it is that of a relation."""
    return name[:-1] if name.endswith(":") else None


class Shortener:
    """Writes IRIs in symbols as prefixed names: `<http://.../ns#type>` as `rdf:type`, and the type of a literal
    (`"1"^^xsd:integer`). Of several prefixes that fit, the longest is taken. For people: a symbol that looks like a
    prefixed name already stays as it is, so the result cannot be read back with certainty.
    """

    def __init__(self, prefixes: Prefixes) -> None:
        self._by_iri: dict[str, str] = {}
        for label, iri in prefixes.items():
            self._by_iri.setdefault(iri, label)
        self._lengths = sorted({len(iri) for iri in self._by_iri}, reverse=True)

    def symbol(self, text: str) -> str:
        """The symbol, shortened if it can be."""
        if text.startswith("<") and text.endswith(">"):
            return self._iri(text[1:-1]) or text
        if text.startswith('"') and text.endswith(">") and _DATATYPE in text:
            value, _, datatype = text.rpartition(_DATATYPE)
            short = self._iri(datatype[:-1])
            return text if short is None else f'{value}"^^{short}'
        return text

    def text(self, text: str) -> str:
        """Program text in which symbols that are IRIs stand as prefixed names. It says the same while the prefixes are
        declared.
        """
        return _STRING_OR_COMMENT.sub(self._literal, text)

    def _literal(self, found: re.Match[str]) -> str:
        literal = found[0]
        iri = literal.startswith('"<') and literal.endswith('>"') and "\\" not in literal
        short = self._iri(literal[2:-2]) if iri else None
        # `<:` is a token of its own.
        follows = found.string[: found.start()].endswith("<")
        return literal if short is None or (follows and short.startswith(":")) else short

    def row(self, row: Iterable[Value]) -> tuple[Value, ...]:
        """The values of a tuple, with shortened symbols."""
        return tuple(self.symbol(value) if isinstance(value, str) else value for value in row)

    def _iri(self, iri: str) -> str | None:
        for length in self._lengths:
            label = self._by_iri.get(iri[:length])
            if label is not None and _LOCAL.fullmatch(iri, length):
                return f"{label}:{iri[length:]}"
        return None
