"""What a resident placement holds from epoch to epoch: arranged relations, bound plans, and the memory they take."""

from __future__ import annotations

from collections.abc import Iterable

from engine.circuit.circuit import EMPTY, Stratum
from engine.circuit.normal import Fold
from engine.maintenance.epoch import Costs
from engine.maintenance.meter import Meter
from engine.resident.board import Board
from engine.resident.bound import BoundPlan
from engine.resident.relation import Relation


class Arrangements:
    """See the module. `meter`: watches what grows while an epoch is executed; None at other times."""

    def __init__(self) -> None:
        self.circuit = EMPTY
        self.relations: dict[str, Relation] = {}
        self.bound: dict[str, tuple[BoundPlan, ...]] = {}
        # By the identity of the stratum, which a board holds.
        self.boards: dict[int, Board] = {}
        self.costs: Costs = {}
        self.meter: Meter | None = None
        # The bytes of each relation, but of those whose arrays have changed since: these are looked at when asked for.
        self._bytes: dict[str, int] = {}
        self._all_bytes = 0
        self._resized: set[str] = set()

    def make(self, name: str, arity: int, fold: Fold | None) -> Relation:
        """Make an empty relation, which replaces any relation of that name. fold: over its own tuples."""
        self._resized.add(name)
        relation = self.relations[name] = Relation(name, arity, self._grows, fold)
        return relation

    def board(self, stratum: Stratum) -> Board:
        """The board of a stratum whose rules are bound."""
        found = self.boards.get(id(stratum))
        if found is None:
            found = self.boards[id(stratum)] = Board(stratum, self.bound)
        return found

    def resized(self, names: Iterable[str]) -> None:
        """The arrays of these relations may have another size now, or may no longer exist."""
        self._resized.update(names)

    def memory(self) -> int:
        """Bytes of all relations."""
        for name in self._resized:
            relation = self.relations.get(name)
            self._all_bytes -= self._bytes.pop(name, 0)
            if relation is not None:
                self._bytes[name] = relation.memory()
                self._all_bytes += self._bytes[name]
        self._resized.clear()
        return self._all_bytes

    def _grows(self, relation: Relation, size: int) -> None:
        if self.meter is not None:
            self.meter.reserve(size, relation)
        self._resized.add(relation.name)
