"""Feeds of both clients: every change once and in order, wherever the connection is cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from tests.client.conftest import Both
from tests.client.lossy import Lossy, Script
from tests.live import LiveSystem
from zedlog import Client
from zedlog.client import errors
from zedlog.client.events import Change, Progress, Snapshot

Make = Callable[..., Both]
_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A relation that no other test uses."""
    return f"fed{next(_numbers)}"


def written(client: Client, name: str, seed: int, epochs: int = 25) -> list[set[tuple[int, str]]]:
    """Some transactions; the contents of the relation after each."""
    chance, rows, states = random.Random(seed), set[tuple[int, str]](), []
    for _ in range(epochs):
        added = {
            (chance.randrange(30), "x" * chance.randrange(200)) for _ in range(chance.randrange(1, 8))
        } - rows
        gone = set(chance.sample(sorted(rows), chance.randrange(len(rows) // 2 + 1)))
        with client.transaction() as t:
            t.add(name, sorted(added))
            t.remove(name, sorted(gone))
        rows = (rows | added) - gone
        states.append(set(rows))
    return states


@pytest.mark.parametrize("seed", range(4))
def test_each_change_comes_once_whatever_is_cut(
    live: LiveSystem, client: Client, scripted: Make, name: str, seed: int
) -> None:
    begun = client.program(f".decl {name}(n: number, s: symbol)")
    states = written(client, name, seed)
    lost: list[tuple[str, str | None]] = []
    chance = random.Random(seed)
    network = Lossy(cuts=(chance.randrange(4_000) for _ in itertools.count()))
    follower = scripted(network, url=live.url)
    events = list(
        follower.changes(
            name, after=begun, follow=False, lost=lambda why, position: lost.append((why, position))
        )
    )
    assert network.cuts > 3, "the seed cuts nothing"
    assert len(lost) >= network.cuts
    epochs = [event.epoch for event in events]
    assert epochs == sorted(set(epochs))
    rows: set[Any] = set()
    seen = []
    for event in events:
        assert isinstance(event, Change)
        delta = event.changes[name]
        assert not rows & set(delta.inserted)
        assert rows >= set(delta.deleted)
        rows = (rows | set(delta.inserted)) - set(delta.deleted)
        seen.append(set(rows))
    changed = [now for before, now in itertools.pairwise([set(), *states]) if now != before]
    assert seen == changed


def test_a_state_that_is_cut_begins_again(
    live: LiveSystem, client: Client, scripted: Make, name: str
) -> None:
    rows = [(i, "y" * 30) for i in range(12_000)]
    client.add(name, rows)
    network = Lossy(cuts=[10, 250_000, 5, 460_000])
    follower = scripted(network, url=live.url)
    state: list[Any] = []
    parts = []
    for event in follower.changes(name, snapshot=True, follow=False):
        if isinstance(event, Snapshot):
            if event.part == 0:
                state = []
            assert event.position is None or event.last
            parts.append(event.part)
            state += event.tuples
    assert network.cuts == 4, parts
    assert parts == [0, 0, 1, 0, 1, 2], parts
    assert sorted(state) == rows


def test_a_querys_changes_progress_and_where(both: Both, client: Client, name: str) -> None:
    client.program(f".decl {name}(s: symbol, n: number)")
    begun = client.add(name, [("a", 1), ("b", 2)])
    client.add(name, [("a", 3)])
    client.add(f"other{name}", [("a", 3)])
    client.remove(name, [("a", 1)])
    answers = both_list(both.changes(query=f'{name}("a", n)', after=begun, follow=False, progress=True))
    assert [type(event) for event in answers] == [Progress, Change, Change, Progress][: len(answers)]
    changes = [event for event in answers if isinstance(event, Change)]
    assert [(c.inserted, c.deleted) for c in changes] == [([("answer", (3,))], []), ([], [("answer", (1,))])]
    bound = both_list(both.changes([name], where={"n": 3}, after=begun, follow=False))
    assert [event.inserted for event in bound] == [[(name, ("a", 3))]]
    assert "edge" not in bound[0]._repr_html_()
    assert "a&#x27;" in bound[0]._repr_html_()


def both_list(events: Any) -> list[Any]:
    return list(events)


def event(kind: str, **fields: Any) -> bytes:
    return orjson.dumps({"event": kind, **fields}) + b"\n"


def feed(*lines: bytes, token: str = "1-a") -> httpx.Response:
    return httpx.Response(200, content=b"".join(lines), headers={"zedlog-token": token})


CAUGHT_UP = event("end", epoch=9, token="9-a", reason="caught_up")


def change(epoch: int) -> bytes:
    return event("change", epoch=epoch, token=f"{epoch}-a", time=1.0, changes={})


def test_where_it_goes_on(scripted: Make) -> None:
    """After a feed that began and brought nothing: where it began. After half a line: behind the last whole one."""
    network = Script(
        feed(token="4-a"),
        feed(event("progress", epoch=5, token="5-a"), change(6), change(7)[:-9]),
        httpx.ConnectError("away"),
        httpx.Response(503, json={"code": "limit_reached", "status": 503}),
        feed(change(7), event("end", epoch=7, token="7-a", reason="shutdown")),
        feed(event("problem", epoch=7, status=503, code="listener_too_slow", detail="slow")),
        feed(change(8), CAUGHT_UP),
    )
    lost: list[tuple[str, str | None]] = []
    found = list(scripted(network).changes("p", lost=lambda *why: lost.append(why)))
    assert [one.epoch for one in found] == [6, 7, 8]
    assert [r.url.params.get("after") for r in network.requests] == [
        None, "4-a", "6-a", "6-a", "6-a", "7-a", "7-a",
    ]  # fmt: skip
    assert [position for _, position in lost] == ["4-a", "6-a", "6-a", "6-a", "7-a", "7-a"]
    assert "half of an event" in lost[1][0]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_gap_is_an_error_of_its_own(scripted: Make, at_once: bool) -> None:
    gap = {"code": "gap", "detail": "no longer kept", "status": 410, "oldest": 7, "newest": 9}
    answers = [httpx.Response(410, json=gap)] if at_once else [feed(change(3), event("gap", **gap))]
    seen: list[int] = []
    client = scripted(Script(*answers))
    with pytest.raises(errors.Gap, match="no longer kept") as caught:
        client.run(_into(client, seen))
    assert (caught.value.oldest, caught.value.newest) == (7, 9)
    assert seen == ([] if at_once else [3])


def _into(client: Both, seen: list[int]) -> Any:
    if client.kind == "blocking":
        seen += _each(client.client.changes("p", after=2), seen)
        return None

    async def work() -> None:
        async for one in client.client.changes("p", after=2):
            seen.append(one.epoch)

    return work()


def _each(events: Any, seen: list[int]) -> list[int]:
    for one in events:
        seen.append(one.epoch)
    return []


@pytest.mark.parametrize(
    ("refused", "kind_"),
    [
        (httpx.Response(404, json={"code": "unknown_relation", "status": 404}), errors.NotFound),
        (httpx.Response(503, json={"code": "limit_reached", "status": 503}), errors.Unavailable),
        (httpx.ConnectError("refused"), errors.Unreachable),
    ],
)
def test_a_feed_that_cannot_be_had_is_refused_at_once(
    scripted: Make, refused: httpx.Response | Exception, kind_: type[Exception]
) -> None:
    network = Script(refused)
    with pytest.raises(kind_):
        list(scripted(network).changes("p"))
    assert len(network.requests) == 1


def test_one_that_the_reader_leaves_is_closed(live: LiveSystem, client: Client, name: str) -> None:
    client.add(name, [("a",)])
    feed = client.changes(name, snapshot=True)
    assert next(feed).epoch > 0
    feed.close()  # type: ignore[attr-defined]
    assert client.rules() is not None
