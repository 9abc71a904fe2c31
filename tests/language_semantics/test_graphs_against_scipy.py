"""Shortest paths and connected components of a public random graph equal scipy's, also while edges go one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from zedlog import Reasoner

csgraph = pytest.importorskip("scipy.sparse.csgraph", reason="scipy is not installed")
sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed")

Edges = npt.NDArray[np.int64]
NODES = 10_001
SHORTEST = [
    "sp(x, min(d)) :- start(x), d = 0.",
    "sp(y, min(d + c)) :- sp(x, d), road(x, y, c).",
]
COMPONENTS = ["cc(y, min(y)) :- arc(y, _).", "cc(y, min(z)) :- cc(x, z), arc(x, y)."]


@pytest.fixture(scope="module")
def edges(data: Path) -> Edges:
    path = data / "gnp10K.csv"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    found: Edges = np.unique(np.loadtxt(path, np.int64, delimiter=","), axis=0)
    assert len(found) == 100_185
    return found


def matrix(edges: Edges, lengths: Edges | None = None) -> object:
    values = np.ones(len(edges), np.int64) if lengths is None else lengths
    return sparse.csr_matrix((values, (edges[:, 0], edges[:, 1])), shape=(NODES, NODES))


def lengths_of(edges: Edges) -> Edges:
    """From 1 to 50, fixed by the edge, so that shortest paths have many steps and few ties."""
    lengths: Edges = 1 + (edges[:, 0] * 7919 + edges[:, 1] * 104729) % 50
    return lengths


def distances(edges: Edges, start: int) -> set[tuple[int, int]]:
    found = csgraph.dijkstra(matrix(edges, lengths_of(edges)), indices=start)
    return {(int(x), int(found[x])) for x in np.flatnonzero(np.isfinite(found))}


def components(edges: Edges) -> set[tuple[int, int]]:
    _, label = csgraph.connected_components(matrix(edges), directed=False)
    nodes = np.unique(edges)
    least = np.full(NODES, NODES)
    np.minimum.at(least, label[nodes], nodes)
    return {(int(x), int(least[label[x]])) for x in nodes}


@pytest.mark.slow
def test_shortest_paths_while_100_random_edges_go(edges: Edges) -> None:
    start = int(edges[0, 0])
    reasoner = Reasoner()
    road = np.column_stack((edges, lengths_of(edges)))
    reasoner.apply(facts={"road": road, "start": [((start,), 1)]}, rules=[(text, 1) for text in SHORTEST])
    assert set(reasoner.facts("sp")) == distances(edges, start)
    # Half of them on shortest paths: those deletions have something to do.
    shortest: Any = reasoner.facts("sp")
    known: dict[int, int] = dict(shortest)
    useful = [i for i, (x, y, c) in enumerate(road.tolist()) if x in known and known.get(y) == known[x] + c]
    random = Random(1)
    gone = random.sample(useful, 50)
    gone += random.sample(sorted(set(range(len(road))) - set(gone)), 50)
    random.shuffle(gone)
    left = np.ones(len(road), np.bool_)
    moved = 0
    for number, i in enumerate(gone, start=1):
        result = reasoner.apply(facts={"road": [(tuple(road[i].tolist()), -1)]})
        moved += len(result.changes.get("sp", []))
        left[i] = False
        if number % 25 == 0:
            assert set(reasoner.facts("sp")) == distances(edges[left], start)
    assert moved > 0
    reasoner.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 14], ids=["whole", "in_many_components"])
def test_components_while_100_random_edges_go(edges: Edges, every: int) -> None:
    """Of the whole graph, which is connected, and of a part of it that has many components."""
    chosen = edges[::every]
    both = np.unique(np.concatenate((chosen, chosen[:, ::-1])), axis=0)
    reasoner = Reasoner()
    reasoner.apply(facts={"arc": both}, rules=[(text, 1) for text in COMPONENTS])
    expected = components(both)
    assert set(reasoner.facts("cc")) == expected
    assert len({c for _, c in expected}) > (1_000 if every > 1 else 0)
    random = Random(2)
    left = {tuple(row) for row in both.tolist()}
    for number, i in enumerate(random.sample(range(len(chosen)), 100), start=1):
        x, y = chosen[i].tolist()
        gone = sorted({(x, y), (y, x)} & left)
        reasoner.apply(facts={"arc": [(row, -1) for row in gone]})
        left -= set(gone)
        if number % 25 == 0:
            assert set(reasoner.facts("cc")) == components(np.array(sorted(left)))
    reasoner.check_invariants()
