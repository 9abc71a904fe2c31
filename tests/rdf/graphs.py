"""Random graphs of RDF with all that is hard to write, and their comparison by rdflib."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import rdflib
from rdflib.compare import isomorphic, to_canonical_graph

# Otherwise rdflib would write "01" as "1".
rdflib.NORMALIZE_LITERALS = False
XSD = rdflib.XSD
EX = rdflib.Namespace("http://example.org/ns#")
NAMES = ["a", "b", "größe", "with-hyphen", "with.dot", "x1", "é", "日本"]
TEXTS = [
    "",
    " ",
    "a",
    "a\nb",
    "tab\there",
    '"quoted"',
    "back\\slash",
    "'",
    "é\U0001f600",
    "<x> & y",
    "]]>",
    "a ",
    "#c",
]
TYPED = [
    ("1", XSD.integer),
    ("1.50", XSD.decimal),
    ("true", XSD.boolean),
    ("2026-11-29", XSD.date),
    ("2026-11-29T20:00:00+01:00", XSD.dateTime),
    ("x", EX.ownType),
    (" \n<y>", EX.ownType),
]
# What rdflib itself reads or writes otherwise in some formats: in another way, or even as another type.
ODD = [
    ("01", XSD.integer),
    ("-0", XSD.integer),
    ("not a number", XSD.integer),
    ("1.0E3", XSD.double),
    ("1e+03", XSD.double),
    ("NaN", XSD.double),
    ("1", XSD.boolean),
]
TAGS = ["en", "de-at", "zh-hans-cn"]


def term(rng: random.Random, blank: list[rdflib.BNode], typed: list[Any]) -> Any:
    choice = rng.randrange(10)
    if choice < 3:
        return EX[rng.choice(NAMES)]
    if choice < 5:
        return rng.choice(blank)
    if choice < 7:
        return rdflib.Literal(rng.choice(TEXTS), lang=rng.choice([None, *TAGS]))
    text, kind = rng.choice(typed)
    return rdflib.Literal(text, datatype=kind)


def graph(rng: random.Random, size: int = 120, *, odd: bool = False) -> rdflib.Graph:
    typed = TYPED + ODD if odd else TYPED
    made = rdflib.Graph()
    blank = [rdflib.BNode() for _ in range(6)]
    for text in TEXTS:
        made.add((EX.all, EX.text, rdflib.Literal(text)))
    for text, kind in typed:
        made.add((EX.all, EX.typed, rdflib.Literal(text, datatype=kind)))
    for tag in TAGS:
        made.add((EX.all, EX.tagged, rdflib.Literal("x", lang=tag)))
    for _ in range(size):
        subject = rng.choice([EX[rng.choice(NAMES)], rng.choice(blank)])
        made.add((subject, EX[rng.choice(NAMES[:6])], term(rng, blank, typed)))
    # A list and a node without a label, as Turtle and JSON-LD write them.
    rdflib.collection.Collection(made, rdflib.BNode(), [EX.a, rdflib.Literal("in a list"), rdflib.BNode()])
    return made


def of_lines(lines: Iterable[bytes]) -> rdflib.Graph:
    """The graph that lines say, read by rdflib's own parser of N-Triples."""
    made = rdflib.Graph()
    made.parse(data=b"".join(line + b"\n" for line in lines), format="nt")
    return made


def of_tuples(rows: Iterable[tuple[str, ...]]) -> rdflib.Graph:
    """The graph that symbols say."""
    return of_lines(f"{s} {p} {o} .".encode() for s, p, o in rows)


def assert_same(one: rdflib.Graph, other: rdflib.Graph, why: str) -> None:
    if isomorphic(one, other):
        return
    first, second = ({*to_canonical_graph(graph)} for graph in (one, other))
    raise AssertionError(f"{why}: only in the first {first - second}, only in the second {second - first}")
