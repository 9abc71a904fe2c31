"""The circuit: all that a placement needs to know to maintain a program, as plain data.

A circuit has the strata in topological order, with the delta plans and folds of their core rules, and the demanded
indexes, each once. Always: a rule belongs to the stratum of its head; whatever a stratum reads is in it or below it,
and what it negates or folds is below it, with one exception: a fold may be recursive with min and max, and with count,
sum and mean if its target is declared `fixpoint`. Circuits are values that share what they have in common: a stratum
that is not affected by a change of the program is the same object before and after (compile.py sees to that), so that a
placement can tell which strata are new.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from engine.circuit.normal import INTERNAL, TOGETHER, CoreRule, Demand, Fold
from engine.circuit.plan import CompiledRule
from engine.errors import DeclarationError, StratificationError, UnsupportedFeatureError
from engine.language.canonical import format_fixpoint
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import FIXPOINT, Constant, Fixpoint, HeadAggregate, Rule, walk


@dataclass(frozen=True, slots=True)
class Stratum:
    """One strongly connected component. `recursive`: one of its rules reads one of its relations.

    `folds`: by target; a stratum with a fold in place, or with a fold over a source in the same stratum, is `signed`:
    it may have entries of weight -1.
    """

    relations: tuple[str, ...]
    rules: tuple[CompiledRule, ...]
    recursive: bool
    folds: tuple[Fold, ...] = ()

    @property
    def clocked(self) -> tuple[Fold, ...]:
        """The folds that have a source in this stratum; they are folded height by height."""
        return tuple(fold for fold in self.folds if set(fold.sources) & set(self.relations))

    @property
    def in_place(self) -> dict[str, Fold]:
        """The folds over a relation's own tuples, by relation."""
        return {fold.target: fold for fold in self.folds if not fold.sources}

    @property
    def signed(self) -> bool:
        return bool(self.in_place or self.clocked)

    @property
    def computes(self) -> bool:
        """Whether a recursive rule computes values, so that the recursion need not end by itself."""
        own = set(self.relations)
        return any(rule.computes and not own.isdisjoint(rule.body) for rule in self.rules)

    @property
    def reads(self) -> frozenset[str]:
        """The relations of lower strata that the rules and folds read."""
        read = {r for rule in self.rules for r in rule.body} | {
            s for fold in self.folds for s in fold.sources
        }
        return frozenset(read - set(self.relations))

    def rules_before(self, before: Stratum) -> set[str]:
        """The ids of the rules of the stratum as it was `before` that carry changes of lower relations. Rules that
        could not derive anything because of unknown types, and are gone or have known types now, are left out."""
        now = {rule.id: rule for rule in self.rules}
        return {rule.id for rule in before.rules if not rule.computes_unknown or now.get(rule.id) == rule}

    @property
    def derives(self) -> bool:
        """Whether the stratum has rules or folds, and not only asserted facts."""
        return bool(self.rules or self.folds)

    @property
    def demands(self) -> Iterator[Demand]:
        """The indexes that the steps of plans and the folds need; the same one may occur several times."""
        yield from (demand for rule in self.rules for plan in rule.plans for demand in plan.demands)
        yield from (demand for fold in self.folds for demand in fold.demands)

    @property
    def shape(self) -> object:
        """What must stay the same for the stratum's state to be kept: its members and how they are folded."""
        return self.relations, tuple((f.target, f.function, f.place, f.type, f.fixpoint) for f in self.folds)


@dataclass(frozen=True, slots=True)
class Step:
    """The step from one circuit, identified by its token, to the next: the strata that were added and removed."""

    before: object
    fresh: tuple[Stratum, ...]
    gone: tuple[Stratum, ...]


