"""Text to syntax tree.

In: any string. Out: a tree of `syntax`, or a `ProgramError` that shows the line and says what was expected;
nothing else, whatever the text is. The parser is LALR(1), so time is linear in the text and depth costs no
stack: 10,000 facts take about half a second. Its tables are built once, when first needed.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import Any, Literal

from lark import Lark
from lark.exceptions import UnexpectedInput

from engine.errors import ProgramError, ProgramSyntaxError, Span, UnsupportedFeatureError
from engine.language.builder import TreeBuilder
from engine.language.declarations import declarations_of, directives_of, type_names
from engine.language.diagnosis import explain
from engine.language.parts import Clause, DeclarationText, DirectiveText, Fault, PrefixText, TypeText
from engine.language.prefixes import NO_PREFIXES, Prefixes, may_abbreviate, reading
from engine.language.syntax import (
    Atom,
    Constant,
    Declaration,
    Directive,
    ProgramText,
    Query,
    Rule,
    Variable,
    Wildcard,
)

_SURROGATE = re.compile("[\ud800-\udfff]")
# A ":-" that is a token: strings and comments come first, so that one inside of them is passed over.
_HAS_HEAD = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|(:-)')

Start = Literal["program", "goal", "query", "headed_query"]
# A query may end where a clause may not. In one table the states that they share would reduce a clause that
# lacks its dot before they find that out, and the error would no longer say what was expected.
_TABLES: dict[Start, tuple[Start, ...]] = {
    "program": ("program", "goal"),
    "goal": ("program", "goal"),
    "query": ("query", "headed_query"),
    "headed_query": ("query", "headed_query"),
}


@cache
def _lark(starts: tuple[Start, ...]) -> Lark:
    grammar = resources.files("engine.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", start=list(starts), transformer=TreeBuilder())


def parse_program(text: str, prefixes: Prefixes = NO_PREFIXES) -> ProgramText:
    """A whole program: declarations, prefixes, type aliases, directives, facts and rules in any order, but that a
    prefix stands above its first use. prefixes: further ones that the text may use.

    Raises:
        ProgramError: the text is not a program, a fact is not ground, or a declaration contradicts itself.
    """
    parts = _parse(text, "program", prefixes)
    try:
        types = type_names([part for part in parts if isinstance(part, TypeText)])
        declarations: list[Declaration] = []
        directives: list[Directive] = []
        for part in parts:
            if isinstance(part, DeclarationText):
                declared = declarations_of(part, types, text)
                declarations += declared
                directives += directives_of(part)
            elif isinstance(part, DirectiveText):
                directives += directives_of(part)
    except Fault as fault:
        raise _located(fault, text) from None
    clauses = [part for part in parts if isinstance(part, Clause)]
    facts = tuple(head for clause in clauses if clause.alternatives is None for head in clause.heads)
    rules = tuple(rule for clause in clauses for rule in _rules_of(clause, text))
    labels = {part.label: part.iri for part in parts if isinstance(part, PrefixText)}
    return ProgramText(tuple(declarations), facts, rules, tuple(directives), text, labels)


def parse_rules(text: str, prefixes: Prefixes = NO_PREFIXES) -> tuple[Rule, ...]:
    """The rules of exactly one clause: several if it has a `;` or several heads. prefixes: those that it may use.

    Raises:
        ProgramError: the text is not one clause, or the clause is a fact.
    """
    parts = _parse(text, "program", prefixes)
    for part in parts:
        if not isinstance(part, Clause):
            raise ProgramSyntaxError("a rule was expected here, not a directive", text=text, span=part.span)
    if len(parts) != 1:
        if not parts:
            raise ProgramSyntaxError("there is no rule in this text", text=text, span=Span(1, 1, 1, 1))
        message = "one rule was expected, but a second clause starts here; send each rule separately"
        raise ProgramSyntaxError(message, text=text, span=parts[1].span)
    clause = parts[0]
    if clause.alternatives is None:
        name = clause.heads[0].relation
        message = f"this is a fact, not a rule: it has no body; send it as a fact of {name}"
        raise ProgramSyntaxError(message, text=text, span=clause.span)
    return tuple(_rules_of(clause, text))


def parse_goal(text: str, prefixes: Prefixes = NO_PREFIXES) -> Atom:
    """One atom to look up, `?- edge(x, "b").`; the `?-` and the `.` may be left out. prefixes: those that it may use.

    Raises:
        ProgramError: the text is not an atom, or an argument is computed.
    """
    atom: Atom = _parse(text, "goal", prefixes)
    for term in atom.terms:
        if not isinstance(term, Variable | Constant | Wildcard):
            message = "computed values in a goal are not supported yet by this version"
            raise UnsupportedFeatureError(message, text=text, span=term.span)
    return atom


def parse_query(text: str, prefixes: Prefixes = NO_PREFIXES) -> Query:
    """A conjunction of literals, `edge(x, y), !blocked(y)`, or one with a head, `q(y) :- edge(x, y)`.

    A `?-` before it and a `.` after it may be left out. prefixes: those that it may use.

    Raises:
        ProgramError: the text is not a query.
    """
    head, alternatives = _parse(text, _query_start(text), prefixes)
    return Query(head, tuple(tuple(body) for body in alternatives.bodies), text)


def _query_start(text: str) -> Start:
    return "headed_query" if any(match[1] for match in _HAS_HEAD.finditer(text)) else "query"


def parse_prefixes(text: str) -> dict[str, str]:
    """The prefixes that a text of declarations declares: IRIs by names. Raises as `parse_declarations`."""
    if ".prefix" not in text:
        return {}
    return {part.label: part.iri for part in _declarations(text) if isinstance(part, PrefixText)}


def expanded(text: str, prefixes: Prefixes) -> str:
    """A program or one rule with each prefixed name replaced by the symbol that it stands for, and each mapping by its
    rules; the text itself if there is none.

    Raises:
        ProgramError: it does not parse.
    """
    return _expanded(text, "program", prefixes)


def expanded_query(text: str, prefixes: Prefixes) -> str:
    """The same for a query."""
    return _expanded(text, _query_start(text), prefixes)


def _expanded(text: str, start: Start, prefixes: Prefixes) -> str:
    if not may_abbreviate(text):
        return text
    with reading(prefixes) as found:
        _parse_within(text, start)
    if not found.used:
        return text
    pieces, end = [], 0
    for begin, stop, whole in sorted(found.used, key=itemgetter(0)):
        # What stands inside of a mapping is whole in its rules.
        if begin >= end:
            pieces += [text[end:begin], whole]
            end = stop
    return "".join([*pieces, text[end:]])


def parse_declarations(text: str) -> tuple[Declaration, ...]:
    """The `.decl` directives of a text that holds nothing else, except `.prefix` and the `.type` aliases that they use.

    Raises:
        ProgramError: the text holds something else, or a declaration contradicts itself.
    """
    parts = _declarations(text)
    try:
        types = type_names([part for part in parts if isinstance(part, TypeText)])
        return tuple(
            declaration
            for part in parts
            if isinstance(part, DeclarationText)
            for declaration in declarations_of(part, types, text)
        )
    except Fault as fault:
        raise _located(fault, text) from None


def _declarations(text: str) -> list[DeclarationText | TypeText | PrefixText]:
    """The parts of a text that holds nothing but declarations."""
    parts: list[Any] = _parse(text, "program")
    for part in parts:
        if not isinstance(part, DeclarationText | TypeText | PrefixText):
            what = f"a .{part.kind} directive" if isinstance(part, DirectiveText) else "a clause"
            message = f"only .decl, .type and .prefix directives are allowed here, but this is {what}"
            raise ProgramSyntaxError(message, text=text, span=part.span)
        if isinstance(part, DeclarationText) and directives_of(part):
            message = f"'{part.qualifiers[0]}' cannot be used here: only names and types are declared here"
            raise ProgramSyntaxError(message, text=text, span=part.span)
    return parts


def _parse(text: str, start: Start, prefixes: Prefixes = NO_PREFIXES) -> Any:
    with reading(prefixes):
        return _parse_within(text, start)


def _parse_within(text: str, start: Start) -> Any:
    if surrogate := _SURROGATE.search(text):
        # Half of a character: no file, no JSON and no hash can hold it.
        before = text[: surrogate.start()]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        shown = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
        message = f"the character U+{ord(surrogate[0]):04X} is half of a surrogate pair, which is not text"
        raise ProgramSyntaxError(message, text=shown, span=Span(line, column, line, column + 1))
    try:
        return _lark(_TABLES[start]).parse(text, start=start)
    except Fault as fault:
        raise _located(fault, text) from None
    except UnexpectedInput as unexpected:
        raise explain(unexpected, text) from None


def _located(fault: Fault, text: str) -> ProgramError:
    return fault.error(fault.message, text=text, span=fault.span)


def _rules_of(clause: Clause, text: str) -> list[Rule]:
    bodies = [tuple(body) for body in clause.alternatives or ()]
    return [Rule(head, body, clause.span, text) for head in clause.heads for body in bodies]
