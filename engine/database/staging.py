"""Turns clients' transactions into what an epoch applies: facts and rules that are checked, encoded and summed up.

In: transactions, in log order. Out: the program after them and one Z-set of facts for each relation. Always: a
transaction is staged whole or not at all, against the weights that the ones staged before it leave. What a transaction
adds to a tuple is the exact sum of all weights that it gives to it, so the order of its parts has no effect (except in
the mode `set`). The transaction is refused if a sum, or a weight after it, leaves the range of weights.

The facts of a large import may stay where they are, if the placement takes them (engine/maintenance/facts.py): then
their weights are checked there, and this process sees numbers and the tuples that an error names. In the mode `set`,
and where sources are restored, they are read; and what asks for single tuples of them gets them as arrays.

What is added for a source is added to the relation and to the source's own hidden collection (engine/data/sources.py);
in the mode `set` it is the source's weight that stays 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.data.facts import FileFacts, TypedFacts
from engine.data.sources import is_hidden, relation_of, sourced
from engine.data.transaction import MAX_WEIGHT, FactChange, Transaction
from engine.data.values import (
    Tuple,
    Value,
    column_types,
    columns_of,
    decode,
    encode_column,
    encode_numbers,
    number_types,
    type_of,
    write_tuple,
)
from engine.database.claims import Claims, asserted_by, overclaimed, overdrawn
from engine.database.database import Database
from engine.database.program import Program
from engine.errors import (
    ArityError,
    InvalidRequestError,
    NegativeWeightError,
    NotEmptyError,
    TypeMismatchError,
    WeightOverflowError,
    ZedlogError,
)
from engine.language.operators import check_relation_name
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.facts import (
    FactArrays,
    FactDelta,
    FarFacts,
    Wrong,
    arrays,
    largest,
    rows_of,
    takes_far,
)
from engine.resident.relation import Relation

Types: TypeAlias = tuple[ColumnType, ...]
Typed: TypeAlias = tuple[str, Types]
"""A relation, and the types of tuples of it."""
Delta: TypeAlias = FactDelta
"""(codes, weights): int64[n, arity], and int64[n] or int64[1]; or the same elsewhere."""
_GROUND = np.zeros(1, np.int32)
_FACTOR = np.int64(-7046029254386353131)
"""2^64 divided by the golden ratio, made odd (Knuth, The Art of Computer Programming 6.4)."""
_SHOWN = Wrong.SHOWN
"""Offending tuples that an error names."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Changes of facts whose tuples have the same types."""

    types: Types
    change: FactChange

    @property
    def relation(self) -> str:
        return self.change.relation

    @property
    def sample(self) -> Sequence[Value]:
        """One of the tuples."""
        tuples = self.change.tuples
        if isinstance(tuples, FileFacts):
            return tuples.first()
        if isinstance(tuples, TypedFacts):
            return list(tuples.table.slice(0, 1).to_pylist()[0].values())[: len(self.types)]
        return tuples[0].tolist() if isinstance(tuples, np.ndarray) else tuples[0]


