"""Turns Spark's exceptions into errors of Zedlog, which say whether state is lost and what to do.

A query that fails leaves the state as it was: its epoch is refused, and the next one may be tried. But when blocks of
the state were lost with executors, or the session itself has ended (with its master, its JVM or the Connect server), no
later query can succeed: that is a `SparkStateLostError`, after which a new reasoner is made from facts and rules.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from engine.errors import SparkStateLostError, SparkUnavailableError, WeightOverflowError, ZedlogError

_BLOCKS = re.compile(
    r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\w+ not found|"
    r"Could not find block rdd_|Checkpoint RDD .* has a different number of partitions"
)
_SESSION = re.compile(
    r"stopped SparkContext|SparkContext was shut ?down|SparkContext has been shutdown|cancelled because .* shut down|"
    r"INVALID_HANDLE\.SESSION|SESSION_CLOSED|SESSION_NOT_FOUND|SESSION_CHANGED|NO_ACTIVE_SESSION|"
    r"Error while (sending|receiving|obtaining a new communication)|Answer from Java side is empty|"
    # What the bridge makes of a call in whose middle the JVM goes: a class that is not there, a fault without a trace.
    r"does not exist in the JVM|An error occurred while calling [\w.$:]+\Z|CANNOT_PARSE_DATATYPE.*\[Errno \d+\]|"
    r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|CACHED_REMOTE_RELATION|DATAFRAME_NOT_FOUND"
)
_AFTERWARDS = (
    "nothing was applied. The engine process derives the state again from the snapshot; a program that uses the "
    "library must make a new Reasoner. With a checkpoint directory (checkpoint_dir), the state survives the loss "
    "of all executors"
)

# A driver's JVM that dies in the middle of an answer shows as a broken connection.
FAILURES = (PySparkException, Py4JError, OSError, EOFError)


def session_ended(error: BaseException) -> bool:
    """Whether one of FAILURES says that the session has ended, with everything that it held."""
    return isinstance(error, OSError | EOFError) or _SESSION.search(str(error)) is not None


def lost(reason: str) -> SparkStateLostError:
    """The error for a session that has ended."""
    return SparkStateLostError(f"the Spark session has ended ({reason}); {_AFTERWARDS}", reason=reason)


def typed(error: BaseException) -> ZedlogError:
    """One of FAILURES as an error of Zedlog."""
    text = str(error)
    if "ARITHMETIC_OVERFLOW" in text:
        return WeightOverflowError("a weight or a number of derivations does not fit into 64 bits")
    lines = [line.strip() for line in text.strip().splitlines()] or [type(error).__name__]
    if _BLOCKS.search(text):
        return SparkStateLostError(
            f"Spark's executors were lost, and parts of the state with them; {_AFTERWARDS}", reason=lines[0]
        )
    if session_ended(error):
        return lost(lines[0])
    # The fault of a Python task stands at the end of its traceback.
    cause = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception): ", line)]
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return SparkUnavailableError(
        "Spark could not run a query: " + " ".join([lines[0], *cause[-1:]]), reason=condition or ""
    )
