"""An update over a copy of a store, as rows that go and rows that come.

In: a store that is this update's own, and the text. Out: the tuples of the relation that the update deletes and those
that it inserts, as the net effect of all its operations in order; a tuple is in one of the two at most. Always: each
operation sees what those before it did, and its pattern is evaluated once, for what it deletes and what it inserts
together (SPARQL 1.1 Update, section 3.1.3): both are collected in graphs of their own, which the data never has.

A triple that is deleted means every tuple that is seen as this triple. The texts of INSERT DATA and DELETE DATA are
read by the parser of Turtle, whose syntax they have, because it keeps `"01"^^xsd:integer` as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyoxigraph import NamedNode, Quad, RdfFormat, Store, parse

from engine.errors import BudgetExceededError, EvaluationError, SparqlSyntaxError
from service.sparql.answers import evaluated
from service.sparql.graphs import operations
from service.sparql.store import TripleStore, plain_quad, quads_of, row_of
from service.sparql.syntax import Operation, last_token
from service.sparql.terms import Row, stored_row

_GONE, _COME = NamedNode("urn:x-zedlog:gone"), NamedNode("urn:x-zedlog:come")


@dataclass(slots=True)
class Net:
    """The effect so far. come: by the triple as which the tuples are seen."""

    gone: dict[Row, None] = field(default_factory=dict)
    come: dict[Row, dict[Row, None]] = field(default_factory=dict)

    def delete(self, triple: Row, rows: Iterable[Row]) -> None:
        self.come.pop(triple, None)
        self.gone.update(dict.fromkeys(rows))

    def insert(self, triple: Row, row: Row) -> None:
        self.gone.pop(row, None)
        self.come.setdefault(triple, {})[row] = None

    def __len__(self) -> int:
        return len(self.gone) + len(self.come)


def net_effect(store: TripleStore, text: str, most: int) -> tuple[list[Row], list[Row]]:
    """The tuples that go, and the tuples that come. The store is not to be used any more. most: triples that an update
    may delete and insert.

    Raises:
        SparqlSyntaxError, SparqlUnsupportedError, EvaluationError: the text is not an update that can be done here.
        BudgetExceededError: it changes too many triples.
    """
    found = operations(text)
    # Also where it could be taken apart: the grammar is checked as a whole.
    evaluated(lambda: Store().update(text), text)
    if found is None:
        raise SparqlSyntaxError("this is not an update of SPARQL 1.1")
    net = Net()
    for operation in found:
        gone, come = _effect(store, operation, text)
        for quad in gone:
            # What is not there when the operation begins is not deleted.
            if quad in store.store:
                triple = row_of(quad)
                net.delete(triple, store.rows(triple))
        for quad in come:
            row = row_of(quad)
            seen = stored_row(row)
            if seen is None:
                raise EvaluationError(
                    f"the update would insert something that is not a triple: {' '.join(row)}"
                )
            net.insert(seen, row)
        if len(net) > most:
            raise BudgetExceededError(
                f"the update changes more than {most:,} triples, which is the most for one; divide it",
                budget="triples",
                limit=most,
            )
        if operation is not found[-1]:
            _apply(store, gone, come)
    return list(net.gone), [row for rows in net.come.values() for row in rows]


def _effect(store: TripleStore, operation: Operation, text: str) -> tuple[list[Quad], list[Quad]]:
    """What an operation deletes, as the store has it, and what it inserts, in the default graph."""
    match operation.kind:
        case "insert data":
            return [], _data(operation.prologue, operation.inserts or "", text)
        case "delete data":
            written = _data(operation.prologue, operation.deletes or "", text)
            seen = (stored_row(row_of(quad)) for quad in written)
            return quads_of([triple for triple in seen if triple is not None]), []
        case "clear":
            return list(store.store), []
    graphs = [(_GONE, operation.deletes), (_COME, operation.inserts)]
    target = " ".join(f"GRAPH {graph} {group}" for graph, group in graphs if group is not None)
    rewritten = f"{operation.prologue}INSERT {{ {target} }} WHERE {operation.where}"
    evaluated(lambda: store.store.update(rewritten), text)
    gone, come = (
        list(map(plain_quad, store.store.quads_for_pattern(None, None, None, graph))) for graph, _ in graphs
    )
    for graph, _ in graphs:
        store.store.remove_graph(graph)
    return gone, come


def _data(prologue: str, group: str, text: str) -> list[Quad]:
    inside = group[1:-1]
    last = last_token(group)
    end = "" if last is None or last.text == "." else "\n."

    def read() -> list[Quad]:
        return list(parse(f"{prologue}{inside}{end}", format=RdfFormat.TURTLE, rename_blank_nodes=True))

    try:
        return read()
    except SyntaxError as error:
        # What SPARQL reads and Turtle does not; the place in its message is one of another text.
        reason = str(error).partition(": ")[2] or str(error)
        raise SparqlSyntaxError(f"the data cannot be read: {reason}") from None


def _apply(store: TripleStore, gone: list[Quad], come: list[Quad]) -> None:
    """For the operations that follow."""
    for quad in gone:
        store.store.remove(quad)
        store.variants.pop(row_of(quad), None)
    store.apply([(1, row_of(quad)) for quad in come])
