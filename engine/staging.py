"""From a client's transactions to what an epoch applies: checked, encoded, summed up.

In: transactions, in log order. Out: the program after them and one Z-set of facts for each relation. Always: a
transaction is staged whole or not at all, against the weights that the ones staged before it leave. What a transaction
adds to a tuple is the exact sum of all that it says of it, so the order of its parts means nothing (but in the mode
`set`); a sum, or a weight after it, that leaves the range of weights refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.batches import TypedFacts
from engine.elastic import Strategy
from engine.errors import (
    ArityError,
    InvalidValueError,
    NegativeWeightError,
    TypeMismatchError,
    WeightOverflowError,
)
from engine.language.operators import check_relation_name
from engine.language.schema import Column, ColumnType, Schema
from engine.placement import Codes, Placement
from engine.program import Program
from engine.resident.relation import Relation
from engine.symbols import SymbolTable
from engine.transaction import MAX_WEIGHT, Mode, PlacementName, RuleChange, Transaction, Tuple, Value
from engine.values import column_types, decode, encode_column

_GROUND = np.zeros(1, np.int32)
_SHOWN = 10
"""Offending tuples that an error names."""


@dataclass(frozen=True, slots=True)
class FactInput:
    """Changes of one relation's facts: tuples of values, int64[n, arity] numbers, or typed columns; weights int64[n]
    or int64[1]."""

    relation: str
    tuples: Sequence[Sequence[Value]] | Codes | TypedFacts
    weights: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Request:
    """A transaction with its facts as arrays."""

    facts: tuple[FactInput, ...]
    rules: tuple[RuleChange, ...]
    declarations: str
    mode: Mode
    dry_run: bool
    undeclare: tuple[str, ...] = ()
    strategy: Strategy | None = None
    placement: PlacementName | None = None

    @classmethod
    def of(cls, transaction: Transaction) -> Request:
        facts = tuple(
            FactInput(change.relation, change.tuples, np.array([change.weight], np.int64))
            for change in transaction.facts
            if len(change.tuples)
        )
        facts += tuple(FactInput(bulk.relation, bulk, bulk.weights) for bulk in transaction.columns)
        return cls(
            facts,
            transaction.rules,
            transaction.declarations,
            transaction.mode,
            transaction.dry_run,
            transaction.undeclare,
            transaction.strategy,
            transaction.placement,
        )


class Staging:
    """The epoch to be: `program` and `facts` grow with each `add`.

    heaviest: no fact has a larger weight before the epoch. While this and what is added are small, as they nearly
    always are, no weight can leave its range, and what is only added needs no look at the weights that are there.
    """

    def __init__(
        self, program: Program, placement: Placement, symbols: SymbolTable, heaviest: int = MAX_WEIGHT
    ) -> None:
        self.program = program
        self._heaviest = heaviest
        self.facts: dict[str, list[tuple[Codes, npt.NDArray[np.int64]]]] = {}
        self._before = program
        self._placement = placement
        self._symbols = symbols
        self._tallies: dict[str, Relation] = {}

    def add(self, request: Request) -> None:
        """Stage one transaction.

        Raises:
            ZedlogError: it is refused; nothing of it is staged.
        """
        mark = len(self._symbols)
        try:
            self._add(request)
        except BaseException:
            self._symbols.truncate(mark)
            raise

    def _add(self, request: Request) -> None:
        held = self._held()
        program = self.program.changed(
            request.rules, request.declarations, request.mode, held, request.undeclare
        )
        staged: list[tuple[str, Codes, npt.NDArray[np.int64]]] = []
        open_types = False
        for change in request.facts:
            schema = program.schemas.get(change.relation)
            if schema is None:
                check_relation_name(change.relation)
            else:
                _check_arity(change, schema)
            schema, types = _typed(change, schema)
            if change.relation not in program.schemas or schema != program.schemas[change.relation]:
                held[change.relation] = schema
                open_types = True
                # A later change of this transaction meets the types that this one fixed.
                program = program.with_facts(held)
            held.setdefault(change.relation, schema)
            staged.append((change.relation, self._encode(change, types), change.weights))
        if open_types:
            program = program.with_facts(held)
        self._check_arities(program)
        sums = self._check_weights(request.mode, staged, held)
        for relation, codes, weights in sums:
            self._stage(relation, codes, weights)
        emptied = {
            r
            for r, codes, weights in sums
            if (not len(codes) or (weights < 0).any()) and not self._asserted_after(r)
        }
        if emptied:
            # What only its facts have fixed is open again, as if they had never been there.
            program = program.with_facts({r: s for r, s in held.items() if r not in emptied})
        self.program = program

    def _held(self) -> dict[str, Schema]:
        """The relations that hold facts, or will."""
        return {
            name: schema
            for name, schema in self.program.schemas.items()
            if (self._asserted_after(name) if name in self.facts else self._placement.count(name, "asserted"))
        }

    def _asserted_after(self, relation: str) -> int:
        """How many tuples of the relation are asserted after what is staged."""
        tally = self._tallies.get(relation) or self._tally(relation, self.facts[relation][0][0].shape[1])
        rows = tally.all_rows()
        before = self._placement.asserted(relation, tally.codes(rows))
        after = before + tally.describe(rows)[0]
        appeared = int(np.count_nonzero((before == 0) & (after > 0)))
        return (
            self._placement.count(relation, "asserted")
            + appeared
            - int(np.count_nonzero((before > 0) & (after == 0)))
        )

    def _tally(self, relation: str, arity: int) -> Relation:
        tally = self._tallies[relation] = Relation(relation, arity)
        for earlier, change in self.facts[relation]:
            _push(tally, earlier, change)
        return tally

    def _check_arities(self, program: Program) -> None:
        for name, schema in program.schemas.items():
            old = self._before.schemas.get(name)
            if old is not None and old.arity != schema.arity and self._placement.count(name, "all"):
                raise ArityError(
                    f"{name} still holds tuples of {old.arity} columns; "
                    "remove its rules in a transaction of its own first",
                    relation=name,
                    expected=old.arity,
                    got=schema.arity,
                )

    def _encode(self, change: FactInput, types: Sequence[ColumnType]) -> Codes:
        if isinstance(change.tuples, np.ndarray):
            return np.ascontiguousarray(change.tuples, np.int64)
        if isinstance(change.tuples, TypedFacts):
            return change.tuples.encode(self._symbols)
        codes = np.empty((len(change.tuples), len(types)), np.int64)
        for position, values in enumerate(zip(*change.tuples, strict=True)):
            where = f"column {position + 1} of the facts of {change.relation}"
            codes[:, position] = encode_column(values, types[position], self._symbols, where)
        return codes

    # ---- weights

    def _check_weights(
        self,
        mode: Mode,
        staged: list[tuple[str, Codes, npt.NDArray[np.int64]]],
        schemas: Mapping[str, Schema],
    ) -> list[tuple[str, Codes, npt.NDArray[np.int64]]]:
        """The transaction's changes with weights checked, in set mode replaced by what they come to.

        schemas: of the relations that are changed, with the types that the transaction itself has fixed.
        """
        if mode == "set":
            self._heaviest = max(self._heaviest, 1)
            return self._as_sets(staged)
        parts: dict[str, list[tuple[Codes, npt.NDArray[np.int64]]]] = {}
        for relation, codes, weights in staged:
            parts.setdefault(relation, []).append((codes, weights))
        result: list[tuple[str, Codes, npt.NDArray[np.int64]]] = []
        for relation, changes in parts.items():
            largest = _largest(changes)
            if self._heaviest + largest <= MAX_WEIGHT and not any((w < 0).any() for _, w in changes):
                result += [(relation, codes, weights) for codes, weights in changes]
            else:
                result.append((relation, *self._checked(schemas[relation], changes)))
            self._heaviest += largest
        return result

    def _checked(
        self, schema: Schema, changes: list[tuple[Codes, npt.NDArray[np.int64]]]
    ) -> tuple[Codes, npt.NDArray[np.int64]]:
        """The sum of a relation's changes, against the weights that are there.

        Raises:
            WeightOverflowError, NegativeWeightError: a sum, or a weight after it, leaves the range of weights.
        """
        codes, high, low = _net(schema.relation, changes)
        fits = (high >= -(2**31)) & (high < 2**31) & ((high != -(2**31)) | (low != 0))
        now = self._weights(schema.relation, codes)
        if not fits.all():
            wrong = np.flatnonzero(~fits)
            total = (int(high[wrong[0]]) << 32) + int(low[wrong[0]])
            raise WeightOverflowError(
                f"what the transaction adds to the weight of {self._shown(schema, codes[wrong])} leaves 64 bits; "
                f"for the first of them it comes to {total}",
                **self._about(schema, codes[wrong], now[wrong]),
            )
        change = (high << 32) + low
        too_large = np.flatnonzero((change > 0) & (now > MAX_WEIGHT - np.maximum(change, 0)))
        if len(too_large):
            codes = codes[too_large]
            raise WeightOverflowError(
                f"the transaction would take the weight of {self._shown(schema, codes)} out of 64 bits",
                **self._about(schema, codes, now[too_large]),
                changes=change[too_large][:_SHOWN].tolist(),
            )
        below = np.flatnonzero((change < 0) & (now + np.minimum(change, 0) < 0))
        if len(below):
            raise self._negative(schema, codes[below], now[below], change[below])
        moved = np.flatnonzero(change)
        return codes[moved], change[moved]

    def _negative(self, schema: Schema, codes: Codes, now: Codes, change: Codes) -> NegativeWeightError:
        return NegativeWeightError(
            f"the transaction would take the weight of {self._shown(schema, codes)} below zero",
            **self._about(schema, codes, now),
            changes=change[:_SHOWN].tolist(),
        )

    def _about(self, schema: Schema, codes: Codes, now: Codes) -> dict[str, Any]:
        """What a program needs to know of tuples whose weights would be wrong: the first of them."""
        return {
            "relation": schema.relation,
            "tuples": [list(t) for t in self._decoded(schema, codes)],
            "weights": now[:_SHOWN].tolist(),
            "number": len(codes),
        }

    def _shown(self, schema: Schema, codes: Codes) -> str:
        shown = [
            f"{schema.relation}({', '.join(map(_literal, values))})"
            for values in self._decoded(schema, codes)
        ]
        more = f" and {len(codes) - _SHOWN} more" if len(codes) > _SHOWN else ""
        return ", ".join(shown) + more

    def _decoded(self, schema: Schema, codes: Codes) -> list[Tuple]:
        return decode(codes[:_SHOWN], [column.type for column in schema.columns], self._symbols)

    def _as_sets(
        self, staged: list[tuple[str, Codes, npt.NDArray[np.int64]]]
    ) -> list[tuple[str, Codes, npt.NDArray[np.int64]]]:
        """In order: after a positive change a tuple has weight 1 or what it had, after a negative one 0."""
        result: list[tuple[str, Codes, npt.NDArray[np.int64]]] = []
        own: dict[str, Relation] = {}
        for relation, codes, weights in staged:
            weights = np.broadcast_to(weights, len(codes))
            for positive in _runs(weights > 0):
                part = codes[positive]
                tally = Relation(relation, codes.shape[1])
                _push(tally, part, np.ones(1, np.int64))
                distinct = tally.codes(tally.all_rows())
                earlier = own.setdefault(relation, Relation(relation, codes.shape[1]))
                now = self._weights(relation, distinct) + _tallied(earlier, distinct)
                change = np.where(now == 0, 1, 0) if weights[positive.start] > 0 else -now
                moved = np.flatnonzero(change)
                if len(moved):
                    _push(earlier, distinct[moved], change[moved])
                    result.append((relation, distinct[moved], change[moved]))
        return result

    def _weights(self, relation: str, codes: Codes) -> npt.NDArray[np.int64]:
        """The asserted weights, with what is staged."""
        weights = self._placement.asserted(relation, codes)
        if relation in self.facts:
            tally = self._tallies.get(relation) or self._tally(relation, codes.shape[1])
            weights = weights + _tallied(tally, codes)
        return weights

    def _stage(self, relation: str, codes: Codes, weights: npt.NDArray[np.int64]) -> None:
        self.facts.setdefault(relation, []).append((codes, weights))
        if relation in self._tallies:
            _push(self._tallies[relation], codes, weights)

    def fact_deltas(self) -> dict[str, tuple[Codes, npt.NDArray[np.int64]]]:
        """All staged facts as one Z-set for each relation."""
        joined = {relation: _joined(relation, parts) for relation, parts in self.facts.items()}
        return {relation: change for relation, change in joined.items() if len(change[0])}


def _joined(
    relation: str, parts: list[tuple[Codes, npt.NDArray[np.int64]]]
) -> tuple[Codes, npt.NDArray[np.int64]]:
    """The changes of transactions that were checked one after the other, as one Z-set."""
    if len(parts) == 1:
        return parts[0]
    if _largest(parts) > MAX_WEIGHT:
        # A placement may add up in any order, so the sums must be made here. Each is a difference of two weights.
        codes, high, low = _net(relation, parts)
        return codes, (high << 32) + low
    weights = [np.broadcast_to(weights, len(codes)) for codes, weights in parts]
    return np.concatenate([codes for codes, _ in parts]), np.concatenate(weights)


def _largest(parts: list[tuple[Codes, npt.NDArray[np.int64]]]) -> int:
    """No sum of the changes of a tuple is larger than this, nor one of some of them."""
    return sum(
        len(codes) * max(abs(int(weights.min())), int(weights.max()))
        for codes, weights in parts
        if len(codes)
    )


def _net(
    relation: str, parts: list[tuple[Codes, npt.NDArray[np.int64]]]
) -> tuple[Codes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct tuples of some changes, and the exact sum of each one's weights as high * 2^32 + low, where low has
    32 bits: so sums of fewer than 2^31 weights are exact, also those that leave 64 bits."""
    tally = Relation(relation, parts[0][0].shape[1])
    once = np.ones(1, np.int64)
    pushed = [tally.push(codes, _GROUND, once) for codes, _ in parts]
    rows = tally.all_rows()
    high, low = np.zeros((2, int(rows[-1]) + 1 if len(rows) else 0), np.int64)
    for places, (_, weights) in zip(pushed, parts, strict=True):
        np.add.at(high, places, weights >> 32)
        np.add.at(low, places, weights & 0xFFFFFFFF)
    high, low = high[rows], low[rows]
    return tally.codes(rows), high + (low >> 32), low & 0xFFFFFFFF


