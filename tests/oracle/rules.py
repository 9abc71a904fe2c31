"""Rules and facts as plain tuples: the common tongue of the oracles and of the random programs.

A rule is written here as data and rendered to text for the system under test, so that the oracles share
neither its parser nor its syntax tree. A term is a `Var`, the wildcard `WILD`, or a plain value (str, int,
float, bool). A column has one type throughout a program, so values are compared with plain equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Value = str | int | float | bool
Row = tuple[Value, ...]
Model = dict[str, set[Row]]
Facts = Mapping[str, Mapping[Row, int]]


class Var(NamedTuple):
    name: str


class Wildcard(NamedTuple):
    """`_`; a type of its own so that no value can be taken for it."""

    underscore: str = "_"


WILD = Wildcard()
Term = Var | Wildcard | Value


class Atom(NamedTuple):
    relation: str
    terms: tuple[Term, ...]


class Rule(NamedTuple):
    head: Atom
    body: tuple[Atom, ...]


def canonical(rule: Rule) -> Rule:
    """The rule with its variables renamed by first use; two alpha-variants give the same."""
    names: dict[str, Var] = {}

    def rename(atom: Atom) -> Atom:
        return Atom(
            atom.relation,
            tuple(
                names.setdefault(t.name, Var(f"v{len(names)}")) if isinstance(t, Var) else t
                for t in atom.terms
            ),
        )

    return Rule(rename(rule.head), tuple(rename(a) for a in rule.body))


def rule_text(rule: Rule, prefix: str = "") -> str:
    """Program text. `prefix` goes before each variable's name: a cheap way to an alpha-variant."""
    body = ", ".join(atom_text(a, prefix) for a in rule.body)
    return f"{atom_text(rule.head, prefix)} :- {body}."


def atom_text(atom: Atom, prefix: str = "") -> str:
    return f"{atom.relation}({', '.join(_term_text(t, prefix) for t in atom.terms)})"


def _term_text(term: Term, prefix: str) -> str:
    if isinstance(term, Var):
        return prefix + term.name
    if isinstance(term, Wildcard):
        return "_"
    return value_text(term)


def value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'
    return repr(value)


def relations_of(rules: Iterable[Rule]) -> set[str]:
    return {atom.relation for rule in rules for atom in (rule.head, *rule.body)}
