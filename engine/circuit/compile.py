"""From rules to a circuit, and from one circuit to the next at the cost of the difference.

In: the checked rules of weight > 0 and the schemas of all relations; or a circuit, and the rules and relations that
have changed since it was made. Out: the circuit. Always: `update_circuit` gives the same as `compile_circuit`, except
for the order of strata that do not depend on each other. What is not affected is shared with the previous circuit: the
normal form of a rule, its plans, a stratum.

The order of strata is kept as far as possible (Pearce and Kelly, ACM J. Exp. Algorithmics 11, 2006, on nodes that are
components): a new edge against the order causes the strata between its ends to be sorted again, and an edge removed
inside a stratum causes only that stratum to be analysed again. The rest costs some copies of dictionaries, about a
microsecond for ten relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from engine.circuit.circuit import (
    EMPTY,
    Circuit,
    Step,
    Stratum,
    check_folded_together,
    check_stratified,
    declared_fold,
    merged_fold,
    undeclarable_fixpoint,
)
from engine.circuit.normal import CoreRule, Demand, Fold, Normal, normalise
from engine.circuit.plan import CompiledRule, compile_rule
from engine.circuit.strata import components
from engine.language.canonical import rule_id
from engine.language.schema import Schema
from engine.language.syntax import Fixpoint, Rule

V = TypeVar("V")
_Names = Mapping[str, None]
"""A set that keeps the order in which it was filled."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What the next circuit is made from.

    normals: the normal form of each source rule. owners: for each core rule the source rules that produce it. by_head:
    core rules by head. contributions: the folds into each target, by source rule. graph: what the rules and folds of a
    relation read. kept: relations that remain only because they still hold tuples.
    """

    normals: Mapping[str, Normal] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_head: Mapping[str, Mapping[str, CompiledRule]] = field(default_factory=dict)
    contributions: Mapping[str, Mapping[str, Fold]] = field(default_factory=dict)
    graph: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()


def compile_circuit(
    rules: Iterable[Rule],
    schemas: Mapping[str, Schema],
    fixpoints: Mapping[str, Fixpoint] | None = None,
) -> Circuit:
    """The circuit of distinct `rules` over relations with `schemas`. `fixpoints`: the settings of the relations that
    are declared `fixpoint`.

    Raises:
        StratificationError: a relation depends on its own negation, or on a count, sum or mean of itself and is not
            declared `fixpoint`; the cycle is named.
        UnsupportedFeatureError: there are folds that do not fit together.
        DeclarationError: a relation is declared `fixpoint`, but its rules fold nothing.
    """
    by_id = {rule_id(rule): rule for rule in rules}
    arities = {name: schema.arity for name, schema in schemas.items()}
    update = _Update(EMPTY, schemas, fixpoints or {}, lambda _: False)
    return update.run(by_id, sorted(by_id), arities)


def update_circuit(
    before: Circuit,
    rules: Mapping[str, Rule],
    schemas: Mapping[str, Schema],
    fixpoints: Mapping[str, Fixpoint],
    changed_rules: Iterable[str],
    changed_relations: Iterable[str],
    holds: Callable[[str], bool],
) -> Circuit:
    """The circuit of `rules`, by id, from the one `before`.

    changed_rules: the ids of the rules that were added or removed, or whose columns have other types now.
    changed_relations: those whose schema or fixpoint has changed. holds: whether a relation of the previous circuit
    holds tuples.

    Raises:
        StratificationError, UnsupportedFeatureError, DeclarationError: as `compile_circuit`.
    """
    arities = {name: schemas[name].arity if name in schemas else None for name in changed_relations}
    update = _Update(before, schemas, fixpoints, holds)
    return update.run(rules, sorted(changed_rules), arities)


class _Update:
    """The parts of the new circuit: copies of the previous ones, changed in place.

    heads: the relations whose core rules changed. dirty: the relations whose stratum must become a new object. loose:
    the relations that perhaps nothing mentions any more. edges: which relation reads which, where it did not before.
    """

    def __init__(
        self,
        before: Circuit,
        schemas: Mapping[str, Schema],
        fixpoints: Mapping[str, Fixpoint],
        holds: Callable[[str], bool],
    ) -> None:
        self._before = before
        made = before.made if isinstance(before.made, _Made) else _Made()
        self._schemas, self._fixpoints, self._holds = schemas, fixpoints, holds
        self._arities, self._graph = dict(before.arities), dict(made.graph)
        self._loose = set(made.kept)
        self._heads: set[str] = set()
        self._dirty: set[str] = set()
        self._edges: list[tuple[str, str]] = []
        self._own: set[tuple[int, str]] = set()

        # Shared with the circuit before, until `_copy`.
        self._rules = cast("dict[str, CompiledRule]", before.rules)
        self._demands = cast("dict[Demand, int]", before.demands)
        self._readers = cast("dict[str, _Names]", before.readers)
        self._folds = cast("dict[str, Fold]", before.folds)
        self._targets = cast("dict[str, _Names]", before.targets)
        self._normals = cast("dict[str, Normal]", made.normals)
        self._owners = cast("dict[str, tuple[str, ...]]", made.owners)
        self._by_head = cast("dict[str, Mapping[str, CompiledRule]]", made.by_head)
        self._contributions = cast("dict[str, Mapping[str, Fold]]", made.contributions)

    def _copy(self) -> None:
        """Called before rules, folds or dependencies change."""
        self._rules, self._demands, self._readers = (
            dict(self._rules),
            dict(self._demands),
            dict(self._readers),
        )
        self._folds, self._targets = dict(self._folds), dict(self._targets)
        self._normals, self._owners = dict(self._normals), dict(self._owners)
        self._by_head, self._contributions = dict(self._by_head), dict(self._contributions)

    def run(
        self,
        rules: Mapping[str, Rule],
        changed_rules: Sequence[str],
        changed_relations: Mapping[str, int | None],
    ) -> Circuit:
        """The circuit. changed_relations have their arity, or None if nothing but tuples is left of the relation."""
        for name, arity in changed_relations.items():
            if arity is not None:
                self._set_arity(name, arity)
            if name not in self._schemas:
                self._loose.add(name)
        refold = {target for name in changed_relations for target in self._before.targets.get(name, ())}
        declared = changed_relations.keys() & self._fixpoints.keys()
        if not (changed_rules or refold or declared):
            return self._circuit(self._drop_loose())
        self._copy()
        # All that goes first: what comes may have the same names.
        went = {id_: self._normals.pop(id_) for id_ in changed_rules if id_ in self._normals}
        came = {id_: normalise(rules[id_], self._schemas, id_) for id_ in changed_rules if id_ in rules}
        self._normals |= came
        self._change_rules(went, came)
        checked = self._change_folds(went, came, refold)
        checked |= self._heads | declared
        for name in sorted(checked):
            self._check_head(name)
            self._connect(name)
        return self._circuit(self._drop_loose())

    def _set_arity(self, name: str, arity: int) -> None:
        if self._arities.get(name) != arity:
            self._arities[name] = arity
            self._dirty.add(name)

    def _owned(self, of: dict[str, Mapping[str, V]], name: str) -> dict[str, V]:
        """The inner mapping, which from now on belongs to this update alone."""
        inner = of.get(name)
        if inner is None or (id(of), name) not in self._own:
            inner = of[name] = dict(inner or {})
            self._own.add((id(of), name))
        assert isinstance(inner, dict), "it was made here"
        return inner

    def _remove(self, of: dict[str, Mapping[str, V]], name: str, key: str) -> None:
        inner = self._owned(of, name)
        inner.pop(key, None)
        if not inner:
            del of[name]

    # ---- rules

    def _change_rules(self, went: Mapping[str, Normal], came: Mapping[str, Normal]) -> None:
        lost: dict[str, None] = {}
        for id_, normal in went.items():
            for core in normal.rules:
                self._owners[core.id] = tuple(owner for owner in self._owners[core.id] if owner != id_)
                lost[core.id] = None
        for id_, normal in came.items():
            for core in normal.rules:
                owners = self._owners.get(core.id, ())
                self._owners[core.id] = (*owners, id_)
                if not owners:
                    # One that is there is of a rule that goes, or whose columns have other types now.
                    self._replace(core)
        for core_id in lost:
            owners = self._owners[core_id]
            if owners:
                # Another rule has it too: it is that one's from now on.
                self._replace(next(core for core in self._normals[owners[0]].rules if core.id == core_id))
            else:
                self._take(self._rules[core_id])
                del self._owners[core_id]

    def _replace(self, core: CoreRule) -> None:
        known = self._rules.get(core.id)
        if known is not None and known.rule == core:
            return
        if known is not None:
            self._take(known)
        if known is not None and (known.rule.head, known.rule.body) == (core.head, core.body):
            # Only types changed, or whose rule it is: the plans are the same.
            rule = CompiledRule(core.id, core, known.plans)
        else:
            rule = compile_rule(core)
        self._rules[core.id] = rule
        self._owned(self._by_head, rule.head)[rule.id] = rule
        self._heads.add(rule.head)
        self._demand(demand for plan in rule.plans for demand in plan.demands)
        for atom in (core.head, *rule.atoms):
            if atom.relation not in self._schemas:
                self._set_arity(atom.relation, atom.arity)

    def _take(self, rule: CompiledRule) -> None:
        del self._rules[rule.id]
        self._remove(self._by_head, rule.head, rule.id)
        self._heads.add(rule.head)
        self._demand((demand for plan in rule.plans for demand in plan.demands), -1)
        self._loose.add(rule.head)

    def _demand(self, demands: Iterable[Demand], times: int = 1) -> None:
        for demand in demands:
            users = self._demands.get(demand, 0) + times
            if users:
                self._demands[demand] = users
            else:
                del self._demands[demand]

    # ---- folds

    def _change_folds(
        self, went: Mapping[str, Normal], came: Mapping[str, Normal], refold: set[str]
    ) -> set[str]:
        """Bring the folds up to date, those into `refold` in any case; returns the relations that are affected."""
        for id_, normal in went.items():
            for fold in normal.folds:
                self._remove(self._contributions, fold.target, id_)
                refold.add(fold.target)
        for id_, normal in came.items():
            for fold in normal.folds:
                self._owned(self._contributions, fold.target)[id_] = fold
                refold.add(fold.target)
        concerned: set[str] = set()
        for target in sorted(refold):
            old, new = self._folds.get(target), self._folded(target)
            if new == old:
                continue
            self._dirty.add(target)
            if old is not None:
                self._demand(old.demands, -1)
                concerned |= {target, old.relation}
                del self._folds[target]
                self._remove(self._targets, old.relation, target)
                self._loose.add(target)
            if new is not None:
                self._demand(new.demands)
                concerned |= {target, new.relation}
                self._folds[target] = new
                self._owned(self._targets, new.relation)[target] = None
                if target not in self._schemas:
                    self._set_arity(target, new.arity)
        return concerned

    def _folded(self, target: str) -> Fold | None:
        contributions = sorted(self._contributions.get(target, {}).items())
        if not contributions:
            return None
        origins = [(self._normals[id_].rules[-1].origin, fold) for id_, fold in contributions]
        return declared_fold(merged_fold(origins), self._schemas, self._fixpoints)

    def _check_head(self, name: str) -> None:
        """Check that the rules of a relation fit its folds and its declaration."""
        rules = [rule for _, rule in sorted(self._by_head.get(name, {}).items())]
        folds = [self._folds[target] for target in self._targets.get(name, ())]
        is_whole = any(fold.part_of == name for fold in folds)
        check_folded_together(name, rules, self._folds.get(name), is_whole)
        if rules and name in self._fixpoints and not any(fold.sources for fold in folds):
            raise undeclarable_fixpoint(name, rules[0])

    # ---- the graph

    def _connect(self, head: str) -> None:
        """What the rules and folds of a relation read."""
        fold = self._folds.get(head)
        reads = frozenset(fold.sources if fold is not None else ()).union(
            *(rule.body for rule in self._by_head.get(head, {}).values())
        )
        if head in self._heads:
            self._dirty.add(head)
        old = self._graph.get(head, frozenset())
        for name in old - reads:
            self._remove(self._readers, name, head)
            self._loose.add(name)
        for name in reads - old:
            self._owned(self._readers, name)[head] = None
            self._edges.append((head, name))
        self._graph[head] = reads

    def _drop_loose(self) -> frozenset[str]:
        """Drop the relations that nothing mentions and that hold nothing; returns those that still hold tuples."""
        kept = set()
        for name in self._loose:
            if name in self._schemas or any(
                name in users for users in (self._by_head, self._readers, self._folds)
            ):
                continue
            if name in self._arities and self._holds(name):
                kept.add(name)
            else:
                self._arities.pop(name, None)
                self._graph.pop(name, None)
                self._dirty.add(name)
        return frozenset(kept)

    # ---- strata

    def _circuit(self, kept: frozenset[str]) -> Circuit:
        before = self._before
        places, stratum_of = before.places, dict(before.stratum_of)
        first, last, inner = self._stretch()
        # The stretches of strata that are ordered anew: where each begins and ends, and its relations.
        alone = {places[name] for name in self._dirty & places.keys()} - set(range(first, last))
        stretches = [(place, place + 1, set(before.strata[place].relations)) for place in alone]
        if inner:
            stretches.append((first, last, inner))
        strata: list[Stratum] = []
        fresh: dict[int, Stratum] = {}
        gone: dict[int, Stratum] = {}
        done, moved = 0, len(before.strata)
        for start, stop, names in sorted(stretches, key=lambda stretch: stretch[:2]):
            strata += before.strata[done:start]
            there = names & self._arities.keys()
            old = before.strata[start:stop]
            new = [
                self._stratum(members)
                for members in components(
                    {name: self._graph.get(name, frozenset()) & there for name in there}
                )
            ]
            gone |= {id(stratum): stratum for stratum in old}
            fresh |= {id(stratum): stratum for stratum in new}
            if [stratum.relations for stratum in new] != [stratum.relations for stratum in old]:
                moved = min(moved, start)
            strata += new
            done = stop
        strata += before.strata[done:]
        for known in fresh.keys() & gone.keys():
            del fresh[known], gone[known]
        left = [name for stratum in gone.values() for name in stratum.relations if name not in self._arities]
        if moved < max(len(before.strata), len(strata)):
            places = dict(places)
            for name in left:
                del places[name]
            for place, stratum in enumerate(strata[moved:], moved):
                for name in stratum.relations:
                    places[name] = place
        for name in left:
            del stratum_of[name]
        for stratum in fresh.values():
            stratum_of |= dict.fromkeys(stratum.relations, stratum)
        made = _Made(self._normals, self._owners, self._by_head, self._contributions, self._graph, kept)
        return Circuit(
            tuple(strata),
            self._demands,
            self._arities,
            stratum_of,
            self._rules,
            self._readers,
            places,
            self._folds,
            self._targets,
            made,
            Step(before.token, tuple(fresh.values()), tuple(gone.values())),
        )

    def _stretch(self) -> tuple[int, int, set[str]]:
        """The places [first, last) of the strata whose order the new edges violate, or where the new relations go; and
        all relations that belong there from now on."""
        places, strata = self._before.places, self._before.strata
        new = {name for name in self._dirty if name not in places and name in self._arities}
        first, last = len(strata), 0
        for head, name in self._edges:
            above, below = places.get(head), places.get(name)
            if above is not None and (below is None or below > above):
                first = min(first, above)
            if below is not None and (above is None or below > above):
                last = max(last, below + 1)
        last = max(first, last)
        return first, last, new.union(*(stratum.relations for stratum in strata[first:last]))

    def _stratum(self, members: tuple[str, ...]) -> Stratum:
        """The stratum of the members: the previous object if nothing about it is new."""
        known = self._before.stratum_of.get(members[0])
        if known is not None and known.relations == members and self._dirty.isdisjoint(members):
            return known
        rules = tuple(rule for name in members for _, rule in sorted(self._by_head.get(name, {}).items()))
        recursive = any(not set(members).isdisjoint(rule.body) for rule in rules)
        folds = tuple(self._folds[name] for name in members if name in self._folds)
        stratum = Stratum(members, rules, recursive, folds)
        check_stratified(stratum, self._graph, self._schemas)
        return stratum
