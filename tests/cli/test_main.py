"""The command line as a whole: what its help says is what the commands say, each is loaded when it is called, and
`--url` may stand before a command."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.main import COMMANDS, load_command, run

ROOT = Path(__file__).resolve().parents[2]
NOBODY, NEITHER = "http://127.0.0.1:9", "http://127.0.0.1:10"
NAMES = [(name, text) for panel in COMMANDS.values() for name, (_, text) in panel.items()]


def imported(*arguments: str, cwd: Path = ROOT) -> set[str]:
    """The modules and packages that a command has imported when it ends."""
    code = (
        "import json, sys; from service.cli.main import run; run(sys.argv[1:]); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ZEDLOG_URL": NOBODY}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env=environment,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(("name", "text"), NAMES, ids=[name for name, _ in NAMES])
def test_the_help_of_all_says_of_a_command_what_its_own_says_first(
    name: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = load_command(name)
    assert command.name == name
    assert " ".join(inspect.cleandoc(command.help).split("\n\n")[0].split()) == text
    monkeypatch.setenv("COLUMNS", "200")
    assert run([name, "--help"]) == 0
    assert text in capsys.readouterr().out


def test_the_help_of_all_has_every_command_in_its_panel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for panel, commands in COMMANDS.items():
        box = shown[shown.index(f"─ {panel} ─") :].partition("╰")[0]
        for name, (_, text) in commands.items():
            assert [line for line in box.splitlines() if line.split()[1:2] == [name] and text in line], name


def test_help_and_status_import_only_what_they_need() -> None:
    heavy = {"numpy", "numba", "pyarrow", "pandas", "lark", "service.cli.serve", "service.cli.demo"}
    assert imported("--help") & (heavy | {"httpx", "service.cli.read"}) == set()
    found = imported("status")
    assert found & heavy == set()
    assert "service.cli.read" in found


def test_a_program_over_files_needs_neither_pandas_nor_http(tmp_path: Path) -> None:
    """pyarrow imports pandas, where it is installed as here, for many of its functions."""
    (tmp_path / "edge.facts").write_text("a\tb\n")
    (tmp_path / "size.facts").write_text("1\t0.5\n")
    (tmp_path / "p.dl").write_text(
        ".decl edge(x: symbol, y: symbol)\n.input edge\n.decl size(x: number, y: float)\n.input size\n"
        ".output both\nboth(x, n, f, true) :- edge(x, y), size(n, f).\n"
    )
    found = imported("run", "p.dl", cwd=tmp_path)
    assert (tmp_path / "both.csv").read_text() == "a\t1\t0.5\ttrue\n"
    assert "numba" in found
    assert found & {"pandas", "httpx", "pyspark", "redis"} == set()


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--url", NOBODY, "status"], NOBODY),
        (["status", "--url", NOBODY], NOBODY),
        (["--url", NEITHER, "status", "--url", NOBODY], NOBODY),
        (["--url", NOBODY, "facts", "add", "a(1)."], NOBODY),
        (["--url", NEITHER, "jobs", "list", "--url", NOBODY], NOBODY),
    ],
)
def test_a_url_holds_before_and_after_the_command(
    arguments: list[str], asked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", "http://127.0.0.1:11")
    assert run(arguments) == 1
    assert f"no Zedlog service answers at {asked} " in capsys.readouterr().err


def test_a_url_for_a_command_that_asks_no_service_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["--url", NOBODY, "plan", "x.dl"]) == 2
    assert (
        "'zedlog plan' does not use a running service, so it has no option --url" in capsys.readouterr().err
    )


def test_a_url_and_a_group_alone_show_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", NOBODY, "facts"]) == 2
    assert run(["--url", NOBODY, "facts", "--help"]) == 0
    assert capsys.readouterr().out.count("retract") >= 1


def test_a_command_that_is_not_there_gets_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["statsu"]) == 2
    assert "No such command 'statsu'. Did you mean 'status'?" in capsys.readouterr().err


def test_each_example_of_a_help_has_a_line_of_its_own() -> None:
    examples = 0
    for path in (ROOT / "service" / "cli").glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith("    - `"):
                examples += 1
                assert "` - `" not in line, f"{path.name}: {line}"
    assert examples > 50
