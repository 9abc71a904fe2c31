"""The engine process: the single writer of one database.

    log -> group of waiting transactions -> reasoner: one epoch -> publisher: visible in one atomic step

Always: transactions are applied in the order of the log, each exactly once. The last processed log id is published
together with its effects, so after a crash at any point the work continues from there: what was published is not done
again, and what was not published is done now. While Redis is unreachable the engine waits. When it is unknown whether a
publication arrived, it is sent again, and Redis itself says whether it was already done. If Redis has another state
than the one this process left (a restored backup, a wiped database, another engine in between), the state is rebuilt
from Redis. The same happens when Spark's executors were lost together with state: nothing is published, the log still
has the transactions, and they are applied to the rebuilt state; the first one is refused if that happens again.

A fault of Zedlog itself (an exception that is not a `ZedlogError`, a process that ended in the middle of an epoch)
refuses the transaction that caused it, and the state is recovered before the next one (engine/server/attempts.py). Only
an entry that cannot be read stops the process (exit status 1, the entry named in the status); it is never skipped.
Under load all waiting transactions, up to a bound, share one epoch, so the rate grows with the load.

When told to stop, the engine commits the running epoch if that takes only a moment; otherwise it drops the epoch, which
is done after the next start.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.data.transaction import Transaction
from engine.database.checkpoint import Checkpoint
from engine.database.saved import SavedState
from engine.errors import (
    BatchUnreadableError,
    CorruptLogError,
    EngineLeaseError,
    EvaluationCancelledError,
    SparkStateLostError,
    SparkUnavailableError,
    StorageUnavailableError,
    ZedlogError,
    shown,
)
from engine.maintenance.placement import Budget
from engine.maintenance.policy import SWITCH
from engine.server.answers import answer
from engine.server.attempts import Attempts
from engine.server.checkpoints import Checkpoints, Keepable
from engine.server.heartbeat import Heartbeat
from engine.server.interruption import Interruption
from engine.server.recovery import read_state, versions_of
from engine.server.rollback import resolved
from engine.server.settings import EngineOptions
from engine.server.signals import heard_at_once
from engine.storage.begun import place
from engine.storage.connection import connect
from engine.storage.keys import Keys
from engine.storage.log import EpochLog, LogEntry
from engine.storage.publisher import Publisher, read_head

if TYPE_CHECKING:
    from engine.bulk.runner import JobRunner
    from engine.database.epoch import EpochRecord, EpochResult
    from engine.database.reasoner import GroupResult
    from engine.server.audits import Audits
    from engine.spark.session.session import SparkSource

T = TypeVar("T")

logger = logging.getLogger("zedlog.engine")

# The longest time of one blocking read of the log, and so of the reaction to SIGTERM.
_LISTEN_SECONDS = 0.25
_FIRST_DELAY, _LAST_DELAY = 0.02, 1.0
# How long the running evaluation may still take when the process is told to stop.
_STOP_SECONDS = 1.2
# Processed entries that stay in the log for people to look at.
_KEPT_ENTRIES, _KEPT_BYTES = 1_000, 16 << 20


class Committer(Keepable, Protocol):
    """What the engine needs of a reasoner."""

    def sharing(self, transactions: Sequence[Transaction], /) -> int: ...

    def commit(self, transactions: Sequence[Transaction], /, *, shared: bool = ...) -> GroupResult: ...

    def close(self) -> None: ...


ReasonerFactory = Callable[[SavedState, Interruption], Committer]
"""Makes a reasoner from a saved state; its evaluations end when the interruption says so."""


class Engine:
    """One engine. `run` in the main thread; `stop` from a signal handler or another thread."""

    def __init__(
        self,
        redis_url: str,
        database: str,
        reasoner_factory: ReasonerFactory,
        options: EngineOptions | None = None,
        on_ready: Callable[[int], None] | None = None,
        jobs: JobRunner | None = None,
        checkpoints: Checkpoints | None = None,
        audits: Audits | None = None,
    ) -> None:
        self._audits = audits
        self._jobs = jobs
        self._checkpoints = checkpoints
        self._options = options or EngineOptions()
        self._database = database
        self._keys = Keys(database)
        self._factory = reasoner_factory
        self._on_ready = on_ready
        self._redis_url = redis_url
        self._redis = connect(redis_url)
        self._log = EpochLog(self._redis, database)
        self._heartbeat = Heartbeat(redis_url, database, self._options.lease_seconds)
        self._interruption = Interruption()
        self._attempts = Attempts(redis_url, database, self._heartbeat.lease, self._interruption)
        self._heartbeat.attend = self._attempts.attend
        self._stop = threading.Event()
        self._was_away = False
        self._kept: deque[tuple[str, int]] = deque()
        self._kept_bytes = 0
        self._lost_at = ""
        self._recovering = False
        # How many entries are looked at for the next group: about as many as can share an epoch.
        self._group_size = self._options.group_transactions

    @property
    def evaluating(self) -> bool:
        """Whether it evaluates an epoch, or derives the state again."""
        return self._recovering or self._attempts.running

    def stop(self) -> None:
        """Make `run` return; it commits the running epoch first if that ends within a moment
        (engine/server/interruption.py).
        """
        self._interruption.stop()
        self._stop.set()

    def leave(self) -> None:
        """Do what `run` does at its end, from another thread and for a process that then ends at once: give the lease
        back, and record that the running transactions are not at fault.
        """
        self._attempts.leave()
        self._heartbeat.stop("stopped")

    def run(self) -> None:
        """Serve the database until `stop`.

        Raises:
            CorruptLogError, CorruptSnapshotError: something in Redis cannot be read; told to readers too.
            EngineLeaseError: another engine serves the database for longer than `lease_wait`.
        """
        state, error = "stopped", ""
        try:
            while not self._stop.is_set():
                if self._take_lease():
                    self._serve_until_changed()
        except BaseException as failure:
            state, error = "failed", f"{type(failure).__name__}: {failure}"
            if isinstance(failure, ZedlogError):
                error = str(failure)
            raise
        finally:
            if state == "stopped":
                self._attempts.leave()
            self._heartbeat.stop(state, error)
            self._attempts.close()
            self._redis.close()

    def _take_lease(self) -> bool:
        """Become the writer; False if told to stop first."""
        began, told = time.monotonic(), ""
        delay = _FIRST_DELAY
        while not self._stop.is_set():
            try:
                self._heartbeat.start()
                return True
            except EngineLeaseError as error:
                wait = self._options.lease_wait
                if wait is not None and time.monotonic() - began >= wait:
                    raise
                message = f"{error.message}; waiting"
                if self._checkpoints is not None:
                    self._checkpoints.drop_ahead()
            except StorageUnavailableError as error:
                message = f"{error.message}; trying again"
            if message != told:
                logger.warning("%s", message)
                told = message
            self._stop.wait(delay)
            delay = min(2 * delay, self._options.lease_seconds / 10, _LAST_DELAY)
        return False

    def _serve_until_changed(self) -> None:
        """Recover and serve, until told to stop, or something else has changed the database in Redis, or state was
        lost.
        """
        reasoner: Committer | None = None
        try:
            publisher, reasoner = self._with_patience(self._recover)
            self._heartbeat.tell("running", publisher.head.epoch)
            # What is there now stays as long as this state does. Otherwise an epoch would wait now and then until the
            # garbage collector has looked at all of it.
            gc.freeze()
            if self._on_ready is not None:
                self._on_ready(publisher.head.epoch)
            with self._running_jobs():
                while not self._stop.is_set():
                    self._check_lease()
                    entries = self._with_patience(lambda: self._next_entries(publisher))
                    if entries:
                        self._commit(entries, publisher, reasoner)
                    self._keep_state(publisher, reasoner)
                    if self._audits is not None:
                        self._audits.consider(reasoner, publisher.manifest)
            self._keep_state(publisher, reasoner, stopping=True)
        except EngineLeaseError as error:
            logger.warning("%s; starting again from Redis", error.message)
            self._stop.wait(_FIRST_DELAY)
        except _StateLost as lost:
            logger.warning("%s; starting again from Redis", lost)
        except _StoppedError:
            pass
        finally:
            if self._audits is not None:
                self._audits.stop()
            if self._checkpoints is not None:
                self._checkpoints.close()
            gc.unfreeze()
            if reasoner is not None:
                reasoner.close()

    def _keep_state(self, publisher: Publisher, reasoner: Committer, stopping: bool = False) -> None:
        """Write a checkpoint if it is time to; the state is the one that was published last."""
        if self._checkpoints is not None:
            act = self._checkpoints.stop if stopping else self._checkpoints.consider
            act(reasoner, publisher.head.epoch, publisher.incarnation, lambda: versions_of(publisher))

    @contextmanager
    def _running_jobs(self) -> Iterator[None]:
        """Bulk jobs are done while this engine is the writer."""
        if self._jobs is None:
            yield
            return
        self._jobs.start(str(self._heartbeat.lease.generation))
        try:
            yield
        finally:
            self._jobs.stop()

    def _recover(self) -> tuple[Publisher, Committer]:
        self._check_lease()
        began = time.monotonic()
        publisher = Publisher(
            self._redis, self._database, self._heartbeat.lease, self._options.retention, url=self._redis_url
        )
        publisher.held = lambda: self._heartbeat.held
        self._heartbeat.tell("recovering", publisher.head.epoch)
        self._attempts.recovered(publisher.head.last_id)
        state = read_state(publisher)
        self._recovering = True
        try:
            reasoner = self._factory(state, self._interruption)
        except EvaluationCancelledError as error:
            # Only a stop ends the evaluation of what is committed.
            raise _StoppedError from error
        finally:
            self._recovering = False
        self._kept.clear()
        self._kept_bytes = 0
        if self._checkpoints is not None:
            self._heartbeat.recovered = self._checkpoints.how
        if self._audits is not None:
            self._audits.recovered()
        logger.info("epoch %d recovered in %.3f s", publisher.head.epoch, time.monotonic() - began)
        return publisher, reasoner

    def _next_entries(self, publisher: Publisher) -> list[LogEntry]:
        """The next waiting entries of the log; waits a moment if there are none."""
        if self._was_away:
            # It may have come back with an older state, or another engine may have been there.
            if read_head(self._redis, self._keys) != publisher.head:
                raise EngineLeaseError(f"the database {shown(self._database)} in Redis has changed")
            self._was_away = False
        after, options = publisher.head.last_id, self._options
        entries, cancels = self._log.read_group(after, self._group_size, options.group_bytes)
        if cancels:
            # Others have their outcomes already, or come later.
            self._attempts.cancel([entry.id for entry in entries if entry.id in cancels])
            done = [name for name in cancels if place(name) <= place(after)]
            if done:
                self._log.forget_cancels(done)
        if entries:
            return entries
        first = self._log.wait(after, _LISTEN_SECONDS)
        return [first] if first is not None else []

    def _group(self, entries: list[LogEntry], reasoner: Committer) -> list[tuple[LogEntry, Transaction]]:
        """The entries that share the next epoch, or that are all refused without one."""
        group: list[tuple[LogEntry, Transaction]] = []
        refused = self._attempts.verdict(entries[0].id) is not None
        for entry in entries:
            try:
                transaction = entry.transaction()
            except CorruptLogError:
                if not group:
                    raise
                # What stands before it comes first; next time this entry is the first.
                break
            if group:
                if (self._attempts.verdict(entry.id) is not None) != refused:
                    break
                if not refused and self._is_apart(group[0], entry, transaction):
                    break
            group.append((entry, transaction))
        if not refused and len(group) > 1:
            try:
                del group[reasoner.sharing([transaction for _, transaction in group]) :]
            except Exception:
                logger.exception(
                    "could not determine which transactions can share an epoch; the first one gets an epoch of its own"
                )
                del group[1:]
        return group

    def _is_apart(
        self, first: tuple[LogEntry, Transaction], entry: LogEntry, transaction: Transaction
    ) -> bool:
        """Whether the transaction cannot share the epoch that begins with `first`: one of them is an import or a
        rollback or is to be tried alone, or it asks for another strategy or placement."""
        pair = (first, (entry, transaction))
        return (
            any(
                one.batches or one.onto_empty or one.rollback is not None or self._attempts.is_alone(at.id)
                for at, one in pair
            )
            or transaction.evaluation != first[1].evaluation
        )

    def _commit(self, entries: list[LogEntry], publisher: Publisher, reasoner: Committer) -> None:
        """One group: one epoch, or none when nothing in it is applied.

        Raises:
            _StateLost: it met a fault; the reasoner and the publisher must not be used any more.
        """
        group = self._group(entries, reasoner)
        fit = len(group) if len(group) < len(entries) else self._group_size
        self._group_size = min(2 * fit, self._options.group_transactions)
        ids = [entry.id for entry, _ in group]
        verdicts = [self._attempts.verdict(name) for name in ids]
        if verdicts[0] is not None:
            # A fault in this cannot be refused: it stops the engine.
            self._publish(group, [verdict for verdict in verdicts if verdict is not None], None, publisher)
            return
        self._attempts.begin(ids)
        try:
            done, record = self._applied(group, publisher, reasoner)
            lost = next((o for o in done if isinstance(o, SparkStateLostError)), None)
            if lost is not None:
                self._lost(lost, ids[0])
            if done:
                try:
                    self._publish(group, done, record, publisher)
                except (SparkStateLostError, SparkUnavailableError) as error:
                    # Of a change that is on Spark: it could not be read or written.
                    self._lost(error, ids[0])
        except _StoppedError:
            # It has not ended, so `leave` says that it is not to blame.
            raise
        except (ZedlogError, _StateLost):
            self._attempts.end()
            raise
        except Exception as fault:
            self._attempts.end()
            self._attempts.failed(ids, fault)
            raise _StateLost("an epoch failed because of a fault of Zedlog itself") from fault
        self._attempts.end()

    def _publish(
        self,
        group: list[tuple[LogEntry, Transaction]],
        done: Sequence[EpochResult | ZedlogError],
        record: EpochRecord | None,
        publisher: Publisher,
    ) -> None:
        """Make the epoch and the outcomes visible."""
        outcomes = [
            (entry.id, answer(transaction, outcome, publisher.incarnation))
            for (entry, transaction), outcome in zip(group, done, strict=True)
        ]
        ids = [name for name, _ in outcomes]
        trim_before = self._keep(group)
        self._with_patience(lambda: publisher.publish(record, outcomes, ids[-1], trim_before))
        self._attempts.settled(ids)
        if self._checkpoints is not None and record is not None:
            self._checkpoints.evaluated(record)
        self._heartbeat.tell("running", publisher.head.epoch)

    def _lost(self, lost: SparkStateLostError | SparkUnavailableError, transaction: str) -> None:
        """Leave the group in the log, to be applied to a rebuilt state. If that fails as well, the group's first
        transaction, which may be the cause, is refused; so each transaction costs at most two rebuilds.

        Raises:
            _StateLost: always; what the reasoner holds may be ahead of what is published.
        """
        if self._lost_at == transaction:
            self._attempts.refuse(transaction, lost)
        self._lost_at = transaction
        raise _StateLost(lost.message)

    def _applied(
        self, group: list[tuple[LogEntry, Transaction]], publisher: Publisher, reasoner: Committer
    ) -> tuple[list[EpochResult | ZedlogError], EpochRecord | None]:
        """What became of each transaction, and the record of the epoch if there is one. Empty if one of them was
        cancelled meanwhile: the others are to be applied without it.

        Raises:
            _StoppedError: told to stop; the group stays in the log.
        """
        transactions = [transaction for _, transaction in group]
        if transactions[0].batches:
            if self._jobs is None:
                return [BatchUnreadableError("this engine has no batch directory")], None
            try:
                transactions = [self._jobs.store.load(transactions[0])]
            except BatchUnreadableError as error:
                return [error], None
        if transactions[0].rollback is not None:
            rollback = transactions[0]
            try:
                transactions = [self._with_patience(lambda: resolved(rollback, publisher))]
            except ZedlogError as error:
                # Also if the older epoch is damaged: the newest one, which is served, may be whole.
                return [error], None
        try:
            result = reasoner.commit(transactions, shared=True)
        except ZedlogError as error:
            raise RuntimeError(f"a refusal is an outcome, not an exception: {error}") from error
        assert len(result.outcomes) == len(transactions), "every transaction has an outcome"
        done, record = list(result.outcomes), result.record
        if any(isinstance(outcome, EvaluationCancelledError) for outcome in done):
            if self._stop.is_set():
                raise _StoppedError
            wanted = [entry.id for entry, _ in group if entry.id in self._interruption.cancelled]
            assert wanted, "only a cancelled transaction or a stop ends an evaluation"
            self._attempts.cancel(wanted)
            if record is None:
                return [], None
            done = self._after_cut(group, transactions, done, reasoner)
        if record is not None and self._attempts.is_alone(group[0][0].id):
            record = replace(
                record,
                reason=f"{record.reason}; alone, because an earlier epoch with this transaction failed",
            )
            for outcome in done:
                if not isinstance(outcome, ZedlogError):
                    outcome.record = record
        return done, record

    def _after_cut(
        self,
        group: list[tuple[LogEntry, Transaction]],
        transactions: list[Transaction],
        done: list[EpochResult | ZedlogError],
        reasoner: Committer,
    ) -> list[EpochResult | ZedlogError]:
        """The outcomes of a group whose epoch is committed, but whose dry runs after it were interrupted: those that
        were cancelled are refused, the others are done again.
        """
        outcomes = []
        for (entry, _), transaction, outcome in zip(group, transactions, done, strict=True):
            if isinstance(outcome, EvaluationCancelledError):
                assert transaction.dry_run, "a group is committed whole or cut whole"
                self._interruption.begin([entry.id])
                again = self._attempts.verdict(entry.id) or reasoner.commit([transaction]).outcomes[0]
                if isinstance(again, EvaluationCancelledError):
                    if self._stop.is_set():
                        raise _StoppedError
                    self._attempts.cancel([entry.id])
                    again = self._attempts.verdict(entry.id) or again
                outcomes.append(again)
            else:
                outcomes.append(outcome)
        return outcomes

    def _keep(self, group: list[tuple[LogEntry, Transaction]]) -> str:
        """The oldest log entry that stays. An entry keeps its batch files alive, so they count."""
        for entry, transaction in group:
            size = len(entry.payload or b"")
            size += sum(file.bytes for batch in transaction.batches for file in batch.files)
            self._kept.append((entry.id, size))
            self._kept_bytes += size
        while len(self._kept) > 1 and (len(self._kept) > _KEPT_ENTRIES or self._kept_bytes > _KEPT_BYTES):
            self._kept_bytes -= self._kept.popleft()[1]
        return self._kept[0][0]

    def _check_lease(self) -> None:
        if self._heartbeat.lost.is_set():
            raise EngineLeaseError(f"another engine has taken over the database {shown(self._database)}")

    def _with_patience(self, work: Callable[[], T]) -> T:
        """The work's result; while Redis is unreachable, the work is tried again. It must be safe to repeat.

        Raises:
            _StoppedError: told to stop in between.
        """
        delay = _FIRST_DELAY
        away = False
        while True:
            try:
                result = work()
            except StorageUnavailableError as error:
                if not away:
                    logger.warning("%s; trying again", error.message)
                away = self._was_away = True
                if self._stop.wait(delay):
                    raise _StoppedError from error
                delay = min(2 * delay, _LAST_DELAY)
                continue
            if away:
                logger.info("Redis is back")
            return result


class _StoppedError(Exception):
    """Told to stop while Redis was away."""


class _StateLost(Exception):
    """The reasoner's state is gone; what is in Redis is not."""


