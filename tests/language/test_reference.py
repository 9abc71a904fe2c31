"""docs/language.md: every example does what it says, and no construct of the grammar is left out."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from engine.errors import ZedlogError
from engine.expressions import with_constant_facts
from engine.language.canonical import canonical_text, format_declaration
from engine.language.parser import parse_program, parse_query
from engine.language.syntax import Atom
from tests.editors.test_grammar import words_of
from tests.oracle.from_text import row_of
from zedlog import Reasoner

TEXT = (Path(__file__).resolve().parent.parent.parent / "docs" / "language.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```zedlog\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
QUERIES = re.findall(r"^```zedlog-query\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
REFUSED = [text for text in EXAMPLES if "//!" in text]
LARK = Lark(
    resources.files("engine.language").joinpath("grammar.lark").read_text(encoding="utf-8"),
    parser="lalr",
    lexer="contextual",
    start=["program", "query", "headed_query"],
    keep_all_tokens=True,
)
# Directives for files are carried out by `zedlog run`, not by the reasoner.
FILES = ("input", "output", "printsize")


def evaluated(text: str) -> Reasoner:
    program = with_constant_facts(parse_program(text))
    facts: dict[str, list[tuple[Any, int]]] = {}
    for fact in program.facts:
        facts.setdefault(fact.relation, []).append((row_of(fact), 1))
    reasoner = Reasoner(threads=1)
    reasoner.apply(
        facts=facts,
        rules=[(canonical_text(rule), 1) for rule in program.rules],
        declarations="\n".join(
            format_declaration(replace(one, qualifiers=tuple(q for q in one.qualifiers if q not in FILES)))
            for one in program.declarations
        ),
    )
    return reasoner


def held(facts: tuple[Atom, ...]) -> dict[str, set[tuple[Any, ...]]]:
    found: dict[str, set[tuple[Any, ...]]] = {}
    for fact in facts:
        found.setdefault(fact.relation, set()).add(row_of(fact))
    return found


@pytest.mark.parametrize("text", [text for text in EXAMPLES if text not in REFUSED])
def test_an_example_derives_what_it_says(text: str) -> None:
    reasoner = evaluated(text)
    said = "\n".join(re.findall(r"^//=(.*)$", text, re.MULTILINE))
    expected = held(with_constant_facts(parse_program(said)).facts)
    assert expected or ".decl" in text, "the example does not say what it derives"
    assert {relation: set(reasoner.facts(relation)) for relation in expected} == expected


@pytest.mark.parametrize("text", REFUSED)
def test_an_example_that_is_wrong_is_refused(text: str) -> None:
    (code,) = re.findall(r"^//! (\w+)$", text, re.MULTILINE)
    with pytest.raises(ZedlogError) as refused:
        evaluated(text)
    assert refused.value.code == code


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_is_one(text: str) -> None:
    assert parse_query(text).bodies


def tokens_of(text: str, start: str) -> Iterator[Token]:
    """As far as the text fits the grammar: at what Souffle alone has, the parser gives up."""
    with contextlib.suppress(UnexpectedInput):
        yield from LARK.parse_interactive(text, start=start).iter_parse()


def test_every_construct_of_the_grammar_has_an_example() -> None:
    """Every rule, every terminal and every word of grammar.lark occurs in an example; a new one is missed here."""
    texts = [(text, "program") for text in EXAMPLES]
    texts += [(text, "headed_query" if ":-" in text else "query") for text in QUERIES]
    rules: set[str] = set()
    seen: dict[str, set[str]] = {}
    for text, start in texts:
        if text not in REFUSED:
            rules |= {str(node.data) for node in LARK.parse(text, start=start).iter_subtrees()}
        for token in tokens_of(text, start):
            seen.setdefault(token.type, set()).add(token.removeprefix("."))
    # A goal is a query of one atom; `expression` is always replaced by what it is; the last one is refused.
    wanted = {str(rule.origin.name) for rule in LARK.rules} - {"goal", "expression", "subsumption"}
    assert {rule for rule in wanted if not rule.startswith("_")} <= rules
    assert "<=" in "".join(REFUSED)
    for terminal in LARK.terminals:
        if terminal.name not in ("COMMENT", "SPACE"):
            assert terminal.name in seen, f"{terminal.name} has no example"
            assert words_of(terminal.pattern.value) <= seen[terminal.name], terminal.name
