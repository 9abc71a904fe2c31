"""A stratum with count, sum or mean in recursion, on the resident placement's kernels, in the driver.

Such a fold walks the timeline of a group from height to height: it cannot be written as a query over all groups at
once, and a query for each of some hundred heights would take minutes. So the stratum's state, and the relations of
lower strata that it reads, come into the driver, the resident work on a stratum (engine/resident/stratum.py) brings
them through the epoch, and the result goes back. The evaluation itself is incremental, but an epoch that touches the
stratum moves all of it to the driver and back, and the driver must have enough memory for that. The rest of the program
stays where it is.

In: the stratum before and after, its state, and the changes of lower strata. Out: `NewVersion`s, as for any other
stratum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Demand, Fold
from engine.circuit.plan import CompiledRule
from engine.data.arrow import ENTRY, array_of, codes_of
from engine.data.codes import Codes
from engine.maintenance.change import RelationChange
from engine.maintenance.facts import FactDelta, arrays
from engine.maintenance.meter import Growing, Meter
from engine.maintenance.placement import Encode
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.changes import visible_change
from engine.resident.journal import RelationJournal
from engine.resident.layout import I64
from engine.resident.relation import Relation
from engine.resident.steps import Batch, Runner
from engine.resident.stratum import GROUND, ResidentStratum
from engine.resident.transfer import fill, hold, to_table
from engine.spark.changes import Changes
from engine.spark.stratum import Lower
from engine.spark.tables import Tables
from engine.spark.version import Counts, Version, collected
from engine.spark.work.work import NewVersion, begun


class ClockedWork:
    """The work on one such stratum in one epoch.

    before: what it was; None if it is computed from nothing. It is also computed from nothing if its state is
    `discarded`. versions: its relations as they were. lower: those that it reads, or read before. rules: old and new
    ones by id. growing: the relations that the budget watches; those in the driver are added. take: called with the
    outcomes. faulty: called with the rules that met a binding without a value.
    """

    ahead = True

    def __init__(
        self,
        stratum: Stratum,
        before: Stratum | None,
        versions: Mapping[str, Version],
        discarded: bool,
        lower: Mapping[str, Lower],
        rules: Mapping[str, CompiledRule],
        tables: Tables,
        meter: Meter,
        growing: dict[str, Growing],
        encode: Encode,
        take: Callable[[Mapping[str, NewVersion]], None],
        faulty: set[str],
    ) -> None:
        self._stratum = stratum
        self._versions = versions
        self._tables = tables
        self._take = take
        folds = stratum.in_place
        self._own = {name: Relation(name, v.arity, fold=folds.get(name)) for name, v in versions.items()}
        was = {name: Relation(name, v.arity, fold=v.fold) for name, v in versions.items() if v.rows}
        for name, relation in (was if discarded else self._own).items():
            if versions[name].rows:
                fill(relation, collected(versions[name], tables))
        self._replaced = was if discarded else {}
        growing.update(self._own)
        relations = {**self._own, **{name: _present(one.new, tables) for name, one in lower.items()}}
        demands: Iterator[Demand] = chain(stratum.demands, before.demands if before is not None else ())
        for demand in demands:
            if demand.columns not in relations[demand.relation].indexes:
                relations[demand.relation].add_index(demand.columns)
        arities = {name: relation.arity for name, relation in relations.items()}
        used = {rule.id for one in (stratum, before) if one is not None for rule in one.rules}
        runner = Runner(1)
        runner.symbols, runner.check = encode.symbols, meter.check_time

        def meet(plan: BoundPlan, literal: int, variables: tuple[str, ...], columns: dict[str, I64]) -> None:
            faulty.add(plan.rule.id)

        runner.meet = meet
        self._journal = {name: RelationJournal(not relation.live) for name, relation in self._own.items()}
        self._run = ResidentStratum(
            stratum,
            relations,
            {id_: bind_rule(rules[id_], arities, encode) for id_ in used},
            runner,
            meter,
            self._journal,
            {name: _changes(one, tables) for name, one in lower.items() if one.delta is not None},
            self._replaced,
        )

    def lower_changes(self, rules: Sequence[str]) -> None:
        self._run.lower_changes(rules)

    def whole_rule(self, rule: str, weight: int) -> None:
        self._run.whole_rule(rule, weight)

    def fold_changes(self, fold: Fold, whole: Sequence[str]) -> None:
        self._run.fold_changes(fold, whole)

    def assert_facts(self, relation: str, facts: FactDelta) -> None:
        self._run.assert_facts(relation, arrays(facts))

    def assert_held(self) -> None:
        self._run.assert_held()

    def run(self) -> None:
        self._run.run()
        self._take({name: self._outcome(relation) for name, relation in self._own.items()})

    def _outcome(self, relation: Relation) -> NewVersion:
        version = self._versions[relation.name]
        change = visible_change(relation, self._journal[relation.name], self._replaced.get(relation.name))
        layer = self._tables.put(to_table(relation))
        fresh = begun(version, True, self._stratum)
        return NewVersion(fresh.with_layer(layer, _counts(version.counts, change)), change)


def _counts(before: Counts, change: RelationChange) -> Counts:
    return before.plus(
        int(change.present.sum(dtype=np.int64)),
        int(np.count_nonzero(change.asserted > 0)) - int(np.count_nonzero(change.was_asserted)),
        int(np.count_nonzero(change.derived)) - int(np.count_nonzero(change.was_derived)),
    )


def _present(version: Version, tables: Tables) -> Relation:
    """The present tuples of a lower relation: those whose entries sum up to 1."""
    tally = Relation("", version.arity)
    if version.rows:
        rows = collected(version, tables)
        tally.push(codes_of(rows, version.arity), GROUND, array_of(rows, ENTRY))
    found, _, sums = tally.supports()
    codes: Codes = tally.codes(found[sums > 0])
    relation = Relation(version.name, version.arity)
    hold(relation, codes)
    return relation


def _changes(lower: Lower, tables: Tables) -> Batch:
    """The changes of a lower relation."""
    assert lower.delta is not None, "it changed"
    codes, weights = Changes.below(lower.delta, lower.new.arity).weighted(tables)
    return Batch(codes, GROUND, weights)