def run_engine(
    redis_url: str,
    database: str,
    options: EngineOptions | None = None,
    reasoner_factory: ReasonerFactory | None = None,
    spark: SparkSource | None = None,
    jobs: JobRunner | None = None,
    checkpoints: Checkpoints | None = None,
    audits: Audits | None = None,
) -> int:
    """Serve a database until SIGTERM or SIGINT, in the main thread. Returns the exit status. `spark` is the process's
    one source of a Spark session, for the placement and for whatever else needs one; it is closed at the end.

    0: told to stop. 1: something cannot be read, or failed; that is logged, and shown to readers if possible. 2:
    another engine has served the database for longer than `lease_wait`.
    """

    def say_ready(epoch: int) -> None:
        print(f"engine ready: database {database} at epoch {epoch}", flush=True)

    factory = reasoner_factory or restore_reasoner
    engine = Engine(redis_url, database, factory, options, say_ready, jobs, checkpoints, audits)

    def overdue() -> None:
        """Told to stop, and still in a kernel: the data in Redis is complete at any time, so the process may simply
        end.
        """
        if engine.evaluating:
            logger.info(
                "stopped in the middle of an evaluation; its transactions are applied after the next start"
            )
            engine.leave()
            os._exit(0)

    try:
        with heard_at_once((signal.SIGTERM, signal.SIGINT), engine.stop, overdue, _STOP_SECONDS):
            engine.run()
        return 0
    except EngineLeaseError as error:
        logger.error("%s", error)
        return 2
    except ZedlogError as error:
        logger.error("the engine stops: %s", error)
        return 1
    except Exception:
        logger.exception("the engine stops")
        return 1
    finally:
        if spark is not None:
            spark.close()


def restore_reasoner(
    state: SavedState,
    interruption: Interruption,
    budget: Budget | None = None,
    placement: str = "auto",
    switch: float = SWITCH,
    spark: SparkSource | None = None,
    checkpoints: Checkpoints | None = None,
) -> Committer:
    """A reasoner for the saved state, from a checkpoint if there is one that fits; the other parameters are those of
    `Reasoner`.
    """
    budget = replace(budget or Budget(), cancelled=interruption, entered=interruption.entered)
    # Imported here, because it loads the compiled kernels, which a mere listing of the options should not wait for.
    from engine.database.reasoner import Reasoner

    _load()

    def made(checkpoint: Checkpoint) -> Reasoner:
        return Reasoner.resume(checkpoint, state, placement, budget, None, spark, switch)

    found = checkpoints.taken_up(state, made) if checkpoints is not None else None
    return found or Reasoner.restore(state, placement, budget, None, spark, switch)


@cache
def _load() -> None:
    """The first epoch of a process loads the grammar and the rest of the code; no client should wait for that."""
    from engine.database.reasoner import Reasoner

    Reasoner().apply(facts={"ready": [(("",), 1)]}, rules=[("go(x) :- ready(x).", 1)])
