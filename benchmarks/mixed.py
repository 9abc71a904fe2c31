"""Strata in places of their own: a program of 37 rules with many strata and heights, and one relation that is large.

    python -m benchmarks.mixed [--json FILE] [--runs N] [--only WORD] [--memory 48MiB] [--master local[2]]

"everything on Spark" is how the program ran where the database as a whole was in one place; `auto` sends to Spark what
the memory budget has no room for, by itself: the large closure, and the rule that reads it. Two updates are timed: one
that ends in the engine process, and one that goes on into the strata on Spark. With a cluster as the master (and
`--only cluster`), bootstraps of growing size show what `auto` decides for speed, and the reason that it gives.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.engine import rmat
from benchmarks.report import Figure, figure, show
from engine.maintenance.limits import parse_size
from engine.maintenance.placement import Budget
from engine.spark.session.session import SparkOptions, SparkSource
from zedlog import Reasoner

LAYERS, LONG = 11, 20
"""Layers of three rules, each with a recursion over a chain of so many edges."""


def rules() -> list[tuple[str, int]]:
    found = [
        "grant0(x, y) :- edge(x, y).",
        "reach(x, y) :- link(x, y).",
        "reach(x, z) :- reach(x, y), link(y, z).",
    ]
    for k in range(1, LAYERS + 1):
        found += [
            f"grant{k}(x, y) :- grant{k - 1}(x, y).",
            f"grant{k}(x, z) :- grant{k}(x, y), edge(y, z).",
            f"open{k}(x) :- grant{k}(x, _), !closed(x, {k}).",
        ]
    return [(rule, 1) for rule in [*found, f"alert(x, y) :- grant{LAYERS}(x, y), reach(x, y), watched(x)."]]


def facts() -> dict[str, Any]:
    """Some hundred facts, and the links of the large closure."""
    return {
        "edge": [((n, n + 1), 1) for n in range(LONG)],
        "closed": [((n, k), 1) for n in range(0, LONG, 3) for k in range(1, LAYERS + 1)],
        "watched": [((n,), 1) for n in range(0, LONG, 2)],
        "link": rmat(1000, 10_000),
    }


def updates(reasoner: Reasoner, what: str, target: float | None, runs: int) -> list[Figure]:
    """An edge of the chain comes and goes: without the rule of `alert`, and with it."""
    times: dict[str, list[float]] = {
        "that stays in the engine process": [],
        "that goes on into the large strata": [],
    }
    note = ""
    alert, _ = rules()[-1]
    for name, seconds in times.items():
        reasoner.apply(rules=[(alert, 1)] if "goes on" in name else [(alert, -1)])
        for n in range(runs):
            for weight in (1, -1):
                start = time.perf_counter()
                result = reasoner.apply(facts={"edge": [((LONG, LONG + 1 + n), weight)]})
                seconds.append(time.perf_counter() - start)
        away = ", ".join(sorted(reasoner.database.places.away())) or "nothing"
        note = f"{result.cost['derivations']:,} derivations, {result.placement}; on Spark: {away}"
    return [
        figure(f"{what}, an update {name}", seconds, "s", target, note) for name, seconds in times.items()
    ]


def cluster(source: SparkSource, memory: int) -> list[Figure]:
    """Bootstraps of closures of growing size on `auto`; the note is the reason that the epoch gives."""
    figures = []
    reasoner = Reasoner("auto", spark=source, budget=Budget(memory=memory))
    reasoner.apply(rules=[("reach(x, y) :- link(x, y).", 1), ("reach(x, z) :- reach(x, y), link(y, z).", 1)])
    for nodes in (200, 1000, 2000):
        for again in (False, True):
            start = time.perf_counter()
            change: dict[str, Any] = (
                {"link": rmat(nodes, 10 * nodes)} if not again else {"link": [((-1, nodes), 1)]}
            )
            result = reasoner.apply(facts=change, strategy="bootstrap" if again else None)
            seconds = [time.perf_counter() - start]
            name = f"closure of {reasoner.count('reach'):,} tuples, {'again' if again else 'grown'}"
            figures.append(figure(name, seconds, "s", None, f"{result.placement}: {result.reason}"))
    reasoner.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--runs", type=int, default=3, help="updates of each kind, each there and back (default 3)"
    )
    parser.add_argument("--only", default="", help="auto, spark or cluster: only this part")
    parser.add_argument(
        "--memory", type=parse_size, default="48MiB", help="the memory budget (default 48MiB)"
    )
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    source = SparkSource(SparkOptions(master=options.master, partitions=options.partitions, timeout=600))
    figures: list[Figure] = []
    try:
        if options.only in ("", "auto"):
            reasoner = Reasoner("auto", spark=source, budget=Budget(memory=options.memory))
            reasoner.apply(facts=facts(), rules=rules())
            figures += updates(reasoner, "auto, by stratum", 1, options.runs)
            reasoner.close()
        if options.only in ("", "spark"):
            reasoner = Reasoner("spark", spark=source)
            reasoner.apply(facts=facts(), rules=rules())
            figures += updates(reasoner, "everything on Spark", None, 1)
            reasoner.close()
        if options.only == "cluster":
            figures += cluster(source, max(options.memory, 4 << 30))
    finally:
        source.close()
    show("mixed", figures, options.json)


if __name__ == "__main__":
    main()
