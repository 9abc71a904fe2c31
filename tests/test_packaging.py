"""What a fresh machine gets: the lock, entry point, scripts and container files, and that they hold
together."""

from __future__ import annotations

import importlib
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.full import full

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
SCRIPTS = sorted(p for p in (ROOT / "scripts").iterdir() if p.is_file())
DEV = PROJECT["optional-dependencies"]["dev"]
OURS = ("engine", "service", "zedlog")
LOCKED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["connect"], *DEV]


def pins() -> dict[str, tuple[str, list[str], set[str]]]:
    """Of each package in the lock: its version, its hashes, and the packages that ask for it."""
    found: dict[str, tuple[str, list[str], set[str]]] = {}
    entry: tuple[str, list[str], set[str]] | None = None
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        start = re.match(r"([A-Za-z0-9._-]+)==([^ ;\\]+)", line)
        if start:
            entry = found[canonicalize_name(start[1])] = (start[2], [], set())
        elif entry is not None and "--hash=" in line:
            entry[1].append(line.strip().removesuffix("\\").strip())
        elif entry is not None and line.strip().startswith("#"):
            name = line.strip().lstrip("# ").removeprefix("via").strip()
            if name:
                entry[2].add(canonicalize_name(name.partition(" ")[0].partition("[")[0]))
    return found


@pytest.mark.parametrize("text", LOCKED)
def test_lock_meets_what_the_project_asks_for(text: str) -> None:
    requirement = Requirement(text)
    locked = pins()
    name = canonicalize_name(requirement.name)
    assert name in locked, f"requirements.lock does not pin {name}; run scripts/lock"
    assert requirement.specifier.contains(locked[name][0]), f"{name} {locked[name][0]} does not meet {text}"


def test_lock_holds_nothing_that_nobody_asks_for() -> None:
    locked = pins()
    asked = {canonicalize_name(Requirement(text).name) for text in LOCKED}
    while True:
        reached = asked | {name for name, (_, _, via) in locked.items() if via & asked}
        if reached == asked:
            break
        asked = reached
    assert set(locked) - asked == set()


def test_lock_has_a_hash_for_every_package() -> None:
    assert [name for name, (_, hashes, _) in pins().items() if not hashes] == []


def test_lock_pins_everything_that_our_code_imports() -> None:
    """A package that only comes along with another one is not ours to import."""
    distribution = {
        "prometheus_client": "prometheus-client",
        "pydantic_settings": "pydantic-settings",
        # FastAPI is a layer over Starlette and AnyIO and hands their types on.
        "starlette": "fastapi",
        "anyio": "fastapi",
        # An intrinsic of numba is written in llvmlite's terms.
        "llvmlite": "numba",
        "jwt": "pyjwt",
        # Spark's Python side speaks to its JVM through Py4J, and raises its errors.
        "py4j": "pyspark",
    }
    asked = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    pattern = re.compile(r"^\s*(?:from|import) ([A-Za-z0-9_]+)", re.MULTILINE)
    files = [file for top in OURS for file in ROOT.glob(f"{top}/**/*.py")]
    used = {name for f in files for name in pattern.findall(code_of(f))}
    foreign = used - sys.stdlib_module_names - set(OURS)
    missing = {name for name in foreign if canonicalize_name(distribution.get(name, name)) not in asked}
    assert missing == set()


def code_of(path: Path) -> str:
    """The source without docstrings and other multi-line strings, whose prose may begin with `from`."""
    return re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)


def test_entry_point_is_there() -> None:
    module, _, function = PROJECT["scripts"]["zedlog"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_every_package_is_packed_checked_and_in_the_image() -> None:
    tool = SETTINGS["tool"]
    assert sorted(tool["setuptools"]["packages"]["find"]["include"]) == [f"{name}*" for name in OURS]
    assert sorted(tool["mypy"]["packages"]) == sorted(OURS)
    copied = re.findall(r"^COPY (\w+) \w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(OURS)


def test_package_data_is_there() -> None:
    data = SETTINGS["tool"]["setuptools"]["package-data"]
    for package, patterns in data.items():
        for pattern in patterns:
            assert list((ROOT / package.replace(".", "/")).glob(pattern)), f"{package} has no {pattern}"


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / ".ci" / "run"], ids=lambda p: p.name)
def test_scripts_run_and_stop_at_the_first_error(script: Path) -> None:
    assert script.stat().st_mode & stat.S_IXUSR
    text = script.read_text()
    if "python" in text.splitlines()[0]:
        compile(text, str(script), "exec")
        return
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    shown = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+)", shown, re.MULTILINE)) == phony


def test_make_calls_scripts_that_exist() -> None:
    for name in re.findall(r"scripts/([a-z-]+)", (ROOT / "Makefile").read_text()):
        assert (ROOT / "scripts" / name).is_file(), name


def test_readme_and_ci_use_the_same_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_image_takes_out_what_only_development_needs() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    removed = re.search(r"pip uninstall --yes ([^\n]+)", dockerfile)
    assert removed is not None
    assert set(removed[1].split()) == {canonicalize_name(Requirement(text).name) for text in DEV}


@full
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_containers_would_run() -> None:
    """The compose file's own commands and health checks, as processes of this machine."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "compose-check")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evaluated a program on the Spark workers" in done.stdout or "no Java here" in done.stdout
    assert "wrote two facts and two rules, read what follows from them" in done.stdout


def run_install(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "install")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fake(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_install_says_which_python_it_needs(tmp_path: Path) -> None:
    """A machine whose only Python is too old."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname", "find", "sort", "cat"):
        (tools / tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())
    fake(tools, "python3", '[ "$1" = --version ] && echo "Python 3.8.1" && exit 0\nexit 1')
    done = run_install({"PATH": str(tools), "ZEDLOG_VENV": str(tmp_path / "venv")})
    assert done.returncode == 1
    assert "Zedlog needs Python 3.11 or later; found: Python 3.8.1" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_install_refuses_a_named_python_that_is_too_old(tmp_path: Path) -> None:
    old = fake(tmp_path, "python3.9", "exit 1")
    done = run_install({**os.environ, "PYTHON": str(old), "ZEDLOG_VENV": str(tmp_path / "venv")})
    assert done.returncode == 1
    assert f"PYTHON={old} is not a Python of version 3.11 or later" in done.stderr


def test_install_says_how_to_get_venv(tmp_path: Path) -> None:
    """Debian ships a Python whose venv lacks ensurepip."""
    bare = fake(tmp_path, "python3", f'case "$*" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"')
    done = run_install({**os.environ, "PYTHON": str(bare), "ZEDLOG_VENV": str(tmp_path / "venv")})
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr
