"""Delta plans: how the change of one body atom becomes a change of the head.

In: a core rule. Out: one `Plan` for each atom of the body, including negated ones. A plan starts from the changed
tuples of its atom and extends the bindings by the other literals: conditions and negated atoms as soon as their
variables are bound, atoms in the order that binds most first; it ends at the head. For a body a, b the plans together
compute `da * b + a * db + da * db` (DBSP, Budiu et al., VLDB 2023, section 4: the incremental join), where a step's
`before` says whether its atom stands before the starting one in the rule: then it sees the batch applied. A tuple that
appears in a negated relation removes derivations: its plan starts with the weights negated.

Plans are plain data without codes or arrays; both placements execute them, and `GET /v1/circuit` shows them. They are
validated while they are built: each step knows every variable that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from engine.circuit.normal import CoreRule, Demand
from engine.language.binding import sides
from engine.language.syntax import Atom, Comparison, Constant, Negation, Term, Variable, names_of

Source = str | Constant
"""The source of a column's value: the variable of that name, or a constant."""


@dataclass(frozen=True, slots=True)
class Start:
    """The changed tuples of literal `atom` that fit its constants and repeated variables.

    `negated`: the atom is negated, so that a tuple that appears counts -1.
    """

    atom: int
    relation: str
    negated: bool
    constants: tuple[tuple[int, Constant], ...]
    equal: tuple[tuple[int, int], ...]
    variables: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Join with an index: look up `key`, keep the variables `carry`, bind `kept` from the posting's columns.

    `equal` are pairs of columns that hold the same new variable. `consolidate`: variables are dropped here, so equal
    results are summed before they go on.
    """

    atom: int
    relation: str
    before: bool
    key: tuple[tuple[int, Source], ...]
    equal: tuple[tuple[int, int], ...]
    carry: tuple[str, ...]
    kept: tuple[tuple[str, int], ...]
    consolidate: bool

    @property
    def demand(self) -> Demand:
        return Demand(self.relation, tuple(column for column, _ in self.key))


@dataclass(frozen=True, slots=True)
class Check:
    """An atom whose columns are all bound: keep the bindings whose tuple is there. Needs no index."""

    atom: int
    relation: str
    before: bool
    key: tuple[tuple[int, Source], ...]
    carry: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """A negated atom: keep the bindings whose tuple is not there. Needs no index."""

    atom: int
    relation: str
    before: bool
    key: tuple[tuple[int, Source], ...]
    carry: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Let:
    """Bind `name` to the value of a term over bound variables. `literal`: its place in the rule's body."""

    literal: int
    name: str
    term: Term
    carry: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """Keep the bindings that satisfy a condition on bound variables. `literal`: its place in the rule's body."""

    literal: int
    condition: Comparison
    carry: tuple[str, ...]


Step = Extend | Check | Absent | Let | Where


