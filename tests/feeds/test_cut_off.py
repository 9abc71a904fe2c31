"""Listeners that are cut off at random moments, in the middle of an event too, while service, engine and Redis are
killed with SIGKILL: each comes back with its last position and rebuilds every epoch, nothing twice, nothing missing.

The short form has some 20 interruptions; `make test-all` makes 300. ZEDLOG_FEED_CUTS names another number.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.feeds.world import Replay, typed
from tests.full import FULL
from tests.live import PARTS, LiveSystem
from tests.waiting import until

CUTS = int(os.environ.get("ZEDLOG_FEED_CUTS", "300" if FULL else "20"))
KILLS = max(3, CUTS // 6)
NODES = 9
RULES = ("tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).")
QUERY = "tc(x, y), !edge(x, y), n = count : { edge(y, _) }"
FEEDS: dict[str, dict[str, str]] = {
    "relation": {"relation": "tc"},
    "bound": {"relation": "tc", "x": "1"},
    "goal": {"query": "tc(x, 3)"},
    "query": {"query": QUERY},
}


class Writer(threading.Thread):
    """One small transaction after the other, each until it is answered; each is applied once."""

    def __init__(self, live: LiveSystem, seed: int) -> None:
        super().__init__(name="writer")
        self._live, self._rng = live, random.Random(seed)
        self.stopped = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self._live.client(timeout=10) as client:
                number = 0
                while not self.stopped.wait(self._rng.uniform(0, 0.2)):
                    number += 1
                    self._apply(client, number)
        except BaseException as error:
            self.failure = error

    def _apply(self, client: httpx.Client, number: int) -> None:
        rows = [[self._rng.randrange(NODES), self._rng.randrange(NODES)] for _ in range(3)]
        facts = [
            {"relation": "edge", "tuples": [row], "weight": weight}
            for row, weight in zip(rows, (1, -1, -1), strict=True)
        ]
        while not self.stopped.is_set():
            try:
                answer = client.post(
                    "/v1/transactions",
                    json={"facts": facts, "mode": "set"},
                    headers={"idempotency-key": f"w{number}"},
                )
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code in (202, 503), answer.text
            time.sleep(0.05)


class Listener(threading.Thread):
    """Reads a feed and hangs up now and then, after any number of bytes; comes back with its last position."""

    def __init__(self, live: LiveSystem, name: str, seed: int, token: str) -> None:
        super().__init__(name=name)
        self.parameters = FEEDS[name]
        self._live, self._rng = live, random.Random(seed)
        self._lines = self._rng.random() < 0.5
        self.token = token
        self.events: dict[int, dict[str, Any]] = {}
        self.cuts = self.broken = 0
        self._reading = False
        self.hang_up = True
        self.stopped = threading.Event()
        self.failure: BaseException | None = None

    @property
    def epoch(self) -> int:
        return int(self.token.partition("-")[0])

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                try:
                    self._connect()
                except httpx.TransportError:
                    self.broken += self._reading
                    time.sleep(0.05)
                self._reading = False
        except BaseException as error:
            self.failure = error

    def _connect(self) -> None:
        self._lines = not self._lines
        headers = {"accept": "application/x-ndjson" if self._lines else "text/event-stream"}
        parameters = {**self.parameters, "heartbeat": "0.5"}
        if self._lines:
            parameters["after"] = self.token
        else:
            headers["last-event-id"] = self.token
        budget = self._rng.choice((200, 1_000, 5_000, 20_000)) if self.hang_up else 10**9
        with (
            self._live.client(timeout=5) as client,
            client.stream("GET", "/v1/changes", params=parameters, headers=headers) as response,
        ):
            if response.status_code == 503:
                time.sleep(0.05)
                return
            assert response.status_code == 200, response.read()
            self._reading = True
            for event in self._parsed(response, self._rng.randint(1, budget)):
                self._take(event)
                if self.stopped.is_set():
                    return
        self.cuts += 1

    def _parsed(self, response: httpx.Response, budget: int) -> Iterator[dict[str, Any]]:
        end, buffer = (b"\n" if self._lines else b"\n\n"), b""
        for part in response.iter_raw(97):
            buffer += part
            budget -= len(part)
            *whole, buffer = buffer.split(end)
            for text in whole:
                yield orjson.loads(text) if self._lines else _event(text.decode())
            if budget <= 0:
                return

    def _take(self, event: dict[str, Any]) -> None:
        assert event["event"] in ("change", "progress", "end"), event
        if event["event"] == "change":
            assert event["epoch"] not in self.events, "an epoch came twice"
            assert event["epoch"] > self.epoch, "an epoch came too late"
            self.events[event["epoch"]] = event
        self.token = event["token"]


def _event(text: str) -> dict[str, Any]:
    fields = dict(line.split(": ", 1) for line in text.split("\n"))
    data: dict[str, Any] = orjson.loads(fields["data"])
    assert fields["id"] == data["token"]
    return {"event": fields["event"], **data}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_cut_off_listeners_rebuild_every_epoch(tmp_path: Path) -> None:
    rng = random.Random(7)
    with LiveSystem(tmp_path, ("engine.server", "--retain-epochs", "1000000")) as live:
        with live.client() as client:
            body = {
                "rules": [{"rule": rule} for rule in RULES],
                "facts": [{"relation": "edge", "tuples": [[0, 1], [1, 2]]}],
            }
            begun = client.post("/v1/transactions", json=body).json()
        writer = Writer(live, 1)
        listeners = [Listener(live, name, seed, begun["token"]) for seed, name in enumerate(FEEDS)]
        threads = [writer, *listeners]
        for thread in threads:
            thread.start()
        kills = 0

        def total() -> int:
            return sum(one.cuts + one.broken for one in listeners)

        while total() + kills < CUTS or kills < KILLS:
            for thread in threads:
                assert thread.failure is None, (thread.name, thread.failure, live.logs())
                assert thread.is_alive(), thread.name
            time.sleep(rng.uniform(0.1, 1.0) if kills < KILLS else 0.05)
            if kills < KILLS and kills <= (total() + kills) * KILLS / CUTS:
                part = PARTS[kills % len(PARTS)]
                live.kill(part)
                time.sleep(rng.uniform(0, 0.3))
                live.start(part)
                kills += 1
                live.wait_ready()
        writer.stopped.set()
        writer.join(60)
        with live.client(timeout=60) as client:
            newest = client.get("/readyz").json()["epoch"]
            for one in listeners:
                one.hang_up = False
            until(
                lambda: all(one.epoch >= newest or one.failure for one in listeners),
                lambda: f"{[(one.name, one.epoch, one.failure) for one in listeners]} of {newest}",
            )
            for one in listeners:
                one.stopped.set()
                one.join(60)
                assert one.failure is None, one.failure
            for one in listeners:
                _compare(client, one, begun["epoch"], newest)
        print(
            f"\n{newest} epochs, {sum(one.cuts for one in listeners)} cut off by the client, "
            f"{sum(one.broken for one in listeners)} broken connections, {kills} kills, "
            f"{sum(len(one.events) for one in listeners)} changes; lost 0, twice 0"
        )


def _compare(client: httpx.Client, one: Listener, begun: int, newest: int) -> None:
    """What was rebuilt, after every epoch, with what a reader of that epoch gets."""
    copy = Replay({}, begun)
    for epoch in range(begun, newest + 1):
        if "query" in one.parameters:
            body = {"query": one.parameters["query"], "as_of": epoch, "limit": 10_000}
            answer = client.post("/v1/query", json=body)
        else:
            bound = {name: value for name, value in one.parameters.items() if name != "relation"}
            answer = client.get("/v1/relations/tc/facts", params={**bound, "as_of": epoch, "limit": 10_000})
        assert answer.status_code == 200, answer.text
        name = "answer" if "query" in one.parameters else "tc"
        rows = typed(answer.json()["tuples"])
        if epoch == begun:
            copy.state[name] = rows
            continue
        if epoch in one.events:
            copy.take(one.events[epoch])
        assert copy.state[name] == rows, (one.name, epoch)
