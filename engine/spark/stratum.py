"""Brings one stratum through one epoch on Spark, in the same order as the resident placement
(engine/resident/stratum.py).

First, one query sums up all supports that come from outside: changed facts, the lower relations' changes carried
through the old rules, and all derivations of rules that appear or disappear. Then come the heights, in ascending order:
each settles its entries, and one query carries the changed entries through every plan that they start. A plan without
starting tuples is left out, and a plan that only copies tuples in the driver needs no query (projections.py). The
stratum's `Choice` decides where all this is done (work/choice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.circuit.plan import CompiledRule, Plan, Start
from engine.data.arrow import HEIGHT, SUPPORT
from engine.maintenance.facts import FactDelta, arrays
from engine.maintenance.meter import Meter
from engine.maintenance.oscillation import Oscillation
from engine.maintenance.placement import Encode
from engine.spark.changes import Changes
from engine.spark.facts import SparkFacts
from engine.spark.frames import WEIGHT
from engine.spark.plans.branches import Branches
from engine.spark.plans.lowering import LookUp, See, fits
from engine.spark.supports import Subject
from engine.spark.tables import Table, Tables
from engine.spark.version import Version, asserted_in_driver, last_height
from engine.spark.work.choice import Choice
from engine.spark.work.work import HeightDelta, NewVersion

PATIENCE = 4
"""The number of heights in an epoch after which a stratum is watched for swinging. A height costs some tenths of a
second here, so it is smaller than elsewhere."""


@dataclass(frozen=True, slots=True)
class Lower:
    """A relation of a lower stratum: as it was, as it is, and the changes between the two (c0 .., weight)."""

    old: Version
    new: Version
    delta: Table | None


@dataclass(slots=True)
class Growth:
    """A relation as the budget's watch sees it while it grows."""

    name: str
    live: int
    bytes: int

    def memory(self) -> int:
        return self.bytes


