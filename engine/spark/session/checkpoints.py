"""Checkpoints and their storage: on the executors, or as files in a reliable checkpoint directory.

A checkpoint on executors (`localCheckpoint`) is lost with them; on a cluster each of its blocks is therefore kept on
`copies` executors, so that it survives the loss of `copies - 1` of them at a time. A reliable checkpoint consists of
files in a directory that all share. It survives the loss of every executor, at the cost of writing all state to files.
Both are given back when their tables are released, so Spark's cleaner, which waits for a garbage collection, has
nothing to do.

Spark makes a directory of its own below the configured one for each session. A process that is killed leaves it behind.
So a file next to the data names the owner, and the next session on that machine removes the directories whose owner no
longer runs.
"""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from engine.errors import CheckpointUnavailableError
from engine.spark.session.options import SparkOptions

_OWNER = "zedlog-owner.json"
_ABSURD = 60
"""The power of ten from which an estimate of bytes is absurd."""
_TOLD = re.compile(r"sizeInBytes=[\d.]+(?:E\+(\d+))? [KMGTPE]?i?B")
"""How Spark's `explain` writes an estimate: `3.4 GiB`; from 2048 EiB on `3.74E+37 B`."""
_SERVER_DIR = "spark.checkpoint.dir"
_SERVER_CLEANS = "spark.cleaner.referenceTracking.cleanCheckpoints"


class Checkpoints:
    """Makes and gives back the checkpoints of one session's DataFrames."""

    def __init__(self, options: SparkOptions) -> None:
        self.reliable = options.checkpoint_dir is not None
        copies = 1 if options.local else options.copies
        self._level = StorageLevel(True, True, False, True, copies) if copies > 1 else None

    def make(self, frame: DataFrame) -> DataFrame:
        """The frame's rows, computed now; the result has no lineage, and no absurd estimate of its size.

        A checkpoint keeps the estimate of the plan behind it, and the estimate of a join is the product of those of its
        sides. So if a relation is joined with itself, the number of digits of the estimate doubles at each height, and
        after some twenty heights Spark would do nothing but multiply. Every checkpoint's estimate is therefore checked,
        over Spark Connect by a request to the server. An estimate within a plan then has no more than some sixty digits
        for each of its joins.
        """
        made = self._stored(frame)
        if not _absurd(made):
            return made
        return _of_unknown_size(made) if hasattr(made, "_jdf") else self._measured(made)

    def _stored(self, frame: DataFrame) -> DataFrame:
        if self.reliable:
            return frame.checkpoint()
        return frame.localCheckpoint() if self._level is None else frame.localCheckpoint(True, self._level)

    def _measured(self, made: DataFrame) -> DataFrame:
        """The same checkpoint with its true size as the estimate, which Spark takes from a cache that is filled.

        This takes two more jobs over stored rows, and while they run the rows are stored three times.
        """
        made.persist()
        try:
            made.count()
            return self._stored(made)
        finally:
            made.unpersist()

    def drop(self, frame: DataFrame) -> None:
        """Give back what `make` stored. Over Spark Connect the server does so when the client drops its last
        reference.
        """
        plan = getattr(frame, "_jdf", None)
        if plan is None:
            return
        rdd = plan.queryExecution().analyzed().rdd()
        file = rdd.getCheckpointFile()
        rdd.unpersist(False)
        if self.reliable and file.isDefined():
            _delete(frame.sparkSession, file.get())


def _absurd(made: Any) -> bool:
    """Whether a checkpoint's estimate of its size is absurd, or is written in an unknown form."""
    if hasattr(made, "_jdf"):
        return bool(made._jdf.queryExecution().analyzed().stats().sizeInBytes() >= 10**_ABSURD)
    told = _TOLD.search(made._explain_string(mode="cost"))
    return told is None or int(told[1] or 0) >= _ABSURD


def _of_unknown_size(made: Any) -> DataFrame:
    """The same checkpoint without an estimate."""
    session, checkpoint = made.sparkSession, made._jdf
    rows = checkpoint.queryExecution().analyzed().rdd()
    return DataFrame(
        session._jsparkSession.internalCreateDataFrame(rows, checkpoint.schema(), False), session
    )


