"""The whole service over HTTP, with the log on disk: embedded server, engine process and HTTP server as `zedlog serve`
runs them.

    python -m benchmarks.service [--json FILE] [--data-dir DIR]

LUBM-1 under the six RDFS rules is loaded in batches of 10,000; then single facts go away and come back: over one
connection alone, and over 16 connections while 4 others read pages of 1,000 tuples without a pause. Without
../shared/data a made graph of the same size stands in, and the table says so. The load comes from this process, which
shares the cores with the service. A transaction waits for two writes to the disk, of the log and of the publication,
so the table begins with what such a write takes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import orjson

from benchmarks.engine import DATA, RDFS, Array
from benchmarks.report import Figure, figure, show
from service.cli.serve import Deployment, run

SINGLE = 300
WRITERS, READERS = 16, 4
LOAD_SECONDS, WARM_SECONDS = 15.0, 3.0


def triples() -> tuple[str, Array]:
    """(what it is, int64[n, 3])."""
    if (DATA / "lubm1abox.ntenc").exists():
        return "LUBM-1", np.concatenate(
            [np.loadtxt(DATA / f"lubm1{part}box.ntenc", dtype=np.int64) for part in "at"]
        )
    rng = np.random.default_rng(3)
    made = np.stack(
        (rng.integers(100, 20_000, 100_000), rng.integers(5, 30, 100_000), rng.integers(100, 20_000, 100_000))
    )
    return "made triples (LUBM-1 is not there)", np.unique(made.T, axis=0)


def measure(url: str, data_dir: Path) -> list[Figure]:
    name, data = triples()
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        figures = [_disk(data_dir), *_load(client, name, data)]
        rng = np.random.default_rng(1)
        chosen = data[rng.choice(len(data), SINGLE + 40 * WRITERS, replace=False)].tolist()
        figures += asyncio.run(_alone(url, name, chosen[:SINGLE]))
        figures += asyncio.run(_together(url, chosen[SINGLE:]))
        figures += _pages(client, url, chosen)
    return figures


def _disk(folder: Path) -> Figure:
    """What it takes until a small write is on the disk."""
    times = []
    with (folder / "written").open("wb", buffering=0) as file:
        for _ in range(200):
            start = time.perf_counter()
            file.write(bytes(500))
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - start) * 1000)
    (folder / "written").unlink()
    return figure("500 bytes until they are on the disk", times, "ms", note=f"p99 {_p99(times)}")


def _cpu() -> dict[str, float]:
    """CPU seconds so far: of this process, which makes the load, and of the service's processes."""
    found = {"load": time.process_time()}
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            name = next((part for part in ("engine", "service") if f"{part}.".encode() in command), "Redis")
            used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            found[name] = sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    return found


def _p99(times: Sequence[float]) -> str:
    return f"{np.percentile(times, 99):.3g} ms"


def _change(client: httpx.Client, tuples: Sequence[Sequence[int]], weight: int) -> None:
    body = {"facts": [{"relation": "t", "tuples": tuples, "weight": weight}]}
    client.post("/v1/transactions", json=body).raise_for_status()


def _load(client: httpx.Client, name: str, data: Array) -> list[Figure]:
    start = time.perf_counter()
    for begin in range(0, len(data), 10_000):
        _change(client, data[begin : begin + 10_000].tolist(), 1)
    seconds = time.perf_counter() - start
    rules = [{"rule": rule} for rule in RDFS]
    begin_rules = time.perf_counter()
    client.post("/v1/transactions", json={"rules": rules}).raise_for_status()
    return [
        figure(
            f"{name}: facts loaded",
            [len(data) / seconds],
            "tuples/s",
            note="batches of 10,000, one after the other",
        ),
        figure(f"{name}: the six RDFS rules added", [time.perf_counter() - begin_rules], "s"),
    ]