def _runs(flags: npt.NDArray[np.bool_]) -> Iterable[slice]:
    """The stretches of equal flags."""
    cuts = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
    return (slice(a, b) for a, b in pairwise(cuts) if a < b)


def _push(tally: Relation, codes: Codes, weights: npt.NDArray[np.int64]) -> None:
    """Add to a tally what was checked: its sums are differences of weights, which fit."""
    tally.push(codes, _GROUND, weights)


def _tallied(tally: Relation, codes: Codes) -> npt.NDArray[np.int64]:
    rows = tally.rows_of(codes)
    known = np.flatnonzero(rows >= 0)
    weights = np.zeros(len(codes), np.int64)
    weights[known] = tally.describe(rows[known])[0]
    return weights


def _check_arity(change: FactInput, schema: Schema) -> None:
    """Every tuple has as many values as the relation has columns."""
    tuples = change.tuples
    arity = schema.arity
    wrong: Sequence[Value] | None
    if isinstance(tuples, np.ndarray):
        wrong = None if tuples.shape[1] == arity else tuples[0].tolist()
    elif isinstance(tuples, TypedFacts):
        wrong = None if len(tuples.types) == arity else list(tuples.table.slice(0, 1).to_pylist()[0].values())
        wrong = wrong and wrong[: len(tuples.types)]
    else:
        wrong = next((t for t in tuples if len(t) != arity), None)
    if wrong is not None:
        raise ArityError(
            f"{schema} has {_columns(arity)}, but the tuple ({', '.join(map(_literal, wrong))}) has {len(wrong)}",
            relation=change.relation,
            expected=arity,
            got=len(wrong),
        )


