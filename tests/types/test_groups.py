"""A transaction's fate does not depend on its neighbours: in a group it is what it would be in an epoch of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from engine.data.transaction import Transaction
from engine.errors import ZedlogError
from tests.types.histories import History, as_transaction
from tests.types.test_changing_types import refusal
from zedlog import Reasoner


def codes(outcomes: Sequence[object]) -> list[str]:
    return [outcome.code if isinstance(outcome, ZedlogError) else "" for outcome in outcomes]


def in_groups(reasoner: Reasoner, transactions: list[Transaction], most: int) -> list[str]:
    """As the engine process does it: as many in an epoch as may share one."""
    found: list[str] = []
    todo = list(transactions)
    while todo:
        group = todo[: reasoner.sharing(todo[:most])]
        found += codes(reasoner.commit(group).outcomes)
        del todo[: len(group)]
    return found


def compare(start: dict[str, Any], transactions: list[Transaction]) -> None:
    alone, split, whole = Reasoner("resident"), Reasoner("resident"), Reasoner("resident")
    for reasoner in (alone, split, whole):
        reasoner.apply(**start)
    expected = [code for transaction in transactions for code in codes(alone.commit([transaction]).outcomes)]
    assert in_groups(split, transactions, 6) == expected
    assert codes(whole.commit(transactions).outcomes) == expected
    assert split.state() == alone.state()
    assert whole.state() == alone.state()
    whole.check_invariants()


@pytest.mark.parametrize("seed", range(40))
def test_batch_vs_singletons_where_types_change(seed: int) -> None:
    history, reasoner = History(seed), Reasoner("resident")
    changes = []
    for change in history.transactions(12):
        changes.append(change)
        after = history.state.after(change)
        if refusal(reasoner, change) is None and after is not None:
            history.state = after
    compare({}, [as_transaction(change) for change in changes])


RULES = [
    ("ratio(x, z) :- q(x, y), !skip(x), z = 12 / y.", 1),
    ("n(n) :- n = count : { q(_, _) }.", 1),
    ("inverse(z) :- n(y), z = 6 / (y - 2).", 1),
    ("total(sum(y)) :- q(_, y).", 1),
    ("bad(x) :- q(x, _), must(x), !may(x).", 1),
    ("low(x, min(y)) :- q(x, y).", 1),
    ("shift(x, z) :- low(x, y), z = 8 / (y - 3).", 1),
]
DECLARED = """.decl q(x: number, y: number)
.decl skip(x: number)
.decl must(x: number)
.decl may(x: number)
.decl bad(x: number) constraint"""


@pytest.mark.parametrize("seed", range(40))
def test_batch_vs_singletons_where_one_could_hide_another_s_fault(seed: int) -> None:
    chance = random.Random(seed)
    transactions = []
    for _ in range(chance.choice((4, 9))):
        name = chance.choice(("q", "q", "q", "skip", "must", "may"))
        row = (
            [chance.choice((1, 2)), chance.choice((0, 3, 4, 2**62))]
            if name == "q"
            else [chance.choice((1, 2))]
        )
        facts = [{"relation": name, "tuples": [row], "weight": chance.choice((1, 1, -1))}]
        mode = chance.choice(("zset", "set"))
        transactions.append(Transaction.parse(facts=facts, mode=mode))
    compare({"declarations": DECLARED, "rules": RULES}, transactions)


def test_a_neighbour_does_not_hide_a_value_that_does_not_exist() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts={"q": [((1,), 1)]}, rules=[("p(z) :- q(x), z = 1 / x.", 1)])
    add = Transaction.parse(facts=[{"relation": "q", "tuples": [[0]]}])
    take = Transaction.parse(facts=[{"relation": "q", "tuples": [[0]], "weight": -1}])
    assert codes(reasoner.commit([add, take]).outcomes) == ["evaluation_error", "negative_weight"]
    assert reasoner.epoch == 1


def test_who_may_share_an_epoch() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"q": [((1,), 1)], "free": [((1,), 1)]},
        rules=[("p(z) :- q(x), z = 1 / x.", 1), ("r(x) :- free(x).", 1)],
    )

    def facts(name: str, weight: int, *row: Any) -> Transaction:
        return Transaction.parse(facts=[{"relation": name, "tuples": [list(row)], "weight": weight}])

    more, less = facts("q", 1, 5), facts("q", -1, 5)
    free = [facts("free", sign, 7) for sign in (1, -1)]
    dry = Transaction.parse(facts=[{"relation": "free", "tuples": [[9]]}], dry_run=True)
    rule = Transaction.parse(rules=[{"rule": "s(x) :- r(x)."}])
    assert reasoner.sharing([more, more, *free, more]) == 5
    assert reasoner.sharing([less, more]) == 2
    assert reasoner.sharing([*free, more, less]) == 3
    assert reasoner.sharing([free[0], dry, dry, free[1]]) == 3
    assert reasoner.sharing([free[0], rule]) == 1
    assert reasoner.sharing([rule, free[0]]) == 1
    # The types of a relation that nobody knows yet make another circuit.
    assert reasoner.sharing([facts("new", 1, "a"), free[0]]) == 1
    assert reasoner.sharing([free[0], facts("free", 1, "a")]) == 1
