"""The reasoner: one database's program, symbols and placement, brought from epoch to epoch.

In: transactions. Out: for each committed epoch a record that says all that changed. Always: a transaction is applied
whole or not at all; after a refusal or a dry run the state is as before. Not for use by several threads at once.

    from engine import Reasoner
    r = Reasoner()
    result = r.apply(facts={"edge": [(("a", "b"), 1)]}, rules=[("tc(x, y) :- edge(x, y).", 1)])
    result.changes["tc"]        # [(("a", "b"), 1)]
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.constraints import check_constraints, may_interact
from engine.epoch import EpochRecord, EpochResult, RuleInfo
from engine.errors import (
    InvalidRequestError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownRelationError,
    UnsupportedFeatureError,
    ZedlogError,
)
from engine.language.schema import Schema
from engine.placement import Budget, Codes, Executed, Placement
from engine.placements import make_placement
from engine.program import Program
from engine.query import Answer, answer
from engine.staging import FactInput, Request, Staging, check_array
from engine.symbols import SymbolTable
from engine.transaction import Mode, RuleChange, Transaction, Tuple, Value, check_weight
from engine.values import Encoder, decode, encode_value, type_of

if TYPE_CHECKING:
    from engine.spark.session import SparkOptions, SparkSource

Facts: TypeAlias = Mapping[str, "Sequence[tuple[Sequence[Value], int]] | npt.NDArray[np.int64]"]
Rules: TypeAlias = Sequence[tuple[str, int]]

DOMAINS = ("all", "asserted", "derived")


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What `commit` did. `record` is None when no transaction was applied; outcomes are in the order of the input."""

    record: EpochRecord | None
    outcomes: list[EpochResult | ZedlogError]


@dataclass(frozen=True, slots=True)
class Exported:
    """All that `Reasoner.restore` needs; derived relations are computed again."""

    symbols: tuple[str, ...]
    facts: dict[str, tuple[Codes, Codes]]
    schemas: dict[str, Schema]
    rules: tuple[RuleInfo, ...]
    declarations: str
    epoch: int


