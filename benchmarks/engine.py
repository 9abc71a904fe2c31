"""The engine alone, in process: bootstraps of recursive programs, and small epochs.

    python -m benchmarks.engine [--json FILE] [--runs N] [--only WORD] [--large]

The graphs are made here (R-MAT with a fixed seed: 1,000 vertices, 10,000 distinct edges; 15,000 random edges between
3,000 vertices; a chain); a tree and LUBM-1 are read from ../shared/data and left out, with a line that says so, where
they are not there. Times are wall times of one transaction that adds the rules to loaded facts, with one thread; the
ratios say how many times as fast two threads are. The limit of a bootstrap is one read and one addition for each
derivation; the note gives nanoseconds a derivation, so that the distance from it can be seen. With --large also a graph
of 10,000 vertices, whose closure of a hundred million tuples takes 13 GB.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import Figure, figure, show
from zedlog import Reasoner

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
Array = npt.NDArray[np.int64]

BASE = "tc(x, y) :- arc(x, y)."
LINEAR = [BASE, "tc(x, z) :- tc(x, y), arc(y, z)."]
NON_LINEAR = [BASE, "tc(x, z) :- tc(x, y), tc(y, z)."]
SAME_GENERATION = ["sg(x, y) :- arc(p, x), arc(p, y).", "sg(x, y) :- arc(a, x), sg(a, b), arc(b, y)."]
RDFS = [
    "t(y, 4, x) :- t(a, 2, x), t(y, a, z).",
    "t(z, 4, x) :- t(a, 3, x), t(y, a, z).",
    "t(x, 1, z) :- t(x, 1, y), t(y, 1, z).",
    "t(x, 0, z) :- t(x, 0, y), t(y, 0, z).",
    "t(z, 4, y) :- t(x, 0, y), t(z, 4, x).",
    "t(x, b, y) :- t(a, 1, b), t(x, a, y).",
]


def lubm_boxes(data: Path = DATA) -> tuple[Array, Array] | None:
    """(assertions, terms): the triples of LUBM-1 about things and about classes; None where they are not there."""
    paths = [data / f"lubm1{part}box.ntenc" for part in "at"]
    if not all(path.exists() for path in paths):
        print(f"LUBM-1 left out: {data} has none")
        return None
    assertions, terms = (np.loadtxt(path, dtype=np.int64) for path in paths)
    return assertions, terms


def rmat(vertices: int, edges: int, seed: int = 7) -> Array:
    """Distinct edges of an R-MAT graph with the probabilities 0.3, 0.25, 0.25, 0.2; int64[edges, 2]."""
    rng = np.random.default_rng(seed)
    levels = int(np.ceil(np.log2(vertices)))
    found = np.empty((0, 2), np.int64)
    while len(found) < edges:
        quadrant = np.searchsorted([0.3, 0.55, 0.8], rng.random((edges, levels)))
        powers = 1 << np.arange(levels)[::-1]
        more = np.stack(((quadrant >> 1) @ powers, (quadrant & 1) @ powers), axis=1)
        found = np.unique(np.concatenate((found, more[(more < vertices).all(axis=1)])), axis=0)
        rng.shuffle(found)
    return np.ascontiguousarray(found[:edges])


def bootstrap(
    name: str,
    facts: Array,
    relation: str,
    rules: list[str],
    head: str,
    target: float | None,
    runs: int,
    threads: int = 1,
) -> list[Figure]:
    """Add `rules` to loaded facts, `runs` times from scratch."""
    seconds = []
    for _ in range(runs):
        reasoner = Reasoner(threads=threads)
        reasoner.apply(facts={relation: facts})
        start = time.perf_counter()
        result = reasoner.apply(rules=[(rule, 1) for rule in rules])
        seconds.append(time.perf_counter() - start)
    derivations, tuples = result.cost["derivations"], reasoner.count(head)
    note = f"{derivations:,} derivations, {tuples:,} tuples, {min(seconds) / derivations * 1e9:.2g} ns a derivation"
    size = reasoner.memory() / tuples
    held = f"{reasoner.memory() / 2**20:,.0f} MiB, facts and slack included"
    return [
        figure(name, seconds, "s", target, note),
        figure(
            f"{name}: memory a tuple",
            [size],
            "B",
            90,
            held,
        ),
    ]


def changes(
    name: str, relation: str, rules: list[str], facts: Array, target: float, number: int
) -> list[Figure]:
    """Single facts that are retracted and added again."""
    reasoner = Reasoner(threads=1)
    reasoner.apply(facts={relation: facts}, rules=[(rule, 1) for rule in rules])
    away, back = [], []
    for row in facts[np.random.default_rng(1).choice(len(facts), number, replace=False)].tolist():
        for weight, times in ((-1, away), (1, back)):
            start = time.perf_counter()
            reasoner.apply(facts={relation: [(tuple(row), weight)]})
            times.append((time.perf_counter() - start) * 1000)
    return [
        figure(f"{name}, one fact {what}", times, "ms", target, f"p95 {np.percentile(times, 95):.2g} ms")
        for what, times in (("retracted", away), ("added", back))
    ]


def heights(runs: int) -> Figure:
    """A recursion of 100,000 heights with one tuple each."""
    seconds = []
    for _ in range(runs):
        reasoner = Reasoner(threads=1)
        start = time.perf_counter()
        reasoner.apply(facts={"n": [((0,), 1)]}, rules=[("n(y) :- n(x), y = x + 1, x < 100000.", 1)])
        seconds.append(time.perf_counter() - start)
    return figure("100,000 heights of one tuple", seconds, "s", 1.5, f"{min(seconds) * 10:.2g} us a height")


def memory() -> Figure:
    """Bytes for each tuple of a binary relation of a million facts with two indexes, supports included."""
    pairs = np.stack(np.divmod(np.random.default_rng(2).permutation(1_000_000), 1000), axis=1)
    reasoner = Reasoner()
    # No tuple of `key`, so that there is nothing but the facts and the two indexes that the plans demand.
    reasoner.apply(rules=[("p(x, z) :- key(y), e(x, y), e(y, z).", 1)])
    reasoner.apply(facts={"e": pairs})
    return figure(
        "memory a tuple, two indexes",
        [reasoner.memory() / len(pairs)],
        "B",
        64,
        "1,000,000 facts, slack included",
    )


def lubm(runs: int) -> list[Figure]:
    """LUBM-1 under the six RDFS rules: bootstrap, single facts, one per cent."""
    boxes = lubm_boxes()
    if boxes is None:
        return []
    triples = np.concatenate(boxes)
    figures = bootstrap("LUBM-1 RDFS bootstrap", triples, "t", RDFS, "t", 0.05, runs)
    figures += changes("LUBM-1", "t", RDFS, triples, 0.2, 300)
    reasoner = Reasoner(threads=1)
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    rng = np.random.default_rng(1)
    away, back = [], []
    for _ in range(max(5, runs)):
        part = [
            tuple(row)
            for row in triples[rng.choice(len(triples), len(triples) // 100, replace=False)].tolist()
        ]
        for weight, times in ((-1, away), (1, back)):
            start = time.perf_counter()
            reasoner.apply(facts={"t": [(row, weight) for row in part]})
            times.append(time.perf_counter() - start)
    ratio = float(np.median(away) / np.median(back))
    share = float(np.median(away) / figures[0].median)
    return [
        *figures,
        figure("LUBM-1, 1 % retracted", away, "s", 0.003, note=f"{share:.2g} of the bootstrap (at most 0.1)"),
        figure("LUBM-1, 1 % added", back, "s", 0.003),
        figure("LUBM-1, 1 %: retracting / adding", [ratio], "x", 1.5),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=5, help="bootstraps of each program (default 5)")
    parser.add_argument("--only", default="", help="only the programs whose name holds this word")
    parser.add_argument("--large", action="store_true", help="also a closure that takes 13 GB")
    options = parser.parse_args()
    graph = rmat(1000, 10_000)
    chain = np.stack((np.arange(999), np.arange(1, 1000)), axis=1)
    sparse = np.unique(np.random.default_rng(1).integers(0, 3000, (15_000, 2)), axis=0)
    programs = [
        ("linear closure of R-MAT", graph, LINEAR, "tc", 0.35),
        ("non-linear closure of R-MAT", graph, NON_LINEAR, "tc", 4.0),
        ("same generation on R-MAT", graph, SAME_GENERATION, "sg", 2.0),
        ("closure of a chain of 1,000", chain, LINEAR, "tc", 0.1),
        ("linear closure of 15,000 random edges", sparse, LINEAR, "tc", 3.0),
    ]
    tree = DATA / "tree11.csv"
    if tree.exists():
        edges = np.loadtxt(tree, dtype=np.int64, delimiter=",")
        programs.append(("linear closure of tree11", edges, LINEAR, "tc", 0.2))
    else:
        print(f"tree11 left out: {tree} is not there")
    figures: list[Figure] = []
    for name, facts, rules, head, target in programs:
        if options.only in name:
            one = bootstrap(name, facts, "arc", rules, head, target, options.runs)
            two = bootstrap(f"{name}, 2 threads", facts, "arc", rules, head, None, options.runs, 2)[0]
            faster = figure(f"{name}: 1 thread / 2", [one[0].median / two.median], "x", 1.6, most=True)
            figures += [*one, two, faster]
    if options.only in "linear closure of tree11" and tree.exists():
        figures += changes("closure of tree11", "arc", LINEAR, edges, 0.5, 100)
    if options.only in "linear closure of R-MAT":
        figures += changes("closure of R-MAT", "arc", LINEAR, graph, 3.0, 30)
    if options.only in "heights":
        figures.append(heights(options.runs))
    if options.large:
        large = rmat(10_000, 100_000)
        figures += bootstrap(
            "linear closure of R-MAT 10,000, 2 threads", large, "arc", LINEAR, "tc", 40, 1, 2
        )
    if options.only in "memory":
        figures.append(memory())
    if options.only in "LUBM-1":
        figures += lubm(options.runs)
    show("Engine", figures, options.json)


if __name__ == "__main__":
    main()
