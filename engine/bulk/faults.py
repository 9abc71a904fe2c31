"""Spark's failures in a bulk job, as errors that a user can act on.

In: what Spark raised. Out: one of engine/errors.py. Spark wraps the cause in stack traces of several processes, so it
is found by the names of Java's exceptions, which are stable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from engine.bulk.exporting import NOT_A_TRIPLE
from engine.bulk.sources import Source, damage
from engine.bulk.typed import TOO_HEAVY
from engine.errors import (
    BulkStorageError,
    HeaderMismatchError,
    InvalidValueError,
    SourceUnreadableError,
    SparkUnavailableError,
    WeightOverflowError,
    ZedlogError,
)
from engine.rdf.writing import CANNOT_HOLD

_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_NO_RIGHT = (
    "Permission denied",
    "Mkdirs failed",
    "Read-only file system",
    "FAILED_RENAME",
    "Not a directory",
)
_MISSING = ("PATH_NOT_FOUND", "FileNotFoundException", "FAILED_READ_FILE.FILE_NOT_EXIST")
_DAMAGED = (
    "Unexpected end of input stream",
    "EOFException",
    "EOFError",
    "BadGzipFile",
    "zlib.error",
    "ZipException",
    "incorrect header check",
    "incorrect data check",
    "is not a Parquet file",
    "CANNOT_READ_FILE_FOOTER",
    "FAILED_READ_FILE",
)


def explained(error: Exception, sources: Sequence[Source] = ()) -> ZedlogError:
    """The meaning of a Spark query's failure, as an error. sources: the files that it read."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if any(word in text for word in _NO_SPACE):
        return BulkStorageError(
            f"there is no space left for the files of this job: {_line(lines, _NO_SPACE)}"
        )
    if any(word in text for word in _NO_RIGHT):
        return BulkStorageError(f"the files of this job cannot be written: {_line(lines, _NO_RIGHT)}")
    if "CSV header does not conform to the schema" in text or "_LEGACY_ERROR_TEMP_3241" in text:
        return HeaderMismatchError(
            "the headers of the files differ from one another", files=[s.name for s in sources]
        )
    if CANNOT_HOLD in text:
        return InvalidValueError(_line(lines, (CANNOT_HOLD,)).partition("ValueError: ")[2])
    if NOT_A_TRIPLE in text:
        return InvalidValueError(_line(lines, (NOT_A_TRIPLE,)))
    if TOO_HEAVY in text:
        line = _line(lines, (TOO_HEAVY,))
        row = re.search(r": (\{.*\})", line)
        return WeightOverflowError(line, tuples=[list(orjson.loads(row[1]).values())] if row else [])
    if "ARITHMETIC_OVERFLOW" in text:
        return WeightOverflowError("the weight of a tuple does not fit into 64 bits")
    if sources and any(word in text for word in (*_MISSING, *_DAMAGED)):
        found = [found for source in sources if (found := damage(source))]
        reason = found[0] if found else _line(lines, (*_MISSING, *_DAMAGED))
        return SourceUnreadableError(f"the files cannot be read: {reason}", files=[s.name for s in sources])
    return SparkUnavailableError(f"Spark could not run a query of this job: {lines[0]}")


def is_sparks(error: Exception) -> bool:
    """Whether Spark, or the bridge to its JVM, raised the error."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _line(lines: Sequence[str], words: Sequence[str]) -> str:
    """The line that matches, without a stack trace."""
    found = next((line for line in lines if any(word in line for word in words)), lines[0])
    return found[:500]
