"""`zedlog run`: what a user sees, the exit status, and what is in the folders afterwards."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from service.cli import run as command
from service.cli.main import run
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
CLOSURE = """\
.decl edge(x: symbol, y: symbol)
.decl tc(x: symbol, y: symbol)
.input edge
.output tc
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y), edge(y, z).
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program and a folder of facts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.dl").write_text(CLOSURE)
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "edge.facts").write_text("a\tb\nb\tc\n")
    return tmp_path


def zedlog(arguments: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli.main", "run", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        timeout=60,
        check=False,
    )


def test_files_in_files_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "program.dl", "-F", "facts", "-D", "out/deep", "-j", "2"]) == 0
    assert (folder / "out/deep/tc.csv").read_text() == "a\tb\na\tc\nb\tc\n"
    assert capsys.readouterr() == ("", "")


def test_the_working_directory_is_the_default(folder: Path) -> None:
    os.chdir(folder / "facts")
    assert run(["run", "../program.dl"]) == 0
    assert (folder / "facts/tc.csv").read_text() == "a\tb\na\tc\nb\tc\n"


def test_program_and_facts_from_standard_input_as_a_process(folder: Path) -> None:
    done = zedlog(["-", "-D", "-"], b".decl n(x: number)\nn(3). n(20).\n.output n\n.printsize n\n")
    frame = b"---------------\nn\nx\n===============\n3\n20\n===============\nn\t2\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, frame, b"")
    (folder / "program.dl").write_text(CLOSURE.replace(".input edge", ".input edge(IO=stdin)"))
    done = zedlog(["program.dl", "-D", "-"], b"x\ty\n")
    assert (done.returncode, done.stdout.count(b"x\ty\n"), done.stderr) == (0, 2, b"")


