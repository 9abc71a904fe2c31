"""What a client asks for: a Z-set of facts, a Z-set of rules, declarations; applied whole or not at all.

A `Transaction` is plain data that went through `Transaction.parse` (as JSON) or `fact_changes` and `rule_changes` (from
a caller of the library): shapes, weights and value types are checked, but names, schemas and the current weights are
not (the reasoner checks them, in log order). `encode` and `decode` convert it to and from its form in the epoch log.

The facts of a bulk import are too many for a log entry: there `batches` name files that hold them
(engine/bulk/batches.py), and before the transaction is applied they are read into `facts`, as typed columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt
import orjson

from engine.data.codes import Codes
from engine.data.facts import FileFacts, TypedFacts
from engine.data.sources import check_source
from engine.data.values import VALUE_TYPES, Value, all_plain, numbers_of, plain_value
from engine.errors import CorruptLogError, InvalidRequestError, InvalidValueError, InvalidWeightError, shown

Mode = Literal["zset", "set"]
Strategy = Literal["auto", "update", "bootstrap", "dred"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
PlacementName = Literal["auto", "resident", "spark"]
PLACEMENTS: tuple[str, ...] = get_args(PlacementName)

Facts: TypeAlias = Mapping[str, "Iterable[tuple[Sequence[Value], int]] | npt.NDArray[np.int64]"]
"""By relation: (tuple, weight) pairs, or numbers int64[n, arity], each row of weight 1."""

Replaces = Literal["source", "relations"]
REPLACES: tuple[str, ...] = get_args(Replaces)

MAX_AUTHOR, MAX_MESSAGE = 200, 2_000
"""The most characters of an author's name and of a message."""

MAX_WEIGHT = 2**63 - 1
"""Weights lie between -MAX_WEIGHT and MAX_WEIGHT, so that the negation of a weight is a weight, too."""


@dataclass(frozen=True, slots=True)
class FactChange:
    """`weight`, one for all tuples or int64[n], is added to the weight of each tuple. A tuple that occurs twice gets
    both. The log accepts only tuples of values with one weight; in process, tuples may also be numbers, int64[n,
    arity], or typed columns; or they are in files, with their weights."""

    relation: str
    tuples: Sequence[Sequence[Value]] | Codes | TypedFacts | FileFacts
    weight: int | Codes = 1

    @property
    def weights(self) -> Codes:
        """int64[1] or int64[n]."""
        return np.array([self.weight], np.int64) if isinstance(self.weight, int) else self.weight


