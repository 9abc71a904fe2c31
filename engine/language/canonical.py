"""Syntax tree to text: canonical text, a rule's identity, and readable text of rules and declarations.

In: a rule, or a part of one. Out: text in one fixed layout.
Always: the canonical text of a rule parses to a rule of the same canonical text; rules that differ only in
the names of their variables, in spaces, comments or the way a constant is written have the same one. The
order of the literals is kept, so two orders are two rules. Costs a few microseconds a literal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from engine.language import operators
from engine.language.constants import write_constant
from engine.language.schema import ColumnType
from engine.language.syntax import (
    FIXPOINT,
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    Declaration,
    Fixpoint,
    FunctorCall,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
)


def canonical_text(rule: Rule) -> str:
    """The rule with its variables named v0, v1, ... in the order of their first use, in one fixed layout."""
    names: dict[str, str] = {}
    return _Printer(lambda name: names.setdefault(name, f"v{len(names)}")).rule(rule)


def rule_id(rule: Rule) -> str:
    """`r` and the first 12 hexadecimal digits of the SHA-256 of the canonical text."""
    return canonical_id(canonical_text(rule))


def canonical_id(canonical: str) -> str:
    """The id of the rule with this canonical text."""
    return "r" + hashlib.sha256(canonical.encode()).hexdigest()[:12]


def format_rule(rule: Rule) -> str:
    """The rule in the layout of canonical text, but with its own names of variables."""
    return _Printer(str).rule(rule)


def format_literal(literal: Literal) -> str:
    """One literal (or head) of a rule, with its own names of variables."""
    return _Printer(str).literal(literal)


def format_term(term: Term) -> str:
    """One term, with its own names of variables."""
    return _Printer(str).term(term)


def format_declaration(declaration: Declaration) -> str:
    """The declaration as a `.decl` directive that parses to an equal one."""
    columns = ", ".join(f"{c.name}: {c.type.value}" for c in declaration.columns if c.type is not None)
    limit = declaration.fixpoint
    text = f".decl {declaration.relation}({columns})"
    words = (
        (text, *declaration.qualifiers)
        if limit is None
        else (text, *declaration.qualifiers, format_fixpoint(limit))
    )
    return " ".join(words)


def format_fixpoint(fixpoint: Fixpoint) -> str:
    """The qualifier with all its settings."""
    tolerance = write_constant(fixpoint.tolerance, ColumnType.FLOAT)
    return f"{FIXPOINT}(tolerance={tolerance}, max_height={fixpoint.max_height})"


class _Printer:
    """`rename` is called for each variable, from left to right."""

    def __init__(self, rename: Callable[[str], str]) -> None:
        self._rename = rename

    def rule(self, rule: Rule) -> str:
        head = self.literal(rule.head)
        return f"{head} :- {', '.join([self.literal(literal) for literal in rule.body])}."

    def literal(self, literal: Literal) -> str:
        match literal:
            case Atom():
                return f"{literal.relation}({self._list(literal.terms)})"
            case Negation():
                return f"!{self.literal(literal.atom)}"
            case Comparison():
                left, right = self.term(literal.left), self.term(literal.right)
                operator = literal.operator
                return (
                    f"{operator}({left}, {right})" if operator[-1].isalpha() else f"{left} {operator} {right}"
                )

    def term(self, term: Term, least: int = 0) -> str:
        """The text of a term; in parentheses if it binds less tightly than `least`."""
        match term:
            case Variable():
                return self._rename(term.name)
            case Wildcard():
                return "_"
            case Constant():
                text = write_constant(term.value, term.type)
                # A sign binds like an operator: (-2) ^ 2 is not -2 ^ 2.
                return f"({text})" if text.startswith("-") and least > operators.UNARY_PRECEDENCE else text
            case FunctorCall():
                return f"{term.functor}({self._list(term.arguments)})"
            case HeadAggregate():
                return f"{term.function}({self.term(term.argument)})"
            case Aggregate():
                return self._aggregate(term)
            case UnaryOperation():
                return self._unary(term, least)
            case BinaryOperation():
                return self._binary(term, least)

    def _list(self, terms: tuple[Term, ...]) -> str:
        return ", ".join([self.term(term) for term in terms])

    def _aggregate(self, term: Aggregate) -> str:
        argument = "" if term.argument is None else f" {self.term(term.argument)}"
        return (
            f"{term.function}{argument} : {{ {', '.join([self.literal(literal) for literal in term.body])} }}"
        )

    def _unary(self, term: UnaryOperation, least: int) -> str:
        operand = self.term(term.operand, operators.UNARY_PRECEDENCE)
        text = f"{term.operator} {operand}" if term.operator.isalpha() else f"{term.operator}{operand}"
        return f"({text})" if least > operators.UNARY_PRECEDENCE else text

    def _binary(self, term: BinaryOperation, least: int) -> str:
        precedence, right = operators.BINARY[term.operator]
        left_text = self.term(term.left, precedence + (1 if right else 0))
        right_text = self.term(term.right, precedence + (0 if right else 1))
        text = f"{left_text} {term.operator} {right_text}"
        return f"({text})" if least > precedence else text
