"""DRed against update and bootstrap: deletions that stick, and deletions that nearly all come back.

    python -m benchmarks.dred [--json FILE] [--runs N] [--only WORD]

Each change is made by `dred`, by `update` and by `bootstrap`, in turns, and taken back by an update that is not timed;
a time is the CPU time of the best run (benchmarks/elastic.py). Ratios are of DRed to each of the others, and the notes
say what each took, and what DRed over-deleted and derived again. Programs: the ancestors in a random tree, what can be
reached from some nodes of a random sparse graph, the closure of a graph with a strongly connected core, linear and not,
and LUBM-1 under RDFS where its files are there. Facts go, and from LUBM also a rule.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.elastic import evaluating, graph, weighted
from benchmarks.engine import LINEAR, NON_LINEAR, RDFS, Array, lubm_boxes, rmat
from benchmarks.report import Figure, figure, show
from engine.data.transaction import Strategy
from engine.database.epoch import EpochResult
from zedlog import Reasoner

STRATEGIES: tuple[Strategy, ...] = ("dred", "update", "bootstrap")
REACHED = ["reached(x) :- start(x).", "reached(y) :- reached(x), arc(x, y)."]
Change = dict[str, Any]


def compare(name: str, reasoner: Reasoner, change: Change, back: Change, runs: int) -> list[Figure]:
    """Make a change by each strategy in turns."""
    best: dict[str, tuple[float, EpochResult]] = {}
    # The first epochs enlarge arrays, and load kernels.
    for first in (change, back):
        reasoner.apply(**first, strategy="dred")
    for run in range(runs):
        for strategy in (*STRATEGIES[run % 3 :], *STRATEGIES[: run % 3]):
            with evaluating() as spent:
                result = reasoner.apply(**change, strategy=strategy)
            once = sum(spent), result
            best[strategy] = min(best.get(strategy, once), once, key=lambda one: one[0])
            reasoner.apply(**back, strategy="update")
    results = {strategy: result for strategy, (_, result) in best.items()}
    counts = {tuple(sorted(result.counts.items())) for result in results.values()}
    assert len(counts) == 1, f"{name}: the strategies do not agree"
    seconds = {strategy: best[strategy][0] for strategy in STRATEGIES}
    told = ", ".join(
        f"{strategy} {seconds[strategy]:.3g} s ({results[strategy].cost['derivations']:,} derivations)"
        for strategy in STRATEGIES
    )
    repaired = results["dred"].reason.partition("; ")[2]
    gone = sum(deleted for _, deleted in results["dred"].counts.values())
    note = f"{told}; {repaired}; {gone:,} tuples went in all"
    others = [other for other in STRATEGIES if other != "dred"]
    return [
        figure(
            f"{name}: dred / {other}",
            [seconds["dred"] / seconds[other]],
            "x",
            note=note if other == others[0] else "",
        )
        for other in others
    ]


def facts(name: str, reasoner: Reasoner, relation: str, rows: Array, runs: int) -> list[Figure]:
    """Take facts away."""
    change, back = ({"facts": weighted(relation, rows, weight)} for weight in (-1, 1))
    return compare(name, reasoner, change, back, runs)


def of_arcs(
    name: str, rules: Sequence[str], arcs: Array, counts: Sequence[int], runs: int, starts: int = 0
) -> list[Figure]:
    """The first arcs, so many at a time, under some rules; `start` holds of the first nodes."""
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"arc": arcs}, rules=[(rule, 1) for rule in rules])
    if starts:
        reasoner.apply(facts={"start": np.arange(starts, dtype=np.int64).reshape(-1, 1)})
    return [
        one
        for n in counts
        for one in facts(f"{name}, {n:,} of {len(arcs):,} arcs", reasoner, "arc", arcs[:n], runs)
    ]


def tree(size: int) -> Array:
    """The arcs from each node of a random recursive tree to its parent, in random order."""
    random = np.random.default_rng(11)
    children = np.arange(1, size)
    parents = (random.random(size - 1) * children).astype(np.int64)
    return random.permutation(np.stack((children, parents), axis=1))


def sparse(size: int) -> Array:
    """The arcs of a random graph with 1.5 arcs for each node, in random order."""
    random = np.random.default_rng(12)
    return random.permutation(np.unique(random.integers(0, size, (3 * size // 2, 2)), axis=0))


def lubm(shares: Sequence[float], runs: int) -> list[Figure]:
    boxes = lubm_boxes()
    if boxes is None:
        return []
    triples = np.concatenate(boxes)
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    mixed = np.random.default_rng(1).permutation(triples)
    figures: list[Figure] = []
    for share in shares:
        part = mixed[: max(1, int(share * len(mixed)))]
        figures += facts(f"LUBM-1 RDFS, {len(part):,} facts", reasoner, "t", part, runs)
    gone, back = ({"rules": [(RDFS[-1], weight)]} for weight in (-1, 1))
    return figures + compare("LUBM-1 RDFS, the rule of subproperties", reasoner, gone, back, runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="runs of each change and strategy (default 3)")
    parser.add_argument("--only", default="", help="only tree, reached, closure, small or LUBM-1")
    options = parser.parse_args()
    figures: list[Figure] = []
    runs = options.runs
    if options.only in "tree":
        figures += of_arcs("ancestors in a tree", LINEAR, tree(50_000), (1, 500, 5_000), runs)
    if options.only in "reached":
        figures += of_arcs("reached, sparse graph", REACHED, sparse(200_000), (1, 2_000, 30_000), runs, 100)
    if options.only in "closure":
        figures += of_arcs("closure, busiest", LINEAR, graph(), (1, 10, 100), runs)
    if options.only in "small":
        figures += of_arcs(
            "non-linear closure, R-MAT of 200 nodes", NON_LINEAR, rmat(200, 1_000), (1, 10), runs
        )
    if options.only in "LUBM-1":
        figures += lubm((0.0, 0.01, 0.2), runs)
    show("DRed", figures, options.json)


if __name__ == "__main__":
    main()
