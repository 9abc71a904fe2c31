"""The clients of the soak: writers that retry with their Idempotency-Key, readers, listeners, explainers.

Always: a writer knows the outcome of each of its transactions before it sends the next one. Each transaction adds a
pair of facts that is its own, `left(w, n)` and `right(w, n)`, so that one that is lost, applied twice, or seen in half
is noticed by itself; the rest of it is random.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.soak.tally import Tally

RULES = (
    "both(w, n) :- left(w, n), right(w, n).",
    "torn(w, n) :- left(w, n), !right(w, n).",
    "torn(w, n) :- right(w, n), !left(w, n).",
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z).",
    "far(x, y) :- tc(x, y), !edge(x, y).",
    "degree(x, count : { edge(x, _) }) :- edge(x, _).",
    "most(max n : { degree(_, n) }) :- degree(_, _).",
    "whole(n, count : { brought(n, _) }) :- brought(n, _).",
)
NODES, KEPT_PAIRS = 40, 60


@dataclass(slots=True)
class Done:
    """A transaction whose outcome is known."""

    id: str
    epoch: int | None
    body: dict[str, Any]
    pair: tuple[int, int] | None = None


@dataclass
class Shared:
    """What all clients of one soak share. `pause`: writers stop when their transaction is done. `begun`, `ended`: the
    imports, with their rows, and those whose outcome is known; with `done` under `lock`."""

    url: str
    tally: Tally
    stop: threading.Event = field(default_factory=threading.Event)
    pause: threading.Event = field(default_factory=threading.Event)
    done: list[Done] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=40, trust_env=False)


def send(http: httpx.Client, shared: Shared, body: dict[str, Any], key: str) -> Done:
    """One transaction, sent until its outcome is known."""
    while True:
        try:
            answer = http.post("/v1/transactions", json=body, headers={"idempotency-key": key})
            while answer.status_code == 202:
                state = http.get(answer.json()["status_url"])
                if state.status_code != 200:
                    break
                told = state.json()
                if told["status"] == "committed":
                    return Done(told["transaction"], told["result"]["epoch"], body)
                if told["status"] == "refused":
                    return Done(told["transaction"], None, body)
                time.sleep(0.1)
            told = answer.json()
            if answer.status_code == 200:
                return Done(told["transaction"], told["epoch"], body)
            if "transaction" in told and answer.status_code not in (202, 503):
                return Done(told["transaction"], None, body)
            if answer.status_code not in (202, 503):
                shared.tally.bad("unexpected answers", 1, f"{answer.status_code} {answer.text[:500]}")
                if answer.status_code < 500:
                    return Done("0-0", None, body)
        except (httpx.TransportError, json.JSONDecodeError):
            pass
        shared.tally.add("sent again")
        time.sleep(0.1)


class Writer(threading.Thread):
    """Random transactions, one after the other. `resting`: it has none under way."""

    def __init__(self, shared: Shared, number: int, seed: int) -> None:
        super().__init__(name=f"writer {number}", daemon=True)
        self._shared, self._number = shared, number
        self._random = random.Random(seed * 1000 + number)
        self.resting = threading.Event()

    def run(self) -> None:
        n, pairs = 0, 0
        with self._shared.client() as http:
            while not self._shared.stop.is_set():
                if self._shared.pause.is_set():
                    self.resting.set()
                    time.sleep(0.02)
                    continue
                self.resting.clear()
                n += 1
                done = send(http, self._shared, self._body(n), f"{self._number}-{n}")
                done.pair = self._number, n
                with self._shared.lock:
                    self._shared.done.append(done)
                self._shared.tally.add("transactions" if done.epoch is not None else "refused")
                pairs += 1
                time.sleep(self._random.uniform(0, 0.05))
        self.resting.set()

    def _body(self, n: int) -> dict[str, Any]:
        pair = [self._number, n]
        facts = [
            {"relation": "left", "tuples": [pair], "weight": 1},
            {"relation": "right", "tuples": [pair], "weight": 1},
        ]
        for _ in range(self._random.randrange(4)):
            edge = [f"n{self._random.randrange(NODES)}", f"n{self._random.randrange(NODES)}"]
            facts.append(
                {"relation": "edge", "tuples": [edge], "weight": self._random.choice((1, 1, 1, 2, -1))}
            )
        if n % KEPT_PAIRS == 0:
            # Old pairs go, so that the database stays small; those that were refused were never there.
            with self._shared.lock:
                own = [
                    d.pair
                    for d in self._shared.done
                    if d.pair and d.pair[0] == self._number and d.epoch is not None
                ]
            old = [list(p) for p in own if n - 2 * KEPT_PAIRS <= p[1] < n - KEPT_PAIRS]
            facts += [{"relation": r, "tuples": old, "weight": -1} for r in ("left", "right")] if old else []
        body: dict[str, Any] = {"facts": facts}
        if self._random.random() < 0.05:
            rule = f'near(x) :- edge(x, "n{self._random.randrange(5)}").'
            body["rules"] = [{"rule": rule, "weight": self._random.choice((1, -1))}]
        return body


class Reader(threading.Thread):
    """Reads pinned epochs, page by page, and looks whether what belongs together is there together."""

    def __init__(self, shared: Shared, seed: int) -> None:
        super().__init__(name="reader", daemon=True)
        self._shared, self._random = shared, random.Random(seed)

    def run(self) -> None:
        with self._shared.client() as http:
            while not self._shared.stop.is_set():
                try:
                    self._look(http)
                except (httpx.TransportError, json.JSONDecodeError):
                    self._shared.tally.add("reads that were cut off")
                time.sleep(0.02)

    def _look(self, http: httpx.Client) -> None:
        epoch: int | None = None
        seen: dict[str, list[Any]] = {}
        for relation in ("left", "right", "both", "torn"):
            rows: list[Any] = []
            parameters: dict[str, Any] = {"limit": self._random.choice((7, 50, 1000))}
            if epoch is not None:
                parameters["as_of"] = epoch
            while True:
                answer = http.get(f"/v1/relations/{relation}/facts", params=parameters)
                if answer.status_code in (404, 503):
                    # The epoch went out of retention, or storage or engine are away.
                    return
                if answer.status_code != 200:
                    self._shared.tally.bad(
                        "unexpected answers", 1, f"{answer.status_code} {answer.text[:500]}"
                    )
                    return
                body = answer.json()
                epoch = body["epoch"]
                rows += map(tuple, body["tuples"])
                if body.get("cursor") is None:
                    break
                parameters["cursor"] = body["cursor"]
            seen[relation] = rows
        self._shared.tally.add("pinned reads")
        left, right, both = (sorted(seen[name]) for name in ("left", "right", "both"))
        if seen["torn"] or not left == right == both or len(set(left)) != len(left):
            self._shared.tally.bad(
                "half epochs read", 1, f"epoch {epoch}: {set(left) ^ set(right)}, {seen['torn'][:5]}"
            )


class Listener(threading.Thread):
    """Rebuilds `edge` and `left` from the changes. `states`: by relation."""

    relations = ("edge", "left")

    def __init__(self, shared: Shared) -> None:
        super().__init__(name="listener", daemon=True)
        self._shared = shared
        self.lock = threading.Lock()
        self.epoch: int | None = None
        self.states: dict[str, set[Any]] = {name: set() for name in self.relations}

    def run(self) -> None:
        while not self._shared.stop.is_set():
            try:
                with self._shared.client() as http:
                    self._follow(http)
            except (httpx.TransportError, json.JSONDecodeError):
                self._shared.tally.add("feeds that were cut off")
            time.sleep(0.1)

    def _follow(self, http: httpx.Client) -> None:
        where: dict[str, Any] = {"snapshot": "true"} if self.epoch is None else {"after": self.epoch}
        parameters = {"relation": list(self.relations), "heartbeat": 1, **where}
        with http.stream(
            "GET", "/v1/changes", params=parameters, headers={"accept": "application/x-ndjson"}
        ) as answer:
            if answer.status_code != 200:
                if answer.status_code != 503:
                    # Past retention: begin again with the state.
                    self.epoch = None
                    self._shared.tally.add("feeds begun again")
                return
            fresh: dict[str, set[Any]] = {name: set() for name in self.relations}
            for line in answer.iter_lines():
                if self._shared.stop.is_set():
                    return
                if line.strip():
                    self._take(json.loads(line), fresh)

    def _take(self, event: dict[str, Any], fresh: dict[str, set[Any]]) -> None:
        with self.lock:
            if event["event"] == "snapshot":
                if event["relation"] is not None:
                    fresh[event["relation"]].update(map(tuple, event["tuples"]))
                if event["last"]:
                    self.states, self.epoch = fresh, event["epoch"]
            elif event["event"] == "change":
                for name, change in event["changes"].items():
                    inserted, deleted = (set(map(tuple, change.get(k, ()))) for k in ("inserted", "deleted"))
                    wrong = (
                        len(inserted & self.states[name])
                        + len(deleted - self.states[name])
                        + len(inserted & deleted)
                    )
                    self._shared.tally.bad("wrong in a feed", wrong, f"epoch {event['epoch']} of {name}")
                    self.states[name] = (self.states[name] - deleted) | inserted
                self.epoch = event["epoch"]
                self._shared.tally.add("events")
            elif event["event"] == "progress" and self.epoch is not None:
                self.epoch = max(self.epoch, event["epoch"])
            elif "code" in event:
                self.epoch = None


class Explainer(threading.Thread):
    """Asks why random tuples hold."""

    def __init__(self, shared: Shared, seed: int) -> None:
        super().__init__(name="explainer", daemon=True)
        self._shared, self._random = shared, random.Random(seed)

    def run(self) -> None:
        with self._shared.client() as http:
            while not self._shared.stop.is_set():
                x, y = (f"n{self._random.randrange(NODES)}" for _ in range(2))
                try:
                    answer = http.post("/v1/explain", json={"tuple": f'tc("{x}", "{y}")'})
                    self._shared.tally.add("explanations")
                    if answer.status_code >= 500 and answer.status_code != 503:
                        self._shared.tally.bad(
                            "unexpected answers", 1, f"{answer.status_code} {answer.text[:500]}"
                        )
                except httpx.TransportError:
                    pass
                time.sleep(0.2)
