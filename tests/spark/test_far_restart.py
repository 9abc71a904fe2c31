"""A database on Spark whose facts and symbols are not in the engine process is published, and starts again from what is
published: beside it the same on the resident placement, with equal digests after every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from engine.data.symbols import SymbolTable
from engine.data.transaction import Transaction, rule_changes
from engine.server.recovery import read_state
from engine.spark.session.session import SparkOptions, SparkSource
from tests.embedded import client, database, server
from tests.history.stand import Stand
from tests.spark import test_far_facts as far
from tests.spark.conftest import classic, patient
from zedlog import Reasoner

__all__ = ["client", "database", "server"]
pytestmark = [patient, classic]


class FarStand(Stand):
    """The same on Spark, with everything far."""

    def __init__(
        self, client: redis.Redis, database: str, options: SparkOptions, session: SparkSource
    ) -> None:
        self._spark = SparkSource(options, session.session())
        super().__init__(client, database, reasoner=Reasoner("spark", spark=self._spark))

    def restart(self) -> None:
        self._open(self.reasoner)
        self.reasoner.close()
        self.reasoner = Reasoner.restore(read_state(self.publisher), "spark", spark=self._spark)


@pytest.fixture
def both(source: SparkSource, client: redis.Redis, database: str) -> Iterator[tuple[Stand, Stand]]:
    options = replace(source.options, import_rows=0, partitions=3)
    stands = Stand(client, f"{database}-a"), FarStand(client, f"{database}-b", options, source)
    yield stands
    for stand in stands:
        stand.reasoner.close()


def _digests(stand: Stand) -> dict[str, int | None]:
    return {name: entry.digest for name, entry in stand.publisher.manifest.relations.items()}


def test_differential_restart_between_imports(both: tuple[Stand, Stand], tmp_path: Path) -> None:
    files = far.Stand(tmp_path, both[0].reasoner)
    rows = [((f"n{i % 7} é", f"n{i % 5} é"), 1 + i % 3) for i in range(40)]

    def step(transaction: Transaction, epoch: int) -> None:
        for stand in both:
            outcome = stand.step(files.store.load(transaction))
            assert getattr(outcome, "epoch", outcome) == epoch
        assert None not in _digests(both[0]).values()
        assert _digests(both[0]) == _digests(both[1])

    def far_symbols() -> SymbolTable:
        return both[1].reasoner.database.symbols

    batch = files.batch("edge", far.EDGE, rows)
    step(Transaction(batches=(batch,), rules=rule_changes([*far.PATHS.items()]), source="hr"), 1)
    assert far_symbols().is_far
    for stand in both:
        stand.restart()
    assert far_symbols().is_far
    assert not far_symbols().near[0]
    assert both[1].reasoner.asserted_by("hr", "edge") == both[0].reasoner.asserted_by("hr", "edge")
    assert sorted(both[1].reasoner.facts("path")) == sorted(both[0].reasoner.facts("path"))
    step(Transaction.parse(facts=[{"relation": "edge", "tuples": [["n1 é", "new"], ["n2 é", "n1 é"]]}]), 2)
    more = [(("new", "newer"), 1), (("n0 é", "new"), 2), (("n0 é", "n0 é"), -1)]
    step(Transaction(batches=(files.batch("edge", far.EDGE, more),), source="hr"), 3)
    for stand in both:
        stand.restart()
    step(Transaction.parse(facts=[{"relation": "edge", "tuples": [["newer", "last"]]}]), 4)
    assert dict(both[1].reasoner.weighted("edge")) == dict(both[0].reasoner.weighted("edge"))
    texts = [text for text in far_symbols().all() if text is not None]
    assert len(set(texts)) == len(texts) == 10
