"""Sequences of epochs: sizes after each change, a restart in the middle, and memory that stays flat."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from tests.conformance.programs import CLOSURE, NON_LINEAR, weighted
from tests.oracle.subject import assert_same_state, restarted
from zedlog import Reasoner

STEPS: list[list[tuple[tuple[int, int], int]]] = [
    [((1, 2), 1)],
    [((2, 3), 1)],
    [((1, 3), 1)],
    [((3, 1), 1)],
    [((3, 1), -1)],
    [((1, 2), -1)],
    [((2, 4), 1), ((4, 1), 1)],
    [((2, 3), -1), ((3, 2), 1)],
]
SIZES = [1, 3, 3, 9, 3, 2, 6, 16]


@pytest.mark.parametrize("recursive", [CLOSURE[1][0], NON_LINEAR], ids=["linear", "non-linear"])
@pytest.mark.parametrize("restart_after", [None, *range(len(STEPS))])
def test_edge_changes_and_the_sizes_of_reach(restart_after: int | None, recursive: str) -> None:
    reasoner = Reasoner()
    reasoner.apply(rules=[CLOSURE[0], (recursive, 1)])
    sizes = []
    for position, step in enumerate(STEPS):
        result = reasoner.apply(facts={"e": step})
        sizes.append(reasoner.count("tc"))
        inserted, deleted = result.counts.get("tc", (0, 0))
        assert inserted - deleted == sizes[-1] - (sizes[-2] if position else 0)
        if position == restart_after:
            before = reasoner
            reasoner = restarted(before)
            assert reasoner.epoch == before.epoch
            assert_same_state(reasoner, before)
    assert sizes == SIZES


def test_a_chain_of_a_hundred_ten_times_ends_empty_with_memory_flat() -> None:
    reasoner = Reasoner()
    reasoner.apply(rules=CLOSURE)
    chain = [(i, i + 1) for i in range(100)]
    empty = reasoner.state()
    held, arrays = [], []
    tracemalloc.start()
    try:
        for _ in range(10):
            reasoner.apply(facts={"e": weighted(chain)})
            assert reasoner.count("tc") == 5_050
            reasoner.apply(facts={"e": weighted(chain, -1)})
            assert (reasoner.count("tc"), reasoner.count("e")) == (0, 0)
            reasoner.check_invariants()
            assert reasoner.state() == empty
            gc.collect()
            arrays.append(reasoner.memory())
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # The first rounds fill caches and let tables grow; from then on nothing may.
    assert arrays[9] == arrays[2], arrays
    assert held[9] <= held[2] + 50_000, held
