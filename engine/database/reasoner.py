"""The reasoner: one database's program, symbols and placement, brought from epoch to epoch.

In: transactions. Out: for each committed epoch a record of everything that changed. Always: a transaction is applied
whole or not at all; after a refusal or a dry run the state is as before. A reasoner must not be used by several threads
at once.

    from zedlog import Reasoner
    r = Reasoner()
    result = r.apply(facts={"edge": [(("a", "b"), 1)]}, rules=[("tc(x, y) :- edge(x, y).", 1)])
    result.changes["tc"]        # [(("a", "b"), 1)]
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.data.codes import Codes
from engine.data.sources import is_hidden, sourced
from engine.data.transaction import (
    Facts,
    Mode,
    PlacementName,
    Strategy,
    Transaction,
    fact_changes,
    rule_changes,
)
from engine.data.values import Encoder, Tuple, Value, decode, encode_value, fitted, plain_value
from engine.database.checkpoint import Checkpoint
from engine.database.database import Database
from engine.database.epoch import EpochResult, RuleInfo
from engine.database.home import Placements
from engine.database.query import Answer, answer
from engine.database.saved import SavedState
from engine.database.writer import GroupResult, Writer
from engine.errors import (
    InvalidRequestError,
    UnknownColumnError,
    UnknownRelationError,
    did_you_mean,
    shown,
)
from engine.language.prefixes import Prefixes
from engine.language.schema import Schema
from engine.maintenance.memory import default_memory_budget
from engine.maintenance.placement import Budget
from engine.maintenance.policy import SWITCH, Policy
from engine.resident.placement import ResidentPlacement

if TYPE_CHECKING:
    from engine.spark.session.session import SparkOptions, SparkSource

Rules: TypeAlias = Iterable[tuple[str, int]]

__all__ = ["DOMAINS", "Facts", "GroupResult", "Reasoner", "Rules"]

DOMAINS = ("all", "asserted", "derived")


class Reasoner:
    """See the module. `database` is for looking only: what is in it changes through transactions.

    placement: `auto`, `resident` or `spark`. budget: what one epoch may take (`Budget`); by default, beside a limit of
    heights, half of the memory that the process may have (engine/maintenance/memory.py), beyond which it is refused,
    and not moved to Spark. max_height: the greatest height of a tuple of a recursive stratum, instead of the budget's.
    threads: for large joins, by default all cores. spark: how a Spark placement gets its session, by default a local
    one that starts with the first epoch; `close` stops a session that was started. switch: the fraction of a bootstrap
    after which an update may be abandoned for one, or a whole `Policy` (engine/maintenance/policy.py); 0 bootstraps
    every stratum that changes, `math.inf` never does.
    """

    def __init__(
        self,
        placement: str = "auto",
        budget: Budget | None = None,
        threads: int | None = None,
        spark: SparkOptions | SparkSource | None = None,
        switch: float | Policy = SWITCH,
        max_height: int | None = None,
    ) -> None:
        policy = switch if isinstance(switch, Policy) else Policy(switch=switch)
        # Without a budget nobody has asked for a second placement.
        places = Placements(placement, threads, spark, spreads=budget is not None)
        budget = budget or Budget(memory=default_memory_budget())
        if max_height is not None:
            if max_height < 1:
                raise InvalidRequestError(
                    f"max_height must be a whole number of at least 1, not {max_height!r}"
                )
            budget = replace(budget, height=max_height)
        self.database = Database(places)
        self._writer = Writer(self.database, budget, policy)

    @property
    def budget(self) -> Budget:
        """What one epoch may take; it may be replaced between two epochs."""
        return self._writer.budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._writer.budget = budget

    @property
    def epoch(self) -> int:
        """The number of the last committed epoch; 0 before the first."""
        return self.database.epoch

    @property
    def placement(self) -> str:
        """What holds the state now: `resident`, `spark`, or `mixed` if some strata are here and some there."""
        return self.database.placement.name

    def close(self) -> None:
        """Give back what is held outside of this process; the reasoner must not be used any more."""
        self.database.places.close()

    def move_to(self, placement: str, spark: SparkOptions | SparkSource | None = None) -> None:
        """Go on in another placement, with the same state; supports and heights stay as they are. From then on
        `placement` is used for every transaction that does not ask for another one.

        Raises:
            ZedlogError: the other placement cannot take it; everything is as before.
        """
        # Their source may go with the placement or its session.
        self.database.symbols.bring_near()
        self.database.places.move_to(placement, spark, self.budget, Encoder(self.database.symbols))

    # ---- changing

    def apply(
        self,
        facts: Facts | None = None,
        rules: Rules | None = None,
        declarations: str = "",
        mode: Mode = "zset",
        undeclare: Sequence[str] = (),
        strategy: Strategy | None = None,
        placement: PlacementName | None = None,
    ) -> EpochResult:
        """Apply one transaction and commit it.

        facts: relation -> (tuple, weight) pairs, any iterable of them, or int64[n, arity], each row of weight 1; values
        and weights may be scalars of numpy. What is added to a tuple is the sum of its weights, in whatever order they
        come (but in the mode `set`). rules: (text, weight) pairs. declarations: `.decl` and `.prefix` directives.
        undeclare: relations (and prefixes, `ex:`) whose declaration is withdrawn first. strategy, placement: how and
        where to evaluate it, instead of the reasoner's own choice; the placement holds for this transaction alone.

        Raises:
            ZedlogError: the transaction is refused; nothing changed.
        """
        transaction = _transaction(facts, rules, declarations, mode, undeclare, False, strategy, placement)
        return self._writer.apply(transaction)

    def dry_run(
        self,
        facts: Facts | None = None,
        rules: Rules | None = None,
        declarations: str = "",
        mode: Mode = "zset",
        undeclare: Sequence[str] = (),
        strategy: Strategy | None = None,
        placement: PlacementName | None = None,
    ) -> EpochResult:
        """What `apply` would do, without changing anything."""
        transaction = _transaction(facts, rules, declarations, mode, undeclare, True, strategy, placement)
        return self._writer.apply(transaction)

    def sharing(self, transactions: Sequence[Transaction]) -> int:
        """How many of the first transactions can be one epoch, so that each has the fate that it would have alone."""
        return self._writer.sharing(transactions)

    def commit(self, transactions: Sequence[Transaction], *, shared: bool = False) -> GroupResult:
        """Apply several transactions as one epoch, in order; dry runs come after it.

        Each is checked against the weights that the ones before it leave; a refused one changes nothing. When the
        evaluation is refused, or not all can share an epoch, the transactions are tried one after the other, and those
        that fail are left out. How they are to be evaluated must be the same for all. shared: `sharing` has just said
        that they can share an epoch; it is not asked again.

        Raises:
            InvalidRequestError: they ask for different strategies or placements.
        """
        return self._writer.commit(transactions, shared)

    # ---- reading

    def rules(self) -> list[RuleInfo]:
        """All rules of weight > 0."""
        return list(self.database.program.rule_infos)

    def relations(self) -> dict[str, Schema]:
        """Every relation's schema."""
        return {name: schema for name, schema in self.database.program.schemas.items() if not is_hidden(name)}

    def count(self, relation: str, domain: str = "all") -> int:
        """How many tuples the relation has in a domain: `all`, `asserted` or `derived`."""
        self._schema(relation)
        return self.database.placement.count(self.database.program.key(relation), _domain(domain))

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
        codes, weights = self.database.placement.tuples(
            self.database.program.key(relation), codes_of, _domain(domain)
        )
        tuples = decode(codes, [column.type for column in schema.columns], self.database.symbols)
        return list(zip(tuples, weights.tolist(), strict=True))

    def asserted_by(self, source: str, relation: str) -> dict[Tuple, int]:
        """What a source asserts of a relation: the weight of each tuple."""
        types = [column.type for column in self._schema(relation).columns]
        key = self.database.program.key(sourced(relation, source))
        if sourced(relation, source) not in self.database.program.schemas:
            return {}
        codes, weights = self.database.placement.tuples(key, {}, "asserted")
        return dict(zip(decode(codes, types, self.database.symbols), weights.tolist(), strict=True))

    def query(self, text: str, budget: Budget | None = None) -> Answer:
        """Answer a conjunction with negation, conditions, arithmetic and aggregates: the distinct bindings of its named
        variables, or of the terms of its head (`q(x, n) :- ...`).

        Raises:
            ZedlogError: the text is not a query, does not fit the relations, or outgrows `budget` (by default the
                memory of an epoch).
        """
        return answer(
            text,
            self.relations(),
            self._read,
            self.database.symbols,
            budget or Budget(memory=self.budget.memory),
            self.prefixes,
        )

    @property
    def prefixes(self) -> Prefixes:
        """The prefixes that the database declares: IRIs by their names."""
        return self.database.program.declared.prefixes

    def _read(self, relation: str, bound: Mapping[int, int]) -> Codes:
        """The tuples of a relation that have the codes `bound`, by column."""
        return self.database.placement.tuples(self.database.program.key(relation), bound, "all")[0]

    def _find(self, schema: Schema, position: int, value: Value) -> int | None:
        """The code of a value that a column is compared with; None for a symbol that occurs nowhere."""
        column = schema.columns[position]
        value = plain_value(value, f"column {position + 1} ({column.name}) of {schema.relation}")
        value = fitted(value, schema, position)
        return (
            self.database.symbols.find(value)
            if isinstance(value, str)
            else encode_value(value, self.database.symbols)
        )

    def _schema(self, relation: str) -> Schema:
        schema = None if is_hidden(relation) else self.database.program.schemas.get(relation)
        if schema is None:
            near = difflib.get_close_matches(relation, self.relations())
            raise UnknownRelationError(
                f"there is no relation {shown(relation)}.{did_you_mean(near)}", relation=relation, near=near
            )
        return schema

    def memory(self) -> int:
        """Bytes that the placement's arrays hold."""
        return self.database.placement.memory()

    # ---- the state as a whole

    def export(self) -> SavedState:
        """What a new process needs to go on from here."""
        database, program = self.database, self.database.program
        facts, counts = {}, {}
        for relation in program.schemas:
            codes, weights = database.placement.tuples(program.key(relation), {}, "asserted")
            if len(codes):
                facts[relation] = codes, weights
            tuples = database.placement.count(program.key(relation), "all")
            if tuples or len(codes):
                counts[relation] = tuples, len(codes)
        return SavedState(
            epoch=database.epoch,
            symbols=database.symbols.all(),
            facts=facts,
            schemas=dict(program.schemas),
            rules=program.rule_infos,
            declarations=program.declaration_text,
            counts=counts,
        )

    def checkpoint(
        self, incarnation: str = "", versions: Mapping[str, str] | None = None
    ) -> Checkpoint | None:
        """The state with all that is derived, for `resume`; None if it is on Spark. Its arrays are the reasoner's own:
        the next epoch changes them.

        incarnation, versions: of the snapshot of the same epoch, as in `SavedState`.
        """
        return self._writer.checkpoint(incarnation, versions or {})

    def effort(self) -> float:
        """About how many tuples and derivations it takes to derive the state anew; 0 if it is on Spark."""
        placement = self.database.placement
        return placement.effort() if isinstance(placement, ResidentPlacement) else 0.0

    @classmethod
    def resume(
        cls,
        checkpoint: Checkpoint,
        state: SavedState,
        placement: str = "auto",
        budget: Budget | None = None,
        threads: int | None = None,
        spark: SparkOptions | SparkSource | None = None,
        switch: float | Policy = SWITCH,
    ) -> Reasoner:
        """As `restore`, but from a checkpoint of this database, whose arrays it takes over; only what the checkpoint
        lacks of `state` is evaluated.

        Raises:
            CheckpointUnusable: it does not fit; `restore` does without.
        """
        reasoner = cls(placement, budget, threads, spark, switch)
        try:
            reasoner._writer.resume(checkpoint, state)
        except BaseException:
            reasoner.close()
            raise
        return reasoner

    @classmethod
    def restore(
        cls,
        state: SavedState,
        placement: str = "auto",
        budget: Budget | None = None,
        threads: int | None = None,
        spark: SparkOptions | SparkSource | None = None,
        switch: float | Policy = SWITCH,
    ) -> Reasoner:
        """A reasoner that goes on from `state`; it derives what follows from it.

        No budget limits this, because all of it was committed before; but `auto` goes to Spark if the memory budget
        requires it and Spark is available.
        """
        reasoner = cls(placement, budget, threads, spark, switch)
        reasoner._writer.recover(state)
        return reasoner

    def state(self) -> dict[str, Any]:
        """Facts, supports, entries and indexes of every relation, decoded, in a canonical form; for tests.

        {"facts": {relation: {tuple: weight}}, "supports" and "entries": {relation: {tuple: {height: n}}},
        "indexes": {(relation, columns): {key: [(payload, height, weight)]}}}, all without empty parts.
        """
        from engine.database.state import decoded_state

        keyed = {
            self.database.program.key(name): schema for name, schema in self.database.program.schemas.items()
        }
        return decoded_state(self.database.placement.state(), keyed, self.database.symbols)

    def check_invariants(self) -> None:
        """Raise AssertionError where an internal structure contradicts another."""
        self.database.placement.check_invariants()


def _transaction(
    facts: Facts | None,
    rules: Rules | None,
    declarations: str,
    mode: Mode,
    undeclare: Sequence[str],
    dry_run: bool,
    strategy: Strategy | None,
    placement: PlacementName | None,
) -> Transaction:
    return Transaction.of(
        fact_changes(facts) if facts is not None else (),
        rule_changes(rules) if rules is not None else (),
        declarations,
        mode,
        dry_run,
        False,
        undeclare,
        strategy,
        placement,
    )


def _domain(domain: str) -> str:
    if domain not in DOMAINS:
        raise InvalidRequestError(f"domain must be one of {', '.join(DOMAINS)}, not {shown(domain)}")
    return domain
