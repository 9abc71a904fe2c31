"""Imports go one way: the table in docs/architecture.md lists the parts, and each imports only from those above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "architecture.md"
Sources = Mapping[str, str]


def parts() -> list[str]:
    """The folders and files of the table, from the lowest to the highest."""
    rows = [line.split("|")[1] for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    return [part for row in rows for part in re.findall(r"`([^`]+)`", row)]


def sources() -> dict[str, str]:
    """The text of every module, by its path."""
    files = [file for top in ("engine", "service", "zedlog") for file in sorted((ROOT / top).glob("**/*.py"))]
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}


def imported(path: str, known: Sources) -> Iterator[tuple[int, str]]:
    """(line, path) of each module that a module imports: at its top, inside functions, and for type checkers only."""
    for node in ast.walk(ast.parse(known[path])):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its direction"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            target = module_of(name, known)
            if target is not None and target != path:
                yield node.lineno, target


def module_of(name: str, known: Sources) -> str | None:
    """The module that an imported name comes from: the name may be a module, or something in one."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        base = "/".join(words[:end])
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if path in known:
                return path
    return None


def wrong(known: Sources, order: list[str]) -> list[str]:
    """What contradicts the table: modules that no part owns, and imports of what stands further down."""
    found = []

    def place(path: str) -> int:
        owners = [part for part in order if path == part or (part.endswith("/") and path.startswith(part))]
        return order.index(max(owners, key=len)) if owners else -1

    for path in known:
        own = place(path)
        if own < 0:
            found.append(f"{path} is in no row of the table")
        for line, target in imported(path, known):
            if place(target) > own:
                found.append(f"{path}:{line} imports {target}, which stands further down")
    return found


def circles(known: Sources) -> list[str]:
    """The modules of a circle of imports; none where there is no circle."""
    try:
        TopologicalSorter({path: {target for _, target in imported(path, known)} for path in known}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_go_up_the_table_and_never_in_a_circle() -> None:
    assert wrong(sources(), parts()) == []
    assert circles(sources()) == []


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from engine.errors import ZedlogError", ""),
        ("import engine.server.loop", "engine/data/x.py:1 imports engine/server/loop.py"),
        ("def f():\n    from engine.server import loop", "engine/data/x.py:2 imports engine/server/loop.py"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import service.app",
            "imports service/app.py",
        ),
    ],
)
def test_an_import_of_what_stands_further_down_is_found(source: str, error: str) -> None:
    found = wrong({**sources(), "engine/data/x.py": source}, parts())
    assert [error in line for line in found] == ([True] if error else [])
    assert wrong({"elsewhere/x.py": ""}, parts()) == ["elsewhere/x.py is in no row of the table"]
    ring = {"engine/a.py": "if TYPE_CHECKING:\n    import engine.b", "engine/b.py": "from engine.a import c"}
    assert set(circles(ring)) == set(ring)
