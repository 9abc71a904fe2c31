"""Reads of a large relation through the service: pages with bound columns, joins, counts, and what indexes cost.

    python -m benchmarks.queries [--json FILE] [--tuples N] [--requests N]

A relation `e(x, y, w)` of 10 million numbers, ten tuples for each x and each y and ten thousand for each w, is
published as one epoch, as the engine does after an import; then embedded server, engine process and HTTP server run as
with `zedlog serve`. Every request asks for another constant, so no answer comes from the cache of answers. Times are
those of one client that waits for each answer, parsing of JSON aside; on a busy machine the CPU time of the service,
in the notes, says more. An index is made in the background after the first read that has use for it; its time and
memory are those that `/metrics` tells.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from benchmarks.engine import Array
from benchmarks.report import Figure, figure, show
from engine.database.epoch import EpochRecord
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.lease import Lease
from engine.storage.publisher import Publisher
from service.cli.serve import Deployment, run

DATABASE = "default"
SCHEMAS = {"e": Schema("e", tuple(Column(name, ColumnType.NUMBER) for name in "xyw"))}
WEIGHTS = 1_000
DEGREE = 10
PAGE = 100


def tuples(count: int) -> Array:
    """int64[count, 3], distinct, sorted."""
    rng = np.random.default_rng(5)
    nodes = max(1, count // DEGREE)
    made = np.stack(
        (np.arange(count) // DEGREE, rng.integers(0, nodes, count), rng.integers(0, WEIGHTS, count)), axis=1
    )
    made = made[np.lexsort(made.T[::-1])]
    # Of two equal ones the second gets a weight that no other tuple has.
    again = np.flatnonzero((made[1:] == made[:-1]).all(axis=1)) + 1
    made[again, 2] = WEIGHTS + np.arange(len(again))
    return made


def publish(url: str, made: Array) -> float:
    """Seconds to publish the tuples as the first epoch."""
    count = len(made)
    no, none = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    ones, before = np.ones(count, np.int64), np.zeros(count, np.int64)
    change = RelationChange(made, ones, no, np.ones(count, np.int8), before, none)
    record = EpochRecord(
        epoch=1,
        relations={"e": change},
        rules=(),
        schemas=SCHEMAS,
        changed_schemas=SCHEMAS,
        declarations="",
        first_symbol=0,
        symbols=(),
        strategy="bootstrap",
        placement="resident",
        derivations=0,
        reason="benchmark",
        elapsed_ms=0.0,
    )
    with connect(url) as client:
        lease = Lease(client, DATABASE, 60.0)
        lease.take()
        start = time.perf_counter()
        Publisher(client, DATABASE, lease, cache_bytes=0).publish(record, (), "1-1")
        seconds = time.perf_counter() - start
        lease.release()
    return seconds


class Service:
    """One client of the service."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=120, trust_env=False)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def facts(self, **bound: int) -> httpx.Response:
        return self._client.get("/v1/relations/e/facts", params={**bound, "limit": PAGE}).raise_for_status()

    def query(self, text: str) -> httpx.Response:
        body = {"query": text, "limit": PAGE, "timeout": 60}
        return self._client.post("/v1/query", json=body).raise_for_status()

    def change(self, rows: list[list[int]]) -> None:
        body = {"facts": [{"relation": "e", "tuples": rows}]}
        self._client.post("/v1/transactions", json=body).raise_for_status()

    def metric(self, name: str) -> float:
        for line in self._client.get("/metrics").raise_for_status().text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"/metrics has no {name}")


def milliseconds(ask: Callable[[], httpx.Response]) -> float:
    start = time.perf_counter()
    ask()
    return (time.perf_counter() - start) * 1000


