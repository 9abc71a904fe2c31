"""DRed: that an epoch was maintained by over-deletion and re-derivation is seen in its cost, and in nothing else.

The master property under a strategy that is drawn for each epoch. What can be counted by hand is in
tests/resident/test_dred.py.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.data.transaction import STRATEGIES, Strategy
from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    InvalidRequestError,
    NegativeWeightError,
    ZedlogError,
)
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from tests.elastic.test_master_property_switching import (
    MORE,
    NEVER,
    assert_same_published,
    reasoner_of,
    restarted_with,
)
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from tests.oracle.subject import assert_same_state, changes_of, everything
from tests.oracle.test_master_property import expected_after, overdrawn, share

strategies = st.sampled_from(("dred", *STRATEGIES))


@share(0.6 * MORE)
@given(histories(), st.data())
def test_the_strategy_of_an_epoch_is_seen_in_its_cost_alone(history: History, data: st.DataObject) -> None:
    note(history)
    expected_after(history.epochs)
    steady, mixed = reasoner_of(history, NEVER), reasoner_of(history, 0.2)
    for position, epoch in enumerate(history.epochs):
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        strategy = data.draw(strategies)
        expected = steady.apply(facts=facts, rules=rules)
        promised = mixed.dry_run(facts=facts, rules=rules, strategy=strategy)
        result = mixed.apply(facts=facts, rules=rules, strategy=strategy)
        assert changes_of(result) == changes_of(promised) == changes_of(expected)
        assert result.counts == expected.counts
        assert_same_published(result, expected)
        assert_same_state(mixed, steady)
        mixed.check_invariants()
        assert (result.cost, result.strategy, result.reason) == (
            promised.cost,
            promised.strategy,
            promised.reason,
        )
        if strategy == "dred":
            assert result.strategy in ("dred", "update")
            assert result.cost["abandoned"] == 0
        if position == history.restart_after:
            mixed = restarted_with(mixed, Policy())


@share(0.25 * MORE)
@given(
    histories(),
    st.builds(Budget, **{limit: st.integers(1, 60) for limit in ("derivations", "tuples", "height")}),
)
def test_what_is_refused_under_dred_leaves_everything(history: History, budget: Budget) -> None:
    note((history, budget))
    expected_after(history.epochs)
    reasoner = reasoner_of(history, NEVER, budget=budget)
    for position, epoch in enumerate(history.epochs, start=1):
        before = everything(reasoner)
        facts, rules = epoch.fact_changes(), epoch.rule_changes()
        if epoch.overdraw is not None and position > 1:
            more = overdrawn(epoch, history.epochs[:position])
            with pytest.raises(ZedlogError):
                reasoner.apply(facts=more[0], rules=more[1], strategy="dred")
            assert everything(reasoner) == before
        with contextlib.suppress(BudgetExceededError, NegativeWeightError):
            reasoner.dry_run(facts=facts, rules=rules, strategy="dred")
        assert everything(reasoner) == before
        try:
            reasoner.apply(facts=facts, rules=rules, strategy="dred")
        except (BudgetExceededError, NegativeWeightError):
            assert everything(reasoner) == before
        reasoner.check_invariants()


@settings(share(0.4 * MORE), suppress_health_check=[HealthCheck.too_slow])
@given(dialect_histories())
def test_the_whole_language_where_some_strata_are_updated(history: DialectHistory) -> None:
    note(history)
    budget = Budget(height=300)
    steady, by_dred = (reasoner_of(history, NEVER, budget=budget) for _ in range(2))
    for change in history.changes:
        outcomes: list[Any] = []
        for reasoner, strategy in ((steady, None), (by_dred, cast("Strategy", "dred"))):
            try:
                try:
                    outcome = reasoner.apply(**change.arguments(), strategy=strategy)
                except InvalidRequestError as error:
                    if error.detail.get("strategy") != "dred":
                        raise
                    outcome = reasoner.apply(**change.arguments())
                outcomes.append(changes_of(outcome))
            except ZedlogError as error:
                outcomes.append(type(error))
        # What is computed on the way, and so may have no value, differs between the two.
        if any(outcome in (EvaluationError, BudgetExceededError) for outcome in outcomes):
            return
        assert outcomes[0] == outcomes[1]
        assert_same_state(by_dred, steady)
        by_dred.check_invariants()
