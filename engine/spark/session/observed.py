"""Aggregates that Spark takes of rows while it computes them, so that no query has to count them afterwards.

Each row has to be computed once: a row that is computed again counts again. So this is not for executors that may be
lost, nor for a checkpoint whose files are written after its rows were counted. Spark tells the result by an event,
which it drops if there are too many; so it is waited for a while only, and whoever asks must be able to do without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

from engine.spark.session.options import SparkOptions

_PATIENCE = 5.0
"""Seconds; the event comes within milliseconds."""
_LOOK_SECONDS = 0.001


def can_observe(options: SparkOptions) -> bool:
    """Whether each row of a checkpoint is computed once, by a driver in a child of this process."""
    return options.local and options.checkpoint_dir is None


class Observed:
    """The rows of a frame as `frame`, which is computed once, and what was seen of them then."""

    def __init__(self, frame: DataFrame, measures: Sequence[Column]) -> None:
        self._observation: Any = Observation()
        self.frame = frame.observe(self._observation, *measures)

    def told(self) -> dict[str, Any] | None:
        """The aggregates by name, after the rows were computed; None if Spark does not say."""
        stop = time.monotonic() + _PATIENCE
        while not self._observation._jo.future().isCompleted():
            if time.monotonic() >= stop:
                return None
            time.sleep(_LOOK_SECONDS)
        found: dict[str, Any] = self._observation.get
        return found
