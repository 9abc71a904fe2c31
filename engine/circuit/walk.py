"""Which strata an epoch has to visit, and in which order.

In: the circuit of the epoch and the previous one, and the relations whose facts change. Out: the strata, lower ones
first: those that are not the same objects as before, those of the facts, and, as relations are reported to have
changed, those that read them. Always: a stratum comes once, after all that it reads. The cost is proportional to the
strata that come out, whatever the total number is; if the circuit was not made from the previous one, it is one pass
over all strata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from engine.circuit.circuit import Circuit, Stratum


class Walk:
    """See the module. `fresh`: the strata that the previous circuit does not have; `gone`: those that only it has."""

    def __init__(self, circuit: Circuit, before: Circuit, facts: Iterable[str]) -> None:
        self._circuit = circuit
        self.fresh: Sequence[Stratum] = ()
        self.gone: Sequence[Stratum] = ()
        if circuit.step is not None and circuit.step.before is before.token:
            self.fresh, self.gone = circuit.step.fresh, circuit.step.gone
        elif circuit is not before:
            self.fresh, self.gone = _not_in(circuit, before), _not_in(before, circuit)
        places = {circuit.places[name] for name in facts if name in circuit.places}
        places.update(circuit.places[stratum.relations[0]] for stratum in self.fresh)
        self._waiting = sorted(places)
        self._known = places

    def __iter__(self) -> Iterator[Stratum]:
        while self._waiting:
            yield self._circuit.strata[heapq.heappop(self._waiting)]

    def changed(self, relation: str) -> None:
        """Report that tuples of the relation appeared or disappeared, so that the strata that read it will be
        visited."""
        places = self._circuit.places
        for reader in self._circuit.readers.get(relation, ()):
            place = places[reader]
            if place not in self._known:
                self._known.add(place)
                heapq.heappush(self._waiting, place)


def _not_in(circuit: Circuit, other: Circuit) -> list[Stratum]:
    """The strata of one circuit that do not occur, as objects, in the other."""
    known = other.stratum_of
    return [stratum for stratum in circuit.strata if known.get(stratum.relations[0]) is not stratum]
