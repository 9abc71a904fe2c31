"""A database in memory with the interface of `DatabaseClient`: naive evaluation, no Redis, no processes.

It lets the tests of the service say when Redis is away and when the engine stands still. What the real log,
engine and snapshot do is shown by their own tests and by `test_live.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.data.sources import is_hidden, origin, sourced
from engine.data.symbols import SymbolTable
from engine.data.transaction import FactChange, Transaction
from engine.data.values import Tuple, Value, decode, encode_column, encode_value
from engine.database.epoch import RuleInfo
from engine.errors import (
    ArityError,
    EpochNotRetainedError,
    IdempotencyConflictError,
    NegativeWeightError,
    NotDeclaredError,
    StorageUnavailableError,
    TransactionCancelledError,
    TypeMismatchError,
    UnknownRelationError,
    ZedlogError,
)
from engine.language.canonical import canonical_text, format_declaration, rule_id
from engine.language.check import infer_schemas
from engine.language.parser import parse_declarations, parse_prefixes, parse_rules
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Atom, Constant, Rule, Variable
from engine.storage.client import EngineStatus, Outcome, Receipt
from engine.storage.indexes import IndexStats
from engine.storage.rows import Rows
from engine.storage.snapshot import ChangedRows, Page, TupleCounts
from engine.storage.token import format_token
from tests.service.fake_audits import FakeAudits
from tests.service.fake_history import FakeHistory
from tests.service.fake_jobs import FakeJobs
from tests.service.fake_subscriptions import FakeSubscriptions
from tests.service.fake_tokens import FakeTokens

INCARNATION = "5f2c09b1"
AWAY: dict[str, str] = {}
"""The relations that are on Spark, with the reason."""
TYPES = {str: ColumnType.SYMBOL, int: ColumnType.NUMBER, float: ColumnType.FLOAT, bool: ColumnType.BOOL}
Facts = dict[str, dict[Tuple, int]]


@dataclass(frozen=True)
class State:
    """Everything after one epoch."""

    facts: Facts = field(default_factory=dict)
    rules: dict[str, RuleInfo] = field(default_factory=dict)
    declarations: str = ""
    schemas: dict[str, Schema] = field(default_factory=dict)
    derived: dict[str, set[Tuple]] = field(default_factory=dict)

    def all(self, relation: str) -> set[Tuple]:
        return set(self.facts.get(relation, ())) | self.derived.get(relation, set())


def matches(
    atoms: tuple[Atom, ...], tuples: Mapping[str, set[Tuple]], binding: dict[str, Value]
) -> Iterator[dict]:
    """All bindings of a body, by nested loops."""
    if not atoms:
        yield binding
        return
    for row in tuples.get(atoms[0].relation, ()):
        extended = dict(binding)
        for term, value in zip(atoms[0].terms, row, strict=True):
            if isinstance(term, Constant) and term.value != value:
                break
            if isinstance(term, Variable) and extended.setdefault(term.name, value) != value:
                break
        else:
            yield from matches(atoms[1:], tuples, extended)


def derive(rules: list[Rule], facts: Facts) -> dict[str, set[Tuple]]:
    """What the rules derive: apply all of them until nothing is new."""
    tuples = {r: set(rows) for r, rows in facts.items()}
    derived: dict[str, set[Tuple]] = {}
    while True:
        new = [
            (
                rule.head.relation,
                tuple(b[t.name] if isinstance(t, Variable) else t.value for t in rule.head.terms),
            )
            for rule in rules
            for b in matches(rule.body, tuples, {})
        ]
        before = sum(map(len, derived.values()))
        for relation, row in new:
            derived.setdefault(relation, set()).add(row)
            tuples.setdefault(relation, set()).add(row)
        if sum(map(len, derived.values())) == before:
            return derived


def fact_schema(state: State, relation: str, row: Tuple) -> Schema:
    """The relation's schema, which the row fits or fixes."""
    known = state.schemas.get(relation)
    types = tuple(TYPES[type(v)] for v in row)
    if known is None:
        return Schema(relation, tuple(Column(f"c{i}", t) for i, t in enumerate(types)))
    if known.arity != len(row):
        raise ArityError(f"{relation} has {known.arity} columns, but {row} has {len(row)}", relation=relation)
    for column, found in zip(known.columns, types, strict=True):
        if column.type not in (None, found):
            raise TypeMismatchError(f"column {column.name} of {relation} is {column.type}, but got {found}")
    columns = tuple(Column(c.name, t) for c, t in zip(known.columns, types, strict=True))
    return Schema(relation, columns, known.declared)


