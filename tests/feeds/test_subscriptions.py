"""Named subscriptions: changes are kept until they are acknowledged, up to limits; past them the gap is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from engine.storage.keys import Keys
from engine.storage.retention import Retention
from service.app import create_app
from service.openapi import rendered
from tests.feeds.conftest import MakeWorld
from tests.feeds.world import World
from tests.service.conftest import problem
from tests.storage.writing import new_publisher

SHORT = Retention(epochs=2, seconds=0)


class Http:
    """Calls of a service over a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        transport = httpx.ASGITransport(create_app(world.settings, world.client))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def __call__(self, method: str, url: str, **options: Any) -> httpx.Response:
        return self.world.run(self._client.request(method, url, **options))

    def put(self, name: str, **body: Any) -> httpx.Response:
        return self("PUT", f"/v1/subscriptions/{name}", json=body)

    def ack(self, name: str, token: str) -> httpx.Response:
        return self("POST", f"/v1/subscriptions/{name}/ack", json={"token": token})

    def changes(self, name: str, **headers: str) -> list[dict[str, Any]]:
        url = f"/v1/subscriptions/{name}/changes?follow=false"
        answer = self("GET", url, headers={"accept": "application/x-ndjson", **headers})
        assert answer.status_code == 200, answer.text
        return [orjson.loads(line) for line in answer.text.splitlines()]

    def epochs(self, name: str, **headers: str) -> list[int]:
        return [event["epoch"] for event in self.changes(name, **headers) if event["event"] == "change"]


Start = Callable[..., tuple[World, Http]]


@pytest.fixture
def start(make_world: MakeWorld) -> Start:
    def begin(retention: Retention = SHORT) -> tuple[World, Http]:
        world = make_world(retention=retention)
        world.edges((0, 1))
        return world, Http(world)

    return begin


def manifests(world: World) -> list[int]:
    prefix = Keys(world.database).prefix + "manifest:"
    return sorted(int(key.decode().removeprefix(prefix)) for key in world.redis.scan_iter(f"{prefix}*"))


def token(world: World, epoch: int) -> str:
    return f"{epoch}-{world.publisher.incarnation}"


@pytest.mark.parametrize(
    "about", [{"relations": ["edge"]}, {"query": "edge(x, y), x != y"}], ids=["relation", "query"]
)
def test_changes_are_kept_until_they_are_acknowledged(start: Start, about: dict[str, Any]) -> None:
    world, http = start()
    made = http.put("s", **about)
    assert made.status_code == 201
    assert made.json()["acknowledged"] == token(world, 1)
    for i in range(1, 9):
        world.edges((i, i + 1))
    assert manifests(world) == list(range(1, 10))
    assert http.epochs("s") == list(range(2, 10))
    # Not acknowledged, so they come again.
    assert http.epochs("s") == list(range(2, 10))
    answer = http.ack("s", token(world, 6)).json()
    assert (answer["acknowledged"], answer["behind"], answer["gap"]) == (token(world, 6), 3, False)
    assert http.epochs("s") == [7, 8, 9]
    # What arrived, but is not acknowledged yet, is not sent to the one who says so.
    assert http.epochs("s", **{"last-event-id": token(world, 8)}) == [9]
    assert http.epochs("s", **{"last-event-id": token(world, 2)}) == [7, 8, 9]
    # An older token, which comes late, changes nothing.
    assert http.ack("s", token(world, 3)).json()["acknowledged"] == token(world, 6)
    # The publisher learns of it with the next epoch, and lets go with the one after that.
    world.edges((20, 21))
    world.edges((21, 22))
    assert manifests(world) == [6, 7, 8, 9, 10, 11]
    http("DELETE", "/v1/subscriptions/s")
    world.edges((22, 23))
    world.edges((23, 24))
    assert manifests(world) == [12, 13]


def test_a_new_publisher_keeps_what_the_last_one_kept(start: Start) -> None:
    world, http = start()
    http.put("s", relations=["edge"])
    for i in range(1, 6):
        world.edges((i, i + 1))
    world.publisher = new_publisher(world.redis, world.database, SHORT)
    world.edges((7, 8))
    world.edges((8, 9))
    assert manifests(world) == list(range(1, 9))
    assert http.epochs("s") == list(range(2, 9))


def test_past_its_limit_a_subscription_holds_nothing_and_says_that_there_is_a_gap(start: Start) -> None:
    world, http = start()
    http.put("slow", relations=["edge"], limit=3)
    http.put("slower", relations=["edge"], limit=6)
    for i in range(1, 5):
        world.edges((i, i + 1))
    assert manifests(world) == [1, 2, 3, 4, 5]
    for i in range(5, 12):
        world.edges((i, i + 1))
    # Both were let go: first the one that may hold three epochs, then the other.
    assert manifests(world) == [11, 12]
    state = http("GET", "/v1/subscriptions/slow").json()
    assert (state["gap"], state["behind"]) == (True, 11)
    gap = problem(http("GET", "/v1/subscriptions/slow/changes?follow=false"), 410, "gap")
    assert (gap["after"], gap["oldest"], gap["newest"]) == (1, 11, 12)
    # The consumer reads the state, acknowledges its epoch, and is back.
    assert http.ack("slow", gap["token"]).json()["gap"] is False
    for i in range(12, 15):
        world.edges((i, i + 1))
    assert http.epochs("slow") == [13, 14, 15]


