"""The outline of a query or an update: enough of the grammar to say what cannot be done here, and to take an update
apart into its operations. Everything else of the grammar is Oxigraph's.

Tokens are those of SPARQL 1.1, section 19.8, where they matter: words inside of strings, IRIs, comments, variables and
prefixed names are not keywords, and braces inside of them do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from engine.errors import Span, SparqlSyntaxError, SparqlUnsupportedError

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\r\n]*)
    |(?P<iri><[^<>"{}|^`\x00-\x20]*>)
    |(?P<text>\"{3}(?:\"{0,2}(?:[^"\\]|\\.))*\"{3}|'{3}(?:'{0,2}(?:[^'\\]|\\.))*'{3}
        |"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
    |(?P<name>(?:[^\W\d_][\w.\-·]*|_)?:(?:[\w:.\-·]|%[0-9A-Fa-f]{2}|\\.)*(?<!\.))
    |(?P<variable>[?$]\w+)
    |(?P<tag>@[A-Za-z\-0-9]+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)

_NONE: Final = "there are no named graphs here"
_ELSEWHERE: Final = {
    "LOAD": "it would fetch a document; import the file with 'zedlog import', or POST /v1/imports",
    "CREATE": _NONE,
    "ADD": _NONE,
    "MOVE": _NONE,
    "COPY": _NONE,
    "WITH": f"{_NONE}; leave it out to change the default graph",
    "USING": f"{_NONE}; leave it out to read the default graph",
}

Kind = Literal["insert data", "delete data", "modify", "clear"]


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an update. prologue: the prefixes that hold for it. The rest are groups with their braces; None
    for one that it does not have."""

    kind: Kind
    prologue: str = ""
    deletes: str | None = None
    inserts: str | None = None
    where: str | None = None


def tokens(text: str) -> list[Token]:
    """All tokens but white space and comments."""
    found = _TOKEN.finditer(text)
    return [Token(m.lastgroup or "", m[0], m.start()) for m in found if m.lastgroup != "space"]


def check_query(text: str, written: str | None = None) -> None:
    """Raise SparqlUnsupportedError for what a query may ask for elsewhere, but not here. written: the text that the
    message shows, if it is another one, with the same places."""
    written = text if written is None else written
    for token in tokens(text):
        if token.is_word("SERVICE"):
            raise _unsupported(
                written, token, "SERVICE", "queries are not sent to other services; ask them separately"
            )
        if token.is_word("FROM"):
            reason = "there is one graph, the relation triple, and no other ones to choose from; leave it out"
            raise _unsupported(written, token, "FROM", reason)


def operations(text: str, written: str | None = None) -> list[Operation] | None:
    """The operations of an update, in order; None if it has another form than an update of SPARQL 1.1. written: the
    text that messages show, if it is another one, with the same places.

    Raises:
        SparqlUnsupportedError: there is an operation that has no meaning here.
    """
    found, written = tokens(text), text if written is None else written
    for token in found:
        if token.is_word("SERVICE"):
            raise _unsupported(written, token, "SERVICE", "updates do not ask other services")
    try:
        return list(_Reader(text, written, found).operations())
    except _OtherForm:
        return None


class _OtherForm(Exception):
    pass


