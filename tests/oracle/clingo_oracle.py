"""The least model by clingo, an answer set solver that shares no line with Zedlog.

A positive program has exactly one answer set, its least model. Every value becomes a quoted string that
also says its type, since positive rules without arithmetic only ever compare values for equality: so 64-bit
numbers, floats and any symbol pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

import clingo

from tests.oracle.rules import Atom, Facts, Model, Rule, Term, Value, Var, Wildcard, canonical


class _Coding:
    """Values and relation names <-> what clingo's syntax takes."""

    def __init__(self) -> None:
        self.value_of: dict[str, Value] = {}
        self.relation_of: dict[str, str] = {}
        self._predicates: dict[str, str] = {}

    def predicate(self, relation: str) -> str:
        if relation not in self._predicates:
            self._predicates[relation] = f"r{len(self._predicates)}"
            self.relation_of[self._predicates[relation]] = relation
        return self._predicates[relation]

    def value(self, value: Value) -> str:
        # !a has no quote that is not escaped once backslashes and double quotes are doubled.
        coded = f"{type(value).__name__}:{value!a}"
        self.value_of[coded] = value
        return '"' + coded.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def term(self, term: Term) -> str:
        if isinstance(term, Var):
            return "V" + "".join(c if c.isalnum() else "_" for c in term.name)
        return "_" if isinstance(term, Wildcard) else self.value(term)

    def atom(self, atom: Atom) -> str:
        return f"{self.predicate(atom.relation)}({','.join(map(self.term, atom.terms))})"


def to_asp(rules: Iterable[Rule], facts: Facts) -> tuple[str, _Coding]:
    """The program as text for clingo, and how to read its answer."""
    coding = _Coding()
    lines = [
        f"{coding.atom(Atom(name, row))}." for name, rows in facts.items() for row, w in rows.items() if w > 0
    ]
    for rule in map(canonical, rules):
        lines.append(f"{coding.atom(rule.head)} :- {', '.join(map(coding.atom, rule.body))}.")
    return "\n".join(lines), coding


def solve(rules: Iterable[Rule], facts: Facts) -> Model:
    """The least model. Relations without a tuple are left out."""
    text, coding = to_asp(rules, facts)
    control = clingo.Control(["--warn=none"])
    control.add("base", [], text)
    control.ground([("base", [])])
    model: Model = {}
    with control.solve(yield_=True) as handle:
        answers = 0
        for answer in handle:
            answers += 1
            for symbol in answer.symbols(atoms=True):
                row = tuple(coding.value_of[argument.string] for argument in symbol.arguments)
                model.setdefault(coding.relation_of[symbol.name], set()).add(row)
    if answers != 1:
        raise AssertionError(f"a positive program has one answer set, clingo found {answers}")
    return model
