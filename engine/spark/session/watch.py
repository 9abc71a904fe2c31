"""Ends queries that must not go on: those whose time is over, those that were cancelled, and those that wait for
executors which do not come.

Spark waits for ever if there is nothing to run a job; the watch on a cluster's query ends it after `patience` seconds
without any executor. It costs one sleeping thread while a query runs, and none if there is nothing to watch for.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

_LOOK_SECONDS = 1.0
_ASK_SECONDS = 0.25
_NUMBERS = itertools.count()
_GONE = (Py4JError, OSError)
"""The exceptions that are thrown when the session has ended."""


@dataclass(slots=True)
class Ended:
    """Why a watched query was ended: nothing yet, `overdue`, `cancelled`, or `stranded`."""

    why: str = ""


@contextmanager
def watching(
    spark: Any,
    stop: float | None,
    patience: float | None,
    cancelled: Callable[[], bool] | None,
    ended: Ended,
) -> Iterator[None]:
    """Watch the queries that this thread runs inside. stop: on the clock `time.monotonic`. patience: seconds without
    executors; None if the kind of master has none, or if they cannot be counted. cancelled: called now and then. The
    reason is stored in `ended`.
    """
    if stop is None and patience is None and cancelled is None:
        yield
        return
    # A name of its own: a late interrupt must not meet the thread's next query.
    tag = f"zedlog-{threading.get_ident()}-{next(_NUMBERS)}"
    over = threading.Event()
    arguments = (spark, tag, stop, patience, cancelled, over, ended)
    thread = threading.Thread(target=_watch, args=arguments, name="zedlog-spark-watch", daemon=True)
    _mark(spark, tag)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with suppress(*_GONE):
            _unmark(spark, tag)


def executors(spark: Any) -> int:
    """The number of executors of a cluster's session, 0 when it has ended; the driver also counts as a holder of
    blocks.
    """
    try:
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
    except _GONE:
        return 0


def _watch(
    spark: Any,
    tag: str,
    stop: float | None,
    patience: float | None,
    cancelled: Callable[[], bool] | None,
    over: threading.Event,
    ended: Ended,
) -> None:
    alone_since = time.monotonic()
    while True:
        now = time.monotonic()
        waits = [_LOOK_SECONDS] if patience is not None else []
        if cancelled is not None:
            waits.append(_ASK_SECONDS)
        if stop is not None:
            waits.append(max(stop - now, 0.001))
        if over.wait(min(waits)):
            return
        now = time.monotonic()
        if stop is not None and now >= stop:
            ended.why = "overdue"
        elif cancelled is not None and cancelled():
            ended.why = "cancelled"
        elif patience is not None:
            if executors(spark):
                alone_since = now
            elif now - alone_since >= patience:
                ended.why = "stranded"
        if ended.why:
            break
    # Again and again, for a query whose job has not begun yet hears nothing of it.
    while not over.is_set():
        # When the session is over there is nothing left to interrupt.
        with suppress(*_GONE):
            _interrupt(spark, tag)
        over.wait(_ASK_SECONDS)


def _mark(spark: Any, tag: str) -> None:
    """Tag the jobs that this thread starts from now on. A session's tags reach its queries, but not the job that writes
    a checkpoint; if the driver is in this process, the context's tags reach that job too.
    """
    spark.addTag(tag)
    if hasattr(spark, "_jsparkSession"):
        spark.sparkContext.addJobTag(tag)


def _unmark(spark: Any, tag: str) -> None:
    spark.removeTag(tag)
    if hasattr(spark, "_jsparkSession"):
        spark.sparkContext.removeJobTag(tag)


def _interrupt(spark: Any, tag: str) -> None:
    spark.interruptTag(tag)
    if hasattr(spark, "_jsparkSession"):
        spark.sparkContext.cancelJobsWithTag(tag)
