"""The engine's job thread: takes bulk jobs from Redis, one at a time, and does them in Spark.

In: jobs. Out: a transaction in the epoch log (import, restore) or files (export), and in the job's record its progress
and its end. Always: a job has its whole effect or none. An import is one entry of the log, written when all its batch
files are on the disk, so until then a crash, a cancellation and a failure have the same effect: nothing happened. If
the engine ends during a job, the next engine runs it again from its beginning, or, if its transaction is in the log,
only waits for the outcome; after the engine has ended `_ATTEMPTS` times, the job is given up.

The thread shares the session with a Spark placement, but has settings of its own (`newSession`). Redis is asked a few
times a second whether the job is to stop; then its Spark queries are interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.bulk.batches import REJECTS, UPLOADS, BatchStore
from engine.bulk.outside import KAFKA, OFFSETS, connection, topic_of
from engine.bulk.progress import Progress, Watch
from engine.bulk.request import ExportRequest, ImportRequest
from engine.bulk.roots import allowed_path
from engine.bulk.sources import Places, sources_of
from engine.data.transaction import Transaction
from engine.errors import (
    EpochNotRetainedError,
    JobAbandonedError,
    JobCancelledError,
    StorageUnavailableError,
    ZedlogError,
)
from engine.language.prefixes import NO_PREFIXES
from engine.storage.client import DatabaseClient
from engine.storage.connection import connect
from engine.storage.jobs import CANCELLED, FAILED, SUCCEEDED, Job, JobQueue, LostJobError
from engine.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from engine.bulk.importing import Imported
    from engine.spark.session.session import SparkSource

T = TypeVar("T")
logger = logging.getLogger("zedlog.jobs")

_LISTEN_SECONDS = 0.5
_RETRY_SECONDS = 0.5
_SWEEP_SECONDS = 30.0
_OUTCOME_SECONDS = 0.01
_MOST_PARTITIONS = 100_000
_ATTEMPTS = 5
# An upload that no import has used goes after this time.
_UPLOAD_SECONDS = 24 * 3600


class _StoppedError(Exception):
    """The engine stops; the next engine runs the job."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """batch_dir: where the batch files of the database live, shared by all engines that may serve it."""

    batch_dir: Path
    places: Places = field(default_factory=Places)


class JobRunner:
    """Runs the jobs of one database while its engine holds the lease. `start` and `stop` from the engine's thread."""

    def __init__(self, redis_url: str, database: str, options: JobOptions, spark: SparkSource) -> None:
        self._url, self._database = redis_url, database
        self._options = options
        self._spark = spark
        self.store = BatchStore(options.batch_dir / database)
        self._redis = connect(redis_url)
        self._queue = JobQueue(self._redis, database)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: Watch | None = None
        # Whether the log may name the files of the present job, and has not applied them yet.
        self._named = False

    def start(self, owner: str) -> None:
        """Begin to take jobs, under the lease `owner`."""
        assert self._thread is None, "one thread at a time"
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(owner,), name="zedlog jobs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the next engine runs the present job."""
        self._stopping.set()
        if self._watch is not None:
            self._watch.interrupt()
        if self._thread is not None:
            self._thread.join(10)
            if self._thread.is_alive():
                logger.warning("the job thread does not end; anything that it still writes is refused")
            self._thread = None

    def close(self) -> None:
        self._redis.close()

    # ---- the thread

    def _run(self, owner: str) -> None:
        begun, swept = False, 0.0
        while not self._stopping.is_set():
            try:
                if not begun:
                    self._queue.begin(owner)
                    begun = True
                if time.monotonic() - swept > _SWEEP_SECONDS:
                    self._sweep()
                    swept = time.monotonic()
                job = self._queue.take(_LISTEN_SECONDS)
                if job is not None:
                    self._do(job)
            except StorageUnavailableError:
                # What was taken may be known to Redis only: take everything again when it is back.
                begun = False
                self._stopping.wait(_RETRY_SECONDS)
            except _StoppedError:
                return
            except LostJobError:
                logger.warning("a job was taken over by another engine")
            except Exception:
                logger.exception("the job thread continues after an unexpected error")
                self._stopping.wait(_RETRY_SECONDS)

    def _do(self, job: Job) -> None:
        """Run one job to its end."""
        progress = Progress(self._queue, job)
        began = time.monotonic()
        self._named = False
        try:
            if job.attempts > _ATTEMPTS and job.transaction is None:
                raise JobAbandonedError(
                    f"the engine ended {_ATTEMPTS} times while it ran this job; it is not tried again",
                    job=job.id,
                )
            work = {"import": self._import, "restore": self._restore}.get(job.kind, self._export)
            result = work(job, progress)
            end: dict[str, Any] = {"result": {**result, "seconds": round(time.monotonic() - began, 3)}}
            status = SUCCEEDED
        except (_StoppedError, LostJobError, StorageUnavailableError):
            raise
        except JobCancelledError as error:
            status, end = CANCELLED, {"problem": error.problem()}
        except _RefusedError as refused:
            status, end = FAILED, {"problem": refused.problem}
        except ZedlogError as error:
            status, end = FAILED, {"problem": error.problem()}
        except Exception as error:
            if self._stopping.is_set():
                raise _StoppedError from error
            logger.exception("the job %s failed", job.id)
            status = FAILED
            end = {"problem": ZedlogError(f"the job failed: {type(error).__name__}: {error}").problem()}
        end["stages"] = progress.ended()
        if not self._named and (status != SUCCEEDED or job.request.get("dry_run")):
            # Before the job says that it has ended: then it has left nothing.
            self.store.remove(job.id)
        self._patiently(lambda: self._queue.finish(job.id, status, **end))
        # A backup that was refused is of no further use; a file of an import may be tried again with other options.
        if job.request.get("uploaded") and (status == SUCCEEDED or job.kind == "restore"):
            for path in job.request["paths"]:
                (self.store.root / UPLOADS / path).unlink(missing_ok=True)
        logger.info("job %s (%s): %s in %.3f s", job.id, job.kind, status, time.monotonic() - began)

    # ---- import

    def _import(self, job: Job, progress: Progress) -> dict[str, Any]:
        request = ImportRequest.restore(job.request)

        def read() -> tuple[Transaction | None, dict[str, Any]]:
            imported = self._read(job, request, progress)
            # Where there is nothing to apply, the job says what was read.
            made = imported.transaction(request) if imported.changes_something else None
            return made, _report(imported)

        return self._applied(job, progress, read)

    def _applied(
        self, job: Job, progress: Progress, read: Callable[[], tuple[Transaction | None, dict[str, Any]]]
    ) -> dict[str, Any]:
        """The report of the job's transaction, which `read` makes unless the log has it already, and its outcome.

        Raises:
            _RefusedError: it was refused.
        """
        transaction, report = job.transaction, dict(job.result or {})
        if transaction is None:
            made, report = read()
            if made is None:
                return {**report, "epoch": None, "changes": {}}
            payload = made.encode()
            progress.stage("append", report)
            self._named = True
            try:
                transaction = self._patiently(lambda: self._queue.append(job.id, payload))
            except JobCancelledError:
                self._named = False
                raise
        self._named = True
        with suppress(JobCancelledError):
            # Too late: the log has it.
            progress.stage("apply")
        status, body = self._outcome(transaction)
        self._named = False
        if status == "refused":
            raise _RefusedError(body)
        return {**report, "transaction": transaction, **body}

    def _read(self, job: Job, request: ImportRequest, progress: Progress) -> Imported:
        places = self._options.places
        uploads = self.store.root / UPLOADS
        sources = sources_of(request, replace(places, uploads=uploads))
        known = connection(places.connections, request.options.connection, request.paths[0])
        snapshot_schemas, kept = self._with_snapshot(None, partial(_before, request))
        rejects = self.store.root / REJECTS / f"{job.id}.jsonl"
        with self._session(job, progress, sources) as session:
            from engine.bulk.failures import explaining
            from engine.bulk.importing import Importer

            importer = Importer(session, self.store, job.id, rejects, progress.stage, known, kept)
            with explaining(request, known, session.version):
                return importer.run(request, sources, snapshot_schemas)

    def _outcome(self, transaction: str) -> tuple[str, dict[str, Any]]:
        while True:
            found = self._patiently(lambda: self._queue.outcome(transaction))
            if found is not None:
                return found
            if self._stopping.wait(_OUTCOME_SECONDS):
                raise _StoppedError

    # ---- restore

    def _restore(self, job: Job, progress: Progress) -> dict[str, Any]:
        path = self.store.root / UPLOADS / job.request["paths"][0]
        # Here, for an engine that restores nothing need not load it.
        from engine.backup.reading import opened
        from engine.bulk.restoring import compared, restored

        def read() -> tuple[Transaction | None, dict[str, Any]]:
            made = restored(path, self.store, job.id, progress.stage)
            return made.transaction, made.report()

        done = self._applied(job, progress, read)
        progress.stage("compare")

        async def compare(snapshot: Snapshot) -> Any:
            return compared(snapshot, opened(path))

        try:
            found = self._with_snapshot(done["epoch"], compare)
        except EpochNotRetainedError:
            # Writers were quick, or the engine was away for long: what is there now is not what was restored.
            found = None
        return {**done, "compared": found is not None, "differences": found or []}

    # ---- export

    def _export(self, job: Job, progress: Progress) -> dict[str, Any]:
        request = ExportRequest(**job.request)
        places = self._options.places
        target = allowed_path(request.path, places.export_root, places.schemes, "export")
        from engine.bulk.exporting import check_target, tuples_of, write

        check_target(target, request)
        progress.stage("collect")

        async def collect(snapshot: Snapshot) -> Any:
            table, columns = await tuples_of(request, snapshot, self._stopping.is_set)
            prefixes = snapshot.prefixes if request.prefixes else NO_PREFIXES
            return table, columns, snapshot.epoch, snapshot.token, prefixes

        table, columns, epoch, token, prefixes = self._with_snapshot(request.epoch, collect)
        with self._session(job, progress, ()) as session:
            progress.stage("write")
            done = write(session, table, columns, request, target, job.id, prefixes)
        return {
            "epoch": epoch,
            "token": token,
            "rows": done.rows,
            "left_out": done.left_out,
            "files": done.files,
            "bytes": done.bytes,
            "path": str(target),
        }

    # ---- shared

    @contextmanager
    def _session(self, job: Job, progress: Progress, sources: Any) -> Iterator[Any]:
        """A session for this job. While it is used, its queries can be interrupted, and its failures become errors of
        Zedlog.
        """
        progress.stage("spark")
        session = self._spark.another()
        watch = self._watch = Watch(session, job.id, progress)
        try:
            with watch:
                yield session
        except (ZedlogError, LostJobError):
            raise
        except Exception as error:
            if self._stopping.is_set():
                raise _StoppedError from error
            watch.check()
            from engine.bulk.faults import explained, is_sparks

            if not is_sparks(error):
                raise
            raise explained(error, sources) from error
        finally:
            self._watch = None

    def _with_snapshot(self, epoch: int | None, work: Callable[[Snapshot], Any]) -> Any:
        async def read() -> Any:
            client = DatabaseClient.connect(self._url, self._database)
            try:
                return await work(await client.snapshot(epoch))
            finally:
                await client.close()

        return asyncio.run(read())

    def _patiently(self, work: Callable[[], T]) -> T:
        """The work's result; while Redis is unreachable, the work is tried again. It must be safe to repeat."""
        while True:
            try:
                return work()
            except StorageUnavailableError:
                if self._stopping.wait(_RETRY_SECONDS):
                    raise _StoppedError from None

    def _sweep(self) -> None:
        """Remove batch files that no entry of the log names any more, and files that belong to no job."""
        root = self.store.root
        if not root.is_dir():
            return
        named, first = self._queue.named_batches(), self._queue.oldest_entry()
        gone = [name for name, entry in named.items() if first is None or _earlier(entry, first)]
        for name in gone:
            self.store.remove(name)
        self._queue.forget_batches(gone)
        unfinished, kept = self._queue.unfinished(), self._queue.kept()
        alive = {REJECTS, UPLOADS} | (named.keys() - set(gone)) | unfinished
        for path in root.iterdir():
            if path.name not in alive and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        long_ago = time.time() - _UPLOAD_SECONDS
        if not unfinished:
            for path in (root / UPLOADS).glob("*"):
                if path.stat().st_mtime < long_ago:
                    shutil.rmtree(path, ignore_errors=True)
        for path in (root / REJECTS).glob("*.jsonl"):
            if path.stem not in kept:
                path.unlink(missing_ok=True)


