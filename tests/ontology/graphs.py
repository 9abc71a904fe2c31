"""What the tests of ontologies share: Turtle in, the closure by `zedlog run`'s own way and by independent reasoners."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

from engine.files.batch import FileRun
from engine.ontology.program import compile_ontology, fact_lines
from engine.ontology.triples import Triple, parse_triples

PREFIXES = """
@prefix : <http://example.org/> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_STRING = "^^<http://www.w3.org/2001/XMLSchema#string>"


def turtle(text: str) -> list[Triple]:
    return list(parse_triples((PREFIXES + text).encode(), ".ttl", "test.ttl"))


def closure(triples: list[Triple]) -> set[Triple]:
    """The triples and all that the program of their axioms derives from them, through files as a user would."""
    text, _ = compile_ontology(triples, "test.ttl")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "triple.facts").write_text("".join(fact_lines(triples)), newline="")
        FileRun.of(text).run(folder, folder, io.BytesIO(), io.BytesIO())
        lines = (folder / "triple.csv").read_text().split("\n")[:-1]
    rows = (line.split("\t") for line in lines)
    return {(s, p, o) for s, p, o in rows}


def owlrl_closure(triples: Iterable[Triple]) -> set[Triple]:
    """The same by owlrl, which applies the rules of the OWL 2 RL profile to the graph as they stand there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import owlrl
        import rdflib

        graph = rdflib.Graph()
        graph.parse(data=_lines(triples), format="nt")
        owlrl.DeductiveClosure(owlrl.OWLRL_Semantics).expand(graph)
        return {(s.n3(), p.n3(), o.n3()) for s, p, o in graph}


def reasonable_closure(triples: Iterable[Triple], folder: Path) -> set[Triple]:
    """The same by reasonable, an OWL 2 RL reasoner in Rust."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import reasonable

        # It reads Turtle only, of which N-Triples is a part.
        path = folder / "input.ttl"
        path.write_text(_lines(triples))
        reasoner = reasonable.PyReasoner()
        reasoner.load_file(str(path))
        return {(_n3(s), _n3(p), _n3(o)) for s, p, o in reasoner.reason()}


def _n3(term: object) -> str:
    # It writes the type of plain strings out.
    return term.n3().removesuffix(_STRING)  # type: ignore[attr-defined, no-any-return]  # a term of rdflib


def _lines(triples: Iterable[Triple]) -> str:
    return "".join(f"{s} {p} {o} .\n" for s, p, o in triples)


def assertions(triples: Iterable[Triple], namespace: str) -> set[Triple]:
    """What is said in words of the namespace: types of its classes, and triples of its properties."""
    start = f"<{namespace}"
    return {(s, p, o) for s, p, o in triples if p.startswith(start) or (p == TYPE and o.startswith(start))}