def _typed(change: FactInput, schema: Schema | None) -> tuple[Schema, tuple[ColumnType, ...]]:
    """The schema with every type known, from the relation's and the tuples' values, and the types."""
    if isinstance(change.tuples, TypedFacts):
        return _fitted(change.tuples, schema)
    arity = schema.arity if schema else len(change.tuples[0])
    if schema is None:
        schema = Schema(change.relation, tuple(Column(f"c{i}", None) for i in range(arity)))
        _check_arity(change, schema)
    if isinstance(change.tuples, np.ndarray):
        # Numbers, unless the relation says otherwise: then the values of the array are checked like any others.
        sample = [tuple(change.tuples[0].tolist())]
        types = column_types(change.relation, sample, schema)
    else:
        types = column_types(change.relation, change.tuples, schema) if arity else ()
    columns = tuple(Column(c.name, kind) for c, kind in zip(schema.columns, types, strict=True))
    return Schema(schema.relation, columns, schema.declared), types


def _fitted(facts: TypedFacts, schema: Schema | None) -> tuple[Schema, tuple[ColumnType, ...]]:
    """The same for typed columns."""
    if schema is None:
        schema = Schema(facts.relation, tuple(Column(f"c{i}", None) for i in range(len(facts.types))))
    for position, (known, kind) in enumerate(zip(schema.columns, facts.types, strict=True), 1):
        if known.type not in (None, kind):
            raise TypeMismatchError(
                f"column {position} ({known.name}) of {facts.relation} holds {known.type.value}, "
                f"but the import has {kind.value}",
                relation=facts.relation,
                column_name=known.name,
                expected=known.type.value,
                got=kind.value,
            )
    columns = tuple(Column(c.name, kind) for c, kind in zip(schema.columns, facts.types, strict=True))
    return Schema(schema.relation, columns, schema.declared), facts.types


def check_array(relation: str, tuples: object) -> None:
    """An array of facts is int64[n, arity].

    Raises:
        InvalidValueError: it is of another shape or type.
    """
    if not isinstance(tuples, np.ndarray) or tuples.ndim != 2 or tuples.dtype.kind not in "iu":
        raise InvalidValueError(f"facts of {relation} as an array must be integers of shape [n, arity]")
    if tuples.dtype == np.uint64 and len(tuples) and tuples.max() > np.iinfo(np.int64).max:
        raise InvalidValueError(f"a number in the facts of {relation} does not fit into 64 bits")


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _columns(arity: int) -> str:
    return "1 column" if arity == 1 else f"{arity} columns"
