"""The Spark session: started when it is first needed, checked, and stopped by whoever started it.

Nothing in this project imports Spark at the top of a module that a resident reasoner loads: the first use costs ten
seconds. A local master runs in a JVM that is a child of this process; its driver listens on the loopback interface
only, and there is no web interface. A `spark://` master and a `sc://` server (Spark Connect) are tried with a time
limit, since Spark itself retries for minutes without a word.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import InvalidRequestError, SparkUnavailableError
from engine.spark.java import java_home

T = TypeVar("T")
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?$")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How Spark is started and used.

    master: `local[n]`, `spark://host:port`, or `sc://host:port`. partitions: of every exchange and of the state.
    checkpoint_dir: a directory that all executors share; state is then kept there and survives their loss, otherwise
    in their memory and on their disks. local_rows: rows up to which changes are kept in the driver. adaptive: whether
    large queries are planned anew while they run. timeout: seconds to wait for the master and its first job. memory:
    of a local driver. conf: further settings of Spark.
    """

    master: str = "local[2]"
    partitions: int = 2
    checkpoint_dir: str | None = None
    local_rows: int = 20_000
    adaptive: bool = True
    timeout: float = 120.0
    memory: str = "4g"
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (_LOCAL.match(self.master) or self.master.startswith(("spark://", "sc://", "yarn", "k8s://"))):
            raise InvalidRequestError(
                f'the Spark master must be "local[n]", "spark://host:port" or "sc://host:port", not {self.master!r}'
            )
        if self.partitions < 1 or self.local_rows < 0 or self.timeout <= 0:
            raise InvalidRequestError(
                "partitions must be at least 1, local_rows not negative, timeout positive"
            )

    @property
    def local(self) -> bool:
        return bool(_LOCAL.match(self.master))


class SparkSource:
    """Gives the session, and starts it for the first who asks. `session`: one that is there already, and stays."""

    def __init__(self, options: SparkOptions, session: Any = None) -> None:
        self.options = options
        self._session = session
        self._started = False
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self._session is not None

    def session(self) -> Any:
        """The SparkSession.

        Raises:
            SparkUnavailableError: no Java, no Spark, no such master, or no answer in time.
        """
        with self._lock:
            if self._session is None:
                self._session = _start(self.options)
                self._started = True
            return self._session

    def close(self) -> None:
        """Stop the session if it was started here."""
        with self._lock:
            session, started = self._session, self._started
            if not started:
                return
            self._session, self._started = None, False
        session.stop()


def _start(options: SparkOptions) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailableError(f"the package pyspark is not installed ({error})") from error
    if options.master.startswith(("spark://", "sc://")):
        _reach(options.master, options.timeout)
    if options.master.startswith("sc://"):
        builder = SparkSession.builder.remote(options.master)
    else:
        # Spark's launcher reads the environment; the driver's memory is fixed when its JVM starts.
        os.environ["JAVA_HOME"] = str(java_home())
        if options.local:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(options.master).appName("zedlog")
    for name, value in {**_settings(options), **options.conf}.items():
        builder = builder.config(name, value)

    def start() -> Any:
        session = builder.getOrCreate()
        if not options.master.startswith("sc://"):
            session.sparkContext.setLogLevel("ERROR")
            if options.checkpoint_dir is not None:
                session.sparkContext.setCheckpointDir(options.checkpoint_dir)
        # A master without workers accepts an application and never runs it.
        session.range(1).count()
        return session

    return within(options.timeout, start, f"the Spark master {options.master}")


def _settings(options: SparkOptions) -> dict[str, str]:
    settings = {
        "spark.sql.shuffle.partitions": str(options.partitions),
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if options.master.startswith("sc://"):
        return settings
    settings |= {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.memory,
        "spark.log.level": "ERROR",
        "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    }
    if options.local:
        settings |= _worker_settings() | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return settings


def _worker_settings() -> dict[str, str]:
    """Python workers on this machine run this interpreter with this package and its compiled kernels."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"spark.executorEnv.PYTHONPATH": path}
    cache = os.environ.get("NUMBA_CACHE_DIR")
    return settings | ({"spark.executorEnv.NUMBA_CACHE_DIR": str(Path(cache).resolve())} if cache else {})


def _reach(master: str, timeout: float) -> None:
    """Connect to some host of a master's address, and hang up."""
    addresses = master.split("://", 1)[1].split("/", 1)[0].split(",")
    failures = []
    for address in addresses:
        host, _, port = address.partition(":")
        default = "15002" if master.startswith("sc://") else "7077"
        try:
            with socket.create_connection((host, int(port or default)), timeout):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
    raise SparkUnavailableError(
        f"the Spark master {master} cannot be reached ({'; '.join(failures)})",
        master=master,
        reasons=failures,
    )


def within(seconds: float, action: Callable[[], T], what: str) -> T:
    """The result of `action`, or a clear error when it fails or takes too long."""
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(action())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="zedlog-spark-start", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise SparkUnavailableError(
            f"{what} did not run a first job within {seconds:g} seconds; "
            "does it have workers with free cores and memory?"
        )
    if failure:
        lines = str(failure[0]).strip().splitlines() or [type(failure[0]).__name__]
        raise SparkUnavailableError(f"{what} could not be started: {lines[0]}") from failure[0]
    return result[0]