@dataclass(frozen=True, slots=True)
class RuleChange:
    """`weight` is added to the weight of every rule in `rule` (a clause with `;` is several rules)."""

    rule: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A durable file of facts: its path below the batch directory, its SHA-256 in hex, and its size."""

    path: str
    sha256: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FactFiles:
    """Facts of one relation in files; each row has its own weight. types: one for each column, by name."""

    relation: str
    types: tuple[str, ...]
    files: tuple[BatchFile, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One atomic change. `declarations` is program text that holds `.decl` and `.prefix` directives only; `undeclare`
    names relations, and prefixes with their colon, whose declarations are withdrawn, before the new ones are added.

    `mode="set"`: adding what is there already, and retracting what is not there, has no effect; weights stay 0 or 1.
    `dry_run`: evaluate and report, but change nothing. `strategy`, `placement`: how the transaction must be evaluated;
    None leaves the choice to the engine.

    `author`, `message`: who asked for it, and why. `source`: the facts count for this source (engine/data/sources.py).
    `replaces`: what the source asserts becomes exactly the facts; with `relations` only in the relations that `facts`
    names, also without tuples. `rollback`: everything becomes what it was after this epoch; nothing else is in the
    transaction, until the engine has found what differs (`resolved`). `onto_empty`: refused unless the database is
    empty (a restore).
    """

    facts: tuple[FactChange, ...] = ()
    rules: tuple[RuleChange, ...] = ()
    declarations: str = ""
    mode: Mode = "zset"
    dry_run: bool = False
    return_delta: bool = False
    undeclare: tuple[str, ...] = ()
    strategy: Strategy | None = None
    placement: PlacementName | None = None
    batches: tuple[FactFiles, ...] = ()
    author: str | None = None
    message: str | None = None
    source: str | None = None
    replaces: Replaces | None = None
    rollback: int | None = None
    resolved: bool = False
    onto_empty: bool = False

    @classmethod
    def parse(
        cls,
        facts: Sequence[Mapping[str, Any]] = (),
        rules: Sequence[Mapping[str, Any]] = (),
        declarations: str = "",
        mode: str = "zset",
        dry_run: bool = False,
        return_delta: bool = False,
        undeclare: Sequence[str] = (),
        strategy: str | None = None,
        placement: str | None = None,
        author: str | None = None,
        message: str | None = None,
        source: str | None = None,
        replaces: str | None = None,
        rollback: int | None = None,
    ) -> Transaction:
        """Check shapes and values of decoded JSON (the request body of `POST /v1/transactions`).

        Raises:
            InvalidRequestError: a field is missing or has the wrong type, or there is no such strategy or placement.
            InvalidWeightError: a weight is 0, not an integer, or too large.
            InvalidValueError: a value is not a string, a boolean, a finite float or a 64-bit integer.
        """
        return cls.of(
            tuple(_fact_change(entry, i) for i, entry in enumerate(facts)),
            tuple(_rule_change(entry, i) for i, entry in enumerate(rules)),
            declarations,
            mode,
            dry_run,
            return_delta,
            undeclare,
            strategy,
            placement,
        ).told(author, message, source, replaces, rollback)

    @classmethod
    def of(
        cls,
        facts: tuple[FactChange, ...],
        rules: tuple[RuleChange, ...],
        declarations: str = "",
        mode: str = "zset",
        dry_run: bool = False,
        return_delta: bool = False,
        undeclare: Sequence[str] = (),
        strategy: str | None = None,
        placement: str | None = None,
    ) -> Transaction:
        """From checked changes and options that are not checked yet.

        Raises:
            InvalidRequestError: an option has the wrong type, or there is no such mode, strategy or placement.
        """
        if mode not in ("zset", "set"):
            raise InvalidRequestError(f'mode must be "zset" or "set", not {shown(mode)}')
        return cls(
            facts=facts,
            rules=rules,
            declarations=declarations,
            mode="set" if mode == "set" else "zset",
            dry_run=dry_run,
            return_delta=return_delta,
            undeclare=_names(undeclare),
            strategy=cast("Strategy | None", _one_of("strategy", strategy, STRATEGIES)),
            placement=cast("PlacementName | None", _one_of("placement", placement, PLACEMENTS)),
        )

    def told(
        self,
        author: str | None = None,
        message: str | None = None,
        source: str | None = None,
        replaces: str | None = None,
        rollback: int | None = None,
    ) -> Transaction:
        """The transaction with what is told of it beside its changes; what is None stays as it is.

        Raises:
            InvalidRequestError: something of that is not allowed, or not together with the rest.
        """
        given = {
            "author": _text("author", author, MAX_AUTHOR),
            "message": _text("message", message, MAX_MESSAGE),
            "source": None if source is None else check_source(source),
            "replaces": cast("Replaces | None", _one_of("replaces", replaces, REPLACES)),
            "rollback": rollback,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            return self
        told = replace(self, **given)  # type: ignore[arg-type]  # each was just checked
        if source is not None and not (told.facts or told.batches or told.replaces):
            raise InvalidRequestError("a source has no effect on a transaction without facts", field="source")
        if told.replaces is not None:
            _check_replacement(told)
        if told.rollback is not None:
            _check_rollback(told)
        return told

    @property
    def changes(self) -> list[FactChange]:
        """The changes of facts that name a tuple."""
        return [change for change in self.facts if len(change.tuples)]

    @property
    def evaluation(self) -> tuple[Strategy | None, PlacementName | None]:
        """How it must be evaluated: only transactions that agree on this can share an epoch."""
        return self.strategy, self.placement

    def encode(self) -> bytes:
        """The transaction as JSON bytes, the form in which the log keeps it. Its facts must be tuples of values."""
        chosen = {
            "undeclare": self.undeclare or None,
            "strategy": self.strategy,
            "placement": self.placement,
            "batches": self.batches or None,
            "author": self.author,
            "message": self.message,
            "source": self.source,
            "replaces": self.replaces,
            "rollback": self.rollback,
            "onto_empty": self.onto_empty or None,
        }
        return orjson.dumps(
            {
                "facts": [
                    {"relation": f.relation, "tuples": f.tuples, "weight": f.weight} for f in self.facts
                ],
                "rules": [{"rule": r.rule, "weight": r.weight} for r in self.rules],
                "declarations": self.declarations,
                "mode": self.mode,
                "dry_run": self.dry_run,
                "return_delta": self.return_delta,
                # What is not asked for is not written: the bytes say whether two requests are the same.
                **{name: asked for name, asked in chosen.items() if asked is not None},
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> Transaction:
        """The inverse of `encode`.

        Raises:
            CorruptLogError: the bytes are not what `encode` writes.
        """
        try:
            body = orjson.loads(payload)
            batches = tuple(_batch(entry) for entry in body.pop("batches", ()))
            onto_empty = bool(body.pop("onto_empty", False))
            transaction = cls.parse(**body)
            if batches or onto_empty:
                return replace(transaction, batches=batches, onto_empty=onto_empty)
            return transaction
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError, InvalidRequestError) as error:
            raise CorruptLogError(f"a log entry is not a transaction: {error}") from error


def _one_of(field: str, value: str | None, known: Sequence[str]) -> str | None:
    if value is not None and value not in known:
        raise InvalidRequestError(
            f"{field} must be one of {', '.join(known)}, not {shown(value)}", field=field
        )
    return value


def _text(field: str, value: str | None, most: int) -> str | None:
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= most):
        raise InvalidRequestError(
            f"{field} must be a text of 1 to {most} characters, not {shown(value)}", field=field
        )
    return value


def _check_replacement(transaction: Transaction) -> None:
    if transaction.source is None:
        raise InvalidRequestError(
            'a transaction that replaces facts must name the "source" whose facts these are', field="replaces"
        )
    negative = next((c for c in transaction.facts if (c.weights < 0).any()), None)
    if negative is not None:
        raise InvalidWeightError(
            f"the facts of {negative.relation} replace those of a source, so their weights must be above 0",
            relation=negative.relation,
        )


def _check_rollback(transaction: Transaction) -> None:
    epoch = transaction.rollback
    if type(epoch) is not int or not 0 <= epoch < 2**63:
        raise InvalidRequestError(
            f"the epoch to roll back to must be an integer from 0 to 2^63 - 1, not {shown(epoch)}", field="to"
        )
    changes = transaction.facts or transaction.rules or transaction.declarations or transaction.undeclare
    if (changes or transaction.batches or transaction.source) and not transaction.resolved:
        raise InvalidRequestError("a rollback cannot be combined with other changes, or with a source")


def _batch(entry: Mapping[str, Any]) -> FactFiles:
    files = tuple(BatchFile(**file) for file in entry["files"])
    return FactFiles(entry["relation"], tuple(entry["types"]), files)


def check_weight(weight: object, where: str) -> int:
    """A weight as it came from a client, checked; an integer of numpy becomes Python's."""
    if isinstance(weight, np.integer):
        weight = weight.item()
    if type(weight) is not int:
        raise InvalidWeightError(f"{where}: a weight must be an integer, not {shown(weight)}")
    if weight == 0:
        raise InvalidWeightError(f"{where}: a weight of 0 changes nothing; use +1 to add and -1 to retract")
    if not -MAX_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidWeightError(
            f"{where}: the weight {shown(weight)} is too large; it must lie between {-MAX_WEIGHT} and {MAX_WEIGHT}"
        )
    return weight


def fact_changes(facts: Facts) -> tuple[FactChange, ...]:
    """Changes from the facts that a caller of the library gives. Numpy's scalars become Python's; iterables are
    consumed.

    Raises:
        InvalidRequestError: something is not a pair of a tuple (or list) and a weight.
        InvalidWeightError: a weight is 0, not an integer, or too large.
        InvalidValueError: a value has no type of the language, or an array has the wrong shape or type.
    """
    if not isinstance(facts, Mapping):
        raise InvalidRequestError(
            f"facts must map names of relations to their facts, not {type(facts).__name__}"
        )
    return tuple(
        FactChange(relation, _checked_array(relation, given))
        if isinstance(given, np.ndarray)
        else _weighted_tuples(relation, given)
        for relation, given in facts.items()
    )


def _checked_array(relation: str, tuples: npt.NDArray[Any]) -> Codes:
    if tuples.ndim != 2 or tuples.dtype.kind not in "iu":
        raise InvalidValueError(f"facts of {relation} as an array must be integers of shape [n, arity]")
    if tuples.dtype == np.uint64 and len(tuples) and tuples.max() > np.iinfo(np.int64).max:
        raise InvalidValueError(f"a number in the facts of {relation} does not fit into 64 bits")
    return tuples


def _weighted_tuples(relation: str, given: Iterable[tuple[Sequence[Value], int]]) -> FactChange:
    where = f"facts of {relation}"
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidRequestError(f"{where} must be {_SHAPE}, not {shown(given)}", relation=relation)
    entries = list(given)
    # By whole columns, since nearly always all is well; what is not is found entry by entry.
    if not (_ROWS.issuperset(map(type, entries)) and set(map(len, entries)) <= {2}):
        entries = [_entry(relation, i, entry) for i, entry in enumerate(entries)]
    tuples, weights = list(map(_TUPLE, entries)), list(map(_WEIGHT, entries))
    if not _ROWS.issuperset(map(type, tuples)):
        tuples = [_entry(relation, i, entry)[0] for i, entry in enumerate(entries)]
    if not (
        set(map(type, weights)) <= {int} and all(weights) and max(map(abs, weights), default=0) <= MAX_WEIGHT
    ):
        weights = [check_weight(weight, f"{where}, entry {i}") for i, weight in enumerate(weights)]
    numbers = numbers_of(tuples)
    if numbers is None and not VALUE_TYPES.issuperset(map(type, chain.from_iterable(tuples))):
        tuples = [_plain_row(row, f"{where}, entry {i}") for i, row in enumerate(tuples)]
    return FactChange(relation, tuples if numbers is None else numbers, np.array(weights, np.int64))


_ROWS = frozenset((tuple, list))
_TUPLE, _WEIGHT = itemgetter(0), itemgetter(1)
_SHAPE = 'an iterable of (tuple, weight) such as [(("alice", 1), 1)], or an array of integers [n, columns]'


def _entry(relation: str, position: int, entry: Any) -> tuple[Sequence[Value], Any]:
    """A pair of a tuple and a weight; other classes than tuple and list are accepted, too."""
    pair = isinstance(entry, tuple | list) and len(entry) == 2
    values = entry[0] if pair else None
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, tuple | list):
        raise InvalidRequestError(
            f"facts of {relation} must be {_SHAPE}; entry {position} is {shown(entry)}", relation=relation
        )
    return tuple(values), entry[1]


