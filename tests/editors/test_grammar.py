"""The grammar for editors gives every word and every token the meaning that the parser gives it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token, Tree

from engine.language.schema import ColumnType
from tests.editors.textmate import Grammar

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE: dict[str, Any] = json.loads((ROOT / "editors" / "zedlog.tmLanguage.json").read_text())
GRAMMAR = Grammar(SOURCE)
LARK = Lark(
    resources.files("engine.language").joinpath("grammar.lark").read_text(encoding="utf-8"),
    parser="lalr",
    lexer="contextual",
    start=["program", "query"],
    keep_all_tokens=True,
)

# The scope of a terminal's words. A terminal of the grammar with words that is not here fails a test.
WORDS = {
    "keyword.control.directive": ("DECL", "TYPE", "INPUT", "OUTPUT", "PRINTSIZE", "PREFIX", "RDF"),
    "storage.modifier": ("QUALIFIER", "FIXPOINT"),
    "support.function.aggregate": ("COUNT", "SUM", "MEAN", "MIN", "MAX"),
    "support.function": ("FUNCTOR", "TEXT_CONDITION"),
    "constant.language": ("BOOL",),
    "keyword.operator.word": ("OPERATOR", "BNOT", "LNOT"),
}
OTHERS = {
    "STRING": "string.quoted.double",
    "PREFIX_NAME": "entity.name.namespace",
    "IRI": "string.other.link",
    "TEMPLATE": "string.other.link",
    "LANGUAGE": "entity.name.tag",
    "DATATYPE": "keyword.operator",
    "A": "keyword.operator.type",
    "PREFIXED": "constant.other.symbol",
    "NUMBER": "constant.numeric",
    "FLOAT": "constant.numeric",
    "WILDCARD": "variable.language",
    "OPERATOR": "keyword.operator",
    "MINUS": "keyword.operator",
    "COMPARE": "keyword.operator",
    "LE": "keyword.operator",
    "EQUALS": "keyword.operator",
    "BANG": "keyword.operator",
    "VBAR": "keyword.operator",
    "_IF": "keyword.operator",
    "_SUBTYPE": "keyword.operator",
    "_QUERY": "keyword.operator",
}
PUNCTUATION = {"DOT", "LPAR", "RPAR", "RBRACE", "LBRACE", "COMMA", "COLON", "SEMICOLON"}
# What a name is, by the rule of the grammar that it stands in.
NAMES = {
    "atom": "entity.name.function",
    "head_atom": "entity.name.function",
    "mapped": "entity.name.function",
    "names": "entity.name.function",
    "variable": "variable.other",
    "setting": "entity.other.attribute-name",
    "type_alias": "entity.name.type",
}


def words_of(pattern: str) -> set[str]:
    """The words that a regular expression spells out."""
    plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", " ", pattern)
    return set(re.findall(r"[A-Za-z_][A-Za-z_-]+", plain))


def words_of_terminals() -> dict[str, set[str]]:
    found = {terminal.name: words_of(terminal.pattern.value) for terminal in LARK.terminals}
    return {name: words for name, words in found.items() if words}


def named_rules(rule: Any) -> Iterator[tuple[str, str]]:
    """(scope, regular expression) of every rule of the editors' grammar that names one."""
    if isinstance(rule, list):
        for each in rule:
            yield from named_rules(each)
    elif isinstance(rule, dict):
        if "match" in rule:
            yield rule["name"].removesuffix(".zedlog"), rule["match"]
        for capture in rule.get("beginCaptures", {}).values():
            yield capture["name"].removesuffix(".zedlog"), rule["begin"]
        for value in rule.values():
            yield from named_rules(value)


def test_the_words_are_those_of_the_parser_and_no_others() -> None:
    known = {terminal for terminals in WORDS.values() for terminal in terminals}
    of_terminals = words_of_terminals()
    assert set(of_terminals) == known, "a terminal has words, and no scope in WORDS (or the other way round)"
    expected = {
        scope: set().union(*(of_terminals[terminal] for terminal in terminals))
        for scope, terminals in WORDS.items()
    }
    expected["storage.type"] = {kind.value for kind in ColumnType}
    found: dict[str, set[str]] = {}
    for scope, pattern in named_rules(SOURCE["repository"]):
        if words := words_of(pattern):
            found.setdefault(scope, set()).update(words)
    assert found == expected


