"""The Spark placement alone, in process: bootstraps, pivoted and general, and small epochs.

    python -m benchmarks.spark [--json FILE] [--runs N] [--only WORD] [--partitions N] [--master local[2]]

The graph is that of benchmarks/engine.py; LUBM-1 is read from ../shared/data and left out, with a line that says so,
where it is not there. Spark's start is a figure of its own and in no other one. A note gives the number of Spark
queries of an epoch, and for each height, since a query costs more than anything that a small epoch does.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.engine import LINEAR, NON_LINEAR, RDFS, Array, lubm_boxes, rmat
from benchmarks.report import Figure, figure, show
from engine.spark.placement import SparkPlacement
from engine.spark.session.session import SparkOptions, SparkSource
from zedlog import Reasoner


def bootstrap(
    name: str,
    source: SparkSource,
    facts: Array,
    relation: str,
    rules: list[str],
    head: str,
    target: float | None,
    runs: int,
) -> list[Figure]:
    """Add `rules` to loaded facts, `runs` times from scratch; the first run also warms up the JVM."""
    seconds, note = [], ""
    for _ in range(runs):
        reasoner = Reasoner("spark", spark=source)
        reasoner.apply(facts={relation: facts})
        before = _queries(reasoner)
        start = time.perf_counter()
        result = reasoner.apply(rules=[(rule, 1) for rule in rules])
        seconds.append(time.perf_counter() - start)
        queries = _queries(reasoner) - before
        note = (
            f"{result.cost['derivations']:,} derivations, {reasoner.count(head):,} tuples, {queries} queries"
        )
        reasoner.close()
    return [figure(name, seconds, "s", target, note)]


def _queries(reasoner: Reasoner) -> int:
    """Spark queries that the reasoner's placement has run."""
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement), "the benchmark asks for it"
    return placement.queries


def _heights(reasoner: Reasoner) -> int:
    """Heights that its last epoch went through, all strata together."""
    placement = reasoner.database.placement
    assert isinstance(placement, SparkPlacement), "the benchmark asks for it"
    return placement.heights


def epochs(source: SparkSource, triples: Array, runs: int) -> tuple[dict[int, list[float]], str]:
    """Single facts retracted and added again under the RDFS rules: seconds by weight, and a note."""
    reasoner = Reasoner("spark", spark=source)
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    rng = np.random.default_rng(1)
    times: dict[int, list[float]] = {-1: [], 1: []}
    queries: list[int] = []
    heights: list[int] = []
    for row in triples[rng.choice(len(triples), 2 * runs, replace=False)].tolist():
        for weight in times:
            before = _queries(reasoner)
            start = time.perf_counter()
            reasoner.apply(facts={"t": [(tuple(row), weight)]})
            times[weight].append(time.perf_counter() - start)
            queries.append(_queries(reasoner) - before)
            heights.append(_heights(reasoner))
    reasoner.close()
    return times, f"{np.median(queries):g} queries, {np.median(heights):g} heights"


def lubm(source: SparkSource, runs: int) -> list[Figure]:
    """LUBM-1 under the six RDFS rules: bootstrap, and single facts."""
    boxes = lubm_boxes()
    if boxes is None:
        return []
    triples = np.concatenate(boxes)
    figures = bootstrap("LUBM-1 RDFS bootstrap", source, triples, "t", RDFS, "t", 8, runs)
    times, note = epochs(source, triples, runs)
    return [
        *figures,
        figure("LUBM-1, one fact retracted", times[-1], "s", 3, note),
        figure("LUBM-1, one fact added", times[1], "s", 3),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="bootstraps of each program (default 3)")
    parser.add_argument("--only", default="", help="only the programs whose name holds this word")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    source = SparkSource(SparkOptions(master=options.master, partitions=options.partitions))
    start = time.perf_counter()
    source.session()
    figures = [figure("Spark starts", [time.perf_counter() - start], "s")]
    graph = rmat(1000, 10_000)
    programs = [
        ("linear closure of R-MAT, pivoted", graph, LINEAR, "tc", 1.5),
        ("non-linear closure of R-MAT, 1,000 edges", rmat(1000, 1_000), NON_LINEAR, "tc", 30.0),
    ]
    try:
        for name, facts, rules, head, target in programs:
            if options.only in name:
                figures += bootstrap(name, source, facts, "arc", rules, head, target, options.runs)
        if options.only in "LUBM-1":
            figures += lubm(source, options.runs)
    finally:
        source.close()
    show(f"Spark, {options.master}, {options.partitions} partitions", figures, options.json)


if __name__ == "__main__":
    main()
