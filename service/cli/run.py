"""`zedlog run PROGRAM`: evaluate a program over files once, as Souffle does, without a service.

In: a program and a folder of facts. Out: the files and the standard output that its directives ask for. Exit status
1 with a message that names file, line and column when the program or a fact file is wrong; nothing is written then.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer
from rich.markup import escape
from rich.status import Status

from engine.errors import ProgramError, ZedlogError
from service.cli.choices import MaxHeight
from service.cli.edit import read_text
from service.cli.output import err, fail

PATIENCE = 2.0
"""Seconds before a person at a terminal is told what takes so long."""


def run(
    program: Annotated[Path, typer.Argument(help="A Datalog program; '-' is standard input.")],
    fact_dir: Annotated[
        Path, typer.Option("--fact-dir", "-F", help="Where `.input r` finds r.facts.")
    ] = Path("."),
    output_dir: Annotated[
        Path,
        typer.Option("--output-dir", "-D", help="Where `.output r` writes r.csv; '-' is standard output."),
    ] = Path("."),
    jobs: Annotated[
        str, typer.Option("--jobs", "-j", metavar="N", help="Threads for large joins, or auto.")
    ] = "auto",
    max_height: MaxHeight = None,
) -> None:
    """Evaluate a program over files, once, as Souffle would. Needs no service.

    Examples:

    - `zedlog run program.dl -F facts -D out`
    - `zedlog run program.dl -D -`
    """
    threads = _threads(jobs)
    text = read_text(program)
    # Imported here, so that the other commands start without the engine.
    from engine.files.batch import Batch

    try:
        batch = Batch.of(text)
        if batch.inputs and not fact_dir.is_dir():
            fail(f"the folder of facts {fact_dir} does not exist")
            raise typer.Exit(1)
        with Patience() as patience:
            batch.run(
                fact_dir,
                None if str(output_dir) == "-" else output_dir,
                sys.stdin.buffer,
                sys.stdout.buffer,
                threads,
                patience.stage,
                max_height,
            )
    except ZedlogError as error:
        # An error about a file of facts or of results names that file; all others are about the program.
        located = isinstance(error, ProgramError) and error.span is not None
        about = "" if "file" in error.detail else f"{program}, " if located else f"{program}: "
        fail(f"{about}{error}")
        raise typer.Exit(1) from None
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None


class Patience:
    """A line on standard error that says what is going on, when it takes long and a terminal is there to show it."""

    def __init__(self) -> None:
        self._stage = "checking"
        self._status: Status | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Patience:
        if err.is_terminal:
            self._timer.start()
        return self

    def stage(self, text: str) -> None:
        """What goes on from now on."""
        with self._lock:
            self._stage = text
            if self._status is not None:
                self._status.update(escape(text))

    def _show(self) -> None:
        with self._lock:
            self._status = err.status(escape(self._stage))
            self._status.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self._status is not None:
            self._status.stop()


def _threads(jobs: str) -> int | None:
    """Souffle's `-j`: a number of threads, or `auto` for as many as there are cores."""
    if jobs == "auto":
        return None
    if jobs.isascii() and jobs.isdigit() and 0 < int(jobs) <= 1024:
        return int(jobs)
    raise typer.BadParameter(f"a number of threads (1 to 1024) or auto, not {jobs!r}", param_hint="--jobs")