class Connection:
    """One HTTP connection, with so little in between that the load costs little beside the service."""

    def __init__(self, url: str) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port), limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def request(self, method: str, path: str, body: bytes = b"", gone: bool = False) -> bytes | None:
        """The answer's body, of a request that succeeds; None if `gone` is allowed, and the epoch is."""
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        head, _, _ = (
            (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().partition("\r\n\r\n")
        )
        status, *fields = head.split("\r\n")
        length = next(int(field.split(":")[1]) for field in fields if field.startswith("content-length:"))
        answer = await self._reader.readexactly(length)
        if gone and b'"epoch_not_retained"' in answer:
            return None
        if status.split()[1] != "200":
            raise RuntimeError(f"{method} {path}: {status}: {answer.decode()}")
        return answer

    async def change(self, row: Sequence[int], weight: int) -> float:
        """Milliseconds until one fact has its new weight."""
        body = orjson.dumps({"facts": [{"relation": "t", "tuples": [row], "weight": weight}]})
        start = time.perf_counter()
        await self.request("POST", "/v1/transactions", body)
        return (time.perf_counter() - start) * 1000


async def _alone(url: str, name: str, chosen: list[list[int]]) -> list[Figure]:
    """One connection: all of the facts go away, and come back."""
    figures = []
    async with Connection(url) as connection:
        for row in chosen[:50]:
            for weight in (-1, 1):
                await connection.change(row, weight)
        for weight, what in ((-1, "retracted"), (1, "added")):
            times = [await connection.change(row, weight) for row in chosen]
            note = "log on disk, waiting for the epoch; 1 connection"
            figures += [
                figure(f"{name}: one fact {what} over HTTP", times, "ms", 3, note),
                figure(
                    f"{name}: one fact {what} over HTTP, p99", [float(np.percentile(times, 99))], "ms", 10
                ),
            ]
    return figures


async def _together(url: str, chosen: list[list[int]]) -> list[Figure]:
    """16 connections change single facts, 4 read page after page."""
    writes: list[tuple[float, float]] = []
    reads: list[tuple[float, float]] = []
    begin = time.perf_counter() + WARM_SECONDS
    end = begin + LOAD_SECONDS

    async def write(rows: list[list[int]]) -> None:
        async with Connection(url) as connection:
            weight = -1
            while time.perf_counter() < end:
                for row in rows:
                    took = await connection.change(row, weight)
                    writes.append((time.perf_counter(), took))
                weight = -weight

    async def read() -> None:
        async with Connection(url) as connection:
            more = ""
            while time.perf_counter() < end:
                start = time.perf_counter()
                path = f"/v1/relations/t/facts?limit=1000{more}"
                answer = await connection.request("GET", path, gone=True)
                more = ""
                if answer is None:
                    # Where epochs come faster than pages, a chain of pages may outlive what is kept.
                    continue
                reads.append((time.perf_counter(), (time.perf_counter() - start) * 1000))
                # Parsing all of it would cost the service's cores.
                cursor = answer.rpartition(b'"cursor":')[2].rstrip(b"}")
                if cursor != b"null":
                    more = "&cursor=" + cursor.decode().strip('"')

    before = _cpu()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for i in range(WRITERS):
            group.create_task(write(chosen[i::WRITERS]))
        for _ in range(READERS):
            group.create_task(read())
    times, pages = ([took for at, took in done if begin <= at < end] for done in (writes, reads))
    seconds = time.perf_counter() - began
    cores = ", ".join(f"{name} {(now - before[name]) / seconds:.2f}" for name, now in _cpu().items())
    name = f"{WRITERS} connections beside {READERS} readers"
    return [
        figure(
            f"{name}: transactions",
            [len(times) / LOAD_SECONDS],
            "tx/s",
            600,
            f"at least; cores: {cores}",
            most=True,
        ),
        figure(f"{name}: a transaction", times, "ms"),
        figure(f"{name}: a transaction, p99", [float(np.percentile(times, 99))], "ms", 60),
        figure(f"{name}: pages", [len(pages) / LOAD_SECONDS], "pages/s", most=True),
        figure(f"{name}: a page of 1,000", pages, "ms", note=f"p99 {_p99(pages)}" if pages else ""),
    ]


def _pages(client: httpx.Client, url: str, chosen: list[list[int]]) -> list[Figure]:
    """Pages of 1,000, at first on a quiet service, then while another client changes facts without a pause."""
    figures = []
    for busy in (False, True):
        stop = threading.Event()

        def write(stop: threading.Event = stop) -> None:
            with httpx.Client(base_url=url, timeout=120, trust_env=False) as writer:
                while not stop.is_set():
                    for weight in (-1, 1):
                        _change(writer, chosen[:10], weight)

        thread = threading.Thread(target=write)
        if busy:
            thread.start()
        times, cursor = [], None
        for _ in range(100):
            start = time.perf_counter()
            parameters = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
            response = client.get("/v1/relations/t/facts", params=parameters).raise_for_status()
            times.append((time.perf_counter() - start) * 1000)
            cursor = response.json()["cursor"]
        stop.set()
        if busy:
            thread.join()
        name = "while epochs run" if busy else "on a quiet service"
        note = f"p99 {_p99(times)}, JSON parsing aside"
        figures.append(figure(f"a page of 1,000 tuples {name}", times, "ms", 10, note))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--data-dir", type=Path, help="where the data lies meanwhile (default: a temporary folder)"
    )
    options = parser.parse_args()
    figures: list[Figure] = []

    with tempfile.TemporaryDirectory() as folder:
        data_dir = options.data_dir or Path(folder)

        def told(url: str) -> bool:
            figures.extend(measure(url, data_dir))
            return False

        run(Deployment(data_dir, port=0), told)
    show("Service", figures, options.json)


if __name__ == "__main__":
    main()