def rule_changes(given: Iterable[tuple[str, int]]) -> tuple[RuleChange, ...]:
    """Changes from the rules that a caller of the library gives, an iterable of (text, weight).

    Raises:
        InvalidRequestError, InvalidWeightError: the rules are not such an iterable, or a weight is not allowed.
    """
    shape = 'rules must be an iterable of (text, weight) such as [("p(x) :- q(x).", 1)]'
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidRequestError(f"{shape}, not {shown(given)}")
    changes = []
    for position, entry in enumerate(given):
        pair = isinstance(entry, tuple | list) and len(entry) == 2
        if not pair or not isinstance(entry[0], str):
            raise InvalidRequestError(f"{shape}; entry {position} is {shown(entry)}")
        changes.append(RuleChange(str(entry[0]), check_weight(entry[1], f"the rule {shown(entry[0])}")))
    return tuple(changes)


def _plain_row(row: Sequence[object], where: str) -> list[Value]:
    return [plain_value(value, where) for value in row]


def _names(entries: Sequence[str]) -> tuple[str, ...]:
    if isinstance(entries, str) or not all(isinstance(name, str) and name for name in entries):
        raise InvalidRequestError(f"undeclare must be a list of names of relations, not {shown(entries)}")
    return tuple(dict.fromkeys(entries))


