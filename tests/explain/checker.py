"""Checks proofs, independently of the code that makes them: over parsed rules, facts with weights and a model.

A proof is right if every tuple in it is in the model; every step is an instance of a rule of the program, shown by
naive evaluation of its body under the substitution alone; leaves are facts with their weights; negated atoms match
nothing; conditions hold; aggregates and folds are recomputed from the model; and heights lead down, so that no tuple
rests on itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.language.parser import parse_goal, parse_rules
from engine.language.syntax import (
    Aggregate,
    Atom,
    Negation,
    Rule,
    Wildcard,
    walk,
)
from tests.oracle.rules import Model, Row
from tests.oracle.stratified import (
    MONOTONE,
    _Evaluation,
    dependencies,
    fold,
    folded_places,
    named_wildcards,
    names_outside,
    takes_facts,
)

Json = dict[str, Any]


class Checker:
    def __init__(
        self, rules: Mapping[str, Rule], facts: Mapping[str, Mapping[Row, int]], model: Model
    ) -> None:
        self.rules, self.facts, self.model = rules, facts, model
        self.evaluation = _Evaluation(dict(model), 10**9)
        reach = dependencies(rules.values())
        self.together = {(a, b) for a in reach for b in reach if a in reach[b] and b in reach[a]}
        self.seen: dict[str, int] = {}

    def check(self, document: Json) -> None:
        """Raise AssertionError where the proof is wrong."""
        nodes = document["nodes"]
        for id_, node in nodes.items():
            relation, row = node["relation"], tuple(node["tuple"])
            goal = parse_goal(id_)
            assert (goal.relation, tuple(t.value for t in goal.terms)) == (relation, row), id_
            assert row in self.model.get(relation, set()), f"{id_} does not hold"
            self.seen[node["kind"]] = self.seen.get(node["kind"], 0) + 1
            if node["kind"] == "fact":
                assert node["weight"] == self.facts[relation][row] > 0, id_
            elif node["kind"] == "rule":
                self.instance(relation, row, node["derivation"])
            elif node["kind"] in ("fold", "iterated"):
                for place in node.get("folds", ()):
                    self.fold(relation, row, place, node["kind"] == "fold")
            else:
                assert node["kind"] in ("open", "unsettled"), node["kind"]
            for child in below(node):
                other = nodes[child]
                if (relation, other["relation"]) in self.together and node.get("height"):
                    assert other.get("height", 0) < node["height"] or "searched" in node, (id_, child)

    def acyclic(self, nodes: Json) -> None:
        """No tuple of a proof rests on itself."""
        done: set[str] = set()
        for start in nodes:
            path: list[tuple[str, Iterator[str]]] = [(start, iter(below(nodes[start])))]
            open_ = {start}
            while path:
                id_, rest = path[-1]
                for child in rest:
                    assert child not in open_, f"{child} rests on itself"
                    if child not in done:
                        open_.add(child)
                        path.append((child, iter(below(nodes[child]))))
                        break
                else:
                    path.pop()
                    open_.discard(id_)
                    done.add(id_)

    def instance(self, relation: str, row: Row | None, derivation: Json) -> dict[str, Any]:
        """A step is an instance of a rule: the body holds for the substitution, and the head is the tuple."""
        rule = self.rules[derivation["rule"]]
        assert rule.head.relation == relation
        assert parse_rules(derivation["text"])[0] == rule
        given = dict(derivation["substitution"])
        body = named_wildcards(rule.body)
        scope = names_outside((rule.head, *body))
        assert given.keys() == set(names_outside((rule.head, *rule.body))), derivation
        found = list(self.evaluation.solutions(body, given, scope))
        assert found, f"the body of {derivation['text']} does not hold for {given}"
        if row is not None:
            assert tuple(self.evaluation.value(term, given, scope) for term in rule.head.terms) == row
        if "steps" in derivation:
            self.steps(rule, given, derivation["steps"])
        return given

    def steps(self, rule: Rule, given: dict[str, Any], steps: Iterable[Json]) -> None:
        steps = list(steps)
        scope = names_outside((rule.head, *rule.body))
        tuples = [parse_goal(s["node"]) for s in steps if s["kind"] == "tuple"]
        for literal in rule.body:
            if isinstance(literal, Atom):
                wanted = [
                    None if isinstance(t, Wildcard) else self.evaluation.value(t, given, scope)
                    for t in literal.terms
                ]
                assert any(
                    goal.relation == literal.relation
                    and all(w is None or w == t.value for w, t in zip(wanted, goal.terms, strict=True))
                    for goal in tuples
                ), f"{literal} is not among the steps"
        negated = [s["pattern"] for s in steps if s["kind"] == "absent"]
        count = sum(isinstance(literal, Negation) for literal in rule.body)
        # A min or max with witnesses is shown with what has the extreme value, which may be negated, too.
        extreme = any(
            isinstance(node, Aggregate) and node.function in MONOTONE
            for literal in rule.body
            for node in walk(literal)
        )
        assert len(negated) == count or (extreme and len(negated) > count)
        self.leaves(steps)
        text = {
            id_
            for s in steps
            if s["kind"] == "condition"
            for a in s.get("aggregates", ())
            for id_ in [a["text"]]
        }
        written = {n for literal in rule.body for n in walk(literal) if isinstance(n, Aggregate)}
        assert bool(text) == bool(written)
        plain = not any("'" in repr(step) for step in steps)
        for step in steps:
            for folded in step.get("aggregates", ()) if plain else ():
                (parsed,) = parse_rules(f"q(@) :- @ = {folded['text']}.".replace("@", "result"))
                term = parsed.body[0].right  # type: ignore[union-attr]  # it is an equation
                if term in written:
                    assert self.evaluation.value(term, given, scope) == folded["value"]
                self.recomputed(folded)

    def leaves(self, steps: Iterable[Json]) -> None:
        """Negated atoms match nothing, and conditions hold."""
        for step in steps:
            if step["kind"] == "absent":
                goal = parse_goal(step["pattern"].removeprefix("!"))
                assert not list(self.evaluation.rows_matching(goal, {}, frozenset())), step
            elif step["kind"] == "condition":
                (rule,) = parse_rules(f"q() :- {step['holds']}." if False else f"q(1) :- {step['holds']}.")
                assert list(self.evaluation.solutions(rule.body, {}, frozenset())), step
                for folded in step.get("aggregates", ()):
                    for one in folded["contributions"]:
                        self.leaves(one.get("steps", ()))
            else:
                goal = parse_goal(step["node"])
                assert tuple(t.value for t in goal.terms) in self.model[goal.relation], step

    def recomputed(self, folded: Json) -> None:
        contributions = folded["contributions"]
        if len(contributions) < folded["count"]:
            return
        assert len(contributions) == folded["count"]
        if folded["function"] == "count":
            assert folded["value"] == folded["count"]
        else:
            assert folded["value"] == fold(folded["function"], [one["value"] for one in contributions])

    def fold(self, relation: str, row: Row, folded: Json, founded: bool) -> None:
        """A folded column: its contributions are those that naive evaluation finds, and give the value."""
        column, function = folded["column"], folded["function"]
        assert row[column] == folded["value"]
        rules = [
            (rule, places)
            for rule in self.rules.values()
            if rule.head.relation == relation and (column, function) in (places := folded_places(rule))
        ]
        # The rules that fold the same columns share their groups.
        ways = {places for _, places in rules}
        counts = []
        for way in ways:
            rows = [r for rule, places in rules if places == way for r in self.evaluation.head_rows(rule)]
            if takes_facts(way):
                rows += [r for r, weight in self.facts.get(relation, {}).items() if weight > 0]
            group = [
                r
                for r in rows
                if all(a == b for i, (a, b) in enumerate(zip(r, row, strict=True)) if i not in dict(way))
            ]
            counts.append((len(group), fold(function, [r[column] for r in group]) if group else None))
        if founded:
            assert (folded["count"], folded["value"]) in counts, (relation, row, folded, counts)
            self.recomputed(folded)
        for place, one in enumerate(folded["contributions"]):
            if "weight" in one:
                assert (
                    self.facts[relation][(*row[:column], one["value"], *row[column + 1 :])] == one["weight"]
                )
            else:
                given = self.instance(relation, None, one)
                rule = self.rules[one["rule"]]
                assert (
                    self.evaluation.value(rule.head.terms[column].argument, given, frozenset(given))
                    == one["value"]
                )
            if function in MONOTONE and not place and founded:
                assert one["value"] == folded["value"]


def below(node: Json) -> list[str]:
    """What a node rests on; what only goes along with a last value is not part of the proof."""
    if node["kind"] == "iterated":
        return []
    steps = list(node.get("derivation", {}).get("steps", ()))
    for folded in node.get("folds", ()):
        for one in folded["contributions"]:
            steps += one.get("steps", ())
    return list(_tuples(steps))


def _tuples(steps: Iterable[Json]) -> Iterator[str]:
    for step in steps:
        if step["kind"] == "tuple":
            yield step["node"]
        for folded in step.get("aggregates", ()):
            for one in folded["contributions"]:
                yield from _tuples(one.get("steps", ()))
