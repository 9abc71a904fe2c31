"""DataFrames whose rows are there: small ones in the driver, as Arrow; large ones as checkpoints on the executors.

In: a lazy DataFrame. Out: a `Table`, whose frame reads rows that are already computed, so that no plan grows with the
number of heights or epochs behind it. A small table is a local relation inside the plans that use it: it needs no
job, no storage, and Spark sees that it is small. A large one is a checkpoint: in the executors' memory and disk
(`localCheckpoint`), or in the reliable checkpoint directory where one is configured. Checkpoints are not dropped by
any garbage collector in time; whoever holds a table releases it.

Small queries bring what they sum up into one partition and run without adaptive execution: every exchange would be a
job of its own, and there is nothing to adapt.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.arrow import array_of
from engine.errors import SparkUnavailableError, WeightOverflowError

ROWS = "rows"
LOCAL_ROWS = 20_000
"""Rows up to which a table lives in the driver."""


@dataclass(eq=False, slots=True)
class Table:
    """Computed rows. `local` where they are in the driver; else `frame` reads a checkpoint."""

    rows: int
    local: pa.Table | None
    _frame: DataFrame | None = field(repr=False)
    _make: Callable[[pa.Table], DataFrame] | None = field(default=None, repr=False)
    _root: DataFrame | None = field(default=None, repr=False)
    """The checkpoint that the frame is a view of."""

    def view(self, frame: DataFrame, rows: int) -> Table:
        """This checkpoint, read through `frame`; it takes over the storage."""
        return Table(rows, None, frame, None, self._frame)

    @property
    def frame(self) -> DataFrame:
        if self._frame is None:
            assert self._make is not None, "a table is local or a checkpoint"
            self._frame = self._make(self.local)
        return self._frame

    @property
    def nbytes(self) -> int:
        """Bytes held: measured in the driver, computed from the row's width on the executors."""
        if self.local is not None:
            return int(self.local.nbytes)
        return self.rows * 8 * (len(self.frame.columns) + 2)


class Tables:
    """Makes and releases tables over one session. `partitions`: of every exchange."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        partitions: int,
        local_rows: int = LOCAL_ROWS,
        reliable: bool = False,
        adaptive: bool = True,
    ) -> None:
        self._session = session
        self._reliable = reliable
        self._adaptive = adaptive
        self.partitions = partitions
        self.local_rows = local_rows
        self.queries = 0
        self._stop: float | None = None
        self._overdue: Callable[[], None] = lambda: None

    @property
    def spark(self) -> SparkSession:
        return self._session()

    def local(self, table: pa.Table) -> Table:
        """A table in the driver."""
        return Table(table.num_rows, table, None, self.spark.createDataFrame)

    def put(self, table: pa.Table) -> Table:
        """Rows from the driver, kept where tables of their size live."""
        if table.num_rows <= self.local_rows:
            return self.local(table)
        return self.checkpoint(self.spark.createDataFrame(table), table.num_rows)

    def collect(self, frame: DataFrame, small: bool = True) -> pa.Table:
        """All rows, in the driver."""
        with self._running(small):
            return frame.toArrow().combine_chunks()

    def collect_small(self, frame: DataFrame) -> pa.Table | None:
        """All rows, or None if they are more than a local table holds."""
        found = self.collect(frame.limit(self.local_rows + 1))
        return found if found.num_rows <= self.local_rows else None

    def checkpoint(self, frame: DataFrame, rows: int | None = None) -> Table:
        """Compute the rows and keep them on the executors. `rows`: how many there are, where it is known."""
        if rows is None:
            return self.measured(frame, [], [])[0]
        return Table(rows, None, self._kept(frame))

    def measured(self, frame: DataFrame, by: list[str], measures: list[Column]) -> tuple[Table, pa.Table]:
        """A checkpoint, and what one more query over it says: `measures` and the number of ROWS, grouped `by`."""
        kept = self._kept(frame)
        try:
            found = self.collect(kept.groupBy(*by).agg(F.count(F.lit(1)).alias(ROWS), *measures))
        except BaseException:
            self.release(Table(0, None, kept))
            raise
        return Table(int(array_of(found, ROWS).sum()), None, kept), found

    def _kept(self, frame: DataFrame) -> DataFrame:
        with self._running(small=False):
            return frame.checkpoint() if self._reliable else frame.localCheckpoint()

    def release(self, table: Table) -> None:
        """Give a checkpoint's storage back. The table must not be used any more."""
        if table.local is not None or table._frame is None:
            return
        frame = table._frame if table._root is None else table._root
        table._frame = table._root = None
        plan = getattr(frame, "_jdf", None)
        if plan is None:
            return  # Over Spark Connect the server drops a checkpoint with the client's last reference to it.
        rdd = plan.queryExecution().analyzed().rdd()
        file = rdd.getCheckpointFile()
        rdd.unpersist(False)
        if self._reliable and file.isDefined():
            jvm: Any = frame.sparkSession._jvm
            path = jvm.org.apache.hadoop.fs.Path(file.get())
            path.getFileSystem(rdd.sparkContext().hadoopConfiguration()).delete(path, True)

    @contextmanager
    def watched(self, seconds: float | None, overdue: Callable[[], None]) -> Iterator[None]:
        """Interrupt queries when the time is over; `overdue` then raises what the user is to see."""
        self._stop = None if seconds is None else time.monotonic() + seconds
        self._overdue = overdue
        try:
            yield
        finally:
            self._stop = None

    @contextmanager
    def _running(self, small: bool) -> Iterator[None]:
        """Settings of one query, put back after it; Spark's errors become ours."""
        self.queries += 1
        settings = {
            "spark.sql.ansi.enabled": "true",  # sums that leave 64 bits are errors
            "spark.sql.shuffle.partitions": "1" if small else str(self.partitions),
            "spark.sql.adaptive.enabled": "true" if self._adaptive and not small else "false",
        }
        conf = self.spark.conf
        before = {name: conf.get(name) for name in settings}
        changed = {name: value for name, value in settings.items() if before[name] != value}
        try:
            for name, value in changed.items():
                conf.set(name, value)
            with _interrupted_at(self.spark, self._stop):
                yield
        except PySparkException as error:
            if self._stop is not None and time.monotonic() >= self._stop:
                self._overdue()
            raise _ours(error) from error
        finally:
            for name in changed:
                conf.set(name, before[name] or "")


@contextmanager
def _interrupted_at(spark: SparkSession, stop: float | None) -> Iterator[None]:
    """Stop the queries of this thread when the time is over."""
    if stop is None:
        yield
        return
    tag = f"zedlog-{threading.get_ident()}"
    timer = threading.Timer(max(stop - time.monotonic(), 0.001), spark.interruptTag, [tag])
    timer.daemon = True
    spark.addTag(tag)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        spark.removeTag(tag)


def _ours(error: PySparkException) -> Exception:
    text = str(error)
    if "ARITHMETIC_OVERFLOW" in text:
        return WeightOverflowError("a weight or a number of derivations leaves 64 bits")
    lines = text.strip().splitlines() or [type(error).__name__]
    # The fault of a Python task stands at the end of its traceback.
    cause = [line.strip() for line in lines[1:] if re.match(r"\s*[\w.]*(Error|Exception): ", line)]
    return SparkUnavailableError(
        "Spark could not run a query: " + " ".join([lines[0], *cause[-1:]]), reason=error.getCondition() or ""
    )
