"""How the work on Spark grows with the data and with the partitions: 1x, 4x, 16x, and 1, 2, 4, 8 of them.

    python -m benchmarks.growth [--json FILE] [--runs N] [--only WORD] [--master local[2]]

What is k times as large is made of k copies that share nothing but the schema, so that derivations grow k-fold too:

    pivoted   the linear closure of an R-MAT graph of 250 vertices and 2,500 edges; 16x has as many tuples as that of
              benchmarks/spark.py, and more would not fit the default driver
    general   RDFS over the terms of LUBM-1 and every sixteenth of its assertions; 16x is as large as LUBM-1
    epoch     one fact of the same retracted, and added again
    import    LUBM-1 in N-Triples, a plain file a copy, end to end as in benchmarks/bulk.py, evaluated resident

Data grows at 2 partitions, and partitions at 4x. Each row's note gives its best time as a multiple of the first row's
of its series. The rows of a case take turns, so that all meet the same machine, and the first turn is not counted: in
it the JVM compiles. CPU seconds are those of the JVM in the best turn, with the loading before it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bulk import Run, copies_of
from benchmarks.engine import DATA, LINEAR, RDFS, Array, lubm_boxes, rmat
from benchmarks.report import Figure, figure, show
from benchmarks.spark import bootstrap, epochs
from engine.spark.session.session import SparkOptions, SparkSource
from engine.storage.embedded import EmbeddedServer

BY_DATA, BY_PARTITIONS = [(1, 2), (4, 2), (16, 2)], [(4, 1), (4, 2), (4, 4), (4, 8)]
"""(copies, partitions) of the rows."""
VOCABULARY = np.arange(5)
"""The codes that the RDFS rules name."""
Measure = Callable[[SparkSource, int], Figure]
"""One run with so many copies; a figure of it."""


def disjoint(rows: Array, number: int, shared: Array) -> Array:
    """Copies of rows that have only the codes of `shared` in common."""
    step = max(int(rows.max()), int(shared.max(initial=0))) + 1
    own = ~np.isin(rows, shared)
    return np.concatenate([rows + own * (i * step) for i in range(number)])


def graph(copies: int) -> Array:
    return disjoint(rmat(250, 2_500), copies, np.empty(0, np.int64))


def triples(boxes: tuple[Array, Array], copies: int) -> Array:
    assertions, terms = boxes
    shared = np.union1d(terms, VOCABULARY)
    return np.concatenate((disjoint(assertions[::16], copies, shared), terms))


def pivoted(source: SparkSource, copies: int) -> Figure:
    return bootstrap("", source, graph(copies), "arc", LINEAR, "tc", None, 1)[0]


def general(boxes: tuple[Array, Array], source: SparkSource, copies: int) -> Figure:
    return bootstrap("", source, triples(boxes, copies), "t", RDFS, "t", None, 1)[0]


def epoch(boxes: tuple[Array, Array], source: SparkSource, copies: int) -> Figure:
    times, note = epochs(source, triples(boxes, copies), 1)
    return figure("", times[-1] + times[1], "s", note=note)


def imported(folder: Path, run: Run, source: SparkSource, copies: int) -> Figure:
    source.session().conf.set("spark.sql.shuffle.partitions", str(source.options.partitions))
    rows, seconds, _ = run(copies_of(DATA / "lubm1.nt.gz", folder, copies), folder)
    return figure("", [sum(seconds.values())], "s", note=f"{rows:,} rows")


def series(title: str, measure: Measure, source: SparkSource, run: Run, turns: int) -> list[Figure]:
    """One case over the data, and over the partitions."""
    taken: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for _ in range(turns + 1):
        for size in dict.fromkeys(BY_DATA + BY_PARTITIONS):
            there = SparkSource(replace(source.options, partitions=size[1]), source.session())
            before = run.cpu()[0]
            found = measure(there, size[0])
            taken.setdefault(size, []).append((found.median, run.cpu()[0] - before, found.note))
    rows = []
    for sizes in (BY_DATA, BY_PARTITIONS):
        first = min(taken[sizes[0]][1:])[0]
        for size in sizes:
            counted = taken[size][1:]
            best, cpu, note = min(counted)
            name = f"{title}, {size[0]}x, {size[1]} partitions"
            text = f"{best / first:.2f} of the first; JVM {cpu:.1f} CPU s; {note}"
            rows.append(figure(name, [seconds for seconds, _, _ in counted], "s", note=text))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="counted turns (default 3)")
    parser.add_argument("--only", default="", help="only the cases whose name holds this word")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    source = SparkSource(SparkOptions(master=options.master))
    with tempfile.TemporaryDirectory() as name, EmbeddedServer(Path(name) / "server") as server:
        run = Run(source.session(), Path(name), server.url)
        cases: dict[str, Measure] = {"pivoted": pivoted}
        boxes = lubm_boxes()
        if boxes is not None:
            cases |= {"general": partial(general, boxes), "epoch": partial(epoch, boxes)}
        if (DATA / "lubm1.nt.gz").exists():
            cases["import"] = partial(imported, Path(name), run)
        figures = [
            row
            for title, measure in cases.items()
            if options.only in title
            for row in series(title, measure, source, run, options.runs)
        ]
    source.close()
    show(f"Growth on Spark, {options.master}", figures, options.json)


if __name__ == "__main__":
    main()
