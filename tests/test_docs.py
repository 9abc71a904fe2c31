"""What the documents show is true: the README's outputs, its library example, the table of error codes, links."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.describe import summary
from service.problems import STATUS, error_classes
from tests.live import LiveSystem

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# Fields whose values differ from run to run.
VARYING = {"transaction", "token", "engine", "total"}


def blocks(path: Path, kind: str) -> Iterator[str]:
    yield from re.findall(rf"^```{kind}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """(command, output) of each `$` line of the README, in order."""
    found = []
    for block in blocks(ROOT / "README.md", "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def masked(value: Any) -> Any:
    """JSON without what differs from run to run; tuples have no order of their own."""
    if isinstance(value, dict):
        return {k: "..." if k in VARYING else masked(v) for k, v in value.items()}
    return sorted(map(masked, value), key=str) if isinstance(value, list) else value


def normal(output: str) -> Any:
    try:
        return masked(json.loads(output))
    except json.JSONDecodeError:
        return re.sub(r"in [\d.,]+ m?s$", "in ... ms", output, flags=re.MULTILINE).splitlines()


def test_the_tour_gives_what_it_shows(live: LiveSystem, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the tour is told with curl, which is not installed")
    zedlog = tmp_path / "zedlog"
    zedlog.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m service.cli.main "$@"\n')
    zedlog.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ZEDLOG_URL": live.url,
        "COLUMNS": "200",
    }
    tour = commands()
    assert len(tour) >= 8
    for command, expected in tour:
        here = command.replace("http://127.0.0.1:8321", live.url)
        done = subprocess.run(
            here,
            shell=True,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert normal(done.stdout) == normal(expected), f"{command}\n{done.stdout}"


def test_the_library_example_gives_what_it_shows() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    test = doctest.DocTestParser().get_doctest(example, {}, "README", "README.md", 0)
    assert len(test.examples) >= 8
    runner = doctest.DocTestRunner(verbose=False)
    lines: list[str] = []
    runner.run(test, out=lines.append)
    assert runner.failures == 0, "".join(lines)


def test_http_lists_every_error_code() -> None:
    expected = [
        f"| {STATUS[error]} | `{error.code}` | {summary(error)} |"
        for error in sorted(error_classes(), key=lambda error: (STATUS[error], error.code))
    ]
    shown = [
        line
        for line in (ROOT / "docs" / "http.md").read_text().splitlines()
        if re.match(r"\| \d{3} \| `", line)
    ]
    assert shown == expected, "docs/http.md should end with:\n" + "\n".join(expected)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_files_that_are_named_exist(path: Path) -> None:
    """`engine/...`, `docs/...` and so on in code font; a name with capitals or `<` stands for many."""
    for name in re.findall(
        r"`((?:engine|service|zedlog|tests|docs|scripts|openapi)/[a-z_./]*)`", path.read_text()
    ):
        assert (ROOT / name).exists(), name
