"""`zedlog audit` against a running system, as a user types it; and beside kills of the engine."""

from __future__ import annotations

import pytest
import redis

from engine.storage.connection import connect
from engine.storage.keys import Keys
from engine.storage.publisher import read_head
from tests.commands import Zedlog, zedlog
from tests.live import LiveSystem

__all__ = ["zedlog"]


@pytest.fixture
def client(live: LiveSystem) -> redis.Redis:
    return connect(live._server.url)


def test_audit_list_show_relations_and_status(zedlog: Zedlog, live: LiveSystem) -> None:
    zedlog(
        "facts",
        "add",
        'edge("a", "b"). edge("b", "c"). tc(x, y) :- edge(x, y). tc(x, z) :- tc(x, y), edge(y, z).',
    )
    done = zedlog("audit", "--wait")
    assert done.status == 0, done
    name, _, first = done.out.splitlines()[0].partition(": ")
    assert first == "passed"
    assert "2 relations, 5 tuples" in done.out
    assert "verified" in done.out
    assert zedlog("audit", name).out == done.out
    listed = zedlog("audit", "--list").out
    assert name in listed
    assert "comparison after the start" in listed
    assert "audit      no difference" in zedlog("status").out
    with live.client() as http:
        digests = {r["relation"]: r["digest"] for r in http.get("/v1/relations").json()["relations"]}
        newest = http.get("/v1/epochs").json()["epochs"][0]
        assert len(newest["digest"]) == 32
        audits = http.get("/readyz").json()["audits"]
        assert (audits["full"]["status"], audits["start"]["status"]) == ("passed", "passed")
    assert f",{digests['tc']}" in zedlog("relations").out
    table = zedlog("relations", "--format", "table").out
    assert digests["tc"][:12] in table
    assert digests["tc"][:13] not in table


def test_what_is_wrong_is_told(zedlog: Zedlog, live: LiveSystem, client: redis.Redis) -> None:
    """A digest of the manifest is changed; then the right one comes back."""
    zedlog("facts", "add", 'told("x", 1).')
    head = read_head(client, Keys("test"))
    assert head is not None
    key = Keys("test").manifest(head.epoch)
    right = client.get(key)
    assert isinstance(right, bytes)
    with live.client() as http:
        digest = http.get("/v1/relations/told").json()["digest"]
    wrong = right.replace(digest.encode(), b"0" * 32)
    assert wrong != right
    client.set(key, wrong)
    try:
        done = zedlog("audit", "--wait")
        assert done.status == 1
        assert "differs: 1 difference" in done.out
        assert "in the snapshot: told: the manifest of epoch" in done.out
        assert digest in done.out
        status = zedlog("status")
        assert (status.status, "1 difference; 'zedlog audit a" in status.out) == (0, True)
        with live.client() as http:
            assert http.get("/readyz").status_code == 200
            assert 'zedlog_audit_passed{kind="full"} 0.0' in http.get("/metrics").text
    finally:
        client.set(key, right)
    assert zedlog("audit", "--wait").status == 0


def test_a_start_after_a_kill_is_compared(zedlog: Zedlog, live: LiveSystem) -> None:
    zedlog("facts", "add", "kill(1). kill(2).")
    live.kill("engine")
    live.start("engine")
    live.wait_ready()
    done = zedlog("audit", "--wait")
    assert (done.status, "passed" in done.out) == (0, True)
    with live.client() as http:
        (start, *_) = [a for a in http.get("/v1/audits").json()["audits"] if a["kind"] == "start"]
    assert (start["status"], start["report"]["differing"]) == ("passed", 0)
    assert start["report"]["relations"] >= 1


def test_wrong_usage(zedlog: Zedlog) -> None:
    assert zedlog("audit", "--list", "--wait").status == 2
    missing = zedlog("audit", "a0")
    assert (missing.status, "(unknown_audit)" in missing.err) == (1, True)
    teaches = zedlog("audit", "--help").out
    assert "• zedlog audit --wait" in teaches
