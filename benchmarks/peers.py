"""Zedlog and other engines on the same programs and facts, in one run: the ratios that count are those of one table.

    python -m benchmarks.peers [--json FILE] [--runs N] [--only WORD] [--slow]

The peers are differential dataflow, ascent and datafrog, each with one thread; benchmarks/peers/ holds the programs as
their users would write them, and `cargo build` makes them first, which takes some minutes. Without cargo Zedlog is
measured alone. Everyone runs in turn, `runs` times. A time is that of the work from facts in memory to the result:
reading files is left out, and compiling the peers' programs and loading Zedlog's kernels too. Zedlog's facts are held
already when the rules come; the peers' times contain what they do with the facts first, such as sorting them. Each
result must have as many tuples as ours. What the peers need a minute or more for is left out without --slow.

The graphs are made here, but for a tree that is read from ../shared/data, like LUBM-1, and left out where it is not
there. `away` and `back`: a fact is retracted and added again, a hundred of them in turn, or 1 % of all facts;
differential dataflow is the only peer that can do this. The program analysis (benchmarks/analysis.dl) is given to
ascent alone, whose language takes its rules nearly as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.analysis import SIZE
from benchmarks.analysis import facts as analysis_facts
from benchmarks.analysis import rules as analysis_rules
from benchmarks.engine import DATA, LINEAR, NON_LINEAR, RDFS, SAME_GENERATION, Array, lubm_boxes, rmat
from benchmarks.report import Figure, figure, machine, write
from engine.resident.warm import load_all
from zedlog import Reasoner

CRATE = Path(__file__).with_name("peers")
CHANGES = 100
PARTS = 5
WHAT = {
    "bootstrap": "",
    "away": ", one fact away",
    "back": ", one fact back",
    "part_away": ", 1 % away",
    "part_back": ", 1 % back",
}
"""What is measured -> what the table calls it."""

Seconds = dict[str, list[float]]
"""What was measured -> the seconds of each time."""
Contestant = Callable[[bool], tuple[int, Seconds]]
"""Whether changes are made too -> (tuples of the result, seconds)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A program over facts. `program` is the peers' word for it; head: None for all relations; changes: facts go and
    come back."""

    program: str
    rules: Sequence[str]
    facts: Mapping[str, Array]
    head: str | None
    peers: Sequence[str] = ("differential", "ascent", "datafrog")
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What everyone needed for one thing."""

    name: str
    figures: Mapping[str, Figure]

    def ratio(self) -> str:
        """Our median with one thread, divided by the best median of the peers."""
        mine, *others = (f.median for name, f in self.figures.items() if name != OURS[2])
        return f"{mine / min(others):.2g}" if others else ""


OURS = {1: "Zedlog", 2: "Zedlog, 2 threads"}


def graph(program: str, rules: list[str], edges: Array, *, changes: bool = False) -> Workload:
    return Workload(program, rules, {"arc": edges}, rules[0].partition("(")[0], changes=changes)


def tree() -> Workload | None:
    path = DATA / "tree11.csv"
    if not path.exists():
        print(f"tree11 left out: {DATA} has none")
        return None
    return graph("linear", LINEAR, np.loadtxt(path, dtype=np.int64, delimiter=","), changes=True)


def lubm() -> Workload | None:
    boxes = lubm_boxes()
    if boxes is None:
        return None
    return Workload("rdfs", RDFS, {"t": np.unique(np.concatenate(boxes), axis=0)}, "t", changes=True)


def workloads(only: str, slow: bool) -> Iterator[tuple[str, Workload]]:
    """Those whose name holds the word, made one after the other."""
    chain = np.stack((np.arange(999), np.arange(1, 1000)), axis=1)
    sparse = np.unique(np.random.default_rng(1).integers(0, 3000, (15_000, 2)), axis=0)
    made: dict[str, Callable[[], Workload | None]] = {
        "linear closure of R-MAT": lambda: graph("linear", LINEAR, rmat(1000, 10_000)),
        SLOW: lambda: graph("nonlinear", NON_LINEAR, rmat(1000, 10_000)),
        "same generation on R-MAT": lambda: graph("generation", SAME_GENERATION, rmat(1000, 10_000)),
        "linear closure of tree11": tree,
        "linear closure of a chain of 1,000": lambda: graph("linear", LINEAR, chain),
        "linear closure of 15,000 random edges": lambda: graph("linear", LINEAR, sparse),
        "LUBM-1 RDFS": lubm,
        "program analysis": lambda: Workload(
            "analysis", analysis_rules(), analysis_facts(SIZE), None, ("ascent",)
        ),
    }
    for name, make in made.items():
        if only in name and name == SLOW and not slow:
            print(f"{name} left out: each peer needs one or two minutes for it (--slow)")
        elif only in name and (workload := make()) is not None:
            yield name, workload


SLOW = "non-linear closure of R-MAT"


def build() -> Path | None:
    """The peers' program; None, with a line that says why, where it cannot be had."""
    if shutil.which("cargo") is None:
        print("The peers are left out: there is no cargo (https://rustup.rs).")
        return None
    done = subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet"], cwd=CRATE, capture_output=True, text=True
    )
    if done.returncode:
        print(f"The peers are left out: cargo build in {CRATE} failed.\n{done.stderr}")
        return None
    return CRATE / "target" / "release" / "zedlog-peers"


