"""The engine process: log to epoch to snapshot, exactly once, whatever breaks on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from engine.data.transaction import Transaction
from engine.database.reasoner import GroupResult
from engine.database.saved import SavedState
from engine.errors import (
    CorruptLogError,
    EngineLeaseError,
    InvalidRequestError,
    SparkStateLostError,
    ZedlogError,
)
from engine.server.__main__ import main
from engine.server.interruption import Interruption
from engine.server.settings import EngineOptions
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.outcome import EngineStatus
from engine.storage.publisher import Publisher
from tests.process.facts_reasoner import FactsReasoner
from tests.process.running import Database, EngineThread, facts
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = EngineOptions(lease_seconds=0.5)


def test_from_the_log_to_the_snapshot(server: EmbeddedServer, database: str) -> None:
    with Database(server.url, database) as db:
        # Appended before any engine ran.
        early = db.run(db.client.append(facts("e", ("a", 1))))
        with EngineThread(server.url, database):
            assert db.run(db.client.wait_outcome(early.transaction_id, 10)) is not None
            outcome = db.apply(facts("e", ("a", 1), ("b", 2), return_delta=True))
            incarnation = db.run(db.client.incarnation())
            assert outcome.status == "committed"
            assert outcome.body == {
                "epoch": 2,
                "token": f"2-{incarnation}",
                "changes": {"e": {"inserted": 1, "deleted": 0}},
                "strategy": "update",
                "placement": "resident",
                "cost": {"derivations": 0, "abandoned": 0, "estimate": 0, "bootstrap": 0},
                "reason": "",
                "elapsed_ms": {"engine": 0.1},
                "delta": {"e": {"inserted": [["b", 2]], "deleted": []}},
            }
            refused = db.apply(facts("e", ("b", 2), weight=-2))
            assert (refused.status, refused.body["code"]) == ("refused", "negative_weight")
            assert db.apply(facts("e", ("b", 2), weight=-1), "key") == db.apply(
                facts("e", ("b", 2), weight=-1), "key"
            )
            assert db.facts("e") == {("a", 1): 2}
            assert db.run(db.client.status()) == EngineStatus(True, "running", 3, 0, None)
        assert db.run(db.client.status()) == EngineStatus(False, "stopped", 3, 0, None)


def test_replay_a_restart_goes_on(server: EmbeddedServer, database: str) -> None:
    expected: dict[Any, int] = {}
    with Database(server.url, database) as db:
        for round_ in range(4):
            with EngineThread(server.url, database):
                for i in range(5):
                    row = f"symbol {round_ * 3 + i}", i
                    db.apply(facts("e", row))
                    expected[row] = expected.get(row, 0) + 1
            db.run(db.client.append(facts("e", ("while stopped", round_))))
            expected["while stopped", round_] = 1
        with EngineThread(server.url, database):
            until(lambda: db.run(db.client.status()).lag == 0)
            assert db.facts("e") == expected
            # 20 waited for one by one, and 4 found at start.
            assert sum(e["transactions"] for e in db.run(db.client.epochs())) == 24


def test_waiting_transactions_share_an_epoch(server: EmbeddedServer, database: str) -> None:
    with Database(server.url, database) as db:
        receipts = [db.run(db.client.append(facts("e", (i,)))) for i in range(50)]
        with EngineThread(server.url, database, EngineOptions(group_transactions=20)):
            outcomes = [db.run(db.client.wait_outcome(r.transaction_id, 10)) for r in receipts]
        assert [o.body["epoch"] for o in outcomes if o] == [1] * 20 + [2] * 20 + [3] * 10
        assert [e["transactions"] for e in db.run(db.client.epochs())] == [10, 20, 20, 0]
        with EngineThread(server.url, database, EngineOptions(group_bytes=1)):
            pass


def test_the_log_is_trimmed_but_not_what_waits(
    server: EmbeddedServer, client: redis.Redis, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.server.loop._KEPT_ENTRIES", 5)
    with Database(server.url, database) as db:
        with EngineThread(server.url, database):
            for i in range(12):
                db.apply(facts("e", (i,)))
            assert client.xlen(Keys(database).log) == 5
        for i in range(9):
            db.run(db.client.append(facts("e", (100 + i,))))
        assert client.xlen(Keys(database).log) == 14
        assert db.run(db.client.status()).lag == 9
        with EngineThread(server.url, database):
            until(lambda: db.run(db.client.status()).lag == 0)
        assert len(db.facts("e")) == 21


def test_an_unreadable_entry_stops_the_engine(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    with Database(server.url, database) as db:
        db.run(db.client.append(facts("e", (1,))))
        bad = client.xadd(Keys(database).log, {"tx": b"{not json"}).decode()
        after = db.run(db.client.append(facts("e", (2,))))
        engine = EngineThread(server.url, database)
        with engine:
            engine.join()
        assert isinstance(engine.failure, CorruptLogError)
        assert engine.failure.detail["entry"] == bad
        status = db.run(db.client.status())
        assert (status.running, status.state, status.epoch, status.lag) == (False, "failed", 1, 2)
        assert bad in (status.error or "")
        # What stood before it is applied; what comes after it waits.
        assert db.facts("e") == {(1,): 1}
        assert db.run(db.client.is_pending(after.transaction_id))
        # It does not skip it the next time either.
        again = EngineThread(server.url, database)
        with again:
            again.join()
        assert isinstance(again.failure, CorruptLogError)


def test_a_fault_of_our_own_refuses_its_transaction_and_is_told(
    server: EmbeddedServer, database: str
) -> None:
    class Broken(FactsReasoner):
        def commit(self, transactions: Sequence[Transaction], /, *, shared: bool = False) -> GroupResult:
            if any(fact.relation == "broken" for t in transactions for fact in t.facts):
                raise AssertionError("an invariant")
            return super().commit(transactions)

    with Database(server.url, database) as db, EngineThread(server.url, database, factory=Broken):
        db.apply(facts("e", (1,)))
        refused = db.run(db.client.append(facts("broken", (1,)))).transaction_id
        outcome = db.run(db.client.wait_outcome(refused, 10))
        assert outcome is not None
        assert outcome.body["message"] == (
            "a fault of Zedlog itself: AssertionError: an invariant; the transaction is refused and changed nothing, "
            "and the engine's log has the details"
        )
        assert db.apply(facts("e", (2,))).body["epoch"] == 2
        assert db.facts("e") == {(1,): 1, (2,): 1}
        status = db.run(db.client.status())
        assert (status.state, status.error, status.faults) == ("running", None, 1)
        assert status.fault is not None
        assert (status.fault["first"], status.fault["last"]) == (refused, refused)


def test_lost_state_is_rebuilt_and_the_transaction_done(server: EmbeddedServer, database: str) -> None:
    """Executors may take state with them: once, and the client sees nothing of it; again, and it is told."""
    losses = {"one": 1, "two": 2}
    made: list[FactsReasoner] = []
    closed: list[FactsReasoner] = []

    class Forgetful(FactsReasoner):
        def commit(self, transactions: Sequence[Transaction], /, *, shared: bool = False) -> GroupResult:
            result = super().commit(transactions)
            for name in (fact.relation for t in transactions for fact in t.facts):
                if losses.get(name):
                    losses[name] -= 1
                    # It went on with part of them: what it holds is not what is published.
                    return GroupResult(result.record, [SparkStateLostError("gone")] * len(transactions))
            return result

        def close(self) -> None:
            closed.append(self)

    def factory(state: SavedState, interruption: Interruption) -> FactsReasoner:
        made.append(Forgetful(state, interruption))
        return made[-1]

    with EngineThread(server.url, database, factory=factory), Database(server.url, database) as db:
        assert db.apply(facts("zero", (1,))).status == "committed"
        assert db.apply(facts("one", (1,))).body["epoch"] == 2
        assert len(made) == 2
        refused = db.apply(facts("two", (1,)))
        assert (refused.status, refused.body["code"]) == ("refused", "spark_state_lost")
        assert db.apply(facts("two", (2,))).body["epoch"] == 3
        assert [db.facts(r) for r in ("zero", "one", "two")] == [{(1,): 1}, {(1,): 1}, {(2,): 1}]
    assert len(made) == 4
    assert closed == made


def test_one_engine_at_a_time(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    with Database(server.url, database) as db:
        with EngineThread(server.url, database, QUICK):
            impatient = EngineThread(server.url, database, EngineOptions(lease_seconds=0.5, lease_wait=0.1))
            with impatient:
                impatient.join()
            assert isinstance(impatient.failure, EngineLeaseError)
            assert db.run(db.client.status()).running
            # The heartbeat outlives the lease's time.
            time.sleep(0.8)
            assert db.run(db.client.status()).running
            standby = EngineThread(server.url, database, QUICK)
            standby._thread.start()
            assert not standby.ready.wait(0.3)
            db.apply(facts("e", (1,)))
        try:
            assert standby.ready.wait(10)
            assert db.apply(facts("e", (2,))).body["epoch"] == 2
        finally:
            standby.__exit__()


def test_an_engine_that_lost_its_lease_starts_again(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    """Another writer publishes an epoch in between: the first one's state is old, and it must see that."""
    with (
        Database(server.url, database) as db,
        EngineThread(server.url, database, EngineOptions(lease_seconds=60)),
    ):
        db.apply(facts("e", (1,)))
        client.delete(Keys(database).lease)
        other = Lease(client, database, 60)
        other.take()
        publisher = Publisher(client, database, other)
        entry = db.run(db.client.append(facts("f", (7,))))
        time.sleep(0.3)
        assert db.run(db.client.is_pending(entry.transaction_id))
        assert publisher.head.epoch == 1
        other.release()
        assert db.run(db.client.wait_outcome(entry.transaction_id, 15)) is not None
        assert db.facts("f") == {(7,): 1}
        assert db.apply(facts("e", (1,))).body["epoch"] == 3
        assert db.facts("e") == {(1,): 2}


