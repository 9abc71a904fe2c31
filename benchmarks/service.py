"""The whole service over HTTP, with the log on disk: embedded server, engine process and HTTP server as `zedlog serve`
runs them.

    python -m benchmarks.service [--json FILE] [--data-dir DIR]

LUBM-1 under the six RDFS rules is loaded in batches of 10,000; then single facts go away and come back, one request
at a time and from several clients at once, and pages of 1,000 tuples are read while epochs run. Without
../shared/data a made graph of the same size stands in, and the table says so.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np

from benchmarks.engine import DATA, RDFS, Array
from benchmarks.report import Figure, figure, show
from service.cli.serve import Deployment, run

SINGLE = 300
CLIENTS = 8


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


def measure(url: str) -> list[Figure]:
    name, data = triples()
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        figures = _load(client, name, data)
        rng = np.random.default_rng(1)
        chosen = data[rng.choice(len(data), SINGLE, replace=False)].tolist()
        figures += _single(client, name, chosen)
        figures.append(_together(url, chosen))
        figures += _pages(client, url, chosen)
    return figures


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


def _single(client: httpx.Client, name: str, chosen: list[list[int]]) -> list[Figure]:
    figures = []
    for weight, what in ((-1, "retracted"), (1, "added")):
        times = []
        for row in chosen:
            start = time.perf_counter()
            _change(client, [row], weight)
            times.append((time.perf_counter() - start) * 1000)
        note = f"p95 {np.percentile(times, 95):.2g} ms; log on disk, waiting for the epoch"
        figures.append(figure(f"{name}: one fact {what} over HTTP", times, "ms", 8, note))
    return figures


def _together(url: str, chosen: list[list[int]]) -> Figure:
    def work(rows: list[list[int]]) -> None:
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
            for row in rows:
                _change(client, [row], -1)
                _change(client, [row], 1)

    threads = [threading.Thread(target=work, args=(chosen[i::CLIENTS],)) for i in range(CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = 2 * len(chosen) / (time.perf_counter() - start)
    return figure(f"{CLIENTS} clients, one fact each time", [rate], "tx/s", note="transactions share epochs")


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
        note = f"p95 {np.percentile(times, 95):.2g} ms, JSON parsing aside"
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

    def told(url: str) -> bool:
        figures.extend(measure(url))
        return False

    with tempfile.TemporaryDirectory() as folder:
        run(Deployment(options.data_dir or Path(folder), port=0), told)
    show("Service", figures, options.json)


if __name__ == "__main__":
    main()
