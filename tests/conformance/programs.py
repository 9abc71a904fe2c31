"""The programs and data sets that the conformance tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BASE = "tc(x, y) :- e(x, y)."
LEFT_LINEAR = "tc(x, z) :- tc(x, y), e(y, z)."
RIGHT_LINEAR = "tc(x, z) :- e(x, y), tc(y, z)."
NON_LINEAR = "tc(x, z) :- tc(x, y), tc(y, z)."
CLOSURE = [(BASE, 1), (LEFT_LINEAR, 1)]

# 0 subClassOf, 1 subPropertyOf, 2 domain, 3 range, 4 type
RDFS = [
    "t(y, 4, x) :- t(a, 2, x), t(y, a, z).",
    "t(z, 4, x) :- t(a, 3, x), t(y, a, z).",
    "t(x, 1, z) :- t(x, 1, y), t(y, 1, z).",
    "t(x, 0, z) :- t(x, 0, y), t(y, 0, z).",
    "t(z, 4, y) :- t(x, 0, y), t(z, 4, x).",
    "t(x, b, y) :- t(a, 1, b), t(x, a, y).",
]

Rows = npt.NDArray[np.int64]


def read_graph(path: Path) -> Rows:
    """Edges as int64[n, 2]; a file of "x y label" lines or of "x,y" lines."""
    delimiter = "," if path.suffix == ".csv" else None
    edges: Rows = np.loadtxt(path, dtype=np.int64, usecols=(0, 1), delimiter=delimiter)
    return edges


def read_lubm(data: Path) -> Rows:
    """All lines of LUBM-1 as triples, int64[n, 3], the ontology last. Some lines stand twice."""
    return np.concatenate(
        [np.loadtxt(data / name, dtype=np.int64) for name in ("lubm1abox.ntenc", "lubm1tbox.ntenc")]
    )


def distinct(rows: Rows) -> Rows:
    """Each row once, where it stands first."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def weighted(rows: Any, weight: int = 1) -> list[tuple[tuple[int, ...], int]]:
    return [(tuple(row), weight) for row in rows]