def test_a_wiped_database_begins_anew(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path) as server,
        connect(server.url) as client,
        Database(server.url, "main") as db,
        EngineThread(server.url, "main", QUICK),
    ):
        db.apply(facts("e", ("old",)))
        first = db.run(db.client.incarnation())
        client.flushall()
        until(lambda: client.exists(Keys("main").lease) == 1)
        outcome = db.apply(facts("e", ("new",)))
        assert db.facts("e") == {("new",): 1}
        assert db.run(db.client.incarnation()) != first
        assert outcome.body["epoch"] == 1


def test_faults_redis_is_killed_under_writes(tmp_path: Path) -> None:
    """A writer with Idempotency-Keys retries until it hears an answer; the server is killed again and
    again."""
    told: list[str] = []
    with (
        EmbeddedServer(tmp_path, on_restart=told.append) as server,
        EngineThread(server.url, "main", EngineOptions(lease_seconds=5)),
    ):
        stop = threading.Event()

        def disturb() -> None:
            while not stop.wait(0.35):
                os.kill(server.pid, signal.SIGKILL)
                server.wait()
                server.wait_ready(20)

        killer = threading.Thread(target=disturb)
        killer.start()
        try:
            with Database(server.url, "main") as db:
                for i in range(120):
                    while True:
                        try:
                            # Each in two relations, so that half of a transaction would show.
                            both = Transaction.parse(
                                [{"relation": r, "tuples": [[i % 50]]} for r in ("left", "right")]
                            )
                            db.apply(both, f"key {i}")
                            break
                        except ZedlogError:
                            time.sleep(0.01)
                    if i % 10 == 9:
                        time.sleep(0.15)
                stop.set()
                killer.join()
                expected = {(n,): 3 if n < 20 else 2 for n in range(50)}
                until(lambda: db.run(db.client.status()).lag == 0)
                assert db.facts("left") == expected
                assert db.facts("right") == expected
        finally:
            stop.set()
            killer.join()
    assert len(told) >= 2