@dataclass(frozen=True, slots=True)
class Circuit:
    """See the module. `arities` holds every relation, including those that no rule mentions, and internal ones.
    Relations are named by their keys (naming.py).

    demands: the indexes, each with the number of plans and folds that use it. rules: all core rules by id. readers: for
    each relation the relations whose rules or folds read it. places: the place of each relation's stratum in `strata`.
    folds: by target. targets: for each relation the targets of the folds in its heads. made: what compile.py needs to
    make the next circuit from this one. step: what differs from the circuit that this one was made from.
    """

    strata: tuple[Stratum, ...]
    demands: Mapping[Demand, int]
    arities: Mapping[str, int]
    stratum_of: Mapping[str, Stratum] = field(repr=False)
    rules: Mapping[str, CompiledRule] = field(repr=False)
    readers: Mapping[str, Mapping[str, None]] = field(repr=False)
    places: Mapping[str, int] = field(repr=False)
    folds: Mapping[str, Fold] = field(default_factory=dict, repr=False)
    targets: Mapping[str, Mapping[str, None]] = field(default_factory=dict, repr=False)
    made: object = field(default=None, repr=False, compare=False)
    step: Step | None = field(default=None, repr=False, compare=False)
    token: object = field(default_factory=object, repr=False, compare=False)
    """Identifies this circuit without keeping it in memory."""

    @classmethod
    def of(cls, strata: Sequence[Stratum], arities: Mapping[str, int]) -> Circuit:
        """The circuit of strata that are in order already."""
        rules = {rule.id: rule for stratum in strata for rule in stratum.rules}
        folds = {fold.target: fold for stratum in strata for fold in stratum.folds}
        targets: dict[str, dict[str, None]] = {}
        for fold in folds.values():
            targets.setdefault(fold.relation, {})[fold.target] = None
        readers: dict[str, dict[str, None]] = {}
        demands = Counter(demand for stratum in strata for demand in stratum.demands)
        for stratum in strata:
            for rule in stratum.rules:
                for relation in rule.body:
                    readers.setdefault(relation, {})[rule.head] = None
        for fold in folds.values():
            for relation in fold.sources:
                readers.setdefault(relation, {})[fold.target] = None
        return cls(
            tuple(strata),
            demands,
            arities,
            {name: stratum for stratum in strata for name in stratum.relations},
            rules,
            readers,
            {name: place for place, stratum in enumerate(strata) for name in stratum.relations},
            folds,
            targets,
        )

    def is_read_above(self, relation: str) -> bool:
        """Whether a stratum above its own reads the relation."""
        own = self.stratum_of.get(relation)
        return any(self.stratum_of[reader] is not own for reader in self.readers.get(relation, ()))

    def folds_of(self, relation: str) -> list[Fold]:
        """The folds in the heads of a relation's rules."""
        return [self.folds[target] for target in self.targets.get(relation, ())]


EMPTY = Circuit((), {}, {}, {}, {}, {}, {})


def is_internal(relation: str) -> bool:
    """Whether the relation is internal to the circuit."""
    return INTERNAL in relation


def texts_of(circuit: Circuit) -> set[str]:
    """The symbols that its rules name."""
    nodes = (
        node
        for rule in circuit.rules.values()
        for part in (rule.rule.head, *rule.rule.body)
        for node in walk(part)
    )
    return {node.value for node in nodes if isinstance(node, Constant) and isinstance(node.value, str)}


def merged_fold(contributions: Sequence[tuple[Rule, Fold]]) -> Fold:
    """The fold of a target to which at least one rule contributes.

    Raises:
        UnsupportedFeatureError: the rules do not agree on it.
    """
    _, known = contributions[0]
    for origin, fold in contributions:
        if (known.function, known.place) != (fold.function, fold.place):
            raise UnsupportedFeatureError(
                f"the rules of {fold.relation} aggregate in different ways: {known.function} in column "
                f"{_column(known)}, and {fold.function} in column {_column(fold)}",
                text=origin.text,
                span=origin.head.span,
            )
    sources = dict.fromkeys(source for _, fold in contributions for source in fold.sources)
    kinds = (fold.type for _, fold in contributions)
    return replace(
        known, type=next((kind for kind in kinds if kind is not None), None), sources=tuple(sources)
    )


def check_folded_together(
    name: str, rules: Iterable[CompiledRule], target: Fold | None, is_whole_of_parts: bool
) -> None:
    """Check that the rules with the head `name` fit together. target: the fold into it. is_whole_of_parts: several
    folds make it up.

    Raises:
        UnsupportedFeatureError: one rule aggregates, and another does not or aggregates other columns.
    """
    together: str | None = None
    for rule in rules:
        is_whole = rule.id.startswith(f"{name}{TOGETHER}")
        plain = is_whole_of_parts and not is_whole
        together = together or (rule.id if is_whole else None)
        other = is_whole and together != rule.id
        if plain or other or (target is not None and (target.sources or is_whole or not _feeds(rule.rule))):
            raise UnsupportedFeatureError(
                f"one rule of {name} aggregates in its head, so every rule of {name} must aggregate the same columns",
                text=rule.rule.origin.text,
                span=rule.rule.origin.head.span,
            )


