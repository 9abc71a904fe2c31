"""Random programs and histories of changes to them, as hypothesis strategies.

A `History` is a signature (relations with typed columns), and up to eight epochs of fact and rule changes
with weights. What a program may hold: constants, repeated variables, wildcards, self-joins up to four
occurrences of a relation, cross products, arities 0 to 4, linear, non-linear and mutual recursion, rules
that derive from themselves, relations both asserted and derived, alpha-variants, weights up to 3, and
epochs that must be refused because a weight would go below zero.

Facts and rules come from small pools drawn once per history, so that the same fact is added, doubled,
halved and removed again. A change that would retract too much is turned into one that is allowed, by
arithmetic on the drawn numbers rather than by more draws: examples stay small and shrink well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.oracle.rules import WILD, Atom, Row, Rule, Term, Value, Var, atom_text, canonical, rule_text

Signature = dict[str, tuple[str, ...]]
Fact = tuple[str, Row]
Domains = dict[str, tuple[Value, ...]]

DOMAINS: dict[str, tuple[tuple[Value, ...], ...]] = {
    "symbol": (
        ("a", "b", "c", "d", "e"),
        ("", "a b", "A", 'say "x"', "back\\slash"),
        ("tab\tnew\nline", "ä", "日本"),
    ),
    "number": ((0, 1, 2, 3, 4), (-2, -1, 0, 1, 10), (-(2**63), 2**63 - 1, -7)),
    "float": ((0.5, -1.5, 2.0), (1e300, -1e-300, 0.1)),
    "bool": ((True, False),),
}
VARIABLE_PREFIXES = ("", "x", "?q", "Long_name_")


@dataclass(frozen=True)
class Epoch:
    """One transaction's changes. `overdraw` is an extra retraction that makes it one to refuse."""

    facts: tuple[tuple[Fact, int], ...]
    rules: tuple[tuple[Rule, int], ...]
    overdraw: Fact | Rule | None = None
    prefix: str = ""
    """Goes before variable names in this epoch's rule texts."""

    def fact_changes(self) -> dict[str, list[tuple[Row, int]]]:
        """In the form that `Reasoner.apply` takes."""
        changes: dict[str, list[tuple[Row, int]]] = {}
        for (name, row), weight in self.facts:
            changes.setdefault(name, []).append((row, weight))
        return changes

    def rule_changes(self) -> list[tuple[str, int]]:
        return [(rule_text(rule, self.prefix), weight) for rule, weight in self.rules]

    def lines(self) -> list[str]:
        facts = [f"  {weight:+} {atom_text(Atom(name, row))}." for (name, row), weight in self.facts]
        rules = [f"  {weight:+} {text}" for text, weight in self.rule_changes()]
        return facts + rules + ([f"  overdraw {self.overdraw}"] if self.overdraw is not None else [])


@dataclass(frozen=True)
class History:
    signature: Signature
    declared: frozenset[str]
    epochs: tuple[Epoch, ...]
    restart_after: int
    """The epoch (index) after which the system under test is restarted from its export."""

    def declarations(self) -> str:
        return "\n".join(
            f".decl {name}({', '.join(f'c{i}: {t}' for i, t in enumerate(self.signature[name]))})"
            for name in sorted(self.declared)
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints a failing example: as the program and its changes, to be read."""
        lines = [f"types {self.signature}", *self.declarations().splitlines()]
        for number, epoch in enumerate(self.epochs):
            restart = " (restart after it)" if number == self.restart_after else ""
            lines += [f"epoch {number}{restart}", *epoch.lines()]
        printer.text("\n" + "\n".join(lines) + "\n")


def totals(epochs: Iterable[Epoch]) -> tuple[dict[str, dict[Row, int]], dict[Rule, int]]:
    """The weights of facts and of rules after these epochs; what has weight 0 is left out."""
    facts: Counter[Fact] = Counter()
    rules: Counter[Rule] = Counter()
    for epoch in epochs:
        for fact, weight in epoch.facts:
            facts[fact] += weight
        for rule, weight in epoch.rules:
            rules[rule] += weight
    if min([*facts.values(), *rules.values()], default=0) < 0:
        raise AssertionError("a history retracts only what is there")
    by_relation: dict[str, dict[Row, int]] = {}
    for (name, row), weight in facts.items():
        if weight:
            by_relation.setdefault(name, {})[row] = weight
    return by_relation, {rule: weight for rule, weight in rules.items() if weight}


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Two to four relations. Half of the time all columns have one type, which makes recursion likely."""
    names = ["e", "f", "p", "q.r"][: draw(st.integers(2, 4))]
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["symbol", "number", "number"]))
        return {name: (kind,) * draw(st.sampled_from([2, 2, 2, 1, 3])) for name in names}
    kinds = st.sampled_from(["symbol", "number", "number", "float", "bool"])
    return {name: tuple(draw(kinds) for _ in range(draw(st.integers(0, 4)))) for name in names}


@st.composite
def histories(draw: st.DrawFn, max_epochs: int = 8) -> History:
    signature = draw(signatures())
    domains = {kind: draw(st.sampled_from(choices)) for kind, choices in DOMAINS.items()}
    rule_pool = list(dict.fromkeys(draw(st.lists(_rules(signature, domains), min_size=2, max_size=7))))
    fact_pool = draw(st.lists(_facts(signature, domains), min_size=4, max_size=12)) + _chain(
        draw, signature, domains
    )
    fact_pool = list(dict.fromkeys(fact_pool))
    epochs: list[Epoch] = []
    weights: Counter[Fact | Rule] = Counter()
    for _ in range(draw(st.integers(1, max_epochs))):
        epochs.append(_epoch(draw, fact_pool, rule_pool, weights))
    return History(
        signature,
        frozenset(draw(st.sets(st.sampled_from(sorted(signature))))),
        tuple(epochs),
        draw(st.integers(0, len(epochs) - 1)),
    )