def add(weights: dict, key: Any, weight: int, mode: str, what: str) -> int:
    total = weights.get(key, 0) + weight
    if mode == "set":
        total = min(max(total, 0), 1)
    if total < 0:
        raise NegativeWeightError(f"the weight of {what} would be {total}", tuples=[what])
    return total


def apply(state: State, tx: Transaction) -> State:
    """The state after the transaction. Raises what the engine refuses with."""
    facts = {r: dict(rows) for r, rows in state.facts.items()}
    rules = dict(state.rules)
    stored = dict(state.schemas)
    changes = list(tx.facts)
    if tx.source is not None:
        named = {change.relation for change in tx.facts}
        for name in facts if tx.replaces else ():
            place = origin(name)
            if place is not None and place[1] == tx.source and (tx.replaces == "source" or place[0] in named):
                changes = [FactChange(place[0], [row], -w) for row, w in facts[name].items()] + changes
        changes += [replace(c, relation=sourced(c.relation, tx.source)) for c in changes]
    for change in changes:
        rows = facts.setdefault(change.relation, {})
        for row in map(tuple, change.tuples):
            stored[change.relation] = fact_schema(State(schemas=stored), change.relation, row)
            rows[row] = add(rows, row, change.weight, tx.mode, f"{change.relation}{row}")
            if not rows[row]:
                del rows[row]
    for change in tx.rules:
        for rule in parse_rules(change.rule):
            key, old = rule_id(rule), rules.get(rule_id(rule))
            weight = add({key: old.weight if old else 0}, key, change.weight, tx.mode, canonical_text(rule))
            rules.pop(key, None)
            if weight:
                rules[key] = RuleInfo(key, old.text if old else change.rule, canonical_text(rule), weight)
    declared = parse_declarations(state.declarations)
    if tx.mode == "zset" and not set(tx.undeclare) <= {d.relation for d in declared}:
        raise NotDeclaredError("a relation is not declared")
    kept = [format_declaration(d) for d in declared if d.relation not in tx.undeclare]
    declarations = "\n".join([*kept, tx.declarations]).strip()
    parsed = [rule for info in rules.values() for rule in parse_rules(info.text) if rule_id(rule) == info.id]
    held = {r: s for r, s in stored.items() if facts.get(r)}
    schemas = infer_schemas(parse_declarations(declarations), held, parsed, stored)
    return State(facts, rules, declarations, schemas, derive(parsed, facts))


