"""What a client asks for: a Z-set of facts, a Z-set of rules, declarations; applied whole or not at all.

A `Transaction` is plain data that went through `Transaction.parse`: shapes, weights and value types are right,
but names, schemas and the current weights are not yet looked at (that is the reasoner's work, in log order).
`encode` and `decode` are its form in the epoch log.

The facts of a bulk import are too many for a log entry: there `batches` name files that hold them (engine/batches.py),
and before the transaction is applied they are read into `columns`, typed columns and weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import orjson

from engine.elastic import STRATEGIES, Strategy
from engine.errors import CorruptLogError, InvalidRequestError, InvalidValueError, InvalidWeightError, shown

if TYPE_CHECKING:
    from engine.batches import TypedFacts

Value = str | int | float | bool
Tuple = tuple[Value, ...]
Mode = Literal["zset", "set"]
PlacementName = Literal["auto", "resident", "spark"]
PLACEMENTS: tuple[str, ...] = get_args(PlacementName)

MAX_WEIGHT = 2**63 - 1
_VALUE_TYPES = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class FactChange:
    """`weight` is added to the weight of each tuple. A tuple that stands twice gets it twice."""

    relation: str
    tuples: Sequence[Sequence[Value]]
    weight: int = 1


@dataclass(frozen=True, slots=True)
class RuleChange:
    """`weight` is added to the weight of every rule in `rule` (a clause with `;` is several rules)."""

    rule: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A durable file of facts: its path below the batch directory, its SHA-256 in hex, and how much is in it."""

    path: str
    sha256: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Facts of one relation in files; each row has its own weight. types: one for each column, by name."""

    relation: str
    types: tuple[str, ...]
    files: tuple[BatchFile, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One atomic change. `declarations` is program text that holds `.decl` directives only; `undeclare` names relations
    whose declaration is withdrawn, before the others are added.

    `mode="set"`: adding what is there, and retracting what is not, is a no-op; weights stay 0 or 1.
    `dry_run`: evaluate, report, and drop; nothing stays. `strategy`, `placement`: how it is to be evaluated, whatever
    the engine would choose; None leaves the choice to it.
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
    batches: tuple[Batch, ...] = ()
    columns: tuple[TypedFacts, ...] = ()

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
    ) -> Transaction:
        """Check shapes and values of decoded JSON (the request body of `POST /v1/transactions`).

        Raises:
            InvalidRequestError: a field is missing or of another type, or there is no such strategy or placement.
            InvalidWeightError: a weight is 0, not an integer, or outside of 64 bits.
            InvalidValueError: a value is no string, boolean, float or 64-bit integer.
        """
        if mode not in ("zset", "set"):
            raise InvalidRequestError(f'mode must be "zset" or "set", not {shown(mode)}')
        return cls(
            facts=tuple(_fact_change(entry, i) for i, entry in enumerate(facts)),
            rules=tuple(_rule_change(entry, i) for i, entry in enumerate(rules)),
            declarations=declarations,
            mode="set" if mode == "set" else "zset",
            dry_run=dry_run,
            return_delta=return_delta,
            undeclare=_names(undeclare),
            strategy=cast("Strategy | None", _one_of("strategy", strategy, STRATEGIES)),
            placement=cast("PlacementName | None", _one_of("placement", placement, PLACEMENTS)),
        )

    @property
    def evaluation(self) -> tuple[Strategy | None, PlacementName | None]:
        """How it is to be evaluated: only transactions that agree on it can share an epoch."""
        return self.strategy, self.placement

    def encode(self) -> bytes:
        """The transaction as JSON bytes, the form in which the log keeps it. It must have no `columns`."""
        assert not self.columns, "columns are read from batches, they are not logged"
        chosen = {
            "undeclare": self.undeclare or None,
            "strategy": self.strategy,
            "placement": self.placement,
            "batches": self.batches or None,
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
            transaction = cls.parse(**body)
            return replace(transaction, batches=batches) if batches else transaction
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError, InvalidRequestError) as error:
            raise CorruptLogError(f"a log entry is not a transaction: {error}") from error


def _one_of(field: str, value: str | None, known: Sequence[str]) -> str | None:
    if value is not None and value not in known:
        raise InvalidRequestError(
            f"{field} must be one of {', '.join(known)}, not {shown(value)}", field=field
        )
    return value


def _batch(entry: Mapping[str, Any]) -> Batch:
    files = tuple(BatchFile(**file) for file in entry["files"])
    return Batch(entry["relation"], tuple(entry["types"]), files)


def check_weight(weight: object, where: str) -> int:
    """A weight as it came from a client, checked."""
    if type(weight) is not int:
        raise InvalidWeightError(f"{where}: a weight must be an integer, not {shown(weight)}")
    if weight == 0:
        raise InvalidWeightError(f"{where}: a weight of 0 changes nothing; use +1 to add and -1 to retract")
    if not -MAX_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidWeightError(f"{where}: the weight {shown(weight)} does not fit into 64 bits")
    return weight


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
    for i, row in enumerate(tuples):
        if not isinstance(row, list | tuple):
            raise InvalidRequestError(
                f"{where}.tuples[{i}]: a tuple must be a list of values, not {shown(row)}"
            )
        for value in row:
            if type(value) not in _VALUE_TYPES:
                raise InvalidValueError(
                    f"{where}.tuples[{i}]: {shown(value)} is not a symbol, number, float or bool",
                    relation=relation,
                )
            if type(value) is int and not -(2**63) <= value < 2**63:
                raise InvalidValueError(
                    f"{where}.tuples[{i}]: the number {shown(value)} does not fit into 64 bits",
                    relation=relation,
                )
    return FactChange(relation, tuples, check_weight(entry.get("weight", 1), where))


def _rule_change(entry: Mapping[str, Any], position: int) -> RuleChange:
    where = f"rules[{position}]"
    _check_object(entry, where)
    rule = entry.get("rule")
    if not isinstance(rule, str):
        raise InvalidRequestError(f'{where}: "rule" must be the rule\'s text')
    return RuleChange(rule, check_weight(entry.get("weight", 1), where))