def _epoch(draw: st.DrawFn, facts: list[Fact], rules: list[Rule], weights: Counter[Fact | Rule]) -> Epoch:
    """Draw one epoch and take it into `weights`; weights never go below zero except by `overdraw`."""
    fewest = 0 if weights else 4  # the first epoch lays a ground for the others
    steps = st.sampled_from([1, 1, 1, 1, 1, 2, 3, -1, -1, -2, -3])
    drawn_facts = draw(st.lists(st.tuples(st.sampled_from(facts), steps), min_size=fewest, max_size=8))
    drawn_rules = draw(st.lists(st.tuples(st.sampled_from(rules), steps), min_size=fewest // 2, max_size=3))
    overdrawn: list[Fact | Rule | None] = [None, None, *facts, *rules]
    overdraw = draw(st.sampled_from(overdrawn))
    fact_changes = tuple((fact, _allowed(weights, fact, step)) for fact, step in drawn_facts)
    rule_changes = tuple((rule, _allowed(weights, rule, step)) for rule, step in drawn_rules)
    return Epoch(fact_changes, rule_changes, overdraw, draw(st.sampled_from(VARIABLE_PREFIXES)))


def _allowed(weights: Counter[Fact | Rule], key: Fact | Rule, step: int) -> int:
    """`step`, or what is left of the weight, or an addition where nothing is left to retract."""
    if step < 0:
        step = max(step, -weights[key]) or -step
    weights[key] += step
    return step


@st.composite
def _facts(draw: st.DrawFn, signature: Signature, domains: Domains) -> Fact:
    name = draw(st.sampled_from(sorted(signature)))
    return name, tuple(draw(st.sampled_from(domains[kind])) for kind in signature[name])


def _edge_like(signature: Signature) -> list[str]:
    """Binary relations over one type, the same for all of them: what closures are made of."""
    binary = [name for name, kinds in signature.items() if len(kinds) == 2 and len(set(kinds)) == 1]
    return [name for name in binary if signature[name] == signature[binary[0]]]


def _chain(draw: st.DrawFn, signature: Signature, domains: Domains) -> list[Fact]:
    """A path through the domain, so that heights above 2 are common."""
    names = _edge_like(signature)
    if not names:
        return []
    name = draw(st.sampled_from(names))
    values = domains[signature[name][0]]
    return [(name, (a, b)) for a, b in pairwise(values)]


@st.composite
def _rules(draw: st.DrawFn, signature: Signature, domains: Domains) -> Rule:
    """A safe rule: a shape from the field where the signature has two binary relations, or any rule at
    all."""
    alike = _edge_like(signature)
    if alike and draw(st.integers(0, 3)) > 0:
        names = st.sampled_from(alike)
        return canonical(_shape(draw(st.integers(0, 8)), draw(names), draw(names), draw(names)))
    return canonical(_any_rule(draw, signature, domains))


def _shape(which: int, p: str, q: str, r: str) -> Rule:
    """Closure in its forms, with p, q, r possibly the same relation."""
    w, x, y, z = map(Var, "wxyz")
    return [
        Rule(Atom(p, (x, y)), (Atom(q, (x, y)),)),
        Rule(Atom(p, (x, y)), (Atom(q, (y, x)),)),
        Rule(Atom(p, (x, z)), (Atom(p, (x, y)), Atom(q, (y, z)))),
        Rule(Atom(p, (x, z)), (Atom(q, (x, y)), Atom(p, (y, z)))),
        Rule(Atom(p, (x, z)), (Atom(p, (x, y)), Atom(p, (y, z)))),
        Rule(Atom(p, (x, z)), (Atom(p, (x, y)), Atom(p, (y, w)), Atom(p, (w, z)))),
        Rule(Atom(p, (x, y)), (Atom(q, (z, x)), Atom(p, (z, w)), Atom(r, (w, y)))),
        Rule(Atom(p, (x, y)), (Atom(q, (z, x)), Atom(r, (z, y)))),
        Rule(Atom(p, (x, z)), (Atom(q, (x, y)), Atom(r, (y, z)))),
    ][which]


def _any_rule(draw: st.DrawFn, signature: Signature, domains: Domains) -> Rule:
    names = st.sampled_from(sorted(signature))
    if draw(st.integers(0, 4)) == 0:
        body_names = [draw(names)] * draw(st.integers(2, 4))
    else:
        body_names = draw(st.lists(names, min_size=1, max_size=3))
    bound: dict[str, list[Var]] = {}

    def body_term(kind: str) -> Term:
        choice = draw(st.integers(0, 9))
        if choice == 9:
            return draw(st.sampled_from(domains[kind]))
        if choice == 8:
            return WILD
        variable = Var(f"{kind[0]}{choice % 3}")
        bound.setdefault(kind, []).append(variable)
        return variable

    def head_term(kind: str) -> Term:
        variables = bound.get(kind, [])
        if not variables or draw(st.integers(0, 7)) == 7:
            return draw(st.sampled_from(domains[kind]))
        return draw(st.sampled_from(variables))

    body = tuple(Atom(name, tuple(map(body_term, signature[name]))) for name in body_names)
    head = draw(names)
    return Rule(Atom(head, tuple(map(head_term, signature[head]))), body)
