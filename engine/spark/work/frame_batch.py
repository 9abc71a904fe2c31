"""The entry changes of one height on the executors, and what the driver must know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.circuit import Stratum
from engine.circuit.plan import Start
from engine.data.arrow import HEIGHT, columns
from engine.maintenance.placement import Encode
from engine.spark.changes import Changes
from engine.spark.frames import REL, WEIGHT, united
from engine.spark.plans.lowering import fits
from engine.spark.version import Version

_CHANGED, _NET = "changed", "net"


@dataclass(slots=True)
class Measured:
    """changed: how many entry changes a relation has. net: the sum of these changes. fitting: how many of them fit an
    atom at which plans start."""

    changed: dict[str, int] = field(default_factory=dict)
    net: dict[str, int] = field(default_factory=dict)
    fitting: dict[Start, int] = field(default_factory=dict)


class Measures:
    """Measures entry changes, (rel, c0 .., weight), that are grouped by relation, and by more columns if need be.
    `names`: the stratum's relations, by number."""

    def __init__(self, stratum: Stratum, names: Sequence[str], encode: Encode) -> None:
        self._names = names
        starts = [plan.start for rule in stratum.rules for plan in rule.plans]
        self._starts = {
            start: f"{REL} = {names.index(start.relation)} AND {fits(start, encode)}"
            for start in dict.fromkeys(starts)
            if start.relation in names
        }

    def over_all(self, weight: str) -> dict[str, str]:
        """The same aggregates, in SQL by name, over rows that are not grouped."""
        found = {
            f"start{i}": f"count_if({weight} != 0 AND {fit})" for i, fit in enumerate(self._starts.values())
        }
        for number in range(len(self._names)):
            found[f"{_CHANGED}{number}"] = f"count_if({REL} = {number} AND {weight} != 0)"
            found[f"{_NET}{number}"] = f"sum(if({REL} = {number}, {weight}, 0L))"
        return found

    def read_all(self, found: Mapping[str, int]) -> Measured:
        """What `over_all` found."""
        numbers = [(name, number) for number, name in enumerate(self._names)]
        changed, net = ({name: found[f"{of}{n}"] for name, n in numbers} for of in (_CHANGED, _NET))
        return Measured(changed, net, {start: found[f"start{i}"] for i, start in enumerate(self._starts)})

    def columns(self, weight: str) -> list[Column]:
        """The aggregates. weight: the column of the changes; a row where it is zero is not a change."""
        found = [f"count_if({weight} != 0) AS {_CHANGED}", f"sum({weight}) AS {_NET}"]
        for i, fitting in enumerate(self._starts.values()):
            found.append(f"count_if({weight} != 0 AND {fitting}) AS start{i}")
        return [F.expr(text) for text in found]

    def read(self, found: pa.Table) -> Measured:
        """What a query found. A row whose `rel` is negative belongs to no relation and is left out."""
        result = Measured()
        for row in found.to_pylist():
            if row[REL] < 0:
                continue
            name = self._names[row[REL]]
            result.changed[name] = result.changed.get(name, 0) + row[_CHANGED]
            result.net[name] = result.net.get(name, 0) + row[_NET]
            for i, start in enumerate(self._starts):
                result.fitting[start] = result.fitting.get(start, 0) + row[f"start{i}"]
        return result


class FrameBatch:
    """See the module. `rows` and `earlier`: (rel, c0 .., height, weight), the changes and all earlier ones of the
    epoch; `versions`: the stratum's relations."""

    def __init__(
        self,
        versions: Mapping[str, Version],
        height: int,
        rows: DataFrame,
        earlier: Sequence[DataFrame],
        measured: Measured,
    ) -> None:
        self.height = height
        self._numbers = {name: number for number, name in enumerate(versions)}
        self._versions = versions
        self._rows = rows
        self._earlier_parts = earlier
        self._measured = measured
        self._changes: dict[str, Changes] = {}
        self._earlier: dict[str, DataFrame] = {}

    def net(self) -> Mapping[str, int]:
        return self._measured.net

    def fitting(self, start: Start) -> int:
        return self._measured.fitting.get(start, 0)

    def of(self, relation: str) -> Changes | None:
        if not self._measured.changed.get(relation):
            return None
        if relation not in self._changes:
            arity = self._versions[relation].arity
            self._changes[relation] = Changes(
                arity, lambda: None, lambda: self._frame(relation, [self._rows])
            )
        return self._changes[relation]

    def earlier(self, relation: str) -> DataFrame | None:
        if not self._earlier_parts:
            return None
        if relation not in self._earlier:
            self._earlier[relation] = self._frame(relation, self._earlier_parts)
        return self._earlier[relation]

    def _frame(self, relation: str, parts: Sequence[DataFrame]) -> DataFrame:
        mine = united(parts).where(f"{REL} = {self._numbers[relation]}")
        return mine.select(*columns(self._versions[relation].arity), HEIGHT, WEIGHT)
