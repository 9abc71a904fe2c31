"""The faults of the soak: processes are killed or stopped, Redis is slow, gone, or has no room on its disk; Spark loses
a worker."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.storage.embedded import EmbeddedServer
from tests.soak.proxy import Proxy
from tests.soak.tally import Tally
from tests.spark.standalone import Standalone

SPARED_SECONDS = 11.0
"""A part that was killed is left alone for so long, because `zedlog serve` gives up one that keeps ending at once; and
then until a transaction was acknowledged, however slow the machine is.
"""


def part_of(serve: int, part: str) -> int | None:
    """The process id of the engine or the service that a `zedlog serve` runs now."""
    word = b"engine.server" if part == "engine" else b"service.cli.worker"
    for children in Path(f"/proc/{serve}/task").glob("*/children"):
        with suppress(OSError):
            for pid in children.read_text().split():
                if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
    return None


class Faults(threading.Thread):
    """One fault after the other, until `stop`. serve: the process of `zedlog serve`; cluster: where its engine runs
    imports."""

    def __init__(
        self,
        server: EmbeddedServer,
        proxy: Proxy,
        serve: int,
        cluster: Standalone | None,
        tally: Tally,
        every: float,
        seed: int,
    ) -> None:
        super().__init__(name="faults", daemon=True)
        self._server, self._proxy, self._serve, self._tally = server, proxy, serve, tally
        self._cluster = cluster
        self._every, self._random = every, random.Random(seed)
        self._killed: dict[str, tuple[float, int]] = {}
        self.stop = threading.Event()

    def run(self) -> None:
        kinds: list[tuple[str, Callable[[], bool]]] = [
            *[("engine", lambda: self._kill("engine"))] * 3,
            *[("service", lambda: self._kill("service"))] * 4,
            *[("Redis", lambda: self._kill("Redis"))] * 4,
            ("engine stopped", lambda: self._pause("engine", 4)),
            ("service stopped", lambda: self._pause("service", 2)),
            ("Redis stopped", lambda: self._pause("Redis", 3)),
            ("Redis slow", self._slow),
            ("Redis lost", self._lose),
            ("disk full", self._fill),
        ]
        if (cluster := self._cluster) is not None:
            kinds += [("Spark worker", lambda: self._lose_worker(cluster))] * 2
        while not self.stop.wait(self._random.uniform(0.5, 1.5) * self._every):
            _, fault = self._random.choice(kinds)
            with suppress(ProcessLookupError):
                fault()

    def pid(self, part: str) -> int | None:
        """The process id of a part that runs now."""
        if part == "Redis":
            with suppress(Exception):
                return self._server.pid
            return None
        return part_of(self._serve, part)

    def _kill(self, part: str) -> bool:
        pid = self.pid(part)
        acknowledged = self._tally.counts["transactions"]
        when, by_then = self._killed.get(part, (0.0, -1))
        spared = part != "Redis" and (time.monotonic() - when < SPARED_SECONDS or acknowledged == by_then)
        if pid is None or spared:
            return False
        os.kill(pid, signal.SIGKILL)
        self._killed[part] = time.monotonic(), acknowledged
        self._tally.add(f"kill -9 of {part}")
        return True

    def _pause(self, part: str, most: float) -> bool:
        """SIGSTOP, and SIGCONT after a while; the engine's lease may run out meanwhile, and a standby takes over."""
        pid = self.pid(part)
        if pid is None:
            return False
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self._random.uniform(0.1, most))
        finally:
            os.kill(pid, signal.SIGCONT)
        self._tally.add(f"SIGSTOP of {part}")
        return True

    def _lose_worker(self, cluster: Standalone) -> bool:
        """kill -9 of a worker and its executor; another one takes its place, in its own time."""
        cluster.kill_worker(self._random.choice(cluster.workers))
        self._tally.add("kill -9 of a Spark worker")
        cluster.add_worker(wait=False)
        return True

    def _slow(self) -> bool:
        self._proxy.slow(self._random.uniform(1, 4), self._random.uniform(0.01, 0.2))
        self._tally.add("Redis slow")
        return True

    def _lose(self) -> bool:
        self._proxy.lose(self._random.uniform(0, 1.5))
        self._tally.add("Redis connections cut")
        return True

    def _fill(self) -> bool:
        """The server's files may not grow by more than a little: for it that is a full disk, in the middle of a write.
        No rights are needed for that; the server that is started afterwards has the disk back.
        """
        pid = self.pid("Redis")
        files = list(self._server.data_dir.rglob("*.aof"))
        if pid is None or not files:
            return False
        limit = max(path.stat().st_size for path in files) + self._random.randrange(2000)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, before[1]))
        time.sleep(self._random.uniform(0.5, 2))
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        self._tally.add("disk full")
        return True
