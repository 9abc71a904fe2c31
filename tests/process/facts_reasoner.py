"""A reasoner for process tests: facts with weights, exactly; no rules. Same interface as `zedlog.Reasoner`.

All columns are symbols or numbers, by the first use. It decodes what it records from its own symbol list, so
a wrong recovery shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.data.facts import FileFacts
from engine.data.symbols import SymbolTable
from engine.data.transaction import Transaction
from engine.data.values import decode, encode_value, type_of
from engine.database.epoch import EpochRecord, EpochResult
from engine.database.reasoner import GroupResult
from engine.database.saved import SavedState
from engine.errors import BatchUnreadableError, NegativeWeightError, ZedlogError
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.server.interruption import Interruption

Weights = dict[tuple[str, tuple[int, ...]], int]


class FactsReasoner:
    """Made from a `SavedState`, as the engine process makes its reasoner."""

    def __init__(self, state: SavedState, interruption: Interruption) -> None:
        self.interruption = interruption
        self.epoch = state.epoch
        self.symbols = SymbolTable(state.symbols)
        self.schemas = dict(state.schemas)
        self.weights: Weights = {}
        for name, (codes, weights) in state.facts.items():
            for row, weight in zip(codes.tolist(), weights.tolist(), strict=True):
                self.weights[name, tuple(row)] = weight

    def sharing(self, transactions: Sequence[Transaction], /) -> int:
        """All of them: it knows of nothing that one could hide from another."""
        return len(transactions)

    def commit(self, transactions: Sequence[Transaction], /, *, shared: bool = False) -> GroupResult:
        mark = len(self.symbols)
        before = dict(self.weights)
        failures: list[ZedlogError | None] = []
        for transaction in transactions:
            try:
                self.weights = self._changed(transaction)
                failures.append(None)
            except (BatchUnreadableError, NegativeWeightError) as error:
                failures.append(error)
        if all(failures):
            return GroupResult(None, [failure for failure in failures if failure is not None])
        self.epoch += 1
        record = self._record(before, mark)
        result: Any = EpochResult(self.epoch, False, record, self.decode_changes)
        return GroupResult(record, [failure or result for failure in failures])

    def checkpoint(self, incarnation: str = "", versions: Mapping[str, str] | None = None) -> None:
        """It keeps none."""

    def effort(self) -> float:
        return 0.0

    def memory(self) -> int:
        return 0

    def close(self) -> None:
        """It holds nothing outside of this process."""

    def _changed(self, transaction: Transaction) -> Weights:
        after = dict(self.weights)
        for fact in transaction.facts:
            tuples = fact.tuples.read()[0] if isinstance(fact.tuples, FileFacts) else fact.tuples
            for row in tuples:
                columns = tuple(Column(f"x{i}", type_of(value)) for i, value in enumerate(row))
                self.schemas.setdefault(fact.relation, Schema(fact.relation, columns))
                key = fact.relation, tuple(encode_value(value, self.symbols) for value in row)
                after[key] = after.get(key, 0) + fact.weight
                if after[key] < 0:
                    raise NegativeWeightError("below zero", relation=fact.relation)
        return {key: weight for key, weight in after.items() if weight}

    def _record(self, before: Weights, mark: int) -> EpochRecord:
        changed = sorted(
            key for key in before.keys() | self.weights.keys() if before.get(key) != self.weights.get(key)
        )
        relations = {}
        for name in sorted({name for name, _ in changed}):
            keys = [key for key in changed if key[0] == name]
            relations[name] = RelationChange(
                np.array([row for _, row in keys], np.int64),
                np.array([self.weights.get(key, 0) for key in keys], np.int64),
                np.zeros(len(keys), np.bool_),
                np.array([(key in self.weights) - (key in before) for key in keys], np.int8),
                np.array([before.get(key, 0) for key in keys], np.int64),
                np.zeros(len(keys), np.bool_),
            )
        return EpochRecord(
            epoch=self.epoch,
            relations=relations,
            rules=(),
            schemas=dict(self.schemas),
            changed_schemas={name: self.schemas[name] for name in relations},
            declarations="",
            first_symbol=mark,
            symbols=self.symbols.since(mark),
            strategy="update",
            placement="resident",
            derivations=0,
            reason="",
            elapsed_ms=0.1,
        )

    def decode_changes(self, record: EpochRecord) -> dict[str, list[tuple[Any, int]]]:
        types = {name: [c.type for c in schema.columns] for name, schema in record.changed_schemas.items()}
        assert all(
            kind in (ColumnType.SYMBOL, ColumnType.NUMBER) for kinds in types.values() for kind in kinds
        )
        return {
            name: [
                (row, int(sign))
                for row, sign in zip(decode(c.codes, types[name], self.symbols), c.present, strict=True)
                if sign
            ]
            for name, c in record.relations.items()
        }
