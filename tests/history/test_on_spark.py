"""Sources and rollbacks on the Spark placement: the same weights, states and refusals as in the process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
import redis

from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.spark.session.session import SparkSource
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from tests.history.model import Model, random_body, transaction
from tests.history.stand import Stand, state_of
from tests.history.test_sources import holds, run
from tests.spark.conftest import MASTER, java, options, reasoners  # noqa: F401  # `java` is a fixture
from zedlog import Reasoner


@pytest.fixture(scope="module")
def on_spark(java: None) -> Iterator[Callable[..., Reasoner]]:  # noqa: F811  # the fixture
    source = SparkSource(options(MASTER))
    yield from reasoners(source)
    source.close()


@pytest.mark.parametrize(("manner", "seed"), [("small", 1), ("large", 3)])
def test_weights_by_source_are_those_of_the_model(
    on_spark: Callable[..., Reasoner], manner: str, seed: int
) -> None:
    rng = random.Random(seed)
    here, there, model = Reasoner("resident"), on_spark(manner), Model()
    for step in range(4):
        bodies = [random_body(rng) for _ in range(rng.choice((1, 3)))]
        before = model
        model, accepted = run(there, bodies, before)
        assert run(here, bodies, before) == (model, accepted)
        holds(there, model)
        if step == 2:
            # From one placement to the other and back.
            there.move_to("resident")
            holds(there, model)
            there.check_invariants()
    assert here.export().facts.keys() == there.export().facts.keys()
    dry = there.commit([transaction(random_body(rng), dry_run=True)]).outcomes[0]
    assert isinstance(dry, EpochResult) or dry.code
    holds(there, model)


def test_a_rollback(
    on_spark: Callable[..., Reasoner], server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    stand = Stand(client, database, reasoner=on_spark("large"))
    edges = [{"relation": "edge", "tuples": [["a", "b"], ["b", "c"]]}]
    stand.step(Transaction.parse(edges, [{"rule": "tc(x, y) :- edge(x, y)."}], source="hr"))
    more = [{"relation": "edge", "tuples": [["c", "d"]]}, {"relation": "n", "tuples": [[1]]}]
    stand.step(Transaction.parse(more, source="hr", replaces="source"))

    async def states() -> list[dict[str, object]]:
        reader = DatabaseClient.connect(server.url, database)
        found = [await state_of(reader, epoch) for epoch in range(1, stand.reasoner.epoch + 1)]
        await reader.close()
        return found

    assert isinstance(stand.step(Transaction.parse(rollback=1)), EpochResult)
    first, second, third = asyncio.run(states())
    assert third == first != second
    assert stand.reasoner.asserted_by("hr", "edge") == {("a", "b"): 1, ("b", "c"): 1}
