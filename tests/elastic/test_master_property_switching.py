"""The master property under every policy: what strategy an epoch takes is seen in its cost, and in nothing else.

Policies are drawn so that updates are abandoned at any point: before their first derivation, between two heights, near
their end. After every epoch changes, state and invariants are those of a reasoner that never switches.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.database.epoch import EpochResult
from engine.errors import BudgetExceededError, EvaluationError, NegativeWeightError
from engine.maintenance.change import RelationChange
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from tests.full import FULL
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from tests.oracle.subject import assert_same_state, changes_of, everything, outcome_of
from tests.oracle.test_master_property import expected_after, overdrawn, share
from zedlog import Reasoner

NEVER = math.inf
# The whole default run is to stay short; what runs before a merge looks longer.
MORE = 4 if FULL else 1
policies = st.builds(
    Policy,
    switch=st.sampled_from([0.0, 1e-9, 0.05, 0.2, 0.7, 1.5]),
    # Below zero: a switch may even lose something.
    floor=st.sampled_from([0, -(10**9)]),
    price=st.sampled_from([1.0, 2.2, 100.0]),
)


def reasoner_of(history: History | DialectHistory, policy: Policy | float, **more: Any) -> Reasoner:
    reasoner = Reasoner(placement="resident", threads=1, switch=policy, **more)
    if text := history.declarations():
        reasoner.apply(declarations=text)
    return reasoner


@share(0.4 * MORE)
@given(histories(), policies)
def test_a_switching_run_is_the_steady_run(history: History, policy: Policy) -> None:
    note((history, policy))
    expected_after(history.epochs)
    steady, switching = reasoner_of(history, NEVER), reasoner_of(history, policy)
    for position, epoch in enumerate(history.epochs):
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        expected = steady.apply(facts=facts, rules=rules)
        promised = switching.dry_run(facts=facts, rules=rules)
        result = switching.apply(facts=facts, rules=rules)
        assert changes_of(result) == changes_of(promised) == changes_of(expected)
        assert result.counts == expected.counts
        assert_same_published(result, expected)
        assert_same_state(switching, steady)
        switching.check_invariants()
        assert result.cost == promised.cost
        assert (result.strategy, result.reason) == (promised.strategy, promised.reason)
        assert expected.cost["abandoned"] == 0
        assert expected.strategy == "update"
        if position == history.restart_after:
            switching = restarted_with(switching, policy)
            assert_same_state(switching, steady)


@share(0.15 * MORE)
@given(histories(), policies)
def test_refused_and_dry_run_epochs_leave_everything(history: History, policy: Policy) -> None:
    note((history, policy))
    expected_after(history.epochs)
    reasoner = reasoner_of(history, policy)
    for position, epoch in enumerate(history.epochs, start=1):
        before = everything(reasoner)
        reasoner.dry_run(facts=epoch.fact_changes(), rules=epoch.rule_changes(), strategy="bootstrap")
        assert everything(reasoner) == before
        if epoch.overdraw is not None:
            facts, rules = overdrawn(epoch, history.epochs[:position])
            with pytest.raises(NegativeWeightError):
                reasoner.apply(facts=facts, rules=rules)
            assert everything(reasoner) == before
        reasoner.check_invariants()
        reasoner.apply(facts=epoch.fact_changes(), rules=epoch.rule_changes())


@share(0.25 * MORE)
@given(
    histories(),
    policies,
    st.builds(Budget, **{limit: st.integers(1, 60) for limit in ("derivations", "tuples", "height")}),
)
def test_a_budget_that_runs_out_after_a_switch_rolls_everything_back(
    history: History, policy: Policy, budget: Budget
) -> None:
    note((history, policy, budget))
    expected_after(history.epochs)
    reasoner = reasoner_of(history, policy, budget=budget)
    for epoch in history.epochs:
        before = everything(reasoner)
        try:
            reasoner.apply(facts=epoch.fact_changes(), rules=epoch.rule_changes())
        except (BudgetExceededError, NegativeWeightError):
            assert everything(reasoner) == before
        reasoner.check_invariants()


@settings(share(0.3 * MORE), suppress_health_check=[HealthCheck.too_slow])
@given(dialect_histories(), policies)
def test_the_whole_language_under_a_switching_run(history: DialectHistory, policy: Policy) -> None:
    note((history, policy))
    budget = Budget(height=300)
    steady = reasoner_of(history, NEVER, budget=budget)
    switching = reasoner_of(history, policy, budget=budget)
    for change in history.changes:
        outcomes = [outcome_of(reasoner, change) for reasoner in (steady, switching)]
        # What is computed on the way, and so may have no value, differs between an update and a bootstrap.
        if any(outcome in (EvaluationError, BudgetExceededError) for outcome in outcomes):
            return
        assert outcomes[0] == outcomes[1]
        assert_same_state(switching, steady)
        switching.check_invariants()


def restarted_with(reasoner: Reasoner, policy: Policy) -> Reasoner:
    kept = reasoner.export()
    return Reasoner.restore(kept, placement="resident", threads=1, switch=policy)


def assert_same_published(one: EpochResult, other: EpochResult) -> None:
    """What the snapshot is made of is equal tuple by tuple, in whatever order."""
    assert one.record.relations.keys() == other.record.relations.keys()
    for name, change in one.record.relations.items():
        assert rows_of(change) == rows_of(other.record.relations[name]), name


def rows_of(change: RelationChange) -> list[tuple[Any, ...]]:
    columns = (
        change.asserted,
        change.derived,
        change.present,
        change.was_asserted,
        change.was_derived,
        change.height,
        change.was_height,
    )
    return sorted(
        zip(map(tuple, change.codes.tolist()), *(column.tolist() for column in columns), strict=True)
    )
