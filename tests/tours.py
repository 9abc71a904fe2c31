"""The tours of docs/tours/: their commands, run in order against a service, and what they print.

    scripts/tour access            runs a tour on a service of its own, and says where a page is not true any more
    scripts/tour --write access    the same, and writes what was printed into the page

A tour is a page whose `console` blocks hold the commands, each behind `$ `, with what it prints below. They are run in
a folder that holds copies of `examples` and `programs`, so a tour may write files. Times, dates and ids differ from run
to run; they are compared only in their form (VARYING).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from service.cli.main import run as zedlog
from tests.live import LiveSystem

ROOT = Path(__file__).resolve().parent.parent
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "tours").glob("*.md"))}
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ", re.MULTILINE)
_SHELL = re.compile(r" [|<>;&]|/\*\.")
WIDTH = "100"
# Epochs in a command, and in what one prints.
_ASKED = re.compile(r"(rollback |--changed |--at )(\d+)")
_EPOCHS = re.compile(r"(\bepoch |\"epoch\":\"?|rollback to )(\d+)")

VARYING = (
    (re.compile(r"\b[\d.,]+ (?:ms|s)\b"), "<time>"),
    (re.compile(r"\b\d{13}-\d+\b"), "<transaction>"),
    (re.compile(r"kept back to \d+"), "kept back to <epoch>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"), "<date>"),
)


@dataclass(frozen=True)
class Step:
    """A command of a page, and what it prints."""

    command: str
    output: str


def normal(output: str) -> str:
    """What has to be the same in every run."""
    for pattern, name in VARYING:
        output = pattern.sub(name, output)
    return "\n".join(line.rstrip() for line in output.strip("\n").splitlines())


def steps(page: Path) -> list[Step]:
    found = []
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        before, *parts = _COMMAND.split(block)
        if before or not parts:
            raise ValueError(f"{page.name}: a block of console must begin with a command: {block[:60]!r}")
        for part in parts:
            command, _, output = part.partition("\n")
            found.append(Step(command, output))
    return found


def run(page: Path, url: str, folder: Path, base: int = 0) -> list[tuple[Step, str]]:
    """Every command of the page with what it prints, standard error included. base: the epoch of the empty database;
    the page counts from 0.
    """
    folder.mkdir(exist_ok=True)
    for data in ("examples", "programs"):
        shutil.copytree(ROOT / data, folder / data)
    tools = folder / ".bin"
    tools.mkdir()
    for name, arguments in (("zedlog", "-m service.cli.main"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ZEDLOG_URL": url,
        "COLUMNS": WIDTH,
    }
    with mock.patch.dict(os.environ, environment), contextlib.chdir(folder):
        return [
            (step, _EPOCHS.sub(_plus(-base), _printed(_ASKED.sub(_plus(base), step.command))))
            for step in steps(page)
        ]


def _plus(more: int) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match[1]}{int(match[2]) + more}"


def _printed(command: str) -> str:
    """A command of ours runs in this process, because starting another takes longer than the command; what needs a
    shell gets one.
    """
    if command.startswith("zedlog ") and not _SHELL.search(command):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            zedlog(shlex.split(command)[1:])
            stream.flush()
        printed = stream.buffer.getvalue()  # type: ignore[attr-defined]
        return str(printed, "utf-8")
    done = subprocess.run(
        command,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def write(page: Path, printed: Sequence[str]) -> None:
    """Put what the commands print below them in the page."""
    left = iter(printed)

    def block(match: re.Match[str]) -> str:
        commands = [part.partition("\n")[0] for part in _COMMAND.split(match[1])[1:]]
        shown = [f"$ {command}\n{_lines(next(left))}" for command in commands]
        return "```console\n" + "".join(shown) + "```"

    page.write_text(_BLOCK.sub(block, page.read_text(encoding="utf-8")), encoding="utf-8")


def _lines(output: str) -> str:
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/tour", description="Run the commands of a tour.")
    parser.add_argument("tour", choices=sorted(PAGES))
    parser.add_argument("--write", action="store_true", help="write what is printed into the page")
    options = parser.parse_args()
    page = PAGES[options.tour]
    differ = 0
    with tempfile.TemporaryDirectory() as folder, LiveSystem(Path(folder)) as live:
        done = run(page, live.url, Path(folder) / "tour")
    for step, printed in done:
        print(f"$ {step.command}\n{printed}")
        if normal(step.output) != normal(printed):
            differ += 1
            if not options.write:
                print(f"  The page shows something else:\n{step.output}")
    if options.write:
        write(page, [printed for _, printed in done])
        return 0
    if differ:
        print(
            f"{differ} of {len(done)} commands print something else than {page.name} shows", file=sys.stderr
        )
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
