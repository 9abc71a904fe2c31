"""Running evaluations that are to end: cancelled transactions, and an engine that is told to stop."""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess

from engine.data.transaction import RuleChange, Transaction
from engine.database.saved import SavedState
from engine.server.interruption import Interruption
from engine.server.loop import Committer, restore_reasoner
from engine.storage.client import Outcome
from engine.storage.embedded import EmbeddedServer
from tests.process.running import Database, EngineThread, facts
from tests.process.test_process import first_line, start_process
from tests.waiting import until

ROUNDS = 2


def numbers(relation: str, count: int) -> Transaction:
    return facts(relation, *((i,) for i in range(count)))


# 40,000 * 40,000 pairs, none of which is kept: minutes of work in little memory.
LONG = Transaction(rules=(RuleChange("p(x, y) :- a(x), a(y), x * y = -1."),))
SIZE = 40_000


def wait_running(db: Database, transaction: str) -> None:
    """Until readers are told that the transaction runs, and at what."""

    def told() -> bool:
        running = db.run(db.client.status()).evaluating
        return running is not None and running.first == transaction and running.relations == ("p",)

    until(told)


def outcomes(db: Database, *ids: str) -> list[Outcome]:
    async def all_of() -> list[Outcome | None]:
        return await asyncio.gather(*(db.client.wait_outcome(name, 30) for name in ids))

    found = db.run(all_of())
    return [outcome for outcome in found if outcome is not None]


def test_a_running_transaction_is_cancelled(server: EmbeddedServer, database: str) -> None:
    with Database(server.url, database) as db, EngineThread(server.url, database, factory=restore_reasoner):
        db.apply(numbers("a", SIZE))
        for _ in range(ROUNDS):
            running = db.run(db.client.append(LONG)).transaction_id
            waiting = db.run(db.client.append(facts("b", (1,)))).transaction_id
            wait_running(db, running)
            assert db.run(db.client.cancel(running))
            refused, done = outcomes(db, running, waiting)
            assert (refused.status, refused.body["code"]) == ("refused", "cancelled")
            assert done.status == "committed"
            assert not db.run(db.client.cancel(running))
        assert db.facts("b") == {(1,): ROUNDS}
        status = db.run(db.client.status())
        assert (status.evaluating, status.faults, status.lag) == (None, 0, 0)
        snapshot = db.run(db.client.snapshot())
        assert not snapshot.rules


def test_a_waiting_transaction_is_cancelled_and_its_neighbours_are_not(
    server: EmbeddedServer, database: str
) -> None:
    with Database(server.url, database) as db:
        ids = [db.run(db.client.append(facts("b", (i,)))).transaction_id for i in range(5)]
        for name in (ids[1], ids[4]):
            assert db.run(db.client.cancel(name))
        assert not db.run(db.client.cancel("1-1"))
        with EngineThread(server.url, database, factory=restore_reasoner):
            found = outcomes(db, *ids)
            assert [o.status for o in found] == ["committed", "refused", "committed", "committed", "refused"]
            assert found[1].body["code"] == found[4].body["code"] == "cancelled"
            assert db.facts("b") == {(i,): 1 for i in (0, 2, 3)}


def test_one_of_a_running_group_is_cancelled_and_the_others_are_done(
    server: EmbeddedServer, database: str
) -> None:
    """They share an epoch, and a dry run comes after it; the long one ends all of it for the moment."""
    known = Transaction(declarations=".decl a(x: number)\n.decl b(x: number)", rules=LONG.rules)
    with Database(server.url, database) as db:
        with EngineThread(server.url, database, factory=restore_reasoner):
            db.apply(known)
        group = [facts("b", (1,)), numbers("a", SIZE), facts("b", (2,)), facts("b", (3,), dry_run=True)]
        ids = [db.run(db.client.append(one)).transaction_id for one in group]
        with EngineThread(server.url, database, factory=restore_reasoner):
            wait_running(db, ids[0])
            assert db.run(db.client.cancel(ids[1]))
            found = outcomes(db, *ids)
            assert [o.status for o in found] == ["committed", "refused", "committed", "dry_run"]
            assert found[1].body["code"] == "cancelled"
            assert db.facts("b") == {(1,): 1, (2,): 1}


def test_a_dry_run_is_cancelled_after_the_epoch_of_its_group(server: EmbeddedServer, database: str) -> None:
    with Database(server.url, database) as db:
        db.run(db.client.append(numbers("a", SIZE)))
        with EngineThread(server.url, database, factory=restore_reasoner):
            until(lambda: db.run(db.client.status()).lag == 0)
        dry = Transaction(rules=LONG.rules, dry_run=True)
        ids = [
            db.run(db.client.append(one)).transaction_id
            for one in (dry, facts("b", (1,)), facts("b", (2,), dry_run=True))
        ]
        with EngineThread(server.url, database, factory=restore_reasoner):
            wait_running(db, ids[0])
            assert db.run(db.client.cancel(ids[0]))
            found = outcomes(db, *ids)
            assert [o.status for o in found] == ["refused", "committed", "dry_run"]
            assert found[0].body["code"] == "cancelled"
            assert db.facts("b") == {(1,): 1}


def ended(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(20)
    finally:
        process.kill()
        process.communicate()


def test_sigterm_ends_a_running_epoch_which_is_done_after_the_restart(
    server: EmbeddedServer, database: str
) -> None:
    """A stop is not a fault of the transaction: the next engine does not know that there was one."""
    with Database(server.url, database) as db:
        receipts = [db.run(db.client.append(one)) for one in (numbers("a", SIZE), LONG, facts("b", (1,)))]
        running = receipts[1].transaction_id
        process = start_process(server.url, database, "--group-transactions", "1")
        try:
            first_line(process)
            wait_running(db, running)
        finally:
            process.send_signal(signal.SIGTERM)
            assert ended(process) == 0
        status = db.run(db.client.status())
        assert (status.state, status.evaluating, status.faults) == ("stopped", None, 0)
        assert db.run(db.client.is_pending(running))
        # It is still to be done; its limit of time ends it here.
        process = start_process(server.url, database, "--epoch-seconds", "0.5")
        try:
            first_line(process)
            refused, done = outcomes(db, running, receipts[2].transaction_id)
        finally:
            process.send_signal(signal.SIGTERM)
            assert ended(process) == 0
        assert (refused.body["code"], refused.body["budget"]) == ("budget_exceeded", "seconds")
        assert done.status == "committed"


def test_a_stop_ends_the_recovery_of_the_state(server: EmbeddedServer, database: str) -> None:
    """Told to stop while a million tuples are derived again, the engine does not begin to serve."""
    with Database(server.url, database) as db:
        with EngineThread(server.url, database, factory=restore_reasoner):
            rule = Transaction(rules=(RuleChange("p(x, y) :- a(x), a(y)."),))
            assert db.apply(numbers("a", 1_000)).status == db.apply(rule).status == "committed"

        def stopped(state: SavedState, interruption: Interruption) -> Committer:
            engine.engine.stop()
            interruption._end_at = -math.inf
            return restore_reasoner(state, interruption)

        engine = EngineThread(server.url, database, factory=stopped)
        with engine:
            engine.join()
        assert engine.failure is None
        assert db.run(db.client.status()).state == "stopped"
