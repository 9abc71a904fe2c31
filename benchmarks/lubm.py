"""Universities of growing number on both placements: import, bootstrap under RDFS and OWL 2 RL, and updates.

    python -m benchmarks.lubm [--json FILE] [--page FILE] [--universities 1,5,20] [--placements resident,spark]
                              [--rules rdfs,owl-rl] [--runs N] [--seed N] [--master local[2]]
                              [--partitions N] [--memory 4g] [--timeout 120]
    python -m benchmarks.lubm --write FOLDER [--universities 1] [--seed N]

The data is made by benchmarks/university.py; `--write` only writes it, as N-Triples that `zedlog import` reads. For
each number of universities, placement and set of rules there is a process of its own, so that its peak memory is told
apart: it imports the files through Spark into an empty database, adds the rules (the bootstrap), and then retracts and
adds again single triples and one per cent of all. Spark's start is in no figure; the import is one in which the JVM
compiles. The last rows say how many times as long each step takes with the most universities as with the fewest; the
target is how many times as many triples there are, so growth is at most linear where it is met.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks import university
from benchmarks.report import Figure, figure, machine, show
from engine.bulk.batches import BatchStore
from engine.bulk.importing import Importer
from engine.bulk.request import TRIPLE, ImportRequest
from engine.bulk.rules import added_rules
from engine.bulk.sources import Places, sources_of
from engine.data.transaction import Transaction
from engine.database.epoch import EpochRecord
from engine.ontology.library import OWL_RL, RDFS
from engine.ontology.triples import Triple, parse_triples
from engine.spark.session.session import SparkOptions, SparkSource
from zedlog import Reasoner

SETS = {"rdfs": RDFS, "owl-rl": OWL_RL}
PLACEMENTS = ("resident", "spark")


@dataclass(frozen=True, slots=True)
class Case:
    """One process: what it measures, and how."""

    universities: int
    placement: str
    rules: str
    folder: str
    spark: SparkOptions
    runs: int
    seed: int

    @property
    def name(self) -> str:
        return f"LUBM-{self.universities}, {self.placement}, {self.rules}"


@dataclass(frozen=True, slots=True)
class Measured:
    """triples: of the data. steps: seconds of each run, by the name of the step. notes: what else is to be said."""

    triples: int
    steps: dict[str, list[float]]
    notes: dict[str, str]
    memory: float
    """The most MiB that the process had, and on Spark its JVM too."""


def measured(case: Case) -> Measured:
    """Everything of one case, in this process."""
    source = SparkSource(case.spark)
    session = source.session()
    reasoner = Reasoner(case.placement, spark=source)
    try:
        with tempfile.TemporaryDirectory() as name:
            return _measured(case, session, reasoner, BatchStore(Path(name)))
    finally:
        reasoner.close()
        source.close()


def _measured(case: Case, session: Any, reasoner: Reasoner, store: BatchStore) -> Measured:
    paths = _paths(case)
    request = ImportRequest(tuple(path.name for path in paths), "ntriples", rules=SETS[case.rules])
    start = time.perf_counter()
    importer = Importer(session, store, "import", store.root / "rejects.jsonl")
    sources = sources_of(request, Places(import_root=Path(case.folder)))
    done = importer.run(replace(request, rules=None), sources, {})
    _committed(reasoner, store.load(done.transaction(replace(request, rules=None))))
    steps = {"import": [time.perf_counter() - start]}
    added = added_rules(request, store, done.batches)
    start = time.perf_counter()
    record = _committed(reasoner, Transaction(rules=added.rules, facts=added.facts))
    steps["bootstrap"] = [time.perf_counter() - start]
    notes = {
        "import": f"{done.tuples:,} triples",
        "bootstrap": f"{len(added.rules)} rules, {record.derivations:,} derivations, "
        f"{reasoner.count(TRIPLE):,} triples after it",
    }
    random = Random(case.seed)
    some = _sample(paths[1:], done.tuples, max(case.runs, done.tuples // 100), random)
    for title, parts in (("one triple", [[one] for one in some[: case.runs]]), ("1 %", [some] * case.runs)):
        for part in parts:
            for weight, what in ((-1, "retracted"), (1, "added")):
                step = f"{title} {what}"
                start = time.perf_counter()
                reasoner.apply(facts={TRIPLE: [(one, weight) for one in part]})
                steps.setdefault(step, []).append(time.perf_counter() - start)
                notes[step] = f"{len(part):,} triples"
    return Measured(done.tuples, steps, notes, _peak(case, session))


def _committed(reasoner: Reasoner, transaction: Transaction) -> EpochRecord:
    """The record of a transaction's epoch."""
    done = reasoner.commit([transaction])
    (outcome,) = done.outcomes
    if isinstance(outcome, Exception):
        raise outcome
    assert done.record is not None, "it changes something"
    return done.record


def _paths(case: Case) -> list[Path]:
    folder = Path(case.folder)
    return [folder / "univ-bench.nt", *(folder / f"university{i}.nt" for i in range(case.universities))]


def _sample(paths: Sequence[Path], triples: int, number: int, random: Random) -> list[Triple]:
    """So many distinct statements from anywhere in the files."""
    share, found = min(1.0, 1.2 * number / triples + 0.01), dict[Triple, None]()
    for path in paths:
        with path.open("rb") as lines:
            kept = b"".join(line for line in lines if random.random() < share)
        found |= dict.fromkeys(parse_triples(kept, ".nt", path.name))
    assert len(found) >= number, "the share has room for it"
    return random.sample(list(found), number)