class Reasoner:
    """See the module.

    placement: `auto`, `resident` or `spark`. budget: what one epoch may take (`Budget`), by default no limit.
    threads: for large joins, by default all cores. spark: how a Spark placement gets its session, by default a local
    one that starts with the first epoch; `close` stops what was started.
    """

    def __init__(
        self,
        placement: str = "auto",
        budget: Budget | None = None,
        threads: int | None = None,
        spark: SparkOptions | SparkSource | None = None,
    ) -> None:
        self._threads = threads
        self._placement: Placement = make_placement(placement, threads, spark)
        self._budget = budget or Budget()
        self._symbols = SymbolTable()
        self._program = Program()
        self._epoch = 0

    def close(self) -> None:
        """Give back what the placement holds outside of this process; the reasoner must not be used any more."""
        self._placement.close()

    def move_to(self, placement: str, spark: SparkOptions | SparkSource | None = None) -> None:
        """Go on in another placement, with the same state; supports and heights stay as they are.

        Raises:
            ZedlogError: the other placement cannot take it; everything is as before.
        """
        other = make_placement(placement, self._threads, spark)
        try:
            other.import_state(self._placement.export_state(), Encoder(self._symbols))
        except BaseException:
            other.close()
            raise
        self._placement.close()
        self._placement = other

    # ---- changing

    @property
    def epoch(self) -> int:
        """The number of the last committed epoch; 0 before the first."""
        return self._epoch

    def apply(
        self,
        facts: Facts | None = None,
        rules: Rules | None = None,
        declarations: str = "",
        mode: Mode = "zset",
    ) -> EpochResult:
        """Apply one transaction and commit it.

        facts: relation -> list of (tuple, weight), or int64[n, arity], each row of weight 1. rules: list of
        (text, weight). declarations: `.decl` directives.

        Raises:
            ZedlogError: the transaction is refused; nothing changed.
        """
        return self._one(_request(facts, rules, declarations, mode, dry_run=False))

    def dry_run(
        self,
        facts: Facts | None = None,
        rules: Rules | None = None,
        declarations: str = "",
        mode: Mode = "zset",
    ) -> EpochResult:
        """What `apply` would do; nothing stays."""
        return self._one(_request(facts, rules, declarations, mode, dry_run=True))

    def commit(self, transactions: Sequence[Transaction]) -> GroupResult:
        """Apply several transactions as one epoch, in order; dry runs come after it.

        Each is checked against the weights that the ones before it leave; a refused one changes nothing. When the
        evaluation is refused, or more than one has to do with a constraint, the transactions are tried one after the
        other, and those that fail are left out.
        """
        requests = [Request.of(transaction) for transaction in transactions]
        outcomes: list[EpochResult | ZedlogError | None] = [None] * len(requests)
        real = [i for i, request in enumerate(requests) if not request.dry_run]
        record = None
        if real:
            results, record = self._group([requests[i] for i in real])
            for i, outcome in zip(real, results, strict=True):
                outcomes[i] = outcome
        for i, request in enumerate(requests):
            if request.dry_run:
                try:
                    outcomes[i] = self._one(request)
                except ZedlogError as error:
                    outcomes[i] = error
        return GroupResult(record, [outcome for outcome in outcomes if outcome is not None])

    def _one(self, request: Request) -> EpochResult:
        start = time.perf_counter()
        mark = len(self._symbols)
        try:
            staging = Staging(self._program, self._placement, self._symbols)
            staging.add(request)
            program, executed = self._execute(staging)
            record = self._record(program, executed, mark, start)
            result = EpochResult(record.epoch, request.dry_run, record, self)
            if request.dry_run:
                # Decode while the symbols are there.
                _ = result.changes
                self._placement.rollback()
                self._symbols.truncate(mark)
            else:
                self._keep(program, record)
            return result
        except ZedlogError:
            self._symbols.truncate(mark)
            raise

    def _group(self, requests: list[Request]) -> tuple[list[EpochResult | ZedlogError], EpochRecord | None]:
        start = time.perf_counter()
        mark = len(self._symbols)
        outcomes, done, failure = self._stage(requests)
        alone = False
        if done is not None and len(requests) > 1:
            staged = [r for r, refusal in zip(requests, outcomes, strict=True) if refusal is None]
            if may_interact(self._program, done[0], staged):
                alone = True
                self._placement.rollback()
        if failure is not None or alone:
            self._symbols.truncate(mark)
            refused = self._refusals(requests, mark)
            _, done, failure = self._stage([r for i, r in enumerate(requests) if i not in refused])
            # A limit of time may be passed at the second try though it was not at the first.
            outcomes = [refused.get(i) or failure for i in range(len(requests))]
        if done is None:
            self._symbols.truncate(mark)
            return [outcome for outcome in outcomes if outcome is not None], None
        program, executed = done
        record = self._record(program, executed, mark, start)
        self._keep(program, record)
        result = EpochResult(record.epoch, False, record, self)
        return [outcome or result for outcome in outcomes], record

    def _refusals(self, requests: list[Request], mark: int) -> dict[int, ZedlogError]:
        """The requests that cannot be applied, each tried together with those before it that can."""
        refused: dict[int, ZedlogError] = {}
        staging = Staging(self._program, self._placement, self._symbols)
        for i, request in enumerate(requests):
            try:
                staging.add(request)
            except ZedlogError as error:
                refused[i] = error
                continue
            staged = len(self._symbols)
            try:
                self._execute(staging)
                self._placement.rollback()
                self._symbols.truncate(staged)
            except ZedlogError as error:
                refused[i] = error
                # What is staged cannot be taken out again.
                self._symbols.truncate(mark)
                staging = Staging(self._program, self._placement, self._symbols)
                for earlier in (r for j, r in enumerate(requests[:i]) if j not in refused):
                    staging.add(earlier)
        self._symbols.truncate(mark)
        return refused

    def _stage(
        self, requests: list[Request]
    ) -> tuple[list[ZedlogError | None], tuple[Program, Executed] | None, ZedlogError | None]:
        """Stage and execute: (what was refused, what was executed, why the evaluation failed)."""
        staging = Staging(self._program, self._placement, self._symbols)
        outcomes: list[ZedlogError | None] = []
        for request in requests:
            try:
                staging.add(request)
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
        program = staging.program.compiled(self._placement.relations())
        facts = staging.fact_deltas()
        for stratum in program.circuit.strata:
            for fold in stratum.folds:
                if fold.relation in facts or self._placement.count(fold.relation, "asserted"):
                    raise UnsupportedFeatureError(
                        f"{fold.relation} is aggregated by its rules ({fold.function}), so it cannot hold facts too; "
                        "assert them in a relation of their own and add a rule for it",
                        relation=fold.relation,
                    )
        executed = self._placement.execute(program.circuit, facts, Encoder(self._symbols), self._budget)
        try:
            check_constraints(self._program, program, executed, self._placement, self._symbols)
        except BaseException:
            self._placement.rollback()
            raise
        return program, executed

    def _record(self, program: Program, executed: Executed, mark: int, start: float) -> EpochRecord:
        """The record of the executed epoch. Relations that nothing mentions and that hold nothing leave the schemas."""
        gone = [r for r in program.schemas if not program.mentions(r) and not self._placement.count(r, "all")]
        before = self._program.schemas
        changed = {r: _fuller(before.get(r), program.schemas.get(r)) for r in executed.relations}
        rebuilt = ", ".join("{" + ", ".join(members) + "}" for members in executed.rebuilt)
        return EpochRecord(
            epoch=self._epoch + 1,
            relations=executed.relations,
            rules=program.rule_infos,
            schemas=program.without(gone).schemas,
            changed_schemas=changed,
            declarations=program.declaration_text,
            first_symbol=mark,
            symbols=self._symbols.since(mark),
            strategy="update",
            placement=self._placement.name,
            derivations=executed.derivations,
            reason=f"maintained; built anew, for its members changed: {rebuilt}" if rebuilt else "maintained",
            elapsed_ms=(time.perf_counter() - start) * 1000,
        )

    def _keep(self, program: Program, record: EpochRecord) -> None:
        self._placement.commit()
        self._program = program.without(set(program.schemas) - set(record.schemas))
        self._epoch = record.epoch

    # ---- reading

    def rules(self) -> list[RuleInfo]:
        """All rules of weight > 0."""
        return list(self._program.rule_infos)

    def relations(self) -> dict[str, Schema]:
        """Every relation's schema."""
        return dict(self._program.schemas)

    def count(self, relation: str, domain: str = "all") -> int:
        """How many tuples the relation has in a domain: `all`, `asserted` or `derived`."""
        self._schema(relation)
        return self._placement.count(relation, _domain(domain))

    def facts(self, relation: str, /, domain: str = "all", **bound: Value) -> list[Tuple]:
        """The tuples whose columns have the values `bound`, in no particular order.

        Raises:
            UnknownRelationError, UnknownColumnError, TypeMismatchError.
        """
        return [values for values, _ in self.weighted(relation, domain, **bound)]

    def weighted(self, relation: str, /, domain: str = "all", **bound: Value) -> list[tuple[Tuple, int]]:
        """As `facts`, each tuple with its asserted weight (0 for one that is only derived)."""
        schema = self._schema(relation)
        codes_of: dict[int, int] = {}
        for name, value in bound.items():
            position = schema.position(name)
            if position is None:
                raise UnknownColumnError(
                    f"{schema} has no column {name}",
                    relation=relation,
                    columns=[c.name for c in schema.columns],
                )
            code = self._find(schema, position, value)
            if code is None:
                return []
            codes_of[position] = code
        codes, weights = self._placement.tuples(relation, codes_of, _domain(domain))
        tuples = decode(codes, [column.type for column in schema.columns], self._symbols)
        return list(zip(tuples, weights.tolist(), strict=True))

    def query(self, text: str, budget: Budget | None = None) -> Answer:
        """Answer a conjunction with negation, conditions, arithmetic and aggregates: the distinct bindings of its named
        variables, or of the terms of its head (`q(x, n) :- ...`).

        Raises:
            ZedlogError: the text is no query, does not fit the relations, or outgrows `budget` (by default no limit).
        """
        return answer(text, self._program.schemas, self._placement, self._symbols, budget or Budget())

    def _find(self, schema: Schema, position: int, value: Value) -> int | None:
        """The code of a value that a column is compared with; None for a symbol that occurs nowhere."""
        column = schema.columns[position]
        got = type_of(value)
        if column.type is not None and got is not column.type:
            raise TypeMismatchError(
                f"column {position + 1} ({column.name}) of {schema.relation} holds {column.type.value}, "
                f"but {value!r} is a {got.value}",
                relation=schema.relation,
                column_name=column.name,
                expected=column.type.value,
                got=got.value,
            )
        return self._symbols.find(value) if isinstance(value, str) else encode_value(value, self._symbols)

    def _schema(self, relation: str) -> Schema:
        schema = self._program.schemas.get(relation)
        if schema is None:
            near = difflib.get_close_matches(relation, self._program.schemas)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UnknownRelationError(f"there is no relation {relation}{hint}", relation=relation, near=near)
        return schema

    def decode_changes(self, record: EpochRecord) -> dict[str, list[tuple[Tuple, int]]]:
        """The tuples that an epoch inserted (+1) and deleted (-1), by relation."""
        changes = {}
        for relation, change in record.relations.items():
            moved = np.flatnonzero(change.present)
            if len(moved):
                types = [column.type for column in record.changed_schemas[relation].columns]
                tuples = decode(change.codes[moved], types, self._symbols)
                changes[relation] = list(zip(tuples, change.present[moved].tolist(), strict=True))
        return changes

    def memory(self) -> int:
        """Bytes that the placement's arrays hold."""
        return self._placement.memory()

    # ---- the state as a whole

    def export(self) -> Exported:
        """What a new process needs to go on from here."""
        facts = {}
        for relation in self._program.schemas:
            codes, weights = self._placement.tuples(relation, {}, "asserted")
            if len(codes):
                facts[relation] = codes, weights
        return Exported(
            self._symbols.since(0),
            facts,
            dict(self._program.schemas),
            self._program.rule_infos,
            self._program.declaration_text,
            self._epoch,
        )

    @classmethod
    def restore(
        cls,
        symbols: Sequence[str],
        facts: Mapping[str, tuple[Codes, Codes]],
        schemas: Mapping[str, Schema],
        rules: Sequence[RuleInfo],
        declarations: str,
        epoch: int,
        placement: str = "auto",
        budget: Budget | None = None,
        threads: int | None = None,
        spark: SparkOptions | SparkSource | None = None,
    ) -> Reasoner:
        """A reasoner at `epoch` with these facts (codes, weights), rules and declarations; derives what follows."""
        reasoner = cls(placement, None, threads, spark)
        reasoner._symbols = SymbolTable(symbols)
        held = {name: schemas[name] for name in facts}
        known = Program(schemas=dict(schemas))
        program = known.changed(
            [RuleChange(r.canonical, r.weight) for r in rules], declarations, "zset", held
        )
        texts = {info.id: info for info in rules}
        named = {id_: (texts.get(id_, info), rule) for id_, (info, rule) in program.rules.items()}
        program = (
            Program(named, program.declarations, program.schemas, program.circuit)
            .with_facts(held)
            .compiled(())
        )
        reasoner._placement.execute(program.circuit, facts, Encoder(reasoner._symbols), Budget())
        reasoner._placement.commit()
        reasoner._program = program
        reasoner._epoch = epoch
        reasoner._budget = budget or Budget()
        return reasoner

    def state(self) -> dict[str, Any]:
        """Facts, supports, entries and indexes of every relation, decoded, in a canonical form; for tests.

        {"facts": {relation: {tuple: weight}}, "supports" and "entries": {relation: {tuple: {height: n}}},
        "indexes": {(relation, columns): {key: [(payload, height, weight)]}}}, all without empty parts.
        """
        from engine.state import decoded_state

        return decoded_state(self._placement.state(), self._program.schemas, self._symbols)

    def check_invariants(self) -> None:
        """Raise AssertionError where an internal structure contradicts another."""
        self._placement.check_invariants()