def start_process(url: str, database: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.server", "--redis-url", url, "--database", database, *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_the_command(server: EmbeddedServer, client: redis.Redis, database: str) -> None:
    """The real reasoner in a process of its own: killed, started again at once (same machine), told to
    stop."""
    with Database(server.url, database) as db:
        process = start_process(server.url, database)
        try:
            assert first_line(process) == f"engine ready: database {database} at epoch 0\n"
            rules = [{"rule": "tc(x, y) :- e(x, y)."}, {"rule": "tc(x, z) :- tc(x, y), e(y, z)."}]
            edges = [{"relation": "e", "tuples": [["a", "b"], ["b", "c"]]}]
            outcome = db.apply(Transaction.parse(edges, rules, return_delta=True))
            assert outcome.status == "committed", outcome
            assert sorted(map(tuple, outcome.body["delta"]["tc"]["inserted"])) == [
                ("a", "b"),
                ("a", "c"),
                ("b", "c"),
            ]
        finally:
            process.kill()
            process.communicate()
        # It need not wait for the lease of 10 s: the holder is known to be dead.
        process = start_process(server.url, database, "--lease-wait", "0.1")
        try:
            assert first_line(process) == f"engine ready: database {database} at epoch 1\n"
            assert db.run(db.client.status()).running
            tried = db.apply(Transaction.parse([{"relation": "e", "tuples": [["c", "d"]]}], dry_run=True))
            assert (tried.status, tried.body["epoch"]) == ("dry_run", 2)
            assert tried.body["token"] == db.run(db.client.snapshot()).token
            assert tried.body["changes"] == {
                "e": {"inserted": 1, "deleted": 0},
                "tc": {"inserted": 3, "deleted": 0},
            }
            cut = db.apply(Transaction.parse([{"relation": "e", "tuples": [["b", "c"]], "weight": -1}]))
            assert cut.body["changes"] == {
                "e": {"inserted": 0, "deleted": 1},
                "tc": {"inserted": 0, "deleted": 2},
            }
            snapshot = db.run(db.client.snapshot())
            assert db.run(snapshot.facts("tc")).tuples == [("a", "b")]
            assert snapshot.counts("tc").derived == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()
        assert db.run(db.client.status()).state == "stopped"
        client.xadd(Keys(database).log, {"tx": b"broken"})
        process = start_process(server.url, database)
        try:
            assert process.wait(60) == 1
        finally:
            process.kill()
            process.communicate()
        assert "cannot be read" in (db.run(db.client.status()).error or "")


def test_wrong_options() -> None:
    for wrong in ({"lease_seconds": 0.0}, {"group_transactions": 0}, {"group_bytes": 0}):
        with pytest.raises(InvalidRequestError):
            EngineOptions(**cast(Any, wrong))
    with pytest.raises(SystemExit) as stopped:
        main(["--redis-url", "redis://127.0.0.1:1/0", "--retain-epochs", "0"])
    assert stopped.value.code == 2