class _Reader:
    def __init__(self, text: str, written: str, found: list[Token]) -> None:
        self._text, self._written, self._tokens, self._at = text, written, found, 0
        self._prologue: list[str] = []

    def operations(self) -> Iterator[Operation]:
        while True:
            self._declarations()
            if self._next() is None:
                return
            yield self._operation()
            after = self._next()
            if after is None:
                return
            if after.text != ";":
                raise _OtherForm
            self._at += 1

    def _next(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, *words: str) -> bool:
        token = self._next()
        if token is None or not token.is_word(*words):
            return False
        self._at += 1
        return True

    def _declarations(self) -> None:
        while (token := self._next()) is not None and token.is_word("PREFIX", "BASE"):
            last = self._at + (2 if token.is_word("PREFIX") else 1)
            if last >= len(self._tokens) or self._tokens[last].kind != "iri":
                raise _OtherForm
            self._prologue.append(self._text[token.start : self._tokens[last].end])
            self._at = last + 1

    def _operation(self) -> Operation:
        prologue = "".join(f"{line}\n" for line in self._prologue)
        token = self._next()
        assert token is not None, "the caller has looked"
        word = token.text.upper() if token.kind == "word" else ""
        if word in _ELSEWHERE:
            raise _unsupported(self._written, token, word, _ELSEWHERE[word])
        if self._take("CLEAR", "DROP"):
            return self._clearing(word, prologue)
        if self._take("INSERT"):
            if self._take("DATA"):
                return Operation("insert data", prologue, inserts=self._group(False))
            return Operation("modify", prologue, inserts=self._group(False), where=self._where())
        if not self._take("DELETE"):
            raise _OtherForm
        if self._take("DATA"):
            return Operation("delete data", prologue, deletes=self._group(False))
        if self._take("WHERE"):
            pattern = self._group(False)
            return Operation("modify", prologue, deletes=pattern, where=pattern)
        deletes = self._group(False)
        inserts = self._group(False) if self._take("INSERT") else None
        return Operation("modify", prologue, deletes, inserts, self._where())

    def _clearing(self, word: str, prologue: str) -> Operation:
        self._take("SILENT")
        if not self._take("DEFAULT", "ALL"):
            token = self._next()
            if token is None or not token.is_word("GRAPH", "NAMED"):
                raise _OtherForm
            raise _unsupported(self._written, token, f"{word} {token.text.upper()}", _NONE)
        return Operation("clear", prologue)

    def _where(self) -> str:
        token = self._next()
        if token is not None and token.is_word("USING"):
            raise _unsupported(self._written, token, "USING", _ELSEWHERE["USING"])
        if not self._take("WHERE"):
            raise _OtherForm
        return self._group(True)

    def _group(self, graphs: bool) -> str:
        """The group that begins here. graphs: whether it may ask for named graphs, of which there are none."""
        first, depth = self._next(), 0
        while (token := self._next()) is not None:
            self._at += 1
            depth += (token.text == "{") - (token.text == "}")
            if not graphs and token.is_word("GRAPH"):
                reason = f"{_NONE}; what is outside of GRAPH is the default graph"
                raise _unsupported(self._written, token, "GRAPH", reason)
            if depth == 0:
                break
        if first is None or token is None or first.text != "{":
            raise _OtherForm
        return self._text[first.start : token.end]


def last_token(group: str) -> Token | None:
    """The last token before the closing brace of a group."""
    found = tokens(group)[1:-1]
    return found[-1] if found else None


def span_at(text: str, start: int, width: int) -> Span:
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return Span(line, column, line, column + width)


def _unsupported(text: str, token: Token, what: str, reason: str) -> SparqlUnsupportedError:
    return SparqlUnsupportedError(
        f"{what} is not supported: {reason}", text=text, span=span_at(text, token.start, len(token.text))
    )


_PLACE: Final = re.compile(r"^error at (\d+):(\d+): (.*)", re.DOTALL)
_MOST_EXPECTED: Final = 160


def syntax_error(text: str, told: str) -> SparqlSyntaxError:
    """The error for a text that Oxigraph cannot parse, from its message."""
    found = _PLACE.match(told)
    if found is None:
        return SparqlSyntaxError(f"this is not SPARQL: {told}")
    line, column, expected = int(found[1]), int(found[2]), " ".join(found[3].split())
    if len(expected) > _MOST_EXPECTED:
        # A list of all that the grammar allows there helps nobody.
        expected = "this cannot stand here"
    return SparqlSyntaxError(
        f"syntax error: {expected}", text=text, span=Span(line, column, line, column + 1)
    )
