"""What a transaction asks of its evaluation reaches the engine, and every reader is told what was done and why."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from engine.data.transaction import RuleChange, Transaction
from engine.server.__main__ import main
from engine.server.loop import restore_reasoner
from engine.storage.embedded import EmbeddedServer
from engine.storage.snapshot import Domain
from tests.process.running import Database, EngineThread, facts

RULES = (RuleChange("tc(x, y) :- e(x, y)."), RuleChange("tc(x, z) :- tc(x, y), e(y, z)."))
CHAIN = [(i, i + 1) for i in range(6)]


def asked(row: tuple[int, int], weight: int = 1, **how: Any) -> Transaction:
    return facts("e", row, weight=weight, **how)


def test_each_epoch_says_how_it_was_evaluated_and_why(server: EmbeddedServer, database: str) -> None:
    with Database(server.url, database) as db, EngineThread(server.url, database, factory=restore_reasoner):
        db.apply(Transaction(facts=facts("e", *CHAIN).facts, rules=RULES))
        updated = db.apply(asked((2, 3), -1, strategy="update")).body
        built = db.apply(asked((2, 3), strategy="bootstrap")).body
        epochs = db.run(db.client.epochs(None, 2))
    # 3 * 4 paths go over the edge; a bootstrap starts from 6 edges and ends with 21 paths.
    assert updated["changes"]["tc"] == {"inserted": 0, "deleted": 12}
    assert (updated["strategy"], updated["reason"]) == ("update", "maintained")
    assert updated["cost"]["abandoned"] == 0
    assert updated["cost"]["derivations"] == updated["cost"]["estimate"]
    assert updated["cost"]["bootstrap"] == 21
    assert built["changes"] == {
        "e": {"inserted": 1, "deleted": 0},
        "tc": {"inserted": 12, "deleted": 0},
    }
    assert (built["strategy"], built["reason"]) == ("bootstrap", "bootstrapped {tc}, as asked")
    assert built["cost"]["derivations"] == 21
    for epoch, body in zip(epochs, (built, updated), strict=True):
        assert {key: epoch[key] for key in ("strategy", "placement", "cost", "reason")} == {
            key: body[key] for key in ("strategy", "placement", "cost", "reason")
        }


def test_transactions_that_ask_for_different_things_share_no_epoch(
    server: EmbeddedServer, database: str
) -> None:
    """All wait in the log before the engine starts; neighbours that agree are one epoch, but rules have their own."""
    waiting = [
        Transaction(facts=facts("e", *CHAIN).facts, rules=RULES),
        asked((10, 11)),
        asked((11, 12), strategy="bootstrap"),
        asked((12, 13), strategy="bootstrap", placement="resident"),
        asked((13, 14)),
        asked((14, 15)),
    ]
    with Database(server.url, database) as db:
        receipts = [db.run(db.client.append(transaction, None)) for transaction in waiting]
        with EngineThread(server.url, database, factory=restore_reasoner):
            outcomes = [db.run(db.client.wait_outcome(r.transaction_id, 20)) for r in receipts]
    assert all(outcome is not None for outcome in outcomes)
    bodies = [outcome.body for outcome in outcomes if outcome is not None]
    assert [body["epoch"] for body in bodies] == [1, 2, 3, 4, 5, 5]
    assert [body["strategy"] for body in bodies] == [
        "update",
        "update",
        "bootstrap",
        "bootstrap",
        "update",
        "update",
    ]


def test_a_restart_under_another_switch_goes_on_with_the_same_facts(
    server: EmbeddedServer, database: str
) -> None:
    held = {(i, i + 1) for i in range(6)}
    with Database(server.url, database) as db:
        for switch, cut in ((0.0, (1, 2)), (float("inf"), (3, 4)), (0.2, (5, 6))):
            with EngineThread(server.url, database, factory=partial(restore_reasoner, switch=switch)):
                if switch == 0.0:
                    db.apply(Transaction(facts=facts("e", *CHAIN).facts, rules=RULES))
                body = db.apply(asked(cut, -1)).body
                held.discard(cut)
                assert body["strategy"] == ("bootstrap" if switch == 0.0 else "update")
                paths = {
                    (a, b)
                    for a, _ in held
                    for b in range(a + 1, 8)
                    if all((c, c + 1) in held for c in range(a, b))
                }
                assert db.facts("tc").keys() == paths


def test_types_that_change_are_told_and_survive_a_restart(server: EmbeddedServer, database: str) -> None:
    textual, numeric = "age(p, a) :- raw(p, a).", "age(p, n) :- raw(p, a), n = to_number(a)."
    older = "older(x, y) :- age(x, a), age(y, b), a > b."
    raw = facts("raw", ("ann", "9"), ("bob", "10"))
    with Database(server.url, database) as db:
        with EngineThread(server.url, database, factory=restore_reasoner):
            db.apply(Transaction(facts=raw.facts, rules=(RuleChange(textual), RuleChange(older))))
            changed = db.apply(
                Transaction(rules=(RuleChange(textual, -1), RuleChange(numeric)), return_delta=True)
            ).body
            snapshot = db.run(db.client.snapshot())
            assert snapshot.changed == ("age", "older")
            told = db.run(snapshot.changes("age"))
        assert {what: sorted(map(tuple, rows)) for what, rows in changed["delta"]["age"].items()} == {
            "inserted": [("ann", 9), ("bob", 10)],
            "deleted": [("ann", "9"), ("bob", "10")],
        }
        assert sorted(told, key=str) == sorted(
            [(("ann", "9"), -1), (("bob", "10"), -1), (("ann", 9), 1), (("bob", 10), 1)], key=str
        )
        with EngineThread(server.url, database, factory=restore_reasoner):
            assert db.facts("older").keys() == {("bob", "ann")}
            db.apply(facts("raw", ("cid", "11")))
            assert db.facts("age").keys() == {("ann", 9), ("bob", 10), ("cid", 11)}
            assert db.facts("older").keys() == {("bob", "ann"), ("cid", "ann"), ("cid", "bob")}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--switch", "-1", "switch must be a number of at least 0"),
        ("--switch", "often", "switch must be a number of at least 0, or none"),
        ("--placement", "cloud", '"cloud" is not a placement; choose one of auto, resident, spark'),
        ("--spark-master", "somewhere", 'the Spark master must be "local[n]"'),
        ("--spark-partitions", "0", '"0" is not a whole number from 1 on'),
    ],
)
def test_a_wrong_option_is_named(
    capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--redis-url", "redis://127.0.0.1:1/0", option, value])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_facts_that_a_better_value_hides_are_kept_and_come_back(
    server: EmbeddedServer, database: str
) -> None:
    """Facts of a relation folded by min contribute: readers see the best as its tuples, and all as asserted."""
    step = RuleChange("sp(y, min(d + c)) :- sp(x, d), arc(x, y, c).")

    def seen() -> dict[str, dict[tuple[Any, ...], int]]:
        snapshot = db.run(db.client.snapshot())
        domains: tuple[Domain, ...] = ("all", "asserted", "derived")
        pages = {domain: db.run(snapshot.facts("sp", domain=domain)) for domain in domains}
        counts = snapshot.counts("sp")
        assert (counts.all, counts.asserted, counts.derived) == tuple(len(p.tuples) for p in pages.values())
        assert len(db.run(snapshot.codes("sp"))) == counts.all
        return {domain: dict(zip(page.tuples, page.weights, strict=True)) for domain, page in pages.items()}

    with Database(server.url, database) as db:
        with EngineThread(server.url, database, factory=restore_reasoner):
            db.apply(Transaction(facts=facts("sp", ("a", 0), ("a", 5), ("b", 7)).facts, rules=(step,)))
            db.apply(facts("arc", ("a", "b", 3)))
            body = db.apply(facts("sp", ("a", 9), weight=2)).body
            assert body["changes"] == {}
            before = seen()
        assert before == {
            "all": {("a", 0): 1, ("b", 3): 0},
            "asserted": {("a", 0): 1, ("a", 5): 1, ("a", 9): 2, ("b", 7): 1},
            "derived": {("b", 3): 0},
        }
        # Another engine takes over from the snapshot.
        with EngineThread(server.url, database, factory=restore_reasoner):
            assert db.apply(facts("sp", ("a", 0), weight=-1)).body["changes"]["sp"] == {
                "inserted": 2,
                "deleted": 2,
            }
            assert seen()["all"] == {("a", 5): 1, ("b", 7): 1}
            assert db.apply(facts("sp", ("a", 0), weight=-1)).status == "refused"
            db.apply(Transaction(rules=(RuleChange(step.rule, -1),)))
            assert seen()["all"] == {("a", 5): 1, ("a", 9): 2, ("b", 7): 1}
