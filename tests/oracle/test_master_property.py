"""The master property: whatever the history, the result is the least model and the state a fresh bootstrap's.

After every epoch of a random history the reasoner is compared with naive evaluation, its state with the
supports and entries computed from their definition, and the changes it reported with the difference of the
models. At the end it is compared with clingo, with a fresh reasoner that got everything at once, with
reasoners that got the same changes one by one and in another order, and with one that was restarted in the
middle. A dry run and a refused transaction leave the state as it was.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from engine.data.transaction import Transaction
from engine.errors import BudgetExceededError, NegativeWeightError, ZedlogError
from engine.maintenance.placement import Budget
from tests.oracle.clingo_oracle import solve
from tests.oracle.height_model import HeightModel, height_model
from tests.oracle.naive import TooLargeError
from tests.oracle.programs import Epoch, History, Signature, histories, totals
from tests.oracle.rules import Model, Row, Rule, rule_text
from tests.oracle.subject import (
    apply,
    assert_domains_of,
    assert_same_state,
    assert_state_of,
    bootstrap,
    changes_of,
    declared,
    difference,
    everything,
    model_of,
    restarted,
)
from zedlog import Reasoner


def share(fraction: float) -> settings:
    """A part of the profile's number of examples, so that `nightly` scales every test alike."""
    return settings(max_examples=max(1, int(settings().max_examples * fraction)))


def expected_after(epochs: tuple[Epoch, ...]) -> HeightModel:
    facts, rules = totals(epochs)
    try:
        return height_model(rules, facts)
    except TooLargeError:
        assume(False)
        raise


@share(1.2)
@given(histories())
def test_oracle_after_every_epoch_and_at_the_end(history: History) -> None:
    note(history)
    reasoner = declared(history)
    names = sorted(history.signature)
    before: Model = {}
    for position, epoch in enumerate(history.epochs, start=1):
        expected = expected_after(history.epochs[:position])
        facts, rules = totals(history.epochs[:position])
        result = apply(reasoner, epoch)
        assert model_of(reasoner, names) == expected.model
        assert changes_of(result) == difference(before, expected.model)
        assert_state_of(reasoner, expected, facts)
        assert_domains_of(reasoner, expected, facts)
        reasoner.check_invariants()
        assert sum(info.weight for info in reasoner.rules()) == sum(rules.values())
        before = expected.model
    assert before == solve(rules, facts)
    fresh = bootstrap(history)
    assert_same_state(reasoner, fresh)
    assert weights_of_rules(reasoner) == weights_of_rules(fresh)


@share(0.6)
@given(histories(), st.randoms(use_true_random=False))
def test_batch_vs_singletons_vs_shuffled(history: History, rng: random.Random) -> None:
    """One transaction, the same changes one at a time in any order, and any order within one transaction."""
    note(history)
    expected_after(history.epochs)
    singletons, shuffled = declared(history), declared(history)
    everything = [(key, weight) for epoch in history.epochs for key, weight in (*epoch.facts, *epoch.rules)]
    rng.shuffle(everything)
    # Additions first: a retraction alone is only allowed where there is something to retract.
    for change in sorted(everything, key=lambda change: change[1] < 0):
        apply(singletons, only([change]))
    apply(shuffled, only(everything))
    batch = bootstrap(history)
    assert_same_state(batch, singletons)
    assert_same_state(batch, shuffled)
    assert weights_of_rules(batch) == weights_of_rules(singletons) == weights_of_rules(shuffled)


@share(0.6)
@given(histories())
def test_retraction_of_everything_leaves_nothing(history: History) -> None:
    """A reasoner that is emptied again holds what a new one holds."""
    note(history)
    expected_after(history.epochs)
    facts, rules = totals(history.epochs)
    reasoner = bootstrap(history)
    before = model_of(reasoner, sorted(history.signature))
    result = reasoner.apply(
        facts={name: [(row, -weight) for row, weight in rows.items()] for name, rows in facts.items()},
        rules=[(rule_text(rule), -weight) for rule, weight in rules.items()],
    )
    assert changes_of(result) == difference(before, {})
    assert not any(any(part.values()) for part in reasoner.state().values())
    reasoner.check_invariants()


