"""The circuit: all that a placement needs to know to maintain a program, as plain data.

In: the checked rules of weight > 0 and the arity of every relation. Out: strata in topological order with their
rules' delta plans, and the demanded indexes, each once. Always: a rule stands in the stratum of its head; whatever a
stratum reads is in it or below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.circuit.plan import CompiledRule, Demand, compile_rule
from engine.circuit.strata import components
from engine.language.syntax import Rule


@dataclass(frozen=True, slots=True)
class Stratum:
    """One strongly connected component. `recursive`: some rule of it reads a relation of it.

    `signed`: entries may be negative (an aggregate in recursion); positive programs have none.
    """

    relations: tuple[str, ...]
    rules: tuple[CompiledRule, ...]
    recursive: bool
    signed: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """The relations of lower strata that the rules read."""
        return frozenset(r for rule in self.rules for r in rule.body) - set(self.relations)


@dataclass(frozen=True, slots=True)
class Circuit:
    """See the module. `arities` holds every relation, also those that no rule mentions.

    `read_above`: the relations that a stratum above their own reads.
    """

    strata: tuple[Stratum, ...]
    demands: frozenset[Demand]
    arities: Mapping[str, int]
    stratum_of: Mapping[str, Stratum] = field(repr=False)
    read_above: frozenset[str] = frozenset()

    @property
    def rules(self) -> dict[str, CompiledRule]:
        """All rules by id."""
        return {rule.id: rule for stratum in self.strata for rule in stratum.rules}


def compile_circuit(rules: Iterable[Rule], arities: Mapping[str, int] | None = None) -> Circuit:
    """The circuit of distinct `rules`; `arities` adds relations that no rule mentions."""
    compiled = {rule.id: rule for rule in map(compile_rule, rules)}
    found = dict(arities or {})
    graph: dict[str, set[str]] = {relation: set() for relation in found}
    by_head: dict[str, list[CompiledRule]] = {}
    for rule in sorted(compiled.values(), key=lambda rule: rule.id):
        for atom in (rule.rule.head, *rule.atoms):
            known = found.setdefault(atom.relation, atom.arity)
            assert known == atom.arity, "infer_schemas checks arities"
            graph.setdefault(atom.relation, set())
        graph[rule.head].update(rule.body)
        by_head.setdefault(rule.head, []).append(rule)
    strata = []
    for members in components(graph):
        own = tuple(rule for relation in members for rule in by_head.get(relation, ()))
        recursive = any(set(rule.body) & set(members) for rule in own)
        strata.append(Stratum(members, own, recursive))
    demands = frozenset(d for rule in compiled.values() for plan in rule.plans for d in plan.demands)
    above = frozenset().union(*(stratum.reads for stratum in strata))
    return Circuit(tuple(strata), demands, found, {r: s for s in strata for r in s.relations}, above)


EMPTY = Circuit((), frozenset(), {}, {})
