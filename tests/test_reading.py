"""What a query reads: the answer over it is the answer over everything, and it is as little as the plan says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Value
from engine.database import reading
from engine.database.query import evaluate, prepare
from engine.database.reading import read
from engine.errors import BudgetExceededError
from engine.language.parser import parse_query
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.placement import Budget

SCHEMAS = {
    name: Schema(name, tuple(Column(c, ColumnType.NUMBER) for c in "xyz"[:arity]))
    for name, arity in (("p", 2), ("q", 2), ("r", 3), ("s", 1))
}
Relations = Mapping[str, Codes]


class Memory:
    """Relations of numbers in memory; notes what is read. `guess`: what it adds to its estimates, in turn."""

    def __init__(self, relations: Relations, guess: list[int] | None = None) -> None:
        self._relations = relations
        self._guess = guess or [0]
        self._estimates = 0
        self.reads: list[tuple[str, dict[int, Value], dict[int, list[int]], int]] = []

    def _found(self, relation: str, bound: Mapping[int, Value], among: Mapping[int, Codes]) -> Codes:
        codes = self._relations[relation]
        for column, value in bound.items():
            codes = codes[codes[:, column] == value]
        for column, known in among.items():
            assert (np.diff(known) > 0).all()
            codes = codes[np.isin(codes[:, column], known)]
        return codes

    async def codes(
        self, relation: str, bound: Mapping[int, Value], most: int | None, among: Mapping[int, Codes]
    ) -> Codes:
        found = self._found(relation, bound, among)[:most]
        self.reads.append((relation, dict(bound), {c: k.tolist() for c, k in among.items()}, len(found)))
        return found

    async def estimate(self, relation: str, bound: Mapping[int, Value], among: Mapping[int, Codes]) -> int:
        self._estimates += 1
        most = len(self._relations[relation])
        guess = self._guess[self._estimates % len(self._guess)]
        return min(most, len(self._found(relation, bound, among)) + guess)


def answers(text: str, source: Memory, relations: Relations) -> tuple[Any, Any]:
    """Over what is read, and over everything."""
    query = prepare(parse_query(text), SCHEMAS)
    facts = asyncio.run(read(query, source, None))
    whole = {name: [codes] for name, codes in relations.items() if name in query.reads}
    return tuple(
        sorted(map(tuple, evaluate(query, given, SymbolTable(), Budget()).tolist()))
        for given in (facts, whole)
    )


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known values are always taken into account."""
    monkeypatch.setattr(reading, "SMALL_TUPLES", -1)
    monkeypatch.setattr(reading, "_TUPLES_PER_VALUE", 0)


