"""Clients of the fault tests: writers that never give up, and readers that check every answer.

A writer owns one lane. Its transaction number i adds a pair of facts half(lane, i, "left") and half(lane, i,
"right"), the edge step(lane, i, i + 1), and one to the weight of done(lane); every third also retracts the
pair of number i - 3. It is sent with an Idempotency-Key until it is acknowledged, however often connections
break. So at any epoch, whatever was killed:

- each (lane, i) has both halves or none, and whole(lane, i) is derived exactly where it has both;
- the weight of done(lane) is the number of the lane's transactions in that epoch: one applied twice would
show; - reach(lane, i) is derived exactly for i up to that number, since the steps form one path.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import httpx

from tests.conformance.rest import facts, read
from tests.live import LiveSystem

DECLARATIONS = """
.decl half(lane: number, i: number, side: symbol)
.decl step(lane: number, i: number, j: number)
.decl done(lane: number)
"""
RULES = [
    'whole(l, i) :- half(l, i, "left"), half(l, i, "right").',
    "reach(l, 0) :- step(l, 0, _).",
    "reach(l, j) :- reach(l, i), step(l, i, j).",
]
LAG = 3


def pair(lane: int, i: int) -> list[list[Any]]:
    return [[lane, i, "left"], [lane, i, "right"]]


def transaction(lane: int, i: int) -> dict[str, Any]:
    changes = [
        facts("half", pair(lane, i)),
        facts("step", [[lane, i, i + 1]]),
        facts("done", [[lane]]),
    ]
    if i % LAG == 0 and i >= LAG:
        changes.append(facts("half", pair(lane, i - LAG), -1))
    return {"facts": changes}


def expected_pairs(lane: int, sent: int) -> set[tuple[int, int]]:
    """The pairs that are there after the lane's first `sent` transactions."""
    gone = {i - LAG for i in range(LAG, sent, LAG)}
    return {(lane, i) for i in range(sent) if i not in gone}


class Stoppable(threading.Thread):
    """A thread that runs `step` until it is told to stop, and keeps the first failure for the test to
    raise."""

    def __init__(self, live: LiveSystem) -> None:
        super().__init__(daemon=True)
        self.live = live
        self.failure: BaseException | None = None
        self.broken_connections = 0
        self.in_doubt = False
        """Something was sent that may or may not have arrived; the thread goes on until it knows."""
        self._stop_asked = threading.Event()

    def finish(self, timeout: float) -> None:
        """Ask it to stop, wait for it, and raise what it met."""
        self._stop_asked.set()
        self.join(timeout)
        self.check()
        assert not self.is_alive(), f"{type(self).__name__} is stuck"

    def check(self) -> None:
        """Raise what it met so far."""
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        client = self.live.client(timeout=10)
        try:
            while self.in_doubt or not self._stop_asked.is_set():
                try:
                    self.step(client)
                except httpx.TransportError:
                    self.broken_connections += 1
                    time.sleep(0.02)
        except BaseException as error:
            self.failure = error
        finally:
            client.close()

    def step(self, client: httpx.Client) -> None:
        raise NotImplementedError


class Writer(Stoppable):
    """Sends the transactions of one lane. `acknowledged` of them were answered with 200 or 202."""

    def __init__(self, live: LiveSystem, lane: int) -> None:
        super().__init__(live)
        self.lane = lane
        self.acknowledged = 0
        self.refused = 0
        """Transactions that the engine was at when it was killed, twice: refused, and sent anew under another key."""
        self.answers: Counter[int] = Counter()

    def step(self, client: httpx.Client) -> None:
        # A step ends with the acknowledgement or an exception; the next one sends the same transaction again
        # unless it was acknowledged, so what was in doubt when a connection broke is settled by its key.
        number = self.acknowledged
        wait = "true" if number % 5 else "false"
        self.in_doubt = True
        response = client.post(
            "/v1/transactions",
            params={"wait": wait},
            json=transaction(self.lane, number),
            headers={"Idempotency-Key": f"lane-{self.lane}-number-{number}-{self.refused}"},
        )
        self.answers[response.status_code] += 1
        if response.status_code in (200, 202):
            self.acknowledged += 1
            self.in_doubt = False
        elif response.status_code == 500 and "ended twice" in response.json()["detail"]:
            self.refused += 1
        else:
            assert response.status_code == 503, f"{response.status_code}: {response.text}"
            assert int(response.headers["retry-after"]) >= 0
            time.sleep(0.05)


@dataclass
class View:
    """What one epoch shows, read by several calls that name it."""

    epoch: int
    halves: set[tuple[Any, ...]]
    whole: set[tuple[Any, ...]]
    reach: set[tuple[Any, ...]]
    steps: set[tuple[Any, ...]]

    def check(self) -> None:
        for lane in {lane for lane, _, _ in self.steps} | {lane for lane, _, _ in self.halves}:
            sent = sum(1 for at, _, _ in self.steps if at == lane)
            pairs = expected_pairs(lane, sent)
            where = f"epoch {self.epoch}, lane {lane} after {sent} transactions"
            halves = {row for row in self.halves if row[0] == lane}
            assert halves == {(*p, side) for p in pairs for side in ("left", "right")}, where
            assert {row for row in self.whole if row[0] == lane} == pairs, where
            assert {row for row in self.reach if row[0] == lane} == {(lane, i) for i in range(sent + 1)}, (
                where
            )


class Reader(Stoppable):
    """Reads all relations at one epoch, again and again, and checks that it is a whole one."""

    def __init__(self, live: LiveSystem) -> None:
        super().__init__(live)
        self.views = 0
        self.unavailable = 0
        self.epochs: set[int] = set()
        self._newest = -1

    def step(self, client: httpx.Client) -> None:
        try:
            view = look(client)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 503 and error.response.json()["code"] != "epoch_not_retained":
                raise
            # Storage or engine is away; or the epoch went out of retention between two calls.
            self.unavailable += 1
            time.sleep(0.02)
            return
        view.check()
        assert view.epoch >= self._newest, f"epoch {view.epoch} was read after {self._newest}"
        self._newest = view.epoch
        self.views += 1
        self.epochs.add(view.epoch)


def look(client: httpx.Client) -> View:
    epoch, halves = read(client, "half", limit=10_000)
    rest = [set(read(client, name, limit=10_000, as_of=epoch)[1]) for name in ("whole", "reach", "step")]
    return View(epoch, set(halves), *rest)
