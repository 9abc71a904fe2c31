"""What any text must give: a program, or a typed error. The target of the fuzzer, and of a test over kept cases.

`check_text` takes any text through everything that looks at text before data flows: the five parsers, the checks of
rules, canonical text, schemas, and the circuit. It raises only where a promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.data.transaction import RuleChange
from engine.database.program import Program
from engine.errors import ProgramError, ZedlogError
from engine.language.canonical import canonical_text, format_declaration
from engine.language.parser import (
    parse_declarations,
    parse_goal,
    parse_program,
    parse_query,
    parse_rules,
)
from engine.language.syntax import ProgramText as Tree

CASES = Path(__file__).parent / "cases"
SEEDS = (CASES.parent.parent / "programs", CASES.parent.parent.parent / "programs")
_MOST_RULES = 60


def text_of(data: bytes) -> str:
    """Bytes as text; what is no UTF-8 becomes lone surrogates, which a text in Python may hold."""
    return data.decode("utf-8", errors="surrogateescape")


def check_text(text: str) -> None:
    for parse in (parse_declarations, parse_rules, parse_goal, parse_query):
        _refused(parse, text)
    tree = _refused(parse_program, text)
    if isinstance(tree, Tree):
        _check_program(tree)


def seeds() -> list[Path]:
    """Programs to start from, and every case that was worth keeping."""
    return [path for folder in SEEDS for path in sorted(folder.rglob("*.dl"))] + sorted(CASES.glob("*"))


def _refused(parse: Callable[[str], object], text: str) -> object:
    """What the parser makes of the text; None where it refuses it as it should."""
    try:
        return parse(text)
    except ProgramError as error:
        refusal = error
    assert str(refusal), "an error says something"
    assert refusal.span is not None, "an error about text has a place"
    lines = text.split("\n")
    assert 1 <= refusal.span.line <= len(lines)
    assert 1 <= refusal.span.column <= len(lines[refusal.span.line - 1]) + 2
    return None


def _check_program(tree: Tree) -> None:
    kept = [d for d in tree.declarations if not set(d.qualifiers) & {"input", "output", "printsize"}]
    again = parse_declarations("\n".join(map(format_declaration, kept)))
    assert again == tuple(kept), "the text of a declaration says the same"
    texts = [canonical_text(rule) for rule in tree.rules[:_MOST_RULES]]
    for text in texts:
        (parsed,) = parse_rules(text)
        assert canonical_text(parsed) == text, "canonical text is its own canonical text"
    declarations = "\n".join(map(format_declaration, kept))
    # The way of a transaction: sizes, safety, types, strata, folds, plans.
    with suppress(ZedlogError):
        Program().changed([RuleChange(text, 1) for text in texts], declarations, "zset", {}).compiled(())
