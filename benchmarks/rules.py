"""The cost of rules: what an epoch takes in a large program, beside what it changes.

    python -m benchmarks.rules [--json FILE] [--rules N] [--runs N]

Programs of N rules in three shapes: `apart`, where no two rules share a relation; `chain`, where each rule reads the
head of the one before, and all read `edge`; `one head`, where all rules have the same head. Nothing is declared. For
each: all rules in one transaction, a fact of a relation that no rule mentions, a fact that one rule reads, one rule
added and removed again. `lines` is a text of N / 2 rules and as many facts, run as `zedlog run` does. The resident
placement, in this process; times are wall clock.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from benchmarks.report import Figure, figure, show, timed
from zedlog import Reasoner

FACT_MS, RULE_MS, ALL_SECONDS = 2.0, 20.0, 5.0


def apart(i: int) -> str:
    return f"p{i}(x, y) :- q{i}(x, z), r{i}(z, y), x != y."


def chain(i: int) -> str:
    return f"p{i + 1}(x, y) :- p{i}(x, z), edge(z, y)."


def one_head(i: int) -> str:
    return f"p(x, y) :- q{i}(x, z), edge(z, y)."


SHAPES: dict[str, tuple[Callable[[int], str], float]] = {
    # What one rule makes, and how many rules for each of N.
    "apart": (apart, 1.0),
    "chain": (chain, 1.0),
    "one head": (one_head, 0.4),
}


def shape(name: str, rules: int, runs: int) -> list[Figure]:
    make, share = SHAPES[name]
    count = round(rules * share)
    reasoner = Reasoner("resident")
    # What is compiled, and built once for all, is not part of any figure.
    reasoner.apply(rules=[("warm(x) :- up(x).", 1)], facts={"up": [((1,), 1)]})
    start = time.perf_counter()
    reasoner.apply(rules=[(make(i), 1) for i in range(count)])
    figures = [
        figure(f"{name}: {count:,} rules in one transaction", [time.perf_counter() - start], "s", ALL_SECONDS)
    ]

    def in_ms(what: str, steps: Callable[[int], object], target: float) -> None:
        steps(-1)
        seconds = [one for run in range(runs) for one in timed(lambda run=run: steps(run), 1)]  # type: ignore[misc]
        figures.append(figure(f"{name}: {what}", [1000 * one for one in seconds], "ms", target))

    in_ms("a fact beside them", lambda run: reasoner.apply(facts={"apart_from": [((run, 1), 1)]}), FACT_MS)
    read = {"apart": f"q{count // 2}", "chain": f"p{count - 2}", "one head": f"q{count // 2}"}[name]
    in_ms("a fact that one rule reads", lambda run: reasoner.apply(facts={read: [((run, 1), 1)]}), FACT_MS)
    in_ms("one rule more", lambda run: reasoner.apply(rules=[(make(count + 1 + run), 1)]), RULE_MS)
    in_ms("one rule less", lambda run: reasoner.apply(rules=[(make(count + 1 + run), -1)]), RULE_MS)
    return figures


def lines(rules: int) -> list[Figure]:
    """A program of rules and facts, as `zedlog run` takes it."""
    from engine.files.batch import FileRun

    half = rules // 2
    text = "\n".join(
        [chain(i) for i in range(half)] + [f"edge({i}, {i + 1})." for i in range(half)] + ["p0(0, 0)."]
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        FileRun.of(text).run(Path(folder), None, BytesIO(), BytesIO())
        return [figure(f"a text of {rules:,} lines", [time.perf_counter() - start], "s", ALL_SECONDS)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rules", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    figures = [f for name in SHAPES for f in shape(name, options.rules, options.runs)]
    show("Rules", figures + lines(options.rules), options.json)


if __name__ == "__main__":
    main()
