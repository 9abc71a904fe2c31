"""The JVM of the engine's Spark is killed: the engine derives its state anew, and goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.full import full
from tests.live import LiveSystem
from tests.spark.standalone import java_children

pytestmark = pytest.mark.slow

RULES = ["reach(x, y) :- arc(x, y).", "reach(x, z) :- reach(x, y), arc(y, z).", "copy(x, y) :- many(x, y)."]
ON_SPARK = {"placement": "spark"}


def chain(begin: int, end: int) -> dict[str, Any]:
    return {"relation": "arc", "tuples": [[i, i + 1] for i in range(begin, end)]}


def kill_jvm(live: LiveSystem) -> None:
    """The Java process below the engine, as the system does it that runs out of memory."""
    found = java_children(live.pid("engine"))
    assert len(found) == 1, f"one JVM runs below the engine, not {len(found)}\n{live.logs()}"
    os.kill(found[0], signal.SIGKILL)


def assert_on_spark(answer: httpx.Response, live: LiveSystem) -> None:
    assert answer.status_code == 200, f"{answer.text}\n{live.logs()}"
    assert answer.json()["placement"] == "spark"


def reachable(client: httpx.Client) -> int:
    (found,) = (r for r in client.get("/v1/relations").json()["relations"] if r["relation"] == "reach")
    return int(found["counts"]["all"])


@full
@pytest.mark.timeout(400)
def test_faults_the_jvm_is_killed(java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two epochs, and during one: what was asked for is done after the start, once."""
    monkeypatch.setenv("ZEDLOG_WAIT_TIMEOUT", "200")
    with LiveSystem(tmp_path) as live, live.client(timeout=250) as client:
        # What is copied is too much for the driver: some of the state is in the JVM that is killed.
        many = {"relation": "many", "tuples": [[i, i] for i in range(20_000)]}
        first = {"facts": [chain(0, 20), many], "rules": [{"rule": rule} for rule in RULES]}
        answer = client.post("/v1/transactions", params=ON_SPARK, json=first)
        assert_on_spark(answer, live)
        kill_jvm(live)
        answer = client.post("/v1/transactions", params=ON_SPARK, json={"facts": [chain(20, 21)]})
        assert_on_spark(answer, live)
        assert reachable(client) == 21 * 22 // 2

        outcome: list[httpx.Response] = []

        def run() -> None:
            body = {"facts": [chain(21, 40)]}
            outcome.append(client.post("/v1/transactions", params=ON_SPARK, json=body))

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(1)
        assert not outcome, "the epoch is under way: its nineteen heights take some seconds"
        kill_jvm(live)
        thread.join(200)
        (answer,) = outcome
        # It was done again after the start, for nothing of it had been published.
        assert_on_spark(answer, live)
        assert reachable(client) == 40 * 41 // 2
