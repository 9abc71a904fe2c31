"""The elastic choice: for changes from one fact to most of them, `auto` against each strategy, and each placement.

    python -m benchmarks.elastic [--json FILE] [--runs N] [--only WORD] [--no-spark]

Closure of ../shared/data/graph10000.txt (an R-MAT graph is taken where it is not there), from which the busiest edges
are removed, those that most paths of length three go over, and put back; LUBM-1 under RDFS, and a random relation that
is closed both ways, from which facts of the recursive relation itself are removed by chance. Each change is applied
and taken back by `update`, by `bootstrap` and by `auto`, in turns; a time is the CPU time of the best run, without the
way of the facts into codes, which is the same for all. A ratio is `auto` over the better of the two, and its note says
what each took. The last figures are the price of a push (engine/maintenance/policy.py): nanoseconds in an update over
those in a bootstrap. Placements are compared once Spark has started, and left out, with a line that says so, where it
cannot.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.engine import DATA, LINEAR, NON_LINEAR, RDFS, SAME_GENERATION, Array, lubm_boxes, rmat
from benchmarks.report import Figure, figure, show
from engine.data.transaction import Strategy
from engine.database.epoch import EpochResult
from engine.errors import SparkUnavailableError
from engine.resident.placement import ResidentPlacement
from engine.spark.session.session import SparkOptions, SparkSource
from zedlog import Reasoner

RATIO = 1.2
"""What `auto` may take of the better one's time."""
STRATEGIES: tuple[Strategy, ...] = ("update", "bootstrap", "auto")
BOTH_WAYS = "e(y, x) :- e(x, y)."
Facts = dict[str, list[tuple[tuple[int, ...], int]]]


def graph() -> Array:
    """The edges, the busiest first."""
    path = DATA / "graph10000.txt"
    if path.exists():
        edges = np.unique(np.loadtxt(path, dtype=np.int64, usecols=(0, 1)), axis=0)
    else:
        print(f"{path} is not there; an R-MAT graph of 1,000 vertices stands in for it")
        edges = rmat(1000, 10_000)
    size = int(edges.max()) + 1
    into, out = np.bincount(edges[:, 1], minlength=size), np.bincount(edges[:, 0], minlength=size)
    busy = (into[edges[:, 0]] + 1) * (out[edges[:, 1]] + 1)
    return np.ascontiguousarray(edges[np.argsort(-busy, kind="stable")])


def weighted(relation: str, rows: Array, weight: int) -> Facts:
    return {relation: [(tuple(row), weight) for row in rows.tolist()]}


def timed(reasoner: Reasoner, facts: Facts, **how: Any) -> tuple[float, EpochResult]:
    start = time.perf_counter()
    result = reasoner.apply(facts=facts, **how)
    return time.perf_counter() - start, result


@contextmanager
def evaluating() -> Iterator[list[float]]:
    """The CPU seconds of what the resident placement executes, keeps or drops meanwhile."""
    spent: list[float] = []
    kept = {name: getattr(ResidentPlacement, name) for name in ("execute", "commit", "rollback")}

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.process_time()
            try:
                return work(*arguments)
            finally:
                spent.append(time.process_time() - start)

        return call

    try:
        for name, work in kept.items():
            setattr(ResidentPlacement, name, watched(work))
        yield spent
    finally:
        for name, work in kept.items():
            setattr(ResidentPlacement, name, work)


def compare(name: str, reasoner: Reasoner, relation: str, rows: Array, runs: int) -> list[Figure]:
    """Take `rows` away and put them back, by each strategy in turns."""
    best: dict[tuple[int, str], tuple[float, EpochResult]] = {}
    # What ran before leaves its traces in the caches: each strategy follows each other one.
    for run in range(runs * (3 if len(rows) <= 100 else 1)):
        for strategy in (*STRATEGIES[run % 3 :], *STRATEGIES[: run % 3]):
            for weight in (-1, 1):
                with evaluating() as spent:
                    _, result = timed(reasoner, weighted(relation, rows, weight), strategy=strategy)
                once = sum(spent), result
                best[weight, strategy] = min(best.get((weight, strategy), once), once, key=lambda run: run[0])
    figures = []
    for weight, verb in ((-1, "removed"), (1, "added")):
        times = {strategy: best[weight, strategy][0] for strategy in STRATEGIES}
        chosen = best[weight, "auto"][1]
        cost = chosen.cost
        note = (
            f"auto {times['auto']:.3g} s by {chosen.strategy} ({cost['derivations']:,} derivations, "
            f"{cost['abandoned']:,} abandoned); update {times['update']:.3g} s, bootstrap {times['bootstrap']:.3g} s"
        )
        ratio = times["auto"] / min(times["update"], times["bootstrap"])
        figures.append(figure(f"{name} {verb}: auto / better", [ratio], "x", RATIO, note))
        figures.append(figure(f"{name} {verb}: auto / update", [times["auto"] / times["update"]], "x"))
    return figures


def closure(edges: Array, counts: Sequence[int], runs: int) -> list[Figure]:
    reasoner = Reasoner("resident")
    reasoner.apply(facts={"arc": edges}, rules=[(rule, 1) for rule in LINEAR])
    figures: list[Figure] = []
    for n in counts:
        figures += compare(f"closure, the {n:,} busiest edges", reasoner, "arc", edges[:n], runs)
    return figures


