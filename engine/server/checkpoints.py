"""The checkpoint of one database: written in the background now and then, taken up at the start.

In: the reasoner between two epochs, and the snapshot that its state was published as. Out: one file in the folder, the
newest checkpoint; at the start, a reasoner made from it, or the reason why there is none. Always: a checkpoint is of a
published epoch. What is damaged, foreign or does not fit is noticed, reported and not used; then everything is derived
anew. No failure to write stops the engine.

The file is written by a child process that is forked between two epochs: it has the state as it was at that moment, and
the engine goes on with the next epoch at once. For 10 million tuples (0.9 GB) the fork takes 5 ms, where a copy of the
arrays would stop the engine for about a second and always take as much memory again; with a fork the memory grows only
by what the epochs change meanwhile. The child touches nothing but these arrays and its file: no lock of another thread,
no connection, no compiled kernel. It ends with its parent (Linux), and what it has not completed is never used.

When it is written: when what was evaluated since the last checkpoint, which would have to be done again, is at least a
`fraction` of what it would take to derive everything, but not more often than every `seconds` and not so often that
writing takes more than a twentieth of the time; and when the engine stops, if that takes only a moment. A state that is
derived in a moment is not kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from engine.database.checkpoint import Checkpoint
from engine.database.epoch import EpochRecord
from engine.database.saved import SavedState
from engine.errors import ZedlogError
from engine.resident.checkpoint import CheckpointUnusable, layout
from engine.server.forked import Forked
from engine.storage.checkpoint_file import NoCheckpoint, read_checkpoint, remove_partial, write_checkpoint

R = TypeVar("R")
Versions = Callable[[], Mapping[str, str]]
"""Names of what the snapshot holds of each relation, as in `SavedState`."""

logger = logging.getLogger("zedlog.engine")

_SHARE_OF_TIME = 20
_LOOK_SECONDS = 1.0
_STOP_SECONDS = 1.0
"""How long the engine may wait for a checkpoint when it stops."""
_BYTES_A_SECOND = 300e6
"""The speed of writing that is assumed until it is known."""
_MOST_ENDS = 2
"""After so many processes that ended while they took up a checkpoint, it is not tried again."""


@dataclass(frozen=True, slots=True)
class When:
    """When a checkpoint is written: see the module. least: a state that takes fewer tuples and derivations than this to
    derive is not kept, unless there is a checkpoint already, which would grow old.
    """

    seconds: float = 60.0
    fraction: float = 0.05
    least: float = 500_000.0


class Keepable(Protocol):
    """What is needed of a reasoner to keep its state; see `Reasoner`."""

    def checkpoint(
        self, incarnation: str = "", versions: Mapping[str, str] | None = None
    ) -> Checkpoint | None: ...

    def effort(self) -> float: ...

    def memory(self) -> int: ...


class Checkpoints:
    """See the module. `how` says how the state came back, in words."""

    def __init__(self, folder: Path, database: str, when: When | None = None) -> None:
        self.how = ""
        self._path = folder / f"{quote(database, safe='')}.checkpoint"
        self._trying = self._path.with_suffix(".trying")
        self._when = when or When()
        self._ahead: Future[Checkpoint] | None = None
        self._child: Forked | None = None
        # Of what is being written: its epoch, and what `_since` was.
        self._writing = 0, 0.0
        # The epoch of the file; None: there is none that could be used.
        self._kept: int | None = None
        self._since = 0.0
        self._not_before = 0.0
        self._rate = _BYTES_A_SECOND
        self._told = ""

    # ---- taking up

    def read_ahead(self) -> None:
        """Begin to read the file in a thread, while the process does something else; what is read is not known to fit
        yet.
        """
        pool = ThreadPoolExecutor(1, "checkpoint")
        self._ahead = pool.submit(read_checkpoint, self._path)
        pool.shutdown(wait=False)

    def drop_ahead(self) -> None:
        """Another engine is the writer, perhaps for long: what was read would grow old, and take memory."""
        self._ahead = None

    def taken_up(self, state: SavedState, make: Callable[[Checkpoint], R]) -> R | None:
        """What `make` makes of the checkpoint, brought to `state`; None if everything is to be derived anew.

        Raises:
            ZedlogError: `make` could not reach the storage, or was told to stop.
        """
        began = time.monotonic()
        ahead, self._ahead = self._ahead, None
        self._kept, self._since = None, float("inf")
        try:
            self._begin_trying()
            checkpoint = read_checkpoint(self._path) if ahead is None else ahead.result()
            read = time.monotonic() - began
            made = make(checkpoint)
        except CheckpointUnusable as why:
            there = not isinstance(why, NoCheckpoint)
            reason = f"the checkpoint is not used: {why}" if there else "there is no checkpoint"
            self.how = f"derived anew, because {reason}"
            logger.log(
                logging.WARNING if there else logging.INFO, "%s: %s; deriving anew", self._path, reason
            )
            return None
        except ZedlogError:
            raise
        except Exception as fault:
            # A fault of Zedlog itself must not keep the engine from starting.
            self.how = f"derived anew, because taking up the checkpoint failed: {fault!r}"
            logger.exception("%s: taking up the checkpoint failed; deriving anew", self._path)
            return None
        finally:
            with contextlib.suppress(OSError):
                self._trying.unlink(missing_ok=True)
        further = f", brought to epoch {state.epoch}" if state.epoch > checkpoint.epoch else ""
        self.how = f"from the checkpoint of epoch {checkpoint.epoch}{further}"
        self._kept, self._since = checkpoint.epoch, 0.0
        if further:
            # What was evaluated now would have to be done again; but not in the first minute, when clients come back.
            self._since, self._not_before = float("inf"), time.monotonic() + self._when.seconds
        logger.info("%s, in %.3f s (%.3f s for reading)", self.how, time.monotonic() - began, read)
        return made

    def _begin_trying(self) -> None:
        """Note that the checkpoint is being taken up, so that one that ends the process, again and again, is not tried
        for ever.

        Raises:
            CheckpointUnusable: it has ended the process before.
        """
        try:
            ended = int(self._trying.read_text())
        except (OSError, ValueError):
            # Most often because there is no such file.
            ended = 0
        if ended >= _MOST_ENDS:
            raise CheckpointUnusable(f"the engine's process ended {ended} times while it took it up")
        if os.path.exists(self._path):
            with contextlib.suppress(OSError):
                self._trying.write_text(str(ended + 1))

    # ---- writing

    def evaluated(self, record: EpochRecord) -> None:
        """An epoch was published."""
        changed = sum(change.rows for change in record.relations.values())
        # After symbols were forgotten, the checkpoint's codes cannot be compared any more.
        self._since += float("inf") if len(record.forgotten) else record.derivations + changed

    def consider(self, reasoner: Keepable, epoch: int, incarnation: str, versions: Versions) -> None:
        """Between two epochs: begin to write if it is time to. The reasoner's state was published as `epoch`."""
        if self._child is not None:
            self._attend(self._child, 0.0)
            return
        now = time.monotonic()
        if epoch == self._kept or now < self._not_before or not self._since:
            return
        self._not_before = now + _LOOK_SECONDS
        effort = reasoner.effort()
        if self._is_kept(effort) and self._since >= self._when.fraction * effort:
            self._begin(reasoner, epoch, incarnation, versions)

    def stop(self, reasoner: Keepable, epoch: int, incarnation: str, versions: Versions) -> None:
        """The engine stops: write if anything has changed and that takes only a moment."""
        end = time.monotonic() + _STOP_SECONDS
        if self._child is not None:
            self._attend(self._child, _STOP_SECONDS)
        changed = self._child is None and epoch != self._kept and self._since > 0
        if changed and self._is_kept(reasoner.effort()) and reasoner.memory() < _STOP_SECONDS * self._rate:
            self._begin(reasoner, epoch, incarnation, versions)
        self.close(max(0.0, end - time.monotonic()))

    def close(self, seconds: float = 0.0) -> None:
        """Wait so long for what is being written, and give it up if it has not ended then."""
        if self._child is not None and not self._attend(self._child, seconds):
            self._child.kill()
            self._child = None
            remove_partial(self._path)

    def _is_kept(self, effort: float) -> bool:
        """Whether a state that takes this effort is kept at all; one on Spark takes none."""
        return effort > 0 and (self._kept is not None or effort >= self._when.least)

    def _begin(self, reasoner: Keepable, epoch: int, incarnation: str, versions: Versions) -> None:
        def work() -> bytes:
            checkpoint = reasoner.checkpoint(incarnation, versions())
            return b"0" if checkpoint is None else b"%d" % write_checkpoint(self._path, checkpoint)

        # Computed once: the child finds it.
        layout()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            remove_partial(self._path)
            self._child = Forked(work, priority=10)
        except OSError as error:
            self._failed(error.strerror or str(error))
            return
        self._writing = epoch, self._since
        self._since = 0.0

    def _attend(self, child: Forked, seconds: float) -> bool:
        """Whether the child has ended."""
        if not child.has_ended(seconds):
            return False
        self._child = None
        epoch, since = self._writing
        took = time.monotonic() - child.began
        self._not_before = time.monotonic() + max(self._when.seconds, _SHARE_OF_TIME * took)
        if child.failure:
            self._since += since
            self._failed(child.failure)
        elif size := int(child.answer):
            self._kept, self._told = epoch, ""
            self._rate = size / max(took, 0.01)
            logger.info("checkpoint of epoch %d written: %.0f MB in %.1f s", epoch, size / 1e6, took)
        return True

    def _failed(self, why: str) -> None:
        """Tell it once: the folder may be full for days."""
        self._not_before = time.monotonic() + self._when.seconds
        if why != self._told:
            self._told = why
            logger.warning(
                "%s: the checkpoint cannot be written: %s; the engine goes on without a new one",
                self._path,
                why,
            )
