"""Work on the state as it is between two epochs, in a process that is forked then, while the engine goes on.

In: a function. Out: the bytes that it returns, or why it failed, in words. The child has the parent's memory as it was
at the fork; the memory grows only by what either of them changes. Threads of the parent do not exist in the child, and
a lock that one of them held is held for ever: so the function must not wait for one, and uses no connection that was
there before. The child ends with its parent (Linux), never returns into the parent's code, and is the first to be ended
where memory runs out (Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

_POLL_SECONDS = 0.01
_DONE, _FAILED = b"+", b"-"


class Forked:
    """See the module. priority: by how much its process is nicer than this one. `answer` and `failure` are there once
    it has ended."""

    def __init__(self, work: Callable[[], bytes], priority: int) -> None:
        self.began = time.monotonic()
        self.answer, self.failure = b"", ""
        self._told = b""
        # Loaded here: the child must not wait for a lock that another thread of its parent holds.
        libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
        parent = os.getpid()
        self._pipe, pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        with warnings.catch_warnings():
            # Python 3.12 and later warn of a fork in a process with threads; see the module for what the child does.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _run(work, pipe, parent, libc, priority)
        os.close(pipe)

    @property
    def pid(self) -> int:
        return self._pid

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has, waiting up to `seconds`."""
        end = time.monotonic() + seconds
        while True:
            # Read on the way: the child waits while the pipe is full.
            self._read()
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                break
            left = end - time.monotonic()
            if left <= 0:
                return False
            select.select([], [], [], min(_POLL_SECONDS, left))
        self._read()
        os.close(self._pipe)
        if self._told[:1] == _DONE:
            self.answer = self._told[1:]
        elif self._told[:1] == _FAILED:
            self.failure = self._told[1:].decode(errors="replace")
        else:
            number = os.waitstatus_to_exitcode(status)
            how = f"by signal {-number}" if number < 0 else f"with status {number}"
            self.failure = f"its process was ended {how}"
        return True

    def kill(self) -> None:
        """End it, if it has not ended."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._pipe)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._told += data


def _run(
    work: Callable[[], bytes], pipe: int, parent: int, libc: ctypes.CDLL | None, priority: int
) -> NoReturn:
    """The child process."""
    told = _FAILED
    try:
        # Collecting garbage would touch, and so copy, all of the parent's objects.
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(1, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() == parent:
            os.nice(priority)
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
                score.write("1000")
            told = _DONE + work()
    except OSError as error:
        told = _FAILED + (error.strerror or str(error)).encode()
    except BaseException as error:
        told = _FAILED + repr(error).encode(errors="replace")
    finally:
        with contextlib.suppress(OSError):
            while told:
                told = told[os.write(pipe, told) :]
        os._exit(0)
