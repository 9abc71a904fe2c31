"""Audits by an engine: asked for, on a schedule, after a start, beside writes, and when its process ends."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis

from engine.audit.audit import Subject
from engine.data.transaction import RuleChange, Transaction
from engine.database.reasoner import Reasoner
from engine.errors import StorageUnavailableError, UnknownAuditError
from engine.server import audits as module
from engine.server.audits import Audits
from engine.server.forked import Forked
from engine.server.loop import restore_reasoner
from engine.storage.audits import KEPT_AUDITS, Audit, AuditQueue, new_audit
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from tests.process.running import Database, EngineThread, facts
from tests.waiting import until

RULES = Transaction(
    rules=(
        RuleChange("tc(x, y) :- edge(x, y)."),
        RuleChange("tc(x, z) :- tc(x, y), edge(y, z)."),
        RuleChange("apart(x, y) :- node(x), node(y), !tc(x, y)."),
        RuleChange("reach(x, n) :- node(x), n = count : { tc(x, _) }."),
    )
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    # On a busy machine a low priority means never.
    monkeypatch.setattr(os, "nice", lambda increment: 0)


@contextmanager
def engine(server: EmbeddedServer, database: str, every: float | None = None) -> Iterator[list[Reasoner]]:
    """Its reasoners, the newest last."""
    made: list[Reasoner] = []

    def factory(state: Any, interruption: Any) -> Reasoner:
        reasoner = restore_reasoner(state, interruption, placement="resident")
        assert isinstance(reasoner, Reasoner)
        made.append(reasoner)
        return reasoner

    audits = Audits(server.url, database, every)
    with EngineThread(server.url, database, factory=factory, audits=audits) as thread:
        yield made
    if thread.failure is not None:
        raise thread.failure


@pytest.fixture
def db(server: EmbeddedServer, database: str) -> Iterator[Database]:
    with Database(server.url, database) as connected:
        yield connected


def ended(db: Database, which: Callable[[Audit], bool], at_least: int = 1) -> list[Audit]:
    """The audits that `which` picks and that have ended, the newest first."""
    found: list[Audit] = []

    def are_there() -> bool:
        every = db.run(db.client.audits.list(KEPT_AUDITS))
        found[:] = [one for one in every if which(one) and one.finished is not None]
        return len(found) >= at_least

    until(are_there, lambda: f"audits that have ended: {db.run(db.client.audits.list(9))}", 60)
    return found


def asked(db: Database) -> Audit:
    """Ask for an audit, and wait for it."""
    name = db.run(db.client.audits.submit()).id
    return ended(db, lambda one: one.id == name)[0]


def fill(db: Database) -> None:
    db.apply(RULES)
    db.apply(facts("node", *((f"n{i}",) for i in range(12))))
    db.apply(facts("edge", *((f"n{i}", f"n{(i * 5 + 1) % 12}") for i in range(12))))


def test_an_audit_that_was_asked_for(server: EmbeddedServer, database: str, db: Database) -> None:
    with engine(server, database):
        fill(db)
        done = asked(db)
        assert (done.status, done.kind, done.cause, done.why) == ("passed", "full", "request", None)
        report = done.report
        assert report is not None
        assert (report["differing"], report["uncompared"], report["epoch"]) == (0, [], 3)
        assert report["relations"] >= 5
        assert report["objects"] > 5
        assert report["seconds"] > 0
        last = db.run(db.client.audits.last())
        assert (last["full"].id, last["full"].status, last["full"].differing) == (done.id, "passed", 0)


def test_what_sources_assert_is_audited_too(server: EmbeddedServer, database: str, db: Database) -> None:
    """Their collections are hidden from people, but not from an audit."""
    with engine(server, database) as reasoners:
        fill(db)
        own = Transaction.parse([{"relation": "edge", "tuples": [("n1", "n9")], "weight": 1}], source="hr")
        db.apply(own)
        assert asked(db).status == "passed"
        placement: Any = reasoners[-1].database.placement
        arrays = placement.relations["edge (from hr)"].arrays
        arrays.nodes["count"][arrays.heads["support"][0]] += 1
        done = asked(db)
    assert done.report is not None
    (difference,) = done.report["differences"]
    assert (difference["kind"], difference["relation"]) == ("weight", "edge (from hr)")
    assert (difference["tuple"], difference["expected"], difference["found"]) == (["n1", "n9"], 1, 2)


def test_damage_in_memory_is_told(
    server: EmbeddedServer, database: str, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(server, database) as reasoners:
        fill(db)
        placement: Any = reasoners[-1].database.placement
        arrays = placement.relations["tc"].arrays
        arrays.nodes["count"][arrays.heads["support"][0]] += 1
        with caplog.at_level(logging.ERROR, "zedlog.engine"):
            done = asked(db)
            until(lambda: len(caplog.records) > 1, "the log to tell it", 10)
        assert done.status == "differs"
        assert done.report is not None
        assert [(d["kind"], d["relation"]) for d in done.report["differences"]] == [("support", "tc")]
        assert "audit of epoch 3: 1 differences" in caplog.text
        assert "tc(" in caplog.text
        # The engine goes on.
        assert db.apply(facts("edge", ("n1", "n2"))).status == "committed"


def test_on_a_schedule(server: EmbeddedServer, database: str, db: Database) -> None:
    with engine(server, database, every=0.05):
        fill(db)
        done = ended(db, lambda one: one.cause == "schedule", 3)
    assert {one.status for one in done[:3]} == {"passed"}


def test_the_recovered_state_is_compared(server: EmbeddedServer, database: str, db: Database) -> None:
    with engine(server, database):
        fill(db)
    with engine(server, database):
        done = ended(db, lambda one: one.kind == "start", 2)[0]
    assert (done.status, done.cause) == ("passed", "start")
    assert done.report is not None
    assert (done.report["epoch"], done.report["differing"]) == (3, 0)
    assert done.report["relations"] == 5


def test_a_recovered_state_that_differs_is_told(
    server: EmbeddedServer, database: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(server, database):
        fill(db)
    restore = Reasoner.restore.__func__  # type: ignore[attr-defined]  # of a class method

    def wrong(kind: type[Reasoner], state: Any, *arguments: Any) -> Reasoner:
        """As a bug in the bootstrap would do it: one fact less."""
        held = dict(state.facts)
        codes, weights = held["edge"]
        held["edge"] = codes[1:], weights[1:]
        made: Reasoner = restore(kind, replace(state, facts=held), *arguments)
        return made

    monkeypatch.setattr(Reasoner, "restore", classmethod(wrong))
    with engine(server, database):
        done = ended(db, lambda one: one.kind == "start", 2)[0]
        assert db.run(db.client.audits.last())["start"].status == "differs"
    assert done.report is not None
    found = [(d["kind"], d["relation"], d["expected"]) for d in done.report["differences"]]
    assert ("tuple", "edge", "present") in found
    assert ("digest", "edge") in [one[:2] for one in found]


def test_audits_beside_writes_find_nothing(server: EmbeddedServer, database: str, db: Database) -> None:
    """A false alarm is worse than no audit."""
    done: list[Audit] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def write() -> None:
        try:
            with Database(server.url, database) as own:
                step = 0
                while not stop.is_set():
                    step += 1
                    pair = f"n{step % 9}", f"m{step % 7}"
                    own.apply(facts("edge", pair, (f"m{step % 7}", f"n{step % 5}"), weight=1))
                    if step % 3 == 0:
                        own.apply(facts("edge", pair, weight=-1))
                    if step % 20 == 0:
                        text = "back(y, x) :- tc(x, y)."
                        own.apply(Transaction(rules=(RuleChange(text, 1 if step % 40 else -1),), mode="set"))
        except BaseException as failure:
            failures.append(failure)

    with engine(server, database):
        fill(db)
        writers = [threading.Thread(target=write) for _ in range(2)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(12):
                done.append(asked(db))
        finally:
            stop.set()
            for writer in writers:
                writer.join(30)
    assert not failures
    assert [one.status for one in done] == ["passed"] * 12, [one.report for one in done]
    epochs = [one.report["epoch"] for one in done if one.report is not None]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0] + 10, "there were writes in between"


def test_a_process_that_ends_is_a_failure_and_not_the_end(
    server: EmbeddedServer, database: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_: Subject) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(module, "audit", dies)
    with engine(server, database):
        fill(db)
        done = asked(db)
        assert (done.status, done.report) == ("failed", None)
        assert done.why == f"its process was ended by signal {int(signal.SIGKILL)}"
        assert db.apply(facts("edge", ("n1", "n2"))).status == "committed"


def test_a_process_that_does_not_end_is_ended(
    server: EmbeddedServer, database: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "audit", lambda _: time.sleep(600))
    monkeypatch.setattr(module, "MOST_SECONDS", 0.2)
    with engine(server, database):
        done = asked(db)
    assert done.status == "failed"
    assert "hours" in (done.why or "")


def test_an_engine_that_stops_ends_its_audit(
    server: EmbeddedServer, database: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "audit", lambda _: time.sleep(600))
    with engine(server, database):
        name = db.run(db.client.audits.submit()).id
        until(lambda: db.run(db.client.audits.get(name)).status == "running", "the audit to run", 30)
    done = db.run(db.client.audits.get(name))
    assert (done.status, done.why) == ("failed", "the engine stopped while it ran; ask for it again")


def test_an_audit_of_an_engine_that_was_killed(
    client: redis.Redis, server: EmbeddedServer, database: str, db: Database
) -> None:
    queue = AuditQueue(client, Keys(database))
    running = queue.begin(new_audit("full", "request"))
    with engine(server, database):
        done = ended(db, lambda one: one.id == running.id)[0]
    assert (done.status, "engine ended" in (done.why or "")) == ("failed", True)


def test_what_is_asked_for_waits_for_an_engine(server: EmbeddedServer, database: str, db: Database) -> None:
    first = db.run(db.client.audits.submit())
    assert db.run(db.client.audits.submit()).id == first.id
    assert first.status == "queued"
    with engine(server, database):
        assert ended(db, lambda one: one.id == first.id)[0].status == "passed"
        assert asked(db).id != first.id


def test_the_last_hundred_are_kept(client: redis.Redis, database: str, db: Database) -> None:
    queue = AuditQueue(client, Keys(database))
    made = []
    for number in range(KEPT_AUDITS + 5):
        begun = queue.begin(replace(new_audit("full", "schedule"), requested=float(number)))
        made.append(queue.end(begun, "passed", {"epoch": number, "differing": 0}, None))
    kept = db.run(db.client.audits.list(1000))
    assert [one.id for one in kept] == [one.id for one in made[: -KEPT_AUDITS - 1 : -1]]
    with pytest.raises(UnknownAuditError, match="there is no audit"):
        db.run(db.client.audits.get(made[0].id))
    assert db.run(db.client.audits.last())["full"].epoch == KEPT_AUDITS + 4


def test_a_result_is_written_when_redis_is_back(
    server: EmbeddedServer, database: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, tries = AuditQueue.end, [0]

    def away(self: AuditQueue, *arguments: Any) -> Audit:
        tries[0] += 1
        if tries[0] < 4:
            raise StorageUnavailableError("Redis cannot be reached")
        return end(self, *arguments)

    monkeypatch.setattr(AuditQueue, "end", away)
    with engine(server, database):
        assert asked(db).status == "passed"
    assert tries[0] >= 4


class TestForked:
    def finished(self, work: Callable[[], bytes]) -> Forked:
        forked = Forked(work, 0)
        assert forked.has_ended(30)
        return forked

    def test_the_answer_may_be_larger_than_a_pipe(self) -> None:
        assert self.finished(lambda: b"x" * 3_000_000).answer == b"x" * 3_000_000

    def test_failures_in_words(self) -> None:
        def fails() -> bytes:
            raise ValueError("no good")

        def full() -> bytes:
            raise OSError(28, "No space left on device")

        assert self.finished(fails).failure == "ValueError('no good')"
        assert self.finished(full).failure == "No space left on device"
        assert self.finished(lambda: os._exit(3)).failure == "its process was ended with status 3"

    def test_what_the_child_changes_stays_there(self) -> None:
        state = [1]

        def changes() -> bytes:
            state[0] = 2
            return str(state[0]).encode()

        assert self.finished(changes).answer == b"2"
        assert state == [1]

    def test_it_can_be_killed(self) -> None:
        forked = Forked(lambda: time.sleep(600) or b"", 0)
        assert not forked.has_ended()
        forked.kill()
        with pytest.raises(ProcessLookupError):
            os.kill(forked.pid, 0)
