"""The stratified model of a program of the whole language, by naive evaluation over the parsed tree.

In: rules as the parser read them, facts with weights. Out: relation -> set of tuples; or `UnstratifiedError`, with the
relations of the cycle, or `NoValueError`, where a computation has no result, or `DivergesError`.

The definition, word by word. Strata are the strongly connected components of the dependency graph, lower ones first.
A stratum is iterated from its facts: each round applies every rule to what the round before gave, until nothing
changes; in a stratum with a recursive `min` or `max` that is the language's definition, else it is the least model.
Where a relation is declared `fixpoint`, a count, sum or mean in its heads may be recursive too: it keeps the value of
the round before while the new one is within the tolerance, and must be at rest after `max_height` rounds.
An aggregate ranges over the distinct bindings of the variables of its body, in a head of those of the rule's body,
where each `_` of a positive atom is a variable too. An empty count or sum is 0;
an empty min, max or mean has no value, so that its literal does not hold. Nothing here is incremental or indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
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
    children,
    walk,
)
from tests.oracle.rules import Facts, Model, Row, Value
from tests.oracle.terms import NotModelledError, checked, finite, holds, value_of

Binding = dict[str, Value]
MONOTONE = ("min", "max")


class UnstratifiedError(Exception):
    """A relation depends on its own negation or aggregate; the argument is the set of relations of the cycle."""


class DivergesError(Exception):
    """The iteration of a stratum does not come to rest, or is too long to wait for."""


class _EmptyAggregateError(Exception):
    """min, max or mean of nothing."""


def stratified_model(
    rules: Iterable[Rule],
    facts: Facts,
    rounds: int = 100,
    budget: int = 400_000,
    fixpoints: Mapping[str, Fixpoint] | None = None,
) -> Model:
    """The definition above; relations without a tuple are left out. The rules are those of weight > 0, each once."""
    rules = list(rules)
    model: Model = {name: {row for row, w in rows.items() if w > 0} for name, rows in facts.items()}
    reach = dependencies(rules)
    check_stratified(rules, reach, fixpoints or {})
    evaluation = _Evaluation(model, budget, fixpoints or {})
    for relations in strata(reach):
        own = [rule for rule in rules if rule.head.relation in relations]
        if own:
            evaluation.stratum(own, relations, any(name in reach[name] for name in relations), rounds)
    return {name: rows for name, rows in model.items() if rows}


# ---- strata


def read_by(rule: Rule) -> list[tuple[str, bool]]:
    """Each relation of the body, with whether the rule reads it other than monotonically."""
    folded = any(isinstance(t, HeadAggregate) and t.function not in MONOTONE for t in rule.head.terms)
    found: list[tuple[str, bool]] = []

    def visit(node: Literal | Term, strict: bool) -> None:
        if isinstance(node, Atom):
            found.append((node.relation, strict))
        inside = strict or isinstance(node, Negation)
        inside = inside or (isinstance(node, Aggregate) and node.function not in MONOTONE)
        for child in children(node):
            visit(child, inside)

    for literal in rule.body:
        visit(literal, folded)
    return found


def dependencies(rules: Iterable[Rule]) -> dict[str, set[str]]:
    """relation -> every relation that it depends on, directly or not."""
    reach: dict[str, set[str]] = {}
    for rule in rules:
        for name, _ in read_by(rule):
            reach.setdefault(name, set())
            reach.setdefault(rule.head.relation, set()).add(name)
        reach.setdefault(rule.head.relation, set())
    grown = True
    while grown:
        grown = False
        for seen in reach.values():
            more = set().union(*(reach[name] for name in seen)) - seen
            seen |= more
            grown = grown or bool(more)
    return reach


def strata(reach: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components, each after all that it depends on."""
    found = {frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in reach}
    return sorted(
        found, key=lambda members: (len(members.union(*(reach[a] for a in members))), sorted(members))
    )


def check_stratified(
    rules: Iterable[Rule], reach: Mapping[str, set[str]], fixpoints: Mapping[str, Fixpoint]
) -> None:
    for rule in rules:
        head = rule.head.relation
        if head in fixpoints:
            # What its head folds may be recursive; what its body negates or folds may not.
            terms = (t.argument if isinstance(t, HeadAggregate) else t for t in rule.head.terms)
            rule = replace(rule, head=replace(rule.head, terms=tuple(terms)))
        for name, strict in read_by(rule):
            if strict and (name == head or head in reach[name]):
                raise UnstratifiedError({head, name} | {b for b in reach[head] if head in reach[b]})


