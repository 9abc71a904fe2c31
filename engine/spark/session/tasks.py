"""Running a Python function over a DataFrame's partitions, as Arrow, with pandas or without.

`DataFrame.mapInArrow` exchanges only Arrow batches, but refuses to start unless pandas is installed. Without pandas,
the function underneath that check makes the same operator. If that function does not exist (Spark is free to move it),
`can_map` says so, and the caller works without Python tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def can_map(frame: DataFrame) -> bool:
    """Whether `map_in_arrow` works here."""
    return find_spec("pandas") is not None or (_operator() is not None and hasattr(frame, "_jdf"))


def map_in_arrow(frame: DataFrame, task: Task, schema: str) -> DataFrame:
    """The batches that `task` yields for the batches of each partition."""
    if find_spec("pandas") is not None:
        return frame.mapInArrow(task, schema)
    make = _operator()
    assert make is not None, "can_map was asked"
    from pyspark.util import PythonEvalType

    # DataFrame.mapInArrow calls exactly this, after looking for pandas.
    function: Any = make(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, "pandas")
    mapped = function(*(frame[name] for name in frame.columns))
    java: Any = frame
    session: Any = frame.sparkSession
    classic: Any = type(frame)
    result: DataFrame = classic(java._jdf.mapInArrow(mapped._jc, False, None), session)
    return result


def _operator() -> Any:
    try:
        from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]  # not in its stub
    except ImportError:
        return None
    return vectorized_udf
