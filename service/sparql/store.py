"""The store of Oxigraph that stands for the relation at one epoch.

In: the relation's tuples, then what each epoch changes. Always: a triple is in the store exactly if at least one tuple
is in the relation that a store gives back as this triple (terms.py). Where that is not the tuple of the same texts
alone, `variants` has the tuples, so that a triple stays until the last of them is gone.

Cost: 8 microseconds a triple to fill it, 25 a change. What a store has removed is freed only with the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyoxigraph import DefaultGraph, Quad, RdfFormat, Store, parse

from service.sparql.terms import Row, stored_row

Change = tuple[int, Row]
"""+1 or -1, and a tuple that came or went."""


class TripleStore:
    """See the module. skipped: tuples of the relation that are not triples of RDF."""

    def __init__(self) -> None:
        self.store = Store()
        self.skipped = 0
        self.variants: dict[Row, set[Row]] = {}
        self._count = 0

    def load(self, plain: bytes, blank: bytes) -> None:
        """Add the lines that lines.py makes of tuples. The other tuples come as changes, after all lines."""
        self.store.bulk_load(plain, format=RdfFormat.N_TRIPLES, lenient=True)
        # A bulk loader gives blank nodes new names.
        self.store.bulk_extend(parse(blank, format=RdfFormat.N_TRIPLES, lenient=True))
        # Oxigraph would count them each time.
        self._count = len(self.store)

    def __len__(self) -> int:
        return self._count

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow what an epoch changed: tuples that were there go, and tuples that were not there come."""
        seen = [stored_row(row) for _, row in changes]
        triples = [triple for triple in seen if triple is not None]
        quads = iter(quads_of(triples))
        for (sign, row), triple in zip(changes, seen, strict=True):
            if triple is None:
                self.skipped += sign
            elif sign > 0:
                self._add(row, triple, next(quads))
            else:
                self._remove(row, triple, next(quads))

    def rows(self, triple: Row) -> set[Row]:
        """The tuples that may be in the relation as this triple."""
        return self.variants.get(triple, set()) | {triple}

    def _add(self, row: Row, triple: Row, quad: Quad) -> None:
        known, there = self.variants.get(triple), quad in self.store
        if known is None and row != triple:
            known = self.variants[triple] = {triple} if there else set()
        if known is not None:
            known.add(row)
        if not there:
            self.store.add(quad)
            self._count += 1

    def _remove(self, row: Row, triple: Row, quad: Quad) -> None:
        known = self.variants.get(triple)
        if known is not None:
            known.discard(row)
            if known:
                return
            del self.variants[triple]
        if quad in self.store:
            self.store.remove(quad)
            self._count -= 1


def quads_of(triples: Sequence[Row]) -> list[Quad]:
    """The triples as Oxigraph has them."""
    if not triples:
        return []
    text = "".join([f"{s} {p} {o} .\n" for s, p, o in triples])
    return list(parse(text, format=RdfFormat.N_TRIPLES, lenient=True))


def row_of(quad: Quad) -> Row:
    """The inverse for one of them, whatever its graph."""
    return str(quad.subject), str(quad.predicate), str(quad.object)


def plain_quad(quad: Quad) -> Quad:
    """The same in the default graph."""
    return Quad(quad.subject, quad.predicate, quad.object, DefaultGraph())