def _column(fold: Fold) -> int:
    """The folded column of the relation in whose head the aggregate stands, counted from 1."""
    return (fold.columns[fold.place] if fold.columns else fold.place) + 1


def declared_fold(fold: Fold, schemas: Mapping[str, Schema], fixpoints: Mapping[str, Fixpoint]) -> Fold:
    """The fold with the types of its columns and the `fixpoint` that is declared for it."""
    schema = schemas.get(fold.relation)
    if schema is None:
        return fold
    types = tuple(schema.columns[c].type for c in fold.columns or range(fold.arity))
    limit = fixpoints.get(fold.relation) if fold.sources else None
    return replace(fold, types=types, fixpoint=limit)


def undeclarable_fixpoint(name: str, rule: CompiledRule) -> DeclarationError:
    """The error for a relation that is declared `fixpoint` although its rule `rule` has no count, sum or mean."""
    return DeclarationError(
        f"{name} is declared {FIXPOINT}, which applies only to a count, sum or mean in the head of its rules; "
        "min and max do not need it, even in recursion; remove it from the declaration",
        text=rule.rule.origin.text,
        span=rule.rule.origin.head.span,
        relation=name,
    )


def _feeds(rule: CoreRule) -> bool:
    """Whether a rule of a relation that is folded in place aggregates, as its user wrote it."""
    return is_internal(rule.head.relation) or any(
        isinstance(t, HeadAggregate) for t in rule.origin.head.terms
    )


def check_stratified(stratum: Stratum, graph: Mapping[str, Set[str]], schemas: Mapping[str, Schema]) -> None:
    """Check that no relation of the stratum depends on its own negation, or on a fold of itself that is not declared
    `fixpoint`.

    min and max may be recursive. So may a fold of which only the domain is in the stratum: then the groups depend on
    the stratum, but the folded values do not.
    """
    members = set(stratum.relations)
    for rule in stratum.rules:
        for relation in sorted(rule.negated & members):
            raise _cycle(rule.rule.origin, rule.head, relation, "negation", members, graph)
    for fold in stratum.clocked:
        if fold.fixpoint is not None:
            continue
        for rule in stratum.rules:
            if rule.head in fold.sources and set(rule.body) & members - {fold.domain}:
                hint = _how_to_declare(fold, rule.rule.origin, schemas)
                raise _cycle(
                    rule.rule.origin,
                    fold.target,
                    rule.head,
                    fold.written or fold.function,
                    members,
                    graph,
                    hint,
                )


def _how_to_declare(fold: Fold, origin: Rule, schemas: Mapping[str, Schema]) -> str:
    """How to write a recursive fold so that it can be evaluated."""
    schema = schemas.get(fold.relation)
    if schema is None:
        return (
            "; an aggregate in a body cannot be recursive: write it in the head of a relation of its own, and declare "
            f"that relation {FIXPOINT}"
        )
    columns = ", ".join(f"{c.name}: {c.type.value if c.type else '...'}" for c in schema.columns)
    limit = format_fixpoint(Fixpoint(1e-9 if fold.result is ColumnType.FLOAT else 0.0))
    return f"; if you mean the limit of the iteration, write .decl {fold.relation}({columns}) {limit}"


def _cycle(
    origin: Rule,
    head: str,
    below: str,
    how: str,
    members: set[str],
    graph: Mapping[str, Set[str]],
    hint: str = "",
) -> StratificationError:
    """The error, with the shortest way from the relation below back to the head."""
    came_from: dict[str, str] = {}
    todo = deque([below])
    while todo and head not in came_from and below != head:
        node = todo.popleft()
        for other in sorted(graph[node] & members):
            if other not in came_from and other != below:
                came_from[other] = node
                todo.append(other)
    path = [head]
    while path[-1] != below:
        path.append(came_from[path[-1]])
    cycle = [name for name in reversed(path) if not is_internal(name)]
    # Begin at the relation whose rule it is, as far as it is on the cycle.
    at = cycle.index(origin.head.relation) if origin.head.relation in cycle else 0
    cycle = cycle[at:] + cycle[:at]
    text = " -> ".join([*cycle, cycle[0]])
    return StratificationError(
        f"{cycle[0]} depends on itself through {how}: {text}{hint}",
        text=origin.text,
        span=origin.span,
        cycle=cycle,
    )
