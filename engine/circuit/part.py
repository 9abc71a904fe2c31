"""The part of a circuit that one placement holds, where another placement holds the rest.

In: a circuit, and the relations whose strata are away from here. Out: a circuit of the strata that are here, in which
every relation of the others that they read stands as a stratum without rules: a mirror, whose facts are the tuples that
are present in the relation. Always: strata that are the same in two circuits are the same in their parts; so are the
mirrors that a cache of them knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from engine.circuit.circuit import EMPTY, Circuit, Stratum

Mirrors = dict[tuple[str, int], Stratum]
"""The strata of mirrors that were made so far, by relation and arity."""


@dataclass(frozen=True, slots=True)
class Part:
    """See the module."""

    circuit: Circuit = EMPTY
    mirrors: frozenset[str] = frozenset()

    def keeps(self, relation: str, other: Part) -> bool:
        """Whether this part and another one hold the relation, and as the same: its state, or what is present."""
        both = relation in self.circuit.arities and relation in other.circuit.arities
        return both and (relation in self.mirrors) == (relation in other.mirrors)


def part_of(circuit: Circuit, relations: Set[str], inside: bool, known: Mirrors) -> Part:
    """The part of the strata of `relations`, or, if not `inside`, of all other strata."""
    own = [stratum for stratum in circuit.strata if (stratum.relations[0] in relations) == inside]
    names = {name for stratum in own for name in stratum.relations}
    mirrors = frozenset().union(*(stratum.reads for stratum in own)) - names
    strata: list[Stratum] = []
    for stratum in circuit.strata:
        if stratum.relations[0] in names:
            strata.append(stratum)
            continue
        for name in stratum.relations:
            if name in mirrors:
                mirror = Stratum((name,), (), False)
                strata.append(known.setdefault((name, circuit.arities[name]), mirror))
    arities = {name: circuit.arities[name] for stratum in strata for name in stratum.relations}
    return Part(Circuit.of(strata, arities), mirrors)


def whole_strata(relations: Set[str], circuits: Iterable[Circuit]) -> frozenset[str]:
    """The relations, and all that are in a stratum with one of them in any of the circuits: a state moves with all
    that it shares a stratum with, before or after.
    """
    circuits, found = list(circuits), set(relations)
    waiting = list(relations)
    while waiting:
        name = waiting.pop()
        for circuit in circuits:
            stratum = circuit.stratum_of.get(name)
            more = set(stratum.relations) - found if stratum is not None else ()
            found.update(more)
            waiting.extend(more)
    return frozenset(found)
