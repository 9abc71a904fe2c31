"""The writer of one database: transactions become epochs, each applied whole or not at all.

In: transactions. Out: for each its result or its refusal, and for each committed epoch a record that says all
that changed. Always: program, symbols and placement change together, at the end of an epoch that succeeded; after a
refusal or a dry run all three are as before. A group costs one evaluation; only when that is refused, or one of its
transactions might hide what is wrong with another (sharing.py), are they tried one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from engine.circuit.circuit import Circuit, texts_of
from engine.circuit.naming import PRIME, name_of, named
from engine.data.codes import Codes
from engine.data.sources import is_hidden
from engine.data.symbols import SymbolTable
from engine.data.transaction import PlacementName, Transaction
from engine.data.values import Encoder, decode
from engine.database.checkpoint import (
    Checkpoint,
    check_counts,
    check_history,
    checkpoint_of,
    checkpoint_program,
    fact_changes,
    program_after,
    restored_program,
)
from engine.database.constraints import check_constraints, constraints_of
from engine.database.database import Database
from engine.database.epoch import NOTHING_FORGOTTEN, Changes, EpochRecord, EpochResult, changed_name, replaced
from engine.database.home import cannot_take
from engine.database.program import Program
from engine.database.saved import InParts, SavedState
from engine.database.sharing import Interactions, sharing
from engine.database.staging import Staging
from engine.errors import (
    BudgetExceededError,
    EvaluationCancelledError,
    InvalidRequestError,
    SparkUnavailableError,
    UnsupportedFeatureError,
    ZedlogError,
)
from engine.language.schema import ColumnType, Schema
from engine.maintenance.change import Change
from engine.maintenance.facts import FactDelta, heaviest, takes_far
from engine.maintenance.placement import ANY_HEIGHT, Budget, Executed, Placement
from engine.maintenance.policy import Policy, reason
from engine.maintenance.repair import told
from engine.maintenance.speed import Elsewhere
from engine.resident.checkpoint import CheckpointUnusable
from engine.resident.placement import ResidentPlacement

T = TypeVar("T")

PART = 65_536
"""So many symbols of a saved state are read at a time."""
_FEW_SYMBOLS = 4096
"""So many symbols may be kept that nothing uses."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What `commit` did. `record` is None when no transaction was applied; outcomes are in the order of the input."""

    record: EpochRecord | None
    outcomes: list[EpochResult | ZedlogError]


