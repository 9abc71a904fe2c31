"""Paper 003 (DCDatalog, SIGMOD 2022): its eight queries, most with an aggregate in recursion; one thread and two."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.engine import LINEAR, SAME_GENERATION, rmat
from benchmarks.papers import data
from benchmarks.papers.peers import compared
from benchmarks.papers.sections import (
    COMPARED,
    CPU,
    WALL,
    Row,
    Section,
    Settings,
    Target,
    Work,
    in_words,
    sample,
    without_dred,
)
from benchmarks.papers.strategies import Change, compare, crossing, gain
from benchmarks.peers import graph
from zedlog import Reasoner

TITLE = "003 (DCDatalog): aggregates in recursion"
PAPER = (
    "The paper evaluates eight queries on a parallel engine, on trees, random graphs (G-10K, RMAT-n) and bills of "
    "materials (N-n). The queries are those of our library of programs; the data has the paper's shapes, smaller in "
    "the default sizes."
)
THREADS = (1, 2)
FASTER = 1.6
"""What two threads should gain, as in benchmarks/engine.py."""
LONG_ENOUGH = 0.2
"""Seconds below which a query is too short for two threads to gain anything."""


@dataclass(frozen=True, slots=True)
class Query:
    """A program of programs/ over facts. changing: the relation of which one fact goes and comes back."""

    program: str
    head: str
    about: str
    facts: Mapping[str, Any]
    changing: str


def closure(settings: Settings, left_out: list[str]) -> Query:
    if settings.size == "tiny":
        return Query("transitive_closure", "tc", "a tree of 300 edges", {"arc": data.tree(300, 2, 6)}, "arc")
    called, edges = data.graph(settings.data, "tree11", left_out)
    return Query("transitive_closure", "tc", called, {"arc": edges}, "arc")


def components(settings: Settings, left_out: list[str]) -> Query:
    called, edges = _random(settings, left_out)
    both = np.unique(np.concatenate((edges, edges[:, ::-1])), axis=0)
    return Query("connected_components", "cc", f"{called}, both ways", {"arc": both}, "arc")


def all_pairs(settings: Settings, left_out: list[str]) -> Query:
    n = settings.of({"tiny": 16, "small": 60, "default": 150, "large": 500})
    edges = data.lengths(rmat(n, 5 * n))
    return Query("apsp", "path", f"R-MAT, {n:,} vertices, {5 * n:,} edges", {"warc": edges}, "warc")


def attend(settings: Settings, left_out: list[str]) -> Query:
    n = settings.of({"tiny": 64, "small": 2_000, "default": 10_000, "large": 100_000})
    friends = rmat(n, 10 * n)
    organizers = np.arange(0, n, 20, dtype=np.int64)[:, None]
    given = {"friend": friends, "organizer": organizers}
    return Query("attend", "attend", f"R-MAT, {n:,} people, {10 * n:,} friendships", given, "friend")


def generation(settings: Settings, left_out: list[str]) -> Query:
    n = settings.of({"tiny": 20, "small": 200, "default": 500, "large": 1_000})
    return Query(
        "same_generation", "sg", f"R-MAT, {n:,} vertices, {10 * n:,} edges", {"arc": rmat(n, 10 * n)}, "arc"
    )


def rank(settings: Settings, left_out: list[str]) -> Query:
    n = settings.of({"tiny": 16, "small": 200, "default": 500, "large": 10_000})
    edges = rmat(n, 5 * n)
    # Each vertex needs an edge that leaves it.
    stuck = np.setdiff1d(np.arange(n), edges[:, 0])
    edges = np.concatenate((edges, np.column_stack((stuck, stuck))))
    degree = np.bincount(edges[:, 0], minlength=n)
    matrix = [((y, x, float(degree[y])), 1) for y, x in edges.tolist()]
    given = {"matrix": matrix, "vertices": [((float(n),), 1)]}
    return Query("pagerank", "rank", f"R-MAT, {n:,} vertices, {len(edges):,} edges", given, "")


def single_source(settings: Settings, left_out: list[str]) -> Query:
    called, edges = _random(settings, left_out)
    given = {"warc": data.lengths(edges), "start": edges[:1, :1]}
    return Query("sssp", "sp", f"{called}, lengths of 1 to 100", given, "warc")


def delivery(settings: Settings, left_out: list[str]) -> Query:
    n = settings.of({"tiny": 200, "small": 20_000, "default": 200_000, "large": 2_000_000})
    edges = data.tree(n, 5, 10, leaves=0.4)
    basic = np.setdiff1d(edges[:, 1], edges[:, 0])
    days = np.random.default_rng(6).integers(1, 31, len(basic))
    given = {"assbl": edges, "basic": np.column_stack((basic, days))}
    return Query("delivery", "delivery", f"a tree of {n:,} parts", given, "assbl")


def _random(settings: Settings, left_out: list[str]) -> tuple[str, Any]:
    if settings.size == "tiny":
        return "a random graph of 300 edges", rmat(64, 300)
    return data.graph(settings.data, "gnp10K", left_out)


QUERIES: dict[str, Callable[[Settings, list[str]], Query]] = {
    "1 transitive closure": closure,
    "2 connected components": components,
    "3 all pairs shortest paths": all_pairs,
    "4 who will attend": attend,
    "5 same generation": generation,
    "6 PageRank": rank,
    "7 single source shortest paths": single_source,
    "8 delivery": delivery,
}


def threads(settings: Settings) -> Section:
    """Each query from facts that are loaded to its result."""
    left_out: list[str] = []
    rows, targets = [], []
    for title, make in QUERIES.items():
        query = make(settings, left_out)
        declarations, rules = data.program(query.program)
        found: dict[str, list[float]] = {}
        counts = set()
        for _ in range(settings.runs):
            for number in THREADS:
                reasoner = Reasoner("resident", threads=number)
                reasoner.apply(facts=query.facts, declarations=declarations)
                start = time.perf_counter()
                result = reasoner.apply(rules=[(rule, 1) for rule in rules])
                found.setdefault(_threads(number), []).append(time.perf_counter() - start)
                counts.add(reasoner.count(query.head))
        if len(counts) != 1:
            raise SystemExit(f"{title}: the threads do not agree: {counts}")
        note = f"{query.about}: {counts.pop():,} tuples of `{query.head}`, {result.cost['derivations']:,} derivations"
        rows.append(row := Row(title, found, note=note))
        one, two = (row.median(_threads(number)) for number in THREADS)
        if one >= LONG_ENOUGH:
            reason = "not examined; likely heights too small to share, and other load on the cores"
            targets.append(Target(f"{title}: one thread / two", one / two, FASTER, most=True, reason=reason))
    slowest = max(rows, key=lambda row: row.median(_threads(1)))
    best = max(rows, key=lambda row: row.median(_threads(1)) / row.median(_threads(2)))
    gained = best.median(_threads(1)) / best.median(_threads(2))
    return Section(
        "The eight queries",
        "The rules are added to loaded facts, with one thread and with two in turns.",
        WALL,
        rows,
        f"The longest query is {slowest.name} with {in_words(slowest.median(_threads(1)))} on one thread. Two threads "
        f"help most in {best.name}, where one thread takes {gained:.2g} times as long as two; a target is set only for "
        f"queries of at least {in_words(LONG_ENOUGH)}.",
        targets=targets,
        left_out=left_out,
    )


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number > 1)}"


def changes(settings: Settings) -> Section:
    """One fact of each query goes and comes back."""
    left_out: list[str] = without_dred()
    rows: list[Row] = []
    for title, make in QUERIES.items():
        query = make(settings, [])
        if not query.changing:
            left_out.append(
                f"{title}: a limit moves as a whole when one edge goes, and is not part of this table."
            )
            continue
        declarations, rules = data.program(query.program)
        reasoner = Reasoner("resident", threads=1)
        reasoner.apply(facts=query.facts, declarations=declarations, rules=[(rule, 1) for rule in rules])
        chosen = [tuple(row) for row in sample(query.facts[query.changing], 1, seed=8).tolist()]
        away, back = ({"facts": {query.changing: [(row, weight) for row in chosen]}} for weight in (-1, 1))
        strategies = COMPARED
        if "dred" in COMPARED and data.folds(rules):
            # It would update the strata that aggregate, and be compared with itself.
            left_out.append(f"{title}, DRed: it does not maintain aggregates in recursion.")
            strategies = tuple(name for name in COMPARED if name != "dred")
        rows += compare(
            reasoner, Change(f"{title}, one fact", away, back), strategies, settings.runs, left_out
        )
    return Section(
        "One fact of the eight queries",
        "One fact, taken by chance, is removed and added again by each strategy in turns; the facts are those of the "
        "table above.",
        CPU,
        rows,
        f"{crossing(rows, 'removed')} {crossing(rows, 'added')} {gain(rows)}",
        left_out=left_out,
    )


def peers(settings: Settings) -> Section:
    """The two queries that the peers have; the others need an aggregate in recursion."""
    left_out: list[str] = []
    tree = closure(settings, left_out)
    n = settings.of({"tiny": 20, "small": 200, "default": 500, "large": 1_000})
    workloads = [
        (f"1 transitive closure, {tree.about}", graph("linear", LINEAR, tree.facts["arc"])),
        (f"5 same generation, R-MAT, {n:,} vertices", graph("generation", SAME_GENERATION, rmat(n, 10 * n))),
    ]
    section = compared("Peers on two of the queries", workloads, settings)
    section.left_out[:0] = [*left_out, "The other six queries: the peers' programs do not have them."]
    return section


SECTIONS: dict[str, Work] = {"threads": threads, "changes": changes, "peers": peers}
