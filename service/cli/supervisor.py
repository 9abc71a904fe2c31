"""Keeps the processes of `zedlog serve` running, and ends them in the right order.

In: a list of `Part`s, each with a command. Out: `watch` returns when it is told to stop. Always: a part that ends is
started again: at once if it has run for some time, otherwise after a pause that grows (up to `MAX_PAUSE`). If it ends
`MAX_FAILURES` times in a row it is given up, because further attempts would hide a permanent fault. That raises
`PartFailed`, except for a part that the others can do without (`essential=False`) once everything has been ready. Parts
start in the order given and stop in the reverse order, so that the service never accepts requests for an engine that is
being stopped.

Each part has a process group of its own: a Ctrl-C on the terminal reaches only the supervisor, which then stops the
parts in order. If the supervisor itself is killed, the parts end, too. They are bound to the thread that calls `start`
and `watch`, so that thread must also call `stop` (see engine/storage/child.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from engine.storage.child import SUPERVISOR, dies_with_parent, supervisor_mark

POLL_SECONDS = 0.05
FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
MAX_FAILURES = 5
# A part that ran this long has recovered: its next end counts as a first one, and needs no pause.
STEADY_SECONDS = 10.0
STOP_SECONDS = 20.0

Say = Callable[[str], None]


class PartFailed(Exception):
    """A part keeps ending, or does not become ready; the message includes the end of its log."""


@dataclass(slots=True)
class Part:
    """One process to keep running. After the first start `ready` is called until it returns True.

    The command begins with a path. `inherit` are file descriptors that the process inherits.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[int] = ()
    ready: Callable[[], bool] | None = None
    essential: bool = True
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    restart_at: float | None = None
    given_up: bool = False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """Owns the processes of its parts. It is used once: `start`, `watch`, `stop`, all from one thread."""

    def __init__(self, parts: Sequence[Part], log: Path, say: Say) -> None:
        self._parts = list(parts)
        self._log = log
        self._say = say
        self._stopping = False
        self._all_ready = False
        self._output: IO[bytes] | None = None
        # An engine that is started again need not wait for the lease of the one before.
        self._mark = supervisor_mark()

    def install_signals(self) -> None:
        """Stop on SIGINT, SIGTERM and SIGHUP; a second SIGINT does not wait for an orderly end."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopping and number == signal.SIGINT:
            for part in self._parts:
                if part.process is not None:
                    part.process.kill()
        self._stopping = True

    @property
    def stopping(self) -> bool:
        return self._stopping

    def request_stop(self) -> None:
        """Make `watch` return; may be called from any thread."""
        self._stopping = True

    def start(self, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        """Start every part, in order, each when the one before it is ready; then wait until `ready()`.

        `timeout` bounds the wait for each part, not the last one: a large database takes long to rebuild.

        Raises:
            PartFailed: a part is not ready in time, or keeps ending.
        """
        for part in self._parts:
            if self._stopping:
                return
            self._launch(part)
            self._await_part(part, timeout)
        while not self._stopping and not ready():
            self._tend()
            time.sleep(POLL_SECONDS)
        self._all_ready = True

    def _await_part(self, part: Part, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._stopping:
            self._tend()
            if part.running and (part.ready is None or part.ready()):
                return
            if time.monotonic() > deadline:
                raise PartFailed(f"the {part.name} is not ready after {timeout:.0f} s.{self._log_tail()}")
            time.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Keep the parts running until a signal or `request_stop`.

        Raises:
            PartFailed: an essential part keeps ending.
        """
        while not self._stopping:
            self._tend()
            time.sleep(POLL_SECONDS)

    def _tend(self) -> None:
        """Restart the parts that have ended. Parts that have not been started yet are left alone."""
        now = time.monotonic()
        for part in self._parts:
            if part.process is None or part.running or part.given_up:
                continue
            if part.restart_at is None:
                self._note_end(part, now)
            elif now >= part.restart_at:
                self._launch(part)
                self._say(f"{part.name}: started again (process {part.process.pid})")

    def _note_end(self, part: Part, now: float) -> None:
        assert part.process is not None
        how = describe_end(part.process.returncode)
        steady = now - part.started > STEADY_SECONDS
        part.failures = 1 if steady else part.failures + 1
        if part.failures < MAX_FAILURES:
            pause = 0.0 if steady else min(FIRST_PAUSE * 2 ** (part.failures - 1), MAX_PAUSE)
            part.restart_at = now + pause
            self._say(f"{part.name}: {how}; starting it again" + (f" in {pause:.1f} s" if pause else ""))
            return
        message = f"the {part.name} {how}, {part.failures} times in a row.{self._log_tail()}"
        if part.essential or not self._all_ready:
            raise PartFailed(message)
        part.given_up = True
        self._say(
            f"{message}\n{part.name}: given up; the rest goes on without it. To try again, stop and start Zedlog."
        )

    def _launch(self, part: Part) -> None:
        if self._output is None:
            self._output = self._log.open("ab")
        part.process = subprocess.Popen(
            dies_with_parent(part.command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **part.environment, SUPERVISOR: self._mark},
            pass_fds=part.inherit,
            process_group=0,
        )
        part.started = time.monotonic()
        part.restart_at = None

    def stop(self) -> None:
        """End every part, the last first: SIGTERM, and SIGKILL for one that takes too long."""
        self._stopping = True
        for part in reversed(self._parts):
            if part.process is None:
                continue
            part.process.terminate()
            try:
                part.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._say(f"{part.name}: did not stop within {STOP_SECONDS:.0f} s; killing it")
                part.process.kill()
                part.process.wait()
        if self._output is not None:
            self._output.close()
            self._output = None

    def _log_tail(self, lines: int = 15) -> str:
        try:
            text = self._log.read_text(errors="replace")
        except OSError:
            return ""
        tail = "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
        return f" The last lines of {self._log}:\n{tail}" if tail else f" {self._log} is empty."


def describe_end(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