# ---- evaluation

Places = tuple[tuple[int, str], ...]


def folded_places(rule: Rule) -> Places:
    """The folded columns of the head, with their functions."""
    return tuple((i, t.function) for i, t in enumerate(rule.head.terms) if isinstance(t, HeadAggregate))


def takes_facts(places: Places) -> bool:
    """Whether a fact of a relation that is folded so is a contribution to it; otherwise it holds none."""
    return len(places) == 1 and places[0][1] in MONOTONE


@dataclass
class _Evaluation:
    model: Model
    budget: int
    fixpoints: Mapping[str, Fixpoint] = field(default_factory=dict)
    held: dict[tuple[str, int], dict[Row, Value]] = field(default_factory=dict)

    def stratum(self, rules: Sequence[Rule], members: frozenset[str], recursive: bool, rounds: int) -> None:
        facts = {name: frozenset(self.model.get(name, ())) for name in members}
        # Before the first round only the facts are there, of a folded relation the best of each group.
        self.model.update(self.folded_facts(rules, facts))
        for number in range(1, (rounds if recursive else 1) + 1):
            after = self.round(rules, facts, number)
            if all(self.model.get(name, set()) == after[name] for name in members):
                return
            self.model.update(after)
        if recursive:
            raise DivergesError(f"{sorted(members)} has not come to rest after {rounds} rounds")

    def round(self, rules: Sequence[Rule], facts: Mapping[str, frozenset[Row]], number: int = 1) -> Model:
        """What the rules give from the present model, and the facts; it is the round of this number."""
        after: Model = {name: set(rows) for name, rows in facts.items()}
        folds: dict[tuple[str, Places], dict[Row, list[Row]]] = {}
        for rule in rules:
            places = folded_places(rule)
            rows = list(self.head_rows(rule))
            name = rule.head.relation
            if not places:
                after[name].update(rows)
                continue
            if (name, places) not in folds and takes_facts(places):
                # A fact is a contribution.
                rows += facts[name]
                after[name] = set()
            groups = folds.setdefault((name, places), {})
            for row in rows:
                group = tuple(value for i, value in enumerate(row) if i not in dict(places))
                groups.setdefault(group, []).append(row)
        for (name, places), groups in folds.items():
            tuples = {group: list(rows[0]) for group, rows in groups.items()}
            for place, function in places:
                values = {
                    group: fold(function, [row[place] for row in rows]) for group, rows in groups.items()
                }
                if function not in MONOTONE:
                    values = self.hold(name, place, values, number)
                for group, value in values.items():
                    tuples[group][place] = value
            after[name].update(map(tuple, tuples.values()))
        return after

    def folded_facts(self, rules: Sequence[Rule], facts: Mapping[str, frozenset[Row]]) -> Model:
        """What there is of the relations that take facts as contributions before any rule is applied."""
        found: Model = {}
        for rule in rules:
            places, name = folded_places(rule), rule.head.relation
            if places and takes_facts(places):
                ((place, function),) = places
                best: dict[Row, Row] = {}
                for row in sorted(facts[name], key=lambda row: row[place], reverse=function == "min"):
                    best[(*row[:place], *row[place + 1 :])] = row
                found[name] = set(best.values())
        return found

    def hold(self, name: str, place: int, folded: dict[Row, Value], number: int) -> dict[Row, Value]:
        """The values with those of the round before in the place of the ones that are near enough."""
        limit, before = self.fixpoints.get(name), self.held.get((name, place), {})
        if limit is None:
            return folded
        for group, value in folded.items():
            if group in before and abs(value - before[group]) <= limit.tolerance:  # type: ignore[operator]  # numbers
                folded[group] = before[group]
        if folded != before and number > limit.max_height:
            raise DivergesError(f"{name} has not come to rest after {limit.max_height} rounds")
        self.held[name, place] = folded
        return folded

    def head_rows(self, rule: Rule) -> Iterator[Row]:
        """The head of each distinct binding of the body's variables; an aggregate stands as its argument."""
        body = named_wildcards(rule.body)
        scope = names_outside((rule.head, *body))
        named = sorted(scope)
        terms = [t.argument if isinstance(t, HeadAggregate) else t for t in rule.head.terms]
        distinct = {tuple(b[name] for name in named): b for b in self.solutions(body, {}, scope)}
        for binding in distinct.values():
            yield tuple(self.value(term, binding, scope) for term in terms)

    def solutions(
        self, body: Sequence[Literal], binding: Binding, scope: frozenset[str]
    ) -> Iterator[Binding]:
        """Every way to make the body true; `scope` are the variables that stand outside of the body's aggregates."""
        atoms: list[Literal] = []
        rest: list[Literal] = []
        for literal in body:
            if not isinstance(literal, Atom):
                rest.append(literal)
                continue
            terms = list(literal.terms)
            for i, term in enumerate(terms):
                if not isinstance(term, Variable | Constant | Wildcard):
                    terms[i] = Variable(f"@{len(atoms)}.{i}")
                    rest.append(Comparison("=", terms[i], term))
            atoms.append(replace(literal, terms=tuple(terms)))
        return self._extend([*atoms, *rest], binding, scope)

    def _extend(self, todo: list[Literal], binding: Binding, scope: frozenset[str]) -> Iterator[Binding]:
        if not todo:
            yield binding
            return
        for i, literal in enumerate(todo):
            if self.is_ready(literal, binding, scope):
                rest = todo[:i] + todo[i + 1 :]
                for extended in self.matches(literal, binding, scope):
                    yield from self._extend(rest, extended, scope)
                return
        for i, literal in enumerate(todo):
            found = self.witnesses(literal, binding, scope)
            if found is not None:
                for extended in found:
                    yield from self._extend([*todo[:i], *todo[i + 1 :]], extended, scope)
                return
        raise NotModelledError(f"unsafe: {todo}")

    def is_ready(self, literal: Literal, binding: Binding, scope: frozenset[str]) -> bool:
        if isinstance(literal, Atom):
            return True
        if isinstance(literal, Negation):
            return needed(literal, scope) <= binding.keys()
        sides = [literal.left, literal.right]
        unbound = [side for side in sides if not needed(side, scope) <= binding.keys()]
        if len(unbound) == 1 and literal.operator == "=":
            return isinstance(unbound[0], Variable)
        return not unbound

    def witnesses(self, literal: Literal, binding: Binding, scope: frozenset[str]) -> list[Binding] | None:
        """Of `v = min or max` whose other variables nothing else binds: each way to come to its value; else None."""
        if not isinstance(literal, Comparison) or literal.operator != "=":
            return None
        for side, term in ((literal.left, literal.right), (literal.right, literal.left)):
            if isinstance(side, Variable) and isinstance(term, Aggregate) and term.function in MONOTONE:
                body = named_wildcards(term.body)
                inner, shown = scope | names_outside(body), needed(term, scope)
                given = {name: binding[name] for name in shown & binding.keys()}
                assert term.argument is not None
                ways = [(self.value(term.argument, b, inner), b) for b in self.solutions(body, given, inner)]
                if not ways:
                    return []
                best = fold(term.function, [value for value, _ in ways])
                results = [
                    binding | {name: found[name] for name in shown} | {side.name: best}
                    for value, found in ways
                    if value == best and binding.get(side.name, best) == best
                ]
                return list({tuple(sorted(one.items())): one for one in results}.values())
        return None

    def matches(self, literal: Literal, binding: Binding, scope: frozenset[str]) -> Iterator[Binding]:
        match literal:
            case Atom():
                yield from self.rows_matching(literal, binding, scope)
            case Negation():
                if not any(True for _ in self.rows_matching(literal.atom, binding, scope)):
                    yield binding
            case Comparison():
                try:
                    yield from self.comparison(literal, binding, scope)
                except _EmptyAggregateError:
                    return

    def comparison(self, literal: Comparison, binding: Binding, scope: frozenset[str]) -> Iterator[Binding]:
        for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
            if isinstance(side, Variable) and side.name not in binding:
                yield {**binding, side.name: self.value(other, binding, scope)}
                return
        left, right = (self.value(side, binding, scope) for side in (literal.left, literal.right))
        if holds(literal, left, right):
            yield binding

    def rows_matching(self, atom: Atom, binding: Binding, scope: frozenset[str]) -> Iterator[Binding]:
        try:
            wanted = [
                t if isinstance(t, Variable | Wildcard) else Constant(self.value(t, binding, scope), None)  # type: ignore[arg-type]  # only its value is read
                for t in atom.terms
            ]
        except _EmptyAggregateError:
            return
        for row in list(self.model.get(atom.relation, ())):
            self.budget -= 1
            if self.budget < 0:
                raise DivergesError("too many derivations to wait for")
            extended = dict(binding)
            for term, value in zip(wanted, row, strict=True):
                if isinstance(term, Wildcard):
                    continue
                known = term.value if isinstance(term, Constant) else extended.setdefault(term.name, value)
                if known != value:
                    break
            else:
                yield extended

    def value(self, term: Term, binding: Binding, scope: frozenset[str]) -> Value:
        """The term's value, its aggregates first."""
        match term:
            case Aggregate():
                return self.aggregate(term, binding, scope)
            case BinaryOperation():
                left, right = (
                    self.constant(term.left, binding, scope),
                    self.constant(term.right, binding, scope),
                )
                return value_of(replace(term, left=left, right=right), {})
            case UnaryOperation():
                return value_of(replace(term, operand=self.constant(term.operand, binding, scope)), {})
            case FunctorCall():
                arguments = tuple(self.constant(a, binding, scope) for a in term.arguments)
                return value_of(replace(term, arguments=arguments), {})
            case _:
                return value_of(term, binding)

    def constant(self, term: Term, binding: Binding, scope: frozenset[str]) -> Constant:
        return Constant(self.value(term, binding, scope), None)  # type: ignore[arg-type]  # only its value is read

    def aggregate(self, term: Aggregate, binding: Binding, scope: frozenset[str]) -> Value:
        body = named_wildcards(term.body)
        inner_scope = scope | names_outside(body)
        given = {name: binding[name] for name in needed(term, scope)}
        distinct = {tuple(sorted(b.items())): b for b in self.solutions(body, given, inner_scope)}
        argument = term.argument
        if argument is None:
            return len(distinct)
        values: list[Value] = [self.value(argument, b, inner_scope) for b in distinct.values()]
        if not values and term.function != "sum":
            raise _EmptyAggregateError
        return fold(term.function, values)


