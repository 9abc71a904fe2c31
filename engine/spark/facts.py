"""Facts on the executors: from the files of an import, or in parts from this process, without being in it as a whole.

In: Parquet files of typed columns and weights (engine/bulk/batches.py), or parts as arrays. Out: `SparkFacts`, rows of
(c0 .., weight) in codes, of which this process knows numbers only. Always: the rows are computed once and kept, until
`release`; weights of 0 are left out. `net` sums them up and compares them with the facts that are held, exactly: sums
are decimals, so that one that leaves 64 bits is seen.

The files' digests were compared by the engine, which reads the bytes once, without decoding: the files are on its disk,
it needs no Python on the executors, and the memory for it does not depend on their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.data.arrow import HEIGHT, SUPPORT, array_of, codes_of, column, columns, to_arrow
from engine.data.facts import FileFacts
from engine.data.symbols import SymbolTable
from engine.data.transaction import MAX_WEIGHT
from engine.data.values import not_finite
from engine.language.schema import ColumnType
from engine.maintenance.facts import FactArrays, FactDelta, Net, Wrong, arrays
from engine.spark.dictionary import CODE, TEXT, Dictionary
from engine.spark.frames import WEIGHT, united
from engine.spark.plans.floats import finite, to_code
from engine.spark.tables import ROWS, Table, Tables
from engine.spark.version import Version

_PART_ROWS = 1 << 20
"""Rows that come from this process are put on the executors when there are so many."""
_NOW, _CHANGE, _WRONG, _MORE = "now", "change", "wrong", "more"
_SUM = "decimal(38,0)"


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """See the module and `FarFacts`."""

    tables: Tables
    arity: int
    parts: tuple[Table, ...]
    added: int
    gone: int
    heaviest: int
    more: int | None = None

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def frame(self) -> DataFrame:
        """(c0 .., weight)."""
        return united([part.frame.select(*columns(self.arity), WEIGHT) for part in self.parts])

    def here(self) -> FactArrays:
        if not self.rows:
            return np.empty((0, self.arity), np.int64), np.empty(0, np.int64)
        found = self.tables.collect(self.frame, small=False)
        return codes_of(found, self.arity), array_of(found, WEIGHT)


class FactTables:
    """Makes such facts, and keeps track of them."""

    def __init__(self, tables: Tables, dictionary: Dictionary) -> None:
        self._tables = tables
        self._dictionary = dictionary
        self._made: list[Table] = []

    def release(self) -> None:
        """Give the storage of all facts back; they are part of the state by now, or refused."""
        for table in self._made:
            self._tables.release(table)
        self._made = []

    def take(self, relation: str, files: FileFacts, symbols: SymbolTable) -> SparkFacts:
        """The facts of an import in codes; new symbols are learned.

        Raises:
            InvalidValueError: a float is NaN or infinite.
        """
        names, types = columns(len(files.types)), files.types
        read = self._tables.spark.read.parquet(*(f"file://{path}" for path in files.paths))
        rows = read.select(*names, F.col(WEIGHT)).where(F.col(WEIGHT) != 0)
        self._check_finite(relation, rows, types)
        texts = [name for name, kind in zip(names, types, strict=True) if kind is ColumnType.SYMBOL]
        held: list[Table] = []
        if texts:
            known, held = self._dictionary.learn(rows, texts, symbols)
        try:
            for name in texts:
                codes = known.select(F.col(TEXT).alias(name), F.col(CODE).alias(f"{name}_{CODE}"))
                rows = rows.join(codes, name, "left")
            coded = [_code(name, kind).alias(name) for name, kind in zip(names, types, strict=True)]
            return self._kept(rows.select(*coded, F.col(WEIGHT)), len(names))
        finally:
            for table in held:
                self._tables.release(table)

    def _check_finite(self, relation: str, rows: DataFrame, types: Sequence[ColumnType]) -> None:
        floats = [i for i, kind in enumerate(types) if kind is ColumnType.FLOAT]
        if not floats:
            return
        bad = [
            F.first(F.when(finite(F.col(name)).isNull(), F.col(name)), ignorenulls=True).alias(name)
            for name in map(column, floats)
        ]
        found = self._tables.collect(rows.agg(*bad), small=False)
        for i in floats:
            value = found.column(column(i))[0].as_py()
            if value is not None:
                raise not_finite(value, f"column {i + 1} of the facts of {relation}")

    def _kept(self, rows: DataFrame, arity: int) -> SparkFacts:
        """The rows, computed now."""
        weight = F.col(WEIGHT)
        absent = [F.col(name).isNull() for name in columns(arity)]
        measures = [
            F.count(F.when(weight > 0, 1)).alias("added"),
            F.count(F.when(weight < 0, 1)).alias("gone"),
            F.max(weight).alias("max"),
            F.min(weight).alias("min"),
            F.count(F.when(reduce(or_, absent, F.lit(False)), 1)).alias("absent"),
        ]
        table, found = self._tables.measured(rows, [], measures)
        self._made.append(table)
        told = found.to_pylist()[0]
        assert not told["absent"], "every value has a code"
        heaviest = max(told["max"], -told["min"]) if table.rows else 0
        return SparkFacts(self._tables, arity, (table,), told["added"], told["gone"], heaviest)

    def put(self, arity: int, parts: Iterable[FactArrays]) -> SparkFacts:
        """Facts that come from this process, in parts."""
        made: list[Table] = []
        added = gone = heaviest = 0
        waiting: list[pa.Table] = []

        def put() -> None:
            if waiting:
                made.append(self._tables.put(pa.concat_tables(waiting)))
                self._made.append(made[-1])
                waiting.clear()

        for codes, weights in parts:
            if len(codes):
                added += int(np.count_nonzero(np.broadcast_to(weights, len(codes)) > 0))
                gone += int(np.count_nonzero(np.broadcast_to(weights, len(codes)) < 0))
                heaviest = max(heaviest, int(weights.max()), -int(weights.min()))
                waiting.append(to_arrow(codes, weight=weights))
            if sum(part.num_rows for part in waiting) >= _PART_ROWS:
                put()
        put()
        return SparkFacts(self._tables, arity, tuple(made), added, gone, heaviest)

    def joined(self, arity: int, parts: Sequence[FactDelta]) -> SparkFacts:
        """Several changes as one; the sums of a tuple's weights fit into 64 bits, in whatever order they are made."""
        all_ = [part if isinstance(part, SparkFacts) else self.put(arity, [arrays(part)]) for part in parts]
        tables = tuple(table for facts in all_ for table in facts.parts)
        added, gone = sum(facts.added for facts in all_), sum(facts.gone for facts in all_)
        return SparkFacts(self._tables, arity, tables, added, gone, max(facts.heaviest for facts in all_))

    # ---- checks

    def net(self, held: Version | None, facts: FactDelta) -> Net:
        """The sums by tuple, unless one of them, or a weight after it, leaves the range of weights. held: the relation
        whose facts are changed.
        """
        assert isinstance(facts, SparkFacts), "a placement is given the facts that it took"
        key = columns(facts.arity)
        net = facts.frame.groupBy(*key).agg(F.sum(F.col(WEIGHT).cast(_SUM)).alias(_CHANGE))
        rows = None if held is None else held.frame()
        if rows is None:
            net = net.withColumn(_NOW, F.lit(0).cast("long"))
        else:
            ground = rows.where(F.col(HEIGHT) == 0).groupBy(*key).agg(F.sum(SUPPORT).alias(_NOW))
            net = net.join(ground, key, "left").withColumn(
                _NOW, F.coalesce(F.col(_NOW), F.lit(0).cast("long"))
            )
        change, now = F.col(_CHANGE), F.col(_NOW)
        after = change + now.cast("decimal(20,0)")
        wrong = (
            F.when((change < -MAX_WEIGHT) | (change > MAX_WEIGHT), F.lit("unfit"))
            .when((change > 0) & (after > MAX_WEIGHT), F.lit("heavy"))
            .when(after < 0, F.lit("negative"))
            .otherwise(F.lit(""))
        )
        more = _one(after > 0) - _one(now > 0)
        kept = net.select(*key, _NOW, _CHANGE, wrong.alias(_WRONG), more.alias(_MORE))
        table, found = self._tables.measured(kept, [_WRONG], [F.sum(_MORE).alias(_MORE)])
        try:
            numbers = dict(zip(found.column(_WRONG).to_pylist(), found.column(ROWS).to_pylist(), strict=True))
            for kind in ("unfit", "heavy", "negative"):
                if kind in numbers:
                    return Net(None, self._wrong(table.frame, kind, numbers[kind], facts.arity))
            moved = table.frame.where(change != 0).select(*key, change.cast("long").alias(WEIGHT))
            result = self._kept(moved, facts.arity)
            gained = sum(found.column(_MORE).to_pylist())
            return Net(SparkFacts(*_fields(result), gained), None)
        finally:
            self._tables.release(table)

    def _wrong(self, rows: DataFrame, kind: str, number: int, arity: int) -> Wrong:
        """The first of the tuples whose weight would be wrong."""
        key = columns(arity)
        found = self._tables.collect(rows.where(F.col(_WRONG) == kind).orderBy(*key).limit(Wrong.SHOWN))
        changes = [int(change) for change in found.column(_CHANGE).to_pylist()]
        return Wrong(kind, number, codes_of(found, arity), array_of(found, _NOW), changes)


def _code(name: str, kind: ColumnType) -> Column:
    """The code of a value in a column without nulls."""
    if kind is ColumnType.SYMBOL:
        return F.col(f"{name}_{CODE}")
    return to_code(F.col(name)) if kind is ColumnType.FLOAT else F.col(name).cast("long")


def _one(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0).cast("long")


def _fields(facts: SparkFacts) -> tuple[Tables, int, tuple[Table, ...], int, int, int]:
    return facts.tables, facts.arity, facts.parts, facts.added, facts.gone, facts.heaviest
