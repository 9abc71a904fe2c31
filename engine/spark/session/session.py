"""The Spark session: started when it is first needed, checked, and stopped by whoever started it.

No module that a resident reasoner loads imports Spark at its top, because the first use costs ten seconds. A local
master runs in a JVM that is a child of this process; its driver listens only on the loopback interface, and there is no
web interface. Other masters are tried with a time limit, because Spark itself retries silently for minutes, and every
session is checked (probe.py, checkpoints.py) before it is used.

A process has one Spark session: Spark would return the first one again, whatever the options of the second, so a second
session with another master is refused.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, TypeVar

from engine.errors import InvalidRequestError, SparkUnavailableError, ZedlogError
from engine.spark.session.options import SparkOptions
from engine.spark.session.settings import prepare_environment, settings

__all__ = ["SparkOptions", "SparkSource", "within"]

T = TypeVar("T")
_CONNECT_PACKAGES = {
    "pandas": "pandas",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
_CONNECT_RETRIES = 6
"""How often one call is tried while a Connect server does not answer: some 25 seconds."""
_PACKAGE_SECONDS = 600.0
"""How much longer the start of Spark may take when packages have to be fetched first."""


class SparkSource:
    """Returns the session, and starts it for the first caller. `session`: an existing one, which stays open."""

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
            SparkUnavailableError: no Java, no Spark, no such master, executors that cannot work, no answer in time.
            CheckpointUnavailableError: the checkpoint directory cannot be used. InvalidRequestError: this process has a
            session with another master, or only the server's operator can make a setting.
        """
        with self._lock:
            if self._session is None:
                self._session = _start(self.options)
                self._started = True
            return self._session

    def another(self) -> Any:
        """A session with settings of its own. If the existing session has ended unnoticed together with its JVM, a new
        one is started.
        """
        from engine.spark.session.failures import FAILURES, session_ended

        first = self.session()
        try:
            return first.newSession()
        except FAILURES as error:
            if not session_ended(error):
                raise
        self.lost(first)
        return self.session().newSession()

    def has(self, session: Any) -> bool:
        """Whether this is the present session."""
        return self._session is session

    def lost(self, session: Any) -> None:
        """A session has ended by itself: if it was started here, the next caller gets a new one."""
        with self._lock:
            if self._started and self.has(session):
                self._close()

    def close(self) -> None:
        """Stop the session if it was started here."""
        with self._lock:
            if self._started:
                self._close()

    def _close(self) -> None:
        session, self._session, self._started = self._session, None, False
        _stop(session, self.options)


def _start(options: SparkOptions) -> Any:
    if find_spec("pyspark") is None:
        raise SparkUnavailableError("the package pyspark is not installed")
    if options.master.startswith(("spark://", "sc://")):
        _reach(options.master, options.timeout)
    if options.connect:
        _check_connect_packages()
    else:
        prepare_environment()
    _check_only_one(options)
    begun: list[Any] = []
    given_up = threading.Event()

    def start() -> None:
        from engine.spark.session.checkpoints import prepare
        from engine.spark.session.probe import check_jobs, check_workers

        session = _connected(options) if options.connect else _driven(options)
        begun.append(session)
        if given_up.is_set():
            # It came too late: nobody else knows of it.
            _stop(session, options)
            return
        check_jobs(session)
        prepare(session, options)
        if not options.local:
            check_workers(session, options)

    try:
        more = _PACKAGE_SECONDS if options.packages else 0.0
        within(options.timeout + more, start, f"the Spark master {options.master}")
    except BaseException as error:
        given_up.set()
        for session in begun:
            _stop(session, options)
        if options.packages and "JAVA_GATEWAY_EXITED" in str(error):
            raise SparkUnavailableError(
                f"Spark could not start with the packages {', '.join(options.packages)}: most likely one of them, or "
                "something that it needs, cannot be fetched; the engine's standard error names it. "
                "spark.jars.excludes leaves out what is not needed, spark.jars names files that are there already",
                packages=list(options.packages),
            ) from error
        raise
    return begun[0]


def _driven(options: SparkOptions) -> Any:
    """A session whose driver is a child of this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(options.master).appName("zedlog")
    for name, value in settings(options).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _connected(options: SparkOptions) -> Any:
    """A session of a Connect server; a setting that only its operator can make is refused by name."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session: Any = SparkSession.builder.remote(options.master).getOrCreate()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_RETRIES, max_backoff=10_000)])
    for name, value in settings(options).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
        elif session.conf.get(name, None) != value:
            raise InvalidRequestError(
                f"over Spark Connect, {name} is a setting of the server; start it with --conf {name}={value}",
                setting=name,
            )
    return session


def _stop(session: Any, options: SparkOptions) -> None:
    """Stop a session, also one whose executors, master or JVM are gone."""
    from engine.spark.session.checkpoints import forget
    from engine.spark.session.failures import FAILURES

    with suppress(*FAILURES):
        forget(session, options)
    try:
        session.stop()
    except FAILURES:
        # The JVM is gone. Spark's Python side would hand out its remains to the next who asks.
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _check_only_one(options: SparkOptions) -> None:
    """Refuse a session that Spark would silently replace by another one."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    there = context.master if context is not None else os.environ.get("SPARK_REMOTE", "")
    if context is None and not there and not options.connect and "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        there = "a Spark Connect server"
    if there and there != options.master:
        raise InvalidRequestError(
            f"this process already has a Spark session with {there}, and a process can have only one; "
            f"use {options.master} from another process",
            master=options.master,
        )


def _check_connect_packages() -> None:
    missing = []
    for module, package in _CONNECT_PACKAGES.items():
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(package)
    if missing:
        raise SparkUnavailableError(
            f"Spark Connect needs packages that are not installed: {', '.join(missing)}; "
            "install them with: pip install 'zedlog[connect]'",
            missing=missing,
        )


def _reach(master: str, timeout: float) -> None:
    """Connect to some host of a master's address, and disconnect."""
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
    """The result of `action`, or a clear error if it fails or takes too long."""
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
            "check that it has workers with free cores and memory"
        )
    if failure:
        if isinstance(failure[0], ZedlogError):
            raise failure[0]
        lines = str(failure[0]).strip().splitlines() or [type(failure[0]).__name__]
        raise SparkUnavailableError(f"{what} could not be started: {lines[0]}") from failure[0]
    return result[0]