def _check_object(entry: object, where: str) -> None:
    if not isinstance(entry, Mapping):
        raise InvalidRequestError(f"{where} must be an object, not {shown(entry)}")


def _fact_change(entry: Mapping[str, Any], position: int) -> FactChange:
    where = f"facts[{position}]"
    _check_object(entry, where)
    relation, tuples = entry.get("relation"), entry.get("tuples")
    if not isinstance(relation, str) or not relation:
        raise InvalidRequestError(f'{where}: "relation" must be a name')
    if not isinstance(tuples, list | tuple):
        raise InvalidRequestError(f'{where}: "tuples" must be a list of lists of values')
    if not _ROWS.issuperset(map(type, tuples)):
        for i, row in enumerate(tuples):
            if not isinstance(row, list | tuple):
                raise InvalidRequestError(
                    f"{where}.tuples[{i}]: a tuple must be a list of values, not {shown(row)}"
                )
    if not all_plain(list(chain.from_iterable(tuples))):
        try:
            tuples = [_plain_row(row, f"{where}.tuples[{i}]") for i, row in enumerate(tuples)]
        except InvalidValueError as error:
            error.detail["relation"] = relation
            raise
    return FactChange(relation, tuples, check_weight(entry.get("weight", 1), where))


def _rule_change(entry: Mapping[str, Any], position: int) -> RuleChange:
    where = f"rules[{position}]"
    _check_object(entry, where)
    rule = entry.get("rule")
    if not isinstance(rule, str):
        raise InvalidRequestError(f'{where}: "rule" must be the rule\'s text')
    return RuleChange(rule, check_weight(entry.get("weight", 1), where))
