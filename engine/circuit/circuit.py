"""The circuit: all that a placement needs to know to maintain a program, as plain data.

In: the checked rules of weight > 0 and the schemas of all relations. Out: strata in topological order with their
core rules' delta plans and folds, and the demanded indexes, each once. Always: a rule stands in the stratum of its
head; whatever a stratum reads is in it or below it, and what it negates or folds is below it, except that a fold
may be recursive with min and max, and with count, sum and mean where its target is declared `fixpoint`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from engine.circuit.normal import INTERNAL, TOGETHER, CoreRule, Demand, Fold, Normal, normalise
from engine.circuit.plan import CompiledRule, compile_rule
from engine.circuit.strata import components
from engine.errors import DeclarationError, StratificationError, UnsupportedFeatureError
from engine.language.canonical import format_fixpoint, rule_id
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import FIXPOINT, Fixpoint, HeadAggregate, Rule


@dataclass(frozen=True, slots=True)
class Stratum:
    """One strongly connected component. `recursive`: some rule of it reads a relation of it.

    `folds`: by target; a stratum with a fold in place, or over a source of its own, is `signed`: it may have
    entries of weight -1.
    """

    relations: tuple[str, ...]
    rules: tuple[CompiledRule, ...]
    recursive: bool
    folds: tuple[Fold, ...] = ()

    @property
    def clocked(self) -> tuple[Fold, ...]:
        """The folds over sources of which one is in the stratum: folded height by height."""
        return tuple(fold for fold in self.folds if set(fold.sources) & set(self.relations))

    @property
    def signed(self) -> bool:
        return any(not fold.sources for fold in self.folds) or bool(self.clocked)

    @property
    def reads(self) -> frozenset[str]:
        """The relations of lower strata that the rules and folds read."""
        read = {r for rule in self.rules for r in rule.body} | {
            s for fold in self.folds for s in fold.sources
        }
        return frozenset(read - set(self.relations))

    @property
    def derives(self) -> bool:
        """Whether anything in it is derived, and not only asserted."""
        return bool(self.rules or self.folds)

    @property
    def shape(self) -> object:
        """What must be the same for the stratum's state to go on: its members and how they are folded."""
        return self.relations, tuple((f.target, f.function, f.place, f.type, f.fixpoint) for f in self.folds)


@dataclass(frozen=True, slots=True)
class Circuit:
    """See the module. `arities` holds every relation, also those that no rule mentions, and internal ones.

    `read_above`: the relations that a stratum above their own reads. Relations stand under their keys (naming.py).
    """

    strata: tuple[Stratum, ...]
    demands: frozenset[Demand]
    arities: Mapping[str, int]
    stratum_of: Mapping[str, Stratum] = field(repr=False)
    read_above: frozenset[str] = frozenset()

    @property
    def rules(self) -> dict[str, CompiledRule]:
        """All core rules by id."""
        return {rule.id: rule for stratum in self.strata for rule in stratum.rules}


def is_internal(relation: str) -> bool:
    """Whether the relation is one that only the circuit knows."""
    return INTERNAL in relation


def compile_circuit(
    rules: Iterable[Rule],
    schemas: Mapping[str, Schema],
    held: Mapping[str, int] | None = None,
    fixpoints: Mapping[str, Fixpoint] | None = None,
) -> Circuit:
    """The circuit of distinct `rules` over relations with `schemas`.

    `held`: further relations that hold tuples still, with their arity. `fixpoints`: of the relations declared so.

    Raises:
        StratificationError: a relation depends on its own negation, or on a count, sum or mean of itself and is not
            declared `fixpoint`; the cycle is named.
        UnsupportedFeatureError: folds that do not fit together.
        DeclarationError: a relation is declared `fixpoint`, but its rules fold nothing.
    """
    by_id = {rule_id(rule): rule for rule in rules}
    normals = [normalise(rule, schemas) for _, rule in sorted(by_id.items())]
    core = {rule.id: rule for normal in normals for rule in normal.rules}
    folds = _folds(normals, core)
    _declare(folds, core, schemas, fixpoints or {})
    compiled = [compile_rule(rule) for _, rule in sorted(core.items())]
    arities = {**(held or {}), **{name: schema.arity for name, schema in schemas.items()}}
    graph: dict[str, set[str]] = {relation: set() for relation in arities}
    by_head: dict[str, list[CompiledRule]] = {}
    for rule in compiled:
        for atom in (rule.rule.head, *rule.atoms):
            arities.setdefault(atom.relation, atom.arity)
            graph.setdefault(atom.relation, set())
        graph[rule.head].update(rule.body)
        by_head.setdefault(rule.head, []).append(rule)
    for fold in folds.values():
        arities.setdefault(fold.target, fold.arity)
        graph.setdefault(fold.target, set()).update(fold.sources)
    strata = []
    for members in components(graph):
        own = tuple(rule for relation in members for rule in by_head.get(relation, ()))
        recursive = any(set(rule.body) & set(members) for rule in own)
        own_folds = tuple(folds[relation] for relation in members if relation in folds)
        stratum = Stratum(members, own, recursive, own_folds)
        _check_stratified(stratum, graph, schemas)
        strata.append(stratum)
    demands = {demand for rule in compiled for plan in rule.plans for demand in plan.demands}
    demands |= {demand for fold in folds.values() for demand in fold.demands}
    above = frozenset().union(*(stratum.reads for stratum in strata))
    stratum_of = {relation: stratum for stratum in strata for relation in stratum.relations}
    return Circuit(tuple(strata), frozenset(demands), arities, stratum_of, above)


