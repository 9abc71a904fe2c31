"""Where a stratum is worked on in one epoch, and when the work moves: decided here, and nowhere else.

- In the driver (driver.py), while what is derived at a height is small: to settle a height needs no query, and neither
  do plans that only copy tuples.
- On the executors (frames.py), when something is large. It stays there until the end of the epoch. A large stratum that
  only grows and has nothing derived yet takes the shorter strategy there (semi_naive.py).
- In one job (pivoted.py), where the stratum has a pivot and is computed from nothing, and there is enough of it. The
  job may find that it cannot do it; then the work goes on in one of the other places.

A decision costs no query: it is made from numbers that the driver knows, or that a query brings which is made anyway.
Only supports that turn out to be few, after they were expected to be many, take a query to come back to the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.circuit.pivot import pivot_of
from engine.maintenance.placement import Budget
from engine.spark.plans.branches import Branches
from engine.spark.supports import Subject, Supports
from engine.spark.version import Version
from engine.spark.work.driver import LocalWork
from engine.spark.work.frames import FrameWork
from engine.spark.work.pivoted import Pivoted
from engine.spark.work.semi_naive import SemiNaive
from engine.spark.work.work import Worker

PIVOT_ROWS = 500
"""Supports from outside the recursion above which a pivoted stratum is computed in one job."""
FULL = 10
"""The work leaves the driver when it holds more than so many times the rows of a small table."""


class Choice:
    """The worker that has a stratum, and what it is chosen from."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._tables = subject, subject.tables
        self._in_driver: LocalWork | None = None
        self._work: Worker | None = None
        self._large = False
        """What is derived next may be too much for the driver."""

    @property
    def work(self) -> Worker:
        """The worker; `begin` chooses the first."""
        assert self._work is not None, "the work has begun"
        return self._work

    def release(self) -> None:
        """Give back what is not part of an outcome."""
        if self._work is not None:
            self._work.release()

    def expect(self, *rows: int) -> None:
        """The next query reads relations with so many rows, on any side of a join: a few rows may meet many of a large
        relation. Where one is large, the result is not tried in the driver, since a failed try costs as much again."""
        self._large = self._large or not all(map(self._tables.small, rows))

    def begin(self, branches: Branches) -> Supports | None:
        """Sum up what comes from outside the stratum, and choose the first worker. None if nothing comes from there."""
        subject = self._subject
        old = sum(version.rows for version in subject.versions.values()) if subject.rebuilt else 0
        self.expect(branches.given, old)
        found = branches.summed(few=not self._large) if branches else None
        if found is not None:
            if self._tables.small(max(found.table.rows, old, 1)):
                # It may not have been so large after all.
                found = found.in_driver_of(self._tables)
            self._large = not found.in_driver
        if not self._large:
            self._work = self._in_driver = LocalWork(subject)
        elif found is not None and SemiNaive.possible(subject, found):
            self._work = SemiNaive(subject)
        else:
            self._work = FrameWork(subject)
        return found

    def pivoted(self, found: Supports, lower: Mapping[str, Version], budget: Budget) -> Pivoted | None:
        """All the work as one job; None if the stratum is to be gone through height by height."""
        subject = self._subject
        pivot = pivot_of(subject.stratum)
        enough = min(PIVOT_ROWS, self._tables.local_rows)
        if pivot is None or found.table.rows <= enough or not subject.from_nothing:
            return None
        job = Pivoted(subject, pivot, lower, budget)
        return job if job.possible(found) else None

    def summed(self, branches: Branches, height: int) -> Supports:
        """What was derived of a height, summed up. If it is too much for the driver, the work moves."""
        held = self._in_driver.rows if self._in_driver is not None else 0
        few = not self._large and held <= FULL * self._tables.local_rows
        supports = self.work.summed(branches, height, few)
        if self._in_driver is not None and not supports.in_driver:
            self._work = FrameWork(self._subject, self._in_driver.handed_over())
            self._in_driver, self._large = None, True
        return supports