class Staging:
    """The epoch to be: `program` and `facts` grow with each `add`. Facts are kept by the types of their tuples, because
    the types of a relation may change from one transaction to the next.

    While the largest weight and the weights that are added are small, as they nearly always are, no weight can leave
    its range, and tuples that are only added need no look at the existing weights.
    """

    def __init__(self, before: Database) -> None:
        self.program = self._before = before.program
        self._heaviest = before.heaviest
        self.facts: dict[Typed, list[Delta]] = {}
        self._placement = before.placement
        self._symbols = before.symbols
        self._tallies: dict[Typed, Relation] = {}
        self._known_claims: Claims | None = None

    def add(self, transaction: Transaction) -> None:
        """Stage one transaction.

        Raises:
            ZedlogError: it is refused; nothing of it is staged.
        """
        mark = len(self._symbols)
        try:
            self._add(transaction)
        except BaseException:
            self._symbols.truncate(mark)
            raise

    def _add(self, transaction: Transaction) -> None:
        _check_names(transaction)
        if transaction.onto_empty:
            _check_empty(self.program)
        parts = [
            part
            for change in self._read(transaction)
            for part in _by_types(change, self._hint(change.relation))
        ]
        if self._symbols.is_far:
            # One question for all of them; the answers are remembered.
            self._symbols.find_all([text for part in parts for text in _texts(part)])
        program, sums, others = self._fitting(transaction, parts)
        if any(map(self._is_held, others)):
            # Integers, which a declaration of this transaction makes floats.
            parts = [*(part for part in parts if self._is_held(part)), *others]
            program, sums, others = self._fitting(transaction, parts)
        gained = {
            relation: _schema(relation, types, None)
            for relation, types in sums
            if is_hidden(relation) and relation not in self.program.stored
        }
        for typed, deltas in self._sums(transaction, others).items():
            relation, types = typed
            held = gained.get(relation) or program.stored.get(relation)
            if held is not None:
                raise _two_types(held, types)
            gained[relation] = _schema(relation, types, program.schemas.get(relation))
            sums[typed] = deltas
        if transaction.onto_empty:
            self._check_restored(sums)
        program = program.with_facts(gained)
        for typed, deltas in sums.items():
            self._stage(typed, deltas)
        self.program = program

    def _read(self, transaction: Transaction) -> list[FactChange]:
        """The transaction's changes; of facts in files, those remain in them that the placement takes from there.

        Raises:
            BatchUnreadableError: a file is missing, or is not the one that was written.
        """
        changes = []
        restored = transaction.onto_empty and any(is_hidden(change.relation) for change in transaction.facts)
        for change in transaction.changes:
            if isinstance(change.tuples, FileFacts):
                if transaction.mode != "set" and not restored and self._takes(change.tuples):
                    change.tuples.check()
                else:
                    change = FactChange(change.relation, *change.tuples.read())
                    if not len(change.tuples):
                        continue
            changes.append(change)
        return changes

    def _takes(self, files: FileFacts) -> bool:
        return takes_far(self._placement) and self._placement.takes(files.rows)

    def _fitting(
        self, transaction: Transaction, parts: Sequence[_Part]
    ) -> tuple[Program, dict[Typed, list[Delta]], list[_Part]]:
        """The program with the transaction's rules and declarations, over the facts that are held then, except for the
        `others`; the changes of facts of the types that are held now; and the other parts, with the types that they
        have in that program.
        """
        held = [part for part in parts if self._is_held(part)]
        sums = self._sums(transaction, held, self._replaced(transaction))
        # What loses all of its facts may get others of any type with the same transaction.
        emptied = {
            typed[0]
            for typed, deltas in sums.items()
            if any(_retracts(delta) for delta in deltas) and self._is_emptied(typed, deltas)
        }
        program = self.program.changed(
            transaction.rules, transaction.declarations, transaction.mode, emptied, transaction.undeclare
        )
        others = [] if len(held) == len(parts) else [part for part in parts if not self._is_held(part)]
        return program, sums, [_fitted(part, program.schemas.get(part.relation)) for part in others]

    def _hint(self, relation: str) -> Schema | None:
        """The types that tuples of a relation most likely have."""
        return self.program.stored.get(relation) or self.program.schemas.get(relation)

    def _is_held(self, part: _Part) -> bool:
        """Whether the relation holds facts of the part's types."""
        held = self.program.stored.get(part.relation)
        return held is not None and types_of(held) == part.types

    def _is_emptied(self, typed: Typed, deltas: Sequence[Delta]) -> bool:
        """Whether no tuple of these types is asserted after what is staged and the further `deltas`."""
        key = self._key_before(typed)
        count = 0 if key is None else self._placement.count(key, "asserted")
        if count > sum(rows_of(delta) for delta in (*self.facts.get(typed, ()), *deltas)):
            # More than they can retract.
            return False
        if len(deltas) == 1 and not isinstance(deltas[0], tuple) and typed not in self.facts:
            more = deltas[0].more
            if more is not None:
                return not count + more
        if typed in self.facts:
            staged = self._tally(typed)
            rows = staged.all_rows()
            before = self._committed(typed, staged.codes(rows))
            count += _more(before, before + staged.describe(rows)[0])
        own = Relation(typed[0], len(typed[1]))
        for delta in deltas:
            _push(own, *arrays(delta))
        rows = own.all_rows()
        now = self._weights(typed, own.codes(rows))
        return not count + _more(now, now + own.describe(rows)[0])

    def _tally(self, typed: Typed) -> Relation:
        """The staged facts of these types, summed up."""
        tally = self._tallies.get(typed)
        if tally is None:
            tally = self._tallies[typed] = Relation(typed[0], len(typed[1]))
            for delta in self.facts[typed]:
                _push(tally, *arrays(delta))
        return tally

    def _key_before(self, typed: Typed) -> str | None:
        """The key under which the last epoch left tuples of these types; None where it left none."""
        relation, types = typed
        return self._before.key(relation) if self._before.types.get(relation) == types else None

    def _committed(self, typed: Typed, codes: Codes) -> Codes:
        """The asserted weights that the last epoch left."""
        key = self._key_before(typed)
        return np.zeros(len(codes), np.int64) if key is None else self._placement.asserted(key, codes)

    def _delta(self, part: FactChange, types: Types) -> Delta:
        if isinstance(part.tuples, FileFacts):
            assert takes_far(self._placement), "other facts were read"
            return self._placement.take(part.relation, part.tuples, self._symbols)
        return self._encode(part, types), part.weights

    def _encode(self, part: FactChange, types: Types) -> Codes:
        assert not isinstance(part.tuples, FileFacts), "they are taken or read"
        if isinstance(part.tuples, np.ndarray):
            return encode_numbers(part.tuples, types)
        if isinstance(part.tuples, TypedFacts):
            return part.tuples.encode(part.relation, self._symbols)
        codes = np.empty((len(part.tuples), len(types)), np.int64)
        for position, values in enumerate(columns_of(part.tuples, len(types))):
            where = f"column {position + 1} of the facts of {part.relation}"
            codes[:, position] = encode_column(values, types[position], self._symbols, where)
        return codes

    # ---- weights

    def _sums(
        self, transaction: Transaction, parts: Sequence[_Part], replaced: Sequence[Typed] = ()
    ) -> dict[Typed, list[Delta]]:
        """The transaction's changes with weights checked, in the mode `set` replaced by their net effect; without
        changes that have no effect. replaced: what the transaction's source asserts of these goes first.
        """
        staged: dict[Typed, list[Delta]] = {typed: [] for typed in replaced}
        for part in parts:
            staged.setdefault((part.relation, part.types), []).append(self._delta(part.change, part.types))
        sums = {}
        for typed, deltas in staged.items():
            deltas = self._together(typed, deltas)
            if transaction.source is not None:
                own = sourced(typed[0], transaction.source), typed[1]
                deltas = self._of_source(own, deltas, transaction)
                most = _largest(deltas)
                if self._heaviest + most > MAX_WEIGHT and deltas:
                    deltas = [self._checked(typed, deltas)]
                self._heaviest += most
                if deltas:
                    sums[own] = deltas
            elif transaction.mode == "set":
                deltas = list(self._as_sets(typed, deltas))
                self._heaviest = max(self._heaviest, 1)
            else:
                most = _largest(deltas)
                if self._heaviest + most > MAX_WEIGHT or any(map(_retracts, deltas)):
                    deltas = [self._checked(typed, deltas)]
                self._heaviest += most
            if any(map(rows_of, deltas)):
                if transaction.source is None and transaction.rollback is None:
                    self._check_claims(typed, deltas)
                sums[typed] = deltas
        return sums

    # ---- sources

    @property
    def _claims(self) -> Claims:
        """The sources of the program that is staged."""
        known = self._known_claims
        if known is None or known.stored is not self.program.stored:
            known = self._known_claims = Claims(self.program.stored)
        return known

    def _replaced(self, transaction: Transaction) -> list[Typed]:
        """The relations, with the types of their facts, in which a source's facts are replaced."""
        if transaction.source is None or transaction.replaces is None:
            return []
        named = {change.relation for change in transaction.facts}
        return [
            (relation, types_of(schema))
            for relation, schema in self._claims.of_source(transaction.source)
            if transaction.replaces == "source" or relation in named
        ]

    def _of_source(self, own: Typed, deltas: list[Delta], transaction: Transaction) -> list[Delta]:
        """What a source's own collection gains; no delta of it is empty.

        Raises:
            NegativeWeightError, WeightOverflowError: the source retracts what it does not assert, or a weight gets too
            large.
        """
        if transaction.mode == "set" and transaction.replaces is None:
            deltas = list(self._as_sets(own, deltas))
        else:
            if transaction.replaces is not None:
                if transaction.mode == "set" and deltas:
                    deltas = [(_net(own, deltas)[0], np.ones(1, np.int64))]
                held = map(arrays, self._held(own))
                deltas = [*((codes, -weights) for codes, weights in held), *deltas]
            deltas = [delta for delta in deltas if rows_of(delta)]
            risky = self._heaviest + _largest(deltas) > MAX_WEIGHT
            if deltas and (risky or any(map(_retracts, deltas))):
                deltas = [self._checked(own, deltas)]
        return [delta for delta in deltas if rows_of(delta)]

    def _held(self, typed: Typed) -> list[Delta]:
        """All facts of these types, with what is staged."""
        key = self._key_before(typed)
        before = [] if key is None else [self._placement.tuples(key, {}, "asserted")]
        return [*before, *self.facts.get(typed, ())]

    def _check_claims(self, typed: Typed, deltas: list[Delta]) -> None:
        """Raise SourcedFactError if the changes, which have no source, take away what a source asserts."""
        if not any(map(_retracts, deltas)):
            return
        names = self._claims.of_relation(typed[0])
        if not names:
            return
        codes, high, low = _net(typed, deltas)
        change = (high << 32) + low
        codes, change = codes[change < 0], change[change < 0]
        now = self._weights(typed, codes)
        claims = {name: self._weights((name, typed[1]), codes) for name in names}
        # One after the other, because the sum of several may not fit into 64 bits; no part of a weight is larger.
        free = now + change
        for claimed in claims.values():
            free = np.where(free >= 0, free - claimed, free)
        wrong = np.flatnonzero(free < 0)
        if len(wrong):
            having = [name for name, claimed in claims.items() if claimed[wrong].any()]
            about = self._about(typed, codes[wrong], now[wrong])
            raise asserted_by(having, self._shown(typed, codes[wrong]), about)

    def _check_restored(self, sums: dict[Typed, list[Delta]]) -> None:
        """Raise InvalidBackupError if sources would assert more than is there; before there was nothing."""
        free: dict[Typed, Relation] = {}
        for own, deltas in sums.items():
            if not is_hidden(own[0]):
                continue
            typed = relation_of(own[0]), own[1]
            if typed not in free:
                free[typed] = Relation(typed[0], len(typed[1]))
                for part in sums.get(typed, ()):
                    _push(free[typed], *arrays(part))
            codes, high, low = _net(own, deltas)
            claimed = (high << 32) + low
            left = _tallied(free[typed], codes)
            wrong = np.flatnonzero(left < claimed)
            if len(wrong):
                about = self._about(typed, codes[wrong], left[wrong])
                raise overclaimed(own[0], self._shown(typed, codes[wrong]), about, claimed[wrong][:_SHOWN])
            _push(free[typed], codes, -claimed)

    def _checked(self, typed: Typed, changes: list[Delta]) -> Delta:
        """The sum of a relation's changes, checked against the existing weights.

        Raises:
            WeightOverflowError, NegativeWeightError: a sum, or a weight after it, leaves the range of weights.
        """
        first = changes[0]
        if len(changes) == 1 and not isinstance(first, tuple) and typed not in self.facts:
            return self._checked_there(typed, first)
        if len(changes) == 1 and are_distinct(arrays(first)[0]):
            codes, weights = arrays(first)
            now = self._weights(typed, codes)
            if int(now.max()) + int(weights.max()) <= MAX_WEIGHT and (now + weights >= 0).all():
                return codes, weights
        codes, high, low = _net(typed, changes)
        fits = (high >= -(2**31)) & (high < 2**31) & ((high != -(2**31)) | (low != 0))
        now = self._weights(typed, codes)
        if not fits.all():
            wrong = np.flatnonzero(~fits)
            total = (int(high[wrong[0]]) << 32) + int(low[wrong[0]])
            raise self._wrong(typed, Wrong("unfit", len(wrong), codes[wrong], now[wrong], [total]))
        change = (high << 32) + low
        too_large = np.flatnonzero((change > 0) & (now > MAX_WEIGHT - np.maximum(change, 0)))
        if len(too_large):
            heavy = change[too_large][:_SHOWN].tolist()
            raise self._wrong(typed, Wrong("heavy", len(too_large), codes[too_large], now[too_large], heavy))
        below = np.flatnonzero((change < 0) & (now + np.minimum(change, 0) < 0))
        if len(below):
            changes_ = change[below][:_SHOWN].tolist()
            raise self._wrong(typed, Wrong("negative", len(below), codes[below], now[below], changes_))
        moving = np.flatnonzero(change)
        return codes[moving], change[moving]

    def _checked_there(self, typed: Typed, facts: FarFacts) -> FarFacts:
        """The same, where the facts are."""
        assert takes_far(self._placement), "it took them"
        net = self._placement.net(self._key_before(typed), facts)
        if net.wrong is not None:
            raise self._wrong(typed, net.wrong)
        assert net.facts is not None, "nothing is wrong"
        return net.facts

    def _wrong(self, typed: Typed, wrong: Wrong) -> ZedlogError:
        """The error for weights that would leave their range."""
        codes, number = wrong.codes, wrong.number
        about = self._about(typed, codes, wrong.now, number)
        if wrong.kind == "unfit":
            return WeightOverflowError(
                "the sum of the weights that the transaction gives to "
                f"{self._shown(typed, codes, number)} does not fit into 64 bits; "
                f"for the first of them it is {wrong.changes[0]}",
                **about,
            )
        if wrong.kind == "heavy":
            tuples = self._shown(typed, codes, number)
            return WeightOverflowError(
                f"the transaction would make the weight of {tuples} too large for 64 bits",
                **about,
                changes=list(wrong.changes),
            )
        if is_hidden(typed[0]):
            tuples = self._shown((relation_of(typed[0]), typed[1]), codes, number)
            return overdrawn(typed[0], tuples, about, wrong.changes)
        return NegativeWeightError(
            f"the transaction would take the weight of {self._shown(typed, codes, number)} below zero",
            **about,
            changes=list(wrong.changes),
        )

    def _about(self, typed: Typed, codes: Codes, now: Codes, number: int | None = None) -> dict[str, Any]:
        """The first of the tuples whose weights would be wrong, as a program needs them."""
        return {
            "relation": typed[0],
            "tuples": [list(t) for t in self._decoded(typed, codes)],
            "weights": now[:_SHOWN].tolist(),
            "number": len(codes) if number is None else number,
        }

    def _shown(self, typed: Typed, codes: Codes, number: int | None = None) -> str:
        number = len(codes) if number is None else number
        shown = [f"{typed[0]}{write_tuple(values)}" for values in self._decoded(typed, codes)]
        more = f" and {number - _SHOWN} more" if number > _SHOWN else ""
        return ", ".join(shown) + more

    def _decoded(self, typed: Typed, codes: Codes) -> list[Tuple]:
        return decode(codes[:_SHOWN], typed[1], self._symbols)

    def _as_sets(self, typed: Typed, deltas: list[Delta]) -> Sequence[Delta]:
        """In order: after a positive change a tuple has weight 1 or what it had, after a negative one 0."""
        result: list[FactArrays] = []
        relation, arity = typed[0], len(typed[1])
        earlier = Relation(relation, arity)
        for codes, weights in map(arrays, deltas):
            weights = np.broadcast_to(weights, len(codes))
            for positive in _runs(weights > 0):
                part = codes[positive]
                tally = Relation(relation, arity)
                _push(tally, part, np.ones(1, np.int64))
                distinct = tally.codes(tally.all_rows())
                now = self._weights(typed, distinct) + _tallied(earlier, distinct)
                change = np.where(now == 0, 1, 0) if weights[positive.start] > 0 else -now
                moved = np.flatnonzero(change)
                if len(moved):
                    _push(earlier, distinct[moved], change[moved])
                    result.append((distinct[moved], change[moved]))
        return result if earlier.describe(earlier.all_rows())[0].any() else []

    def _weights(self, typed: Typed, codes: Codes) -> Codes:
        """The asserted weights, with what is staged."""
        weights = self._committed(typed, codes)
        return weights + _tallied(self._tally(typed), codes) if typed in self.facts else weights

    def _stage(self, typed: Typed, deltas: Sequence[Delta]) -> None:
        self.facts.setdefault(typed, []).extend(deltas)
        if typed in self._tallies:
            for delta in deltas:
                _push(self._tallies[typed], *arrays(delta))

    def _together(self, typed: Typed, deltas: list[Delta]) -> list[Delta]:
        """The changes of one transaction; as one, if some of them are not in this process."""
        if all(isinstance(delta, tuple) for delta in deltas) or len(deltas) == 1:
            return deltas
        assert takes_far(self._placement), "it took them"
        return [self._placement.joined(len(typed[1]), deltas)]

    def _joined(self, typed: Typed, parts: list[Delta]) -> Delta:
        """The changes of transactions that were checked one after the other, as one Z-set."""
        if len(parts) == 1:
            return parts[0]
        if _largest(parts) > MAX_WEIGHT:
            # A placement may add up in any order, so the sums must be made here. Each is a difference of two weights.
            codes, high, low = _net(typed, parts)
            return codes, (high << 32) + low
        together = self._together(typed, parts)
        if len(together) == 1:
            return together[0]
        weights = [np.broadcast_to(weights, len(codes)) for codes, weights in map(arrays, parts)]
        return np.concatenate([codes for codes, _ in map(arrays, parts)]), np.concatenate(weights)

    def fact_deltas(self, program: Program) -> dict[str, Delta]:
        """All staged facts as one Z-set for each key of the compiled `program`, or of the one before."""
        deltas = {}
        for typed, parts in self.facts.items():
            relation, types = typed
            key = program.key(relation) if program.types.get(relation) == types else self._key_before(typed)
            # Facts of types that a relation had only between two transactions have come and gone.
            if key is not None:
                deltas[key] = self._joined(typed, parts)
        return {key: delta for key, delta in deltas.items() if rows_of(delta)}


