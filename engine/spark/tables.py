"""DataFrames with computed rows: small ones in the driver, as Arrow; large ones as checkpoints on the executors.

In: a lazy DataFrame. Out: a `Table`, whose frame reads rows that are already computed, so that no plan grows with the
number of heights or epochs before it. A small table is a local relation inside the plans that use it: it needs no job
and no storage, and Spark sees that it is small. A large one is a checkpoint (checkpoints.py). A garbage collector would
not drop it in time, so the holder of a table releases it; where a table has several holders, the last one does. What
a holder leaves to the garbage collector (a change that nobody reads any more) is put on a list, from any thread and at
any moment, and given back when the placement drains the list: a finalizer must not call Spark.

Small queries bring the rows that they sum up into one partition and run without adaptive execution: every exchange
would be a job of its own, and there is nothing to adapt.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from engine.data.arrow import array_of
from engine.errors import SparkUnavailableError, ZedlogError
from engine.spark.frames import from_driver
from engine.spark.session.checkpoints import Checkpoints
from engine.spark.session.failures import FAILURES, lost, session_ended, typed
from engine.spark.session.observed import Observed, can_observe
from engine.spark.session.session import SparkSource
from engine.spark.session.watch import Ended, executors, watching

ROWS = "rows"


@dataclass(eq=False, slots=True)
class Table:
    """Computed rows: `local` holds them if they are in the driver; otherwise it is None and `frame` reads a
    checkpoint.
    """

    rows: int
    local: pa.Table | None
    _frame: DataFrame | None = field(repr=False)
    _make: Callable[[pa.Table], DataFrame] | None = field(default=None, repr=False)
    _root: DataFrame | None = field(default=None, repr=False)
    """The checkpoint that the frame is a view of."""
    holders: int = 1
    """How many there are that will release it."""

    def retained(self) -> Table:
        """The same table, for one more holder."""
        self.holders += 1
        return self

    def view(self, frame: DataFrame, rows: int) -> Table:
        """This checkpoint read through `frame`; the new table takes over the storage."""
        return Table(rows, None, frame, None, self._frame)

    @property
    def frame(self) -> DataFrame:
        if self._frame is None:
            assert self._make is not None, "a table is local or a checkpoint"
            self._frame = self._make(self.local)
        return self._frame


class Leaving(Protocol):
    """A holder of tables that somebody else keeps."""

    def leave(self) -> None:
        """Put the tables into `Tables.left`."""


class Tables:
    """Makes and releases tables. All belong to one session: the one that the source has when it is first needed."""

    def __init__(self, source: SparkSource) -> None:
        options = source.options
        self._source = source
        self._session: SparkSession | None = None
        self._checkpoints = Checkpoints(options)
        self._adaptive = options.adaptive
        self._patience = options.timeout if options.cluster else None
        self.partitions = options.partitions
        self.local_rows = options.local_rows
        self.observes = can_observe(options)
        self.queries = 0
        self._stop: float | None = None
        self._cancelled: Callable[[], bool] | None = None
        self._overdue: Callable[[], None] = lambda: None
        self._stranded = False
        self.left: deque[Table] = deque()
        """Tables whose holder has left without releasing them."""
        self.changes: WeakSet[Leaving] = WeakSet()
        """The changes that are held by someone, and whose tables are here."""

    @property
    def spark(self) -> SparkSession:
        """The session.

        Raises:
            SparkStateLostError: it has ended; another session would not know the tables.
        """
        if self._session is None:
            self._session = self._source.session()
        elif not self._source.has(self._session):
            raise lost("it was noticed before")
        return self._session

    def small(self, rows: int) -> bool:
        """Whether this number of rows is small: they can be kept in the driver, and a copy can go to every
        partition.
        """
        return rows <= self.local_rows

    def local(self, table: pa.Table) -> Table:
        """A table in the driver."""
        # The session is asked for now: an epoch that needs none is refused all the same where there is none.
        return Table(table.num_rows, table, None, partial(from_driver, self.spark))

    def put(self, table: pa.Table) -> Table:
        """Rows from the driver as a table: in the driver if they are few, otherwise on the executors."""
        if self.small(table.num_rows):
            return self.local(table)
        return self.checkpoint(from_driver(self.spark, table), table.num_rows)

    def collect(self, frame: DataFrame, small: bool = True) -> pa.Table:
        """All rows, in the driver."""
        with self._running(small):
            return frame.toArrow().combine_chunks()

    def collect_small(self, frame: DataFrame) -> pa.Table | None:
        """All rows, or None if they are more than a local table holds."""
        found = self.collect(frame.limit(self.local_rows + 1))
        return found if self.small(found.num_rows) else None

    def portions(self, frame: DataFrame, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows in the order of the partitions, some at a time: the driver holds one partition at most."""
        schema = to_arrow_schema(frame.schema)
        with self._running(small=False):
            found = frame.toLocalIterator()
            while some := list(islice(found, rows)):
                columns = zip(schema, zip(*some, strict=True), strict=True)
                yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for f, c in columns], schema=schema)

    def checkpoint(self, frame: DataFrame, rows: int | None = None) -> Table:
        """Compute the rows and keep them on the executors. `rows`: their number, if it is known."""
        if rows is None:
            return self.measured(frame, [], [])[0]
        return Table(rows, None, self._kept(frame))

    def measured(self, frame: DataFrame, by: list[str], measures: list[Column]) -> tuple[Table, pa.Table]:
        """A checkpoint, and the result of one more query over it: `measures` and the number of ROWS, grouped `by`."""
        kept = self._kept(frame)
        try:
            found = self.collect(kept.groupBy(*by).agg(F.count(F.lit(1)).alias(ROWS), *measures))
        except BaseException:
            self.release(Table(0, None, kept))
            raise
        return Table(int(array_of(found, ROWS).sum()), None, kept), found

    def observed(self, frame: DataFrame, measures: Mapping[str, str]) -> tuple[Table, dict[str, int]]:
        """A checkpoint, and aggregates over all of its rows (SQL, by name) with the number of ROWS. Where `observes`
        says so, they are taken while the rows are computed; elsewhere by one more query."""
        wanted = {ROWS: "count(1)", **measures}
        columns = [F.expr(text).alias(name) for name, text in wanted.items()]
        observed = Observed(frame, columns) if self.observes else None
        kept = self._kept(frame if observed is None else observed.frame)
        try:
            seen = None if observed is None else observed.told()
            # Spark may leave the aggregates out of a plan that it finds to be empty.
            if seen is None or seen.keys() != wanted.keys():
                seen = self.collect(kept.agg(*columns)).to_pylist()[0]
        except BaseException:
            self.release(Table(0, None, kept))
            raise
        found = {name: int(value or 0) for name, value in seen.items()}
        return Table(found[ROWS], None, kept), found

    def _kept(self, frame: DataFrame) -> DataFrame:
        with self._running(small=False):
            return self._checkpoints.make(frame)

    def release(self, table: Table) -> None:
        """Give a checkpoint's storage back, if this was its last holder, who must not use it any more."""
        if table.local is not None or table._frame is None:
            return
        table.holders -= 1
        if table.holders:
            return
        frame = table._frame if table._root is None else table._root
        table._frame = table._root = None
        try:
            self._checkpoints.drop(frame)
        except FAILURES:
            # The session is over, or its executors are gone, and the storage with them; the next query says so.
            return

    def give_up(self) -> None:
        """Release what the changes hold that are still in use."""
        for change in list(self.changes):
            change.leave()
        self.drain()

    def drain(self) -> None:
        """Release what was left."""
        while self.left:
            self.release(self.left.popleft())

    @contextmanager
    def watched(
        self, seconds: float | None, cancelled: Callable[[], bool] | None, overdue: Callable[[], None]
    ) -> Iterator[None]:
        """Interrupt queries when the time is over, or when they are cancelled; `overdue` then raises the error for the
        user. An exception of Spark between queries, while plans are made, also becomes an error of Zedlog.
        """
        self._stop = None if seconds is None else time.monotonic() + seconds
        self._cancelled, self._overdue = cancelled, overdue
        try:
            yield
        except FAILURES as error:
            raise self._typed(error) from error
        finally:
            self._stop = self._cancelled = None

    @contextmanager
    def _running(self, small: bool) -> Iterator[None]:
        """Set Spark's settings for one query, and restore them after it; Spark's errors become errors of Zedlog."""
        self.queries += 1
        settings = {
            "spark.sql.ansi.enabled": "true",  # sums that leave 64 bits are errors
            "spark.sql.shuffle.partitions": "1" if small else str(self.partitions),
            "spark.sql.adaptive.enabled": "true" if self._adaptive and not small else "false",
        }
        spark, ended = self.spark, Ended()
        if self._stranded and not executors(spark):
            # It was waited for once; a caller with many transactions must not wait again for each.
            raise self._no_executors()
        self._stranded = False
        before: dict[str, str | None] = {}
        try:
            for name, value in settings.items():
                now = spark.conf.get(name)
                if now != value:
                    spark.conf.set(name, value)
                    before[name] = now
            with watching(spark, self._stop, self._patience, self._cancelled, ended):
                yield
        except FAILURES as error:
            if ended.why == "cancelled" or (self._stop is not None and time.monotonic() >= self._stop):
                self._overdue()
            if ended.why == "stranded":
                self._stranded = True
                raise self._no_executors() from error
            raise self._typed(error) from error
        finally:
            for name, was in before.items():
                with suppress(*FAILURES):  # a session that is over has no settings either
                    spark.conf.set(name, was or "")

    def _typed(self, error: BaseException) -> ZedlogError:
        if self._session is not None and session_ended(error):
            self._source.lost(self._session)
        return typed(error)

    def _no_executors(self) -> SparkUnavailableError:
        return SparkUnavailableError(
            f"Spark had no executors for {self._patience:g} seconds; are its workers running?"
        )
