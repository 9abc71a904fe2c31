"""Checks, before anything is applied, that a new session can do what the placement needs.

Each check runs a small job, so that a problem is reported when Spark starts and not in the middle of an epoch: that
there are executors, that their Python can run Zedlog's tasks, that they can write the checkpoint directory and all can
read it. The caller sets a time limit, because a master without workers accepts a job and never runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from engine.errors import SparkUnavailableError
from engine.spark.session.options import SparkOptions
from engine.spark.session.tasks import can_map, map_in_arrow

_ADVICE = (
    "install zedlog there with the same versions of Python and of all packages, at the same paths as here; "
    "or set PYSPARK_PYTHON, and spark.executorEnv.PYTHONPATH, to where it is"
)


def check_jobs(session: Any) -> None:
    """Check that some executor runs a job."""
    session.range(1).count()


def check_workers(session: Any, options: SparkOptions) -> None:
    """Check that the Python workers can import the modules of Zedlog's tasks: the kernels, numba, numpy, pyarrow.

    Raises:
        SparkUnavailableError: some cannot; the message says what they lack.
    """
    frame = session.range(0, options.partitions, 1, options.partitions)
    if not can_map(frame):
        return
    try:
        found = map_in_arrow(frame, _importing(), "python string, problem string").distinct().collect()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if "Error: " in line or "Cannot run program" in line]
        raise SparkUnavailableError(
            f"Spark's executors cannot run Python tasks: {(causes or lines or [repr(error)])[-1]}; {_ADVICE}"
        ) from error
    problems = sorted({f"{row.problem} (in {row.python})" for row in found if row.problem})
    if problems:
        raise SparkUnavailableError(
            f"Spark's executors cannot run Zedlog's tasks: {'; '.join(problems)}; {_ADVICE}",
            problems=problems,
        )


def _importing() -> Any:
    """A task that can be sent to a worker without this package: a nested function is sent together with its code."""

    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys

        import pyarrow

        for _ in batches:
            pass
        try:
            importlib.import_module("engine.spark.work.fixpoint")
            problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable], "problem": [problem]})

    return imported
