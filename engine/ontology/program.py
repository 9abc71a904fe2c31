"""From an ontology to a whole program: declarations, rules under their axioms, and the axioms that are not covered.

In: triples. Out: program text over `triple(s: symbol, p: symbol, o: symbol)`, whose terms are in the syntax of
N-Triples as triples.py reads them. The same triples always give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.ontology.expressions import Graph
from engine.ontology.rules import Compiled, compile_axioms
from engine.ontology.triples import Triple

_HEADER = """\
// OWL 2 RL rules of {source}: {axioms}, {clauses}.
// Written by `zedlog owl`. Terms are as N-Triples writes them: <iri>, "literal"@en, _:blank.
//
// In:  triple(s, p, o)   the data; the ontology's own triples may be among them
// Out: triple            the same triples and all that follow from them
.decl triple(s: symbol, p: symbol, o: symbol)
.input triple
.output triple
"""
_BREAKS = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


def compile_ontology(triples: Iterable[Triple], source: str) -> tuple[str, Compiled]:
    """The program's text, and what it was compiled from. `source` names the ontology in the first comment.

    Raises:
        InvalidRequestError: a list or an expression in the ontology is broken.
    """
    compiled = compile_axioms(Graph(triples))
    clauses = sum(len(texts) for _, texts in compiled.clauses)
    header = _HEADER.format(
        source=_comment(source),
        axioms=_count(len(compiled.clauses), "axiom"),
        clauses=_count(clauses, "rule"),
    )
    return header + "".join(_sections(compiled)), compiled


def fact_lines(triples: Iterable[Triple]) -> Iterator[str]:
    """The distinct triples as lines of a fact file."""
    return (f"{s}\t{p}\t{o}\n" for s, p, o in dict.fromkeys(triples))


def _sections(compiled: Compiled) -> Iterator[str]:
    for axiom, clauses in compiled.clauses:
        yield f"\n// {_comment(axiom)}\n" + "".join(f"{clause}\n" for clause in clauses)
    if compiled.not_covered:
        yield "\n// Not covered:\n"
        yield from (f"// - {_comment(axiom)}\n" for axiom in compiled.not_covered)


def _comment(text: str) -> str:
    """The axiom as text of one line: a line break in a term would end the comment."""
    return _BREAKS.sub(" ", text)


def _count(number: int, one: str) -> str:
    return f"1 {one}" if number == 1 else f"{number} {one}s"
