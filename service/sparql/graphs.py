"""Names of the default graph, and queries and updates in which it is named.

There is one graph, and it has no name; but clients call it by one (rdflib's Dataset writes
`GRAPH <urn:x-rdflib:default>` around what it sends), and as with Jena, such a name means the default graph wherever one
graph is chosen: in `GRAPH`, `FROM`, `WITH` and `USING`. It is still no named graph: `GRAPH ?g` does not find it.

In: a text. Out: the text that means the same without these names. Always: what is left stands where it stood, so that a
place in the one is the same place in the other. A text that is not of the grammar may become one that is, so whoever
uses this checks the text as it was, too. Why it means the same: a pattern outside of `GRAPH` is matched with the
default graph; and inside of `GRAPH` with another name or a variable nothing is found, as there are no other graphs.
"""

from __future__ import annotations

import re
from typing import Final

from pyoxigraph import NamedNode, RdfFormat, parse

from service.sparql import syntax
from service.sparql.syntax import Operation, tokens

DEFAULT_GRAPHS: Final = (
    "urn:x-zedlog:default",
    "urn:x-arq:DefaultGraph",
    "urn:x-rdflib:default",
    "http://www.openrdf.org/schema/sesame#nil",
)
"""Names by which clients call the graph without a name."""

_CHOOSING: Final = ("FROM", "WITH", "USING")
# A long text is looked at word by word only where this is needed.
_MAY_CHOOSE: Final = re.compile(r"\b(?:GRAPH|FROM|WITH|USING)\b", re.IGNORECASE)


def without_default(text: str) -> str:
    """See the module."""
    return _Writer(text).written() if _MAY_CHOOSE.search(text) else text


def check_query(text: str) -> None:
    """See `syntax.check_query`; the default graph may be named."""
    syntax.check_query(without_default(text), text)


def operations(text: str) -> list[Operation] | None:
    """See `syntax.operations`; the default graph may be named."""
    return syntax.operations(without_default(text), text)


class _Writer:
    """open: for each brace that is open, whether it is of triples that are written (not of a pattern), and whether it
    is left out. separate: whether triples that begin now need a full stop before them. known: for names as they are
    written, whether they mean the default graph after the declarations so far."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._out = list(text)
        self._open: list[tuple[bool, bool]] = []
        self._separate = False
        self._prologue = ""
        self._known: dict[str, bool] = {}

    def written(self) -> str:
        at = 0
        while at < len(self._tokens):
            at = self._after(at)
        return "".join(self._out)

    def _after(self, at: int) -> int:
        """Deal with the token there, and say where to go on."""
        token = self._tokens[at]
        if token.is_word("PREFIX", "BASE"):
            last = at + (3 if token.is_word("PREFIX") else 2)
            self._prologue += " ".join(one.text for one in self._tokens[at:last]) + "\n"
            self._known.clear()
            return last
        if not self._open and token.is_word(*_CHOOSING) and self._is_default(at + 1):
            self._drop(at, at + 1)
            return at + 2
        if (
            self._open
            and token.is_word("GRAPH")
            and self._is_default(at + 1)
            and self._text_at(at + 2) == "{"
        ):
            self._drop(at, at + 1)
            quads = self._open[-1][0]
            if not quads:
                return at + 2
            self._drop(at + 2, stop=self._separate)
            self._open.append((True, True))
            self._separate = False
            return at + 3
        if token.text == "{":
            self._open.append((self._open[-1][0] if self._open else self._begins_quads(at), False))
        elif token.text == "}" and self._open and self._open.pop()[1]:
            self._drop(at, stop=self._separate)
            self._separate = False
            if self._text_at(at + 1) == ".":
                self._drop(at + 1)
                return at + 2
            return at + 1
        self._separate = token.text not in ("{", ".")
        return at + 1

    def _text_at(self, at: int) -> str:
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _drop(self, *which: int, stop: bool = False) -> None:
        """Leave tokens out; with stop, a full stop takes the place of the last one."""
        for token in (self._tokens[one] for one in which):
            self._out[token.start : token.end] = " " * len(token.text)
        if stop:
            self._out[self._tokens[which[-1]].start] = "."

    def _begins_quads(self, at: int) -> bool:
        """Whether the outermost brace there begins triples that are inserted or deleted."""
        before = self._tokens[max(at - 2, 0) : at]
        if not before:
            return False
        if before[-1].is_word("WHERE"):
            return before[0].is_word("DELETE")
        return before[-1].is_word("INSERT", "DELETE", "DATA")

    def _is_default(self, at: int) -> bool:
        """Whether the token there is a name of the default graph."""
        if at >= len(self._tokens) or self._tokens[at].kind not in ("iri", "name"):
            return False
        written = self._tokens[at].text
        known = self._known.get(written)
        if known is None:
            known = self._known[written] = _named(self._prologue, written) in DEFAULT_GRAPHS
        return known


def _named(prologue: str, written: str) -> str | None:
    """The IRI that is written as `<...>` or as a prefixed name; None if it is none."""
    try:
        # Turtle has the same declarations and the same rules for names.
        (quad,) = parse(f"{prologue}<urn:s> <urn:p> {written} .", format=RdfFormat.TURTLE)
    except (SyntaxError, ValueError):
        return None
    return quad.object.value if isinstance(quad.object, NamedNode) else None