class Measurement:
    def __init__(self, service: Service, made: Array, requests: int) -> None:
        self._service, self._made, self._requests = service, made, requests
        self._rng = np.random.default_rng(11)

    def figures(self) -> list[Figure]:
        return [*self._indexes(), *self._pages(), *self._queries(), *self._epochs()]

    def _measured(
        self, name: str, asks: Iterator[Callable[[], httpx.Response]], runs: int, target: float | None
    ) -> Figure:
        before = self._service.metric("process_cpu_seconds_total")
        times = [milliseconds(next(asks)) for _ in range(runs)]
        cpu = (self._service.metric("process_cpu_seconds_total") - before) / runs * 1000
        note = f"p95 {np.percentile(times, 95):.2g} ms; {cpu:.2g} ms of CPU in the service"
        return figure(name, times, "ms", target, note)

    def _constants(self) -> Iterator[tuple[int, int, int]]:
        """Tuples of the relation, at random."""
        while True:
            x, y, w = self._made[self._rng.integers(len(self._made))].tolist()
            yield x, y, w

    def _asks(self, ask: Callable[[int, int, int], httpx.Response]) -> Iterator[Callable[[], httpx.Response]]:
        for constants in self._constants():
            yield partial(ask, *constants)

    def _indexes(self) -> list[Figure]:
        """The first read with each of the columns that are not the first, and the index that it has made."""
        service, figures = self._service, []
        for number, column in ((1, "y"), (2, "w")):
            before = [service.metric(f"zedlog_index_{what}") for what in ("bytes", "build_seconds_total")]
            bound = {column: int(self._made[self._rng.integers(len(self._made)), number])}
            first = milliseconds(partial(service.facts, **bound))
            figures.append(figure(f"first page bound in {column}, a scan", [first], "ms"))
            start = time.perf_counter()
            # Other requests go on while the index is made.
            between = []
            while service.metric("zedlog_index_running"):
                between.append(milliseconds(partial(service.facts, x=int(self._made[0, 0]))))
            waited = time.perf_counter() - start
            after = [service.metric(f"zedlog_index_{what}") for what in ("bytes", "build_seconds_total")]
            also = "the packed rows and " if number == 1 else ""
            note = f"{also}the order of {column}; ready {waited:.2g} s after the first page"
            figures.append(figure(f"index by {column}: time", [after[1] - before[1]], "s", note=note))
            size = after[0] - before[0]
            note = f"{size / len(self._made):.3g} bytes a tuple"
            figures.append(figure(f"index by {column}: memory", [size / 2**20], "MiB", note=note))
            if between:
                note = f"p95 {np.percentile(between, 95):.2g} ms, {len(between)} requests"
                figures.append(figure("another page meanwhile", between, "ms", note=note))
        return figures

    def _pages(self) -> list[Figure]:
        service, runs = self._service, self._requests
        cases: list[tuple[str, Callable[[int, int, int], httpx.Response]]] = [
            ("x", lambda x, y, w: service.facts(x=x)),
            ("y", lambda x, y, w: service.facts(y=y)),
            ("w", lambda x, y, w: service.facts(w=w)),
            ("x and y", lambda x, y, w: service.facts(x=x, y=y)),
            ("x and w", lambda x, y, w: service.facts(x=x, w=w)),
            ("y and w", lambda x, y, w: service.facts(y=y, w=w)),
        ]
        return [self._measured(f"page bound in {name}", self._asks(ask), runs, 3.0) for name, ask in cases]

    def _queries(self) -> list[Figure]:
        query, runs = self._service.query, self._requests
        cases: list[tuple[str, float, Callable[[int, int, int], httpx.Response]]] = [
            ("e(C, y, _), e(y, z, _)", 8.0, lambda x, y, w: query(f"e({x}, y, _), e(y, z, _)")),
            ("e(x, C, _), e(z, x, _)", 8.0, lambda x, y, w: query(f"e(x, {y}, _), e(z, x, _)")),
            ("e(C, y, _), !e(y, _, D)", 8.0, lambda x, y, w: query(f"e({x}, y, _), !e(y, _, {w})")),
            ("n = count : { e(C, _, _) }", 5.0, lambda x, y, w: query(f"n = count : {{ e({x}, _, _) }}")),
            ("n = count : { e(_, C, _) }", 5.0, lambda x, y, w: query(f"n = count : {{ e(_, {y}, _) }}")),
        ]
        figures = [self._measured(name, self._asks(ask), runs, target) for name, target, ask in cases]
        large = "n = count : { e(_, _, C) }, a group of 10,000"
        weights = iter(self._rng.permutation(WEIGHTS).tolist())
        # Each weight once, because an answer that was given is kept.
        asks = (partial(query, f"n = count : {{ e(_, _, {w}) }}") for w in weights)
        return [*figures, self._measured(large, asks, min(runs, WEIGHTS), None)]

    def _epochs(self) -> list[Figure]:
        """The first page after an epoch of one tuple, and of ten thousand."""
        figures, nodes = [], int(self._made[-1, 0]) + 1
        for size, epochs in ((1, self._requests // 3), (10_000, 10)):
            times, asks = [], self._asks(lambda x, y, w: self._service.facts(y=y))
            for _ in range(epochs):
                new = [
                    [nodes + int(n), i % nodes, i % WEIGHTS]
                    for i, n in enumerate(self._rng.integers(0, 2**31, size))
                ]
                self._service.change(new)
                times.append(milliseconds(next(asks)))
            note = f"p95 {np.percentile(times, 95):.2g} ms"
            figures.append(
                figure(f"first page bound in y after an epoch of {size:,}", times, "ms", note=note)
            )
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--tuples", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=300, help="of each kind (default 300)")
    options = parser.parse_args()
    made = tuples(options.tuples)
    figures: list[Figure] = []

    def told(url: str) -> bool:
        with Service(url) as service:
            figures.extend(Measurement(service, made, options.requests).figures())
        return False

    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "server") as server:
        seconds = publish(server.url, made)
        figures.append(figure(f"{len(made):,} tuples published", [len(made) / seconds], "tuples/s"))
        run(Deployment(Path(folder), port=0, redis_url=server.url), told)
    show(f"Reads of {len(made):,} tuples over HTTP", figures, options.json)


if __name__ == "__main__":
    main()