def prepare(session: Any, options: SparkOptions) -> None:
    """Prepare the checkpoint directory, and write and read one checkpoint there; does nothing if none is configured.

    Raises:
        CheckpointUnavailableError: it cannot be made or written, or executors and driver do not share it.
    """
    place = options.checkpoint_dir
    if place is None:
        return
    try:
        if options.connect:
            _ask_server(session, place)
        else:
            _remove_left_over(session, place)
            session.sparkContext.setCheckpointDir(place)
            _write_owner(session, own_directory(session))
        number = options.partitions
        frame = session.range(0, number, 1, number).checkpoint()
        rows = frame.count()
        Checkpoints(options).drop(frame)
    except CheckpointUnavailableError:
        raise
    except Exception as error:
        raise CheckpointUnavailableError(
            f"the checkpoint directory {place} cannot be used: {_reason(error)}; it must be a directory that the "
            "driver and every executor share and may write to",
            directory=place,
        ) from error
    if rows != number:
        raise CheckpointUnavailableError(
            f"the checkpoint directory {place} gave back {rows} of {number} rows", directory=place
        )


def own_directory(session: Any) -> str | None:
    """This session's directory below the configured one."""
    found = session.sparkContext.getCheckpointDir()
    return None if found is None else str(found)


def forget(session: Any, options: SparkOptions) -> None:
    """Remove this session's directory, before the session is stopped."""
    if options.checkpoint_dir is not None and not options.connect:
        place = own_directory(session)
        if place is not None:
            _delete(session, place)


def _ask_server(session: Any, place: str) -> None:
    """Check the server's settings: over Spark Connect the server has the directory, and removes old files."""
    there = session.conf.get(_SERVER_DIR, None)
    if there is None or there.rstrip("/") != place.rstrip("/"):
        raise CheckpointUnavailableError(
            f"over Spark Connect the checkpoint directory is the server's: start it with --conf {_SERVER_DIR}={place} "
            f"(it has {there or 'none'})",
            directory=place,
        )
    if session.conf.get(_SERVER_CLEANS, "false") != "true":
        raise CheckpointUnavailableError(
            f"the Spark Connect server would never remove old checkpoints from {place}: start it with "
            f"--conf {_SERVER_CLEANS}=true",
            directory=place,
        )


def _reason(error: BaseException) -> str:
    """The line of Spark's trace that says what is wrong with a file."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0]


def _file_system(session: Any, path: str) -> tuple[Any, Any]:
    jvm = session._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()), where


def _delete(session: Any, path: str) -> None:
    files, where = _file_system(session, path)
    files.delete(where, True)


def _write_owner(session: Any, directory: str | None) -> None:
    assert directory is not None, "it was just set"
    files, where = _file_system(session, f"{directory}/{_OWNER}")
    stream = files.create(where, True)
    try:
        stream.write(bytearray(json.dumps(_self()).encode()))
    finally:
        stream.close()


def _remove_left_over(session: Any, place: str) -> None:
    """Remove the directories below `place` that ended processes of this machine left behind."""
    files, where = _file_system(session, place)
    if not files.exists(where):
        return
    for status in files.listStatus(where):
        marker = session._jvm.org.apache.hadoop.fs.Path(status.getPath(), _OWNER)
        if status.isDirectory() and files.exists(marker):
            stream = files.open(marker)
            try:
                text = bytes(session._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
            finally:
                stream.close()
            if ended(json.loads(text)):
                files.delete(status.getPath(), True)


def _self() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def ended(owner: dict[str, Any]) -> bool:
    """Whether the owner of a directory was a process of this machine and has ended."""
    if owner["host"] != socket.gethostname():
        return False
    started = _started(owner["pid"])
    return started is None or started != owner["started"]


def _started(pid: int) -> str | None:
    """When a process started, in the system's own units; None if it does not run. This tells apart processes that have
    the same id one after the other.
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            return stat.read_text().rpartition(")")[2].split()[19]
        except OSError:
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"