@share(0.6)
@given(histories())
def test_a_dry_run_and_a_refused_transaction_change_nothing(history: History) -> None:
    note(history)
    reasoner = declared(history)
    for position, epoch in enumerate(history.epochs, start=1):
        expected_after(history.epochs[:position])
        before = everything(reasoner)
        promised = reasoner.dry_run(facts=epoch.fact_changes(), rules=epoch.rule_changes())
        assert promised.dry_run
        assert everything(reasoner) == before
        if epoch.overdraw is not None:
            facts, rules = overdrawn(epoch, history.epochs[:position])
            with pytest.raises(NegativeWeightError):
                reasoner.apply(facts=facts, rules=rules)
            assert everything(reasoner) == before
        for fault in faults_in(epoch, history.signature):
            with pytest.raises(ZedlogError):
                reasoner.apply(**fault)
            assert everything(reasoner) == before
        reasoner.check_invariants()
        result = apply(reasoner, epoch)
        assert result.epoch == promised.epoch
        assert changes_of(result) == changes_of(promised)


@share(0.6)
@given(
    histories(),
    st.builds(Budget, **{limit: st.integers(1, 60) for limit in ("derivations", "tuples", "height")}),
)
def test_a_transaction_over_budget_is_rolled_back_in_the_middle(history: History, budget: Budget) -> None:
    """What was done until the budget ran out is undone; what fits is applied as if the rest had never
    come."""
    note(history)
    reasoner = Reasoner(budget=budget)
    accepted: list[Epoch] = []
    for epoch in history.epochs:
        before = everything(reasoner)
        refused: ZedlogError | None = None
        try:
            apply(reasoner, epoch)
            accepted.append(epoch)
        except (BudgetExceededError, NegativeWeightError) as error:
            # The second: it retracts what was refused before.
            refused = error
        if refused is not None:
            assert everything(reasoner) == before
            if isinstance(refused, BudgetExceededError):
                assert {"stratum", "rules", "relation"} <= refused.detail.keys()
        reasoner.check_invariants()
        facts, _ = totals(accepted)
        assert_state_of(reasoner, expected_after(tuple(accepted)), facts)


@share(0.4)
@given(histories(), st.integers(1, 60))
def test_a_group_commit_leaves_out_what_is_over_budget(history: History, derivations: int) -> None:
    """One transaction that cannot be evaluated takes none of the others with it."""
    note(history)
    reasoner = Reasoner(budget=Budget(derivations=derivations))
    outcomes = reasoner.commit(
        [transaction(e.fact_changes(), e.rule_changes()) for e in history.epochs]
    ).outcomes
    accepted = [e for e, o in zip(history.epochs, outcomes, strict=True) if not isinstance(o, ZedlogError)]
    facts, _ = totals(accepted)
    assert_state_of(reasoner, expected_after(tuple(accepted)), facts)
    assert reasoner.epoch == (1 if accepted else 0)
    reasoner.check_invariants()


@share(0.6)
@given(histories())
def test_replay_after_a_restart_in_the_middle(history: History) -> None:
    note(history)
    expected_after(history.epochs)
    steady, interrupted = declared(history), declared(history)
    for position, epoch in enumerate(history.epochs):
        expected = apply(steady, epoch)
        assert changes_of(apply(interrupted, epoch)) == changes_of(expected)
        if position == history.restart_after:
            interrupted = restarted(interrupted)
            assert_same_state(steady, interrupted)
            assert interrupted.epoch == steady.epoch
            assert interrupted.rules() == steady.rules()
    assert_same_state(steady, interrupted)
    interrupted.check_invariants()


@share(0.6)
@given(histories())
def test_batch_vs_singletons_in_a_group_commit(history: History) -> None:
    """Transactions committed as one epoch end where they end one by one; those to refuse are refused in
    both."""
    note(history)
    expected_after(history.epochs)
    alone, group = declared(history), declared(history)
    transactions = []
    for position, epoch in enumerate(history.epochs, start=1):
        if epoch.overdraw is not None:
            transactions.append(transaction(*overdrawn(epoch, history.epochs[:position])))
        transactions.append(transaction(epoch.fact_changes(), epoch.rule_changes()))
    outcomes = [alone.commit([tx]).outcomes[0] for tx in transactions]
    together = group.commit(transactions).outcomes
    assert [type(o) for o in together] == [type(o) for o in outcomes]
    assert_same_state(alone, group)
    group.check_invariants()