class FakeSnapshot:
    def __init__(self, state: State, epoch: int, incarnation: str, before: State, oldest: int) -> None:
        self.state, self.epoch, self.token = state, epoch, format_token(epoch, incarnation)
        self.before, self.oldest, self.time = before, oldest, 1735689600.0 + epoch
        self.rules = tuple(state.rules.values())
        self.declarations = state.declarations
        self.prefixes = parse_prefixes(state.declarations)
        self.schemas = {name: s for name, s in state.schemas.items() if not is_hidden(name)}
        self.hidden = sorted(filter(is_hidden, state.schemas))
        self.away: Mapping[str, str] | None = AWAY

    def with_hidden(self) -> FakeSnapshot:
        incarnation = self.token.partition("-")[2]
        whole = FakeSnapshot(self.state, self.epoch, incarnation, self.before, self.oldest)
        whole.schemas = self.state.schemas
        return whole

    async def changes_of(self, relation, bound=None) -> list[Any]:
        before = self.before
        rows = before.all(relation) ^ self.state.all(relation)
        weights, derived = self.state.facts.get(relation, {}), self.state.derived.get(relation, set())
        return [
            (r, 1 if r in self.state.all(relation) else -1, weights.get(r, 0), r in derived)
            for r in sorted(rows, key=str)
            if all(r[i : i + 1] == (v,) for i, v in (bound or {}).items())
        ]

    def counts(self, relation: str) -> TupleCounts:
        state = self.state
        return TupleCounts(
            len(state.all(relation)), len(state.facts.get(relation, ())), len(state.derived.get(relation, ()))
        )

    def digest(self, relation: str) -> str | None:
        return f"{hash(frozenset(self.state.all(relation))) % 2**128:032x}"

    async def facts(self, relation, bound=None, domain="all", limit=1000, after=None) -> Page:
        if relation not in self.schemas:
            raise UnknownRelationError(f"there is no relation {relation!r}")
        weights, derived = self.state.facts.get(relation, {}), self.state.derived.get(relation, set())
        rows = {"all": self.state.all(relation), "asserted": set(weights), "derived": derived}[domain]
        rows = sorted(r for r in rows if all(r[i] == v for i, v in (bound or {}).items()))
        start = 0 if after is None else after[0]
        page = rows[start : start + limit]
        following = (start + limit, 0)[: max(1, self.schemas[relation].arity)]
        return Page(
            page,
            [weights.get(r, 0) for r in page],
            [r in derived for r in page],
            following if start + limit < len(rows) else None,
        )

    def _table(self) -> SymbolTable:
        return SymbolTable(
            sorted(
                {
                    v
                    for state in (self.before, self.state)
                    for r in state.schemas
                    for row in state.all(r)
                    for v in row
                    if isinstance(v, str)
                }
            )
        )

    def _changed(self, relation: str) -> tuple[list[Tuple], list[Tuple]]:
        old, new = self.before.all(relation), self.state.all(relation)
        return sorted(new - old), sorted(old - new)

    def changed_count(self, relation: str) -> int:
        return sum(map(len, self._changed(relation)))

    async def changed_rows(self, relation: str) -> AsyncIterator[ChangedRows]:
        schema = self.schemas.get(relation) or self.before.schemas[relation]
        for rows, sign in zip(self._changed(relation), (1, -1), strict=True):
            codes = self._codes(rows, schema)
            yield ChangedRows(schema, codes, np.full(len(rows), sign, np.int8))

    def _codes(self, rows: list[Tuple], schema: Schema) -> Any:
        codes = np.empty((len(rows), schema.arity), np.int64)
        for i, column in enumerate(schema.columns):
            if rows:
                codes[:, i] = encode_column([row[i] for row in rows], column.type, self._table())
        return codes

    async def code(self, schema, position, value) -> int | None:
        return self._table().find(value) if isinstance(value, str) else encode_value(value, SymbolTable())

    async def texts(self, codes) -> list[str]:
        return self._table().texts(codes)

    @property
    def symbol_count(self) -> int:
        return len(self._table())

    async def codes(self, relation, bound=None, most=None, among=None) -> Any:
        rows = (await self.facts(relation, bound, limit=10**9)).tuples
        codes = self._codes(rows, self.schemas[relation])
        for column, known in (among or {}).items():
            codes = codes[np.isin(codes[:, column], known)]
        return codes[:most]

    async def rows(self, relation, bound=None, domain="all", most=None, among=None) -> Rows:
        page = await self.facts(relation, bound, domain, limit=10**9)
        codes = self._codes(page.tuples, self.schemas[relation])
        none, zeros = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.int64)
        found = Rows(codes, np.array(page.weights, np.int64), np.array(page.derived, np.bool_), none, zeros)
        for column, known in (among or {}).items():
            found = found.where(np.isin(found.codes[:, column], known))
        return found

    async def estimate(self, relation, bound=None, among=None) -> int:
        return len(await self.codes(relation, bound, None, among))

    async def symbols(self, constants, *, complete) -> SymbolTable:
        return self._table()

    async def decode(self, codes, columns, new=()) -> list[Tuple]:
        table = SymbolTable([*self._table().since(0), *new])
        return decode(codes, [c.type for c in columns], table)


