"""Supports and entries by their definition, computed from the least model.

In: rules and facts. Out: for each relation and tuple, support[height] = number of derivations of that
height (the weight of an asserted fact counts at height 0), and the entry: +1 at the smallest supported
height.

A derivation is a rule of weight > 0 and one tuple for each body atom. Inside a recursive stratum its height
is 1 + the largest height of its body tuples, where tuples of lower strata have height 0; a tuple's height
is the smallest of its derivations' heights, and 0 where it is asserted. A stratum is a strongly connected
component of the graph of relations. In a stratum without recursion every derivation has height 1 by the
same words.

Nothing here is incremental: heights fall from "unknown" by repeated relaxation until they stand still.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.oracle.naive import bindings, instantiate, least_model
from tests.oracle.rules import Facts, Model, Row, Rule, relations_of

Node = tuple[str, Row]
ByHeight = dict[str, dict[Row, dict[int, int]]]


class Derivation(NamedTuple):
    head: Node
    inner: tuple[Node, ...]
    """The body's tuples that belong to the head's own stratum."""


class HeightModel(NamedTuple):
    model: Model
    supports: ByHeight
    entries: ByHeight


def height_model(rules: Iterable[Rule], facts: Facts, budget: int = 300_000) -> HeightModel:
    """Definition above, word by word. The rules are those of weight > 0, each once."""
    rules = list(rules)
    model = least_model(rules, facts, budget)
    stratum = strata(rules)
    derivations = [d for rule in rules for d in _derivations(rule, model, stratum)]
    asserted = {(name, row): w for name, rows in facts.items() for row, w in rows.items() if w > 0}
    height = dict.fromkeys(asserted, 0)
    changed = True
    while changed:
        changed = False
        for d in derivations:
            if all(node in height for node in d.inner):
                h = _height_of(d, height)
                if h < height.get(d.head, h + 1):
                    height[d.head] = h
                    changed = True
    supports: ByHeight = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for (name, row), weight in asserted.items():
        supports[name][row][0] += weight
    for d in derivations:
        supports[d.head[0]][d.head[1]][_height_of(d, height)] += 1
    entries: ByHeight = defaultdict(dict)
    for (name, row), h in height.items():
        entries[name][row] = {h: 1}
    plain = {name: {row: dict(s) for row, s in rows.items()} for name, rows in supports.items()}
    return HeightModel(model, plain, dict(entries))


def _height_of(derivation: Derivation, height: Mapping[Node, int]) -> int:
    return 1 + max((height[node] for node in derivation.inner), default=0)


def _derivations(rule: Rule, model: Model, stratum: Mapping[str, frozenset[str]]) -> Iterable[Derivation]:
    own = stratum[rule.head.relation]
    for binding, rows in bindings(rule.body, model):
        inner = tuple((a.relation, row) for a, row in zip(rule.body, rows, strict=True) if a.relation in own)
        yield Derivation((rule.head.relation, instantiate(rule.head, binding)), inner)


def dependencies(rules: Iterable[Rule]) -> dict[str, set[str]]:
    """relation -> every relation that it depends on, directly or not."""
    rules = list(rules)
    reach: dict[str, set[str]] = {name: set() for name in relations_of(rules)}
    for rule in rules:
        reach[rule.head.relation].update(a.relation for a in rule.body)
    grown = True
    while grown:
        grown = False
        for seen in reach.values():
            more = set().union(*(reach[name] for name in seen)) - seen
            if more:
                seen |= more
                grown = True
    return reach


def strata(rules: Iterable[Rule]) -> dict[str, frozenset[str]]:
    """relation -> the strongly connected component that it is in."""
    reach = dependencies(rules)
    return {a: frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in reach}