def _check_names(transaction: Transaction) -> None:
    """Only a rollback that the engine has resolved and a restore, neither of which a client can send, name hidden
    collections.

    Raises:
        InvalidRequestError: another transaction does, or the engine has no older epochs to look at.
    """
    if transaction.rollback is not None:
        if not transaction.resolved:
            raise InvalidRequestError("only an engine that serves a database with older epochs can roll back")
        return
    if transaction.onto_empty:
        return
    for change in transaction.changes:
        if is_hidden(change.relation):
            check_relation_name(change.relation)


def _largest(parts: Iterable[Delta]) -> int:
    """No sum of all or of some of the changes of a tuple is larger than this."""
    return sum(map(largest, parts))


def _retracts(delta: Delta) -> bool:
    """Whether some of the weights are below 0."""
    return bool((delta[1] < 0).any()) if isinstance(delta, tuple) else delta.gone > 0


def are_distinct(codes: Codes) -> bool:
    """Whether no tuple is there twice. False also if two tuples have the same sum of codes with these factors, which is
    rare: then it is not known.
    """
    if len(codes) < 2:
        return True
    factors = np.cumprod(np.full(codes.shape[1], _FACTOR))
    sums = np.sort((codes * factors).sum(axis=1))
    return bool((sums[1:] != sums[:-1]).all())