def fold(function: str, values: Sequence[Value]) -> Value:
    """count, sum, mean, min or max of contributions; floats are added in ascending order."""
    if function == "count":
        return len(values)
    ordered = sorted(values)
    if function in MONOTONE:
        return ordered[0] if function == "min" else ordered[-1]
    total: float | int = 0
    for value in ordered:
        if isinstance(value, str):
            raise NotModelledError(f"{function} of symbols")
        total += value
    total = finite(total) if isinstance(total, float) else checked(total)
    return finite(float(total) / len(values)) if function == "mean" else total


# ---- variables


def names_outside(nodes: Iterable[Literal | Term]) -> frozenset[str]:
    """The variables of the nodes that do not stand inside of an aggregate."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Variable):
            found.add(node.name)
        elif not isinstance(node, Aggregate):
            found |= names_outside(children(node))
    return frozenset(found)


def needed(node: Literal | Term, scope: frozenset[str]) -> set[str]:
    """The variables that must have values first: its own, and those of its aggregates that stand outside of them."""
    if isinstance(node, Variable):
        return {node.name}
    if isinstance(node, Aggregate):
        return {n.name for n in walk(node) if isinstance(n, Variable)} & scope
    return set().union(*(needed(child, scope) for child in children(node)))


def named_wildcards(body: Sequence[Literal]) -> list[Literal]:
    """The body with a variable for each `_` of its positive atoms."""
    named: list[Literal] = []
    for i, literal in enumerate(body):
        if isinstance(literal, Atom):
            terms = (
                Variable(f"_{i}_{j}") if isinstance(t, Wildcard) else t for j, t in enumerate(literal.terms)
            )
            named.append(replace(literal, terms=tuple(terms)))
        else:
            named.append(literal)
    return named
