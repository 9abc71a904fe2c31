"""Reading for a query: of each relation only tuples that can be part of a binding.

In: a prepared query and a source of tuples, such as a snapshot. Out: for each relation arrays that together hold what
`evaluate` needs. Always: whatever is left out is in no binding of any alternative, and in no group and no negated atom
that a binding asks for; so the answer is the same as over the whole relations.

    answer(y, z) :- p(5, y), q(y, z), !s(z, _), n = count : { r(y, w) }.

Of a conjunction the positive atoms are read first, the one with the fewest tuples first of all. The values that a
variable has in the tuples read are all that it can have in a binding, so from the next atom only tuples with these
values are read (a semi-join: Bernstein and Chiu 1981): of q those whose first column is one of p's values for y.
Negated atoms come after them, since only such values can be asked for, and so do aggregates, each as a conjunction of
its own in which the variables from outside are known. When an atom has no tuple, the conjunction has no binding and
needs nothing more. A relation is read without regard to known values if it is small or the values are many.

A value that does not exist (an overflow, say) is an error of a query if a binding needs it. Where only a group that no
binding asks for needs it, the error is found or not, depending on whether the group was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.data.codes import Codes
from engine.data.values import Value
from engine.database.query import PreparedQuery, given_constants
from engine.errors import BudgetExceededError
from engine.language.syntax import (
    Aggregate,
    Atom,
    Constant,
    Literal,
    Negation,
    Variable,
    names_of,
    walk_outside,
)

# A relation, or what constants leave of it, of no more tuples than this is read without regard to known values.
SMALL_TUPLES = 4_096
# Known values help when there are several times as many tuples as values.
_TUPLES_PER_VALUE = 4
# From so many tuples on, their distinct values are found in a thread.
_LONG = 65_536

Among = Mapping[int, Codes]
Known = dict[str, Codes]
"""For variables the codes that they can have, ascending and distinct; a variable that is not there can have any."""


class Source(Protocol):
    """Where tuples come from; `engine.storage.snapshot.Snapshot` is one."""

    async def codes(self, relation: str, bound: Mapping[int, Value], most: int | None, among: Among) -> Codes:
        """The tuples whose columns have the `bound` values, and one of the codes of `among`; `most` are enough."""

    async def estimate(self, relation: str, bound: Mapping[int, Value], among: Among) -> int:
        """No more tuples than these."""


async def read(query: PreparedQuery, source: Source, most: int | None) -> dict[str, list[Codes]]:
    """The tuples that the evaluation of a query needs.

    Raises:
        BudgetExceededError: there are more than `most`.
        and what the source raises.
    """
    reading = _Reading(source, most)
    for rule in query.rules:
        await reading.conjunction(rule.body, {}, {})
    return reading.facts


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An atom as it is read: the constants and the variables that its columns have."""

    relation: str
    bound: dict[int, Value]
    variables: dict[int, str]

    @classmethod
    def of(cls, atom: Atom, given: Mapping[str, Constant]) -> _Wanted:
        bound: dict[int, Value] = {}
        variables: dict[int, str] = {}
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                variables[column] = term.name
                term = given.get(term.name, term)
            if isinstance(term, Constant):
                bound[column] = term.value
        return cls(atom.relation, bound, variables)

    def among(self, known: Known) -> Among:
        """The columns whose codes are known."""
        named = ((column, known.get(name)) for column, name in self.variables.items())
        return {column: codes for column, codes in named if codes is not None and column not in self.bound}


