"""Faults of Zedlog itself at every stage of an epoch, as exceptions and as ends of the process.

Always: the transaction that meets one is refused (`internal_error`) and leaves nothing, its neighbours are committed,
the next transaction is served, and nothing that was committed is lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.data.transaction import RuleChange, Transaction
from engine.server.loop import restore_reasoner
from engine.storage.client import Outcome
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from tests.faults.injection import STAGES, install, relation
from tests.process.running import Database, EngineThread, facts

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = (RuleChange("tc(x, y) :- e(x, y)."), RuleChange("tc(x, z) :- tc(x, y), e(y, z)."))
REFUSED = tuple(stage for stage in STAGES if stage != "sent")
ROUNDS = 20
"""Exceptions at each stage."""
DEATHS = int(os.environ.get("ZEDLOG_FAULT_DEATHS", "1"))
"""Transactions for each stage at which the process ends, twice for each of them."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running, connect(running.url) as client:
        # It is never killed here, so nothing need wait for the disk.
        client.config_set("appendfsync", "no")
        yield running


class Chain:
    """A growing chain of edges, and its closure; `check` compares what the database has."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.length = 0
        # Declared, for facts of a relation that nobody knows yet have an epoch of their own.
        declarations = "\n".join(f".decl {relation(stage)}(x: number)" for stage in STAGES)
        start = Transaction(facts=facts("e", (0, 1)).facts, rules=RULES, declarations=declarations)
        assert db.apply(start).status == "committed"
        self.length = 1

    def next(self) -> Transaction:
        self.length += 1
        return facts("e", (self.length - 1, self.length))

    def check(self) -> None:
        assert self._db.facts("e") == {(i, i + 1): 1 for i in range(self.length)}
        snapshot = self._db.run(self._db.client.snapshot())
        assert snapshot.counts("tc").derived == self.length * (self.length + 1) // 2
        assert snapshot.counts("e").asserted == self.length


def bad(stage: str, number: int) -> Transaction:
    """It breaks the chain, too: if half of it stayed, that would show."""
    both = [
        {"relation": relation(stage), "tuples": [[number]]},
        {"relation": "e", "tuples": [[-number - 2, -number - 1]]},
    ]
    return Transaction.parse(both)


def check_refused(outcome: Outcome | None) -> None:
    assert outcome is not None
    assert (outcome.status, outcome.body["code"]) == ("refused", "internal_error"), outcome


def test_faults_an_exception_refuses_its_transaction(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of one transaction: refused at once; the state is recovered, and the next transaction is served."""
    met: list[str] = []

    def fail(stage: str) -> None:
        met.append(stage)
        raise AssertionError(f"an invariant at {stage}")

    install(fail, monkeypatch.setattr)
    with (
        Database(server.url, "alone") as db,
        EngineThread(server.url, "alone", factory=restore_reasoner) as engine,
    ):
        chain = Chain(db)
        for number in range(ROUNDS):
            for stage in REFUSED:
                outcome = db.apply(bad(stage, number))
                check_refused(outcome)
                assert f"AssertionError: an invariant at {stage}" in outcome.body["message"]
                assert db.apply(chain.next()).status == "committed"
        chain.check()
        assert engine.failure is None
        status = db.run(db.client.status())
        assert (status.running, status.lag, status.faults) == (True, 0, ROUNDS * len(REFUSED))
        assert status.fault is not None
        assert status.fault["refused"]
    assert len(met) == ROUNDS * len(REFUSED)


def test_faults_an_exception_after_the_publication_takes_nothing_back(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(stage: str) -> None:
        raise AssertionError(stage)

    install(fail, monkeypatch.setattr)
    with Database(server.url, "sent") as db, EngineThread(server.url, "sent", factory=restore_reasoner):
        chain = Chain(db)
        assert db.apply(facts(relation("sent"), (1,))).status == "committed"
        assert db.apply(chain.next()).status == "committed"
        chain.check()
        assert db.facts(relation("sent")) == {(1,): 1}
        assert db.run(db.client.status()).faults == 0


def test_faults_the_culprits_of_a_group_are_found(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wait in the log before the engine starts, so they share an epoch at first."""

    def fail(stage: str) -> None:
        raise RuntimeError(f"a fault at {stage}")

    install(fail, monkeypatch.setattr)
    with Database(server.url, "groups") as db:
        with EngineThread(server.url, "groups", factory=restore_reasoner):
            chain = Chain(db)
        for number, stage in enumerate(REFUSED):
            group = [
                chain.next(),
                bad(stage, number),
                chain.next(),
                bad("execute", number + 100),
                chain.next(),
            ]
            receipts = [db.run(db.client.append(transaction)) for transaction in group]
            with EngineThread(server.url, "groups", factory=restore_reasoner):
                outcomes = [db.run(db.client.wait_outcome(r.transaction_id, 20)) for r in receipts]
                chain.check()
            assert [o.status for o in outcomes if o] == [
                "committed", "refused", "committed", "refused", "committed",
            ]  # fmt: skip
            check_refused(outcomes[1])
            check_refused(outcomes[3])
            assert outcomes[0] is not None
            assert (
                outcomes[0].body["reason"]
                == "maintained; alone, because an earlier epoch with this transaction failed"
            )


@contextmanager
def lives(server: EmbeddedServer, database: str) -> Iterator[subprocess.Popen[str]]:
    """Engines that are killed and started again, as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.lives", server.url, database],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


def deaths(process: subprocess.Popen[str]) -> int:
    """Stop the engines; how many were killed before."""
    process.terminate()
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.wait(20) == 0
    return int(lines[-1].removeprefix("killed "))


def test_faults_a_transaction_that_ends_the_process_is_tried_twice(server: EmbeddedServer) -> None:
    with Database(server.url, "deaths") as db, lives(server, "deaths") as process:
        chain = Chain(db)
        for number in range(DEATHS):
            for stage in REFUSED:
                outcome = db.apply(bad(stage, number))
                check_refused(outcome)
                assert "ended twice" in outcome.body["message"]
                assert db.apply(chain.next()).status == "committed"
        # Where the epoch is visible the transaction is done, whatever becomes of the process.
        assert db.apply(facts(relation("sent"), (1,))).status == "committed"
        assert db.apply(chain.next()).status == "committed"
        chain.check()
        assert db.run(db.client.status()).faults == DEATHS * len(REFUSED)
        assert deaths(process) == 2 * DEATHS * len(REFUSED) + 1


def test_faults_a_group_in_which_the_process_ends_is_tried_one_by_one(server: EmbeddedServer) -> None:
    with Database(server.url, "dying") as db:
        with lives(server, "dying") as process:
            chain = Chain(db)
            assert deaths(process) == 0
        group = [chain.next(), bad("execute", 1), chain.next(), bad("publish", 2), chain.next()]
        receipts = [db.run(db.client.append(transaction)) for transaction in group]
        with lives(server, "dying") as process:
            outcomes = [db.run(db.client.wait_outcome(r.transaction_id, 30)) for r in receipts]
            chain.check()
            # The group once, then each culprit once alone.
            assert deaths(process) == 3
        assert [o.status for o in outcomes if o] == [
            "committed",
            "refused",
            "committed",
            "refused",
            "committed",
        ]
        check_refused(outcomes[1])
        check_refused(outcomes[3])
