"""Plans without a step, over tuples that are in the driver: computed there, without a query.

Such a plan selects from the changes of one relation and puts their columns into the head: `tc(x, y) :- arc(x, y)`, or
an inverse or a subclass in an ontology. A query for it takes a tenth of a second or two, whatever the number of tuples;
in arrays a tuple takes nanoseconds. What joins, computes or negates is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import Plan
from engine.data.arrow import HEIGHT, array_of, codes_of, columns, summed_by
from engine.maintenance.placement import Encode
from engine.spark.frames import DERIVATIONS, REL, WEIGHT
from engine.spark.tables import Table
from engine.spark.version import Change
from engine.spark.work.driver import which_fit
from engine.spark.work.work import Batch, Subject


class Origin:
    """What a plan starts from: (c0 .., height, weight), as a frame and, where it is in the driver, as arrays.

    Each is made when it is first asked for, and once; the frame is the same one for all plans.
    """

    def __init__(self, frame: Callable[[], DataFrame | None], local: Callable[[], Change | None]) -> None:
        self._make, self._read = frame, local

    @classmethod
    def changed(cls, delta: Table) -> Origin:
        """The changes of a lower relation (c0 .., weight)."""

        def local() -> Change | None:
            if delta.local is None:
                return None
            codes = codes_of(delta.local, len(delta.local.column_names) - 1)
            return codes, np.zeros(len(codes), np.int32), array_of(delta.local, WEIGHT)

        return cls(lambda: delta.frame.select("*", F.lit(0).alias(HEIGHT)), local)

    @classmethod
    def settled(cls, batch: Batch, relation: str) -> Origin:
        """The changes of an own relation at one height."""
        return cls(partial(batch.changes, relation), partial(batch.local, relation))

    @cached_property
    def frame(self) -> DataFrame:
        made = self._make()
        assert made is not None, "nothing starts from no tuples"
        return made

    @cached_property
    def local(self) -> Change | None:
        return self._read()


def project(plan: Plan, changes: Change, weight: int, subject: Subject, encode: Encode) -> pa.Table:
    """The head's changes, times `weight`, of a plan without a step: (rel, c0 .., height, weight, derivations), one row
    for each derivation."""
    codes, heights, weights = changes
    at = np.flatnonzero(which_fit(codes, plan.start, encode))
    place = dict(plan.start.variables)
    head = np.empty((len(at), len(plan.columns)), np.int64)
    for i, source in enumerate(plan.columns):
        head[:, i] = codes[at, place[source]] if isinstance(source, str) else encode(source)
    sign = -weight if plan.start.negated else weight
    return subject.rows(
        plan.head,
        head,
        height=(heights[at] + 1).astype(np.int32),
        weight=weights[at] * sign,
        derivations=np.ones(1, np.int64),
    )


def summed_rows(rows: pa.Table, width: int) -> pa.Table | None:
    """Such rows summed up by tuple and height; None where a sum might leave 64 bits, which Arrow would not say."""
    if np.abs(array_of(rows, WEIGHT).astype(float)).sum() >= 2.0**62:
        return None
    key = [REL, *columns(width), HEIGHT]
    return summed_by(rows, key, [WEIGHT, DERIVATIONS])
