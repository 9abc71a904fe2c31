"""The bindings of a body over a source: joins along the values that are already known.

In: the literals of a rule's body (program.py) and bindings of some of its variables. Out: the bindings of all of its
variables that make the body true, in parts of at most some thousand. Always: which bindings come, and in which order,
depends on the state and the rule alone.

What can be checked is checked at once; then the atom comes that the known values leave the fewest tuples of, by a guess
from the relation's size and its bound columns. All bindings go through a step together: one read with all their values,
and one join of arrays. A step after which there are too many bindings goes on with one part after the other, so that
the first answer comes soon. A binding for which a value does not exist (an overflow, say) is left out: evaluation would
have refused the epoch if one that fits everything else needed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.circuit.ranges import is_range
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import encode_value
from engine.errors import BudgetExceededError
from engine.explain.folding import fold, result_type
from engine.explain.joins import Bindings, distinct, joined, matches
from engine.explain.program import Plan
from engine.explain.source import Held, Source
from engine.expressions import compile_condition, compile_term
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Constant,
    Literal,
    Negation,
    Term,
    Variable,
    names_of,
    names_outside,
    rebuilt,
    walk,
    walk_outside,
)

PART = 4_096
"""The most bindings that go on together."""
# A guess at what an aggregate costs, as a number of tuples.
_AGGREGATE = 64.0
# After so many reads other tasks have a turn; a join of so many rows is done in a thread.
_READS = 8
_LONG = 65_536


@dataclass(slots=True)
class Allowance:
    """How many tuples may still be read and joined."""

    left: int

    def take(self, count: int) -> None:
        """Raises BudgetExceededError."""
        self.left -= count
        if self.left < 0:
            raise BudgetExceededError(
                "the explanation reads and joins more tuples than are allowed; ask for a part of it, for example with "
                "a smaller size, or for a tuple that it rests on",
                budget="tuples",
            )


@dataclass(frozen=True, slots=True)
class Below:
    """Of these relations only tuples of a lower height count."""

    relations: frozenset[str]
    height: int


class Matcher:
    """Matches the bodies of rules over one source. `allowance` is for all that it does."""

    def __init__(self, source: Source, allowance: int) -> None:
        self.source = source
        self.allowance = Allowance(allowance)
        self.symbols = SymbolTable()
        self._known: set[str] = set()
        self._complete = False
        self._reads = 0

    async def learn(self, plan: Plan) -> None:
        """Know the symbols that a rule needs."""
        await self.know(plan.constants, complete=plan.computes)

    async def know(self, texts: Set[str], *, complete: bool = False) -> None:
        """Know the codes of these symbols, or of all. Codes of new symbols stay as they are."""
        if self._complete or (texts <= self._known and not complete):
            return
        known, new = self._known | texts, self.new_symbols
        symbols = await self.source.symbols(sorted(known), complete=complete)
        for text in new:
            symbols.intern(text)
        # All at once, because the reading may be cancelled, and the explanation go on.
        self._known, self._complete, self.symbols = known, complete, symbols

    @property
    def new_symbols(self) -> tuple[str, ...]:
        """The symbols that were computed, which follow those of the source."""
        count = self.source.symbol_count
        return tuple(self.symbols.since(count)) if len(self.symbols) > count else ()

    async def held(self, relation: str, among: Mapping[int, Codes], *, hidden: bool = False) -> Held:
        """The tuples of a relation with these codes; with the facts that are not there themselves, if `hidden`."""
        found = await self.source.held(relation, among, hidden=hidden)
        self._reads += 1
        if self._reads % _READS == 0:
            # A source with everything in memory never waits, and others should have their turn.
            await asyncio.sleep(0)
        self.allowance.take(len(found) + 1)
        return found

    async def solve(
        self,
        plan: Plan,
        body: Sequence[Literal],
        given: Bindings,
        below: Below | None = None,
        scope: frozenset[str] | None = None,
    ) -> AsyncIterator[Bindings]:
        """The bindings of a body. scope: the variables that stand outside of its aggregates."""
        scope = plan.scope if scope is None else scope
        todo, found = list(body), given
        while todo and found.n:
            place = self._next(todo, found.columns.keys(), scope)
            literal = todo.pop(place)
            found = await self._step(plan, literal, found, below, scope)
            if found.n > PART and todo:
                for first in range(0, found.n, PART):
                    part = found.take(slice(first, first + PART))
                    async for one in self.solve(plan, todo, part, below, scope):
                        yield one
                return
        if found.n:
            yield found

    def _next(self, todo: Sequence[Literal], bound: Iterable[str], scope: frozenset[str]) -> int:
        known = set(bound)
        best: tuple[float, int] | None = None
        for place, literal in enumerate(todo):
            cost = self._cost(literal, known, scope)
            if cost is not None and (best is None or (cost, place) < best):
                best = cost, place
        assert best is not None, f"nothing of {todo} can be followed"
        return best[1]

    def _cost(self, literal: Literal, known: set[str], scope: frozenset[str]) -> float | None:
        """A guess at how many tuples a literal takes; None if it must wait."""
        if isinstance(literal, Atom) and not is_range(literal):
            fixed = sum(not isinstance(t, Variable) or t.name in known for t in literal.terms)
            count = self.source.count(literal.relation) + 1
            return float(count ** (1 - fixed / max(len(literal.terms), 1)))
        return ready(literal, known, scope)

    # ---- one step

    async def _step(
        self, plan: Plan, literal: Literal, found: Bindings, below: Below | None, scope: frozenset[str]
    ) -> Bindings:
        match literal:
            case Atom() if is_range(literal):
                return self._range(plan, literal, found)
            case Atom():
                return await self._join(plan, literal, found, below)
            case Negation():
                return await self._without(plan, literal.atom, found)
            case Comparison():
                return await self.compare(plan, literal, found, scope)

    def code(self, constant: Constant) -> int:
        """The code of a constant; that of a symbol that occurs nowhere is a new one."""
        return encode_value(constant.value, self.symbols)

    def among(self, atom: Atom, found: Bindings) -> dict[int, Codes]:
        """The codes that the columns of an atom can have."""
        among: dict[int, Codes] = {}
        for column, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                among[column] = np.array([self.code(term)], np.int64)
            elif isinstance(term, Variable) and term.name in found.columns:
                codes = found.columns[term.name]
                among[column] = codes[:1] if found.n == 1 else np.unique(codes)
        return among

    async def _join(self, plan: Plan, atom: Atom, found: Bindings, below: Below | None) -> Bindings:
        held = await self.held(atom.relation, self.among(atom, found))
        if below is not None and atom.relation in below.relations:
            held = held.where(held.heights < below.height)
        codes, first = held.codes, _first_columns(atom)
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable) and first[term.name] != column:
                codes = codes[codes[:, column] == codes[:, first[term.name]]]
        shared = {name: column for name, column in first.items() if name in found.columns}
        sides = [found.columns[name] for name in shared], [codes[:, c] for c in shared.values()]
        if not shared:
            self.allowance.take(found.n * len(codes))
        if found.n > 1 and found.n + len(codes) > _LONG:
            left, right = await asyncio.to_thread(matches, *sides, found.n, len(codes))
        else:
            left, right = matches(*sides, found.n, len(codes))
        self.allowance.take(len(left))
        new = {name: codes[right, column] for name, column in first.items() if name not in shared}
        joined = found.take(left).with_(new)
        return Bindings(len(left), joined.columns)

    async def _without(self, plan: Plan, atom: Atom, found: Bindings) -> Bindings:
        return found.take(~await self.present(atom, found))

    async def present(self, atom: Atom, found: Bindings) -> npt.NDArray[np.bool_]:
        """For each binding, whether a tuple fits the atom, whose named variables are bound."""
        held = await self.held(atom.relation, self.among(atom, found))
        codes, first = held.codes, _first_columns(atom)
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable) and first[term.name] != column:
                codes = codes[codes[:, column] == codes[:, first[term.name]]]
        left, _ = matches(
            [found.columns[name] for name in first],
            [codes[:, c] for c in first.values()],
            found.n,
            len(codes),
        )
        there = np.zeros(found.n, np.bool_)
        there[left] = True
        return there

    def _range(self, plan: Plan, atom: Atom, found: Bindings) -> Bindings:
        """The values of `range(from, to, step)`, which a rule may have few or many of."""
        columns = [
            np.full(found.n, self.code(t), np.int64) if isinstance(t, Constant) else found.columns[_name(t)]
            for t in atom.terms[:-1]
        ]
        rows, values = [], []
        for row in range(found.n):
            first, last, *step = (int(column[row]) for column in columns)
            by = step[0] if step else (1 if first < last else -1)
            several = range(first, last, by) if by else range(first, first + (first != last))
            self.allowance.take(len(several))
            rows.append(np.full(len(several), row, np.int64))
            values.append(np.array(several, np.int64))
        taken = found.take(np.concatenate(rows) if rows else np.empty(0, np.int64))
        value = np.concatenate(values) if values else np.empty(0, np.int64)
        target = atom.terms[-1]
        if isinstance(target, Variable) and target.name not in taken.columns:
            return Bindings(len(value), {**taken.columns, target.name: value})
        known = self.code(target) if isinstance(target, Constant) else taken.columns[_name(target)]
        return taken.take(value == known)

    async def compare(
        self, plan: Plan, literal: Comparison, found: Bindings, scope: frozenset[str]
    ) -> Bindings:
        """The bindings that satisfy a comparison, or with the variable that an equation gives a value."""
        types = dict(plan.types)
        aggregates = [node for node in walk_outside(literal) if isinstance(node, Aggregate)]
        names: dict[Aggregate, Variable] = {}
        for aggregate in dict.fromkeys(aggregates):
            name = f"@value{len(names)}"
            names[aggregate] = Variable(name)
            value, there = await self.aggregate(plan, aggregate, found, scope)
            types[name] = result_type(aggregate, plan.types)
            found = found.with_({name: value}).take(there)
        plain = _replaced(literal, names)
        target = _target(plain, found.columns.keys())
        if target is not None:
            name, term = target
            columns, rows = compile_term(term, types).where_defined(found.columns, found.n, self.symbols)
            found = (found if rows is None else found.take(rows)).with_({name: columns})
        else:
            kept, rows = compile_condition(plain, types).where_defined(found.columns, found.n, self.symbols)
            found = (found if rows is None else found.take(rows)).take(kept)
        made = {variable.name for variable in names.values()}
        return Bindings(found.n, {n: codes for n, codes in found.columns.items() if n not in made})

    # ---- aggregates

    async def aggregate(
        self, plan: Plan, aggregate: Aggregate, found: Bindings, scope: frozenset[str]
    ) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """The value of an aggregate for each binding, and whether it has one."""
        values = np.zeros(found.n, np.int64)
        there = np.ones(found.n, np.bool_)
        for row in range(found.n):
            contributions = await self.contributions(plan, aggregate, found.take(slice(row, row + 1)), scope)
            value = fold(
                aggregate.function, contributions[1], result_type(aggregate, plan.types, folded=True)
            )
            if value is None:
                there[row] = False
            else:
                values[row] = value
        return values, there

    async def contributions(
        self,
        plan: Plan,
        aggregate: Aggregate,
        given: Bindings,
        scope: frozenset[str],
        below: Below | None = None,
    ) -> tuple[Bindings, Codes]:
        """The distinct bindings of an aggregate's body for one binding of the variables around it, and the value that
        each contributes."""
        inner = scope | names_outside(*aggregate.body)
        shared = names_of(aggregate) & scope
        known = {name: codes for name, codes in given.columns.items() if name in shared}
        body = self.solve(plan, aggregate.body, Bindings(1, known), below, frozenset(inner))
        parts = [part async for part in body]
        bindings = distinct(joined(parts))
        if aggregate.argument is None:
            return bindings, np.zeros(bindings.n, np.int64)
        return await self.valued(plan, aggregate.argument, bindings, frozenset(inner))

    async def valued(
        self, plan: Plan, term: Term, found: Bindings, scope: frozenset[str]
    ) -> tuple[Bindings, Codes]:
        """The bindings for which a term has a value, and these values."""
        if not found.n:
            return found, np.empty(0, np.int64)
        made = "@argument"
        result = await self.compare(plan, Comparison("=", Variable(made), term), found, scope)
        columns = dict(result.columns)
        values = columns.pop(made)
        return Bindings(result.n, columns), values


# ---- parts of literals


def ready(literal: Literal, known: set[str], scope: frozenset[str]) -> float | None:
    """What a literal that is not an atom of a relation costs, if its variables are known; None if it must wait."""
    match literal:
        case Atom():
            return 0.5 if names_of(*literal.terms[:-1]) <= known else None
        case Negation():
            return 0.25 if names_of(literal.atom) <= known else None
        case Comparison():
            cost = _AGGREGATE if any(isinstance(n, Aggregate) for n in walk(literal)) else 0.0
            needed = [_needed(side, scope) - known for side in (literal.left, literal.right)]
            if not needed[0] and not needed[1]:
                return cost
            if literal.operator == "=":
                for side, own, other in (
                    (literal.left, needed[0], needed[1]),
                    (literal.right, needed[1], needed[0]),
                ):
                    if isinstance(side, Variable) and own and not other:
                        return cost
            return None


def _needed(term: Term, scope: frozenset[str]) -> set[str]:
    """The variables that must be known first: those outside of aggregates, and inside those that stand outside too."""
    found = {node.name for node in walk_outside(term) if isinstance(node, Variable)}
    for node in walk_outside(term):
        if isinstance(node, Aggregate):
            found |= names_of(node) & scope
    return found


def _target(literal: Comparison, known: Iterable[str]) -> tuple[str, Term] | None:
    """The variable that an equation gives a value, and the term that has it."""
    bound = set(known)
    for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
        if isinstance(side, Variable) and side.name not in bound:
            return side.name, other
    return None


def _replaced(literal: Comparison, names: Mapping[Aggregate, Variable]) -> Comparison:
    def change(term: Term) -> Term:
        if isinstance(term, Aggregate):
            return names[term]
        return rebuilt(term, change)

    return replace(literal, left=change(literal.left), right=change(literal.right)) if names else literal


def _first_columns(atom: Atom) -> dict[str, int]:
    first: dict[str, int] = {}
    for column, term in enumerate(atom.terms):
        if isinstance(term, Variable):
            first.setdefault(term.name, column)
    return first


def _name(term: Term) -> str:
    assert isinstance(term, Variable), f"{term} is neither a constant nor a variable"
    return term.name
