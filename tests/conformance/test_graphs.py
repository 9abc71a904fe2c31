"""Transitive closure of the public graphs, in every form, with the sizes that independent systems compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conformance.programs import (
    BASE,
    CLOSURE,
    LEFT_LINEAR,
    NON_LINEAR,
    RIGHT_LINEAR,
    Rows,
    read_graph,
    weighted,
)
from zedlog import Reasoner


def closed(edges: Rows, recursive: str) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts={"e": edges}, rules=[(BASE, 1), (recursive, 1)])
    return reasoner


@pytest.mark.parametrize("recursive", [LEFT_LINEAR, RIGHT_LINEAR, NON_LINEAR])
def test_graph1000(data: Path, recursive: str) -> None:
    reasoner = closed(read_graph(data / "graph1000.txt"), recursive)
    assert reasoner.count("tc") == 11_532
    from_four = reasoner.facts("tc", x=4)
    assert len(from_four) == len(set(from_four)) == 22
    assert all(x == 4 for x, _ in from_four)


@pytest.mark.parametrize("recursive", [LEFT_LINEAR, RIGHT_LINEAR, NON_LINEAR])
def test_graph10000(data: Path, recursive: str) -> None:
    edges = read_graph(data / "graph10000.txt")
    assert len(edges) == 10_999
    reasoner = closed(edges, recursive)
    assert reasoner.count("e") == 9_206
    assert reasoner.count("tc") == 262_144


@pytest.mark.parametrize("name", ["graph1000.txt", "graph10000.txt"])
def test_the_forms_agree_tuple_by_tuple(data: Path, name: str) -> None:
    edges = read_graph(data / name)
    left = set(closed(edges, LEFT_LINEAR).facts("tc"))
    right = set(closed(edges, RIGHT_LINEAR).facts("tc"))
    double = set(closed(edges, NON_LINEAR).facts("tc"))
    assert left == right == double


def test_retraction_of_one_copy_of_a_duplicate_line_changes_nothing(data: Path) -> None:
    """1,793 of the 10,999 lines stand for edges that were there already: these are weights above 1."""
    edges = read_graph(data / "graph10000.txt")
    distinct, copies = np.unique(edges, axis=0, return_counts=True)
    assert int((copies - 1).sum()) == 1_793
    reasoner = closed(edges, LEFT_LINEAR)
    repeated = [(tuple(map(int, row)), -int(n - 1)) for row, n in zip(distinct, copies, strict=True) if n > 1]
    result = reasoner.apply(facts={"e": repeated})
    assert result.counts == {}
    assert (reasoner.count("e"), reasoner.count("tc")) == (9_206, 262_144)
    # Each edge has one copy left: now it goes for good.
    last = reasoner.apply(facts={"e": [(repeated[0][0], -1)]})
    assert last.changes["e"] == [(repeated[0][0], -1)]


def test_retraction_and_return_of_every_tenth_edge(data: Path) -> None:
    """graph1000 without a tenth of its edges, and with them again, equals what a fresh reasoner computes."""
    edges = np.unique(read_graph(data / "graph1000.txt"), axis=0)
    reasoner = Reasoner()
    reasoner.apply(facts={"e": edges}, rules=CLOSURE)
    some = [tuple(map(int, row)) for row in edges[::10]]
    reasoner.apply(facts={"e": weighted(some, -1)})
    rest = np.delete(edges, np.arange(0, len(edges), 10), axis=0)
    assert set(reasoner.facts("tc")) == set(closed(rest, LEFT_LINEAR).facts("tc"))
    reasoner.apply(facts={"e": weighted(some)})
    assert reasoner.count("tc") == 11_532
    assert reasoner.state() == closed(edges, LEFT_LINEAR).state()


def test_tree11(data: Path) -> None:
    edges = read_graph(data / "tree11.csv")
    assert len(edges) == 71_390
    assert closed(edges, LEFT_LINEAR).count("tc") == 805_001
