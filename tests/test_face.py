"""The library's face `zedlog`: it hands on what it names, and costs nothing before it is asked."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import zedlog
import zedlog.errors
from engine import errors

ROOT = Path(__file__).parent.parent


def handed_on() -> dict[str, str]:
    """The module from which each name comes for a type checker."""
    tree = ast.parse((ROOT / "zedlog" / "__init__.py").read_text())
    return {
        alias.name: f"{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("engine.", "zedlog.client."))
        for alias in node.names
    }


def test_every_name_is_there_and_is_what_a_type_checker_takes_it_for() -> None:
    modules = handed_on()
    assert {*modules, "errors", "__version__"} == set(zedlog.__all__) == set(dir(zedlog))
    for name, module in modules.items():
        assert getattr(zedlog, name) is getattr(sys.modules[module], name), name
    assert zedlog.__version__ == version("zedlog")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'zedlog' has no attribute 'Reasonner'"):
        zedlog.Reasonner  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Reasonner' from 'zedlog'"):
        from zedlog import Reasonner  # noqa: F401


def test_all_errors_are_handed_on() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert set(zedlog.errors.__all__) == ours
    for name in ours:
        assert getattr(zedlog.errors, name) is getattr(errors, name)


def test_the_import_alone_loads_nothing_of_the_engine() -> None:
    code = "import sys, zedlog; print([n for n in sys.modules if n.partition('.')[0] in ('engine', 'numpy', 'numba')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_package_is_the_command_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zedlog", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"zedlog {version('zedlog')}\n"
