"""A feed's rules, one by one: where it begins and ends, what it says when nothing happens, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.errors import (
    BudgetExceededError,
    EpochNotRetainedError,
    EvaluationError,
    GapError,
    LimitReachedError,
    UnknownColumnError,
    UnknownRelationError,
    ZedlogError,
)
from engine.storage.retention import Retention
from service.access.errors import UnauthorizedError
from service.feeds.events import Event
from service.feeds.feeds import Listener, Options
from service.feeds.queries import QuerySource
from service.feeds.request import about
from service.feeds.selections import CHUNK
from tests.feeds.conftest import MakeWorld
from tests.feeds.world import World, typed

EDGE = about(["edge"], (), None)
JOIN = about([], (), "edge(x, y), edge(y, z)")


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def answers(event: Event) -> tuple[list[Any], list[Any]]:
    change = event.data["changes"]["answer"]
    return sorted(change["inserted"]), sorted(change["deleted"])


async def start(world: World, wanted: Any = EDGE, after: int | None = None, **options: Any) -> Listener:
    return await world.feeds.listen(
        wanted, after, Options(**{"state": False, "follow": True, "heartbeat": 15.0, **options})
    )


def test_the_state_comes_in_parts_and_goes_on_without_a_gap(world: World) -> None:
    world.edges(*((i, i + 1) for i in range(2 * CHUNK + 1)))
    events = world.listen(EDGE, None, state=True)
    assert names(events) == ["snapshot"] * 3 + ["end"]
    parts = [event.data for event in events[:3]]
    assert [part["last"] for part in parts] == [False, False, True]
    assert [part["part"] for part in parts] == [0, 1, 2]
    # Only with the last part is there a position to come back with.
    assert [event.token for event in events[:3]] == [None, None, parts[0]["token"]]
    assert len(typed([row for part in parts for row in part["tuples"]])) == 2 * CHUNK + 1
    assert {part["epoch"] for part in parts} == {world.reasoner.epoch}

    async def goes_on() -> list[Event]:
        listener = await start(world, JOIN, state=True)
        source = listener.events()
        first = [await anext(source) for _ in range(2)]
        world.edges((0, 1), weight=-1)
        rest = [await anext(source)]
        while rest[-1].name != "change":
            rest.append(await anext(source))
        await listener.close()
        return first + rest

    events = world.run(goes_on())
    rows = [row for event in events if event.name == "snapshot" for row in event.data["tuples"]]
    assert typed(rows) == typed([(i, i + 1, i + 2) for i in range(2 * CHUNK)])
    assert answers(events[-1]) == ([], [(0, 1, 2)])


def test_an_epoch_that_touches_nothing_is_only_progress(world: World) -> None:
    world.edges(("a", "b"))
    world.edges((1,), relation="other")
    world.edges((2,), relation="other")
    events = world.listen(EDGE, 1)
    assert names(events) == ["progress", "end"]
    assert events[-1].data["epoch"] == 3


@pytest.mark.parametrize("wanted", [EDGE, JOIN], ids=["relation", "query"])
def test_a_heartbeat_says_up_to_where_nothing_happened(world: World, wanted: Any) -> None:
    world.edges(("a", "b"))

    async def two() -> list[Event]:
        listener = await start(world, wanted, heartbeat=0.1)
        source = listener.events()
        first = await anext(source)
        world.edges((1,), relation="other")
        found = [first]
        while found[-1].data["epoch"] < 2 or len(found) < 3:
            found.append(await anext(source))
        await listener.close()
        return found

    events = world.run(two())
    assert set(names(events)) == {"progress"}
    assert events[0].data["epoch"] == 1
    assert events[-1].data["epoch"] == 2
    assert events[-1].token == events[-1].data["token"]


def test_one_event_an_epoch_and_its_position(world: World) -> None:
    world.edges(("a", "b"))
    world.edges(("b", "c"), ("c", "d"))
    world.edges(("a", "b"), weight=-1)
    events = world.listen(EDGE, 1)
    assert names(events) == ["progress", "change", "change", "end"]
    assert events[1].data["changes"]["edge"] == {"inserted": [("b", "c"), ("c", "d")], "deleted": []}
    assert events[2].data["changes"]["edge"] == {"inserted": [], "deleted": [("a", "b")]}
    assert [event.data["epoch"] for event in events] == [1, 2, 3, 3]


def test_a_gap_says_what_is_still_there(make_world: MakeWorld) -> None:
    world = make_world(retention=Retention(epochs=3, seconds=0))
    for i in range(10):
        world.edges((i, i + 1))
    for wanted in (EDGE, JOIN):
        with pytest.raises(GapError) as refused:
            world.listen(wanted, 2)
        newest = world.run(world.client.snapshot())
        expected = {"after": 2, "oldest": 8, "newest": 10, "token": newest.token}
        assert refused.value.detail == expected
    # A relation's changes need only the epochs after the position; a query needs the state there, too.
    assert names(world.listen(EDGE, 7)) == ["progress", "change", "change", "change", "end"]
    with pytest.raises(GapError):
        world.listen(JOIN, 7)
    assert names(world.listen(JOIN, 8)) == ["progress", "change", "change", "end"]


def test_a_listener_that_is_overtaken_by_retention_gets_a_gap_as_its_last_event(
    make_world: MakeWorld,
) -> None:
    world = make_world(retention=Retention(epochs=2, seconds=0))
    world.edges((0, 1))

    async def overtaken() -> list[Event]:
        listener = await start(world)
        source = listener.events()
        found = [await anext(source)]
        for i in range(5):
            world.edges((i, i + 7))
        found += [event async for event in source]
        await listener.close()
        return found

    events = world.run(overtaken())
    assert names(events) == ["progress", "gap"]
    gap = events[-1].data
    assert (gap["code"], gap["after"], gap["oldest"], gap["newest"]) == ("gap", 1, 5, 6)
    assert gap["position"]["epoch"] == 1
    assert events[-1].token is None


def test_what_cannot_be_listened_to_is_refused_before_anything_is_sent(world: World) -> None:
    world.edges(("a", "b"))
    cases: list[tuple[Any, int | None, type[ZedlogError]]] = [
        (about(["nothing"], (), None), None, UnknownRelationError),
        (about(["edge"], [("z", "1")], None), None, UnknownColumnError),
        (about([], (), "nothing(x), edge(x, _)"), None, UnknownRelationError),
        (EDGE, 7, EpochNotRetainedError),
        (about([], (), "edge(x, _), n = 1 / 0"), None, EvaluationError),
    ]
    for wanted, after, error in cases:
        with pytest.raises(error):
            world.listen(wanted, after)
    world.feeds.observe()
    assert not world.feeds._listeners
    assert not world.feeds._sources
    assert world.feeds._views.count == 0


def test_listeners_of_the_same_query_share_one_view_which_goes_with_the_last(world: World) -> None:
    world.edges(("a", "b"), ("b", "c"))

    async def both() -> None:
        # Names of columns matter, spaces do not.
        first = await start(world, JOIN)
        second = await start(world, about([], (), "edge(x,y),edge( y , z )"))
        other = await start(world, about([], (), "edge(x, y), edge(y, w)"))
        assert world.feeds._views.count == 2
        world.edges(("c", "d"))
        for listener in (first, second):
            events = listener.events()
            assert (await anext(events)).name == "progress"
            assert answers(await anext(events)) == ([("b", "c", "d")], [])
        await first.close()
        await other.close()
        assert world.feeds._views.count == 1
        await second.close()
        assert world.feeds._views.count == 0
        assert world.feeds._follower is None

    world.run(both())


def test_one_who_comes_from_further_behind_catches_up_and_joins(world: World) -> None:
    world.edges(("a", "b"), ("b", "c"))

    async def catch_up() -> None:
        world.edges(("c", "d"))
        ahead = await start(world, JOIN)
        behind = await start(world, JOIN, after=1)
        assert world.feeds._views.count == 2
        events = behind.events()
        assert (await anext(events)).data["epoch"] == 1
        assert answers(await anext(events)) == ([("b", "c", "d")], [])
        world.edges(("d", "e"))
        assert answers(await anext(events)) == ([("c", "d", "e")], [])
        mine = ahead.events()
        assert (await anext(mine)).data["epoch"] == 2
        assert answers(await anext(mine)) == ([("c", "d", "e")], [])
        source = behind._users.source
        assert isinstance(source, QuerySource)
        # The view that is not the furthest is let go of when nobody has used it for a while.
        for line in source._lines[1:]:
            line.used = -1e9
        world.edges(("e", "f"))
        assert answers(await anext(events)) == ([("d", "e", "f")], [])
        assert answers(await anext(mine)) == ([("d", "e", "f")], [])
        world.edges(("f", "g"))
        assert answers(await anext(events)) == ([("e", "f", "g")], [])
        assert world.feeds._views.count == 1
        await ahead.close()
        await behind.close()
        assert world.feeds._views.count == 0

    world.run(catch_up())


def test_there_are_limits_of_listeners_views_and_tuples(make_world: MakeWorld) -> None:
    limits = {"feed_listeners": 2, "feed_queries": 1, "query_tuples": 50, "feed_tuples": 20}
    world = make_world(settings=limits)
    world.edges(*((i, i + 1) for i in range(10)))

    async def too_many() -> None:
        first = await start(world, JOIN)
        with pytest.raises(LimitReachedError, match="keeps 1 queries"):
            await start(world, about([], (), "edge(x, _), edge(_, x)"))
        second = await start(world)
        with pytest.raises(LimitReachedError, match="2 listeners"):
            await start(world)
        await first.close()
        await second.close()

    world.run(too_many())
    world.edges(*((i, i + 1) for i in range(100, 130)))
    with pytest.raises(BudgetExceededError):
        world.listen(JOIN, None)
    # Within the budget at first, and beyond it later: a last event says so.
    events = world.listen(JOIN, 1)
    assert names(events) == ["progress", "problem"]
    assert events[-1].data["code"] == "budget_exceeded"
    assert events[-1].data["position"]["epoch"] == 1
    events = world.listen(EDGE, 1)
    assert names(events) == ["progress", "problem"]
    assert (events[-1].data["code"], events[-1].data["epoch"]) == ("change_too_large", 2)
    # It says where the state can be read instead.
    token = events[-1].data["token"]
    assert names(world.listen(EDGE, int(token.partition("-")[0]), state=True)) == ["snapshot", "end"]


def test_a_value_that_does_not_exist_ends_the_feed_of_a_query_until_it_does(world: World) -> None:
    wanted = about([], (), "edge(x, y), n = 6 / y, x < 100")
    world.edges((1, 2))
    world.edges((1, 0))
    world.edges((1, 0), weight=-1)
    world.edges((1, 3))
    events = world.listen(wanted, 1)
    assert names(events) == ["progress", "problem"]
    assert events[-1].data["code"] == "evaluation_error"
    with pytest.raises(EvaluationError):
        world.listen(wanted, 2)
    assert answers(world.listen(wanted, 3)[1]) == ([(1, 3, 2)], [])


def test_an_error_in_between_is_nothing_to_one_who_begins_later(world: World) -> None:
    wanted = about([], (), "edge(x, y), n = 6 / y")
    world.edges((1, 2))

    async def both() -> None:
        early = await start(world, wanted)
        world.edges((1, 0))
        world.edges((1, 0), weight=-1)
        late = await start(world, wanted, state=True)
        events = late.events()
        state = (await anext(events)).data
        assert (state["tuples"], state["last"], state["epoch"]) == ([(1, 2, 3)], True, 3)
        told = [event async for event in early.events()]
        assert names(told) == ["progress", "problem"]
        assert told[-1].data["position"]["epoch"] == 1
        await early.close()
        world.edges((1, 3))
        assert answers(await anext(events)) == ([(1, 3, 2)], [])
        await late.close()
        assert world.feeds._views.count == 0

    world.run(both())


def test_columns_that_change_places_end_a_feed_that_binds_them(world: World) -> None:
    world.apply(declarations=".decl edge(x: symbol, y: symbol)")
    world.edges(("a", "b"))
    world.apply(declarations=".decl edge(y: symbol, x: symbol)", undeclare=["edge"])
    events = world.listen(about(["edge"], [("x", "a")], None), 2)
    assert names(events) == ["progress", "problem"]
    assert events[-1].data["code"] == "meaning_changed"
    # Without bound columns it goes on, and says which columns there are.
    events = world.listen(EDGE, 2)
    assert names(events) == ["progress", "change", "end"]
    assert [column["name"] for column in events[1].data["columns"]["edge"]] == ["y", "x"]


def test_a_string_that_the_query_had_computed_may_come_into_the_database_and_go(world: World) -> None:
    wanted = about([], (), "edge(x, y), edge(cat(x, y), z)")
    world.edges(("a", "b"))
    world.edges(("ab", "c"))
    world.edges(("ab", "c"), weight=-1)
    world.edges(("q", "r"))  # now the database forgets "ab" and "c"
    world.edges(("ab", "d"))
    events = world.listen(wanted, 1)
    assert [answers(event) for event in events if event.name == "change"] == [
        ([("a", "b", "c")], []),
        ([], [("a", "b", "c")]),
        ([("a", "b", "d")], []),
    ]


def test_a_closing_service_says_so(world: World) -> None:
    world.edges(("a", "b"))

    async def closing() -> list[Event]:
        listener = await start(world)
        source = listener.events()
        found = [await anext(source)]
        asyncio.get_running_loop().call_later(0.05, listener.end)
        found += [event async for event in source]
        await listener.close()
        return found

    events = world.run(closing())
    assert names(events) == ["progress", "end"]
    assert events[-1].data["reason"] == "shutdown"


def test_a_feed_ends_after_the_service_s_time(make_world: MakeWorld) -> None:
    world = make_world(settings={"feed_seconds": 0.2})
    world.edges(("a", "b"))
    events = world.listen(EDGE, None, follow=True)
    assert names(events) == ["progress", "end"]
    assert events[-1].data["reason"] == "time"


def test_symbols_that_nothing_has_any_more_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.database.view._SPARE_SYMBOLS", 10)
    wanted = about([], (), 'edge(x, y), edge(y, z), s = cat(x, "!")')
    world.edges(("a", "a"))

    async def churn() -> int:
        listener = await start(world, wanted)
        events = listener.events()
        await anext(events)
        for i in range(60):
            world.edges((f"n{i}", "a"))
            assert answers(await anext(events)) == ([(f"n{i}", "a", "a", f"n{i}!")], [])
            world.edges((f"n{i}", "a"), weight=-1)
            assert answers(await anext(events)) == ([], [(f"n{i}", "a", "a", f"n{i}!")])
        source = listener._users.source
        assert isinstance(source, QuerySource)
        held = source._lines[0].view.symbols.held
        await listener.close()
        return held

    assert world.run(churn()) < 30


def test_a_token_s_limit_of_rows_holds_for_the_state_and_for_each_event(world: World) -> None:
    world.edges(("a", "b"), ("b", "c"))
    world.edges(("c", "d"), ("d", "e"), ("e", "f"))
    assert names(world.listen(EDGE, 0, rows=3)) == ["progress", "change", "change", "end"]
    events = world.listen(EDGE, 0, rows=2)
    assert names(events) == ["progress", "change", "problem"]
    assert (events[-1].data["code"], events[-1].data["limit"]) == ("change_too_large", 2)
    # What was not sent comes after the position.
    assert events[-1].data["position"]["epoch"] == 1
    (refused,) = world.listen(EDGE, None, state=True, rows=4)
    assert (refused.name, refused.data["code"], refused.data["position"]) == (
        "problem",
        "change_too_large",
        None,
    )
    assert names(world.listen(EDGE, None, state=True, rows=5)) == ["snapshot", "end"]


def test_nothing_is_sent_to_whoever_may_no_longer_listen(world: World) -> None:
    world.edges(("a", "b"))
    world.edges(("b", "c"))
    asked = 0

    async def revoked() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise UnauthorizedError("the token is not known here")

    events = world.listen(EDGE, 0, still=revoked)
    assert names(events) == ["progress", "change", "problem"]
    assert (events[-1].data["code"], events[-1].data["position"]["epoch"]) == ("unauthorized", 1)