def _request(
    facts: Facts | None, rules: Rules | None, declarations: str, mode: Mode, dry_run: bool
) -> Request:
    if mode not in ("zset", "set"):
        raise InvalidRequestError(f'mode must be "zset" or "set", not {mode!r}')
    inputs = []
    for relation, given in (facts or {}).items():
        if isinstance(given, np.ndarray):
            check_array(relation, given)
            tuples: Any = given
            weights = np.ones(1, np.int64)
        else:
            for _, weight in given:
                check_weight(weight, f"facts of {relation}")
            tuples = [values for values, _ in given]
            weights = np.array([weight for _, weight in given], np.int64)
        if len(tuples):
            inputs.append(FactInput(relation, tuples, weights))
    changes = tuple(
        RuleChange(text, check_weight(weight, f"the rule {text!r}")) for text, weight in rules or ()
    )
    return Request(tuple(inputs), changes, declarations, mode, dry_run)


def _fuller(old: Schema | None, new: Schema | None) -> Schema:
    """The one of two schemas of a relation that knows the types: a relation may lose its last mention."""
    if old is not None and (new is None or any(c.type is None for c in new.columns)):
        return old
    assert new is not None, "a changed relation is in the program before or after"
    return new


def _domain(domain: str) -> str:
    if domain not in DOMAINS:
        raise InvalidRequestError(f"domain must be one of {', '.join(DOMAINS)}, not {domain!r}")
    return domain