class _Reading:
    def __init__(self, source: Source, most: int | None) -> None:
        self._source = source
        self._most = most
        # How many tuples each relation has, and how many of them were read: no more than it has, though several atoms
        # may read the same.
        self._totals: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        # What was read with constants alone, by them; another atom may ask for the same.
        self._whole: dict[tuple[str, tuple[tuple[int, Value], ...]], Codes] = {}
        self.facts: dict[str, list[Codes]] = {}

    async def conjunction(self, body: Sequence[Literal], given: Mapping[str, Constant], known: Known) -> None:
        """Read for a conjunction. given, known: constants and codes of variables, from around it."""
        given, known = {**given, **given_constants(body)}, dict(known)
        positive = [_Wanted.of(literal, given) for literal in body if isinstance(literal, Atom)]
        needed = _in_several(body)
        estimates = [await self._estimate(atom, known) for atom in positive] if len(positive) > 1 else [0]
        while positive:
            # Among equals one with constants, for its tuples are probably fewer than an estimate without index says.
            order = [(n, -len(atom.bound)) for n, atom in zip(estimates, positive, strict=True)]
            chosen = order.index(min(order))
            atom = positive.pop(chosen)
            estimates.pop(chosen)
            codes = await self._take(atom, known)
            if not len(codes):
                return
            changed = await _learn(atom, codes, known, needed)
            for i, other in enumerate(positive):
                if changed & set(other.variables.values()):
                    estimates[i] = await self._estimate(other, known)
        for literal in body:
            if isinstance(literal, Negation):
                await self._take(_Wanted.of(literal.atom, given), known)
            for node in walk_outside(literal):
                if isinstance(node, Aggregate):
                    await self.conjunction(node.body, given, known)

    async def _estimate(self, atom: _Wanted, known: Known) -> int:
        return await self._source.estimate(atom.relation, atom.bound, atom.among(known))

    async def _take(self, atom: _Wanted, known: Known) -> Codes:
        """Read an atom's tuples; those that come back are at least the ones that it needs."""
        relation, bound = atom.relation, tuple(sorted(atom.bound.items()))
        for key in ((relation, ()), (relation, bound)):
            if key in self._whole:
                return self._whole[key]
        if relation not in self._totals:
            self._totals[relation] = await self._source.estimate(relation, {}, {})
        if self._counts.get(relation, -1) >= self._totals[relation]:
            # Several atoms together have read as much as there is.
            self.facts[relation] = []
            atom, bound = _Wanted(relation, {}, {}), ()
        among = atom.among(known)
        if among:
            whole = await self._source.estimate(relation, atom.bound, {})
            few = {c: codes for c, codes in among.items() if len(codes) * _TUPLES_PER_VALUE <= whole}
            if few and whole > SMALL_TUPLES:
                return await self._read(atom, few)
        codes = self._whole[relation, bound] = await self._read(atom, {})
        return codes

    async def _read(self, atom: _Wanted, among: Among) -> Codes:
        relation, most = atom.relation, self._most
        others = sum(count for name, count in self._counts.items() if name != relation)
        left = None if most is None else most - others + 1
        codes = await self._source.codes(relation, atom.bound, left, among)
        self.facts.setdefault(relation, []).append(codes)
        read_ = sum(map(len, self.facts[relation]))
        self._counts[relation] = min(read_, max(self._totals[relation], len(codes)))
        if most is not None and others + self._counts[relation] > most:
            raise BudgetExceededError(
                f"the query reads more than the {most:,} tuples allowed: it reached the limit in {relation}; make it "
                "more selective, for example with constants in its atoms",
                budget="tuples",
                relation=relation,
            )
        return codes


async def _learn(atom: _Wanted, codes: Codes, known: Known, needed: frozenset[str]) -> set[str]:
    """Note the values of an atom's variables, and say of which."""
    variables = {column: name for column, name in atom.variables.items() if name in needed}
    if len(codes) < _LONG:
        _narrow(variables, codes, known)
    else:
        await asyncio.to_thread(_narrow, variables, codes, known)
    return set(variables.values())


def _narrow(variables: Mapping[int, str], codes: Codes, known: Known) -> None:
    """Leave of the known values of variables those that occur in the columns of tuples."""
    for column, name in variables.items():
        # Perhaps more was read than the values that are known ask for.
        if name in known and len(known[name]) < len(codes):
            codes = codes[np.isin(codes[:, column], known[name])]
    for column, name in variables.items():
        found = np.unique(codes[:, column])
        known[name] = np.intersect1d(known[name], found, assume_unique=True) if name in known else found


def _in_several(body: Sequence[Literal]) -> frozenset[str]:
    """The variables that occur in several literals."""
    names = [names_of(literal) for literal in body]
    return frozenset(_repeated(names))


def _repeated(groups: Sequence[set[str]]) -> Iterator[str]:
    seen: set[str] = set()
    for group in groups:
        yield from group & seen
        seen |= group
