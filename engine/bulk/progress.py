"""Reports to Redis how far a job is, and stops its Spark queries when the job is to stop.

In: the names of stages as they begin. Out: the job's `stages`, each with a fraction and seconds. Always: a job that is
to stop, or that another engine has taken over, notices it within `_LOOK_SECONDS` while Spark works, and at once when
its next stage begins.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from engine.errors import JobCancelledError, StorageUnavailableError
from engine.storage.jobs import Job, JobQueue, LostJobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.25


class Progress:
    """The stages of one job. Used by the job's thread and by its watch."""

    def __init__(self, queue: JobQueue, job: Job) -> None:
        self._queue, self._job = queue, job
        self._lock = threading.Lock()
        self._stages: list[dict[str, Any]] = []
        self._began = time.monotonic()

    def stage(self, name: str, result: dict[str, Any] | None = None) -> None:
        """The previous stage has ended, and this one begins. result: the part of the job's result that is known by now.

        Raises:
            JobCancelledError, LostJobError: the job is to stop.
        """
        with self._lock:
            self._end()
            self._stages.append({"name": name, "fraction": 0.0, "seconds": 0.0})
            self._began = time.monotonic()
        fields = {} if result is None else {"result": result}
        # Progress is not worth failing for; the next note tells all.
        with suppress(StorageUnavailableError):
            self._queue.update(self._job.id, stages=self.shown(), **fields)

    def look(self, fraction: float | None) -> None:
        """Report how far the stage is, and learn whether the job is to stop.

        Raises:
            JobCancelledError, LostJobError, StorageUnavailableError.
        """
        with self._lock:
            changed = False
            if self._stages:
                stage = self._stages[-1]
                stage["seconds"] = round(time.monotonic() - self._began, 3)
                if fraction is not None and fraction > stage["fraction"]:
                    stage["fraction"], changed = round(fraction, 3), True
        fields = {"stages": self.shown()} if changed else {}
        self._queue.update(self._job.id, **fields)

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(stage) for stage in self._stages]

    def ended(self) -> list[dict[str, Any]]:
        """All stages, when the job has ended."""
        with self._lock:
            self._end()
            return [dict(stage) for stage in self._stages]

    def _end(self) -> None:
        if self._stages:
            self._stages[-1]["fraction"] = 1.0
            self._stages[-1]["seconds"] = round(time.monotonic() - self._began, 3)


class Watch:
    """A context with a thread that reports Spark's progress, and interrupts the queries of a job that is to stop.

    The queries are those of the thread that entered it.
    """

    def __init__(self, session: SparkSession, job_id: str, progress: Progress) -> None:
        self._session = session
        self._tag = f"zedlog-job-{job_id}"
        self._progress = progress
        self._over = threading.Event()
        self._stop: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="zedlog job watch", daemon=True)

    def __enter__(self) -> Watch:
        self._session.addTag(self._tag)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._session.removeTag(self._tag)

    def interrupt(self) -> None:
        """End the queries that run now."""
        # The session may be going away as well, and then there is nothing left to interrupt.
        with suppress(Exception):
            self._session.interruptTag(self._tag)

    def check(self) -> None:
        """Raise the reason why the queries were interrupted, if they were."""
        if self._stop is not None:
            raise self._stop

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if self._stop is not None:
                # Once more: the next query may have begun just after the last interruption.
                self.interrupt()
                continue
            try:
                self._progress.look(self._fraction())
            except (JobCancelledError, LostJobError) as error:
                self._stop = error
                self.interrupt()
            except StorageUnavailableError:
                continue

    def _fraction(self) -> float | None:
        """The share of the tasks of the queries under way that have ended; None where Spark does not say."""
        context = getattr(self._session, "_sc", None)
        if context is None:
            return None
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return done / tasks if tasks else None
