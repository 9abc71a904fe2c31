"""Kernels are loaded when they are first called; what has to be compiled is told; nothing old is used."""

from __future__ import annotations

import ast
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest

import engine.resident.placement
from engine.resident import kernels, warm
from engine.resident.kernels import Compiling, telling

ROOT = Path(__file__).parent.parent.parent
# Named as one of the files of kernels, since compiled code of other names is left alone.
SOURCE = """
from numba import types
from engine.resident.kernels import kernel

@kernel(types.int64(types.int64))
def double(x):
    return 2 * x

@kernel(types.int64(types.int64))
def square(x):
    return x * x
"""

Process = Callable[[], tuple[ModuleType, list[Compiling]]]


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Each call stands for a new process, in which two kernels of a file are declared: their module, and a list for
    what is told."""
    path = tmp_path / "code" / "join.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))

    def start() -> tuple[ModuleType, list[Compiling]]:
        monkeypatch.setattr(kernels, "_kernels", [])
        kernels._folder.cache_clear()
        kernels._log_once.cache_clear()
        spec = importlib.util.spec_from_file_location("join", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "join", module)
        spec.loader.exec_module(module)
        return module, []

    yield start
    kernels._folder.cache_clear()


def loaded(module: ModuleType) -> set[str]:
    return {name for name in ("double", "square") if hasattr(getattr(module, name), "signatures")}


def test_what_is_missing_is_compiled_at_once_and_told(process: Process) -> None:
    module, told = process()
    with telling(told.append):
        assert module.double(4) == 8
    assert told == [Compiling(done, 2, kept=True) for done in (0, 1, 2)]
    assert str(told[1]) == "compiling kernels (once after an install), 1 of 2"
    assert loaded(module) == {"double", "square"}
    assert module.square(5) == 25


def test_later_processes_load_only_what_they_call(process: Process) -> None:
    process()[0].double(4)
    module, told = process()
    with telling(told.append):
        assert loaded(module) == set()
        early = module.square
        assert early(5) == 25
        # Who has taken the function out of the module before it was loaded has the same kernel.
        assert early(6) == module.square(6) == 36
        assert loaded(module) == {"square"}
        assert not kernels.load_all()
        assert loaded(module) == {"double", "square"}
    assert told == []


def test_a_compilation_that_was_interrupted_is_told_when_it_goes_on(process: Process) -> None:
    process()[0].double(4)
    folder = kernels._folder()
    assert folder is not None
    for path in folder.glob("join.square-*"):
        path.unlink()
    _, told = process()
    with telling(told.append):
        assert kernels.load_ends()
    assert [now.done for now in told] == [1, 2]
    _, told = process()
    with telling(told.append):
        assert not kernels.load_ends()
    assert told == []


def test_a_kernel_takes_what_its_signature_says(process: Process) -> None:
    module, _ = process()
    module.double(1)
    with pytest.raises(TypeError, match="No matching definition"):
        module.double("a")


def test_kernels_of_other_sources_are_not_used(process: Process) -> None:
    process()[0].double(4)
    folder = kernels._folder()
    assert folder is not None
    assert {path.name.partition("-")[0] for path in folder.glob("*.nbi")} == {"join.double", "join.square"}
    (folder / kernels.STAMP).write_text("the digest of others")
    (folder / "others.double-1.py311.nbi").touch()
    module, told = process()
    with telling(told.append):
        module.double(4)
    assert [now.done for now in told] == [0, 1, 2]
    assert (folder / "others.double-1.py311.nbi").exists()


def test_without_a_folder_each_process_says_so_and_compiles_what_it_uses(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a file"
    file.touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(file / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    (tmp_path / "code" / "__pycache__").touch()
    for _ in range(2):
        module, told = process()
        with telling(told.append):
            assert module.double(4) == 8
        assert told == [Compiling(0, 2, kept=False), Compiling(1, 2, kept=False)]
        assert "at every start" in told[0].reason
        assert "NUMBA_CACHE_DIR" in told[0].reason
        assert loaded(module) == {"double"}


def test_a_full_folder_is_as_good_as_none(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    module, _ = process()
    assert (module.double(4), module.square(4)) == (8, 16)


def test_the_library_says_it_on_its_logger(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    module, _ = process()
    with caplog.at_level(logging.INFO, "zedlog"):
        module.double(4)
    assert [(r.name, r.message) for r in caplog.records] == [
        ("zedlog.kernels", "compiling kernels (once after an install)")
    ]


def test_the_placement_knows_all_kernels() -> None:
    """So that all are compiled when one is missing."""
    declared = set()
    for module in warm.MODULES:
        for node in ast.parse(Path(str(module.__file__)).read_text()).body:
            if isinstance(node, ast.FunctionDef) and "kernel(" in ast.unparse(node.decorator_list[0]):
                declared.add((module.__name__, node.name))
    assert len(declared) > 20
    assert engine.resident.placement
    code = (
        "import engine.resident.placement; from engine.resident import kernels; "
        "print(*sorted((k._function.__module__, k._function.__name__) for k in kernels._kernels), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [str(name) for name in sorted(declared)]


def test_the_digest_covers_every_file_of_kernels() -> None:
    files = {
        path.stem
        for path in (ROOT / "engine" / "resident").glob("*.py")
        # The tape's layout is compiled into what reads it.
        if ("numba" in path.read_text() and path.stem not in ("kernels", "warm")) or path.stem == "tape"
    }
    assert files == set(kernels._SOURCES)


def test_it_all_works_without_a_compiler() -> None:
    code = (
        "from zedlog import Reasoner; r = Reasoner(); "
        "r.apply(facts={'e': [((1, 2), 1), ((2, 3), 1)]}, rules=[('t(x, z) :- e(x, y), e(y, z).', 1)]); "
        "print(r.facts('t'))"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert done.stdout == "[(1, 3)]\n"


def test_an_error_line_says_what_is_compiled(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    module, _ = process()
    with warm.shown():
        module.double(4)
    assert capsys.readouterr().err == "compiling kernels (once after an install) ...\n"
    module, _ = process()
    with warm.shown():
        module.double(4)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar(
    process: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    monkeypatch.setenv("COLUMNS", "100")
    module, _ = process()
    with warm.shown():
        module.double(4)
    assert "compiling kernels (once after an install)" in (shown := capsys.readouterr().err)
    assert "2 of 2" in shown