def lubm(shares: Sequence[float], runs: int) -> list[Figure]:
    boxes = lubm_boxes()
    if boxes is None:
        return []
    triples = np.concatenate(boxes)
    reasoner = Reasoner("resident")
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    mixed = np.random.default_rng(1).permutation(triples)
    figures: list[Figure] = []
    for share in shares:
        part = mixed[: max(1, int(share * len(mixed)))]
        figures += compare(f"LUBM-1 RDFS, {len(part):,} facts", reasoner, "t", part, runs)
    return figures


def both_ways(counts: Sequence[int], runs: int) -> list[Figure]:
    random = np.random.default_rng(3)
    rows = random.permutation(np.unique(random.integers(0, 100_000, (100_000, 2)), axis=0))
    reasoner = Reasoner("resident")
    reasoner.apply(facts={"e": rows}, rules=[(BOTH_WAYS, 1)])
    figures: list[Figure] = []
    for n in counts:
        figures += compare(f"both ways, {n:,} facts", reasoner, "e", rows[:n], runs)
    return figures


def price(name: str, rules: list[str], edges: Array, n: int) -> Figure:
    """CPU time of a push in an update that changes `n` edges, over that in a bootstrap."""
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"arc": edges}, rules=[(rule, 1) for rule in rules])
    each: dict[Strategy, list[float]] = {"update": [], "bootstrap": []}
    from engine.maintenance.policy import Course

    pushed: list[int] = []
    emitted = Course.emitted

    def counting(course: Course, number: int, net: float, gross: float) -> None:
        pushed.append(number)
        emitted(course, number, net, gross)

    Course.emitted = counting  # type: ignore[method-assign]  # put back below
    try:
        for strategy in each:
            for weight in (-1, 1):
                pushed.clear()
                start = time.process_time()
                reasoner.apply(facts=weighted("arc", edges[-n:], weight), strategy=strategy)
                each[strategy].append((time.process_time() - start) / sum(pushed) * 1e9)
    finally:
        Course.emitted = emitted  # type: ignore[method-assign]
    update, bootstrap = (float(np.median(each[s])) for s in ("update", "bootstrap"))
    note = f"{update:,.0f} ns a push in an update, {bootstrap:,.0f} ns in a bootstrap"
    return figure(f"price of a push, {name}", [update / bootstrap], "x", note=note)


def placements(edges: Array, runs: int) -> list[Figure]:
    """A bootstrap and one removed edge: `auto`, which is resident, against each placement."""
    source = SparkSource(SparkOptions())
    try:
        source.session()
    except SparkUnavailableError as error:
        print(f"Placements left out: {error}")
        return []
    names: tuple[Literal["auto", "resident", "spark"], ...] = ("resident", "spark", "auto")
    best: dict[tuple[str, str], float] = {}
    try:
        for _ in range(runs):
            for name in names:
                reasoner = Reasoner(name, spark=source)
                reasoner.apply(facts={"arc": edges})
                start = time.perf_counter()
                reasoner.apply(rules=[(rule, 1) for rule in LINEAR])
                times = {"bootstrap": time.perf_counter() - start}
                times["one edge removed"], _ = timed(reasoner, weighted("arc", edges[:1], -1))
                reasoner.close()
                for what, seconds in times.items():
                    best[what, name] = min(best.get((what, name), seconds), seconds)
    finally:
        source.close()
    figures = []
    for what in ("bootstrap", "one edge removed"):
        resident, spark, auto = (best[what, name] for name in names)
        note = f"auto {auto:.3g} s, resident {resident:.3g} s, spark {spark:.3g} s"
        ratio = auto / min(resident, spark)
        figures.append(figure(f"closure, {what}: auto / better placement", [ratio], "x", RATIO, note))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="runs of each change and strategy (default 3)")
    parser.add_argument("--only", default="", help="only closure, LUBM-1, both ways, price or placements")
    parser.add_argument("--no-spark", action="store_true", help="leave the placements out")
    options = parser.parse_args()
    edges = graph()
    figures: list[Figure] = []
    if options.only in "closure":
        half = len(edges) // 2
        figures += closure(edges, (1, 10, 100, len(edges) // 4, half, 3 * half // 2), options.runs)
    if options.only in "LUBM-1":
        figures += lubm((0.0, 0.01, 0.2, 0.3, 0.6, 0.8), options.runs)
    if options.only in "both ways":
        figures += both_ways((1, 10_000, 30_000, 60_000, 90_000), options.runs)
    if options.only in "price":
        for name, rules, n in (
            ("linear closure", LINEAR, 1000),
            ("non-linear closure", NON_LINEAR, 50),
            ("same generation", SAME_GENERATION, 100),
            ("paths of two edges", ["p(x, z) :- arc(x, y), arc(y, z)."], 2000),
        ):
            figures.append(price(name, rules, edges, n))
    if options.only in "placements" and not options.no_spark:
        figures += placements(edges, options.runs)
    show("Elastic", figures, options.json)


if __name__ == "__main__":
    main()