class _RefusedError(Exception):
    """The import's transaction was refused, and `problem` says why."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("message", "")))
        self.problem = problem


async def _before(request: ImportRequest, snapshot: Snapshot) -> Any:
    """The schemas, and the position of a stream, both of one epoch."""
    kept: dict[int, int] = {}
    if request.kind == KAFKA and OFFSETS in snapshot.schemas:
        stream = request.options.stream or topic_of(request.paths[0])[1]
        page = await snapshot.facts(
            OFFSETS, {0: stream, 1: request.target or ""}, "asserted", limit=_MOST_PARTITIONS
        )
        kept = {int(row[2]): int(row[3]) for row in page.tuples}
    return snapshot.schemas, kept


def _report(imported: Imported) -> dict[str, Any]:
    rejected = imported.rejected
    return {
        "rows": imported.rows,
        "tuples": imported.tuples,
        # A sum of many weights may be larger than JSON's writer takes.
        "weight": imported.weight if abs(imported.weight) < 2**63 else str(imported.weight),
        "rejected": rejected.number,
        "samples": rejected.samples,
        "rejects": rejected.file,
        **({} if imported.added is None else {"rules": imported.added.report}),
        **({} if imported.stream is None else {"stream": imported.stream}),
    }


def _earlier(one: str, other: str) -> bool:
    return tuple(map(int, one.split("-"))) < tuple(map(int, other.split("-")))
