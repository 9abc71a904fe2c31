"""Signals that are handled at once, also while the main thread is in compiled code.

Python runs a signal's handler in the main thread, between two of its own instructions: a kernel that works for seconds
delays it that long, and an exception out of a handler may meet compiled code that takes it for an error of its own. But
the interpreter writes each signal's number to a file descriptor at once, and a thread reads that; kernels do not hold
the interpreter's lock.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def heard_at_once(
    numbers: Sequence[int],
    ask: Callable[[], None],
    overdue: Callable[[], None],
    grace: float,
) -> Iterator[None]:
    """Within the block each of these signals calls `ask`, and also `overdue` if the block has not been left `grace`
    seconds later; both are called from a thread of their own. The main thread is not interrupted. The previous handlers
    are restored at the end. Outside of the main thread the block runs without this, because only the main thread gets
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receive, send = os.pipe()
    os.set_blocking(send, False)
    over = threading.Event()

    def listen() -> None:
        while data := os.read(receive, 64):
            if any(number in numbers for number in data):
                ask()
                if not over.wait(grace):
                    overdue()

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
    wakeup = signal.set_wakeup_fd(send, warn_on_full_buffer=False)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(wakeup)
        for number, old in before.items():
            signal.signal(number, old)
        os.close(send)
        thread.join()
        os.close(receive)
