"""The placement on Spark: evaluates the same circuit over DataFrames, for states that are too large for one process.

The state is a `Version` for each relation: immutable, a sum of layers. `execute` begins an epoch (epoch.py), which
makes new versions out of old ones and leaves the old ones unchanged; storage that only forgotten versions used is given
back. No index is kept: a small change finds its join partners in one pass over a relation, a large one by an exchange.
An epoch costs a few Spark jobs for each height of each stratum that it touches, some tenths of a second each; so small
updates are better evaluated on the resident placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from engine.circuit.circuit import Circuit
from engine.data.arrow import ENTRY, HEIGHT, SUPPORT, array_of, codes_of, columns, to_arrow
from engine.data.codes import Codes
from engine.data.facts import FileFacts
from engine.data.far import FarTexts
from engine.data.symbols import SymbolTable
from engine.maintenance.epoch import Costs
from engine.maintenance.facts import FactArrays, FactDelta, FarFacts, Net
from engine.maintenance.placement import DEFAULT, Budget, Encode, Executed, PlacementState
from engine.maintenance.policy import Policy
from engine.resident.changes import described
from engine.resident.relation import Relation, derived_of
from engine.resident.transfer import bootstrap_costs
from engine.spark.checks import check_version, state_of
from engine.spark.dictionary import Dictionary
from engine.spark.epoch import SparkEpoch
from engine.spark.facts import FactTables
from engine.spark.frames import long
from engine.spark.session.session import SparkOptions, SparkSource
from engine.spark.tables import Tables
from engine.spark.version import Counts, Version, asserted_in_driver, collected
from engine.spark.versions import Versions
from engine.spark.work.work import begun


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
        self._state = Versions(self._tables)
        options = self._source.options
        self._dictionary = Dictionary(self._tables, min(options.local_rows, options.import_rows))
        self._facts = FactTables(self._tables, self._dictionary)
        self._epoch: SparkEpoch | None = None
        self.heights = 0
        """The number of heights that the last epoch went through, in all strata together."""

    def close(self) -> None:
        """Give all storage back, and stop Spark if this placement started it."""
        self._state.release(self._state.versions, {})
        self._state.versions = {}
        self._tables.give_up()
        self._facts.release()
        self._dictionary.release()
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
        epoch = self.begin(circuit, facts, encode, budget, policy)
        try:
            return epoch.run()
        except BaseException:
            self.rollback()
            raise
        finally:
            self.heights = epoch.heights

    def begin(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy,
    ) -> SparkEpoch:
        """Begin an epoch; it is to be run, and then committed or rolled back."""
        assert self._epoch is None, "the last epoch is neither committed nor rolled back"
        self._tables.drain()
        self._epoch = SparkEpoch(self._state, circuit, facts, encode, budget, policy)
        return self._epoch

    def commit(self) -> None:
        assert self._epoch is not None, "nothing was executed"
        epoch, self._epoch = self._epoch, None
        epoch.commit()

    def rollback(self) -> None:
        assert self._epoch is not None, "nothing was executed"
        epoch, self._epoch = self._epoch, None
        epoch.rollback()

    # ---- facts and symbols that do not pass through this process (engine/maintenance/facts.py)

    def takes(self, rows: int) -> bool:
        return rows > self._source.options.import_rows

    def take(self, relation: str, files: FileFacts, symbols: SymbolTable) -> FarFacts:
        with self._tables.watched(None, None, lambda: None):
            return self._facts.take(relation, files, symbols)

    def put(self, arity: int, parts: Iterable[FactArrays]) -> FarFacts:
        return self._facts.put(arity, parts)

    def joined(self, arity: int, parts: Sequence[FactDelta]) -> FarFacts:
        return self._facts.joined(arity, parts)

    def net(self, relation: str | None, facts: FarFacts) -> Net:
        with self._tables.watched(None, None, lambda: None):
            return self._facts.net(None if relation is None else self._version(relation), facts)

    def texts(self, parts: Iterable[tuple[int, Sequence[str | None]]]) -> FarTexts:
        self._dictionary.fill(parts)
        return self._dictionary

    def let_go(self) -> None:
        self._facts.release()

    # ---- reading

    def _version(self, relation: str) -> Version | None:
        versions = self._state.versions if self._epoch is None else self._epoch.versions
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
        small = self._tables.small(wanted.rows)
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

    def tuples(
        self, relation: str, bound: Mapping[int, int], domain: str, most: int | None = None
    ) -> tuple[Codes, Codes]:
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
        summary = summary.where(wanted)
        if most is not None and key:
            summary = summary.orderBy(*key).limit(most)
        found = self._tables.collect(summary, small=self._tables.small(version.rows))
        return codes_of(found, version.arity), array_of(found, "asserted")

    def holds(self, relation: str) -> bool:
        version = self._version(relation)
        return version is not None and version.counts != Counts()

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        # A query for each relation.
        return None

    def memory(self) -> int:
        return sum(version.memory() for version in self._state.versions.values())

    def state(self) -> dict[str, Any]:
        versions = self._state.versions if self._epoch is None else self._epoch.versions
        return {name: state_of(versions[name], self._tables) for name in sorted(versions)}

    def export_state(self) -> PlacementState:
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        return PlacementState(self._state.circuit, {name: self.table(name) for name in self._state.versions})

    def table(self, relation: str) -> pa.Table:
        """A relation as `export_state` has it."""
        return collected(self._state.versions[relation], self._tables)

    @property
    def costs(self) -> Costs:
        """What the last bootstraps of the strata have cost."""
        return self._state.costs

    @property
    def circuit(self) -> Circuit:
        return self._state.circuit

    def size(self, relation: str) -> int:
        """Bytes held of a relation."""
        version = self._state.versions.get(relation)
        return 0 if version is None else version.memory()

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        assert not self._state.versions, "only a new placement takes a state"
        self.rearrange(state.circuit, frozenset(), state.relations)
        self._state.costs |= self.costs_of(state)

    def costs_of(self, state: PlacementState) -> Costs:
        """What a bootstrap of each stratum of a state that is held here would cost."""
        costs = {}
        for names, cost in bootstrap_costs(state).items():
            held = float(sum(self._state.versions[name].counts.derived for name in names))
            costs[names] = replace(cost, pushed=cost.derivations, held=held, now=held)
        return costs

    def rearrange(
        self, circuit: Circuit, kept: Set[str], tables: Mapping[str, pa.Table]
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Hold the relations of another circuit: those `kept` as they are, the others as `tables` say. Returns what
        undoes it, if nothing else has changed since, and what makes it final. Not allowed during an epoch.
        """
        assert self._epoch is None, "an executed epoch is neither kept nor dropped"
        state = self._state
        versions, before = state.versions, state.circuit
        made: dict[str, Version] = {}
        try:
            for name, table in tables.items():
                version = begun(Version(name, circuit.arities[name]), False, circuit.stratum_of[name])
                made[name] = self._filled(version, table) if table.num_rows else version
        except BaseException:
            state.release(made, {})
            raise
        state.versions = {name: versions[name] for name in kept} | made
        state.circuit = circuit

        def undo() -> None:
            state.release(made, {})
            state.versions, state.circuit = versions, before

        def settle() -> None:
            state.release({name: version for name, version in versions.items() if name not in kept}, {})

        return undo, settle

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
        for version in self._state.versions.values():
            check_version(version, self._tables)
