"""The session of the tests on Spark, and reasoners whose strata are where a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import Any

import pytest

from engine.mixed.placement import MixedPlacement
from engine.spark.session.session import SparkSource
from tests.spark.conftest import LOCAL_ROWS, java, source
from zedlog import Reasoner

__all__ = ["java", "source"]

Choose = Callable[[MixedPlacement], Set[str]]
Make = Callable[..., Reasoner]


@pytest.fixture
def placed(source: SparkSource) -> Iterator[Make]:
    """Makes reasoners on `auto` that ask before each epoch which relations are to be on Spark: `placed(choose)`."""
    made: list[Reasoner] = []

    def make(choose: Choose, manner: str = "small", **more: Any) -> Reasoner:
        spark = SparkSource(replace(source.options, local_rows=LOCAL_ROWS[manner]), source.session())
        reasoner = Reasoner("auto", spark=spark, threads=1, **more)
        places = reasoner.database.places

        def begin(asked: Any, dry_run: bool, budget: Any, encode: Any) -> None:
            places.why = ""
            mixed = places._mixed() or places._spread()
            mixed.place(choose(mixed), "the test says so", encode)
            places.now = mixed

        places.begin = begin  # type: ignore[method-assign]
        made.append(reasoner)
        return reasoner

    yield make
    for reasoner in made:
        reasoner.close()


def mixed_of(reasoner: Reasoner) -> MixedPlacement:
    placement = reasoner.database.placement
    assert isinstance(placement, MixedPlacement)
    return placement
