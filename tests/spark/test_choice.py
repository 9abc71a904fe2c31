"""Where a stratum is worked on (engine/spark/work/choice.py): who is chosen, when the work moves, and the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.spark.supports import Subject
from engine.spark.work.driver import LocalWork
from engine.spark.work.frames import FrameWork
from engine.spark.work.pivoted import Pivoted
from engine.spark.work.semi_naive import SemiNaive
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
EDGES = {"e": [((i, i + 1), 1) for i in range(4)]}
COPY = ("t(x, y) :- e(x, y).", 1)
CLOSURE = [COPY, ("t(x, z) :- t(x, y), t(y, z).", 1)]
WITH_PIVOT = [COPY, ("t(x, z) :- t(x, y), e(y, z).", 1)]
CUT = {"e": [((1, 2), -1)]}
FAN = [("r(x) :- s(x).", 1), ("r(y) :- r(x), many(x, y).", 1)]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was given a stratum, as `relation: worker`, in this order."""
    names: list[str] = []

    def watched(worker: type, method: str) -> None:
        real = getattr(worker, method)

        def noted(self: Any, *more: Any) -> Any:
            relation = more[0].names[0] if isinstance(more[0], Subject) else self._names[0]
            names.append(f"{relation}: {worker.__name__}")
            return real(self, *more)

        monkeypatch.setattr(worker, method, noted)

    for worker in (LocalWork, FrameWork, SemiNaive):
        watched(worker, "__init__")
    watched(Pivoted, "run")
    return names


@patient
@pytest.mark.parametrize(
    ("manner", "steps"),
    [
        # In the driver while it is small, whatever is done.
        (
            "small",
            [
                ({"facts": EDGES, "rules": CLOSURE}, ["e: LocalWork", "t: LocalWork"]),
                ({"facts": CUT}, ["e: LocalWork", "t: LocalWork"]),
            ],
        ),
        # What only grows is large; then something is taken away.
        (
            "large",
            [
                ({"facts": EDGES, "rules": CLOSURE}, ["e: SemiNaive", "t: SemiNaive"]),
                ({"facts": CUT}, ["e: FrameWork", "t: FrameWork"]),
            ],
        ),
        # A pivot, and nothing there before: one job does the rest.
        ("large", [({"facts": EDGES, "rules": WITH_PIVOT}, ["e: SemiNaive", "t: SemiNaive", "t: Pivoted"])]),
        # One change is small, and what it derives is not: the work moves.
        (
            "mixed",
            [
                ({"facts": {"many": [((0, i), 1) for i in range(1, 9)]}, "rules": FAN}, None),
                ({"facts": {"s": [((0,), 1)]}}, ["s: LocalWork", "r: LocalWork", "r: FrameWork"]),
            ],
        ),
    ],
)
def test_who_works(
    on_spark: Make, chosen: list[str], manner: str, steps: list[tuple[dict[str, Any], list[str] | None]]
) -> None:
    spark, resident = on_spark(manner), Reasoner()
    for change, workers in steps:
        chosen.clear()
        assert_same_epoch(spark.apply(**change), resident.apply(**change))
        assert workers is None or chosen == workers
    assert_same_state(spark, resident)
    spark.check_invariants()
