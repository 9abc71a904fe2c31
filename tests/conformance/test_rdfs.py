"""RDFS over LUBM-1: six rules over one relation of triples, 100,838 facts, 126,732 triples in all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.programs import RDFS, Rows, distinct, read_lubm
from zedlog import Reasoner

RULES = [(rule, 1) for rule in RDFS]
BATCH = 10_000


@pytest.fixture(scope="module")
def triples(data: Path) -> Rows:
    rows = distinct(read_lubm(data))
    assert rows.shape == (100_838, 3)
    return rows


@pytest.fixture(scope="module")
def at_once(triples: Rows) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts={"t": triples}, rules=RULES)
    return reasoner


@pytest.fixture(scope="module")
def state_at_once(at_once: Reasoner) -> dict[str, Any]:
    return at_once.state()


def test_one_transaction(at_once: Reasoner) -> None:
    assert at_once.count("t") == 126_732
    assert len(at_once.facts("t", domain="asserted")) == 100_838


def test_lines_that_stand_twice_are_weights_of_two(data: Path, at_once: Reasoner) -> None:
    lines = read_lubm(data)
    reasoner = Reasoner()
    reasoner.apply(facts={"t": lines}, rules=RULES)
    assert reasoner.count("t", domain="asserted") == 100_838
    assert set(reasoner.facts("t")) == set(at_once.facts("t"))
    assert sum(weight for _, weight in reasoner.weighted("t", domain="asserted")) == len(lines) > 100_838


@pytest.mark.parametrize("rules_before_batch", [0, 5, 11], ids=["rules first", "rules between", "rules last"])
def test_batch_vs_batches_of_ten_thousand(
    triples: Rows, state_at_once: dict[str, Any], rules_before_batch: int
) -> None:
    reasoner = Reasoner()
    batches = [triples[start : start + BATCH] for start in range(0, len(triples), BATCH)]
    assert len(batches) == 11
    for position, batch in enumerate(batches):
        if position == rules_before_batch:
            reasoner.apply(rules=RULES)
        reasoner.apply(facts={"t": batch})
    if rules_before_batch == len(batches):
        reasoner.apply(rules=RULES)
    assert reasoner.count("t") == 126_732
    assert reasoner.state() == state_at_once


def test_retraction_of_a_random_hundredth_and_its_return(triples: Rows, at_once: Reasoner) -> None:
    """Without them the result is a fresh reasoner's; with them again, it is the first one's."""
    chosen = np.random.default_rng(20).choice(len(triples), 1_008, replace=False)
    some = [(tuple(map(int, triples[i])), -1) for i in chosen]
    gone = at_once.apply(facts={"t": some})
    fresh = Reasoner()
    fresh.apply(facts={"t": np.delete(triples, chosen, axis=0)}, rules=RULES)
    assert at_once.count("t") == fresh.count("t") < 126_732
    assert set(at_once.facts("t")) == set(fresh.facts("t"))
    back = at_once.apply(facts={"t": [(row, 1) for row, _ in some]})
    assert at_once.count("t") == 126_732
    assert {row for row, _ in back.changes["t"]} == {row for row, _ in gone.changes["t"]}