@dataclass(frozen=True, slots=True)
class Plan:
    """From the change of one atom of one rule to the change of its head."""

    rule: str
    start: Start
    steps: tuple[Step, ...]
    head: str
    columns: tuple[Source, ...]

    def __post_init__(self) -> None:
        known = {name for name, _ in self.start.variables}
        for step in self.steps:
            _require(known, _used_by(step))
            _require(known, set(step.carry))
            known = set(step.carry) | set(_bound_by(step))
        _require(known, {source for source in self.columns if isinstance(source, str)})

    @property
    def demands(self) -> tuple[Demand, ...]:
        return tuple(step.demand for step in self.steps if isinstance(step, Extend))


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A core rule with its plans, one for each atom of the body, in the order of the body."""

    id: str
    rule: CoreRule
    plans: tuple[Plan, ...]
    head: str = field(init=False, repr=False, compare=False)
    body: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The relations that the rule reads, including those that it negates."""
    negated: frozenset[str] = field(init=False, repr=False, compare=False)
    """The relations that the rule negates."""
    computes: bool = field(init=False, repr=False, compare=False)
    """Whether the rule computes values."""
    computes_unknown: bool = field(init=False, repr=False, compare=False)
    """Whether the rule computes with a value of unknown type. Then it derives nothing, because a column of unknown type
    has no tuples. When the column gets tuples, and so a type, the rule is compiled anew, and the new one sees them."""

    def __post_init__(self) -> None:
        # Asked for again and again, for every rule of a stratum.
        negated = frozenset(atom.relation for atom, negated in _atoms(self.rule) if negated)
        object.__setattr__(self, "head", self.rule.head.relation)
        object.__setattr__(self, "body", tuple(plan.start.relation for plan in self.plans))
        object.__setattr__(self, "negated", negated)
        types = dict(self.rule.types)
        computed = (names_of(literal) for literal in self.rule.body if isinstance(literal, Comparison))
        unknown = any(types.get(name) is None for names in computed for name in names)
        lets = any(isinstance(step, Let) for plan in self.plans for step in plan.steps)
        object.__setattr__(self, "computes", lets)
        object.__setattr__(self, "computes_unknown", unknown)

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The atoms of the body, including the negated ones."""
        return tuple(atom for atom, _ in _atoms(self.rule))


def _require(known: set[str], used: set[str]) -> None:
    assert used <= known, f"a plan uses unbound variables: {sorted(used - known)}"


def _used_by(step: Step) -> set[str]:
    match step:
        case Let():
            return names_of(step.term)
        case Where():
            return names_of(step.condition)
        case _:
            return {source for _, source in step.key if isinstance(source, str)}


def _bound_by(step: Step) -> tuple[str, ...]:
    match step:
        case Extend():
            return tuple(name for name, _ in step.kept)
        case Let():
            return (step.name,)
        case _:
            return ()


def _atoms(rule: CoreRule) -> list[tuple[Atom, bool]]:
    """The atoms of the body, each with whether it is negated."""
    return [
        (literal.atom, True) if isinstance(literal, Negation) else (literal, False)
        for literal in rule.body
        if not isinstance(literal, Comparison)
    ]


@lru_cache(maxsize=4096)
def compile_rule(rule: CoreRule) -> CompiledRule:
    """The delta plans of a core rule."""
    starts = [i for i, literal in enumerate(rule.body) if not isinstance(literal, Comparison)]
    names = [names_of(literal) for literal in rule.body]
    return CompiledRule(rule.id, rule, tuple(_Planner(rule, start, names).plan() for start in starts))


class _Planner:
    """Builds the plan that starts at one literal; `names` are the variables of each."""

    def __init__(self, rule: CoreRule, start: int, names: Sequence[set[str]]) -> None:
        self._rule = rule
        self._names = names
        self._start = start
        self._columns = tuple(_source(term) for term in rule.head.terms)
        # Atoms are numbered without the conditions, as everywhere outside of this module.
        self._numbers: dict[int, int] = {}
        for i, literal in enumerate(rule.body):
            if not isinstance(literal, Comparison):
                self._numbers[i] = len(self._numbers)

    def plan(self) -> Plan:
        first = self._rule.body[self._start]
        atom = first.atom if isinstance(first, Negation) else first
        assert isinstance(atom, Atom), "a plan starts at an atom"
        order = self._order()
        # What is still needed after each step, from the end: the head, then what the steps to come use.
        needed = [{source for source in self._columns if isinstance(source, str)}]
        for i in reversed(order):
            needed.append(needed[-1] | self._names[i])
        needed.reverse()
        bound = {name: column for column, name in reversed(_named(atom))}
        known = [name for name in _in_order(self._columns, bound) if name in needed[0]]
        begin = Start(
            self._numbers[self._start],
            atom.relation,
            isinstance(first, Negation),
            tuple((c, term) for c, term in enumerate(atom.terms) if isinstance(term, Constant)),
            tuple((bound[name], column) for column, name in _named(atom) if bound[name] != column),
            tuple((name, bound[name]) for name in known),
        )
        steps: list[Step] = []
        for place, i in enumerate(order):
            step = self._step(i, known, needed[place + 1])
            steps.append(step)
            known = [*step.carry, *_bound_by(step)]
        return Plan(self._rule.id, begin, tuple(steps), self._rule.head.relation, self._columns)

    def _order(self) -> list[int]:
        """The other literals: those that need no look-up as soon as their variables are bound, then the best atom to
        join."""
        body = self._rule.body
        known = set(self._names[self._start])
        left = [i for i in range(len(body)) if i != self._start]
        order = []
        while left:
            ready = next((i for i in left if self._is_ready(i, known)), None)
            if ready is None:
                atoms = [
                    (i, literal) for i, literal in enumerate(body) if i in left and isinstance(literal, Atom)
                ]
                assert atoms, "check_rule passes only rules whose literals can all be bound"
                ready = atoms[0][0]
                if len(atoms) > 1:
                    ready = max(atoms, key=lambda pair, known=frozenset(known): _rank(pair[1], known))[0]  # type: ignore[misc]
            order.append(ready)
            left.remove(ready)
            known |= self._names[ready]
        return order

    def _is_ready(self, i: int, known: set[str]) -> bool:
        literal = self._rule.body[i]
        if isinstance(literal, Atom):
            return False
        missing = self._names[i] - known
        return not missing or (isinstance(literal, Comparison) and equation(literal, known) is not None)

    def _step(self, i: int, known: list[str], needed: set[str]) -> Step:
        literal = self._rule.body[i]
        carry = tuple(name for name in known if name in needed)
        match literal:
            case Comparison():
                found = equation(literal, set(known))
                if found is None:
                    return Where(i, literal, carry)
                return Let(i, *found, carry)
            case Negation():
                return Absent(
                    self._numbers[i], literal.atom.relation, i < self._start, _key(literal.atom, known), carry
                )
            case Atom():
                return self._join(literal, i, known, needed, carry)

    def _join(self, atom: Atom, i: int, known: list[str], needed: set[str], carry: tuple[str, ...]) -> Step:
        key = _key(atom, known)
        number, before = self._numbers[i], i < self._start
        if len(key) == atom.arity:
            return Check(number, atom.relation, before, key, carry)
        new: dict[str, int] = {}
        equal: list[tuple[int, int]] = []
        dropped = len(carry) < len(known)
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable) and term.name not in known:
                if term.name in new:
                    equal.append((new[term.name], column))
                else:
                    new[term.name] = column
                    dropped = dropped or term.name not in needed
            elif not isinstance(term, Variable | Constant):
                dropped = True
        kept = tuple((name, new[name]) for name in _in_order(self._columns, new) if name in needed)
        return Extend(number, atom.relation, before, key, tuple(equal), carry, kept, dropped)


def _rank(atom: Atom, known: frozenset[str]) -> tuple[bool, bool, int, int]:
    """A fully bound atom comes first, then one that is connected, then the one with the most bound columns."""
    bound = len(_key(atom, known))
    return bound == atom.arity, bool(names_of(atom) & known), bound, bound - atom.arity


def _key(atom: Atom, known: Iterable[str]) -> tuple[tuple[int, Source], ...]:
    """The columns of an atom whose value is known, with its source."""
    return tuple(
        (column, _source(term))
        for column, term in enumerate(atom.terms)
        if isinstance(term, Constant) or (isinstance(term, Variable) and term.name in known)
    )


def equation(literal: Comparison, known: set[str]) -> tuple[str, Term] | None:
    """(variable, term) if the literal is an equation that binds a new variable to a term of known ones."""
    return next(
        (
            (target, term)
            for target, term in sides(literal)
            if target not in known and names_of(term) <= known
        ),
        None,
    )


def _source(term: object) -> Source:
    if isinstance(term, Variable):
        return term.name
    assert isinstance(term, Constant), "a head holds variables and constants"
    return term


def _named(atom: Atom) -> list[tuple[int, str]]:
    return [(column, term.name) for column, term in enumerate(atom.terms) if isinstance(term, Variable)]


def _in_order(head: tuple[Source, ...], bound: dict[str, int]) -> list[str]:
    """The variables of `bound`, those of the head first and in its order, so that the last step writes the head."""
    first = [source for source in dict.fromkeys(head) if isinstance(source, str) and source in bound]
    return [*first, *(name for name in bound if name not in first)]