def ours(workload: Workload, threads: int, changes: bool) -> tuple[int, Seconds]:
    """(tuples of the result, seconds): the rules are added to loaded facts."""
    reasoner = Reasoner(threads=threads)
    reasoner.apply(facts=workload.facts)
    start = time.perf_counter()
    reasoner.apply(rules=[(rule, 1) for rule in workload.rules])
    seconds: Seconds = {"bootstrap": [time.perf_counter() - start]}
    tuples = sum(map(reasoner.count, [workload.head] if workload.head else reasoner.relations()))
    return tuples, seconds | (_changed(reasoner, workload) if changes else {})


def _changed(reasoner: Reasoner, workload: Workload) -> Seconds:
    [(relation, rows)] = workload.facts.items()
    rng = np.random.default_rng(7)
    chosen = [rng.choice(len(rows), 1) for _ in range(CHANGES)]
    chosen += [rng.choice(len(rows), len(rows) // 100, replace=False) for _ in range(PARTS)]
    seconds: Seconds = {"away": [], "back": [], "part_away": [], "part_back": []}
    for places in chosen:
        part = [tuple(row) for row in rows[places].tolist()]
        for weight, word in ((-1, "away"), (1, "back")):
            start = time.perf_counter()
            reasoner.apply(facts={relation: [(row, weight) for row in part]})
            seconds[word if len(part) == 1 else f"part_{word}"].append(time.perf_counter() - start)
    return seconds


def theirs(program: Path, peer: str, workload: Workload, folder: Path, changes: bool) -> tuple[int, Seconds]:
    """As `ours`, by a peer; `folder` has the facts, a file for each relation."""
    more = [str(CHANGES), str(PARTS)] if changes and peer == "differential" else []
    done = subprocess.run([program, peer, workload.program, folder, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{peer} failed at {workload.program}: {done.stderr}")
    told = json.loads(done.stdout)
    return told.pop("tuples"), told


def contestants(workload: Workload, program: Path | None, folder: Path) -> dict[str, Contestant]:
    """Zedlog, and the peers that have the program; `folder` gets the facts."""
    found: dict[str, Contestant] = {
        title: partial(ours, workload, threads) for threads, title in OURS.items()
    }
    for relation, rows in workload.facts.items():
        np.savetxt(folder / relation, rows, fmt="%d")
    if program is not None:
        found |= {peer: partial(theirs, program, peer, workload, folder) for peer in workload.peers}
    return found


def in_turns(
    name: str, all: Mapping[str, Contestant], changes: bool, runs: int, slow: list[str] | None = None
) -> dict[str, dict[str, list[float]]]:
    """What was measured -> contestant -> seconds; changes are made in the first turn only. Whoever runs out of a time
    limit is named in `slow` and takes no further part."""
    found: dict[str, dict[str, list[float]]] = {}
    counts: dict[str, int] = {}
    for turn in range(runs):
        for title, contestant in all.items():
            if slow and title in slow:
                continue
            try:
                counts[title], seconds = contestant(changes and turn == 0)
            except subprocess.TimeoutExpired:
                if slow is None:
                    raise
                slow.append(title)
                continue
            for what, times in seconds.items():
                found.setdefault(what, {}).setdefault(title, []).extend(times)
    if len(set(counts.values())) > 1:
        raise SystemExit(f"{name}: the results differ in size: {counts}")
    return found


def measure(name: str, workload: Workload, program: Path | None, runs: int) -> list[Row]:
    """A row for the bootstrap, and one for each kind of change."""
    with tempfile.TemporaryDirectory() as folder:
        found = in_turns(name, contestants(workload, program, Path(folder)), workload.changes, runs)
    return [
        Row(
            name + WHAT[what],
            {title: figure(f"{name}{WHAT[what]}: {title}", times, "s") for title, times in all.items()},
        )
        for what, all in found.items()
    ]


def show(rows: Sequence[Row]) -> None:
    """One table: median and best of everyone."""
    titles = list(dict.fromkeys(title for row in rows for title in row.figures))
    about = machine()
    table = Table(title=f"Peers ({about['cores']} cores, {about['processor']}): median (best), in ms")
    table.add_column("what", min_width=44)
    for title in (*titles, "Zedlog / best peer"):
        table.add_column(title, justify="right")
    for row in rows:
        figures = map(row.figures.get, titles)
        cells = (f"{_ms(f.median)} ({_ms(f.best)})" if f else "" for f in figures)
        table.add_row(row.name, *cells, row.ratio())
    Console(width=150).print(table)


def _ms(seconds: float) -> str:
    """Three digits or more."""
    ms = seconds * 1000
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--only", default="", help="only the workloads whose name holds this word")
    parser.add_argument("--slow", action="store_true", help="also what some peers need minutes for")
    options = parser.parse_args()
    program = build()
    # Nobody's first run loads anything.
    load_all()
    ours(graph("linear", LINEAR, rmat(20, 30)), 1, changes=False)
    rows = [
        row
        for name, workload in workloads(options.only, options.slow)
        for row in measure(name, workload, program, options.runs)
    ]
    show(rows)
    write([figure for row in rows for figure in row.figures.values()], options.json)


if __name__ == "__main__":
    main()
