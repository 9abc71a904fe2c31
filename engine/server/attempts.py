"""Which transactions of the log are tried alone, and which are refused without being tried.

A fault of Zedlog itself must neither stop the service nor happen again with every restart. So:

- an exception that is not a `ZedlogError` refuses its transaction (`internal_error`). If several transactions shared
  the epoch, each is tried alone, and the one that fails is refused;
- when the process ended in the middle of an epoch (a crash in compiled code, out of memory), a mark in Redis says which
  transactions it was applying. Each of them is tried once more, alone; when the process ends again, the transaction
  that it was applying is refused;
- a transaction that is to be cancelled is refused (`cancelled`) without being tried.

In: ids of log entries, and what became of their epochs. Out: verdicts, and whether an entry is to be tried alone.
Always: the state is recovered from the snapshot after a fault, before anything else is tried.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence

from engine.errors import InternalError, StorageUnavailableError, TransactionCancelledError, ZedlogError
from engine.server.interruption import Interruption
from engine.storage.begun import Mark, Marks, place
from engine.storage.lease import Lease
from engine.storage.log import START

logger = logging.getLogger("zedlog.engine")

ATTEND_SECONDS = 0.25
"""Seconds. During an epoch that lasts longer, its mark is made durable and cancellations are looked for."""


class Attempts:
    """See the module. `attend` is called by the heartbeat's thread, everything else by the engine's."""

    def __init__(self, redis_url: str, database: str, lease: Lease, interruption: Interruption) -> None:
        self._marks = Marks(redis_url, database, lease)
        self._interruption = interruption
        # Another process has another name: its mark is of a process that ended.
        self._owner = secrets.token_hex(8)
        self._judged: Mark | None = None
        self._until = START
        self._verdicts: dict[str, ZedlogError] = {}
        self._running: tuple[Mark, float] | None = None

    def recovered(self, last_id: str) -> None:
        """The state is the one after the log entry `last_id`. Read which transactions a process that ended was
        applying.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
        """
        # A fault after everything was published refuses nothing.
        self._verdicts = {name: why for name, why in self._verdicts.items() if place(name) > place(last_id)}
        mark = self._marks.read()
        if mark is None or mark.owner == self._owner or mark == self._judged:
            return
        self._judged = mark
        self._until = max(self._until, mark.until, key=place)
        if not mark.is_ahead(last_id):
            return
        again = mark.first == mark.last and place(mark.first) <= place(mark.until)
        self._until = max(self._until, mark.last, key=place)
        if again:
            text = (
                "the engine's process ended twice while it applied this transaction, the second time on its own; the "
                "transaction is refused and changed nothing"
            )
            self._verdicts[mark.first] = InternalError(text, transaction=mark.first)
            logger.error("%s: %s", mark.first, text)
        else:
            text = "the engine's process ended while it applied these transactions; each is tried once more, alone"
            logger.warning("%s to %s: %s", mark.first, mark.last, text)
            self._tell(mark.first, mark.last, text, refused=False)

    def failed(self, ids: Sequence[str], fault: Exception) -> None:
        """An epoch of these transactions met a fault. A transaction that was alone is refused; several are each tried
        alone.
        """
        what = f"{type(fault).__name__}: {fault}".removesuffix(": ")
        alone = len(ids) == 1
        if alone:
            logger.error(
                "the transaction %s caused a fault of Zedlog itself and is refused", ids[0], exc_info=fault
            )
            text = (
                f"a fault of Zedlog itself: {what}; the transaction is refused and changed nothing, and the engine's "
                "log has the details"
            )
            self._verdicts[ids[0]] = InternalError(text, transaction=ids[0], exception=type(fault).__name__)
        else:
            logger.error(
                "an epoch of %d transactions caused a fault of Zedlog itself", len(ids), exc_info=fault
            )
            text = f"a fault of Zedlog itself: {what}; each transaction of the epoch is tried alone"
            self._until = max(self._until, ids[-1], key=place)
            self._tell(ids[0], ids[-1], text, refused=False)

    def refuse(self, transaction: str, error: ZedlogError) -> None:
        """Refuse a transaction when its turn comes."""
        self._verdicts[transaction] = error

    def cancel(self, ids: Sequence[str]) -> None:
        """These transactions wait for their turn, and are to be cancelled."""
        for name in ids:
            text = "the transaction was cancelled; it changed nothing"
            self._verdicts.setdefault(name, TransactionCancelledError(text, transaction=name))

    def verdict(self, transaction: str) -> ZedlogError | None:
        """Why a transaction is refused without being tried; None if it is to be tried."""
        return self._verdicts.get(transaction)

    def is_alone(self, transaction: str) -> bool:
        """Whether the transaction must not share an epoch."""
        return place(transaction) <= place(self._until)

    @property
    def running(self) -> bool:
        """Whether an epoch was begun and has not ended."""
        return self._running is not None

    def begin(self, ids: Sequence[str]) -> None:
        """An epoch of these transactions begins."""
        self._interruption.begin(ids)
        mark = Mark(ids[0], ids[-1], self._until, self._owner, time.time())
        self._running = mark, time.monotonic() + ATTEND_SECONDS
        self._marks.begin(mark)

    def end(self) -> None:
        """The epoch is over, however it ended."""
        self._running = None
        self._interruption.begin(())

    def settled(self, ids: Sequence[str]) -> None:
        """These transactions have their outcomes."""
        for name in ids:
            verdict = self._verdicts.pop(name, None)
            if isinstance(verdict, InternalError):
                self._tell(name, name, verdict.message, refused=True)

    def attend(self) -> None:
        """If an epoch lasts long, make its mark durable and look which of its transactions are to be cancelled."""
        running = self._running
        if running is None or time.monotonic() < running[1]:
            return
        mark = running[0]
        told = Mark(mark.first, mark.last, mark.until, mark.owner, mark.since, self._interruption.relations)
        try:
            wanted = self._marks.attend(told)
        except StorageUnavailableError:
            return
        if wanted and self._running is running:
            self._interruption.cancel(wanted)

    def leave(self) -> None:
        """The process ends in an orderly way, so the transactions that it was applying are not at fault. Does not
        fail.
        """
        if self._running is not None:
            self._marks.leave()

    def close(self) -> None:
        """Close the connections."""
        self._marks.close()

    def _tell(self, first: str, last: str, message: str, *, refused: bool) -> None:
        fault = {"first": first, "last": last, "refused": refused, "message": message}
        self._marks.note_fault(int(refused), fault)
