"""Bulk import through Spark, end to end, and what each part of it takes.

    python -m benchmarks.bulk [--json FILE] [--runs N] [--copies N] [--master local[2]]

N-Triples: LUBM-1 as one packed file (which one task reads), and `--copies` of it with renamed subjects, once as plain
files (which all tasks read) and once as one packed file. Each run is an import into an empty database in process: Spark
writes the batch files, they are read and encoded, and the reasoner applies them; then the epoch is published to a
server of its own, as the engine does. Spark's start, and the first run, in which the JVM compiles, are figures of their
own.

CPU seconds stand in the notes: of the JVM and of this process. On a busy machine they say more than the clock does.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.engine import DATA
from benchmarks.report import Figure, figure, show
from engine.bulk.batches import BatchStore
from engine.bulk.importing import Importer
from engine.bulk.request import ImportRequest
from engine.bulk.sources import Places, sources_of
from engine.spark.session.session import SparkOptions, SparkSource
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.lease import Lease
from engine.storage.publisher import Publisher
from zedlog import Reasoner

PARTS = ("read, parse, sum up, write", "make durable", "stage", "evaluate", "publish")
TARGET = 100_000


class Run:
    """Imports into fresh databases of one server."""

    def __init__(self, session: Any, folder: Path, redis_url: str) -> None:
        self._session, self._folder, self._url = session, folder, redis_url
        self._number = 0
        jvm = session.sparkContext._jvm
        self._pid = int(jvm.java.lang.ProcessHandle.current().pid())

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of the JVM and of this process, so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        own = os.times()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), own.user + own.system

    def __call__(self, paths: list[str], root: Path) -> tuple[int, dict[str, float], tuple[float, float]]:
        """(rows, seconds of each part, CPU seconds) of one import."""
        self._number += 1
        store = BatchStore(self._folder / f"batches{self._number}")
        request = ImportRequest(tuple(paths), "ntriples")
        client = connect(self._url)
        lease = Lease(client, f"bulk-{self._number}", 60)
        lease.take()
        publisher = Publisher(client, f"bulk-{self._number}", lease)
        reasoner, marks = Reasoner(), [time.perf_counter()]
        before = self.cpu()
        keep = store.keep

        def timed_keep(*arguments: Any) -> Any:
            marks.append(time.perf_counter())
            return keep(*arguments)

        store.keep = timed_keep  # type: ignore[method-assign]  # only to see where the one part ends
        importer = Importer(self._session, store, "import", store.root / "rejects.jsonl")
        done = importer.run(request, sources_of(request, Places(import_root=root)), {})
        marks.append(time.perf_counter())
        loaded = store.load(done.transaction(request))
        marks.append(time.perf_counter())
        record = reasoner.commit([loaded]).record
        marks.append(time.perf_counter())
        publisher.publish(record, (), f"{self._number}-0")
        marks.append(time.perf_counter())
        after = self.cpu()
        client.close()
        seconds = dict(zip(PARTS, [b - a for a, b in pairwise(marks)], strict=True))
        return done.rows, seconds, (after[0] - before[0], after[1] - before[1])


def measure(name: str, run: Run, paths: list[str], root: Path, runs: int) -> list[Figure]:
    """The first run, the others, and the share of each part in them."""
    rows, first, _ = run(paths, root)
    taken, jvm, own = [], [], []
    for _ in range(runs):
        _, seconds, cpu = run(paths, root)
        taken.append(seconds)
        jvm.append(cpu[0])
        own.append(cpu[1])
    totals = [sum(seconds.values()) for seconds in taken]
    note = f"{rows:,} rows; CPU s: JVM {min(jvm):.2f}, engine {min(own):.2f}"
    figures = [
        figure(f"{name}: first run", [sum(first.values())], "s", note="the JVM compiles"),
        figure(name, totals, "s", rows / TARGET, note),
        figure(f"{name}: rate", [rows / total for total in totals], "rows/s", TARGET, most=True),
    ]
    for part in PARTS:
        share = sum(seconds[part] for seconds in taken) / sum(totals)
        figures.append(figure(f"  {part}", [seconds[part] for seconds in taken], "s", note=f"{share:.0%}"))
    return figures


def copies_of(data: Path, folder: Path, number: int) -> list[str]:
    """Plain files with the same triples about other subjects."""
    text = gzip.decompress(data.read_bytes())
    names = []
    for i in range(number):
        name = f"copy{i}.nt"
        (folder / name).write_bytes(text.replace(b"<http://www.Dep", f"<http://www.{i}.Dep".encode()))
        names.append(name)
    return names


def packed(folder: Path, names: list[str]) -> list[str]:
    """Files in one, packed."""
    target = folder / "copies.nt.gz"
    with gzip.open(target, "wb", compresslevel=6) as out:
        for name in names:
            out.write((folder / name).read_bytes())
    return [target.name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=5, help="imports after the first (default 5)")
    parser.add_argument("--copies", type=int, default=8, help="plain files of the second import (default 8)")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    data = DATA / "lubm1.nt.gz"
    if not data.exists():
        print(f"left out: {data} is not there")
        return
    source = SparkSource(SparkOptions(master=options.master))
    start = time.perf_counter()
    session = source.session().newSession()
    figures = [figure("Spark starts", [time.perf_counter() - start], "s")]
    with tempfile.TemporaryDirectory() as name, EmbeddedServer(Path(name) / "server") as server:
        folder = Path(name)
        run = Run(session, folder, server.url)
        cases: list[tuple[str, Callable[[], list[str]], Path, int]] = [
            ("LUBM-1, packed", lambda: [data.name], DATA, options.runs),
            (
                f"LUBM-1 {options.copies} times, plain",
                lambda: copies_of(data, folder, options.copies),
                folder,
                2,
            ),
            (
                f"LUBM-1 {options.copies} times, packed",
                lambda: packed(folder, copies_of(data, folder, options.copies)),
                folder,
                2,
            ),
        ]
        for title, paths, root, runs in cases:
            figures += measure(title, run, paths(), root, min(runs, options.runs))
    source.close()
    show(f"Bulk import, {options.master}", figures, options.json)


if __name__ == "__main__":
    main()