def _peak(case: Case, session: Any) -> float:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if case.placement != "spark":
        return own
    jvm = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    lines = Path(f"/proc/{jvm}/status").read_text().splitlines()
    return own + sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def figures_of(case: Case, found: Measured) -> list[Figure]:
    """The rows of one case."""
    rows = [
        figure(f"{case.name}: {step}", seconds, "s", note=found.notes.get(step, ""))
        for step, seconds in found.steps.items()
    ]
    whose = (
        "the process and its JVM"
        if case.placement == "spark"
        else "the process; the import's JVM is not in it"
    )
    return [*rows, figure(f"{case.name}: peak memory", [found.memory], "MiB", note=whose)]


def series(cases: Sequence[tuple[Case, Measured]]) -> list[list[tuple[Case, Measured]]]:
    """The cases of each placement and set of rules, from the fewest universities to the most."""
    found: dict[tuple[str, str], list[tuple[Case, Measured]]] = {}
    for case, one in sorted(cases, key=lambda pair: pair[0].universities):
        found.setdefault((case.placement, case.rules), []).append((case, one))
    return list(found.values())


def grown(first: Measured, last: Measured, step: str) -> float:
    """How many times as long a step takes."""
    return float(np.median(last.steps[step]) / np.median(first.steps[step]))


def growth(mine: Sequence[tuple[Case, Measured]]) -> list[Figure]:
    """How each step of a series grows."""
    (few, first), (many, last) = mine[0], mine[-1]
    if few.universities == many.universities:
        return []
    times = last.triples / first.triples
    title = f"LUBM-{few.universities} to {many.universities}, {few.placement}, {few.rules}"
    note = f"{times:.3g} times as many triples"
    return [figure(f"{title}: {step}", [grown(first, last, step)], "x", times, note) for step in last.steps]


def page(cases: Sequence[tuple[Case, Measured]], command: str, load: str) -> str:
    """The results as a page of the documents."""
    about = machine()
    lines = [
        "# Universities of growing number",
        "",
        "Made by `benchmarks/lubm.py`, which says what is measured: data of the shape of LUBM, with the rules of RDFS "
        "and of OWL 2 RL, on both placements. Seconds are medians, with the least and the greatest in brackets.",
        "",
        f"{about['cores']} cores ({about['processor']}), {load}, Python {about['python']}: `{command}`",
    ]
    for mine in series(cases):
        (case, first), (_, last) = mine[0], mine[-1]
        times = last.triples / first.triples
        heads = [f"LUBM-{one.universities}" for one, _ in mine]
        lines += ["", f"## {case.rules} on {case.placement}", "", f"| | {' | '.join(heads)} | grows |"]
        lines += [f"|---|{'---|' * len(mine)}---|"]
        counts = " | ".join(f"{found.triples:,}" for _, found in mine)
        lines.append(f"| triples | {counts} | {times:.3g} x |")
        for step in last.steps:
            cells = " | ".join(_cell(found.steps[step]) for _, found in mine)
            lines.append(f"| {step} | {cells} | {grown(first, last, step):.3g} x |")
        memory = " | ".join(f"{found.memory:,.0f} MiB" for _, found in mine)
        lines.append(f"| peak memory | {memory} | {last.memory / first.memory:.3g} x |")
        missed = [step for step in last.steps if grown(first, last, step) > times]
        if missed:
            lines += ["", f"Missed, for it grows faster than the data: {', '.join(missed)}."]
    return "\n".join(lines) + "\n"


def _cell(seconds: Sequence[float]) -> str:
    spread = f" ({min(seconds):.2g}-{max(seconds):.2g})" if len(seconds) > 1 else ""
    return f"{np.median(seconds):.3g} s{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--page", type=Path, help="also write the results to this file, as Markdown")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the data, as N-Triples")
    parser.add_argument("--universities", type=_numbers, default=[1, 5, 20], metavar="N,...")
    parser.add_argument(
        "--placements", type=_some_of(PLACEMENTS), default=list(PLACEMENTS), metavar="NAME,..."
    )
    parser.add_argument("--rules", type=_some_of(tuple(SETS)), default=list(SETS), metavar="NAME,...")
    parser.add_argument("--runs", type=int, default=5, help="updates of each kind (default 5)")
    parser.add_argument("--seed", type=int, default=university.SEED, help="of the data (default %(default)s)")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--memory", default="4g", help="of the JVM (default 4g)")
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="seconds for Spark to start (default 120)"
    )
    options = parser.parse_args()
    if options.write is not None:
        files = university.write(options.write, max(options.universities), options.seed)
        print(
            f"wrote {len(files)} files to {options.write}; read them with: zedlog import {options.write}/*.nt --rdfs"
        )
        return
    spark = SparkOptions(
        master=options.master, partitions=options.partitions, memory=options.memory, timeout=options.timeout
    )
    done: list[tuple[Case, Measured]] = []
    with tempfile.TemporaryDirectory() as folder:
        university.write(Path(folder), max(options.universities), options.seed)
        for rules in options.rules:
            for placement in options.placements:
                for number in sorted(options.universities):
                    case = Case(number, placement, rules, folder, spark, options.runs, options.seed)
                    print(f"{case.name} ...", flush=True)
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        done.append((case, process.submit(measured, case).result()))
    load = f"load {os.getloadavg()[0]:.1f}"
    if options.page is not None:
        options.page.write_text(page(done, " ".join(["python -m benchmarks.lubm", *sys.argv[1:]]), load))
    figures = [row for case, found in done for row in figures_of(case, found)]
    figures += [row for mine in series(done) for row in growth(mine)]
    show(f"LUBM, {options.master}, {load}", figures, options.json)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        parts = text.split(",")
        for part in parts:
            if part not in known:
                raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(known)}")
        return parts

    return parse


if __name__ == "__main__":
    main()
