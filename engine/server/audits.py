"""When the engine audits itself, and where the result goes.

In: the reasoner and the publisher between two epochs; requests and a schedule. Out: the audits in Redis
(engine/storage/audits.py), and the log. An audit is done in a forked process of the lowest priority, on the state as it
was at the fork; the engine goes on with the next epoch at once. One at a time. After the start the recovered state is
compared with the snapshot in the same way, so that the start does not wait for it. A difference is logged as an error;
the engine goes on, because it cannot know which side is right, and people have to.

A process that takes longer than `MOST_SECONDS` is ended: damage can make a loop endless. One that ends by a signal has
failed, which is shown as such. While nobody asks, this costs a question to Redis a second.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

import orjson
import redis

from engine.audit.audit import Subject, audit, check_recovered
from engine.audit.report import Report, in_words
from engine.database.reasoner import Reasoner
from engine.errors import StorageUnavailableError
from engine.server.forked import Forked
from engine.storage.audits import Audit, AuditQueue, Status, new_audit
from engine.storage.connection import connect
from engine.storage.keys import Keys
from engine.storage.manifest import Manifest

logger = logging.getLogger("zedlog.engine")

MOST_SECONDS = 6 * 3600.0
_LOOK_SECONDS = 1.0
_NICE = 19


class Audits:
    """See the module. every: seconds between two audits that nobody asks for; None: none. memory: bytes that one may
    take for what it derives anew."""

    def __init__(
        self, redis_url: str, database: str, every: float | None = None, memory: int | None = None
    ) -> None:
        self._url, self._database = redis_url, database
        self._every, self._memory = every, memory
        self._redis: redis.Redis = connect(redis_url)
        self._queue = AuditQueue(self._redis, Keys(database))
        self._child: Forked | None = None
        self._audit: Audit | None = None
        self._unwritten: tuple[Status, dict[str, Any] | None, str | None] | None = None
        self._recovered = False
        self._next_look = 0.0
        self._due = self._after(every)

    def recovered(self) -> None:
        """The state has come back from the snapshot or a checkpoint, and is to be compared at the next opportunity."""
        self._recovered = True
        try:
            self._queue.abandon()
        except StorageUnavailableError as error:
            logger.warning("audits of an earlier engine stay as they are: %s", error)

    def consider(self, reasoner: object, manifest: Manifest) -> None:
        """Between two epochs: attend to an audit that runs, or begin one. The reasoner's state was published as
        `manifest`.
        """
        try:
            if self._audit is not None:
                self._attend(self._audit, 0.0)
            elif self._recovered:
                self._begin(new_audit("start", "start"), reasoner, manifest, check_recovered)
                self._recovered = False
            elif (now := time.monotonic()) >= self._next_look:
                self._next_look = now + _LOOK_SECONDS
                wanted = self._queue.next()
                if wanted is None and now >= self._due:
                    wanted = new_audit("full", "schedule")
                if wanted is not None:
                    self._begin(wanted, reasoner, manifest, audit)
        except StorageUnavailableError:
            # The engine's own commands say so, and wait.
            self._next_look = time.monotonic() + _LOOK_SECONDS

    def stop(self) -> None:
        """The engine ends, or rebuilds its state: what runs has failed."""
        # If Redis is away, the next engine says it.
        with contextlib.suppress(StorageUnavailableError):
            if self._audit is not None:
                self._attend(self._audit, 0.0)
            if self._child is not None:
                self._end("failed", None, "the engine stopped while it ran; ask for it again")
        if self._child is not None:
            self._child.kill()
        self._child = self._audit = self._unwritten = None
        # Should the engine go on, the next question connects again.
        self._redis.close()

    def _begin(
        self, wanted: Audit, reasoner: object, manifest: Manifest, work: Callable[[Subject], Report]
    ) -> None:
        if not isinstance(reasoner, Reasoner):
            raise TypeError(f"only a Reasoner can be audited, not {type(reasoner).__name__}")
        subject = Subject(reasoner.database, manifest, self._url, self._database, self._memory)
        self._audit = self._queue.begin(wanted)
        self._due = self._after(self._every)
        try:
            self._child = Forked(lambda: orjson.dumps(work(subject).to_json(), default=str), _NICE)
        except OSError as error:
            self._end("failed", None, f"its process could not be started: {error.strerror or error}")

    def _attend(self, running: Audit, seconds: float) -> None:
        """Note the result if the process has ended."""
        child = self._child
        if child is not None and child.has_ended(seconds):
            self._child = None
            if child.failure:
                self._end("failed", None, child.failure)
            else:
                report = orjson.loads(child.answer)
                report["seconds"] = round(time.monotonic() - child.began, 3)
                self._end("differs" if report["differing"] else "passed", report, None)
        elif child is not None and time.monotonic() - child.began > MOST_SECONDS:
            child.kill()
            self._child = None
            self._end("failed", None, f"it took more than {MOST_SECONDS / 3600:g} hours")
        elif child is None:
            # Redis was away when the result was there.
            self._write(running)

    def _end(self, status: Status, report: dict[str, Any] | None, why: str | None) -> None:
        assert self._audit is not None, "an audit ends that has begun"
        what = "audit" if self._audit.kind == "full" else "comparison of the recovered state"
        if status == "failed":
            logger.warning("the %s could not be completed: %s", what, why)
        elif report is not None:
            level = logging.ERROR if status == "differs" else logging.INFO
            text = f"{report['differing']} differences" if report["differing"] else "no difference"
            logger.log(level, "%s of epoch %d: %s, in %.1f s", what, report["epoch"], text, report["seconds"])
            for one in report["differences"]:
                logger.error("%s: %s", what, in_words(one))
        self._unwritten = status, report, why
        self._write(self._audit)

    def _write(self, running: Audit) -> None:
        assert self._unwritten is not None, "there is a result to be written"
        self._queue.end(running, *self._unwritten)
        self._audit = self._unwritten = None

    @staticmethod
    def _after(every: float | None) -> float:
        return float("inf") if every is None else time.monotonic() + every
