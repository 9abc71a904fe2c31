"""Waiting in tests for what another process or thread does, with a limit that only a failure reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T], what: str | Callable[[], str] = "what was waited for", seconds: float = 120
) -> T:
    """The first answer of `condition` that is true. `what` is missing where it never comes: words, or a function that
    says them at the end."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still missing: {what() if callable(what) else what}")
        time.sleep(0.02)
    return answer
