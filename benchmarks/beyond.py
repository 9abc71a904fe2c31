"""A result that does not fit the driver: the closure of a layered graph on a Spark cluster, published by its executors.

    scripts/bench beyond [--tuples 5,50] [--executor-memory 3g] [--work-dir DIR]

An embedded server, a master with two workers, and an engine process with `placement=spark` whose driver's JVM may have
1 GiB. For each size (million derived tuples) a new database: facts, then the rules of the linear closure, as one
transaction each. Recorded until the epoch is published: the resident memory of the engine's Python process and of its
JVM, which together are the driver; the largest of each. What is published is then compared with a count and a digest
that are computed here, from the graph, without the engine's evaluation.

The graph has 8 layers of W nodes; from each node 20 edges go to random nodes of the next layer. So there are 7 heights
and the first argument is a pivot. It takes minutes and some gigabytes, so `scripts/bench` alone leaves it out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import Figure, figure, show
from engine.data.transaction import FactChange, RuleChange, Transaction
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.storage.child import dies_with_parent
from engine.storage.client import DatabaseClient
from engine.storage.digests import Digester
from engine.storage.embedded import EmbeddedServer
from engine.storage.manifest import in_hex
from tests.spark.standalone import Standalone, java_children

LAYERS, DEGREE = 8, 20
RULES = ("tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).")
MOST_MIB = 1024
"""What the driver's JVM may have, and what its Python process should stay below."""
Array = npt.NDArray[np.int64]


