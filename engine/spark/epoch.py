"""One epoch on Spark: the work on the strata, and the new versions of relations that it produces.

In: the state, the circuit of the epoch, the changed facts. Out: the changes of each relation. Always: the versions of
the state stay as they are until `commit`; so `rollback` forgets the new ones, and `commit` the old ones. The walk
(engine/maintenance/epoch.py) decides how each stratum is treated; a stratum with counts or sums in recursion is
evaluated in the driver (clocked.py), and any other one by stratum.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager

import numpy as np

from engine.circuit.circuit import Circuit, Stratum, is_internal
from engine.data.arrow import to_arrow
from engine.data.codes import Codes
from engine.errors import ZedlogError
from engine.maintenance.change import Change
from engine.maintenance.epoch import Epoch, Held, StratumWork
from engine.maintenance.facts import FactDelta
from engine.maintenance.meter import Growing, Meter
from engine.maintenance.placement import Budget, Encode, Executed
from engine.maintenance.policy import Policy
from engine.spark.changes import Changes
from engine.spark.clocked import ClockedWork
from engine.spark.plans.undefined import check_faults
from engine.spark.stored import StoredChange
from engine.spark.stratum import Growth, Lower, SparkStratum
from engine.spark.tables import Table
from engine.spark.version import Version, compacted
from engine.spark.versions import Versions
from engine.spark.work.work import NewVersion


class SparkEpoch:
    """See the module. heights: the number of heights that it went through, in all strata together."""

    def __init__(
        self,
        state: Versions,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy,
    ) -> None:
        self.heights = 0
        self._state = state
        self._tables = state.tables
        self._encode = encode
        self._epoch = Epoch(circuit, state.circuit, facts, policy, state.costs)
        self._rules = {**state.circuit.rules, **circuit.rules}
        self.versions = self._begun()
        self._growth = {name: Growth(name, v.live, v.memory()) for name, v in self.versions.items()}
        self.growing: dict[str, Growing] = dict(self._growth)
        """The relations as the budget's watch sees them."""
        self.meter = Meter(budget, self.growing)
        self.mirrors: Set[str] = frozenset()
        """The relations of which only the present tuples are held here, for the strata that read them."""
        self._deltas: dict[str, Table] = {}
        self._put: list[Table] = []
        """Those deltas that own their storage."""
        self._changes: dict[str, Change] = {}
        self._discarded: set[str] = set()
        self._faulty: set[str] = set()

    def _begun(self) -> dict[str, Version]:
        versions, circuit = dict(self._state.versions), self._epoch.circuit
        for name in (name for stratum in self._epoch.fresh for name in stratum.relations):
            arity = circuit.arities[name]
            if name not in versions or versions[name].arity != arity:
                # Nothing of the old program holds a tuple of it: the reasoner lets a schema go only then.
                assert name not in versions or not versions[name].live, (
                    "a relation with tuples keeps its arity"
                )
                versions[name] = Version(name, arity)
        return versions

    def run(self) -> Executed:
        """Execute the epoch. After an error it has to be rolled back."""
        with self.watched():
            self._epoch.run(lambda _: self, self.meter, self._encode)
            self.judge()
        return self._epoch.executed(self.visible(), self.meter)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """For the time of the walk: Spark's queries end with the budget, and what only the walk needs is given back."""
        budget = self.meter.budget
        try:
            with self._tables.watched(budget.seconds, budget.cancelled, self.meter.check_time):
                yield
        finally:
            for table in self._put:
                self._tables.release(table)

    def judge(self) -> None:
        """After the walk: refuse the epoch if a value does not exist that a rule needs."""
        rules = self._epoch.circuit.rules
        check_faults(
            [rule for id_, rule in sorted(rules.items()) if id_ in self._faulty],
            lambda relation: self.versions[relation].entries(),
            self._tables,
            self._encode,
        )

    def visible(self) -> Iterator[tuple[str, Change]]:
        """The changes of all relations that readers know."""
        return ((name, change) for name, change in self._changes.items() if not is_internal(name))

    # ---- what the walk asks for

    def held(self, stratum: Stratum) -> Held:
        versions = [self.versions[name] for name in stratum.relations]
        return Held(
            any(version.rows for version in versions),
            sum(version.counts.asserted for version in versions),
            sum(version.counts.present for version in versions),
        )

    def work(self, stratum: Stratum, before: Stratum | None) -> StratumWork:
        versions = {name: self.versions[name] for name in stratum.relations}
        discarded = not self._discarded.isdisjoint(stratum.relations)
        lower = self._lower(stratum, before)
        if stratum.clocked:
            return ClockedWork(
                stratum,
                before,
                versions,
                discarded,
                lower,
                self._rules,
                self._tables,
                self.meter,
                self.growing,
                self._encode,
                self._take,
                self._faulty,
            )
        return SparkStratum(
            stratum,
            versions,
            discarded,
            lower,
            self._rules,
            self._tables,
            self.meter,
            self._growth,
            self._encode,
            self._ended,
        )

    def take_back(self, stratum: Stratum) -> None:
        """The versions are unchanged, but what the budget's watch knows about them has to be set back."""
        for name in stratum.relations:
            self._watch(name)

    def _watch(self, name: str) -> None:
        """Let the budget's watch see the relation's version as it is now."""
        self.growing[name] = growth = self._growth[name]
        version = self.versions[name]
        growth.live, growth.bytes = version.live, version.memory()

    def discard(self, stratum: Stratum) -> None:
        self._discarded.update(stratum.relations)

    def changed(self, relation: str) -> bool:
        change = self._changes[relation]
        if not change.inserted + change.deleted:
            return False
        if isinstance(change, StoredChange):
            self._deltas[relation] = change.moved
            return True
        told = change.here()
        moved = np.flatnonzero(told.present)
        weights = told.present[moved].astype(np.int64)
        delta = self._deltas[relation] = self._tables.put(to_arrow(told.codes[moved], weight=weights))
        self._put.append(delta)
        return True

    # ---- mirrors

    def delta(self, relation: str) -> tuple[Codes, Codes]:
        """The tuples that came (1) and went (-1) in a relation that has `changed`, and these weights."""
        arity = self.versions[relation].arity
        return Changes.below(self._deltas[relation], arity).weighted(self._tables)

    def begin_mirror(self, relation: str, codes: Codes) -> None:
        """The tuples of a mirror that is new to the circuit, as they were before the epoch."""
        ones = np.ones(1, np.int64)
        self.versions[relation] = self._with(
            self.versions[relation], codes, np.broadcast_to(ones, len(codes))
        )

    def mirror(self, relation: str, codes: Codes, weights: Codes) -> None:
        """Tuples came and went in a relation that is mirrored here."""
        self.versions[relation] = self._with(self.versions[relation], codes, weights)
        delta = self._deltas[relation] = self._tables.put(to_arrow(codes, weight=weights))
        self._put.append(delta)

    def _with(self, version: Version, codes: Codes, weights: Codes) -> Version:
        if not len(codes):
            return version
        ground = np.zeros(1, np.int32)
        layer = self._tables.put(to_arrow(codes, height=ground, support=weights, entry=weights))
        net = int(weights.sum())
        return version.with_layer(layer, version.counts.plus(net, net, 0))

    def _lower(self, stratum: Stratum, before: Stratum | None) -> dict[str, Lower]:
        """The relations of lower strata that the stratum's rules and folds, old and new, read."""
        reads = stratum.reads if before is None else stratum.reads | before.reads
        lower = {}
        for name in reads - set(stratum.relations):
            now = self.versions.get(name) or self._state.versions[name]
            was = self._state.versions.get(name)
            if was is None or was.arity != now.arity:
                was = Version(name, now.arity)
            lower[name] = Lower(was, now, self._deltas.get(name))
        return lower

    def _ended(self, work: SparkStratum, outcomes: Mapping[str, NewVersion]) -> None:
        """A stratum's work has ended; if there are no outcomes, it ended with an error."""
        self.heights += work.heights
        self._faulty |= work.faulty
        self._take(outcomes)

    def _take(self, outcomes: Mapping[str, NewVersion]) -> None:
        """Make a stratum's outcome the state."""
        for name, outcome in outcomes.items():
            self.versions[name] = outcome.version
            self._changes[name] = outcome.change
            self._watch(name)

    # ---- the end

    def commit(self) -> None:
        """Keep the epoch."""
        state, circuit = self._state, self._epoch.circuit
        for name in [name for name in self.versions if name not in circuit.arities]:
            gone = not self.versions.pop(name).live or name in self.mirrors
            assert gone, "a relation with tuples has a schema"
        before, state.versions = state.versions, self.versions
        state.circuit = circuit
        self._epoch.keep()
        state.release(before, state.versions)
        for name, version in state.versions.items():
            try:
                fewer = compacted(version, self._tables)
            except ZedlogError:
                continue  # It is only for speed; the layers as they are say the same.
            state.versions[name] = fewer
            state.release({name: version}, {name: fewer})
        self._tables.drain()

    def rollback(self) -> None:
        """Drop the epoch: everything is as before."""
        self._state.release(self.versions, self._state.versions)
        self._tables.drain()
