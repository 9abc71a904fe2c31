"""Imports go in the direction that docs/architecture.md says; its table is read and enforced here.

A row's "may import" means these parts and, through them, what they may import. Imports for type checkers only
(`if TYPE_CHECKING`) are free: they cannot be followed at run time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "architecture.md"


def table_rows() -> list[tuple[list[str], str]]:
    """(parts, text of 'may import') of each row of the table of owners."""
    rows = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            rows.append((re.findall(r"`([^`]+)`", cells[0]), cells[2]))
    return rows


def short_name(part: str) -> str:
    """`engine/language/` is called `language` in the table, `service/` is `service`."""
    name = part.removesuffix("/").removesuffix(".py")
    return name.removeprefix("engine/")


def allowed_imports() -> dict[str, set[str]]:
    """For each part the parts that it may import, itself among them."""
    rows = table_rows()
    direct: dict[str, set[str]] = {}
    above: list[str] = []
    for parts, text in rows:
        names: set[str] = set(parts)
        if "all of the above" in text:
            names |= set(above)
        else:
            for word in re.findall(r"[a-z_]+", text.replace("all of", "")):
                if word == "engine":
                    names |= {p for row, _ in rows for p in row if p.startswith("engine/")}
                elif word != "nothing":
                    found = [p for row, _ in rows for p in row if short_name(p) == word]
                    assert found, f"the table lets {parts} import {word!r}, which is no part of it"
                    names |= set(found)
        for part in parts:
            direct[part] = names
        above += parts
    return {part: closure(part, direct) for part in direct}


def closure(part: str, direct: dict[str, set[str]]) -> set[str]:
    found, todo = {part}, [part]
    while todo:
        new = direct[todo.pop()] - found
        found |= new
        todo += new
    return found


def part_of(path: str, parts: list[str]) -> str | None:
    """The most specific part that a file belongs to."""
    owners = [p for p in parts if path == p or (p.endswith("/") and path.startswith(p))]
    return max(owners, key=len, default=None)


def modules() -> list[str]:
    files = sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("service/**/*.py")])
    return [str(f.relative_to(ROOT)) for f in files]


def imported(tree: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import, also inside functions, but not those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from imported(other, path)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its direction"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        else:
            yield from imported(node, path)


def file_of(dotted: str) -> str | None:
    """The file that an imported name comes from: the name may be a module, or something in one."""
    words = dotted.split(".")
    if words[0] not in ("engine", "service"):
        return None
    for end in range(len(words), 0, -1):
        base = "/".join(words[:end])
        if (ROOT / f"{base}.py").is_file():
            return f"{base}.py"
        if (ROOT / base / "__init__.py").is_file():
            return f"{base}/__init__.py"
    return None


def forbidden(path: str, source: str, allowed: dict[str, set[str]]) -> list[str]:
    """What a file imports against the table."""
    parts = list(allowed)
    own = part_of(path, parts)
    wrong = []
    for line, dotted in imported(ast.parse(source), path):
        target = file_of(dotted)
        if target is None or own is None:
            continue
        other = part_of(target, parts)
        # `from engine import Reasoner` reaches everything through the package's front door.
        if (other is None and own.startswith("engine/")) or (other is not None and other not in allowed[own]):
            wrong.append(f"{path}:{line} imports {dotted}, which {own} may not")
    return wrong


def test_table_is_read() -> None:
    allowed = allowed_imports()
    assert allowed["engine/errors.py"] == {"engine/errors.py"}
    assert "engine/errors.py" in allowed["engine/circuit/"]
    assert "engine/resident/" not in allowed["engine/storage/"]
    assert "service/cli/" in allowed
    assert "service/cli/" not in allowed["service/"]


def test_table_has_no_cycle() -> None:
    allowed = allowed_imports()
    rows = {part: set(parts) for parts, _ in table_rows() for part in parts}
    cycles = [(a, b) for a in allowed for b in allowed[a] - rows[a] if a in allowed[b]]
    assert cycles == []


@pytest.mark.parametrize("path", modules())
def test_every_module_has_an_owner(path: str) -> None:
    if path in ("engine/__init__.py",):
        return
    assert part_of(path, list(allowed_imports())), f"{path} is in no row of docs/architecture.md"


@pytest.mark.parametrize("path", modules())
def test_imports_follow_the_table(path: str) -> None:
    assert forbidden(path, (ROOT / path).read_text(), allowed_imports()) == []


def test_engine_never_imports_service() -> None:
    found = [
        f"{path}:{line}"
        for path in modules()
        if path.startswith("engine/")
        for line, dotted in imported(ast.parse((ROOT / path).read_text()), path)
        if dotted.split(".")[0] == "service"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("engine/language/x.py", "from engine.errors import ZedlogError", 0),
        ("engine/language/x.py", "from engine.transaction import Transaction", 1),
        ("engine/errors.py", "def f():\n    import engine.transaction", 1),
        ("engine/storage/x.py", "from engine import Reasoner", 1),
        (
            "engine/storage/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import service.cli",
            0,
        ),
        ("service/x.py", "from service.cli import client", 1),
        ("service/cli/x.py", "from engine.errors import ZedlogError\nfrom service import problems", 0),
    ],
)
def test_rule_itself(path: str, source: str, found: int) -> None:
    assert len(forbidden(path, source, allowed_imports())) == found
