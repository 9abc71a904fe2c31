"""What brings a stratum through one epoch: a worker, the changes of a height, and the outcome.

The stratum's run (engine/spark/stratum.py) pushes supports to a worker, asks it for the next height and lets it settle
that height. The run then carries what changed there through the rules. Which worker it is, choice.py decides: one in
the driver (driver.py), one on the executors (frames.py, semi_naive.py), or one job for all heights (pivoted.py). All
give the same result, and tests compare them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.circuit.plan import Start
from engine.data.codes import Codes
from engine.maintenance.change import Change, RelationChange
from engine.resident.changes import Described, change_of
from engine.spark.changes import Changes
from engine.spark.plans.branches import Branches
from engine.spark.supports import Supports
from engine.spark.version import Counts, Version


@dataclass(frozen=True, slots=True)
class NewVersion:
    """One relation after the stratum's epoch: its new version, and what changed for a reader."""

    version: Version
    change: Change


class HeightDelta(Protocol):
    """The entry changes of one height."""

    height: int

    def net(self) -> Mapping[str, int]:
        """By relation, the sum of the changes: by how many tuples it grew."""

    def fitting(self, start: Start) -> int:
        """How many changes fit the starting atom."""

    def of(self, relation: str) -> Changes | None:
        """The changes of one relation; None where there are none. The same object each time."""

    def earlier(self, relation: str) -> DataFrame | None:
        """(c0 .. cn, height, weight): all entry changes of the epoch before this batch. The same frame each time."""


def begun(version: Version, rebuilt: bool, stratum: Stratum) -> Version:
    """What an epoch's layer is added to: the old layers, or none where the relation is made anew."""
    old = Version(version.name, version.arity) if rebuilt else version
    return replace(old, fold=stratum.in_place.get(version.name), signed=stratum.signed)


class Worker(ABC):
    """The worker that has a stratum: in the driver or on the executors."""

    def summed(self, branches: Branches, height: int, few: bool) -> Supports:
        """What was derived of `height`, summed up and ready to be pushed. few: try to bring it to the driver."""
        return branches.summed(few)

    @abstractmethod
    def push(self, supports: Supports) -> None:
        """Add supports, whose table belongs to the worker then."""

    @abstractmethod
    def next_height(self) -> int | None:
        """The least height at which something is to be looked at."""

    @abstractmethod
    def settle(self, height: int) -> HeightDelta | None:
        """Bring the entries at `height` up to date; returns what changes, or None if nothing does."""

    @abstractmethod
    def finish(self) -> dict[str, NewVersion]:
        """The stratum's relations after the epoch."""

    @abstractmethod
    def release(self) -> None:
        """Give back the storage that is not part of an outcome."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The state of a stratum's work, as one worker leaves it to another; None where there is nothing.

    pushed, entered: supports and entry changes of the epoch so far, (rel, c0 .., height, weight). scheduled: what is
    still to be looked at, (rel, c0 .., next).
    """

    pushed: pa.Table | None
    entered: pa.Table | None
    scheduled: pa.Table | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What some tuples were and are. fold: the fold in place after the epoch."""

    codes: Codes
    before: Described
    after: Described
    fold: Fold | None = None

    def change(self) -> RelationChange:
        """What a reader can see of it."""
        return change_of(lambda seen: self.codes[seen], self.before, self.after, self.fold)

    def counts(self, counts: Counts) -> Counts:
        """`counts` brought from before to after."""
        asserted, derived, present = (
            int(np.count_nonzero(after > 0)) - int(np.count_nonzero(before > 0))
            for before, after in zip(self.before[:3], self.after[:3], strict=True)
        )
        return counts.plus(present, asserted, derived)
