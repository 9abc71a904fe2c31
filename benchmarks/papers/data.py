"""The data of the papers: read from the folder of public data sets, or made here in the same shape.

A made graph is always the same. Nothing stands in for LUBM and Galen: the parts that need them are left out by name.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analysis import facts as analysis_facts
from benchmarks.engine import Array, rmat
from engine.language.canonical import canonical_text
from engine.language.parser import parse_program
from engine.language.syntax import HeadAggregate

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
GALEN = ("p", "q", "c", "u", "s", "r")


class MissingData(Exception):
    """The data of a section is not there, and nothing stands in for it."""


def program(name: str) -> tuple[str, list[str]]:
    """(declarations, rules) of programs/`name`.dl, over numbers."""
    text = (PROGRAMS / f"{name}.dl").read_text()
    declared = [line.replace("symbol", "number") for line in re.findall(r"^\.decl .*$", text, re.M)]
    return "\n".join(declared), [canonical_text(rule) for rule in parse_program(text).rules]


def folds(rules: list[str]) -> bool:
    """Whether a head has an aggregate."""
    heads = (rule.head for rule in parse_program("\n".join(rules)).rules)
    return any(isinstance(term, HeadAggregate) for head in heads for term in head.terms)


def graph(folder: Path, name: str, left_out: list[str]) -> tuple[str, Array]:
    """(what it is called, its edges): `graph1000`, `graph10000`, `tree11` or `gnp10K`."""
    for path, delimiter in ((folder / f"{name}.txt", None), (folder / f"{name}.csv", ",")):
        if path.exists():
            rows = np.loadtxt(path, dtype=np.int64, usecols=(0, 1), delimiter=delimiter)
            return name, np.unique(rows, axis=0)
    left_out.append(f"{name}: not in the data folder; a generated graph of the same shape stands in for it.")
    return f"a stand-in for {name}", _stand_in(name)


def _stand_in(name: str) -> Array:
    rng = np.random.default_rng(11)
    if name == "tree11":
        return tree(71_390, 2, 6)
    if name == "graph10000":
        return rmat(512, 9_206)
    vertices, edges = (860, 1_009) if name == "graph1000" else (10_000, 100_185)
    return np.unique(rng.integers(0, vertices, (edges, 2)), axis=0)


def tree(edges: int, least: int, most: int, leaves: float = 0.0, seed: int = 11) -> Array:
    """So many edges of a tree, parent first; each inner node has `least` to `most` children, and a child is a leaf with
    the probability `leaves`."""
    rng = np.random.default_rng(seed)
    made: list[tuple[int, int]] = []
    growing, node = [0], 1
    while len(made) < edges:
        if not growing:
            growing = [node - 1]
        following = []
        for parent in growing:
            for _ in range(int(rng.integers(least, most + 1))):
                made.append((parent, node))
                if rng.random() >= leaves:
                    following.append(node)
                node += 1
        growing = following
    return np.array(made[:edges], dtype=np.int64)


def lengths(edges: Array) -> Array:
    """The edges with a length of 1 to 100 each."""
    values = np.random.default_rng(5).integers(1, 101, len(edges))
    return np.column_stack((edges, values))


def galen(folder: Path, share: float) -> dict[str, Array]:
    """The six tables, of which as many classes are kept as `share` says, by chance.

    Raises:
        MissingData: there is no galen.zip.
    """
    path = folder / "galen.zip"
    if not path.exists():
        raise MissingData("Galen: galen.zip is not in the data folder, and nothing stands in for it.")
    tables = {}
    with zipfile.ZipFile(path) as archive:
        for name in GALEN:
            tables[name] = np.loadtxt(
                io.BytesIO(archive.read(f"{name}.txt")), dtype=np.int64, delimiter=",", ndmin=2
            )
    if share >= 1:
        return tables
    classes = np.unique(np.concatenate((tables["p"].ravel(), tables["q"][:, [0, 2]].ravel())))
    kept = classes[np.random.default_rng(3).random(len(classes)) < share]
    where = {"p": [0, 1], "q": [0, 2], "c": [0, 1, 2], "u": [0, 2]}
    return {
        name: rows[np.isin(rows[:, where[name]], kept).all(axis=1)] if name in where else rows
        for name, rows in tables.items()
    }


def crdt(folder: Path, operations: int | None, left_out: list[str]) -> dict[str, Array]:
    """The first so many insertions, and the removals of what they inserted."""
    path = folder / "crdt.zip"
    if path.exists():
        with zipfile.ZipFile(path) as archive:
            inserts, removals = (
                np.loadtxt(io.BytesIO(archive.read(f"input/{name}.txt")), dtype=np.int64)
                for name in ("insert", "remove")
            )
        inserts = inserts[np.argsort(inserts[:, 0], kind="stable")]
    else:
        left_out.append("CRDT: crdt.zip is not in the data folder; generated operations stand in for it.")
        inserts, removals = _operations(operations or 182_315)
    inserts = inserts[:operations]
    known = {tuple(row) for row in inserts[:, :2].tolist()}
    mask = np.array([tuple(row) in known for row in removals.tolist()], dtype=bool)
    return {"insert": inserts, "remove": removals[mask]}


def _operations(number: int) -> tuple[Array, Array]:
    """Two writers who mostly go on where the last one stopped; two of five elements are removed again."""
    rng = np.random.default_rng(9)
    counters, nodes = np.arange(1, number + 1), rng.integers(0, 2, number)
    parents = np.maximum(
        np.arange(number) - np.where(rng.random(number) < 0.9, 1, rng.integers(2, 200, number)), -1
    )
    inserts = np.column_stack(
        (
            counters,
            nodes,
            np.where(parents < 0, 0, counters[parents]),
            np.where(parents < 0, 0, nodes[parents]),
        )
    ).astype(np.int64)
    return inserts, inserts[rng.random(number) < 0.42][:, :2]


def points_to(modules: int) -> dict[str, Array]:
    """The statements of an invented program (benchmarks/analysis.py) as programs/points_to.dl reads them."""
    made = analysis_facts(modules)
    return {
        "new": made["new"][:, [1, 2]],
        "assign": made["move"][:, [1, 2]],
        "load": made["load"][:, [1, 2, 3]],
        "store": made["store"][:, [1, 2, 3]],
    }


def weighted_pairs(rows: list[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], int]]:
    return [(row, 1) for row in rows]