def test_every_terminal_of_the_parser_is_known_here() -> None:
    words = {terminal for terminals in WORDS.values() for terminal in terminals}
    names = {"IDENT", "QUALIFIED", "QUESTION_IDENT"}
    # Comments are what no token covers; the parser refuses the last three.
    others = {"COMMENT", "SPACE", "FOREIGN_DIRECTIVE", "FOREIGN_TERM", "FOREIGN_BLOCK"}
    assert {t.name for t in LARK.terminals} == words | set(OTHERS) | PUNCTUATION | names | others


def expected_scope(token: Token, rule: str, position: int) -> str | None:
    """The scope of a token from its terminal and the rule that it stands in; position: the how many-th of its names."""
    if token.type in ("IDENT", "QUALIFIED", "QUESTION_IDENT"):
        if rule in ("column", "type_name"):
            if rule == "column" and position == 0:
                return "variable.parameter"
            return "storage.type" if token in {kind.value for kind in ColumnType} else "entity.name.type"
        if rule == "parameter":
            return "string.unquoted" if position else "entity.other.attribute-name"
        return NAMES[rule]
    for scope, terminals in WORDS.items():
        if token.type in terminals and (token.type != "OPERATOR" or token[0].isalpha()):
            return scope
    return None if token.type in PUNCTUATION else OTHERS[token.type]


def tokens_of(tree: Tree[Token]) -> Iterator[tuple[Token, str | None]]:
    for node in tree.iter_subtrees():
        names = 0
        for child in node.children:
            if isinstance(child, Token):
                yield child, expected_scope(child, str(node.data), names)
                names += child.type in ("IDENT", "QUALIFIED")


def examples() -> list[Any]:
    """Every program of the repository, and those that the reference of the language shows."""
    files = [
        *ROOT.glob("programs/*.dl"),
        *ROOT.glob("examples/*/*.dl"),
        *ROOT.glob("tests/programs/*/program.dl"),
    ]
    found = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in sorted(files)]
    reference = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```zedlog\n(.*?)^```$", reference, re.MULTILINE | re.DOTALL)
    # Those that are refused need not fit the grammar.
    shown = [block for block in blocks if "//!" not in block]
    found += [(f"language.md, example {number}", block) for number, block in enumerate(shown, 1)]
    return [pytest.param(text, id=name) for name, text in found]


@pytest.mark.parametrize("text", examples())
def test_every_token_has_the_scope_that_the_parser_gives_it(text: str) -> None:
    scopes = GRAMMAR.scopes(text)
    free = [True] * len(text)
    wrong = []
    for token, scope in tokens_of(LARK.parse(text, start="program")):
        assert token.start_pos is not None
        assert token.end_pos is not None
        free[token.start_pos : token.end_pos] = [False] * len(token)
        given = {(s or "").removesuffix(".zedlog") or None for s in scopes[token.start_pos : token.end_pos]}
        if given != {scope}:
            wrong.append(f"line {token.line}: {token!s} is {scope}, but the editor shows {given}")
    for position, character in enumerate(text):
        # What no token has is a comment, or space; punctuation that stays plain is not space.
        if free[position] and not character.isspace() and character != "\ufeff":
            assert (scopes[position] or "").startswith("comment."), text[position : position + 40]
    assert not wrong, "\n".join(wrong)


def test_a_scope_that_is_wrong_is_seen() -> None:
    """The reader of grammars tells scopes apart: of strings, comments and names with words inside."""
    scopes = GRAMMAR.scopes('p("count // x") :- counted(max). // q("a")\n/* .decl\n*/ r(1).\n')
    text = 'p("count // x") :- counted(max). // q("a")\n/* .decl\n*/ r(1).\n'

    def at(part: str) -> str | None:
        return scopes[text.index(part)]

    assert at("p(") == "entity.name.function.zedlog"
    assert at("count //") == "string.quoted.double.zedlog"
    assert at("counted") == "entity.name.function.zedlog"
    assert at("max") == "support.function.aggregate.zedlog"
    assert at('q("a")') == "comment.line.double-slash.zedlog"
    assert at(".decl") == "comment.block.zedlog"
    assert at("r(1") == "entity.name.function.zedlog"
    assert at("1)") == "constant.numeric.zedlog"


def test_the_extension_names_files_that_are_there() -> None:
    package = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text())
    (language,) = package["contributes"]["languages"]
    (grammar,) = package["contributes"]["grammars"]
    assert language["extensions"] == [f".{ending}" for ending in SOURCE["fileTypes"]]
    assert (ROOT / "editors" / "vscode" / language["configuration"]).is_file()
    # docs/howto/editor.md: the grammar is copied beside package.json.
    assert (ROOT / "editors" / grammar["path"]).is_file()
    assert grammar["scopeName"] == SOURCE["scopeName"]
    assert grammar["language"] == language["id"]
