"""Why a tuple is absent: how far each rule that could give it gets.

In: a tuple that is not there. Out: for each rule of its relation whether the head fits, the largest part of the body
that can be satisfied together, one binding for it, and what the first of the other literals found. Always: the parts
that are called satisfied hold together in the state, under the binding that is shown.

The literals left out are tried in groups of growing size, so the first group after which the rest has a binding leaves
out as few as possible; of groups of one size the one that leaves out later literals comes first. A body of many
literals has too many groups; then, after a limit, what a plain evaluation satisfies before it fails is shown, and the
answer says so (`exhaustive` is false).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from engine.circuit.ranges import is_range
from engine.explain.instances import known_values, pattern, shown_binding, unified
from engine.explain.joins import Bindings
from engine.explain.matching import ready
from engine.explain.nodes import Checked, Key, Step, Term
from engine.explain.program import Plan
from engine.explain.proof import Prover
from engine.explain.source import Held
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Literal,
    Negation,
    Variable,
    names_of,
    walk_outside,
)

GROUPS = 300
"""The most groups of literals that are tried for one rule."""
FOUND = 3
"""How many tuples are shown that a literal found instead."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A largest part of a body that holds: the literals, those left out, those that wait for what these would bind,
    and the first bindings of the part."""

    satisfied: tuple[Literal, ...]
    failing: tuple[Literal, ...]
    waiting: tuple[Literal, ...]
    found: Bindings


@dataclass(frozen=True, slots=True)
class Failing:
    """A literal that fails. pattern: of an atom or a negated atom, with what is known. found: the first of `count`
    tuples that fit a negated atom; of an atom those that have the other values, but for one column. checked: a
    condition as it does not hold."""

    literal: Literal
    pattern: tuple[Term, ...] = ()
    found: tuple[Key, ...] = ()
    count: int = 0
    checked: Checked | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """How far a rule gets. fits: the head can be this tuple. failing: none if the whole body holds, which happens where
    a fold has another value. others: the literals that were not reached. known: all values, also those of variables
    that no text has. exhaustive: no larger part holds."""

    plan: Plan
    fits: bool
    binding: tuple[tuple[str, Term], ...] = ()
    steps: tuple[Step, ...] = ()
    failing: Failing | None = None
    others: tuple[Literal, ...] = ()
    known: tuple[tuple[str, Term], ...] = ()
    satisfied: int = 0
    literals: int = 0
    exhaustive: bool = True


@dataclass(frozen=True, slots=True)
class Absence:
    """attempts: of each rule that may be shown, those that get furthest first. instead: the tuple that a fold gives for
    the group. contributes: the weight of the fact, if it is one that only contributes to that fold. withheld: whether
    there are rules that may not be shown."""

    key: Key
    attempts: tuple[Attempt, ...]
    instead: Key | None
    contributes: int
    withheld: bool


async def absence(prover: Prover, key: Key) -> Absence:
    """Why the tuple is not there."""
    attempts: list[Attempt] = []
    plans = prover.plans(key[0])
    for plan in plans:
        if prover.may_show(plan):
            attempts.append(await _attempt(prover, plan, key))
    # The rules that get furthest first; otherwise by their ids, as everywhere.
    attempts.sort(key=lambda one: (not one.fits, one.literals - one.satisfied))
    instead, weight = await _instead(prover, key)
    return Absence(key, tuple(attempts), instead, weight, len(attempts) < len(plans))


async def _attempt(prover: Prover, plan: Plan, key: Key) -> Attempt:
    matcher = prover.matcher
    await matcher.learn(plan)
    given = unified(plan, key[1], matcher, folded=True)
    if given is None:
        return Attempt(plan, False)
    found = await partials(prover, plan, given)
    best = found[0] if found else await _greedy(prover, plan, given)
    row = (await _smallest(prover, plan, best.found))[0]
    one = best.found.take(slice(row, row + 1))
    failing = await _failing(prover, plan, best.failing[0], one) if best.failing else None
    return Attempt(
        plan,
        True,
        shown_binding(plan, one),
        await prover.steps(plan, best.satisfied, one, plan.scope),
        failing,
        (*best.failing[1:], *best.waiting),
        known_values(plan, one),
        len(best.satisfied),
        len(plan.body),
        bool(found),
    )


async def partials(
    prover: Prover, plan: Plan, given: Bindings, least: int = 0, most: int | None = None
) -> list[Partial]:
    """The parts of a body that have bindings, without as few literals as possible (`least` to `most`); those that leave
    the fewest literals waiting come first. None if there is no such part, or too many would have to be tried."""
    tried = 0
    last = len(plan.body) if most is None else min(most, len(plan.body))
    for size in range(least, last + 1):
        found: list[Partial] = []
        for group in combinations(range(len(plan.body) - 1, -1, -1), size):
            tried += 1
            if tried > GROUPS:
                return []
            one = await _without(prover, plan, given, frozenset(group))
            if one is not None:
                found.append(one)
        if found:
            return sorted(found, key=lambda one: len(one.waiting))
    return []


async def _smallest(prover: Prover, plan: Plan, found: Bindings) -> list[int]:
    return [0] if found.n == 1 else await prover.in_order(plan, found)


async def _without(prover: Prover, plan: Plan, given: Bindings, left: frozenset[int]) -> Partial | None:
    """The rest of a body without some literals, if it has a binding."""
    todo = [literal for place, literal in enumerate(plan.body) if place not in left]
    failing = tuple(literal for place, literal in enumerate(plan.body) if place in left)
    follow, waiting = followable(todo, set(given.columns), plan.scope)
    async for part in prover.matcher.solve(plan, follow, given):
        return Partial(tuple(follow), failing, tuple(waiting), part)
    return None


async def _greedy(prover: Prover, plan: Plan, given: Bindings) -> Partial:
    """A part to which no other literal can be added; not always a largest one."""
    left: set[int] = set(range(len(plan.body)))
    best = Partial((), plan.body, (), given)
    for place in range(len(plan.body)):
        one = await _without(prover, plan, given, frozenset(left - {place}))
        if one is not None:
            left.discard(place)
            best = one
    return best


def followable(
    body: Sequence[Literal], known: set[str], scope: frozenset[str]
) -> tuple[list[Literal], list[Literal]]:
    """The literals of a part of a body that can be followed, and those for which something is not bound."""
    todo, done, bound = list(body), set[int](), set(known)
    while True:
        before = len(done)
        for place, literal in enumerate(todo):
            if place in done:
                continue
            if isinstance(literal, Atom) and not is_range(literal):
                bound |= {term.name for term in literal.terms if isinstance(term, Variable)}
                done.add(place)
            elif ready(literal, bound, scope) is not None:
                if isinstance(literal, Atom):
                    bound |= {term.name for term in literal.terms[-1:] if isinstance(term, Variable)}
                elif isinstance(literal, Comparison):
                    bound |= {
                        side.name for side in (literal.left, literal.right) if isinstance(side, Variable)
                    }
                done.add(place)
        if len(done) == before:
            break
    return (
        [literal for place, literal in enumerate(todo) if place in done],
        [literal for place, literal in enumerate(todo) if place not in done],
    )


async def _failing(prover: Prover, plan: Plan, literal: Literal, one: Bindings) -> Failing:
    matcher = prover.matcher
    match literal:
        case Atom() if is_range(literal):
            return Failing(literal, pattern(literal, one, plan, matcher))
        case Atom():
            known = matcher.among(literal, one)
            near: dict[Key, None] = {}
            for column in known:
                rest = {c: codes for c, codes in known.items() if c != column}
                if rest:
                    near |= dict.fromkeys(_keys(literal, await matcher.held(literal.relation, rest)))
            return Failing(literal, pattern(literal, one, plan, matcher), tuple(near)[:FOUND], len(near))
        case Negation():
            held = await matcher.held(literal.atom.relation, matcher.among(literal.atom, one))
            keys = _keys(literal.atom, held)
            return Failing(literal, pattern(literal.atom, one, plan, matcher), tuple(keys[:FOUND]), len(keys))
        case Comparison():
            binding = known_values(plan, one)
            inside = [node for node in walk_outside(literal) if isinstance(node, Aggregate)]
            folded = []
            for node in inside:
                bound = names_of(node) & plan.scope <= one.columns.keys()
                if bound and (await matcher.aggregate(plan, node, one, plan.scope))[1][0]:
                    folded.append(await prover.aggregate(plan, one, node, plan.scope))
            return Failing(literal, checked=Checked(literal, binding, tuple(folded)))


def _keys(atom: Atom, held: Held) -> list[Key]:
    """The tuples that fit an atom's repeated variables, too."""
    keys: list[Key] = []
    for codes in held.codes.tolist():
        values: dict[str, int] = {}
        if all(
            values.setdefault(term.name, code) == code
            for term, code in zip(atom.terms, codes, strict=True)
            if isinstance(term, Variable)
        ):
            keys.append((atom.relation, tuple(codes)))
    return keys


async def _instead(prover: Prover, key: Key) -> tuple[Key | None, int]:
    """The tuple that a fold gives for the group of an absent one, and the weight of the absent one as a fact."""
    relation, codes = key
    for way in prover.program.folded(relation):
        columns = {column for column, _ in way}
        group = {i: np.array([code], np.int64) for i, code in enumerate(codes) if i not in columns}
        held = await prover.matcher.held(relation, group, hidden=True)
        same = (held.codes == np.array(codes, np.int64)).all(axis=1)
        weight = int(held.weights[same].sum())
        there = held.where(~held.hidden)
        if len(there):
            return (relation, tuple(there.codes[0].tolist())), weight
    return None, 0