class FakeClient:
    """`engine_runs=False` leaves transactions pending; `redis_away=True` makes every call fail. `engine_hears`:
    a cancelled transaction is refused at once. `activity`: what an engine's status says besides."""

    def __init__(self) -> None:
        self.states = [State()]
        self.log: list[tuple[str, Transaction]] = []
        self.outcomes: dict[str, Outcome] = {}
        self.keys: dict[str, tuple[str, bytes]] = {}
        self.engine_runs, self.redis_away = True, False
        self.engine_hears = True
        self.activity: dict[str, Any] = {}
        self.indexes = IndexStats()
        self.oldest = 0
        self.incarnation_id = INCARNATION
        self.closed = False
        self.jobs = FakeJobs(self._reach)
        self.tokens = FakeTokens(self._reach)
        self.history = FakeHistory(self._reach)
        self.subscriptions = FakeSubscriptions(self._reach)
        self.audits = FakeAudits(self._reach)

    def _reach(self) -> None:
        if self.redis_away:
            raise StorageUnavailableError("Redis cannot be reached: connection refused")

    @property
    def epoch(self) -> int:
        return len(self.states) - 1

    def forget(self) -> None:
        """Trim the log, and the outcomes with it."""
        self.log.clear()
        self.outcomes.clear()

    def hold(self, epoch: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def append(
        self, tx: Transaction, idempotency_key: str | None = None, asked: bytes | None = None
    ) -> Receipt:
        self._reach()
        if idempotency_key in self.keys:
            known, payload = self.keys[idempotency_key]
            if payload != (asked or tx.encode()):
                raise IdempotencyConflictError("the Idempotency-Key was used before with a different body")
            return Receipt(known, True)
        transaction_id = f"{1735689600000 + len(self.log)}-0"
        self.log.append((transaction_id, tx))
        if idempotency_key is not None:
            self.keys[idempotency_key] = (transaction_id, asked or tx.encode())
        self.run()
        return Receipt(transaction_id, False)

    def run(self) -> None:
        """The engine: one epoch for each transaction that has no outcome."""
        if self.engine_runs:
            for transaction_id, tx in self.log:
                if transaction_id not in self.outcomes:
                    # Through the log's own form, as the real engine gets it.
                    decoded = Transaction.decode(tx.encode())
                    self.outcomes[transaction_id] = self._commit(decoded)
                    self.history.note(transaction_id, decoded, self.outcomes[transaction_id])

    def _commit(self, tx: Transaction) -> Outcome:
        old = self.states[-1]
        try:
            if tx.rollback is None:
                new = apply(old, tx)
            elif self.oldest <= tx.rollback <= self.epoch:
                new = self.states[tx.rollback]
            else:
                raise EpochNotRetainedError(f"epoch {tx.rollback} is not retained")
        except ZedlogError as error:
            return Outcome("refused", error.problem())
        delta = {
            r: {"inserted": sorted(new.all(r) - old.all(r)), "deleted": sorted(old.all(r) - new.all(r))}
            for r in {**old.schemas, **new.schemas}
            if not is_hidden(r)
        }
        delta = {r: d for r, d in sorted(delta.items()) if d["inserted"] or d["deleted"]}
        epoch = self.epoch + 1
        body: dict[str, Any] = {
            "epoch": epoch,
            "token": format_token(epoch, self.incarnation_id),
            "changes": {r: {k: len(v) for k, v in d.items()} for r, d in delta.items()},
            "strategy": "update",
            "placement": "resident",
            "cost": {"derivations": 0},
            "elapsed_ms": {"engine": 0.1},
        }
        if tx.return_delta:
            body["delta"] = delta
        if tx.dry_run:
            return Outcome("dry_run", body)
        self.states.append(new)
        return Outcome("committed", body)

    async def outcome(self, transaction_id: str) -> Outcome | None:
        self._reach()
        return self.outcomes.get(transaction_id)

    async def wait_outcome(self, transaction_id: str, timeout: float) -> Outcome | None:
        self._reach()
        if transaction_id not in self.outcomes:
            await asyncio.sleep(timeout)
        return self.outcomes.get(transaction_id)

    async def is_pending(self, transaction_id: str) -> bool:
        self._reach()
        return transaction_id in dict(self.log) and transaction_id not in self.outcomes

    async def cancel(self, transaction_id: str) -> bool:
        if not await self.is_pending(transaction_id):
            return False
        if self.engine_hears:
            error = TransactionCancelledError("the transaction was cancelled; it changed nothing")
            self.outcomes[transaction_id] = Outcome("refused", error.problem())
        return True

    async def snapshot(self, epoch: int | None = None) -> FakeSnapshot:
        self._reach()
        epoch = self.epoch if epoch is None else epoch
        if not self.oldest <= epoch <= self.epoch:
            raise EpochNotRetainedError(f"epoch {epoch} is not retained; {self.oldest} to {self.epoch} are")
        before = self.states[max(epoch - 1, 0)]
        return FakeSnapshot(self.states[epoch], epoch, self.incarnation_id, before, self.oldest)

    async def snapshots(self, epochs: Sequence[int]) -> list[FakeSnapshot]:
        return [await self.snapshot(e) for e in epochs if self.oldest <= e <= self.epoch]

    async def beyond(self, epoch: int, timeout: float) -> int | None:
        self._reach()
        if self.epoch == epoch:
            await asyncio.sleep(timeout)
        return None if self.epoch == epoch else self.epoch

    async def wait_epoch(self, epoch: int, timeout: float) -> bool:
        self._reach()
        if epoch > self.epoch + sum(t not in self.outcomes for t, _ in self.log):
            raise EpochNotRetainedError(
                f"there is no epoch {epoch}: the newest is {self.epoch}", newest=self.epoch
            )
        if epoch > self.epoch:
            await asyncio.sleep(timeout)
        return epoch <= self.epoch

    async def epochs(self, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        self._reach()
        newest = self.epoch if before is None else min(self.epoch, before - 1)
        return [{"epoch": e, "strategy": "update"} for e in range(newest, 0, -1)][:limit]

    async def status(self) -> EngineStatus:
        self._reach()
        lag = sum(t not in self.outcomes for t, _ in self.log)
        state = "running" if self.engine_runs else "absent"
        return EngineStatus(self.engine_runs, state, self.epoch, lag, None, **self.activity)

    async def incarnation(self) -> str:
        self._reach()
        return self.incarnation_id

    async def close(self) -> None:
        self.closed = True
