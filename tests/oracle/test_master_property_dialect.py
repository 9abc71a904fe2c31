"""The master property for the whole language: negation, conditions, functors, aggregates, recursive min and max.

After every epoch of a random history the reasoner holds the stratified model that naive evaluation gives (and clingo,
where it can express the program), it has reported the difference of the models, and its state is a fresh bootstrap's.
An epoch that must be refused (a rule that makes negation recursive, a computation without a result) is, and leaves
the state as it was; so does a dry run.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.errors import BudgetExceededError, EvaluationError, StratificationError, ZedlogError
from engine.maintenance.placement import Budget
from tests.oracle.clingo_dialect import NotExpressibleError, solve_dialect
from tests.oracle.rules import Model
from tests.oracle.stratified import (
    DivergesError,
    UnstratifiedError,
    dependencies,
    read_by,
    stratified_model,
)
from tests.oracle.stratified_programs import (
    FAULTY,
    Change,
    DialectHistory,
    Totals,
    dialect_histories,
)
from tests.oracle.subject import assert_same_state, changes_of, difference, everything, model_of, restarted
from tests.oracle.terms import NoValueError
from zedlog import Reasoner

Expected = Model | UnstratifiedError | NoValueError | DivergesError
REFUSALS: dict[type[Exception], tuple[type[ZedlogError], ...]] = {
    UnstratifiedError: (StratificationError,),
    NoValueError: (EvaluationError,),
    # An iteration that grows for ever may leave 64 bits before it runs out of heights.
    DivergesError: (BudgetExceededError, EvaluationError),
}


def share(fraction: float) -> settings:
    """A part of the profile's number of examples."""
    examples = max(1, int(settings().max_examples * fraction))
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


def new_reasoner(history: DialectHistory) -> Reasoner:
    """With the declarations, and a bound on heights: some random programs do not come to rest."""
    reasoner = Reasoner(budget=Budget(height=300))
    reasoner.apply(declarations=history.declarations())
    return reasoner


def expected_of(totals: Totals) -> Expected:
    try:
        return stratified_model(totals.trees(), totals.by_relation())
    except (UnstratifiedError, NoValueError, DivergesError) as error:
        return error


def step(reasoner: Reasoner, totals: Totals, change: Change) -> tuple[Totals, EpochResult | None]:
    """Apply a change: what is accepted must be right, what is to be refused must be, without a trace."""
    after = totals.with_(change)
    expected = expected_of(after)
    if isinstance(expected, Exception):
        before = everything(reasoner)
        with pytest.raises(REFUSALS[type(expected)]) as refused:
            reasoner.apply(**change.arguments())
        event(f"refused: {refused.value.code}")
        if isinstance(refused.value, StratificationError):
            assert_cycle(refused.value, after)
        assert everything(reasoner) == before
        reasoner.check_invariants()
        return totals, None
    held = everything(reasoner) if set(FAULTY) & dict(change.rules).keys() else None
    try:
        result = reasoner.apply(**change.arguments())
    except EvaluationError:
        # A rule that goes still sees the facts that come with the same epoch: refused although it need not be
        # (tests/language_semantics/test_evaluation_errors.py). Then it must leave no trace either.
        assert any(text in FAULTY and weight < 0 for text, weight in change.rules)
        assert everything(reasoner) == held
        event("refused for a rule that goes")
        return totals, None
    assert model_of(reasoner, sorted(reasoner.relations())) == expected
    reasoner.check_invariants()
    return after, result


def assert_cycle(error: StratificationError, totals: Totals) -> None:
    """The named relations are a cycle of the dependency graph, and on it something is not monotone."""
    cycle = error.detail["cycle"]
    reads = {(rule.head.relation, name, strict) for rule in totals.trees() for name, strict in read_by(rule)}
    edges = {(a, b) for a, b, _ in reads}
    steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    forwards, backwards = all(s in edges for s in steps), all((b, a) in edges for a, b in steps)
    assert forwards or backwards, (cycle, sorted(edges))
    reach = dependencies(totals.trees())
    assert any(strict and {a, b} <= reach[a] & reach[b] for a, b, strict in reads if a in cycle or b in cycle)
    assert all(name in str(error) for name in cycle)


def bootstrap(history: DialectHistory, totals: Totals) -> Reasoner:
    reasoner = new_reasoner(history)
    reasoner.apply(**totals.as_change().arguments())
    return reasoner


