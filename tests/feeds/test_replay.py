"""What a listener rebuilds from the events is, after every epoch, what a reader of that epoch gets: of relations, with
bound columns, and of queries with negation, aggregates and computed texts. A feed that ends does so because a reader
is refused, with the same error."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from service.feeds.request import About, about
from tests.feeds.conftest import MakeWorld
from tests.feeds.world import World, check, state_at
from tests.types.histories import History, as_transaction

GRAPH = (
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z).",
    "far(x, count(y)) :- tc(x, y).",
    "near(x, min(n)) :- weight(x, n).",
)
FEEDS: list[tuple[list[str], dict[str, str], str | None]] = [
    (["tc"], {}, None),
    (["edge", "tc", "far", "near"], {}, None),
    (["tc"], {"x": "a"}, None),
    (["tc", "edge"], {"x": "b", "y": "c"}, None),
    (["near"], {"n": "2"}, None),
    ([], {}, 'tc("a", x)'),
    ([], {}, 'tc("a", "b")'),
    ([], {}, "tc(x, y)"),
    ([], {}, "tc(x, x)"),
    ([], {}, "tc(_, y)"),
    ([], {}, 'tc("a", _)'),
    ([], {}, "tc(x, y), !edge(x, y)"),
    ([], {}, 'tc("a", x), !edge("a", x), x != "c"'),
    ([], {}, "n = count : { tc(_, _) }"),
    ([], {}, "q(x, count(y)) :- tc(x, y), !edge(y, x)"),
    ([], {}, "edge(x, _), n = max w : { weight(x, w) }"),
    ([], {}, 'edge(x, y), s = cat(x, y), n = strlen(s); far(x, n), y = x, s = "-"'),
    ([], {}, 'edge(x, y), edge(z, _), z = cat(x, "")'),
    ([], {}, "edge(x, y), edge(cat(x, y), z)"),
    ([], {}, "near(x, n), m = 6 / (n - 2)"),
]
NAMES = ("a", "b", "c", "ab", "bc", "abc")


def graph_step(world: World, rng: random.Random, held: Counter[Any]) -> None:
    """Some facts come and some go; often all with some name, so that the database forgets the name."""
    facts: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        row: tuple[Any, ...] = (rng.choice(NAMES), rng.choice(NAMES))
        facts.append({"relation": "edge", "tuples": [list(row)], "weight": 1})
        held["edge", row] += 1
    row = (rng.choice(NAMES), rng.randint(0, 5))
    facts.append({"relation": "weight", "tuples": [list(row)], "weight": 1})
    held["weight", row] += 1
    gone = rng.choice(NAMES) if rng.random() < 0.5 else None
    for (relation, known), weight in list(held.items()):
        if weight and (gone in known or rng.random() < 0.15):
            facts.append({"relation": relation, "tuples": [list(known)], "weight": -weight})
            held[relation, known] = 0
    if rng.random() < 0.2:
        facts = [{"relation": "other", "tuples": [[rng.randint(0, 9)]], "weight": 1}]
        for key in list(held):
            del held[key]
        held.update({})
    world.apply(facts=facts, mode="set")


@pytest.mark.parametrize("seed", range(2))
def test_every_epoch_is_rebuilt(make_world: MakeWorld, seed: int) -> None:
    world = make_world()
    rng = random.Random(seed)
    declarations = ".decl edge(x: symbol, y: symbol)\n.decl weight(x: symbol, n: number)"
    world.apply(rules=[{"rule": rule} for rule in GRAPH], declarations=declarations)
    held: Counter[Any] = Counter()
    feeds = [about(relations, where.items(), query) for relations, where, query in FEEDS]
    ends: Counter[str] = Counter()
    for _ in range(12):
        graph_step(world, rng, held)
    half = world.reasoner.epoch
    # What began before goes on with what comes; what begins later begins anywhere.
    for _ in range(12):
        graph_step(world, rng, held)
    newest = world.reasoner.epoch
    for wanted in feeds:
        for after in (1, rng.randint(2, half), rng.randint(half, newest)):
            if _refused(world, wanted, after):
                continue
            ends[check(world, wanted, after, world.listen(wanted, after), newest)] += 1
    assert ends["end"] > 40


def _refused(world: World, wanted: About, epoch: int) -> bool:
    from engine.errors import ZedlogError

    try:
        world.run(state_at(world, wanted, epoch))
    except ZedlogError:
        return True
    return False


CHANGING: list[tuple[list[str], dict[str, str], str | None]] = [
    (["a"], {}, None),
    (["a", "b", "c", "d", "e", "m", "lo", "f"], {}, None),
    (["a"], {"x": "1"}, None),
    (["b"], {"c0": "1"}, None),
    ([], {}, "a(x, y)"),
    ([], {}, "a(1, y)"),
    ([], {}, "b(x)"),
    ([], {}, "c(x, y), !f(y, x)"),
    ([], {}, "b(x), n = count : { f(x, _) }"),
    ([], {}, "q(x, min(y)) :- a(x, y); f(x, y)"),
    ([], {}, "f(x, _), m(x, n)"),
]


@pytest.mark.parametrize("seed", range(3))
def test_types_of_columns_and_whole_relations_come_and_go(make_world: MakeWorld, seed: int) -> None:
    world = make_world()
    history = History(seed)
    for change in history.transactions(40):
        after = history.state.after(change)
        if after is not None and world.commit(as_transaction(change)) is not None:
            history.state = after
    newest = world.reasoner.epoch
    assert newest > 10
    ends: Counter[str] = Counter()
    for relations, where, query in CHANGING:
        wanted = about(relations, where.items(), query)
        for after in range(1, newest, 4):
            if _refused(world, wanted, after) or _unknown(world, wanted, after):
                continue
            ends[check(world, wanted, after, world.listen(wanted, after), newest)] += 1
    assert ends["end"] > 3
    assert len(ends) > 1, "no feed was ended by a change of types"


def _unknown(world: World, wanted: About, after: int) -> bool:
    """Whether a relation is neither there then nor now, so that the feed is refused."""
    schemas = {
        **world.run(world.client.snapshot(after)).schemas,
        **world.run(world.client.snapshot()).schemas,
    }
    return not set(wanted.relations) <= set(schemas)
