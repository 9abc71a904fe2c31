"""Plans without a step, over tuples that are in the driver: computed there, without a query.

Such a plan selects from the changes of one relation and puts their columns into the head: `tc(x, y) :- arc(x, y)`, or
an inverse or a subclass in an ontology. A query for it takes a tenth of a second or two, whatever the number of tuples;
in arrays a tuple takes nanoseconds. Plans that join, compute or negate are left to Spark (lowering.py).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.circuit.plan import Plan
from engine.data.arrow import HEIGHT, array_of, columns, summed_by
from engine.maintenance.placement import Encode
from engine.spark.changes import which_fit
from engine.spark.frames import DERIVATIONS, REL, WEIGHT
from engine.spark.supports import Subject
from engine.spark.version import Change


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
