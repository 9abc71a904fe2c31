"""The relations, indexes and plans of one stratum in the form that the compiled loop reads (climb.py).

In: a stratum with its bound plans, and the relations as they are. Out: a table of addresses with a line for each
relation and index, the stratum's own relations first, and a tape of plans. Always: `refresh` writes what has changed
since the last time, so that an epoch costs a comparison for each relation and index.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np

from engine.circuit.circuit import Stratum
from engine.resident import views
from engine.resident.bound import BoundPlan, BoundStep
from engine.resident.journal import Logs, RelationJournal
from engine.resident.layout import I64, NONE
from engine.resident.relation import Relation
from engine.resident.tape import written


class Board:
    """See the module. `names`: relations by number. own: how many of them are the stratum's. plans, bounds: the plans
    that start at own relations, as `climb` takes them.
    """

    def __init__(self, stratum: Stratum, bound: Mapping[str, tuple[BoundPlan, ...]]) -> None:
        self.stratum = stratum
        self.own = len(stratum.relations)
        self.names: list[str] = sorted(stratum.relations)
        self.relations: I64 = np.zeros((self.own, views.RELATION_LINE), np.int64)
        self.indexes: I64 = np.zeros((0, views.INDEX_LINE), np.int64)
        self._numbers = {name: n for n, name in enumerate(self.names)}
        self._index_numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._seen: list[int] = [0] * self.own
        self._seen_indexes: list[int] = []
        self._columns: list[tuple[int, ...]] = []
        self._places: dict[int, int] = {}
        self._plans: dict[int, BoundPlan] = {}
        self.tape: I64 = np.empty(0, np.int64)
        self._logs: dict[str, Logs] = {}
        starting: list[int] = []
        bounds = [0]
        for name in self.names:
            for plans in _by_sight(stratum, bound, name):
                starting += (self.place(plan) for plan in plans)
                bounds.append(len(starting))
        self.plans, self.bounds = np.array(starting, np.int64), np.array(bounds, np.int64)

    def twin(self) -> Board:
        """A board with the same plans, for other relations of the same names. No plan may come to either after that."""
        other = copy(self)
        other.relations, other.indexes = self.relations.copy(), self.indexes.copy()
        other._seen, other._seen_indexes = self._seen.copy(), self._seen_indexes.copy()
        return other

    def journal(self, name: str, fresh: bool) -> RelationJournal:
        """A journal for one of the stratum's relations; the one before is at an end."""
        known = self._logs.get(name)
        logs = self._logs[name] = Logs() if known is None else known.cleared()
        return RelationJournal(fresh, logs)

    # ---- plans

    def place(self, plan: BoundPlan) -> int:
        """Where a plan is on the tape."""
        place = self._places.get(id(plan))
        if place is None:
            place = self._places[id(plan)] = len(self.tape)
            self._plans[place] = plan
            own = set(self.stratum.relations)
            line = written(plan, self.number, self._index_number, own.__contains__)
            self.tape = np.concatenate((self.tape, np.array(line, np.int64)))
        return place

    def plan(self, place: int) -> BoundPlan:
        """The plan at a place."""
        return self._plans[place]

    def number(self, name: str) -> int:
        """The line of a relation."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self._seen.append(0)
            self.relations = np.concatenate((self.relations, np.zeros((1, views.RELATION_LINE), np.int64)))
        return number

    def _index_number(self, name: str, columns: tuple[int, ...]) -> int:
        number = self._index_numbers.get((name, columns))
        if number is None:
            number = self._index_numbers[name, columns] = len(self._seen_indexes)
            self._seen_indexes.append(0)
            self._columns.append(columns)
            self.indexes = np.concatenate((self.indexes, np.zeros((1, views.INDEX_LINE), np.int64)))
        return number

    def columns(self, at: int) -> tuple[int, ...]:
        """The columns of an index by its line."""
        return self._columns[at]

    # ---- addresses

    def refresh(self, relations: Mapping[str, Relation]) -> None:
        """Write the addresses of all relations and indexes that are not as they were."""
        for name in self.names:
            relation = relations.get(name)
            # A plan of the rules before may name a relation that is gone: then it does not start.
            if relation is not None:
                self.refresh_relation(relation)

    def refresh_relation(self, relation: Relation) -> None:
        """The same for one relation."""
        number = self._numbers[relation.name]
        if self._seen[number] != relation.stamp:
            line = self.relations[number]
            views.write_relation(line, relation.arrays)
            line[views.MARKS_AT] = relation.marks.ctypes.data
            self._seen[number] = relation.stamp
        following = NONE
        for columns, index in relation.indexes.items():
            at = self._index_number(relation.name, columns)
            if self._seen_indexes[at] != index.stamp:
                views.write_index(self.indexes[at], index.arrays)
                self._seen_indexes[at] = index.stamp
            self.indexes[at, views.NEXT] = following
            following = at
        self.relations[number, views.FIRST] = following


def _by_sight(
    stratum: Stratum, bound: Mapping[str, tuple[BoundPlan, ...]], name: str
) -> tuple[list[BoundPlan], list[BoundPlan], list[BoundPlan]]:
    """The plans that start at a relation, by what their other atoms of it see: the old one, both, the new one."""
    early: list[BoundPlan] = []
    mixed: list[BoundPlan] = []
    late: list[BoundPlan] = []
    for rule in stratum.rules:
        for plan in bound[rule.id]:
            if plan.start.relation == name:
                same = {s.before for s in plan.steps if isinstance(s, BoundStep) and s.relation == name}
                (mixed if len(same) == 2 else late if True in same else early).append(plan)
    return early, mixed, late