def graph(width: int) -> Array:
    """int64[n, 2]: the edges; a node is its layer times `width` and its place."""
    rng = np.random.default_rng(7)
    source = np.repeat(np.arange((LAYERS - 1) * width), DEGREE)
    target = (source // width + 1) * width + rng.integers(0, width, len(source))
    return np.unique(np.stack((source, target), 1), axis=0)


def closure(edges: Array, width: int) -> tuple[int, int]:
    """The number of tuples of `tc`, and its digest: reachability layer by layer, as products of matrices."""
    schema = Schema("tc", (Column("x", ColumnType.NUMBER), Column("y", ColumnType.NUMBER)))
    digester = Digester(_NoSymbols())
    steps = np.zeros((LAYERS - 1, width, width), np.float32)
    source = edges[:, 0]
    steps[source // width, source % width, edges[:, 1] % width] = 1
    number = digest = 0
    for first in range(LAYERS - 1):
        reach = np.eye(width, dtype=np.float32)
        for last in range(first, LAYERS - 1):
            reach = np.minimum(reach @ steps[last], 1)
            x, y = np.nonzero(reach)
            codes = np.stack((first * width + x, (last + 1) * width + y), 1)
            none, ones = np.zeros(len(codes), np.int64), np.ones(len(codes), np.bool_)
            change = RelationChange(codes, none, ones, ones.astype(np.int8), none, ~ones)
            digest = digester.changed(digest, schema, change, ())
            number += len(codes)
    return number, digest


class _NoSymbols:
    def get(self, names: Sequence[str], /) -> list[bytes]:
        raise AssertionError("the values are numbers")


def width_for(tuples: float) -> int:
    """The width at which the closure has about so many tuples: layers far apart are joined completely."""
    near = DEGREE * (LAYERS - 1), DEGREE * DEGREE * (LAYERS - 2)
    whole = (LAYERS - 3) * (LAYERS - 2) / 2
    return round((-sum(near) + (sum(near) ** 2 + 4 * whole * tuples) ** 0.5) / (2 * whole))


def run_as_engine(url: str, database: str, master: str, executor_memory: str) -> int:
    """The engine process, as `python -m engine.server` runs it, with a small driver."""
    from engine.server.loop import restore_reasoner, run_engine
    from engine.spark.session.session import SparkOptions, SparkSource

    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": executor_memory,
        "spark.executor.cores": "1",
    }
    spark = SparkSource(
        SparkOptions(master, partitions=8, copies=1, memory=f"{MOST_MIB}m", conf=conf, timeout=900)
    )
    return run_engine(
        url, database, None, partial(restore_reasoner, placement="spark", spark=spark), spark=spark
    )


class Watch:
    """Samples the resident memory of the driver's two processes, in MiB, until the block ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, float, float]] = []

    def __enter__(self) -> Watch:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            jvm = sum(map(_resident, java_children(self._pid)))
            self.samples.append((time.monotonic() - self._began, _resident(self._pid), jvm))

    def over_time(self) -> str:
        """Both, at ten moments."""
        chosen = self.samples[:: max(1, len(self.samples) // 10)]
        return "; ".join(f"{at:.0f} s: {python:.0f} + {jvm:.0f}" for at, python, jvm in chosen)


def _resident(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


async def applied(client: DatabaseClient, transaction: Transaction, engine: subprocess.Popen[bytes]) -> None:
    receipt = await client.append(transaction, None)
    while (outcome := await client.wait_outcome(receipt.transaction_id, 5)) is None:
        assert engine.poll() is None, "the engine ended; its output says why"
    assert outcome.status == "committed", outcome.body


async def measure(url: str, master: str, million: float, executor_memory: str, log: Path) -> list[Figure]:
    width = width_for(million * 1e6)
    edges = graph(width)
    number, digest = closure(edges, width)
    name, database = f"{number / 1e6:.1f} million derived tuples", f"beyond-{width}"
    print(f"{name}: {len(edges):,} edges", flush=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.beyond",
        "--as-engine",
        url,
        database,
        master,
        executor_memory,
    ]
    with log.open("ab") as output:
        engine = subprocess.Popen(dies_with_parent(command), stdout=output, stderr=subprocess.STDOUT)
    client = DatabaseClient.connect(url, database)
    try:
        facts = FactChange("edge", [tuple(edge) for edge in edges.tolist()])
        await applied(client, Transaction((facts,)), engine)
        began = time.perf_counter()
        with Watch(engine.pid) as watch:
            rules = tuple(RuleChange(rule) for rule in RULES)
            await applied(client, Transaction((), rules), engine)
        seconds = time.perf_counter() - began
        snapshot = await client.snapshot()
        assert snapshot.counts("tc").derived == number, (snapshot.counts("tc"), number)
        assert snapshot.digest("tc") == in_hex(digest), "the published tuples are others"
        page = await snapshot.facts("tc", {0: int(edges[0, 0])}, "derived", 10**6, None)
        one = len(page.tuples)
        (summary,) = await client.epochs(None, 1)
    finally:
        await client.close()
        engine.terminate()
        try:
            engine.wait(60)
        except subprocess.TimeoutExpired:
            engine.kill()
    note = (
        f"count and digest are those of the graph; {one:,} tuples of the first node read; {summary['reason']}"
    )
    python, jvm = (max(sample[place] for sample in watch.samples) for place in (1, 2))
    return [
        figure(f"{name}: until it is published", [seconds], "s", note=note),
        figure(f"{name}: the driver's Python process, at most", [python], "MiB", MOST_MIB, watch.over_time()),
        figure(f"{name}: the driver's JVM, at most", [jvm], "MiB", note=f"its heap is {MOST_MIB} MiB"),
    ]


def main() -> None:
    if sys.argv[1:2] == ["--as-engine"]:
        sys.exit(run_as_engine(*sys.argv[2:6]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--tuples", default="5,50", help="millions of derived tuples, about (default 5,50)")
    parser.add_argument("--executor-memory", default="3g", help="of each of the two executors (default 3g)")
    parser.add_argument("--work-dir", type=Path, help="where server and Spark keep their files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work_dir) as folder:
        place = Path(folder)
        os.environ["SPARK_LOCAL_DIRS"] = folder
        memory = options.executor_memory
        figures: list[Figure] = []
        with EmbeddedServer(place / "data") as server, Standalone(place, 2, memory=memory) as cluster:
            log = place / "engine.log"
            try:
                for million in options.tuples.split(","):
                    run = measure(server.url, cluster.address, float(million), memory, log)
                    figures += asyncio.run(run)
            except BaseException:
                print(log.read_text()[-4000:] if log.exists() else "", file=sys.stderr)
                raise
    show("Beyond the driver: Spark standalone, two workers of one core", figures, options.json)


if __name__ == "__main__":
    main()
