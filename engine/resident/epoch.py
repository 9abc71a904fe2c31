"""One epoch of the resident placement: the work on the strata, and how to commit it or roll it back.

In: the state, the circuit of the epoch, the changed facts. Out: the changes of each relation. Always: everything that
is done is in a journal, so that `rollback` restores supports, entries and indexes; `commit` drops the journal and the
rows that nothing holds any more. A stratum that is computed from nothing is built beside the old one, and the
difference between them is passed on. The walk (engine/maintenance/epoch.py) decides how each stratum is treated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import numpy as np

from engine.circuit.circuit import Circuit, Stratum, is_internal
from engine.data.codes import Codes
from engine.errors import BudgetExceededError
from engine.maintenance.change import RelationChange
from engine.maintenance.epoch import Epoch, Held
from engine.maintenance.facts import FactDelta
from engine.maintenance.meter import Meter
from engine.maintenance.placement import Budget, Encode, Executed
from engine.maintenance.policy import Policy
from engine.resident.arrangements import Arrangements
from engine.resident.blocks import BlockedStratum, in_blocks
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.changes import is_all_derived, net_change, undo, visible_change
from engine.resident.journal import RelationJournal
from engine.resident.layout import I64
from engine.resident.relation import PushOverflow, Relation
from engine.resident.steps import Batch, Runner
from engine.resident.stratum import GROUND, ResidentStratum
from engine.resident.transfer import hold
from engine.resident.undefined import Undefined


class ResidentEpoch:
    """See the module."""

    def __init__(
        self,
        state: Arrangements,
        runner: Runner,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy,
    ) -> None:
        self._state = state
        self._runner = runner
        self._encode = encode
        self._epoch = Epoch(circuit, state.circuit, facts, policy, state.costs)
        self.meter = Meter(budget, state.relations, self.memory)
        self.mirrors: Set[str] = frozenset()
        """The relations of which only the present tuples are held here, for the strata that read them."""
        self._mirrored: list[tuple[Relation, I64, I64]] = []
        self._undefined = Undefined()
        self._journal: dict[str, RelationJournal] = {}
        self._deltas: dict[str, Batch] = {}
        self._replaced: dict[str, Relation] = {}
        self._created: list[str] = []
        self._new_indexes: list[tuple[str, tuple[int, ...]]] = []
        self._old_rules: dict[str, tuple[BoundPlan, ...] | None] = {}
        # Bytes of the relations in `_replaced`.
        self._aside = 0

    def memory(self) -> int:
        """Bytes held."""
        return self._state.memory() + self._aside + self._encode.symbols.nbytes

    def run(self) -> Executed:
        """Execute the epoch. After an error it has to be rolled back."""
        self.begin()
        self._epoch.run(lambda _: self, self.meter, self._encode)
        self.judge()
        return self._epoch.executed(self.visible(), self.meter)

    def begin(self) -> None:
        """Get ready for the walk. `meter` may be replaced before."""
        self._state.meter = self.meter
        self.install()
        runner = self._runner
        runner.symbols, runner.check, runner.meet = (
            self._encode.symbols,
            self.meter.check_time,
            self._undefined.from_plan,
        )

    def judge(self) -> None:
        """After the walk: refuse the epoch if a value does not exist that a rule needs."""
        rules, relations = self._epoch.circuit.rules, self._state.relations
        self._undefined.judge(rules, relations, self._runner, self.meter.charge, self._encode)

    def visible(self) -> Iterator[tuple[str, RelationChange]]:
        """The changes of all relations that readers know."""
        for name, changes in self._journal.items():
            if not is_internal(name):
                self._reserve_change(name)
                yield name, visible_change(self._state.relations[name], changes, self._replaced.get(name))

    # ---- what the walk asks for

    def held(self, stratum: Stratum) -> Held:
        live = asserted = 0
        for name in stratum.relations:
            relation = self._state.relations[name]
            live += relation.live
            asserted += relation.asserted
        return Held(live > 0, asserted, live)

    def work(self, stratum: Stratum, before: Stratum | None) -> ResidentStratum:
        state = self._state
        board = state.board(stratum)
        for name in stratum.relations:
            if name not in self._journal:
                self._journal[name] = board.journal(name, not state.relations[name].live)
        kind = BlockedStratum if before is None and in_blocks(stratum) else ResidentStratum
        return kind(
            stratum,
            state.relations,
            state.bound,
            self._runner,
            self.meter,
            self._journal,
            self._deltas,
            self._replaced if before is None else None,
            board,
        )

    def take_back(self, stratum: Stratum) -> None:
        # What is undone must not be refused half way.
        self._state.meter = None
        for name in stratum.relations:
            # It may have been abandoned before it was begun.
            if name in self._journal:
                self._state.resized((name,))
                undo(self._state.relations[name], self._journal.pop(name))
        self._state.meter = self.meter

    def discard(self, stratum: Stratum) -> None:
        """Put empty relations in the place of the stratum's, with the same indexes; the old ones are kept aside."""
        for name in stratum.relations:
            old = self._state.relations[name]
            if name not in self._replaced and name not in self._created:
                self._replaced[name] = old
                self._aside += old.memory()
                self._make(name, like=old)

    def changed(self, relation: str) -> bool:
        self._reserve_change(relation)
        delta = net_change(
            self._state.relations[relation], self._journal[relation], self._replaced.get(relation)
        )
        if len(delta):
            self._deltas[relation] = delta
        return len(delta) > 0

    # ---- mirrors

    def delta(self, relation: str) -> tuple[Codes, Codes]:
        """The tuples that came (1) and went (-1) in a relation that has `changed`, and these weights."""
        batch = self._deltas[relation]
        return batch.codes, np.broadcast_to(batch.weights, len(batch))

    def begin_mirror(self, relation: str, codes: Codes) -> None:
        """The tuples of a mirror that is new to the circuit, as they were before the epoch."""
        try:
            hold(self._state.relations[relation], codes)
        except PushOverflow as stop:
            raise stop.error from None

    def mirror(self, relation: str, codes: Codes, weights: Codes) -> None:
        """Tuples came and went in a relation that is mirrored here."""
        held, weights = self._state.relations[relation], np.ascontiguousarray(weights)
        try:
            rows = held.push(codes, GROUND, weights)
        except PushOverflow as stop:
            done = len(stop.rows)
            self._take_back_mirrored(held, codes[:done], weights[:done])
            raise stop.error from None
        try:
            held.change_entries(rows, weights, 0, len(rows))
        except BudgetExceededError:
            self._take_back_mirrored(held, codes, weights)
            raise
        self._mirrored.append((held, codes, weights))
        self._state.resized((relation,))
        self._deltas[relation] = Batch(codes, GROUND, weights)

    def _take_back_mirrored(self, held: Relation, codes: Codes, weights: Codes) -> None:
        """Take tuples out of a mirror again that were pushed, but whose entries are not made."""
        # What is undone must not be refused half way.
        self._state.meter = None
        held.free(np.unique(held.push(codes, GROUND, -weights)))
        self._state.meter = self.meter

    def _reserve_change(self, name: str) -> None:
        """Reserve room for the change of a relation that the epoch reports."""
        changes, relation = self._journal[name], self._state.relations[name]
        rows = len(changes.pushes[0])
        if changes.fresh or name in self._replaced:
            rows = relation.live
        kept = 18 + 8 * relation.arity
        plain = changes.fresh and name not in self._replaced and is_all_derived(relation)
        self.meter.reserve(rows * (kept if plain else 46 + kept), relation)
        self.meter.beside += rows * kept

    # ---- what the circuit demands

    def install(self) -> None:
        """Make the relations, bound plans and indexes that the new circuit demands and the old one did not."""
        state, circuit = self._state, self._epoch.circuit
        for stratum in self._epoch.fresh:
            for name in stratum.relations:
                self._install_relation(name)
        for stratum in self._epoch.fresh:
            for rule in stratum.rules:
                bound = state.bound.get(rule.id)
                # A rule may be bound again, for types that were not known: no tuple had them.
                if bound is None or (bound and bound[0].rule is not rule):
                    self._old_rules[rule.id] = bound
                    state.bound[rule.id] = bind_rule(rule, circuit.arities, self._encode)
            for demand in stratum.demands:
                relation = state.relations[demand.relation]
                if demand.columns not in relation.indexes:
                    relation.add_index(demand.columns)
                    self._new_indexes.append((demand.relation, demand.columns))

    def _install_relation(self, name: str) -> None:
        circuit, known = self._epoch.circuit, self._state.relations.get(name)
        if known is None:
            self._make(name)
            self._created.append(name)
        elif known.arity != circuit.arities[name]:
            # Nothing of the old program holds a tuple of it: the reasoner lets a schema go only then.
            assert not known.live, "a relation with tuples keeps its arity"
            self._replaced[name] = known
            self._make(name)
            self._created.append(name)
        elif not known.live and known.fold != circuit.stratum_of[name].in_place.get(name):
            # An empty relation is not rebuilt with its stratum, but must not go on as it was folded, or was not. Rules
            # that disappear still look it up.
            self._replaced[name] = known
            self._make(name, like=known)
            self._created.append(name)

    def _make(self, name: str, like: Relation | None = None) -> None:
        """An empty relation of the circuit; like: with the indexes of another."""
        circuit = self._epoch.circuit
        relation = self._state.make(name, circuit.arities[name], circuit.stratum_of[name].in_place.get(name))
        for columns in like.indexes if like is not None else ():
            relation.add_index(columns)

    # ---- the end

    def commit(self) -> None:
        """Keep the epoch."""
        state, circuit = self._state, self._epoch.circuit
        state.meter = None
        state.resized(self._journal)
        for name, changes in self._journal.items():
            relation = state.relations[name]
            if changes.fresh:
                bare = relation.negative or relation.entries < relation.live
                relation.free(relation.all_rows() if bare else np.empty(0, np.int32))
            else:
                relation.free(np.unique(changes.pushes[0]))
        for stratum in self._epoch.gone:
            state.boards.pop(id(stratum), None)
            for demand in stratum.demands:
                if demand not in circuit.demands and demand.relation in state.relations:
                    state.relations[demand.relation].indexes.pop(demand.columns, None)
                    state.resized((demand.relation,))
            for rule in stratum.rules:
                if rule.id not in circuit.rules:
                    state.bound.pop(rule.id, None)
            for name in stratum.relations:
                if name not in circuit.arities:
                    gone = name in self.mirrors or not state.relations[name].live
                    assert gone, "a relation with tuples has a schema"
                    del state.relations[name]
                    state.resized((name,))
        for held, codes, _ in self._mirrored:
            held.free(np.unique(held.rows_of(codes)))
        self._epoch.keep()
        state.circuit = circuit

    def rollback(self) -> None:
        """Drop the epoch: everything is as before."""
        state = self._state
        state.meter = None
        self._runner.workspace.end()
        state.resized((*self._journal, *self._created, *self._replaced))
        state.resized(name for name, _ in self._new_indexes)
        for name in self._created:
            del state.relations[name]
        for stratum in self._epoch.fresh:
            state.boards.pop(id(stratum), None)
        state.relations.update(self._replaced)
        for name, columns in self._new_indexes:
            relation = state.relations.get(name)
            # What a created relation stands in for gets its own indexes back with it.
            if relation is not None and name not in self._created:
                relation.indexes.pop(columns, None)
        for held, codes, weights in reversed(self._mirrored):
            rows = held.push(codes, GROUND, -weights)
            held.change_entries(rows, -weights, 0, len(rows))
            held.free(np.unique(rows))
            state.resized((held.name,))
        for name, changes in self._journal.items():
            if name not in self._created and name not in self._replaced:
                undo(state.relations[name], changes)
        for id_, bound in self._old_rules.items():
            if bound is None:
                del state.bound[id_]
            else:
                state.bound[id_] = bound