TEXTS = [
    "p(1, y), q(y, z)",
    "p(x, y), q(y, z), r(z, x, w)",
    "p(x, x), q(x, y)",
    "p(x, y), p(y, x)",
    "p(x, y), p(y, z), !p(x, z)",
    "p(1, y), !q(y, _)",
    "p(x, y), !s(2), !q(x, y)",
    "p(1, x), n = count : { q(x, _) }",
    "p(1, x), n = sum y : { q(x, y), !s(y) }, n > 1",
    "p(1, x), n = count : { q(x, y), r(y, x, _), !p(y, x) }",
    "n = count : { r(_, 2, _) }",
    "m(y, count(x)) :- r(x, y, 1), p(y, _)",
    "p(x, _), n = max y : { q(x, y), m = count : { r(y, x, _) }, m > 0 }",
    "p(x, _), n = max y : { q(x, y) }, r(n, x, k)",
    "s(s), n = max h : { q(s, h) }",
    "n = max h : { q(s, h) }",
    "p(1, x), n = count : { s(y), y > x }",
    "y = 2, p(x, y), q(y, z), n = count : { r(x, y, _) }",
    "p(x, y), z = y + 1, q(z, w)",
    "p(x, y + 1), q(x, y)",
    "p(1, x); q(x, 2); s(x), !p(x, 1)",
    "p(1, x), q(x, y); q(1, x), p(x, y), x != y",
    "s(x), s(y), x < y",
    "p(x, _), q(_, x), s(x)",
    "!s(1), p(x, 1)",
    "p(x, n), n = count : { q(x, _) }",
    "p(x, count : { q(1, _) })",
]

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12, unique=True)
TRIPLES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=14, unique=True)
SINGLES = st.lists(st.tuples(st.integers(0, 4)), max_size=4, unique=True)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=25, deadline=None)
@given(p=PAIRS, q=PAIRS, r=TRIPLES, s=SINGLES, guess=st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_differential_what_is_left_out_does_not_matter(
    text: str, p: list[Any], q: list[Any], r: list[Any], s: list[Any], guess: list[int]
) -> None:
    """Whatever the order in which the atoms are read, which the estimates decide."""
    relations = {
        name: np.array(rows, np.int64).reshape(len(rows), arity)
        for name, rows, arity in (("p", p, 2), ("q", q, 2), ("r", r, 3), ("s", s, 1))
    }
    reduced, whole = answers(text, Memory(relations, guess), relations)
    assert reduced == whole


GRID = np.stack(np.divmod(np.arange(10_000), 100), axis=1)
LARGE = {
    "p": GRID,
    "q": GRID,
    "r": np.stack((np.arange(10_000), np.arange(10_000) % 10, np.arange(10_000) % 7), axis=1),
    "s": np.array([[3], [4], [500]]),
}


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        # The atom with the fewest tuples first, and then what joins with it.
        (
            "p(x, y), q(y, z), s(x)",
            [
                ("s", {}, {}, 3),
                ("p", {}, {0: [3, 4, 500]}, 200),
                ("q", {}, {0: list(range(100))}, 10_000),
            ],
        ),
        ("q(y, 7), r(5, y, z)", [("r", {0: 5}, {}, 1), ("q", {1: 7}, {}, 100)]),
        ("q(y, z), r(5, y, _)", [("r", {0: 5}, {}, 1), ("q", {}, {0: [5]}, 100)]),
        # A constant beside the known values, and a variable in two columns.
        ("r(5, y, 5), p(y, y)", [("r", {0: 5, 2: 5}, {}, 1), ("p", {}, {0: [5], 1: [5]}, 1)]),
        # Negated atoms and aggregates, whose own variables narrow one another.
        ("r(5, y, _), !q(y, _)", [("r", {0: 5}, {}, 1), ("q", {}, {0: [5]}, 100)]),
        (
            "r(6, y, _), n = count : { q(y, w), r(w, y, _) }",
            [("r", {0: 6}, {}, 1), ("q", {}, {0: [6]}, 100), ("r", {}, {0: list(range(100)), 1: [6]}, 10)],
        ),
        ("n = count : { r(_, 5, _) }", [("r", {1: 5}, {}, 1_000)]),
        # Nothing more is needed when an atom has no tuple.
        ("r(5, 6, z), p(z, w), !s(w), n = count : { q(_, z) }", [("r", {0: 5, 1: 6}, {}, 0)]),
        # The same is read once; a relation that was read as a whole is not read again.
        ("p(x, y), p(z, y), s(w), x < z, z < w", [("s", {}, {}, 3), ("p", {}, {}, 10_000)]),
        ("s(x), s(4); s(3), s(x)", [("s", {0: 4}, {}, 1), ("s", {}, {}, 3)]),
        ("q(1, x); q(1, x), s(x)", [("q", {0: 1}, {}, 100), ("s", {}, {}, 3)]),
    ],
)
def test_what_is_read(text: str, reads: list[Any]) -> None:
    source = Memory(LARGE)
    query = prepare(parse_query(text), SCHEMAS)
    asyncio.run(read(query, source, None))
    assert source.reads == reads


def test_more_than_is_allowed() -> None:
    query = prepare(parse_query("p(1, y), q(y, z)"), SCHEMAS)
    assert sum(map(len, asyncio.run(read(query, Memory(LARGE), 10_100))["q"])) == 10_000
    source = Memory(LARGE)
    with pytest.raises(BudgetExceededError, match="more than the 10,099 tuples allowed") as raised:
        asyncio.run(read(query, source, 10_099))
    assert raised.value.detail["relation"] == "q"
    assert source.reads[-1][3] == 10_000


def test_a_relation_counts_once_however_many_atoms_read_it() -> None:
    query = prepare(parse_query("s(x), p(x, y), p(y, z), p(z, w), p(w, v)"), SCHEMAS)
    source = Memory(LARGE)
    facts = asyncio.run(read(query, source, 10_003))
    # The third atom has read all of it, so the fourth needs nothing that was not read, and all of it is kept once.
    assert [count for _, _, _, count in source.reads] == [3, 200, 10_000, 10_000]
    assert list(map(len, facts["p"])) == [10_000]
    with pytest.raises(BudgetExceededError):
        asyncio.run(read(query, Memory(LARGE), 10_002))
