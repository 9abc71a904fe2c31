"""Program text to the oracles' rules, through the project's own parser.

Only the parser is shared with the system under test (it has tests of its own); evaluation is not.
"""

from __future__ import annotations

from engine.language import syntax
from engine.language.parser import parse_program, parse_rules
from tests.oracle.rules import WILD, Atom, Row, Rule, Term, Var


def rules_from_text(text: str) -> list[Rule]:
    """One clause; several rules where it has a `;`."""
    return [_rule(rule) for rule in parse_rules(text)]


def program_from_text(text: str) -> tuple[list[Rule], dict[str, dict[Row, int]]]:
    """The rules and the facts of a whole program; a fact that stands twice has weight 2."""
    program = parse_program(text)
    facts: dict[str, dict[Row, int]] = {}
    for fact in program.facts:
        rows = facts.setdefault(fact.relation, {})
        row = row_of(fact)
        rows[row] = rows.get(row, 0) + 1
    return [_rule(rule) for rule in program.rules], facts


def row_of(fact: syntax.Atom) -> Row:
    values = [term.value for term in fact.terms if isinstance(term, syntax.Constant)]
    if len(values) != len(fact.terms):
        raise ValueError(f"{fact} is not ground")
    return tuple(values)


def _rule(rule: syntax.Rule) -> Rule:
    body = [literal for literal in rule.body if isinstance(literal, syntax.Atom)]
    if len(body) != len(rule.body):
        raise ValueError(f"the oracles know positive rules only, not {rule}")
    return Rule(_atom(rule.head), tuple(map(_atom, body)))


def _atom(atom: syntax.Atom) -> Atom:
    return Atom(atom.relation, tuple(map(_term, atom.terms)))


def _term(term: syntax.Term) -> Term:
    match term:
        case syntax.Variable():
            return Var(term.name)
        case syntax.Constant():
            return term.value
        case syntax.Wildcard():
            return WILD
        case _:
            raise ValueError(f"the oracles know variables, constants and _ only, not {term}")
