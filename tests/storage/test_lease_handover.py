"""An engine's successor under the same supervisor takes the lease at once, also where processes cannot be looked up; no
other engine does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from engine.errors import EngineLeaseError
from engine.storage.child import SUPERVISOR, supervisor, supervisor_mark
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.lease import Lease
from service.cli.supervisor import Part, Supervisor
from tests.waiting import until


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    # As on a system that does not say which processes run, or between containers.
    monkeypatch.setattr("engine.storage.lease._namespace", dict)
    with EmbeddedServer(tmp_path / "server") as server:
        client = connect(server.url)
        yield client
        client.close()


def lease(client: redis.Redis, monkeypatch: pytest.MonkeyPatch, mark: str | None) -> Lease:
    if mark is None:
        monkeypatch.delenv(SUPERVISOR, raising=False)
    else:
        monkeypatch.setenv(SUPERVISOR, mark)
    return Lease(client, "test", 10)


def test_only_the_supervisor_of_both_hands_it_over(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = f"ours:{os.getppid()}", f"theirs:{os.getppid()}"
    first = lease(client, monkeypatch, ours)
    first.take()
    # Another supervisor, none, and a process further down, which inherited the variable: the holder may well run.
    for mark in (theirs, None, f"ours:{os.getpid()}", "ours", f":{os.getppid()}"):
        with pytest.raises(EngineLeaseError):
            lease(client, monkeypatch, mark).take()
    first.renew()
    next_one = lease(client, monkeypatch, ours)
    next_one.take()
    assert next_one.generation == first.generation + 1
    # If the first did run after all, it could not do anything any more.
    with pytest.raises(EngineLeaseError):
        first.renew()


def test_two_engines_without_a_supervisor_do_not_take_each_other_for_dead(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(client, monkeypatch, None).take()
    with pytest.raises(EngineLeaseError):
        lease(client, monkeypatch, None).take()


def test_every_child_of_a_supervisor_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.supervisor.FIRST_PAUSE", 0.01)
    told = tmp_path / "told"
    code = f"import engine.storage.child as c; open({str(told)!r}, 'a').write(f'{{c.supervisor()}}\\n')"
    part = Part("part", [sys.executable, "-c", code], {"PYTHONPATH": os.getcwd()})
    watched = Supervisor([part], tmp_path / "log", lambda text: None)
    watched.start(lambda: told.exists() and told.read_text().count("\n") >= 2)
    watched.stop()
    names = set(told.read_text().split())
    assert len(names) == 1
    assert names != {"None"}
    assert supervisor_mark().split(":")[0] not in names
    # This process was not started by it.
    assert supervisor() not in names
    until(lambda: not part.running)