@share(0.6)
@given(dialect_histories())
def test_oracle_dialect_after_every_epoch_and_at_the_end(history: DialectHistory) -> None:
    note(history)
    reasoner, totals = new_reasoner(history), Totals()
    before: Model = {}
    for change in history.changes:
        totals, result = step(reasoner, totals, totals.fitting(change))
        if result is not None:
            model = model_of(reasoner, sorted(reasoner.relations()))
            assert changes_of(result) == difference(before, model)
            before = model
            assert_same_state(reasoner, bootstrap(history, totals))
    try:
        assert before == solve_dialect(totals.trees(), totals.by_relation())
        event("compared with clingo")
    except NotExpressibleError as error:
        event(f"not for clingo: {error}")


@share(0.25)
@given(dialect_histories(), st.randoms(use_true_random=False))
def test_batch_vs_singletons_vs_shuffled_dialect(history: DialectHistory, rng: random.Random) -> None:
    """One transaction, the same changes one at a time in any order, and any order within one transaction."""
    note(history)
    totals = Totals()
    for change in history.changes:
        totals = totals.with_(change)
    expected = expected_of(totals)
    if isinstance(expected, Exception):
        return
    parts = [Change((f,), ()) for c in history.changes for f in c.facts]
    parts += [Change((), (r,)) for c in history.changes for r in c.rules]
    rng.shuffle(parts)
    # Additions first: a retraction alone is only allowed where there is something to retract.
    parts.sort(key=lambda part: sum(weight for _, weight in (*part.facts, *part.rules)) < 0)
    batch, singletons, shuffled = bootstrap(history, totals), new_reasoner(history), new_reasoner(history)
    every = Change(tuple(f for p in parts for f in p.facts), tuple(r for p in parts for r in p.rules))
    shuffled.apply(**every.arguments())
    assert model_of(batch, sorted(batch.relations())) == expected
    assert_same_state(batch, shuffled)
    for part in parts:
        try:
            singletons.apply(**part.arguments())
        except (StratificationError, BudgetExceededError):
            # A state on the way may be one to refuse although the last one is not.
            return
    assert_same_state(batch, singletons)
    singletons.check_invariants()


@share(0.25)
@given(dialect_histories(faulty=True))
def test_a_dry_run_and_a_refused_evaluation_change_nothing(history: DialectHistory) -> None:
    """Also where a computation fails in the middle of an epoch that has changed much already."""
    note(history)
    reasoner, totals = new_reasoner(history), Totals()
    for change in history.changes:
        change = totals.fitting(change)
        before = everything(reasoner)
        promised: Any = None
        try:
            promised = changes_of(reasoner.dry_run(**change.arguments()))
        except ZedlogError as error:
            promised = type(error)
        assert everything(reasoner) == before
        reasoner.check_invariants()
        totals, result = step(reasoner, totals, change)
        if result is None:
            assert isinstance(promised, type)
        else:
            assert changes_of(result) == promised
    assert_same_state(reasoner, bootstrap(history, totals))


@share(0.2)
@given(dialect_histories(faulty=True))
def test_batch_vs_singletons_in_a_group_commit_dialect(history: DialectHistory) -> None:
    """A group commit ends where the transactions one by one do, also where one cannot be evaluated."""
    note(history)
    alone, group = new_reasoner(history), new_reasoner(history)
    transactions = []
    for change in history.changes:
        arguments = change.arguments()
        transactions.append(
            Transaction.parse(
                facts=[
                    {"relation": name, "tuples": [row], "weight": weight}
                    for name, changes in arguments["facts"].items()
                    for row, weight in changes
                ],
                rules=[{"rule": text, "weight": weight} for text, weight in arguments["rules"]],
            )
        )
    outcomes = [alone.commit([transaction]).outcomes[0] for transaction in transactions]
    together = group.commit(transactions).outcomes
    assert [type(o) for o in together] == [type(o) for o in outcomes]
    assert_same_state(alone, group)
    group.check_invariants()


@share(0.2)
@given(dialect_histories())
def test_retraction_of_everything_and_replay_after_a_restart_dialect(history: DialectHistory) -> None:
    note(history)
    reasoner, totals = new_reasoner(history), Totals()
    for change in history.changes:
        totals, _ = step(reasoner, totals, totals.fitting(change))
    assert_same_state(reasoner, restarted(reasoner))
    everything_held = totals.as_change()
    reasoner.apply(
        **Change(
            tuple((fact, -weight) for fact, weight in everything_held.facts),
            tuple((text, -weight) for text, weight in everything_held.rules),
        ).arguments()
    )
    assert not any(any(part.values()) for part in reasoner.state().values())
    reasoner.check_invariants()