class Writer:
    """See the module. Only the writer changes `database`.

    budget: what one epoch may take; it may be replaced between two epochs. policy: as of `Reasoner`.
    """

    def __init__(self, database: Database, budget: Budget, policy: Policy) -> None:
        self.budget = budget
        self._database = database
        self._policy = policy
        self._interactions: Interactions | None = None
        self._evaluation: tuple[Policy, PlacementName | None] = policy, None
        # Symbols: how many codes there were, and strings, when they were looked at last; what was forgotten since the
        # last epoch; and the results whose changes are not decoded yet.
        self._seen_codes = self._seen_symbols = 0
        # The first code that is not published; None: nothing but the epoch's own symbols is new.
        self._unpublished: int | None = None
        self._forgotten: list[npt.NDArray[np.int64]] = []
        self._results: WeakSet[EpochResult] = WeakSet()

    def sharing(self, transactions: Sequence[Transaction]) -> int:
        """How many of the first transactions can be one epoch, so that each has the outcome that it would have
        alone.
        """
        return sharing(self._database.program, self._interactions_now, transactions)

    def _interactions_now(self) -> Interactions:
        program, known = self._database.program, self._interactions
        constraints = {program.key(name) for name in constraints_of(program)}
        if known is None or known.circuit is not program.circuit or known.constraints != constraints:
            known = self._interactions = Interactions(program.circuit, constraints)
        return known

    def commit(self, transactions: Sequence[Transaction], shared: bool) -> GroupResult:
        """See `Reasoner.commit`."""
        if len({transaction.evaluation for transaction in transactions}) > 1:
            raise InvalidRequestError(
                "transactions that ask for different strategies or placements cannot share an epoch"
            )
        outcomes: list[EpochResult | ZedlogError | None] = [None] * len(transactions)
        real = [i for i, transaction in enumerate(transactions) if not transaction.dry_run]
        record: EpochRecord | None = None
        if real:
            group = [transactions[i] for i in real]
            results: list[EpochResult | ZedlogError]
            try:
                results, record = self._committing(group[0], lambda: self._group(group, shared))
            except ZedlogError as error:
                results = [error] * len(group)
            for i, outcome in zip(real, results, strict=True):
                outcomes[i] = outcome
        for i, transaction in enumerate(transactions):
            if transaction.dry_run:
                try:
                    outcomes[i] = self.apply(transaction)
                except ZedlogError as error:
                    outcomes[i] = error
        return GroupResult(record, [outcome for outcome in outcomes if outcome is not None])

    def apply(self, transaction: Transaction) -> EpochResult:
        """One transaction, as an epoch of its own.

        Raises:
            ZedlogError: it is refused; nothing changed.
        """
        return self._committing(transaction, lambda: self._one(transaction))

    def _committing(self, transaction: Transaction, work: Callable[[], T]) -> T:
        """A context for the work of an epoch, on the placement where it is to be done; if nothing is committed, the
        state has not moved.

        Raises:
            ZedlogError: the placement that is asked for is not available, or does not know the strategy.
        """
        epoch, places = self._database.epoch, self._database.places
        self._evaluation = self._policy.asking(transaction.strategy), transaction.placement
        self._forget_symbols()
        places.begin(transaction.placement, transaction.dry_run, self.budget, Encoder(self._database.symbols))
        try:
            self._check_strategy()
            if self._database.symbols.is_far and not takes_far(places.now):
                # The placement that had far texts for the symbols may be gone after the epoch.
                self._database.symbols.bring_near()
            return work()
        finally:
            if takes_far(places.now):
                places.now.let_go()
            places.end(committed=self._database.epoch != epoch)

    def _check_strategy(self) -> None:
        if self._evaluation[0].strategy == "dred" and self._database.placement.name == "spark":
            raise InvalidRequestError(
                "the strategy dred is done in the engine process only, and the database is on Spark: leave the "
                "strategy out, or ask for the placement resident as well",
                strategy="dred",
                placement="spark",
            )

    def _forget_symbols(self) -> None:
        """Forget the symbols that nothing uses, once the number of symbols has doubled since the last time, so that
        each symbol pays for a bounded number of looks.
        """
        symbols = self._database.symbols
        if len(symbols) - self._seen_codes <= max(_FEW_SYMBOLS, self._seen_symbols):
            return
        program = self._database.program
        used = self._used_codes(program)
        self._seen_codes = len(symbols)
        if used is not None:
            for result in list(self._results):
                # It reports tuples that may have disappeared since.
                _ = result.changes
            self._results.clear()
            self._forgotten.append(symbols.keep(used, texts_of(program.circuit)))
        self._seen_symbols = symbols.held

    def _used_codes(self, program: Program) -> Codes | None:
        """The codes in all columns that may hold symbols; None if looking would cost too much."""
        columns: dict[str, Sequence[int] | None] = dict.fromkeys(program.circuit.arities)
        for name, schema in program.schemas.items():
            columns[program.key(name)] = [
                place
                for place, column in enumerate(schema.columns)
                if column.type in (None, ColumnType.SYMBOL)
            ]
        return self._database.placement.codes(
            {key: places for key, places in columns.items() if places != []}
        )

    def _one(self, transaction: Transaction) -> EpochResult:
        start = time.perf_counter()
        mark = len(self._database.symbols)
        try:
            staging = Staging(self._database)
            staging.add(transaction)
            program, executed = self._execute(staging)
            record = self._record(program, executed, mark, start)
            if transaction.dry_run:
                # Nothing else is left of it.
                try:
                    here = {name: change.here() for name, change in record.relations.items()}
                except BaseException:
                    self._database.placement.rollback()
                    raise
                record = replace(record, relations=here)
            result = EpochResult(record.epoch, transaction.dry_run, record, self._decode_changes)
            self._results.add(result)
            if transaction.dry_run:
                # Decode while the symbols are there.
                _ = result.changes
                self._database.placement.rollback()
                self._database.symbols.truncate(mark)
            else:
                self._keep(program, record)
            return result
        except ZedlogError:
            self._database.symbols.truncate(mark)
            raise

    def _group(
        self, transactions: Sequence[Transaction], shared: bool
    ) -> tuple[list[EpochResult | ZedlogError], EpochRecord | None]:
        start = time.perf_counter()
        mark = len(self._database.symbols)
        alone = len(transactions) > 1 and not shared and self.sharing(transactions) < len(transactions)
        outcomes, done, failure = ([], None, None) if alone else self._stage(transactions)
        if isinstance(failure, SparkUnavailableError | EvaluationCancelledError):
            # No transaction causes that, and trying them one by one would mean waiting for Spark each time.
            outcomes = [outcome or failure for outcome in outcomes]
        elif failure is not None or alone:
            self._database.symbols.truncate(mark)
            refused = self._refusals(transactions, mark)
            _, done, failure = self._stage([r for i, r in enumerate(transactions) if i not in refused])
            # A limit of time may be passed at the second try though it was not at the first.
            outcomes = [refused.get(i) or failure for i in range(len(transactions))]
        if done is None:
            self._database.symbols.truncate(mark)
            return [outcome for outcome in outcomes if outcome is not None], None
        program, executed = done
        record = self._record(program, executed, mark, start)
        self._keep(program, record)
        result = EpochResult(record.epoch, False, record, self._decode_changes)
        self._results.add(result)
        return [outcome or result for outcome in outcomes], record

    def _refusals(self, transactions: Sequence[Transaction], mark: int) -> dict[int, ZedlogError]:
        """The transactions that cannot be applied, each tried together with those before it that can."""
        refused: dict[int, ZedlogError] = {}
        staging = Staging(self._database)
        for i, transaction in enumerate(transactions):
            try:
                staging.add(transaction)
            except ZedlogError as error:
                refused[i] = error
                continue
            staged = len(self._database.symbols)
            try:
                self._execute(staging)
                self._database.placement.rollback()
                self._database.symbols.truncate(staged)
            except EvaluationCancelledError:
                # Of the group as a whole.
                self._database.symbols.truncate(mark)
                raise
            except SparkUnavailableError as error:
                # Spark went away meanwhile: the transactions that are left should not wait for it again.
                refused |= {j: error for j in range(len(transactions)) if j not in refused}
                break
            except ZedlogError as error:
                refused[i] = error
                # What is staged cannot be taken out again.
                self._database.symbols.truncate(mark)
                staging = Staging(self._database)
                for earlier in (r for j, r in enumerate(transactions[:i]) if j not in refused):
                    staging.add(earlier)
        self._database.symbols.truncate(mark)
        return refused

    def _stage(
        self, transactions: Sequence[Transaction]
    ) -> tuple[list[ZedlogError | None], tuple[Program, Executed] | None, ZedlogError | None]:
        """Stage and execute: (what was refused, what was executed, why the evaluation failed)."""
        staging = Staging(self._database)
        outcomes: list[ZedlogError | None] = []
        for transaction in transactions:
            try:
                staging.add(transaction)
                outcomes.append(None)
            except ZedlogError as error:
                outcomes.append(error)
        if all(outcome is not None for outcome in outcomes):
            return outcomes, None, None
        try:
            return outcomes, self._execute(staging), None
        except ZedlogError as error:
            return outcomes, None, error

    def _execute(self, staging: Staging) -> tuple[Program, Executed]:
        program = staging.program.compiled(self._database.placement.holds)
        facts = staging.fact_deltas(program)
        self._check_folds(program.circuit, facts)
        try:
            executed = self._evaluate(program, facts, self.budget)
        except ZedlogError as error:
            raise named(error, program.public_names) from error.__cause__
        try:
            check_constraints(self._database, program, executed)
        except BaseException:
            self._database.placement.rollback()
            raise
        return program, executed

    def _check_folds(self, circuit: Circuit, facts: Mapping[str, FactDelta]) -> None:
        """Refuse facts in a relation that its rules aggregate."""
        changed = circuit is not self._database.program.circuit
        for relation in (circuit.targets.keys() | facts.keys()) if changed else facts:
            for fold in circuit.folds_of(relation):
                if fold.takes_facts:
                    continue
                if relation in facts or self._database.placement.count(relation, "asserted"):
                    name = name_of(relation)
                    why = "several aggregates" if fold.part_of else fold.function
                    raise UnsupportedFeatureError(
                        f"{name} is aggregated by its rules ({why}), so it cannot hold facts too; "
                        "assert them in a relation of their own and add a rule for it",
                        relation=name,
                    )

    def _evaluate(self, program: Program, facts: Mapping[str, FactDelta], budget: Budget) -> Executed:
        """Execute; an epoch that outgrows this process is dropped, and executed again with some strata on Spark if the
        placement is chosen automatically.
        """
        encode, places = Encoder(self._database.symbols), self._database.places
        policy, asked = self._evaluation
        if self._database.symbols.is_far:
            # One question for all of them; the answers are remembered.
            self._database.symbols.find_all(sorted(texts_of(program.circuit)))

        def execute() -> Executed:
            return places.now.execute(program.circuit, facts, encode, places.budget(budget), policy)

        outgrown: BudgetExceededError | None = None
        while True:
            try:
                start = time.perf_counter()
                executed = execute()
                places.done(executed, time.perf_counter() - start)
                return executed
            except Elsewhere as stop:
                places.leave(stop, encode)
            except BudgetExceededError as error:
                outgrown = error
                places.outgrow(error, asked, program.circuit, encode)
            except SparkUnavailableError as other:
                if outgrown is None and places.refrain(other):
                    continue
                if outgrown is None:
                    raise
                raise cannot_take(outgrown, other) from other

    def recover(self, state: SavedState) -> None:
        """In the first epoch, hold what was committed before: it must be accepted, whatever it costs."""
        database, given = self._database, self.budget
        placement = database.placement
        database.symbols = _symbols(state, placement)
        facts = {name: _facts(state, name, placement) for name in state.facts}
        held = {name: state.schemas[name] for name in facts}
        program = restored_program(state.rules, state.declarations, state.schemas, held)
        program = program.compiled(lambda _: False)
        unlimited = self._unlimited()
        database.places.begin(None, False, unlimited, Encoder(database.symbols))
        memory = given.memory if database.places.wanted == "auto" else None
        try:
            self._evaluate(program, facts, replace(unlimited, memory=memory))
        except BudgetExceededError:
            # Too large for this process, and Spark is not available: then it is held here, as it was before.
            database.places.start_resident()
            self._evaluate(program, facts, unlimited)
        database.placement.commit()
        database.places.end(committed=True)
        database.program, database.epoch = program, state.epoch
        self._take_back_symbols(len(state.symbols))
        database.heaviest = max(map(heaviest, facts.values()), default=0)
        if takes_far(placement):
            placement.let_go()

    def resume(self, checkpoint: Checkpoint, state: SavedState) -> None:
        """In the first epoch, hold what a checkpoint has, and bring it to the state that was committed.

        Raises:
            CheckpointUnusable: it does not fit, or takes more than is allowed here; this writer must not be used any
                more.
            EvaluationCancelledError: told to stop.
        """
        database = self._database
        placement = database.placement
        if not isinstance(placement, ResidentPlacement):
            raise CheckpointUnusable(
                "the state is to be on Spark, and a checkpoint is for the engine process"
            )
        check_history(checkpoint, state)
        before = checkpoint_program(checkpoint)
        database.symbols = SymbolTable(state.symbols)
        encode = Encoder(database.symbols)
        placement.resume(before.circuit, checkpoint.parts, encode)
        held = {name: state.schemas[name] for name in state.facts}
        program = program_after(before, state, held).compiled(placement.holds)
        facts = fact_changes(placement, before, program, checkpoint, state)
        memory = self.budget.memory if database.places.wanted == "auto" else None
        if memory is not None and placement.memory() + database.symbols.nbytes > memory:
            raise CheckpointUnusable("the state does not fit into the memory budget")
        if facts or program is not before:
            budget = replace(self._unlimited(), memory=memory)
            try:
                placement.execute(program.circuit, facts, encode, budget, self._policy)
            except EvaluationCancelledError:
                raise
            except ZedlogError as error:
                raise CheckpointUnusable(f"it cannot be brought to epoch {state.epoch}: {error}") from error
            placement.commit()
        check_counts(placement, program, state)
        database.program, database.epoch = program, state.epoch
        self._take_back_symbols(len(state.symbols))
        self._seen_codes, self._seen_symbols = checkpoint.looked
        added = max((int(weights.max()) for _, weights in facts.values()), default=0)
        database.heaviest = checkpoint.heaviest + max(added, 0)

    def _take_back_symbols(self, published: int) -> None:
        """After a recovery: take back the codes of strings that the evaluation has met on its way, and that were
        forgotten before, so that the next symbol gets the first code that is not published. If that cannot be, the
        next epoch publishes these strings too.
        """
        symbols = self._database.symbols
        if len(symbols) > published:
            used = self._used_codes(self._database.program)
            if used is not None and not (used >= published).any():
                symbols.truncate(published)
            else:
                self._unpublished = published

    def checkpoint(self, incarnation: str, versions: Mapping[str, str]) -> Checkpoint | None:
        """See `Reasoner.checkpoint`."""
        looked = self._seen_codes, self._seen_symbols
        return checkpoint_of(self._database, incarnation, versions, looked)

    def _unlimited(self) -> Budget:
        """What was committed before is limited by nothing but a request to end."""
        return Budget(height=ANY_HEIGHT, cancelled=self.budget.cancelled, entered=self.budget.entered)

    def _record(self, program: Program, executed: Executed, mark: int, start: float) -> EpochRecord:
        """The record of the executed epoch."""
        changes, changed = self._named(program, executed)
        policy, _ = self._evaluation
        first = mark if self._unpublished is None else self._unpublished
        why = reason(policy, executed.switched, executed.rebuilt, executed.dropped)
        if by_dred := told(executed.repaired):
            why = f"{why}; {by_dred}"
        why = why.replace(PRIME, "")
        return EpochRecord(
            epoch=self._database.epoch + 1,
            relations=changes,
            rules=program.rule_infos,
            schemas=program.schemas,
            changed_schemas=changed,
            declarations=program.declaration_text,
            first_symbol=first,
            symbols=self._database.symbols.since(first),
            strategy=_strategy(executed, policy),
            placement=self._database.placement.name,
            derivations=executed.derivations,
            reason=f"{why}; {self._database.places.why}" if self._database.places.why else why,
            elapsed_ms=(time.perf_counter() - start) * 1000,
            abandoned=executed.abandoned,
            estimate=executed.estimate,
            bootstrap=executed.bootstrap,
            away={name_of(key): why for key, why in self._database.places.away().items()},
            forgotten=np.sort(np.concatenate(self._forgotten)) if self._forgotten else NOTHING_FORGOTTEN,
        )

    def _named(self, program: Program, executed: Executed) -> tuple[dict[str, Change], dict[str, Schema]]:
        """The changes by the relations' names, and their schemas, as `EpochRecord` has them."""
        changes: dict[str, Change] = {}
        schemas: dict[str, Schema] = {}
        for key, change in executed.relations.items():
            name = name_of(key)
            old, new = self._database.program.schemas.get(name), program.schemas.get(name)
            if name in program.schemas and key == program.key(name):
                changes[name], schemas[name] = change, _fuller(old, new)
            else:
                assert old is not None, "a relation that goes was there before"
                other = name in program.schemas and program.key(name) in executed.relations
                changes[replaced(name) if other else name] = change
                schemas[replaced(name) if other else name] = old
        return changes, schemas

    def _keep(self, program: Program, record: EpochRecord) -> None:
        database = self._database
        database.placement.commit()
        self._forgotten.clear()
        self._unpublished = None
        database.program, database.epoch = program, record.epoch
        heaviest = (change.heaviest for change in record.relations.values())
        database.heaviest = max(database.heaviest, *heaviest, 0)

    def _decode_changes(self, record: EpochRecord) -> Changes:
        """The tuples that an epoch inserted (+1) and deleted (-1), by relation."""
        changes: Changes = {}
        for relation, counted in record.relations.items():
            if is_hidden(relation) or not (counted.inserted or counted.deleted):
                continue
            change = counted.here()
            moved = np.flatnonzero(change.present)
            if len(moved):
                types = [column.type for column in record.changed_schemas[relation].columns]
                tuples = decode(change.codes[moved], types, self._database.symbols)
                decoded = zip(tuples, change.present[moved].tolist(), strict=True)
                changes.setdefault(changed_name(relation), []).extend(decoded)
        return changes


