"""How long commands take to start: whole processes, from an installed package with byte code and compiled kernels.

    python -m benchmarks.start [--json FILE] [--runs N]

Each command is run once unmeasured. Processor time (user and system) is what to compare between machines and days: wall
time also has the waiting for other processes. `status` asks a port at which nothing listens, so its figure is what the
command itself takes. The targets are those of the wall time on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure, figure, show

PROGRAM = """edge(1, 2). edge(2, 3).
tc(x, y) :- edge(x, y). tc(x, z) :- tc(x, y), edge(y, z).
.output tc
"""
LIBRARY = (
    "from zedlog import Reasoner; Reasoner().apply(facts={'n': [((1,), 1)]}, rules=[('m(x) :- n(x).', 1)])"
)


def processor_seconds() -> float:
    """What all children that have ended used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(name: str, command: list[str], folder: Path, runs: int, target: float | None) -> list[Figure]:
    """Wall and processor time of one command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall, processor = [], []
    for number in range(runs + 1):
        used, start = processor_seconds(), time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        elapsed, used = time.perf_counter() - start, processor_seconds() - used
        if "Traceback" in done.stderr:
            raise RuntimeError(f"{name} failed: {done.stderr}")
        if number > 0:
            wall.append(elapsed)
            processor.append(used)
    return [
        figure(f"{name}: wall time", wall, "s", target),
        figure(f"{name}: processor time", processor, "s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    python, zedlog = [sys.executable], [sys.executable, "-m", "zedlog"]
    nobody = "http://127.0.0.1:9"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.dl").write_text(PROGRAM)
        figures: list[Figure] = []
        for what, command, target in (
            ("zedlog --help", [*zedlog, "--help"], 0.35),
            ("zedlog status", [*zedlog, "--url", nobody, "status"], 0.35),
            ("zedlog run, three lines", [*zedlog, "run", "program.dl", "-D", "-"], 1.2),
            ("import zedlog", [*python, "-c", "import zedlog"], 0.3),
            ("a first transaction in the library", [*python, "-c", LIBRARY], 1.2),
            ("import numba, for comparison", [*python, "-c", "import numba"], None),
        ):
            figures += measured(what, command, folder, options.runs, target)
    show("Start", figures, options.json)


if __name__ == "__main__":
    main()
