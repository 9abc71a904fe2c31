"""200 listeners of change feeds beside a stream of writes, over HTTP, with the log on disk as `zedlog serve` runs it.

    python -m benchmarks.feeds [--json FILE] [--seconds 60] [--rate 20] [--listeners 200]

Half of the listeners follow the closure of a graph, a quarter that of one node each, a quarter a query with negation
and an aggregate, of which there are four. The writes add edges and take them away, `rate` a second. An event's time is
measured from the publication of its epoch, which the event says, until a listener has read it; the listeners are in
this process, which shares the cores with the service, so reading 200 copies counts, too. At the end every listener must
have seen every epoch that changed what it follows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import numpy as np
import orjson

from benchmarks.report import Figure, figure, show
from service.cli.serve import Deployment, run

NODES = 400
RULES = ("tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).")
WARM_SECONDS = 5.0


class Listener:
    """One feed; it keeps the time that each event took, the epochs, and the last position."""

    def __init__(self, parameters: dict[str, str], after: str) -> None:
        self.target = "/v1/changes?" + urlencode({**parameters, "after": after, "heartbeat": "1"})
        self.delays: list[tuple[float, float]] = []
        self.epochs: list[int] = []
        self.bytes = 0
        self.position = 0

    async def follow(self, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
        head = f"GET {self.target} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise RuntimeError(f"{self.target}: {answer!r} {await reader.read(500)!r}")
        try:
            buffer = b""
            while True:
                size = int(await reader.readuntil(b"\r\n"), 16)
                buffer += (await reader.readexactly(size + 2))[:-2]
                self.bytes += size
                *events, buffer = buffer.split(b"\n\n")
                for event in events:
                    self._take(event)
        finally:
            writer.close()

    def _take(self, event: bytes) -> None:
        now = time.time()
        _, name, data = event.split(b"\n", 2)
        # What is needed stands at the beginning; parsing all of it would be this process's time.
        place = orjson.loads(data[6:].partition(b',"changes"')[0].removesuffix(b"}") + b"}")
        self.position = place["epoch"]
        if name == b"event: change":
            self.delays.append((now, now - place["time"]))
            self.epochs.append(place["epoch"])


def _followed(listeners: int) -> list[dict[str, str]]:
    found = []
    for i in range(listeners):
        if i % 2 == 0:
            found.append({"relation": "tc"})
        elif i % 4 == 1:
            found.append({"relation": "tc", "x": str(i % NODES)})
        else:
            found.append(
                {"query": f"tc(x, y), !edge(x, y), y > {50 * (i % 16 // 4)}, n = count : {{ edge(y, _) }}"}
            )
    return found


def _rss(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu(pid: int) -> float:
    """Seconds of processor time so far."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _service() -> int:
    """The process of the HTTP service, a child of this one."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"service.cli.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise RuntimeError("the service is not a child of this process")


async def measure(url: str, seconds: float, rate: float, count: int) -> list[Figure]:
    host, port = url.removeprefix("http://").split(":")
    rng = np.random.default_rng(1)
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:

        async def send(facts: list[dict[str, object]], **more: object) -> dict[str, object]:
            answer = await client.post("/v1/transactions", json={"facts": facts, "mode": "set", **more})
            answer.raise_for_status()
            done: dict[str, object] = answer.json()
            return done

        edges = rng.integers(0, NODES, (NODES, 2)).tolist()
        begun = await send([{"relation": "edge", "tuples": edges}], rules=[{"rule": rule} for rule in RULES])
        listeners = [Listener(parameters, str(begun["token"])) for parameters in _followed(count)]
        tasks = [asyncio.create_task(one.follow(host, int(port))) for one in listeners]
        pid = _service()
        started, before = time.time(), _cpu(pid)
        measured = started + WARM_SECONDS
        memory: list[tuple[float, float]] = []
        times: list[float] = []
        newest = 0
        changed: set[int] = set()
        while (now := time.time()) < measured + seconds:
            at = int(rng.integers(0, len(edges)))
            new = rng.integers(0, NODES, 2).tolist()
            body: list[dict[str, object]] = [
                {"relation": "edge", "tuples": [edges[at]], "weight": -1},
                {"relation": "edge", "tuples": [new], "weight": 1},
            ]
            edges[at] = new
            start = time.perf_counter()
            done = await send(body)
            times.append((time.perf_counter() - start) * 1000)
            newest = int(str(done["epoch"]))
            changes = done["changes"]
            assert isinstance(changes, dict)
            if "tc" in changes:
                changed.add(newest)
            memory.append((now, _rss(pid)))
            failed = [task for task in tasks if task.done()]
            for task in failed:
                task.result()
            await asyncio.sleep(max(0.0, 1 / rate - (time.time() - now)))
        deadline = time.time() + 60
        while any(one.position < newest for one in listeners) and time.time() < deadline:
            await asyncio.sleep(0.1)
        used = _cpu(pid) - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    whole = [one for one in listeners if "relation=tc&after" in one.target]
    for one in whole:
        if one.epochs != sorted(changed):
            raise RuntimeError("a listener has not seen every epoch once")
    relations, queries = (
        [
            ms * 1000
            for one in listeners
            if ("query=" in one.target) == asks
            for now, ms in one.delays
            if now >= measured
        ]
        for asks in (False, True)
    )
    events = len(relations) + len(queries)
    tenth = [size for now, size in memory if measured <= now < measured + seconds / 10]
    last = [size for now, size in memory if now >= measured + seconds * 0.9]
    name = f"{count} listeners, {len(times) / (time.time() - started):.3g} writes/s"
    return [
        *(
            made
            for what, delays in (("relations", relations), ("queries", queries))
            for made in (
                figure(f"{name}: from commit to event, {what}", delays, "ms"),
                figure(f"{name}: the same, p99", [float(np.percentile(delays, 99))], "ms", 250),
            )
        ),
        figure("events", [events / seconds], "events/s", most=True, note="of all listeners"),
        figure(
            "sent",
            [sum(one.bytes for one in listeners) / 2**20 / (seconds + WARM_SECONDS)],
            "MiB/s",
            most=True,
        ),
        figure(
            "processor time of the service for an event",
            [used / sum(len(one.epochs) for one in listeners) * 1e6],
            "us",
            note="with the writes and everything else that it does",
        ),
        figure("a write beside them", times, "ms", note=f"p99 {np.percentile(times, 99):.3g} ms"),
        figure("memory of the service at the beginning", tenth, "MiB"),
        figure("memory of the service at the end", last, "MiB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    parser.add_argument("--rate", type=float, default=20.0, help="writes a second, at the most")
    parser.add_argument("--listeners", type=int, default=200)
    options = parser.parse_args()
    figures: list[Figure] = []

    with tempfile.TemporaryDirectory() as folder:

        def told(url: str) -> bool:
            figures.extend(asyncio.run(measure(url, options.seconds, options.rate, options.listeners)))
            return False

        run(Deployment(Path(folder), port=0), told)
    show("Change feeds", figures, options.json)


if __name__ == "__main__":
    main()
