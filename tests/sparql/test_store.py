"""The store against a set of tuples: what is in it is what the tuples come back as, whatever came and went."""

from __future__ import annotations

import random

import pytest

from service.sparql.store import TripleStore, row_of
from service.sparql.terms import Row, stored_row

XSD = "http://www.w3.org/2001/XMLSchema#"
OBJECTS = [
    *(f'"{n}"^^<{XSD}{kind}>' for n in ("1", "01", "+1", "2") for kind in ("integer", "int", "decimal")),
    '"1"', '"one"@en', "_:b1", "_:b2", "<urn:a>", "not a term",
]  # fmt: skip
ROWS = [(s, p, o) for s in ("<urn:a>", "_:b1", '"1"') for p in ("<urn:p>", "<urn:q>") for o in OBJECTS]


def held(store: TripleStore) -> list[Row]:
    return sorted(row_of(quad) for quad in store.store)


def expected(rows: set[Row]) -> list[Row]:
    return sorted({triple for row in rows if (triple := stored_row(row)) is not None})


@pytest.mark.parametrize("seed", range(20))
def test_random_epochs(seed: int) -> None:
    rng = random.Random(seed)
    store, rows = TripleStore(), set[Row]()
    for _ in range(60):
        came = rng.sample([row for row in ROWS if row not in rows], rng.randint(0, 4))
        went = rng.sample(sorted(rows), min(len(rows), rng.randint(0, 4)))
        changes = [(1, row) for row in came] + [(-1, row) for row in went]
        rng.shuffle(changes)
        store.apply(changes)
        rows = (rows | set(came)) - set(went)
        assert held(store) == expected(rows)
        assert len(store) == len(held(store))
        assert store.skipped == sum(stored_row(row) is None for row in rows)
        for triple in held(store):
            assert {row for row in rows if stored_row(row) == triple} <= store.rows(triple)
    store.apply([(-1, row) for row in rows])
    assert (held(store), store.variants, store.skipped, len(store)) == ([], {}, 0, 0)


def test_blank_nodes_keep_their_names_when_a_store_is_filled() -> None:
    store = TripleStore()
    one = ("<urn:a>", "<urn:p>", f'"1"^^<{XSD}integer>')
    store.load(b"<urn:a> <urn:p> <urn:b> .\n", b"_:x <urn:p> _:y .\n")
    store.load(" ".join((*one, ".")).encode(), b"")
    varied = [("_:x", "<urn:p>", f'"01"^^<{XSD}int>'), (*one[:2], f'"1"^^<{XSD}int>')]
    store.apply([(1, row) for row in varied])
    assert held(store) == [
        one,
        ("<urn:a>", "<urn:p>", "<urn:b>"),
        ("_:x", "<urn:p>", f'"1"^^<{XSD}integer>'),
        ("_:x", "<urn:p>", "_:y"),
    ]
    assert len(store) == 4
    store.apply([(-1, varied[1])])
    assert one in held(store)
    store.apply([(-1, one)])
    assert one not in held(store)
