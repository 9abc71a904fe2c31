"""The placement on Spark: the same circuit over DataFrames, for what is too large for one process.

State is a `Version` for each relation: immutable, a sum of layers. `execute` makes new versions out of old ones and
leaves these as they are, so `rollback` forgets the new and `commit` the old; whatever storage only the forgotten ones
used is given back. No index is kept: a small change finds its partners in one pass over a relation, a large one by an
exchange. An epoch costs a few Spark jobs for each height of each stratum that it touches, some tenths of a second
each; small updates belong into the resident placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from engine.circuit.circuit import EMPTY, Circuit, Stratum, is_internal
from engine.circuit.normal import UNIT
from engine.circuit.plan import CompiledRule
from engine.circuit.walk import Walk
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns, to_arrow
from engine.data.codes import Codes
from engine.errors import ZedlogError
from engine.maintenance.change import RelationChange
from engine.maintenance.meter import Meter
from engine.maintenance.placement import DEFAULT, Budget, Encode, Executed, FactDelta, PlacementState
from engine.maintenance.policy import Abandoned, BootstrapCost, Course, OwnFacts, Policy, Switched
from engine.resident.relation import Relation, derived_of
from engine.resident.transfer import bootstrap_costs
from engine.spark.checks import check_version, state_of
from engine.spark.clocked import Clocked
from engine.spark.frames import WEIGHT, long
from engine.spark.plans.undefined import check_faults
from engine.spark.session.session import SparkOptions, SparkSource
from engine.spark.stratum import Growth, Lower, StratumRun
from engine.spark.tables import Table, Tables
from engine.spark.version import Counts, Version, asserted_in_driver, collected, compacted
from engine.spark.work.driver import described
from engine.spark.work.work import Outcome, begun


@dataclass(slots=True)
class _Epoch:
    """The executed epoch, until it is kept or dropped."""

    circuit: Circuit
    walk: Walk
    versions: dict[str, Version]
    rules: Mapping[str, CompiledRule]
    deltas: dict[str, Table] = field(default_factory=dict)
    changes: dict[str, RelationChange] = field(default_factory=dict)
    rebuilt: list[tuple[str, ...]] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    costs: dict[tuple[str, ...], BootstrapCost] = field(default_factory=dict)
    estimate: int = 0
    bootstrap: int = 0
    faulty: set[str] = field(default_factory=set)
    """Rules that met a binding without a value."""


class SparkPlacement:
    """See the module. Spark starts with the first epoch that has something to do.

    source: where the session comes from. One that is given stays open; one that is made here, from options, is closed
    by `close`.
    """

    name = "spark"

    def __init__(self, source: SparkSource | SparkOptions | None = None) -> None:
        self._source = source if isinstance(source, SparkSource) else SparkSource(source or SparkOptions())
        self._owns_source = not isinstance(source, SparkSource)
        self._tables = Tables(self._source)
        self._circuit = EMPTY
        self._versions: dict[str, Version] = {}
        self._costs: dict[tuple[str, ...], BootstrapCost] = {}
        self._epoch: _Epoch | None = None
        self.heights = 0
        """Heights that the last epoch went through, all strata together."""

    def close(self) -> None:
        """Give all storage back, and stop Spark if this placement started it."""
        self._release(self._versions, {})
        self._versions = {}
        if self._owns_source:
            self._source.close()

    @property
    def queries(self) -> int:
        """Spark queries run so far."""
        return self._tables.queries

    # ---- one epoch

    def execute(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy = DEFAULT,
    ) -> Executed:
        assert self._epoch is None, "the last epoch is neither committed nor rolled back"
        versions = dict(self._versions)
        walk = Walk(circuit, self._circuit, facts)
        for name in (name for stratum in walk.fresh for name in stratum.relations):
            arity = circuit.arities[name]
            if name not in versions or versions[name].arity != arity:
                # Nothing of the old program holds a tuple of it: the reasoner lets a schema go only then.
                assert name not in versions or not versions[name].live, (
                    "a relation with tuples keeps its arity"
                )
                versions[name] = Version(name, arity)
        epoch = self._epoch = _Epoch(circuit, walk, versions, {**self._circuit.rules, **circuit.rules})
        growth = {name: Growth(name, version.live, version.memory()) for name, version in versions.items()}
        meter = Meter(budget, growth)
        self.heights = 0
        try:
            with self._tables.watched(budget.seconds, budget.cancelled, meter.check_time):
                for stratum in walk:
                    self._run(epoch, stratum, facts, encode, meter, growth, policy)
                check_faults(
                    [rule for id_, rule in sorted(circuit.rules.items()) if id_ in epoch.faulty],
                    lambda relation: epoch.versions[relation].entries(),
                    self._tables,
                    encode,
                )
            return Executed(
                {
                    name: change
                    for name, change in epoch.changes.items()
                    if len(change.present) and not is_internal(name)
                },
                meter.derivations,
                tuple(epoch.rebuilt),
                tuple(epoch.switched),
                epoch.estimate,
                epoch.bootstrap,
            )
        except BaseException:
            self.rollback()
            raise
        finally:
            for table in epoch.deltas.values():
                self._tables.release(table)

    def _run(
        self,
        epoch: _Epoch,
        stratum: Stratum,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        meter: Meter,
        growth: Mapping[str, Growth],
        policy: Policy,
    ) -> None:
        """As `ResidentPlacement._run`: see there for what each case means."""
        before = self._circuit.stratum_of.get(stratum.relations[0])
        old = _ids(before)
        same = before is not None and before.shape == stratum.shape
        live = any(epoch.versions[name].rows for name in stratum.relations)
        refolded = before is not None and before.folds != stratum.folds
        changed = [name for name in stratum.relations if name in facts and len(facts[name][0])]
        touched = changed or refolded or stratum.reads & epoch.deltas.keys()
        if same and not touched and old == _ids(stratum):
            return
        rebuilt = not same and live
        if not (changed or old or stratum.rules or rebuilt or stratum.folds or stratum.relations == (UNIT,)):
            return
        last = self._costs.get(stratum.relations) if same else None
        anew = not same
        if rebuilt:
            epoch.rebuilt.append(stratum.relations)
        elif same and live and policy.always and stratum.derives:
            expected = round(last.estimate()) if last is not None else 0
            epoch.switched.append(Switched(stratum.relations, True, bootstrap=expected))
            anew = rebuilt = True
        if stratum.clocked:
            going_on = None if anew else before
            self._take(epoch, self._clocked(epoch, stratum, going_on, facts, encode, meter, growth, policy))
            return
        derived = self._derived(epoch, stratum)
        outcomes: dict[str, Outcome] = {}
        if not anew:
            counts = [epoch.versions[name].counts for name in stratum.relations]
            moved = OwnFacts.of(
                (facts[name][1] for name in changed),
                sum(c.asserted for c in counts),
                sum(c.present for c in counts),
            )
            course = Course(last, policy, ahead=False, left=meter.left, facts=moved)
            meter.enter(stratum, course)
            try:
                course.begin()
                run = self._prepared(epoch, stratum, before, False, facts, encode, meter, growth)
                outcomes = self._run_through(epoch, run)
            except Abandoned as stop:
                # Here a step is charged when it has been done.
                meter.derivations += stop.step
                epoch.switched.append(Switched.by(stop, stratum.relations, stop.spent + stop.step))
                for name in stratum.relations:
                    version = epoch.versions[name]
                    growth[name].live, growth[name].bytes = version.live, version.memory()
                anew = rebuilt = True
            epoch.estimate += max(course.spent, round(course.estimate))
        if anew:
            course = Course()
            meter.enter(stratum, course)
            run = self._prepared(epoch, stratum, None, rebuilt, facts, encode, meter, growth)
            outcomes = self._run_through(epoch, run)
        epoch.bootstrap += round(last.estimate()) if last is not None else 0
        self._take(epoch, outcomes)
        if stratum.derives:
            # No sum of supports is at hand; the derived tuples grow with them.
            now = self._derived(epoch, stratum)
            course.emitted(course.spent, now - (0 if anew else derived), 0)
            epoch.costs[stratum.relations] = course.cost()

    def _clocked(
        self,
        epoch: _Epoch,
        stratum: Stratum,
        before: Stratum | None,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        meter: Meter,
        growth: Mapping[str, Growth],
        policy: Policy,
    ) -> dict[str, Outcome]:
        """A stratum that is brought through the epoch in the driver; `before` is None where it is computed anew."""
        meter.enter(stratum)
        versions = {name: epoch.versions[name] for name in stratum.relations}
        lower = self._lower(epoch, stratum, before)
        run = Clocked(
            stratum,
            before,
            versions,
            lower,
            {name: epoch.versions[name].arity for name in (*versions, *lower)},
            {name: facts[name] for name in stratum.relations if name in facts and len(facts[name][0])},
        )
        outcomes = run.run(self._tables, encode, meter.budget, policy, meter.charge)
        for name, outcome in outcomes.items():
            growth[name].live, growth[name].bytes = outcome.version.live, outcome.version.memory()
            meter.grew()
            meter.tuples(growth[name], stratum)
        return outcomes

    def _prepared(
        self,
        epoch: _Epoch,
        stratum: Stratum,
        before: Stratum | None,
        rebuilt: bool,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        meter: Meter,
        growth: Mapping[str, Growth],
    ) -> StratumRun:
        """The stratum with its changes since it was `before`, or, where that is None, with everything."""
        new = _ids(stratum)
        run = StratumRun(
            stratum,
            {name: epoch.versions[name] for name in stratum.relations},
            rebuilt,
            self._lower(epoch, stratum, before),
            epoch.rules,
            self._tables,
            meter,
            growth,
            encode,
        )
        if before is not None:
            old = stratum.rules_before(before)
            run.lower_changes(sorted(old))
            for rule in sorted(new - old):
                run.whole_rule(rule, 1)
            for rule in sorted(old - new):
                run.whole_rule(rule, -1)
            earlier = {fold.target: set(fold.sources) for fold in before.folds}
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, sorted(earlier[fold.target] ^ set(fold.sources)))
        else:
            for rule in sorted(new):
                run.whole_rule(rule, 1)
            for fold in stratum.folds:
                if fold.sources:
                    run.fold_changes(fold, fold.sources)
        if stratum.relations == (UNIT,) and not epoch.versions[UNIT].live:
            run.assert_facts(UNIT, (np.empty((1, 0), np.int64), np.ones(1, np.int64)))
        for name in stratum.relations if rebuilt else ():
            version = epoch.versions[name]
            if version.counts.asserted and not version.stored:
                run.assert_facts(name, asserted_in_driver(version))
            elif version.counts.asserted:
                rows = version.frame()
                assert rows is not None, "it holds facts"
                run.assert_rows(name, rows.where(F.col(HEIGHT) == 0).withColumnRenamed(SUPPORT, WEIGHT))
        for name in stratum.relations:
            if name in facts and len(facts[name][0]):
                run.assert_facts(name, facts[name])
        return run

    def _run_through(self, epoch: _Epoch, run: StratumRun) -> dict[str, Outcome]:
        try:
            return run.run()
        finally:
            self.heights += run.heights
            epoch.faulty |= run.faulty

    def _take(self, epoch: _Epoch, outcomes: Mapping[str, Outcome]) -> None:
        """Make a stratum's outcome the state, and hand its changes to the strata above."""
        for name, outcome in outcomes.items():
            epoch.versions[name] = outcome.version
            epoch.changes[name] = outcome.change
            moved = np.flatnonzero(outcome.change.present)
            if not len(moved):
                continue
            epoch.walk.changed(name)
            if epoch.circuit.is_read_above(name) or self._circuit.is_read_above(name):
                weights = outcome.change.present[moved].astype(np.int64)
                epoch.deltas[name] = self._tables.put(to_arrow(outcome.change.codes[moved], weight=weights))

    def _derived(self, epoch: _Epoch, stratum: Stratum) -> int:
        """Derived tuples of a stratum."""
        return sum(epoch.versions[name].counts.derived for name in stratum.relations)

    def _lower(self, epoch: _Epoch, stratum: Stratum, before: Stratum | None) -> dict[str, Lower]:
        """The relations of lower strata that the stratum's rules and folds, old and new, read."""
        names = set(stratum.reads if before is None else stratum.reads | before.reads) - set(
            stratum.relations
        )
        lower = {}
        for name in names:
            now = epoch.versions.get(name) or self._versions[name]
            was = self._versions.get(name)
            if was is None or was.arity != now.arity:
                was = Version(name, now.arity)
            lower[name] = Lower(was, now, epoch.deltas.get(name))
        return lower

    def commit(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
        gone = [name for name in epoch.versions if name not in epoch.circuit.arities]
        for name in gone:
            assert not epoch.versions.pop(name).live, "a relation with tuples has a schema"
        before, self._versions = self._versions, epoch.versions
        self._circuit = epoch.circuit
        strata = {stratum.relations for stratum in self._circuit.strata}
        costs = {**self._costs, **epoch.costs}
        self._costs = {names: cost for names, cost in costs.items() if names in strata}
        self._epoch = None
        self._release(before, self._versions)
        for name, version in self._versions.items():
            try:
                fewer = compacted(version, self._tables)
            except ZedlogError:
                continue  # It is only for speed; the layers as they are say the same.
            self._versions[name] = fewer
            self._release({name: version}, {name: fewer})

    def rollback(self) -> None:
        epoch = self._epoch
        assert epoch is not None, "nothing was executed"
        self._epoch = None
        self._release(epoch.versions, self._versions)

    def _release(self, old: Mapping[str, Version], kept: Mapping[str, Version]) -> None:
        """Give back the storage of layers that no kept version has."""
        held = {id(table) for version in kept.values() for table in version.layers}
        for version in old.values():
            for table in version.layers:
                if id(table) not in held:
                    self._tables.release(table)

    # ---- reading

    def _version(self, relation: str) -> Version | None:
        versions = self._versions if self._epoch is None else self._epoch.versions
        return versions.get(relation)

    def asserted(self, relation: str, codes: Codes) -> Codes:
        version = self._version(relation)
        weights = np.zeros(len(codes), np.int64)
        if version is None or not version.counts.asserted or not len(codes):
            return weights
        if not version.stored:
            facts, counts = asserted_in_driver(version)
            known = Relation(relation, version.arity)
            known.push(facts, np.zeros(1, np.int32), counts)
            return described(known, codes)[0]
        wanted = self._tables.put(to_arrow(codes, place=np.arange(len(codes), dtype=np.int64)))
        rows = version.frame()
        assert rows is not None, "it holds facts"
        key = columns(version.arity)
        ground = rows.where(F.col(HEIGHT) == 0).select(*key, SUPPORT)
        small = wanted.rows <= self._tables.local_rows
        keys = F.broadcast(wanted.frame) if small else wanted.frame
        joined = ground.join(keys, key) if key else ground.crossJoin(keys)
        found = self._tables.collect(joined.groupBy("place").agg(F.sum(SUPPORT).alias(SUPPORT)), small)
        self._tables.release(wanted)
        weights[array_of(found, "place")] = array_of(found, SUPPORT)
        return weights

    def count(self, relation: str, domain: str) -> int:
        version = self._version(relation)
        if version is None:
            return 0
        counts = version.counts
        return {"all": counts.present, "asserted": counts.asserted, "derived": counts.derived}[domain]

    def tuples(self, relation: str, bound: Mapping[int, int], domain: str) -> tuple[Codes, Codes]:
        version = self._version(relation)
        assert version is not None, "the reasoner asks for relations that there are"
        rows = version.frame()
        if rows is None:
            return np.empty((0, version.arity), np.int64), np.empty(0, np.int64)
        key = columns(version.arity)
        for position, code in bound.items():
            rows = rows.where(F.col(key[position]) == long(code))
        ground = F.col(HEIGHT) == 0
        summary = rows.groupBy(*key).agg(
            F.sum(F.when(ground, F.col(SUPPORT)).otherwise(0)).alias("asserted"),
            F.sum(F.when(~ground, F.col(SUPPORT)).otherwise(0)).alias("derived"),
            F.sum(ENTRY).alias("all"),
        )
        wanted = F.col(domain) > 0
        if domain == "derived" and version.fold is not None:
            wanted = wanted & (F.col("all") > 0)
        found = self._tables.collect(summary.where(wanted), small=version.rows <= self._tables.local_rows)
        return codes_of(found, version.arity), array_of(found, "asserted")

    def holds(self, relation: str) -> bool:
        version = self._version(relation)
        return version is not None and version.counts != Counts()

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        # A query for each relation.
        return None

    def memory(self) -> int:
        return sum(version.memory() for version in self._versions.values())

    def state(self) -> dict[str, Any]:
        versions = self._versions if self._epoch is None else self._epoch.versions
        return {name: state_of(versions[name], self._tables) for name in sorted(versions)}

    def export_state(self) -> PlacementState:
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        relations = {name: collected(version, self._tables) for name, version in self._versions.items()}
        return PlacementState(self._circuit, relations)

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        assert not self._versions, "only a new placement takes a state"
        versions: dict[str, Version] = {}
        try:
            for name, table in state.relations.items():
                version = begun(
                    Version(name, state.circuit.arities[name]), False, state.circuit.stratum_of[name]
                )
                versions[name] = self._filled(version, table) if table.num_rows else version
        except BaseException:
            self._release(versions, {})
            raise
        self._versions, self._circuit = versions, state.circuit
        for names, cost in bootstrap_costs(state).items():
            held = float(sum(versions[name].counts.derived for name in names))
            self._costs[names] = replace(cost, pushed=cost.derivations, held=held, now=held)

    def _filled(self, version: Version, table: pa.Table) -> Version:
        """An empty version with the rows of `table`."""
        heights, supports, entries = (array_of(table, name) for name in (HEIGHT, SUPPORT, ENTRY))
        tuples = codes_of(table, version.arity)
        at = np.arange(len(tuples))
        _, place = np.unique(tuples, axis=0, return_inverse=True) if version.arity else (None, at * 0)
        above, there = np.zeros(len(tuples), np.int64), np.zeros(len(tuples), np.int64)
        np.add.at(above, place.ravel(), np.where(heights > 0, supports, 0))
        np.add.at(there, place.ravel(), entries)
        present = int(there.sum())
        asserted = int(np.count_nonzero(supports[heights == 0]))
        derived = int(np.count_nonzero(derived_of(version.fold, above, there) > 0))
        return version.with_layer(self._tables.put(table), Counts(present, asserted, derived))

    def check_invariants(self) -> None:
        for version in self._versions.values():
            check_version(version, self._tables)


def _ids(stratum: Stratum | None) -> set[str]:
    return {rule.id for rule in stratum.rules} if stratum is not None else set()
