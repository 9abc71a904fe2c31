"""`python -m tests.soak --seconds N`: the soak (`make soak SOAK_SECONDS=N`).

`zedlog serve` runs on a server of its own, through a proxy, with a second engine that stands by, and imports on a small
Spark cluster. Writers, readers, listeners, explainers, imports and restores work on it while processes are killed with
SIGKILL or stopped, and Redis is slow, cut off, or out of room. Every few seconds the writers pause, and an oracle
compares. It ends with a table; the exit status is 1 if anything was lost, applied twice, read in half, or wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from engine.storage.embedded import EmbeddedServer
from tests.live import free_port
from tests.soak.bulk import Importer, Restorer
from tests.soak.faults import Faults
from tests.soak.load import RULES, Explainer, Listener, Reader, Shared, Writer, send
from tests.soak.oracle import Oracle
from tests.soak.processes import end, is_ready, started
from tests.soak.proxy import Proxy
from tests.soak.tally import BAD, Tally
from tests.spark.standalone import Standalone

WRITERS, READERS = 3, 2
# A standby takes over when an engine has been stopped for longer.
LEASE_SECONDS = "2"
_READY_SECONDS = 240.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n\n")[1])
    parser.add_argument("--seconds", type=float, default=60, help="how long there are faults (default: 60)")
    parser.add_argument(
        "--every", type=float, default=3, help="seconds between faults, on average (default: 3)"
    )
    parser.add_argument("--pause", type=float, default=12, help="seconds between comparisons (default: 12)")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random (default: the time)")
    parser.add_argument(
        "--cluster",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="import through a Spark cluster whose workers are killed; needs Java (default: yes)",
    )
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else int(time.time()) % 1_000_000
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="zedlog-soak-") as folder:
        print(f"soak: {given.seconds:.0f} s of faults, seed {seed}; files in {folder}", flush=True)
        try:
            _soak(Path(folder), given, seed, tally)
        except BaseException:
            _logs(Path(folder))
            raise
        finally:
            _show(tally)
        if not tally.clean:
            _logs(Path(folder))
    return 0 if tally.clean else 1


def _soak(folder: Path, given: argparse.Namespace, seed: int, tally: Tally) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(folder / "redis"))
        proxy = stack.enter_context(Proxy(server.url))
        # An executor as Spark makes it by default, of 1 GiB and its overhead.
        cluster = stack.enter_context(Standalone(folder, memory="2g")) if given.cluster else None
        port = free_port()
        options = [
            "--redis-url",
            proxy.url,
            "--lease-seconds",
            LEASE_SECONDS,
        ]
        here = ["--data-dir", str(folder / "data")]
        if cluster is not None:
            here += ["--spark-master", cluster.address]
        serve = stack.enter_context(
            started(folder, "serve", "zedlog", "serve", "--port", str(port), *options, *here)
        )
        stack.callback(end, serve)
        shared = Shared(f"http://127.0.0.1:{port}", tally)
        with shared.client() as http:
            if not is_ready(http, serve, _READY_SECONDS, shared.stop):
                raise RuntimeError("zedlog serve does not become ready")
        # No data directory, so no checkpoint of its own: it is the same database, not the same folder.
        standby = stack.enter_context(
            started(folder, "standby", "engine.server", *options, *here, "--checkpoint-dir", "none")
        )
        stack.callback(end, standby)
        with shared.client() as http:
            shared.done.append(send(http, shared, {"rules": [{"rule": rule} for rule in RULES]}, "rules"))
        writers = [Writer(shared, number, seed) for number in range(WRITERS)]
        listener = Listener(shared)
        others: list[threading.Thread] = [Reader(shared, seed + number) for number in range(READERS)]
        faults = Faults(server, proxy, serve.pid, cluster, tally, given.every, seed)
        others += [listener, Explainer(shared, seed)]
        if cluster is not None:
            others.append(Importer(shared, seed))

        def copy(name: str, database: str, place: Path, port: int) -> subprocess.Popen[bytes]:
            where = ["--database", database, "--data-dir", str(place), "--port", str(port)]
            return started(folder, name, "zedlog", "serve", *options, *where)

        restorer = Restorer(shared, folder, server.url, copy, seed)
        for thread in (*writers, *others, restorer):
            thread.start()
        faults.start()
        oracle = Oracle(shared, folder)
        began, told = time.monotonic(), 0.0
        while time.monotonic() - began < given.seconds:
            time.sleep(min(given.pause, max(0.1, given.seconds - (time.monotonic() - began))))
            _compare(shared, writers, oracle, listener)
            if (ran := time.monotonic() - began) // 60 > told:
                told = ran // 60
                print(_progress(tally, ran), flush=True)
            if serve.poll() is not None or standby.poll() is not None:
                raise RuntimeError("zedlog serve or the standby engine has ended")
        faults.stop.set()
        faults.join()
        _compare(shared, writers, oracle, listener)
        with shared.client() as http:
            tally.add("epochs", http.get("/v1/relations").json()["epoch"])
        shared.stop.set()
        for thread in (*writers, restorer):
            thread.join(60)


def _compare(shared: Shared, writers: list[Writer], oracle: Oracle, listener: Listener) -> None:
    """While nothing is written; faults go on."""
    shared.pause.set()
    for writer in writers:
        if not writer.resting.wait(300):
            raise RuntimeError(f"{writer.name} has had no outcome for five minutes")
    oracle.check(listener)
    for writer in writers:
        writer.resting.clear()
    shared.pause.clear()


def _kills(tally: Tally) -> int:
    return sum(number for what, number in tally.counts.items() if what.startswith("kill"))


def _progress(tally: Tally, seconds: float) -> str:
    counts = tally.counts
    wrong = sum(counts[what] for what in BAD)
    return (
        f"{seconds / 60:3.0f} min: {counts['transactions']:,} transactions, {counts['imports']:,} imports, "
        f"{_kills(tally):,} kills, {counts['comparisons']:,} comparisons; {wrong or 'nothing'} wrong"
    )


def _show(tally: Tally) -> None:
    table = Table(show_header=False)
    kills = _kills(tally)
    table.add_row("epochs", f"{tally.counts['epochs']:,}")
    table.add_row("transactions", f"{tally.counts['transactions']:,}")
    table.add_row("kills", f"{kills:,}")
    for what in sorted(tally.counts.keys() - {"epochs", "transactions"} - set(BAD)):
        table.add_row(what, f"{tally.counts[what]:,}")
    table.add_section()
    for what in BAD:
        table.add_row(what, f"[{'red' if tally.counts[what] else 'green'}]{tally.counts[what]:,}[/]")
    Console(width=100).print(table)
    for text in tally.found:
        print(text)


def _logs(folder: Path) -> None:
    """The whole log of the parts, because an internal error is explained nowhere else, and the ends of the others."""
    parts = folder / "data" / "zedlog.log"
    for path in (*folder.glob("*.log"), parts, folder / "redis" / "server.log"):
        if path.exists():
            print(f"--- {path.name}")
            lines = path.read_text(errors="replace").splitlines()
            print("\n".join(lines if path == parts else lines[-40:]))


if __name__ == "__main__":
    sys.exit(main())
