"""Publishing and reading snapshots: tuples a second, latency of small epochs, pages, memory per tuple.

    python -m benchmarks.publish [--json FILE] [--tuples N] [--epochs N]

Runs against an embedded server with its append-only file on disk (synced before every answer), in a temporary
directory. Prints a table; `--json FILE` writes the numbers. Sync time of the disk is measured too: a small
epoch costs one sync.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import redis
from rich.console import Console
from rich.table import Table

from engine.data.codes import Codes
from engine.database.epoch import EpochRecord
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.storage.blocks import BLOCK_ROWS, decode_block, encode_block
from engine.storage.client import DatabaseClient
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.lease import Lease
from engine.storage.publisher import Publisher
from engine.storage.rows import Rows
from engine.storage.snapshot import Snapshot

SCHEMA = {"r": Schema("r", tuple(Column(name, ColumnType.NUMBER) for name in ("x", "y")))}
Results = list[tuple[str, float, str]]


class Writer:
    """A publisher with its epochs counted."""

    def __init__(self, client: redis.Redis, database: str) -> None:
        lease = Lease(client, database, 60.0)
        lease.take()
        self.publisher = Publisher(client, database, lease)
        self.epoch = 0

    def publish(self, codes: Codes, present: int) -> float:
        """Publish tuples that appear (1) or go (-1); seconds."""
        n = len(codes)
        change = RelationChange(
            codes,
            np.full(n, max(present, 0), np.int64),
            np.zeros(n, np.bool_),
            np.full(n, present, np.int8),
            np.full(n, max(-present, 0), np.int64),
            np.zeros(n, np.bool_),
        )
        self.epoch += 1
        record = EpochRecord(
            epoch=self.epoch,
            relations={"r": change},
            rules=(),
            schemas=SCHEMA,
            changed_schemas=SCHEMA,
            declarations="",
            first_symbol=0,
            symbols=(),
            strategy="update",
            placement="resident",
            derivations=n,
            reason="benchmark",
            elapsed_ms=0.0,
        )
        return timed(lambda: self.publisher.publish(record, (), f"{self.epoch}-1"))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def pairs(rng: np.random.Generator, n: int) -> Codes:
    """n distinct pairs over about 1.1 times as many possible ones, shuffled."""
    width = max(2, int((1.1 * n) ** 0.5) + 1)
    numbers = rng.permutation(width * width)[:n]
    return np.stack([numbers // width, numbers % width], axis=1)


def memory(client: redis.Redis) -> int:
    return int(cast(dict[str, Any], client.info("memory"))["used_memory"])


def measure_publishing(client: redis.Redis, rng: np.random.Generator, n: int) -> Results:
    writer = Writer(client, "large")
    codes = pairs(rng, n)
    before = memory(client)
    first = writer.publish(codes, 1)
    used = memory(client) - before
    gone = writer.publish(codes[: n // 2], -1)
    again = writer.publish(codes[: n // 2], 1)
    return [
        (f"publish {n:,} new tuples", n / first, "tuples/s"),
        (f"publish {n // 2:,} deletions (base merged)", n // 2 / gone, "tuples/s"),
        (f"publish {n // 2:,} insertions (base merged)", n // 2 / again, "tuples/s"),
        ("memory in Redis", used / n, "bytes/tuple"),
    ]


def measure_small_epochs(client: redis.Redis, rng: np.random.Generator, n: int, epochs: int) -> Results:
    writer = Writer(client, "small")
    writer.publish(pairs(rng, n), 1)
    times = [writer.publish(np.array([[-1 - i, i]]), 1) * 1000 for i in range(epochs)]
    times.sort()
    return [
        (f"1-tuple epoch on {n:,} tuples, median", statistics.median(times), "ms"),
        (f"1-tuple epoch on {n:,} tuples, 99 %", times[int(0.99 * len(times))], "ms"),
    ]


def measure_disk(folder: Path) -> Results:
    times = []
    with open(folder / "sync-probe", "wb") as file:
        for _ in range(50):
            file.write(b"x" * 300)
            file.flush()
            times.append(timed(lambda: os.fdatasync(file.fileno())) * 1000)
    return [("one sync of the disk (fdatasync), median", statistics.median(times), "ms")]


async def measure_pages(url: str) -> Results:
    reader = DatabaseClient.connect(url, "small")
    try:
        snapshot = await reader.snapshot()
        cold = await page_ms(snapshot, None, 1)
        warm = await page_ms(snapshot, None, 20)
        prefix = await page_ms(snapshot, {0: 500}, 20)
        await page_ms(snapshot, {1: 500}, 1)
        scan = await page_ms(snapshot, {1: 500}, 5)
    finally:
        await reader.close()
    return [
        ("page of 1,000 tuples, first time", cold, "ms"),
        ("page of 1,000 tuples, cached, median", warm, "ms"),
        ("page bound in its first column, median", prefix, "ms"),
        ("page bound in its second column (scan, cached), median", scan, "ms"),
    ]


async def page_ms(snapshot: Snapshot, bound: dict[int, int] | None, times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        await snapshot.facts("r", dict(bound) if bound else None, limit=1000)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def measure_formats(rng: np.random.Generator) -> Results:
    """Our block format against Arrow IPC (plain, and compressed with LZ4), on the same block."""
    codes = pairs(rng, 40 * BLOCK_ROWS)
    codes = codes[np.lexsort(codes.T[::-1])][:BLOCK_ROWS]
    none = np.zeros(len(codes), np.bool_)
    rows = Rows(codes, np.ones(len(codes), np.int64), none, none, np.zeros(len(codes), np.int64))
    batch = pa.record_batch(
        {"x": codes[:, 0], "y": codes[:, 1], "asserted": rows.asserted, "derived": rows.derived}
    )

    def arrow(compression: str | None) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
        ) as out:
            out.write_batch(batch)
        return cast(bytes, sink.getvalue().to_pybytes())

    def numpy_back(data: bytes) -> list[Any]:
        return [c.to_numpy(zero_copy_only=False) for c in pa.ipc.open_stream(data).read_next_batch().columns]

    results: Results = []
    formats: list[tuple[str, Callable[[], bytes], Callable[[bytes], object]]] = [
        ("blocks", lambda: encode_block(rows), decode_block),
        ("Arrow IPC", lambda: arrow(None), numpy_back),
        ("Arrow IPC with LZ4", lambda: arrow("lz4"), numpy_back),
    ]
    for name, encode, decode in formats:
        data = encode()
        write = statistics.median(timed(encode) for _ in range(50))
        read = statistics.median(timed(lambda d=data, f=decode: f(d)) for _ in range(50))  # type: ignore[misc]
        results += [
            (f"{name}: size", len(data) / len(rows), "bytes/tuple"),
            (f"{name}: encode a block", write * 1e6, "us"),
            (f"{name}: decode a block", read * 1e6, "us"),
        ]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of publication and snapshot reads.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=500)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    console = Console()
    results: Results = []
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer(folder) as server,
        connect(server.url) as client,
        console.status("publishing") as status,
    ):
        results += measure_publishing(client, rng, options.tuples)
        status.update("small epochs")
        results += measure_disk(Path(folder))
        results += measure_small_epochs(client, rng, options.tuples, options.epochs)
        status.update("pages")
        results += asyncio.run(measure_pages(server.url))
        status.update("block formats")
        results += measure_formats(rng)
    table = Table("what", "value", "unit", title="publication and snapshot")
    for name, value, unit in results:
        table.add_row(name, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", unit)
    console.print(table)
    if options.json:
        document = {
            "machine": {
                "cpus": os.cpu_count(),
                "machine": platform.machine(),
                "python": platform.python_version(),
            },
            "results": [{"name": name, "value": value, "unit": unit} for name, value, unit in results],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
