"""Documents of RDF to lines of N-Quads.

In: a file in Turtle, TriG, RDF/XML or JSON-LD, plain or compressed. Out: its statements as lines of N-Quads, some ten
thousand at a time, and the first thing that is wrong with it. Always: blank nodes of files with different scopes are
different, and the same file with the same scope gives the same lines, so that what an import added, another can
retract. (Where labels are kept, files share them, and a blank node without a label gets a new one each time.) IRIs are
taken as they are written, including relative ones, which occur in published data sets. About five microseconds a
statement; memory is bounded, but for JSON-LD, which the parser may hold as a whole, and for the labels of blank nodes
that have none in the file, of which each takes about 150 bytes.
"""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.rdf.formats import oxigraph

if TYPE_CHECKING:
    from pyoxigraph import BlankNode, Quad

PORTION = 20_000
# What the parser makes up for a blank node that has no label in the file: 128 random bits that begin with a letter.
_MADE_UP = re.compile("[a-f][0-9a-f]{15,31}")
_REMOTE = "No LoadDocumentCallback"


@dataclass(frozen=True, slots=True)
class Wrong:
    """Why a file cannot be read, and where, if the parser says so."""

    reason: str
    line: int | None
    column: int | None


def scope_of(name: str) -> str:
    """What the blank nodes of a file of that name have in common: `f` and ten hexadecimal digits."""
    return "f" + sha256(name.encode()).hexdigest()[:10]


def statements(path: Path, format_: str, scope: str, *, keep: bool) -> Iterator[list[bytes] | Wrong]:
    """The lines of a file, in portions; the last item is what is wrong, if anything is. keep: the labels of blank
    nodes, as they are written.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read, or is not a complete compressed file.
    """
    from pyoxigraph import RdfFormat, parse, serialize

    with _opener(path)() as file:
        quads = _Relabelled(parse(file, format=oxigraph(format_), lenient=True), scope, keep)
        while True:
            text = serialize(islice(quads, PORTION), format=RdfFormat.N_QUADS)
            assert text is not None, "it is given no file to write to"
            lines = text.split(b"\n")[:-1]
            if lines:
                yield lines
            if quads.wrong is not None:
                yield quads.wrong
            if quads.ended:
                return


def _opener(path: Path) -> Callable[[], Any]:
    if path.suffix == ".gz":
        return partial(gzip.open, path)
    return partial(bz2.open, path) if path.suffix == ".bz2" else partial(path.open, "rb")


class _Relabelled:
    """The quads of a parser, up to its first error, with blank nodes of the file's scope."""

    def __init__(self, quads: Iterator[Quad], scope: str, keep: bool) -> None:
        self._quads, self._scope, self._keep = quads, scope, keep
        self._made_up: dict[str, int] = {}
        self.wrong: Wrong | None = None
        self.ended = False

    def __iter__(self) -> Iterator[Quad]:
        return self

    def __next__(self) -> Quad:
        from pyoxigraph import BlankNode, Quad

        try:
            quad = next(self._quads)
        except StopIteration:
            self.ended = True
            raise
        except SyntaxError as error:
            self.wrong, self.ended = _wrong(error), True
            raise StopIteration from None
        if self._keep:
            return quad
        subject, object_, graph = quad.subject, quad.object, quad.graph_name
        blank = [isinstance(term, BlankNode) for term in (subject, object_, graph)]
        if not any(blank):
            return quad
        return Quad(
            self._named(subject) if isinstance(subject, BlankNode) else subject,
            quad.predicate,
            self._named(object_) if isinstance(object_, BlankNode) else object_,
            self._named(graph) if isinstance(graph, BlankNode) else graph,
        )

    def _named(self, node: BlankNode) -> BlankNode:
        from pyoxigraph import BlankNode

        label = node.value
        if _MADE_UP.fullmatch(label):
            return BlankNode(f"{self._scope}-{self._made_up.setdefault(label, len(self._made_up))}")
        return BlankNode(f"{self._scope}_{label}")


def _wrong(error: SyntaxError) -> Wrong:
    message = error.msg
    if _REMOTE in message:
        return Wrong(
            "its context is at another address, which is not fetched; put it into the file", None, None
        )
    if error.lineno:
        # The parser's message begins with the place.
        message = message.partition(": ")[2] or message
    return Wrong(message, error.lineno, error.offset)