def test_the_operator_limits_epochs_and_bytes_for_all(start: Start) -> None:
    world, http = start(Retention(epochs=2, seconds=0, subscribed_epochs=4))
    http.put("s", relations=["edge"])
    for i in range(1, 12):
        world.edges((i, i + 1))
    assert manifests(world) == [8, 9, 10, 11, 12]
    world.publisher = new_publisher(world.redis, world.database, Retention(2, 0, subscribed_bytes=20_000))
    http.put("t", relations=["edge"])
    for _ in range(3):
        world.edges(*((i, 2 * i) for i in range(10_000)))
        world.edges(*((i, 2 * i) for i in range(10_000)), weight=-1)
    assert manifests(world)[-2:] == manifests(world)


def test_what_a_subscription_holds_back_does_not_cost_each_epoch(start: Start) -> None:
    """Only the epochs that go are looked at, and the one that stays."""
    world, http = start()
    http.put("s", relations=["edge"])
    looked: list[int] = []

    class Counted(type(world.publisher._retained)):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            for one in super().__iter__():
                looked.append(one.epoch)
                yield one

    world.publisher._retained = Counted(world.publisher._retained)
    for i in range(1, 31):
        world.edges((i, i + 1))
    assert manifests(world) == list(range(1, 32))
    assert len(looked) <= 2 * 30


def test_a_name_stands_for_one_thing(start: Start) -> None:
    world, http = start()
    assert http.put("s", relations=["edge"], where={"c0": "1"}).status_code == 201
    # Again: the position stays, the limit is new.
    world.edges((1, 2))
    again = http.put("s", relations=["edge"], where={"c0": "1"}, limit=5)
    assert again.status_code == 200
    assert (again.json()["limit"], again.json()["acknowledged"]) == (5, token(world, 1))
    problem(http.put("s", relations=["edge"]), 409, "subscription_conflict")
    assert http.epochs("s") == [2]
    listed = http("GET", "/v1/subscriptions").json()
    assert [one["name"] for one in listed["subscriptions"]] == ["s"]
    assert (listed["oldest"], listed["newest"]) == (1, 2)


def test_a_subscription_begins_where_it_is_told(start: Start) -> None:
    world, http = start(Retention(epochs=5, seconds=0))
    for i in range(1, 8):
        world.edges((i, i + 1))
    assert http.put("s", relations=["edge"], start=token(world, 5)).json()["behind"] == 3
    assert http.epochs("s") == [6, 7, 8]
    problem(http.put("t", relations=["edge"], start=token(world, 1)), 404, "epoch_not_retained")


def test_what_is_wrong_is_refused(start: Start) -> None:
    world, http = start()
    other = f"1-{'0' * 8}"
    problem(http.put("s"), 400, "invalid_parameter")
    problem(http.put("s", relations=["nothing"]), 404, "unknown_relation")
    problem(http.put("s", relations=["edge"], where={"z": "1"}), 400, "unknown_column")
    problem(http.put("s", query="edge(x"), 422, "syntax_error")
    problem(http.put("s", query="edge(x, y), x < z"), 422, "unsafe_rule")
    problem(http.put("s", relations=["edge"], query="edge(x, y)"), 400, "invalid_parameter")
    problem(http.put("s", relations=["edge"], limit=0), 400, "invalid_request")
    problem(http.put("s", relations=["edge"], start=other), 400, "invalid_token")
    problem(http.put("-", relations=["edge"]), 400, "invalid_parameter")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/changes")):
        problem(http(method, f"/v1/subscriptions/s{path}"), 404, "unknown_subscription")
    problem(http.ack("s", token(world, 1)), 404, "unknown_subscription")
    http.put("s", relations=["edge"])
    problem(http.ack("s", token(world, 9)), 404, "epoch_not_retained")
    problem(http.ack("s", other), 400, "invalid_token")
    assert http("GET", "/v1/subscriptions/s").json()["acknowledged"] == token(world, 1)


def test_every_call_says_which_role_it_needs() -> None:
    paths = orjson.loads(rendered())["paths"]
    roles = {
        f"{method.upper()} {path}": operation.get("x-zedlog-role")
        for path, operations in paths.items()
        for method, operation in operations.items()
        if path.startswith(("/v1/changes", "/v1/subscriptions"))
    }
    assert roles == {
        "GET /v1/changes": "reader",
        "GET /v1/subscriptions": "reader",
        "GET /v1/subscriptions/{name}": "reader",
        "PUT /v1/subscriptions/{name}": "writer",
        "DELETE /v1/subscriptions/{name}": "writer",
        "POST /v1/subscriptions/{name}/ack": "writer",
        "GET /v1/subscriptions/{name}/changes": "reader",
    }
