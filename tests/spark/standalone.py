"""Spark on this machine as processes of its own: a master and workers with an executor each; a Connect server.

They are started with the commands that docs/operations.md gives, from the classes that the package pyspark ships:
nothing is downloaded. What is started is ended by its process id; an executor whose worker was killed ends by itself,
and is looked after until it has.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

from engine.spark.session.java import java_home
from engine.storage.child import dies_with_parent
from tests.live import free_port
from tests.waiting import until

# Small JVMs that start fast; a test's queries are tiny.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:-UsePerfData"
START_SECONDS = 180.0


def environment(**more: str) -> dict[str, str]:
    """The environment of Spark's own processes on this machine."""
    home = Path(pyspark.__file__).parent
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


def java_children(pid: int) -> list[int]:
    """Process ids of the Java processes that a process started."""
    found = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    pairs = [line.split(None, 1) for line in found.stdout.splitlines()]
    return [int(child) for child, command in pairs if command.strip() == "java"]


class SparkProcess:
    """One process of Spark's, started by `spark-class`, with its output in a file."""

    def __init__(self, name: str, arguments: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        script = Path(env["SPARK_HOME"]) / "bin" / "spark-class"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                dies_with_parent(["/bin/bash", str(script), *arguments]),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """The first place of the output that fits."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.output())
            code = self._process.poll()
            assert found or code is None, f"{self.name} ended with status {code}:\n{self.output()[-3000:]}"
            return found

        found = until(look, lambda: f"{pattern} from {self.name}:\n{self.output()[-3000:]}", seconds)
        assert found is not None, "it was waited for"
        return found

    def children(self) -> list[int]:
        """The Java processes below it: the executors of a worker."""
        return java_children(self.pid)

    def kill(self) -> None:
        """As a machine that goes away: no farewell."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Standalone:
    """See the module. A context manager; `address` is the master's `spark://host:port`."""

    def __init__(
        self, folder: Path, workers: int = 2, env: Mapping[str, str] | None = None, memory: str = "1g"
    ) -> None:
        self._folder = folder
        self._env = environment(**(env or {}))
        self._executors: set[int] = set()
        self._numbers, self._memory = itertools.count(), memory
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self.master = SparkProcess(
            "master", ["org.apache.spark.deploy.master.Master", *arguments], folder, self._env
        )
        self.workers: list[SparkProcess] = []
        try:
            self.master.wait_for("New state: ALIVE")
            started = [self._start_worker() for _ in range(workers)]
            for worker in started:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_worker(self) -> SparkProcess:
        name = f"worker{next(self._numbers)}"
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", self._memory, "--webui-port", "0"]
        place = ["--work-dir", str(self._folder / name), self.address]
        worker = SparkProcess(
            name, ["org.apache.spark.deploy.worker.Worker", *arguments, *place], self._folder, self._env
        )
        self.workers.append(worker)
        return worker

    def add_worker(self, *, wait: bool = True) -> SparkProcess:
        """wait: until the master knows it. It ends with the thread that starts it."""
        worker = self._start_worker()
        if wait:
            worker.wait_for("Successfully registered with master")
        return worker

    def kill_worker(self, worker: SparkProcess) -> None:
        """kill -9 of a worker and of its executors, at once."""
        executors = worker.children()
        self._executors |= set(executors)
        self.workers.remove(worker)
        worker.kill()
        for pid in executors:
            _signal(pid, signal.SIGKILL)

    def kill_executor(self, worker: SparkProcess) -> None:
        """kill -9 of a worker's executors; the master starts new ones."""
        executors = worker.children()
        assert executors, "the worker has an executor"
        for pid in executors:
            _signal(pid, signal.SIGKILL)

    def close(self) -> None:
        for worker in self.workers:
            self._executors |= set(worker.children())
            worker.end()
        self.master.end()
        deadline = time.monotonic() + 20
        while (left := {pid for pid in self._executors if _runs(pid)}) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _runs(pid: int) -> bool:
    """Whether the process is one of Spark's executors still; ids are used again."""
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class ConnectServer:
    """A Spark Connect server with a local driver, as `spark-submit` starts it. A context manager."""

    def __init__(self, folder: Path, conf: Mapping[str, str]) -> None:
        port = free_port()
        self.address = f"sc://127.0.0.1:{port}"
        settings = {
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            **conf,
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        self.process = SparkProcess(
            "connect",
            ["org.apache.spark.deploy.SparkSubmit", *server, *options, "spark-internal"],
            folder,
            environment(SPARK_DAEMON_MEMORY="1g"),
        )
        try:
            self.process.wait_for("Spark Connect server started at")
        except BaseException:
            self.process.end()
            raise

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end()
