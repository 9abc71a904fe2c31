"""A live system for tests: embedded server, engine process and HTTP service, each a process of its own.

They are the parts that `zedlog serve` runs, started one by one so that a test can kill any of them with
SIGKILL and start it again on the same port and the same data directory. Everything that was started is
ended by its own process id when the block is left. What the parts print goes to files in the folder, and
`logs()` gives their ends for the message of a failure.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import httpx

from engine.storage.embedded import EmbeddedServer
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent
Part = Literal["server", "engine", "service"]
PARTS: tuple[Part, ...] = ("server", "engine", "service")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LiveSystem:
    """`with LiveSystem(folder) as live:` runs all three parts; `live.url` is the service. engine: the module that is
    the engine process, and further arguments."""

    def __init__(self, folder: Path, engine: Sequence[str] = ("engine.server",)) -> None:
        self.folder = folder
        self._engine = engine
        self._server = EmbeddedServer(folder / "data")
        self._processes: dict[Part, subprocess.Popen[bytes]] = {}
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> LiveSystem:
        try:
            for part in PARTS:
                self.start(part)
            # The very first start of an engine compiles its kernels where set-up has not done so.
            self.wait_ready(240)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=httpx.Timeout(options.pop("timeout", 30)), **options)

    def start(self, part: Part) -> None:
        if part == "server":
            self._server.start()
        elif part == "engine":
            self._spawn(part, *self._engine, "--redis-url", self._server.url, "--database", "test")
        else:
            listen = ("--host", "127.0.0.1", "--port", str(self._port), "--log-level", "warning")
            self._spawn(part, "uvicorn", "--factory", "service.app:create_app", *listen)

    def pid(self, part: Part) -> int:
        return self._server.pid if part == "server" else self._processes[part].pid

    def kill(self, part: Part) -> None:
        """SIGKILL; engine and service stay away until `start`."""
        if part == "server":
            # Its owner, here this process, sees that and starts it again, as `zedlog serve` does.
            os.kill(self.pid(part), signal.SIGKILL)
        else:
            self._processes[part].kill()
            self._processes[part].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._server.stop()

    def wait_ready(self, timeout: float = 60) -> None:
        """Until `/readyz` says that storage and engine are there."""
        answer = "nothing yet"

        def is_ready() -> bool:
            nonlocal answer
            try:
                response = client.get("/readyz")
            except httpx.TransportError as error:
                answer = repr(error)
                return False
            answer = response.text
            return response.status_code == 200

        with self.client(timeout=2) as client:
            until(is_ready, lambda: f"a system that is ready: {answer}\n{self.logs()}", timeout)

    def logs(self) -> str:
        """The last lines that each part printed."""
        ends = []
        for path in sorted(self.folder.glob("*.log")):
            ends.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(ends)

    def _spawn(self, part: Part, *arguments: str) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "ZEDLOG_REDIS_URL": self._server.url,
            "ZEDLOG_DATABASE": "test",
        }
        with (self.folder / f"{part}.log").open("ab") as log:
            self._processes[part] = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
