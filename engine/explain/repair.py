"""Which changes of facts would make an absent tuple true: the smallest ones first.

In: a tuple that is not there, and a way to try changes (`Try`, a dry run). Out: sets of facts to add and to retract,
each tried and found to work, from few to many. Always: what is returned works; if the search ended by itself, no
smaller set of the changes that are considered works.

A goal is a tuple that must come or must go. A tuple comes by being added, if its relation takes facts (no rule derives
it, or it holds facts already; never the tuple itself that is asked for, if rules can derive it), or by a rule whose
body holds but for some literals, which become goals. A tuple goes if its fact is retracted and each instance of a rule
that gives it loses a literal. Sets of goals are worked off cheapest first (uniform-cost search), so sets of changes
come in the order of their size. Tuples that must go stay noted, so that tuples that only give each other go together.
A variable that nothing binds takes values of the state, as far as these are few. Conditions and aggregates that fail
are not changed by themselves. Negation elsewhere may undo what a change does: that is what trying is for.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count, islice, product
from math import comb
from typing import TypeAlias

import numpy as np

from engine.circuit.ranges import is_range
from engine.errors import BudgetExceededError
from engine.explain.absence import GROUPS, Partial, followable, partials
from engine.explain.instances import unified
from engine.explain.joins import Bindings, joined
from engine.explain.nodes import Key
from engine.explain.program import Plan
from engine.explain.proof import Prover
from engine.language.syntax import Atom, Comparison, Constant, Literal, Negation, Variable

Change: TypeAlias = tuple[int, Key]
"""+1 and a fact to add, or the negative weight of a fact to retract."""
Try: TypeAlias = Callable[[Sequence[Change]], Awaitable[bool]]
"""Whether the tuple that is asked for is there after the changes."""


TIME = "the time that the explanation may take"
_FIXED = "conditions, aggregates and folds, which are not searched for all changes"


@dataclass(frozen=True, slots=True)
class Limits:
    """wanted: repairs. steps: sets of goals that are worked off. tries: dry runs. bindings: of a rule's body that are
    followed. literals: of a body that may fail together. changes: in one repair. values: for a free variable. until:
    when the search ends at the latest, by `time.monotonic`, which needs an event loop; None: when it is done."""

    wanted: int = 3
    steps: int = 2_000
    tries: int = 20
    bindings: int = 30
    literals: int = 3
    changes: int = 6
    values: int = 8
    until: float | None = None


@dataclass(slots=True)
class Repairs:
    """found: what works, smallest first. limit: which limit ended the search before all was considered; None if none
    did."""

    found: list[tuple[Change, ...]] = field(default_factory=list)
    limit: str | None = None
    tried: int = 0


@dataclass(frozen=True, slots=True)
class _State:
    """changes, and what remains: tuples to come, tuples to go, and instances of rules to break, each as the tuples and
    the negated atoms in it. gone: the tuples that go."""

    changes: frozenset[Change] = frozenset()
    come: tuple[Key, ...] = ()
    go: tuple[Key, ...] = ()
    broken: tuple[tuple[tuple[Key, ...], tuple[Key, ...]], ...] = ()
    gone: frozenset[Key] = frozenset()
    coming: frozenset[Key] = frozenset()

    @property
    def done(self) -> bool:
        return not (self.come or self.go or self.broken)


class Search:
    """One search for repairs. writable: the relations whose facts may be changed; None: all."""

    def __init__(
        self,
        prover: Prover,
        root: Key,
        attempt: Try,
        limits: Limits,
        writable: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._prover, self._root, self._attempt = prover, root, attempt
        self._limits, self._writable = limits, writable
        # What was left out that may be smaller than what is found, and what is larger or of another kind.
        self._limit: str | None = None
        self._beyond: str | None = None
        self._instances: dict[Key, list[tuple[tuple[Key, ...], tuple[Key, ...]]]] = {}

    async def run(self) -> Repairs:
        """See the module. What is found before the time or the allowance of tuples is used up is kept."""
        repairs = Repairs()
        until = self._limits.until
        try:
            async with nullcontext() if until is None else asyncio.timeout(until - time.monotonic()):
                await self._search(repairs)
        except TimeoutError:
            self._limit = TIME
        except BudgetExceededError:
            self._limit = "the number of tuples that one explanation may read and join"
        enough = len(repairs.found) >= self._limits.wanted
        repairs.limit = self._limit or (None if enough else self._beyond)
        return repairs

    async def _search(self, repairs: Repairs) -> None:
        numbers = count()
        waiting: list[tuple[int, int, int, _State]] = []
        seen: set[_State] = set()

        def put(state: _State) -> None:
            if len(state.changes) > self._limits.changes:
                self._beyond = self._beyond or f"{self._limits.changes} changes in one repair"
            elif state not in seen:
                seen.add(state)
                # Of equally many changes those that act through fewer rules come first.
                way = (
                    len(state.coming) + len(state.gone) + len(state.come) + len(state.go) + len(state.broken)
                )
                # No repair is empty. So states without changes wait with those of one change, and a recursion that
                # offers ever more goals does not keep those that are done from being tried.
                heapq.heappush(waiting, (max(1, len(state.changes)), way, next(numbers), state))

        put(_State(come=(self._root,)))
        steps = 0
        tried: set[frozenset[Change]] = set()
        while waiting and len(repairs.found) < self._limits.wanted:
            state = heapq.heappop(waiting)[3]
            if state.done:
                if state.changes in tried or any(set(one) <= state.changes for one in repairs.found):
                    continue
                if repairs.tried >= self._limits.tries:
                    self._limit = f"{self._limits.tries} dry runs"
                    break
                tried.add(state.changes)
                repairs.tried += 1
                changes = tuple(sorted(state.changes, key=lambda one: (one[0] < 0, one[1])))
                if changes and await self._attempt(changes):
                    repairs.found.append(changes)
                continue
            steps += 1
            if steps > self._limits.steps:
                self._limit = f"{self._limits.steps} steps"
                break
            if self._limits.until is not None and time.monotonic() > self._limits.until:
                # A step that waits for nothing is not interrupted.
                raise TimeoutError
            for following in await self._next(state):
                put(following)

    async def _next(self, state: _State) -> list[_State]:
        if state.broken:
            return self._break(state)
        if state.go:
            return await self._go(state)
        return await self._come(state)

    # ---- tuples that must come

    async def _come(self, state: _State) -> list[_State]:
        key, rest = state.come[0], state.come[1:]
        held = await self._prover.state(key)
        if held is not None or (1, key) in state.changes:
            return [] if key in state.gone else [replace(state, come=rest)]
        if key in state.coming or key in state.gone:
            # It would rest on itself.
            return []
        coming = state.coming | {key}
        found = []
        if self._takes_facts(key):
            found.append(replace(state, come=rest, changes=state.changes | {(1, key)}))
        for plan in self._prover.plans(key[0]):
            if self._prover.may_show(plan):
                for come, go in await self._goals(plan, key):
                    found.append(
                        replace(
                            state,
                            come=(*come, *(k for k in rest if k not in come)),
                            go=(*state.go, *(k for k in go if k not in state.go)),
                            coming=coming,
                        )
                    )
        return found

    def _takes_facts(self, key: Key) -> bool:
        relation = key[0]
        if not self._writable(relation):
            return False
        if not self._prover.plans(relation):
            return True
        return key != self._root and self._prover.matcher.source.facts(relation) > 0

    async def _goals(self, plan: Plan, key: Key) -> list[tuple[tuple[Key, ...], tuple[Key, ...]]]:
        """For ways to complete a rule's body: the tuples that must come, and those that must go."""
        matcher = self._prover.matcher
        await matcher.learn(plan)
        given = unified(plan, key[1], matcher, folded=True)
        if given is None:
            return []
        found: dict[tuple[tuple[Key, ...], tuple[Key, ...]], None] = {}
        for size in range(self._limits.literals + 1):
            if comb(len(plan.body), size) > GROUPS:
                self._limit = f"{GROUPS} groups of literals of a rule"
                break
            for part in await partials(self._prover, plan, given, size, size):
                fixed = [one for one in part.failing if isinstance(one, Comparison) or is_range(one)]
                if not size or fixed or any(map(_is_computed, part.waiting)):
                    self._beyond = _FIXED
                if size and not fixed:
                    found |= dict.fromkeys(await self._completed(plan, part))
        if len(plan.body) > self._limits.literals:
            self._beyond = self._beyond or f"{self._limits.literals} literals of a rule that fail together"
        return list(found)

    async def _completed(self, plan: Plan, part: Partial) -> list[tuple[tuple[Key, ...], tuple[Key, ...]]]:
        matcher = self._prover.matcher
        ways = []
        order = await self._prover.in_order(plan, part.found)
        if len(order) > self._limits.bindings:
            self._limit = f"{self._limits.bindings} bindings of a rule"
        for row in order[: self._limits.bindings]:
            values = part.found.row(row)
            free = {
                term.name: plan.types.get(term.name)
                for literal in part.failing
                if isinstance(literal, Atom)
                for term in literal.terms
                if isinstance(term, Variable) and term.name not in values
            }
            choices = [await self._values(plan, kind) for kind in free.values()]
            for chosen in islice(product(*choices), self._limits.values**2):
                full = values | dict(zip(free, chosen, strict=True))
                if not await self._holds(plan, part, full):
                    continue

                def instance(atom: Atom, full: dict[str, int] = full) -> Key:
                    codes = (
                        matcher.code(t) if isinstance(t, Constant) else full[t.name]  # type: ignore[union-attr]  # program.py leaves variables and constants
                        for t in atom.terms
                    )
                    return atom.relation, tuple(codes)

                come = tuple(instance(one) for one in part.failing if isinstance(one, Atom))
                go: list[Key] = []
                for one in (*part.failing, *part.waiting):
                    if isinstance(one, Negation):
                        go += await self._fitting(one.atom, full)
                ways.append((come, tuple(dict.fromkeys(go))))
        return ways

    async def _holds(self, plan: Plan, part: Partial, values: dict[str, int]) -> bool:
        """Whether the conditions hold that waited for values."""
        waiting = [literal for literal in part.waiting if _is_computed(literal)]
        follow, left = followable(waiting, set(values), plan.scope)
        if left or not follow:
            return not left
        async for _ in self._prover.matcher.solve(plan, follow, Bindings.of(values)):
            return True
        return False

    async def _values(self, plan: Plan, kind: object) -> list[int]:
        """Values for a variable that nothing binds: those of the tuple that is asked for, then others of the state."""
        columns = self._prover.program.schemas[self._root[0]].columns
        found = dict.fromkeys(
            code for code, column in zip(self._root[1], columns, strict=True) if column.type is kind
        )
        for relation in sorted(plan.reads):
            if self._prover.matcher.source.count(relation) <= 1_000:
                held = await self._prover.matcher.held(relation, {})
                for place, column in enumerate(self._prover.program.schemas[relation].columns):
                    if column.type is kind:
                        found |= dict.fromkeys(np.unique(held.codes[:, place]).tolist())
        if len(found) > self._limits.values:
            self._limit = f"{self._limits.values} values of a variable"
        return list(found)[: self._limits.values]

    async def _fitting(self, atom: Atom, values: dict[str, int]) -> list[Key]:
        """The tuples that fit a negated atom."""
        among = {}
        for column, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                among[column] = np.array([self._prover.matcher.code(term)], np.int64)
            elif isinstance(term, Variable):
                among[column] = np.array([values[term.name]], np.int64)
        held = await self._prover.matcher.held(atom.relation, among)
        return [(atom.relation, tuple(codes)) for codes in held.codes.tolist()]

    # ---- tuples that must go

    async def _go(self, state: _State) -> list[_State]:
        key, rest = state.go[0], state.go[1:]
        if key in state.gone:
            return [replace(state, go=rest)]
        if key in state.coming or (1, key) in state.changes:
            return []
        held = await self._prover.state(key)
        if held is None:
            return [replace(state, go=rest, gone=state.gone | {key})]
        changes = state.changes
        if held.weights[0]:
            if not self._writable(key[0]):
                return []
            changes |= {(-int(held.weights[0]), key)}
        broken = (*state.broken, *await self._of(key))
        return [replace(state, go=rest, gone=state.gone | {key}, changes=changes, broken=broken)]

    async def _of(self, key: Key) -> list[tuple[tuple[Key, ...], tuple[Key, ...]]]:
        """The instances of rules that give a tuple: the tuples that each needs, and those that must be absent."""
        if key not in self._instances:
            found = []
            for plan in self._prover.plans(key[0]):
                every = joined(await self._prover.instances(plan, key))
                for row in range(every.n):
                    one = every.take(slice(row, row + 1))
                    needs = tuple(
                        (literal.relation, self._prover.instantiated(literal, one))
                        for literal in plan.body
                        if isinstance(literal, Atom) and not literal.relation.startswith("@")
                    )
                    absent = tuple(
                        (literal.atom.relation, self._prover.instantiated(literal.atom, one))
                        for literal in plan.body
                        if isinstance(literal, Negation)
                        and all(isinstance(t, Variable | Constant) for t in literal.atom.terms)
                    )
                    found.append((needs, absent))
            self._instances[key] = found
        return self._instances[key]

    def _break(self, state: _State) -> list[_State]:
        (needs, absent), rest = state.broken[0], state.broken[1:]
        if any(need in state.gone for need in needs) or any(one in state.coming for one in absent):
            return [replace(state, broken=rest)]
        readable = self._prover.readable
        found = [
            replace(state, broken=rest, go=(*state.go, need))
            for need in dict.fromkeys(needs)
            if readable is None or need[0] in readable
        ]
        return found + [replace(state, broken=rest, come=(*state.come, one)) for one in dict.fromkeys(absent)]


def _is_computed(literal: Literal) -> bool:
    return isinstance(literal, Comparison) or is_range(literal)
