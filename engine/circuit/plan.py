"""Delta plans: how the change of one body atom becomes a change of the head.

In: a checked rule. Out: one `Plan` for each body atom. A plan starts from the changed tuples of its atom and extends
the bindings by the other atoms, the one that binds most first; it ends at the head. For a body a, b the plans
together compute `da * b + a * db + da * db` (DBSP, Budiu et al., VLDB 2023, section 4: the incremental join), where a
step's `before` says whether its atom stands before the starting one in the rule: then it sees the batch applied.

Plans are plain data without codes or arrays; both placements execute them, and `GET /v1/circuit` shows them. They are
validated while they are built: each step knows every variable that it uses. Negation, computed values and aggregates
are further kinds of `Step`; the language refuses them until a placement executes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

from engine.language.canonical import rule_id
from engine.language.syntax import Atom, Constant, Rule, Variable

Source = str | Constant
"""Where a column's value comes from: the variable of that name, or a constant."""


@dataclass(frozen=True, slots=True)
class Demand:
    """An index that some plan needs: `relation` by the codes of `columns` (ascending)."""

    relation: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The changed tuples of body atom `atom` that fit its constants and repeated variables."""

    atom: int
    relation: str
    constants: tuple[tuple[int, Constant], ...]
    equal: tuple[tuple[int, int], ...]
    variables: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Join with an index: look up `key`, keep the variables `carry`, bind `kept` from the posting's columns.

    `equal` are pairs of columns that hold the same new variable. `consolidate`: something is dropped here, so that
    equal results are summed before they go on.
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
    """An atom of which every column is bound: keep the bindings whose tuple is there. Needs no index."""

    atom: int
    relation: str
    before: bool
    key: tuple[tuple[int, Source], ...]
    carry: tuple[str, ...]


Step = Extend | Check


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
            _require(known, {source for _, source in step.key if isinstance(source, str)})
            _require(known, set(step.carry))
            known = set(step.carry)
            if isinstance(step, Extend):
                known |= {name for name, _ in step.kept}
        _require(known, {source for source in self.columns if isinstance(source, str)})

    @property
    def demands(self) -> tuple[Demand, ...]:
        return tuple(step.demand for step in self.steps if isinstance(step, Extend))


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with the atoms of its body and its plans, one for each atom, in the order of the body."""

    id: str
    rule: Rule
    atoms: tuple[Atom, ...]
    plans: tuple[Plan, ...]

    @property
    def head(self) -> str:
        return self.rule.head.relation

    @property
    def body(self) -> tuple[str, ...]:
        return tuple(atom.relation for atom in self.atoms)


def _require(known: set[str], used: set[str]) -> None:
    assert used <= known, f"a plan uses unbound variables: {sorted(used - known)}"


@lru_cache(maxsize=4096)
def compile_rule(rule: Rule) -> CompiledRule:
    """The delta plans of a rule that `check_rule` has passed."""
    atoms = tuple(literal for literal in rule.body if isinstance(literal, Atom))
    assert len(atoms) == len(rule.body), "the language lets only atoms through"
    name = rule_id(rule)
    return CompiledRule(name, rule, atoms, tuple(_plan(name, rule.head, atoms, i) for i in range(len(atoms))))


def _plan(name: str, head: Atom, atoms: tuple[Atom, ...], start: int) -> Plan:
    columns = tuple(_source(term) for term in head.terms)
    order = _order(atoms, start)
    # What is still needed after each step, from the end: the head, then the keys of the steps to come.
    needed = [{source for source in columns if isinstance(source, str)}]
    for i in reversed(order):
        needed.append(needed[-1] | _variables(atoms[i]))
    needed.reverse()
    first = atoms[start]
    bound = {name: column for column, name in reversed(list(_named(first)))}
    equal = tuple((bound[name], column) for column, name in _named(first) if bound[name] != column)
    known = [name for name in _in_order(columns, bound) if name in needed[0]]
    begin = Start(
        start,
        first.relation,
        tuple((c, term) for c, term in enumerate(first.terms) if isinstance(term, Constant)),
        equal,
        tuple((name, bound[name]) for name in known),
    )
    steps: list[Step] = []
    for place, i in enumerate(order):
        step, known = _step(atoms[i], i, i < start, known, needed[place + 1], columns)
        steps.append(step)
    return Plan(name, begin, tuple(steps), head.relation, columns)


def _step(
    atom: Atom, i: int, before: bool, known: list[str], needed: set[str], head: tuple[Source, ...]
) -> tuple[Step, list[str]]:
    key: list[tuple[int, Source]] = []
    new: dict[str, int] = {}
    equal: list[tuple[int, int]] = []
    dropped = False
    for column, term in enumerate(atom.terms):
        if isinstance(term, Constant):
            key.append((column, term))
        elif isinstance(term, Variable):
            if term.name in known:
                key.append((column, term.name))
            elif term.name in new:
                equal.append((new[term.name], column))
            else:
                new[term.name] = column
                dropped = dropped or term.name not in needed
        else:
            dropped = True
    carry = tuple(name for name in known if name in needed)
    if len(key) == atom.arity:
        return Check(i, atom.relation, before, tuple(key), carry), list(carry)
    kept = [(name, new[name]) for name in _in_order(head, new) if name in needed]
    dropped = dropped or len(carry) < len(known)
    step = Extend(i, atom.relation, before, tuple(key), tuple(equal), carry, tuple(kept), dropped)
    return step, [*carry, *(name for name, _ in kept)]


def _order(atoms: tuple[Atom, ...], start: int) -> list[int]:
    """The other atoms, the one with most columns bound first; a fully bound one before all; ties by the text."""
    known = _variables(atoms[start])
    left = [i for i in range(len(atoms)) if i != start]
    order = []
    while left:
        best = max(left, key=partial(_rank_of, atoms, frozenset(known)))
        order.append(best)
        left.remove(best)
        known |= _variables(atoms[best])
    return order


def _rank_of(atoms: tuple[Atom, ...], known: frozenset[str], i: int) -> tuple[bool, bool, int, int]:
    atom = atoms[i]
    bound = sum(isinstance(t, Constant) or (isinstance(t, Variable) and t.name in known) for t in atom.terms)
    return bound == atom.arity, bool(_variables(atom) & known), bound, bound - atom.arity


def _source(term: object) -> Source:
    if isinstance(term, Variable):
        return term.name
    assert isinstance(term, Constant), "a head holds variables and constants"
    return term


def _named(atom: Atom) -> list[tuple[int, str]]:
    return [(column, term.name) for column, term in enumerate(atom.terms) if isinstance(term, Variable)]


def _variables(atom: Atom) -> set[str]:
    return {name for _, name in _named(atom)}


def _in_order(head: tuple[Source, ...], bound: dict[str, int]) -> list[str]:
    """The variables of `bound`, those of the head first and in its order, so that the last step writes the head."""
    first = [source for source in dict.fromkeys(head) if isinstance(source, str) and source in bound]
    return [*first, *(name for name in bound if name not in first)]