@pytest.mark.parametrize(
    ("program", "facts", "message"),
    [
        (
            None,
            "a\tb\nc\n",
            "error: facts/edge.facts, line 2: 1 field separated by tabs, but edge(x: symbol, y",
        ),
        (
            ".decl edge(x: number)\n.input edge",
            "1\nb\n",
            "error: facts/edge.facts, line 2, column 1 (x): 'b' is not a number",
        ),
        (
            CLOSURE + "tc(x, y) :- edge(x, z).\n",
            None,
            "error: program.dl, line 7, column 7: the variable y in the head is not bound by any positive "
            "atom of the body\n"
            "  tc(x, y) :- edge(x, z).\n        ^\n",
        ),
        (CLOSURE + "tc(x y).\n", None, "error: program.dl, line 7, column 6: "),
        (
            CLOSURE + "tc(1, 2).\n",
            None,
            "error: program.dl, line 7, column 4: column 1 (x) of tc holds symbol",
        ),
        (
            ".limitsize tc(n=5)",
            None,
            "error: program.dl, line 1, column 1: size limits (.limitsize) are not part of",
        ),
        (
            ".input nothing",
            None,
            "error: program.dl, line 1, column 1: nothing is not declared; .input needs",
        ),
        (
            ".decl more(x: number)\n.input more",
            None,
            "error: cannot read the fact file facts/more.facts: No such file or directory (.input more, line 2 of",
        ),
        (
            ".decl p(x: number) .decl q(x: number) p(0). q(1 / x) :- p(x).",
            None,
            "error: program.dl: 1 / 0 divides by zero",
        ),
        (
            ".decl p(x: number) .decl q(x: number)\np(1).\np(x) :- q(x).\nq(x) :- p(x), !q(x).",
            None,
            "error: program.dl, line 4, column 1: ",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    program: str | None,
    facts: str | None,
    message: str,
) -> None:
    if program is not None:
        (folder / "program.dl").write_text(program)
    if facts is not None:
        (folder / "facts/edge.facts").write_text(facts)
    assert run(["run", "program.dl", "-F", "facts", "-D", "out"]) == 1
    seen = capsys.readouterr()
    assert seen.err.startswith(message)
    assert seen.out == ""
    assert not (folder / "out").exists()


def test_folders_and_options_that_make_no_sense(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "program.dl", "-F", "nowhere"]) == 1
    assert "the folder of facts nowhere does not exist" in capsys.readouterr().err
    assert run(["run", "none.dl"]) == 1
    assert "none.dl: No such file or directory" in capsys.readouterr().err
    assert run(["run", "program.dl", "-j", "0"]) == 2
    assert "a number of threads" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error_message(folder: Path) -> None:
    (folder / "program.dl").write_text(".decl n(x: number)\n.input n\n.output n(IO=stdout)\n")
    (folder / "facts/n.facts").write_text("".join(f"{i}\n" for i in range(300_000)))
    command_line = f'"{sys.executable}" -m service.cli.main run program.dl -F facts | head -n 4'
    done = subprocess.run(
        command_line,
        shell=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [b"---------------", b"n", b"===============", b"0"]
    assert done.stderr == b""


def test_a_person_is_told_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(command, "err", console)
    monkeypatch.setattr(command, "PATIENCE", 0.05)
    with command.Patience() as patience:
        patience.stage("deriving")
        time.sleep(0.3)
    assert "deriving" in screen.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr(command, "err", Console(file=quiet, force_terminal=False))
    with command.Patience() as patience:
        patience.stage("deriving")
        time.sleep(0.1)
    assert quiet.getvalue() == ""


def test_a_limit_of_heights_is_an_option_and_the_refusal_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "count.dl").write_text(
        ".decl n(i: number)\n.output n\nn(2 ^ 3 - 8).\nn(i + 1) :- n(i), i < 40.\n"
    )
    assert run(["run", "count.dl", "--max-height", "39"]) == 1
    assert "--max-height" in " ".join(capsys.readouterr().err.split())
    assert not (folder / "n.csv").exists()
    assert run(["run", "count.dl", "--max-height", "40"]) == 0
    assert (folder / "n.csv").read_text().split() == [str(i) for i in range(41)]


def test_a_fact_that_a_better_value_hides_is_not_written(folder: Path) -> None:
    (folder / "sp.dl").write_text(
        ".decl arc(x: symbol, y: symbol, c: number)\n.decl sp(x: symbol, d: number)\n.output sp\n.printsize sp\n"
        'arc("a", "b", 3). sp("a", 0). sp("a", 5). sp("b", 9).\nsp(y, min(d + c)) :- sp(x, d), arc(x, y, c).\n'
    )
    assert run(["run", "sp.dl"]) == 0
    assert (folder / "sp.csv").read_text() == "a\t0\nb\t3\n"


# 40,000 * 40,000 pairs, none of which is kept.
ENDLESS = """\
.decl a(x: number)
.decl p(x: number, y: number)
.output p
.input a
p(x, y) :- a(x), a(y), x * y = -1.
"""


@pytest.fixture
def endless(folder: Path) -> Path:
    """The same folder, with a program that does not end while anybody waits."""
    (folder / "long.dl").write_text(ENDLESS)
    (folder / "a.facts").write_text("\n".join(map(str, range(40_000))))
    return folder


def test_limits_of_time_and_memory(endless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "long.dl", "--timeout", "0.2"]) == 1
    assert "more than the 0.2 seconds allowed" in capsys.readouterr().err
    (endless / "large.dl").write_text(ENDLESS.replace("x * y = -1", "x < 100"))
    assert run(["run", "large.dl", "--memory", "20MiB"]) == 1
    assert "of 20 MiB allowed" in capsys.readouterr().err
    assert not (endless / "p.csv").exists()
    assert run(["run", "program.dl", "-F", "facts", "--timeout", "60", "--memory", "1GiB"]) == 0


@pytest.mark.parametrize("arguments", [["--timeout", "0"], ["--timeout", "soon"], ["--memory", "much"]])
def test_limits_that_are_none(folder: Path, arguments: list[str]) -> None:
    assert run(["run", "program.dl", *arguments]) == 2


def test_ctrl_c_ends_it_with_a_message(endless: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli.main", "run", "long.dl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )
    try:
        wait_for_cpu(process.pid, 2.0)
        process.send_signal(signal.SIGINT)
        _, problem = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert re.fullmatch(
        r"error: interrupted while (loading kernels|checking|reading a|deriving)\n", problem.decode()
    )
    assert process.returncode == 130


def wait_for_cpu(pid: int, seconds: float) -> None:
    """Until the process has worked for so long: by then it has started, and evaluates."""

    def worked() -> bool:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > seconds

    until(worked, "work of the process")
