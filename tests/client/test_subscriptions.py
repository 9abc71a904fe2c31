"""Named subscriptions through both clients: what is not acknowledged comes again."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import httpx
import pytest

from tests.client.conftest import Both
from tests.client.lossy import Lossy, Script
from tests.client.test_changes import CAUGHT_UP, change, event, feed
from tests.live import LiveSystem
from zedlog import Client
from zedlog.client import errors
from zedlog.client.events import Progress, Snapshot

Make = Callable[..., Both]
_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A relation, and a subscription, that no other test uses."""
    return f"subscribed{next(_numbers)}"


def test_what_is_not_acknowledged_comes_again(both: Both, client: Client, name: str) -> None:
    client.program(f".decl {name}(s: symbol, n: number)")
    first = client.add(name, [("a", 1)])
    made = both.subscribe(name, name, where={"s": "a"}, start=first, limit=50)
    assert (made.name, made.relations, made.where, made.query) == (name, [name], {"s": "a"}, None)
    assert (made.limit, made.behind, made.gap, made.acknowledged) == (50, 0, False, first.token)
    last = [client.add(name, [row]) for row in [("a", 2), ("b", 2), ("a", 3)]][-1]
    assert both.subscription(name).behind == 3
    changes = both.subscription_changes(name, follow=False)
    assert [one.inserted for one in list(changes)] == [[(name, ("a", 2))], [(name, ("a", 3))]]
    changes = list(both.subscription_changes(name, follow=False))
    assert len(changes) == 2
    assert both.ack(name, changes[0]).behind == 2
    assert [one.epoch for one in list(both.subscription_changes(name, follow=False))] == [last.epoch]
    # An older position changes nothing, and a transaction is one.
    assert both.ack(name, changes[0].token).behind == 2
    assert both.ack(name, last).acknowledged == last.token
    assert list(both.subscription_changes(name, follow=False)) == []
    events = list(both.subscription_changes(name, True, follow=False, progress=True))
    assert isinstance(events[0], Snapshot)
    assert sorted(events[0].tuples) == [("a", 1), ("a", 2), ("a", 3)]
    assert all(isinstance(one, Progress) for one in events[1:])
    # Made again, it has another limit and the same position.
    again = both.subscribe(name, [name], where={"s": "a"}, limit=70)
    assert (again.limit, again.acknowledged) == (70, last.token)
    with pytest.raises(errors.Conflict, match=name):
        both.subscribe(name, name)
    assert name in [one.name for one in both.subscriptions()]
    assert both.unsubscribe(name).limit == 70
    assert name not in [one.name for one in both.subscriptions()]
    for call in (both.subscription, both.unsubscribe, lambda one: both.ack(one, last)):
        with pytest.raises(errors.NotFound, match=name):
            call(name)


def test_a_subscription_to_a_query(both: Both, client: Client, name: str) -> None:
    client.add(name, [("a", 1)])
    both.subscribe(name, query=f'{name}("a", n), n > 1')
    client.add(name, [("a", 1), ("a", 2)])
    (found,) = list(both.subscription_changes(name, follow=False))
    assert found.inserted == [("answer", (2,))]
    both.unsubscribe(name)


def test_each_change_comes_once_wherever_it_is_cut(
    live: LiveSystem, client: Client, scripted: Make, name: str
) -> None:
    client.program(f".decl {name}(n: number, s: symbol)")
    client.subscribe(name, name)
    epochs = [client.add(name, [(number, "x" * 200)]).epoch for number in range(20)]
    network = Lossy(cuts=[10, 900, 5, 2_000, 700], path=f"/v1/subscriptions/{name}/changes")
    follower = scripted(network, url=live.url)
    assert [one.epoch for one in list(follower.subscription_changes(name, follow=False))] == epochs
    assert network.cuts == 5
    client.unsubscribe(name)


def test_where_it_goes_on_is_told_to_the_service(scripted: Make) -> None:
    network = Script(
        feed(change(6), change(7)[:-9], token="5-a"),
        feed(change(7), event("problem", epoch=7, status=503, code="listener_too_slow", detail="slow")),
        feed(change(8), CAUGHT_UP),
        feed(CAUGHT_UP),
    )
    client = scripted(network)
    assert [one.epoch for one in list(client.subscription_changes("a b", heartbeat=2.0))] == [6, 7, 8]
    assert list(client.subscription_changes("a b")) == []
    # A new call begins where the subscription does.
    assert [r.headers.get("last-event-id") for r in network.requests] == [None, "6-a", "7-a", None]
    assert {r.url.raw_path.partition(b"?")[0] for r in network.requests} == {
        b"/v1/subscriptions/a%20b/changes"
    }
    assert all("after" not in r.url.params for r in network.requests)


def test_a_gap(scripted: Make) -> None:
    gap = {"code": "gap", "detail": "no longer kept", "status": 410, "oldest": 7, "newest": 9}
    with pytest.raises(errors.Gap, match="no longer kept"):
        list(scripted(Script(httpx.Response(410, json=gap))).subscription_changes("s"))