class SparkStratum:
    """The work on one stratum. `versions` are the stratum's own relations as they were. `rebuilt` says that it is
    computed from nothing, because its members changed. `rules` holds the old and the new rules by id. `ended` gets this
    work and the relations after it; if there are none, it ended with an error.
    """

    ahead = False

    def __init__(
        self,
        stratum: Stratum,
        versions: Mapping[str, Version],
        rebuilt: bool,
        lower: Mapping[str, Lower],
        rules: Mapping[str, CompiledRule],
        tables: Tables,
        meter: Meter,
        growth: Mapping[str, Growth],
        encode: Encode,
        ended: Callable[[SparkStratum, Mapping[str, NewVersion]], None],
    ) -> None:
        self._ended = ended
        self._stratum = stratum
        self._own = frozenset(stratum.relations)
        self._versions = {name: versions[name] for name in sorted(stratum.relations)}
        self._rebuilt = rebuilt
        self._lower = lower
        self._rules = rules
        self._tables = tables
        self._meter = meter
        self._growth = growth
        self._encode = encode
        self._subject = Subject(self._versions, rebuilt, stratum, tables, encode)
        self.heights = 0
        self._whole: list[tuple[CompiledRule, int]] = []
        self._branches = Branches(self._subject)
        self._seen: dict[tuple[str, bool], DataFrame | None] = {}
        self._choice = Choice(self._subject)

    # ---- the three sources of change

    def lower_changes(self, rules: Sequence[str]) -> None:
        """Carry the net changes of lower relations through `rules` (ids of the rules that were there before)."""
        plans: dict[str, list[tuple[CompiledRule, Plan]]] = {}
        for rule in map(self._rules.__getitem__, rules):
            for plan in rule.plans:
                name = plan.start.relation
                if name not in self._own and self._lower[name].delta is not None:
                    plans.setdefault(name, []).append((rule, plan))
        order = sorted(plans)
        for place, relation in enumerate(order):
            delta = self._lower[relation].delta
            assert delta is not None
            to_come = frozenset(order[place + 1 :])
            changes = Changes.below(delta, self._lower[relation].new.arity)

            def see(
                step: LookUp, relation: str = relation, to_come: frozenset[str] = to_come
            ) -> list[DataFrame]:
                if step.relation in self._own:
                    return _some(self._own_entries(step.relation))
                was = step.relation in to_come or (step.relation == relation and not step.before)
                return _some(self._lower_entries(step.relation, was))

            for rule, plan in plans[relation]:
                if changes.fitting(plan.start, self._encode, delta.rows):
                    self._add(rule, plan, changes, delta.rows, see)

    def whole_rule(self, rule: str, weight: int) -> None:
        """Add all derivations of a rule over the collections as they are, times `weight`."""
        self._whole.append((self._rules[rule], weight))

    def _join_whole_rules(self) -> None:
        """Start each whole rule at the atom that the fewest tuples fit. A rule with an atom that no tuple fits derives
        nothing. Rules do not start at negated atoms."""

        def see(step: LookUp) -> list[DataFrame]:
            return _some(self._entries(step.relation))

        fitting = self._fitting([plan.start for rule, _ in self._whole for plan in _positive(rule)])
        origins = {
            start.relation: self._present(start.relation) for start, number in fitting.items() if number
        }
        for rule, weight in self._whole:
            plan = min(_positive(rule), key=lambda plan: fitting[plan.start])
            if fitting[plan.start]:
                self._add(rule, plan, origins[plan.start.relation], fitting[plan.start], see, weight)
                self._choice.expect(*map(self._size, rule.body))
        self._whole = []

    def _fitting(self, starts: Sequence[Start]) -> dict[Start, int]:
        """How many present tuples fit each starting atom. For a small relation or an atom without conditions this is an
        upper bound, which needs no query; the others are counted, in one query for each relation."""
        result = {start: self._size(start.relation) for start in starts}
        open_: dict[str, list[Start]] = {}
        for start, size in result.items():
            if (start.constants or start.equal) and not self._tables.small(size):
                open_.setdefault(start.relation, []).append(start)
        for relation, counted in open_.items():
            entries = self._entries(relation)
            assert entries is not None, "it is not small"
            totals = []
            signed = self._stratum.signed and relation in self._own
            for i, start in enumerate(counted):
                condition = F.expr(fits(start, self._encode))
                weight = F.abs(WEIGHT) if signed else F.col(WEIGHT)
                totals.append(F.sum(F.when(condition, weight).otherwise(0)).alias(f"n{i}"))
            found = self._tables.collect(entries.agg(*totals), small=False)
            result |= {start: int(found.column(f"n{i}")[0].as_py()) for i, start in enumerate(counted)}
        return result

    def fold_changes(self, fold: Fold, whole: Sequence[str]) -> None:
        """Fold the groups again that changed in the sources; see the resident placement's for `whole`."""
        touched, rows = [], 0
        for source in whole:
            entries = self._lower_entries(source, was=False)
            if entries is not None:
                touched.append(entries)
                rows += self._lower[source].new.counts.present
        for source in sorted({*fold.sources, *whole}):
            delta = self._lower[source].delta
            if delta is not None:
                touched.append(delta.frame)
                rows += delta.rows
        if touched:
            sources = [self._lower[source].new for source in fold.sources]
            few = self._tables.small(rows)
            self._branches.fold(fold, sources, touched, self._own_entries(fold.target), few)
            self._choice.expect(rows, *(version.rows for version in sources))

    def assert_facts(self, relation: str, facts: FactDelta) -> None:
        """Add to the asserted weights of tuples."""
        if isinstance(facts, SparkFacts):
            self._branches.rows(relation, facts.arity, facts.frame)
            return
        codes, weights = arrays(facts)
        ground, none = np.zeros(1, np.int32), np.zeros(1, np.int64)
        self._branches.give(
            self._subject.rows(relation, codes, height=ground, weight=weights, derivations=none)
        )

    def assert_held(self) -> None:
        """Assert the facts that the relations held before they were discarded."""
        for name, version in self._versions.items() if self._rebuilt else ():
            if version.counts.asserted and not version.stored:
                self.assert_facts(name, asserted_in_driver(version))
            elif version.counts.asserted:
                rows = version.frame()
                assert rows is not None, "it holds facts"
                facts = rows.where(F.col(HEIGHT) == 0).withColumnRenamed(SUPPORT, WEIGHT)
                self._branches.rows(name, version.arity, facts)

    # ---- the epoch

    def run(self) -> None:
        """Bring the stratum through the epoch."""
        outcomes: Mapping[str, NewVersion] = {}
        try:
            outcomes = self._outcomes()
        finally:
            self._ended(self, outcomes)
        before = 0 if self._rebuilt else sum(v.counts.derived for v in self._versions.values())
        derived = sum(outcome.version.counts.derived for outcome in outcomes.values())
        # No sum of supports is at hand; the derived tuples grow with them.
        self._meter.course.emitted(self._meter.course.spent, derived - before, 0)

    def _outcomes(self) -> dict[str, NewVersion]:
        """The relations after the epoch."""
        try:
            outcomes = self._begin()
            if outcomes is not None:
                return outcomes
            watch = Oscillation(self._stratum, self._last_height, PATIENCE) if self._stratum.signed else None
            while (height := self._choice.work.next_height()) is not None:
                self.heights += 1
                self._meter.height(height, self._stratum)
                if watch is not None:
                    watch.rise(height)
                batch = self._choice.work.settle(height)
                if batch is not None:
                    if watch is not None and watch.watches:
                        self._note(watch, batch)
                    self._grew(batch)
                    self._derive(batch)
            return self._choice.work.finish()
        finally:
            self._branches.release()
            self._choice.release()

    def _note(self, watch: Oscillation, batch: HeightDelta) -> None:
        """Give the changes of a height to the watch; changes on the executors are brought to the driver."""
        for name in self._versions:
            changes = batch.of(name)
            if changes is not None:
                watch.note({name: changes.weighted(self._tables)})

    def _last_height(self) -> int:
        """The greatest height at which a relation had an entry before the epoch."""
        versions = () if self._rebuilt else self._versions.values()
        return max((last_height(version, self._tables) for version in versions), default=0)

    def _begin(self) -> dict[str, NewVersion] | None:
        """Take the supports from outside the stratum. Returns the outcomes if one job does all the remaining work."""
        self._join_whole_rules()
        found = self._choice.begin(self._branches)
        if found is None:
            return None
        lower = {name: lower.new for name, lower in self._lower.items()}
        try:
            self._meter.charge(found.derivations)
            job = self._choice.pivoted(found, lower, self._meter.budget)
            outcomes = job.run(found, self._meter.charge) if job is not None else None
        except BaseException:
            self._tables.release(found.table)
            raise
        if outcomes is None:
            self._choice.work.push(found)
            return None
        self._tables.release(found.table)
        for name, outcome in outcomes.items():
            growth = self._growth[name]
            growth.live, growth.bytes = outcome.version.live, outcome.version.memory()
            self._meter.grew()
            self._meter.tuples(growth, self._stratum)
        return outcomes

    def _derive(self, batch: HeightDelta) -> None:
        """Join the entry changes of one height through every plan that starts at one of them."""
        for rule in self._stratum.rules:
            for plan in rule.plans:
                relation = plan.start.relation
                changes = batch.of(relation) if relation in self._own else None
                if changes is None:
                    continue
                fitting = batch.fitting(plan.start)
                if fitting:
                    self._add(rule, plan, changes, fitting, self._see(relation, batch))
        if self._branches:
            supports = self._choice.summed(self._branches, batch.height + 1)
            self._choice.work.push(supports)
            self._meter.charge(supports.derivations)

    def _see(self, relation: str, batch: HeightDelta) -> See:
        """The relations as a step sees them while the changes of `relation` are carried through: those before it with
        their changes, those after it without.
        """

        def see(step: LookUp) -> list[DataFrame]:
            name = step.relation
            if name not in self._own:
                return _some(self._lower_entries(name, was=False))
            inside = name < relation or (name == relation and step.before)
            new = batch.of(name) if inside else None
            return _some(self._own_entries(name), batch.earlier(name), None if new is None else new.frame)

        return see

    # ---- queries

    def _add(
        self, rule: CompiledRule, plan: Plan, changes: Changes, rows: int, see: See, weight: int = 1
    ) -> None:
        """Carry changes, of which `rows` fit the plan's starting atom, through a plan."""
        if self._branches.derive(rule, plan, changes, see, weight, self._tables.small(rows)):
            self._choice.expect(rows)

    @property
    def faulty(self) -> set[str]:
        """The rules (ids) that met a binding without a value for some term."""
        return self._branches.faulty

    def _size(self, relation: str) -> int:
        if relation in self._own:
            version = self._versions[relation]
            # In a signed stratum there may be more entries than tuples.
            return 0 if self._rebuilt else version.rows if self._stratum.signed else version.counts.present
        return self._lower[relation].new.counts.present

    def _present(self, relation: str) -> Changes:
        """The entries of a relation, for a plan to start from."""
        own = relation in self._own
        version = self._versions[relation] if own else self._lower[relation].new
        return Changes.entries(version, not own, partial(self._entries, relation))

    def _entries(self, relation: str) -> DataFrame | None:
        return (
            self._own_entries(relation) if relation in self._own else self._lower_entries(relation, was=False)
        )

    def _own_entries(self, relation: str) -> DataFrame | None:
        """The entries of an own relation as they were before the epoch."""
        if self._rebuilt:
            return None
        return self._once((relation, True), self._versions[relation].entries)

    def _lower_entries(self, relation: str, was: bool) -> DataFrame | None:
        """The tuples of a lower relation, at height 0."""
        lower = self._lower[relation]
        version = lower.old if was else lower.new

        def entries() -> DataFrame | None:
            found = version.entries()
            return None if found is None else found.withColumn(HEIGHT, F.lit(0))

        return self._once((relation, was), entries)

    def _once(self, key: tuple[str, bool], make: Callable[[], DataFrame | None]) -> DataFrame | None:
        """One frame for the whole epoch: making a frame costs some calls of Spark, and plans that share a frame read it
        once in a query.
        """
        if key not in self._seen:
            self._seen[key] = make()
        return self._seen[key]

    def _grew(self, batch: HeightDelta) -> None:
        for name, net in batch.net().items():
            growth = self._growth[name]
            growth.live += net
            growth.bytes += max(net, 0) * 8 * (self._versions[name].arity + 3)
            if net > 0:
                self._meter.grew()
                self._meter.tuples(growth, self._stratum)


def _some(*frames: DataFrame | None) -> list[DataFrame]:
    return [frame for frame in frames if frame is not None]


def _positive(rule: CompiledRule) -> list[Plan]:
    return [plan for plan in rule.plans if not plan.start.negated]