def _net(typed: Typed, deltas: Iterable[Delta]) -> tuple[Codes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct tuples of some changes, and the exact sum of each one's weights as high * 2^32 + low, where low has
    32 bits. So sums of fewer than 2^31 weights are exact, also those that do not fit into 64 bits.
    """
    tally, parts = Relation(typed[0], len(typed[1])), list(map(arrays, deltas))
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
    """Add checked changes to a tally: its sums are differences of weights, which fit into 64 bits."""
    tally.push(codes, _GROUND, weights)


def _more(before: Codes, after: Codes) -> int:
    """How many more tuples have a weight than had one."""
    return int(np.count_nonzero(after > 0)) - int(np.count_nonzero(before > 0))


def _tallied(tally: Relation, codes: Codes) -> npt.NDArray[np.int64]:
    rows = tally.rows_of(codes)
    known = np.flatnonzero(rows >= 0)
    weights = np.zeros(len(codes), np.int64)
    weights[known] = tally.describe(rows[known])[0]
    return weights


def types_of(schema: Schema) -> Types:
    """The types of a relation's columns, all of which are known."""
    return tuple(column.type for column in schema.columns if column.type is not None)


def _schema(relation: str, types: Types, known: Schema | None) -> Schema:
    """The schema with these types, and the known names of columns."""
    if known is None or known.arity != len(types):
        return Schema(relation, tuple(Column(f"c{i}", kind) for i, kind in enumerate(types)))
    columns = tuple(Column(c.name, kind) for c, kind in zip(known.columns, types, strict=True))
    return Schema(relation, columns, known.declared)


def _by_types(change: FactChange, hint: Schema | None) -> list[_Part]:
    """The change, divided by the types of its tuples; nearly always they all have those of `hint`.

    Raises:
        InvalidValueError: a value does not have any type of the language.
    """
    relation, tuples = change.relation, change.tuples
    if isinstance(tuples, np.ndarray):
        return [_Part((ColumnType.NUMBER,) * tuples.shape[1], change)]
    if isinstance(tuples, TypedFacts | FileFacts):
        return [_Part(tuples.types, change)]
    arity = hint.arity if hint is not None else len(tuples[0])
    if set(map(len, tuples)) == {arity}:
        schema = hint or Schema(relation, tuple(Column(f"c{i}", None) for i in range(arity)))
        try:
            return [_Part(column_types(relation, tuples, schema) if arity else (), change)]
        except TypeMismatchError:
            pass
    places: dict[Types, list[int]] = {}
    for place, values in enumerate(tuples):
        places.setdefault(tuple(map(type_of, values)), []).append(place)
    weights = np.broadcast_to(change.weights, len(tuples))
    return [
        _Part(types, FactChange(relation, [tuples[i] for i in own], weights[own]))
        for types, own in places.items()
    ]


def _texts(part: _Part) -> Iterable[str]:
    """The symbols of tuples of values."""
    tuples = part.change.tuples
    if not isinstance(tuples, np.ndarray | TypedFacts | FileFacts):
        yield from (value for values in tuples for value in values if isinstance(value, str))


def _fitted(part: _Part, schema: Schema | None) -> _Part:
    """The part with the types that its tuples have as tuples of a relation with this schema.

    Raises:
        ArityError, TypeMismatchError; InvalidRequestError: no relation can have this name.
    """
    relation, types = part.relation, part.types
    if schema is None:
        if not is_hidden(relation):
            check_relation_name(relation)
        return part
    if schema.arity != len(types):
        raise ArityError(
            f"{schema} has {_columns(schema.arity)}, but the tuple {write_tuple(part.sample)} "
            f"has {len(types)}",
            relation=relation,
            expected=schema.arity,
            got=len(types),
        )
    wrong = next((i for i, c in enumerate(schema.columns) if c.type not in (None, types[i])), None)
    if wrong is None:
        return part
    tuples = part.change.tuples
    if isinstance(tuples, np.ndarray):
        return replace(part, types=number_types(relation, tuples, schema))
    if not isinstance(tuples, TypedFacts | FileFacts):
        return replace(part, types=column_types(relation, tuples, schema))
    expected, got = schema.columns[wrong].type, types[wrong]
    assert expected is not None, "an unknown type fits"
    raise TypeMismatchError(
        f"column {wrong + 1} ({schema.columns[wrong].name}) of {relation} holds {expected.value}s, "
        f"but the import has {got.value}s",
        relation=relation,
        column_name=schema.columns[wrong].name,
        expected=expected.value,
        got=got.value,
    )


def _two_types(held: Schema, types: Types) -> ZedlogError:
    """The error for facts of one relation that have two types."""
    relation = held.relation
    if held.arity != len(types):
        return ArityError(
            f"{held} has {_columns(held.arity)}, but other facts of it have {len(types)}",
            relation=relation,
            expected=held.arity,
            got=len(types),
        )
    place = next(i for i, (c, t) in enumerate(zip(held.columns, types, strict=True)) if c.type is not t)
    column = held.columns[place]
    assert column.type is not None, "the types of facts are known"
    return TypeMismatchError(
        f"column {place + 1} ({column.name}) of {relation} holds {column.type.value}, "
        f"but other facts have a {types[place].value} there",
        relation=relation,
        column_name=column.name,
        expected=column.type.value,
        got=types[place].value,
    )


def _columns(arity: int) -> str:
    return "1 column" if arity == 1 else f"{arity} columns"


def _check_empty(program: Program) -> None:
    """Raise NotEmptyError unless there are no facts, rules and declarations."""
    holds = {
        "facts": len(program.stored),
        "rules": len(program.rules),
        "declarations": len(program.declared),
    }
    if any(holds.values()):
        raise NotEmptyError(
            "a backup is restored only into an empty database, but this one has "
            f"facts of {holds['facts']} relations, {holds['rules']} rules and {holds['declarations']} declarations; "
            "restore it into another database (zedlog serve --database NAME, or another --data-dir)",
            **holds,
        )