@share(0.4)
@given(histories())
def test_set_mode_keeps_weights_of_one(history: History) -> None:
    """Adding what is there and retracting what is not are no-ops: a set of facts and a set of rules."""
    note(history)
    reasoner = declared(history)
    held: set[tuple[str, Row]] = set()
    rules: set[Rule] = set()
    for epoch in history.epochs:
        fact_changes, rule_changes = dict(epoch.facts), dict(epoch.rules)
        for fact, weight in fact_changes.items():
            (held.add if weight > 0 else held.discard)(fact)
        for rule, weight in rule_changes.items():
            (rules.add if weight > 0 else rules.discard)(rule)
        change = Epoch(tuple(fact_changes.items()), tuple(rule_changes.items()), prefix=epoch.prefix)
        facts: dict[str, dict[Row, int]] = {}
        for name, row in held:
            facts.setdefault(name, {})[row] = 1
        try:
            expected = height_model(rules, facts)
        except TooLargeError:
            assume(False)
        reasoner.apply(facts=change.fact_changes(), rules=change.rule_changes(), mode="set")
        assert_state_of(reasoner, expected, facts)
        assert weights_of_rules(reasoner).keys() == {info.canonical for info in reasoner.rules()}
        assert set(weights_of_rules(reasoner).values()) <= {1}
        assert len(reasoner.rules()) == len(rules)


@share(0.3)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_facts_as_an_array_are_the_same_facts(pairs: list[tuple[int, int]]) -> None:
    """A row that stands n times in an int64[n, arity] array gets weight n."""
    rules = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
    arrays, lists = Reasoner(), Reasoner()
    arrays.apply(facts={"e": np.array(pairs, dtype=np.int64).reshape(-1, 2)}, rules=rules)
    lists.apply(facts={"e": [(pair, 1) for pair in pairs]}, rules=rules)
    assert_same_state(arrays, lists)


def faults_in(epoch: Epoch, signature: Signature) -> list[dict[str, Any]]:
    """The epoch's changes, each time with one thing more that is wrong."""
    facts, rules = epoch.fact_changes(), epoch.rule_changes()
    name = sorted(signature)[0]
    fits, wide = (
        ", ".join(f"v{i}" for i in range(n)) for n in (len(signature[name]), len(signature[name]) + 1)
    )
    return [
        {"facts": facts, "rules": [*rules, (f"{name}( :- .", 1)]},
        {"facts": facts, "rules": [*rules, (f"new_one(x) :- {name}({fits}).", 1)]},
        {"facts": facts, "rules": [*rules, (f"new_one() :- {name}({fits}), {name}({wide}).", 1)]},
        {"facts": {**facts, "new_one": [(("a",), 1), ((1,), 1)]}, "rules": rules},
        {"facts": facts, "rules": rules, "declarations": ".decl new_one(x: symbol, x: number)"},
    ]


def weights_of_rules(reasoner: Reasoner) -> dict[str, int]:
    return {info.canonical: info.weight for info in reasoner.rules()}


def only(changes: list[tuple[Any, int]]) -> Epoch:
    facts = tuple((key, weight) for key, weight in changes if not isinstance(key, Rule))
    return Epoch(facts, tuple((key, weight) for key, weight in changes if isinstance(key, Rule)))


def overdrawn(epoch: Epoch, epochs: tuple[Epoch, ...]) -> tuple[dict[str, list[tuple[Row, int]]], Any]:
    """The last epoch's changes, with a retraction of one more than there would be."""
    facts, rules = epoch.fact_changes(), epoch.rule_changes()
    held_facts, held_rules = totals(epochs)
    if isinstance(epoch.overdraw, Rule):
        rules.append((rule_text(epoch.overdraw), -held_rules.get(epoch.overdraw, 0) - 1))
    elif epoch.overdraw is not None:
        name, row = epoch.overdraw
        facts.setdefault(name, []).append((row, -held_facts.get(name, {}).get(row, 0) - 1))
    return facts, rules


def transaction(facts: dict[str, list[tuple[Row, int]]], rules: list[tuple[str, int]]) -> Transaction:
    return Transaction.parse(
        facts=[
            {"relation": name, "tuples": [row], "weight": weight}
            for name, changes in facts.items()
            for row, weight in changes
        ],
        rules=[{"rule": text, "weight": weight} for text, weight in rules],
    )
