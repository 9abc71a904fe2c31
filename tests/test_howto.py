"""The commands that the documents name exist, with the options that they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from service.cli.main import COMMANDS, load_command

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
NAMES = {name for panel in COMMANDS.values() for name in panel}
_LOADED: dict[str, Any] = {}


def commands_in(text: str) -> list[str]:
    """What follows `zedlog ` in code: in blocks up to the end of the line, else up to the end of the code font."""
    text = text.replace("\\\n", " ")
    found = []
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found += re.findall(r"(?:^|[$|&] )zedlog ([a-z][^\n|&]*)", block, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found += re.findall(r"`zedlog ([a-z][^`]*)`", prose)
    return found


def words_of(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def complaint(command: str) -> str | None:
    name, *rest = words_of(command)
    if name not in NAMES:
        return f"there is no command {name}"
    chosen = _LOADED.setdefault(name, load_command(name))
    if hasattr(chosen, "commands") and rest and rest[0] in chosen.commands:
        chosen = chosen.commands[rest.pop(0)]
    if hasattr(chosen, "commands"):
        # A group by itself, or several of its commands as in `facts add|retract`.
        return (
            None if not rest or set(re.split(r"\\?\|", rest[0])) <= set(chosen.commands) else f"no {rest[0]}"
        )
    known = {option for parameter in chosen.params for option in parameter.opts} | {"--help", "--token"}
    for word in rest:
        if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known:
            return f"zedlog {name} has no option {word}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    wrong = {command: complaint(command) for command in commands_in(page.read_text(encoding="utf-8"))}
    assert not {command: said for command, said in wrong.items() if said}


def test_wrong_ones_are_noticed() -> None:
    text = "```sh\nzedlog query 'p(x)' --no-such\n```\n`zedlog no-such`, `zedlog facts delete`, `zedlog backup a.zip`\n"
    assert [bool(complaint(command)) for command in commands_in(text)] == [True, True, True, False]