def _strategy(executed: Executed, policy: Policy) -> str:
    """The strategy that an epoch took, in a word."""
    if executed.switched or policy.strategy == "bootstrap":
        return "bootstrap"
    return "dred" if any(not one.instead for one in executed.repaired) else "update"


def _symbols(state: SavedState, placement: Placement) -> SymbolTable:
    """The symbols of a saved state; those of many are far where the placement takes them."""
    number = len(state.symbols)
    if not (takes_far(placement) and placement.takes(number)):
        return SymbolTable(state.symbols)
    symbols = SymbolTable()
    parts = ((first, state.symbols[first : first + PART]) for first in range(0, number, PART))
    symbols.add_far(placement.texts(parts), number)
    return symbols


def _facts(state: SavedState, name: str, placement: Placement) -> FactDelta:
    """The facts of a relation of a saved state; the same."""
    facts = state.facts
    if takes_far(placement) and isinstance(facts, InParts) and placement.takes(facts.rows(name)):
        return placement.put(state.schemas[name].arity, facts.parts(name))
    return facts[name]


def _fuller(old: Schema | None, new: Schema | None) -> Schema:
    """The one of two schemas of a relation that knows the types: a relation may lose its last mention."""
    if old is not None and (new is None or any(c.type is None for c in new.columns)):
        return old
    assert new is not None, "a changed relation is in the program before or after"
    return new
