"""How long a large database is without its engine after `kill -9`: embedded server, engine and service as
`zedlog serve` runs them, until a write is acknowledged again.

    python -m benchmarks.restart [--json FILE] [--data-dir DIR] [--nodes N] [--runs N]

The program is the closure of a tree whose node i hangs below one of the thousand nodes before it: 100,000 facts, 10
million derived tuples. The engine is killed with and without epochs after its checkpoint, and once without one, for
comparison. The parts are the engine's own: what its log says. Processor time is what to compare on a machine that does
other work too.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np

from benchmarks.report import Figure, figure, show
from engine.storage.connection import connect
from engine.storage.keys import Keys
from service.cli.serve import Deployment, run
from service.cli.supervisor import STEADY_SECONDS

RULES = ("tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).")
REACH = 1000
TARGET = 3.0
FURTHER = 100


def tree(nodes: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """int64[nodes - 1, 2]: (parent, child)."""
    child = np.arange(1, nodes)
    parent = np.maximum(child - np.random.default_rng(1).integers(1, REACH, nodes - 1), 0)
    return np.stack((parent, child), 1)


class Served:
    """A running service, and the files of its engine."""

    def __init__(self, url: str, folder: Path) -> None:
        self.client = httpx.Client(base_url=url, timeout=600, trust_env=False)
        self.log = folder / "zedlog.log"
        self.checkpoint = folder / "checkpoint" / "default.checkpoint"
        self._redis = connect(f"unix://{folder.absolute()}/redis.sock")

    def write(self, **body: object) -> None:
        self.client.post("/v1/transactions", json=body).raise_for_status()

    def edge(self, weight: int) -> None:
        """A leaf comes or goes."""
        self.write(facts=[{"relation": "edge", "tuples": [[7, -1]], "weight": weight}])

    @property
    def _pid(self) -> int:
        return int(self._redis.hget(Keys("default").status, "pid") or 0)  # type: ignore[arg-type]

    def killed(self) -> tuple[float, float, str]:
        """Kill the engine: (seconds until a write is acknowledged, of them processor time of the new engine, what it
        has logged).
        """
        # One that ends sooner is restarted after a longer pause.
        time.sleep(STEADY_SECONDS + 1)
        logged = self.log.stat().st_size
        start = time.perf_counter()
        os.kill(self._pid, signal.SIGKILL)
        self.edge(1)
        seconds, processor = time.perf_counter() - start, processor_seconds(self._pid)
        self.edge(-1)
        return seconds, processor, self.log.read_bytes()[logged:].decode()


def processor_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.1)


def measure(served: Served, nodes: int, runs: int) -> list[Figure]:
    edges = tree(nodes)
    for begin in range(0, len(edges), 10_000):
        served.write(facts=[{"relation": "edge", "tuples": edges[begin : begin + 10_000].tolist()}])
    served.write(rules=[{"rule": rule} for rule in RULES])
    until(served.checkpoint.exists)
    size = served.checkpoint.stat().st_size / 1e6
    counts = served.client.get("/v1/relations").json()["relations"]
    tuples = next(r["counts"]["all"] for r in counts if r["relation"] == "tc")
    name = f"{tuples / 1e6:.1f} million derived tuples"
    figures = [figure(f"{name}: the checkpoint", [size], "MB")]
    for further in (0, FURTHER):
        seconds, processor, own = [], [], []
        for _ in range(runs):
            for number in range(further):
                served.edge(1 - 2 * (number % 2))
            elapsed, used, said = served.killed()
            assert "from the checkpoint of epoch" in said, said
            seconds.append(elapsed)
            processor.append(used)
            own.append(
                [float(found) for found in re.findall(r"(?:recovered in|, in|\() ?([\d.]+) s", said)[:3]]
            )
        what = f"{name}, {further or 'few'} epochs and more after the checkpoint"
        figures.append(figure(f"{what}: a write is acknowledged", seconds, "s", TARGET))
        figures.append(figure(f"{what}: processor time of the engine until then", processor, "s"))
        for place, part in enumerate(("taking it up", "of that, waiting for the file", "recovery in all")):
            figures.append(figure(f"{what}: {part}", [parts[place] for parts in own], "s"))
        rest = [whole - parts[-1] for whole, parts in zip(seconds, own, strict=True)]
        figures.append(figure(f"{what}: process, imports, kernels, the write", rest, "s"))
    served.checkpoint.unlink()
    elapsed, used, said = served.killed()
    assert "deriving anew" in said, said
    what = f"{name}, without a checkpoint"
    figures.append(figure(f"{what}: a write is acknowledged", [elapsed], "s"))
    return [*figures, figure(f"{what}: processor time of the engine until then", [used], "s")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--data-dir", type=Path, help="where the data lies meanwhile (default: temporary)")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    figures: list[Figure] = []
    # As an installed package: its modules are not compiled at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data_dir or Path(temporary)

        def told(url: str) -> bool:
            figures.extend(measure(Served(url, folder), options.nodes, options.runs))
            return False

        run(Deployment(folder, port=0), told)
    show("Restart", figures, options.json)


if __name__ == "__main__":
    main()
