"""`zedlog run PROGRAM`: evaluate a program over files once, as Souffle does, without a service.

In: a program and a folder of facts. Out: the files and the standard output that its directives ask for. If the program
or a fact file is wrong, or a limit of time or memory is exceeded, nothing is written, and the exit status is 1, with a
message that names file, line and column where there are any. Exit status 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer
from rich.markup import escape
from rich.status import Status

from engine.errors import EvaluationCancelledError, ProgramError, ZedlogError
from engine.maintenance.limits import parse_seconds, parse_size, parse_whole
from engine.maintenance.memory import default_memory_budget
from engine.maintenance.placement import MAX_HEIGHT, Budget
from engine.server.signals import heard_at_once
from service.cli.edit import read_text
from service.cli.options import wrong_usage
from service.cli.output import err, fail
from service.cli.starting import uncollected

_INTERRUPTED = 130
_INTERRUPT_SECONDS = 0.5
"""How long the evaluation may still run after Ctrl-C."""
PATIENCE = 2.0
"""Seconds after which a person at a terminal is told what takes so long."""


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
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="SECONDS", help="Give up if the evaluation takes longer."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Give up if the tuples need more, for example 4GiB. Default: half of the machine's memory.",
        ),
    ] = None,
    max_height: Annotated[
        str | None,
        typer.Option(
            "--max-height",
            envvar="ZEDLOG_MAX_HEIGHT",
            metavar="N",
            help="Give up if a recursion goes through more rounds (heights). Default: "
            f"{MAX_HEIGHT:,} where it computes or folds values, else no limit.",
        ),
    ] = None,
) -> None:
    """Evaluate a program over files, once, as Souffle would. Needs no service. Ctrl-C ends it.

    Examples:

    - `zedlog run program.dl -F facts -D out`
    - `zedlog run program.dl -D -`
    - `zedlog run program.dl --timeout 60 --memory 4GiB`
    """
    threads = _threads(jobs)
    wanted_no_more = threading.Event()
    with wrong_usage("--timeout"):
        seconds = None if timeout is None else parse_seconds(timeout)
    with wrong_usage("--memory"):
        size = default_memory_budget() if memory is None else parse_size(memory)
    with wrong_usage("--max-height (ZEDLOG_MAX_HEIGHT)"):
        height = None if max_height is None else parse_whole(max_height)
    budget = Budget(seconds=seconds, memory=size, height=height, cancelled=wanted_no_more.is_set)
    text = read_text(program)
    patience = Patience()

    def interrupted() -> None:
        fail(f"interrupted while {patience.now}")

    def overdue() -> None:
        # The main thread is in a kernel, or reads or writes; what it works at is wanted no more.
        interrupted()
        # Whatever shows progress has hidden it.
        err.show_cursor()
        os._exit(_INTERRUPTED)

    try:
        # Not by a KeyboardInterrupt, which compiled code may take for an error of its own.
        with heard_at_once((signal.SIGINT,), wanted_no_more.set, overdue, _INTERRUPT_SECONDS):
            _run(program, text, fact_dir, output_dir, threads, budget, patience)
    except EvaluationCancelledError:
        # Said only where `overdue` can no longer say it: it ends the process.
        interrupted()
        raise typer.Exit(_INTERRUPTED) from None


def _run(
    program: Path,
    text: str,
    fact_dir: Path,
    output_dir: Path,
    threads: int | None,
    budget: Budget,
    patience: Patience,
) -> None:
    try:
        with uncollected():
            # Imported here, so that the other commands start without the engine.
            from engine.files.batch import FileRun
            from engine.resident.warm import compile_missing

            batch = FileRun.of(text)
            if batch.inputs and not fact_dir.is_dir():
                fail(f"the folder of facts {fact_dir} does not exist")
                raise typer.Exit(1)
            patience.stage("loading kernels")
            compile_missing()
        with patience:
            batch.run(
                fact_dir,
                None if str(output_dir) == "-" else output_dir,
                sys.stdin.buffer,
                sys.stdout.buffer,
                threads,
                patience.stage,
                budget,
            )
    except EvaluationCancelledError:
        raise
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
    """A line on standard error that says what is going on, if it takes long and standard error is a terminal."""

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

    @property
    def now(self) -> str:
        """What is going on now."""
        return self._stage

    def stage(self, text: str) -> None:
        """Set what is going on from now on."""
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
    raise typer.BadParameter(
        f"it must be a number of threads (1 to 1024) or auto, not {jobs!r}", param_hint="--jobs"
    )
