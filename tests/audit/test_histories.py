"""No false alarm: whatever history led to a state, an audit of it finds nothing, in memory and in the snapshot."""

from __future__ import annotations

import itertools
from typing import Any

import redis
from hypothesis import given, note, settings
from hypothesis import strategies as st

from engine.errors import ZedlogError
from engine.storage.embedded import EmbeddedServer
from tests.audit.published import Published
from tests.audit.test_digests import scratch
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from zedlog import Reasoner

_numbers = itertools.count(1)


def share(fraction: float) -> settings:
    """A part of the profile's number of examples, so that `nightly` scales every test alike."""
    return settings(max_examples=max(1, int(settings().max_examples * fraction)))


def published(client: redis.Redis, url: str, switch: float) -> Published:
    reasoner = Reasoner(placement="resident", threads=1, switch=switch)
    return Published(client, url, f"history-{next(_numbers)}", reasoner, filled=False)


def check(state: Published) -> None:
    report = state.audit()
    assert report.to_json()["differences"] == []
    assert (report.differing, report.uncompared) == (0, [])
    assert state.digests() == scratch(state.reasoner)


def follow(state: Published, changes: list[dict[str, Any]], audited: set[int], resumed: int) -> None:
    """Apply changes; audit after some of them, and go on from a checkpoint after one of them."""
    for step, change in enumerate(changes):
        try:
            state.apply(**change)
        except ZedlogError:
            continue
        if step == resumed:
            state.resume()
            assert state.check_recovered().differing == 0
        if step in audited:
            check(state)
    check(state)
    state.restart()
    assert state.check_recovered().differing == 0
    check(state)


@share(0.2)
@given(histories(), st.sampled_from([0.0, 0.2, float("inf")]), st.sets(st.integers(0, 7)), st.integers(0, 7))
def test_of_positive_programs(
    client: redis.Redis,
    server: EmbeddedServer,
    history: History,
    switch: float,
    audited: set[int],
    resumed: int,
) -> None:
    note(history)
    changes: list[dict[str, Any]] = [
        {"facts": epoch.fact_changes(), "rules": epoch.rule_changes()} for epoch in history.epochs
    ]
    changes[0]["declarations"] = history.declarations()
    follow(published(client, server.url, switch), changes, audited, resumed)


@share(0.3)
@given(
    dialect_histories(),
    st.sampled_from([0.0, 0.2, float("inf")]),
    st.sets(st.integers(0, 4)),
    st.integers(0, 4),
)
def test_of_programs_with_negation_and_aggregates(
    client: redis.Redis,
    server: EmbeddedServer,
    history: DialectHistory,
    switch: float,
    audited: set[int],
    resumed: int,
) -> None:
    note(history)
    changes = [{"declarations": history.declarations()}, *(c.arguments() for c in history.changes)]
    follow(published(client, server.url, switch), changes, audited, resumed)
