"""Compiles the kernels before they are needed (`python -m engine.resident.warm`), and shows the progress.

The compiled code is kept on disk and loaded from there by every later process (engine/resident/kernels.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from engine.resident import build, climb, dred, index, join, rowhash, table
from engine.resident.kernels import Compiling, load_all, load_ends, telling

__all__ = ["MODULES", "compile_missing", "load_all", "shown"]

MODULES = (index, build, join, table, climb, dred, rowhash)
"""The modules of the kernels, which are known to `load_all` once these are imported."""


@contextmanager
def shown() -> Iterator[None]:
    """Within this context, standard error shows the progress of a compilation: a bar on a terminal, otherwise one
    line.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(separator=" of "), console=console
    )

    def told(now: Compiling) -> None:
        if bar.task_ids:
            bar.update(bar.task_ids[0], completed=now.done)
            return
        bar.add_task(now.reason, completed=now.done, total=now.total)
        if console.is_terminal:
            bar.start()
        else:
            console.print(f"{now.reason} ...")

    with telling(told):
        try:
            yield
        finally:
            if bar.live.is_started:
                bar.stop()


def compile_missing() -> None:
    """Compile the kernels if they are missing, and show that. If they are not missing, this only loads two of them."""
    with shown():
        load_ends()


def main() -> None:
    """Compile the kernels that are missing, and say so."""
    start = time.perf_counter()
    with shown():
        compiled = load_all()
    verb = "compiled" if compiled else "loaded from the cache"
    print(f"Kernels {verb} in {time.perf_counter() - start:.1f} s.", file=sys.stderr)


if __name__ == "__main__":
    main()
