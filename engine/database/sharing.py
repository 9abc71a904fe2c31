"""Which transactions may share an epoch, so that the fate of none depends on its neighbours.

In: the program, and the transactions that wait. Out: how many of the first can be one epoch. Always: each of them is
accepted or refused, for the same reason, as it would be in an epoch of its own. An epoch is judged by the state that it
leads to, so in a group one transaction could hide what is wrong with an earlier one: it retracts the fact for which a
value does not exist, or empties a violated constraint. Then they must not share an epoch.

What can refuse an epoch because of its state is called a *judge* here: a rule with a computation that may have no
value, a constraint, a sum (it may leave 64 bits), a fold in recursion (it may have no fixpoint). A change of facts
reaches a judge with a sign, through rules: it may add tuples to what is judged, or take some away. Only a change that
takes away can hide what an earlier one added; at a sum or a fold in recursion, any change can. A transaction that
changes rules, declarations or types makes another circuit, which is judged as a whole, so it has an epoch of its own. A
dry run looks at the state that the transactions before it leave, so only dry runs can follow it.

Costs one look at each rule when the circuit has changed, then a look-up for each relation of a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from engine.circuit.circuit import Circuit
from engine.circuit.normal import CoreRule
from engine.data.facts import FileFacts, TypedFacts
from engine.data.transaction import FactChange, Transaction
from engine.data.values import takes
from engine.database.program import Program
from engine.language import rdf_terms
from engine.language.syntax import (
    BinaryOperation,
    Comparison,
    FunctorCall,
    Literal,
    Negation,
    UnaryOperation,
    walk,
)

ALWAYS_DEFINED = frozenset({"cat", "max", "min", "strlen", "to_string"})
"""Functors that have a value for all arguments. Operators are not among them, because they may overflow."""
_MAY_OVERFLOW = frozenset({"sum", "mean"})

Signed: TypeAlias = tuple[str, int]
"""A relation (or a judge), and +1 for a change that adds to it, -1 for one that takes away."""
_BOTH = (1, -1)


class Interactions:
    """The judges of one circuit, and the relations from which they are reached. constraints: by their keys."""

    def __init__(self, circuit: Circuit, constraints: Iterable[str]) -> None:
        self.circuit, self.constraints = circuit, frozenset(constraints)
        self._ways: defaultdict[Signed, set[Signed]] = defaultdict(set)
        self._judges: defaultdict[Signed, set[Signed]] = defaultdict(set)
        self._touchy: set[str] = set()
        self._known: dict[Signed, frozenset[Signed]] = {}
        for stratum in circuit.strata:
            for compiled in stratum.rules:
                self._add_rule(compiled.rule)
            for fold in stratum.folds:
                # In recursion it may have no fixpoint.
                judged = fold.function in _MAY_OVERFLOW or fold in stratum.clocked or stratum.recursive
                for source in fold.sources or (fold.target,):
                    ways = {((source, sign), (fold.target, other)) for sign in _BOTH for other in _BOTH}
                    for start, end in ways:
                        self._ways[start].add(end)
                        if judged:
                            self._judges[start].add(end)
                            self._touchy.add(fold.target)
        for relation in self.constraints:
            for sign in _BOTH:
                self._judges[relation, sign].add((relation, sign))

    def _add_rule(self, rule: CoreRule) -> None:
        judged = any(map(_may_have_no_value, rule.body))
        for literal in rule.body:
            if isinstance(literal, Comparison):
                continue
            turned, atom = (-1, literal.atom) if isinstance(literal, Negation) else (1, literal)
            for sign in _BOTH:
                self._ways[atom.relation, sign].add((rule.head.relation, turned * sign))
                if judged:
                    self._judges[atom.relation, sign].add((rule.id, turned * sign))

    def reached(self, change: Signed) -> frozenset[Signed]:
        """The judges that a change of a relation may reach, and how."""
        known = self._known.get(change)
        if known is None:
            seen, todo = {change}, [change]
            while todo:
                new = self._ways.get(todo.pop(), set()) - seen
                seen |= new
                todo += new
            judges = (self._judges[one] for one in seen & self._judges.keys())
            known = self._known[change] = frozenset().union(*judges)
        return known

    def may_hide(self, later: Iterable[Signed], earlier: set[Signed]) -> bool:
        """Whether a change that reaches the judges `later` may hide an earlier change that reached the judges
        `earlier`.
        """
        judges = {judge for judge, _ in earlier}
        return any(
            (judge in self._touchy and judge in judges) or (sign < 0 and (judge, 1) in earlier)
            for judge, sign in later
        )


def sharing(
    program: Program, interactions: Callable[[], Interactions], transactions: Sequence[Transaction]
) -> int:
    """How many of the first transactions can be one epoch, one at the least. interactions: makes the program's."""
    earlier: set[Signed] = set()
    for place, transaction in enumerate(transactions):
        if _changes_circuit(program, transaction):
            return max(place, 1)
        if place and transactions[place - 1].dry_run and not transaction.dry_run:
            return place
        reached = interactions().reached
        later = {judge for change in _changes(program, transaction) for judge in reached(change)}
        if interactions().may_hide(later, earlier):
            return place
        earlier |= later
    return len(transactions)


def _changes(program: Program, transaction: Transaction) -> Iterator[Signed]:
    """What a transaction's facts add to and take away from."""
    for change in transaction.changes:
        key = program.key(change.relation)
        weights = change.weights
        if (weights > 0).any():
            yield key, 1
        if (weights < 0).any():
            yield key, -1


def _changes_circuit(program: Program, transaction: Transaction) -> bool:
    """Whether the transaction may lead to another circuit, because of its rules, its declarations or the types of its
    facts.
    """
    if transaction.rules or transaction.declarations or transaction.undeclare:
        return True
    if transaction.replaces or transaction.rollback is not None:
        # What it retracts depends on what is there.
        return True
    if any(isinstance(change.tuples, FileFacts) for change in transaction.changes):
        # The signs of their weights are not known yet.
        return True
    return not all(_has_types(program, change) for change in transaction.changes)


def _has_types(program: Program, change: FactChange) -> bool:
    """Whether the first tuple has the types for which the circuit was compiled."""
    types, schema = program.types.get(change.relation), program.schemas.get(change.relation)
    if types is None or schema is None:
        return False
    if isinstance(change.tuples, TypedFacts):
        return change.tuples.types == types
    assert not isinstance(change.tuples, FileFacts), "they were sorted out"
    first = change.tuples[0]
    values = first.tolist() if isinstance(first, np.ndarray) else first
    return len(values) == len(types) and all(
        kind is not None and takes(schema, kind, value) for kind, value in zip(types, values, strict=True)
    )


def _may_have_no_value(literal: Literal) -> bool:
    """Whether the literal has a computation that has no value for some arguments."""
    return isinstance(literal, Comparison) and any(
        isinstance(node, BinaryOperation | UnaryOperation)
        or (isinstance(node, FunctorCall) and not _always_has_value(node))
        for node in walk(literal)
    )


def _always_has_value(call: FunctorCall) -> bool:
    return call.functor in ALWAYS_DEFINED or (
        call.functor in rdf_terms.FUNCTORS and not rdf_terms.may_fail(call)
    )