EMPTY = Circuit((), frozenset(), {}, {})


def _folds(normals: Iterable[Normal], core: Mapping[str, CoreRule]) -> dict[str, Fold]:
    """The folds by target; rules that feed one target agree on it."""
    folds: dict[str, Fold] = {}
    for normal in normals:
        for fold in normal.folds:
            known = folds.get(fold.target)
            origin = normal.rules[-1].origin
            if known is None:
                folds[fold.target] = fold
            elif (known.function, known.place) != (fold.function, fold.place):
                raise UnsupportedFeatureError(
                    f"the rules of {fold.relation} aggregate in different ways: {known.function} in column "
                    f"{_column(known)}, and {fold.function} in column {_column(fold)}",
                    text=origin.text,
                    span=origin.head.span,
                )
            else:
                sources = tuple(dict.fromkeys((*known.sources, *fold.sources)))
                folds[fold.target] = replace(known, type=known.type or fold.type, sources=sources)
    parts = {fold.part_of for fold in folds.values()}
    together: dict[str, str] = {}
    for rule in core.values():
        name = rule.head.relation
        target = folds.get(name)
        is_whole = rule.id.startswith(f"{name}{TOGETHER}")
        plain = name in parts and not is_whole
        other = is_whole and together.setdefault(name, rule.id) != rule.id
        if plain or other or (target is not None and (target.sources or is_whole or not _feeds(rule))):
            raise UnsupportedFeatureError(
                f"one rule of {name} aggregates in its head, so every rule of {name} must aggregate the same columns",
                text=rule.origin.text,
                span=rule.origin.head.span,
            )
    return folds


def _column(fold: Fold) -> int:
    """The folded column of the relation in whose head the aggregate stands, counted from 1."""
    return (fold.columns[fold.place] if fold.columns else fold.place) + 1


def _declare(
    folds: dict[str, Fold],
    core: Mapping[str, CoreRule],
    schemas: Mapping[str, Schema],
    fixpoints: Mapping[str, Fixpoint],
) -> None:
    """Give the folds the types of their columns and what is declared of them."""
    for target, fold in folds.items():
        schema = schemas.get(fold.relation)
        if schema is not None:
            types = tuple(schema.columns[c].type for c in fold.columns or range(fold.arity))
            limit = fixpoints.get(fold.relation) if fold.sources else None
            folds[target] = replace(fold, types=types, fixpoint=limit)
    summed = {fold.relation for fold in folds.values() if fold.sources}
    for rule in core.values():
        name = rule.origin.head.relation
        if name in fixpoints and name not in summed:
            raise DeclarationError(
                f"{name} is declared {FIXPOINT}, which is for a count, sum or mean in the head of its rules; "
                "min and max do not need it, not even in recursion",
                text=rule.origin.text,
                span=rule.origin.head.span,
                relation=name,
            )


def _feeds(rule: CoreRule) -> bool:
    """Whether a rule of a relation that is folded in place aggregates, as its user wrote it."""
    return is_internal(rule.head.relation) or any(
        isinstance(t, HeadAggregate) for t in rule.origin.head.terms
    )


def _check_stratified(stratum: Stratum, graph: Mapping[str, set[str]], schemas: Mapping[str, Schema]) -> None:
    """No relation of the stratum depends on its own negation, or on a fold of itself that is not declared so.

    min and max may be recursive, and a fold of which only the domain is: there the groups depend on the stratum, but
    what is folded does not.
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
    """What to write for a recursive fold to be evaluated."""
    schema = schemas.get(fold.relation)
    if schema is None:
        return (
            "; an aggregate in a body cannot be recursive: write it in the head of a relation of its own, and declare "
            f"that {FIXPOINT}"
        )
    columns = ", ".join(f"{c.name}: {c.type.value if c.type else '...'}" for c in schema.columns)
    limit = format_fixpoint(Fixpoint(1e-9 if fold.result is ColumnType.FLOAT else 0.0))
    return f"; if the limit of the iteration is meant, declare .decl {fold.relation}({columns}) {limit}"


def _cycle(
    origin: Rule,
    head: str,
    below: str,
    how: str,
    members: set[str],
    graph: Mapping[str, set[str]],
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
