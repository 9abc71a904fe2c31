"""Syntax errors in plain words.

In: what lark knows at the point where parsing fails (the place, the tokens that could follow). Out: a
`ProgramSyntaxError` with what was expected there and, where the cause is a common slip (a forgotten `.`, an unclosed
string or comment, a reserved word), how to correct it. Costs nothing until there is an error.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from engine.errors import ProgramError, ProgramSyntaxError, Span, UnsupportedFeatureError
from engine.language import operators
from engine.language.bodies import Alternatives
from engine.language.canonical import format_term
from engine.language.constants import shortened
from engine.language.syntax import Atom, Constant, Term, Variable

_TERM = frozenset({"STRING", "PREFIXED", "NUMBER", "FLOAT", "BOOL", "QUESTION_IDENT", "WILDCARD"})
_TERM_STARTS = _TERM | {
    "BNOT", "LNOT", "COUNT", "FOREIGN_TERM", "FUNCTOR", "IDENT", "LPAR", "MAX", "MEAN", "MIN", "MINUS", "SUM",
}  # fmt: skip
_LITERAL_STARTS = _TERM_STARTS | {"BANG", "QUALIFIED", "TEXT_CONDITION"}
_DIRECTIVES = frozenset(
    {"DECL", "TYPE", "PREFIX", "RDF", "INPUT", "OUTPUT", "PRINTSIZE", "FOREIGN_DIRECTIVE"}
)
_OPERATORS = frozenset({"OPERATOR", "MINUS"})
# In the order in which a message lists them. Arithmetic operators are not listed: wherever one could follow,
# so could something that is more likely meant.
_WORDS = {
    "STRING": "a string",
    "NUMBER": "a number",
    "LPAR": "'('",
    "COMPARE": "a comparison operator",
    "EQUALS": "'='",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COLON": "':'",
    "PREFIX_NAME": "a prefix such as 'rdf:'",
    "IRI": "an IRI such as <http://example.org/>",
    "A": "'a'",
    "TEMPLATE": "an IRI such as <http://example.org/{id}>",
    "_IF": "':-'",
    "_SUBTYPE": "'<:'",
    "VBAR": "'|'",
    "DOT": "'.'",
    "$END": "the end of the text",
}


_WORD = re.compile(r"\w+|:-|[<>!]=|\S")


def explain(unexpected: UnexpectedInput, text: str) -> ProgramError:
    """The error that a user sees."""
    # Lark sets it when it raises, and gives it no types.
    parser: Any = unexpected.interactive_parser
    accepted = frozenset(parser.accepts())
    before = _last(parser.parser_state.value_stack)
    line, column, start = unexpected.line, unexpected.column, unexpected.pos_in_stream or 0
    # The lexer reads what the parser's state allows, for example the ':' of ':-'; show the whole word.
    word = _WORD.match(text, start)
    found = word[0] if word else text[start : start + 1]
    if isinstance(unexpected, UnexpectedToken):
        if unexpected.token.type == "$END":
            return _at_end(text, accepted, before)
        found = max(found, str(unexpected.token), key=len)
    unclosed = _unclosed(text, start) if isinstance(unexpected, UnexpectedCharacters) else None
    if unclosed:
        message, width = f"a {unclosed} that starts here is not closed", 2 if unclosed == "comment" else 1
        return ProgramSyntaxError(message, text=text, span=Span(line, column, line, column + width))
    width = 1 if "\n" in found else len(found)
    span = Span(line, column, line, column + width)
    if foreign := _foreign(found, before, accepted):
        return UnsupportedFeatureError(f"{foreign} not part of Zedlog's language", text=text, span=span)
    message = f"{_expected(accepted)}{_after(before, accepted)}, not {_shown(found)}"
    return ProgramSyntaxError(message + _hint(found, before, accepted), text=text, span=span)


def _unclosed(text: str, start: int) -> str | None:
    """What begins at `start` and is not closed: a string or a comment."""
    if text.startswith("/*", start):
        return "comment"
    return "string" if text.startswith('"', start) else None


def _at_end(text: str, accepted: frozenset[str], before: Any) -> ProgramError:
    """The text ends too early: point behind its last character that is not white space or a comment."""
    span = _span(before)
    if span is None:
        line, column = text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1
    else:
        line, column = span.end_line, span.end_column
    message = f"{_expected(accepted)}{_after(before, accepted)}, but the text ends"
    if "DOT" in accepted and span is not None:
        message += f"; did you forget the '.' at the end of the clause in line {line}?"
    return ProgramSyntaxError(message, text=text, span=Span(line, column, line, column + 1))


def _foreign(found: str, before: Any, accepted: frozenset[str]) -> str | None:
    """The construct of Souffle that the text seems to use here, with its verb."""
    if found == "(" and isinstance(before, Token) and before in operators.FOREIGN_FUNCTORS:
        return f"the functor {before} is"
    if found == "(" and isinstance(before, Variable) and before.name in operators.FOREIGN_FUNCTORS:
        return f"the functor {before.name} is"
    if found in operators.FOREIGN_OPERATORS and accepted & _OPERATORS:
        return f"the operator {found} is"
    if found == "#":
        return "the C preprocessor is"
    if found == "u" and isinstance(before, Constant):
        return "unsigned numbers are"
    return None


def _expected(accepted: frozenset[str]) -> str:
    words = _expected_words(accepted)
    return f"expected {words[0]}" if len(words) == 1 else f"expected {', '.join(words[:-1])} or {words[-1]}"


def _expected_words(accepted: frozenset[str]) -> list[str]:
    if accepted & _DIRECTIVES:
        # Between two clauses; inside a directive that could also go on, this is still what matters.
        return ["a fact, a rule or a directive (.decl, .type, .prefix, .rdf, .input, .output, .printsize)"]
    words = []
    rest = set(accepted)
    if "TEXT_CONDITION" in rest:
        words.append("an atom or a condition")
        rest -= _LITERAL_STARTS
    elif rest >= _TERM:
        words.append("a term")
        rest -= _TERM_STARTS
    elif rest & {"IDENT", "QUALIFIED"}:
        words.append("a name")
    words += [word for name, word in _WORDS.items() if name in rest]
    return words or ["an operator"]


def _after(before: Any, accepted: frozenset[str]) -> str:
    if isinstance(before, Atom) or (before == ")" and "DOT" in accepted):
        return " after the atom"
    if isinstance(before, Token):
        return f" after '{shortened(before)}'"
    if isinstance(before, Term):
        return f" after {shortened(format_term(before))}"
    return ""


def _hint(found: str, before: Any, accepted: frozenset[str]) -> str:
    """How to correct the text, where the cause is a common slip."""
    span = _span(before)
    # A query may also end without a dot.
    in_clause = "DOT" in accepted and "$END" not in accepted
    if in_clause and span is not None and (found[0].isalpha() or found[0] in "._"):
        return f"; did you forget the '.' at the end of the clause in line {span.end_line}?"
    if in_clause and found == ":-" and "_IF" not in accepted:
        return "; a clause has one ':-': did you forget the '.' at the end of an earlier clause?"
    if found == "'":
        return "; a symbol is written in double quotes"
    if before == "not":
        return "; negation is written with '!'"
    for word in (before, found):
        if isinstance(word, str) and word in operators.RESERVED and word.isidentifier() and word != "_":
            return f"; '{word}' is a reserved word"
    return ""


def _shown(found: str) -> str:
    if found == "'":
        return "a single quote"
    if found.isprintable():
        return f"'{shortened(found)}'"
    return f"the character U+{ord(found[0]):04X}"


def _last(stack: Any) -> Any:
    """The last token or node on the parser's stack: what stands before the fault."""
    value = stack
    while True:
        if isinstance(value, Alternatives):
            value = value.bodies[-1]
        elif isinstance(value, Tree):
            value = value.children
        if not isinstance(value, list):
            return value
        if not value:
            return None
        value = value[-1]


def _span(value: Any) -> Span | None:
    if isinstance(value, Token):
        return Span(value.line or 1, value.column or 1, value.end_line or 1, value.end_column or 1)
    span = getattr(value, "span", None)
    return span if isinstance(span, Span) else None
