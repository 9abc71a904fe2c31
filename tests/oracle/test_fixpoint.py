"""Count, sum and mean in recursion against the iteration by heights: values, supports and entries after every epoch.

Where a height is a round of the text, a second oracle that knows the text alone agrees. One batch, the same changes
one at a time, and a fresh bootstrap end in the same state; what does not come to rest is refused, without a trace.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from engine.circuit.compile import compile_circuit
from engine.errors import (
    BudgetExceededError,
    EvaluationError,
    FixpointNotReachedError,
    StratificationError,
    ZedlogError,
)
from engine.language.syntax import Fixpoint
from engine.maintenance.placement import Budget
from tests.full import FULL
from tests.oracle.fixpoint_programs import FixpointHistory, fixpoint_histories
from tests.oracle.iteration import Iterated, NotReachedError, iterated
from tests.oracle.rules import Model
from tests.oracle.stratified import DivergesError, UnstratifiedError, stratified_model
from tests.oracle.stratified_programs import Change, Totals
from tests.oracle.subject import (
    assert_same_state,
    changes_of,
    difference,
    everything,
    model_of,
    restarted,
)
from tests.oracle.terms import NoValueError
from tests.oracle.test_master_property_dialect import share
from zedlog import Reasoner

HEIGHTS = 60
REFUSALS: dict[type[Exception], tuple[type[ZedlogError], ...]] = {
    StratificationError: (StratificationError,),
    NoValueError: (EvaluationError,),
    NotReachedError: (FixpointNotReachedError,),
    # A value may leave 64 bits before the heights run out.
    DivergesError: (BudgetExceededError, EvaluationError, FixpointNotReachedError),
}


def new_reasoner(history: FixpointHistory) -> Reasoner:
    reasoner = Reasoner(budget=Budget(height=HEIGHTS))
    reasoner.apply(declarations=history.declarations())
    return reasoner


def expected_of(history: FixpointHistory, totals: Totals) -> Iterated | Exception:
    try:
        reasoner = new_reasoner(history)
        circuit = compile_circuit(totals.trees(), reasoner.relations(), fixpoints=history.limits)
        return iterated(circuit, totals.by_relation(), HEIGHTS)
    except (StratificationError, NoValueError, DivergesError) as error:
        return error


def by_rounds(history: FixpointHistory, totals: Totals) -> Model | type[Exception]:
    """The other oracle's word; what it refuses is a class of its own."""
    try:
        return stratified_model(
            totals.trees(), totals.by_relation(), rounds=HEIGHTS, fixpoints=history.limits
        )
    except (UnstratifiedError, NoValueError, DivergesError) as error:
        return type(error)


def step(
    reasoner: Reasoner, history: FixpointHistory, totals: Totals, change: Change
) -> tuple[Totals, Iterated | None]:
    """Apply a change: what is accepted must be right, what is to be refused must be, without a trace."""
    after = totals.with_(change)
    expected = expected_of(history, after)
    if isinstance(expected, Exception):
        before = everything(reasoner)
        with pytest.raises(REFUSALS[type(expected)]) as refused:
            reasoner.apply(**change.arguments())
        event(f"refused: {refused.value.code}")
        if isinstance(expected, NotReachedError):
            assert "max_height" in str(refused.value)
        assert everything(reasoner) == before
        reasoner.check_invariants()
        return totals, None
    result = reasoner.apply(**change.arguments())
    assert model_of(reasoner, sorted(reasoner.relations())) == expected.model
    reasoner.check_invariants()
    old = expected_of(history, totals)
    assert isinstance(old, Iterated)
    assert changes_of(result) == difference(old.model, expected.model)
    state = reasoner.state()
    assert _filled(state["supports"]) == _filled(expected.supports)
    assert _filled(state["entries"]) == _filled(expected.entries)
    event(f"came to rest after {expected.heights // 5 * 5} heights or more")
    return after, expected


def bootstrap(history: FixpointHistory, totals: Totals) -> Reasoner:
    reasoner = new_reasoner(history)
    reasoner.apply(**totals.as_change().arguments())
    return reasoner


@share(0.4)
@given(fixpoint_histories())
def test_oracle_fixpoint_after_every_epoch(history: FixpointHistory) -> None:
    note(history)
    reasoner, totals = new_reasoner(history), Totals()
    for change in history.changes:
        totals, expected = step(reasoner, history, totals, totals.fitting(change))
        if expected is not None:
            assert_same_state(reasoner, bootstrap(history, totals))
            if not history.deeper:
                assert by_rounds(history, totals) == expected.model
                event("compared with rounds of the text")
    assert_same_state(reasoner, restarted(reasoner))


@share(0.2)
@given(fixpoint_histories(), st.randoms(use_true_random=False))
def test_batch_vs_singletons_vs_shuffled_fixpoint(history: FixpointHistory, rng: random.Random) -> None:
    note(history)
    totals = Totals()
    for change in history.changes:
        totals = totals.with_(change)
    if isinstance(expected_of(history, totals), Exception):
        return
    parts = [Change((f,), ()) for f in totals.as_change().facts]
    parts += [Change((), (r,)) for r in totals.as_change().rules]
    rng.shuffle(parts)
    singletons = new_reasoner(history)
    for part in parts:
        try:
            singletons.apply(**part.arguments())
        except (StratificationError, FixpointNotReachedError, BudgetExceededError, EvaluationError):
            # What is on the way may not come to rest although the last program does.
            return
    event("singletons came through")
    assert_same_state(bootstrap(history, totals), singletons)
    singletons.check_invariants()


@share(0.15)
@given(fixpoint_histories())
def test_retraction_of_everything_leaves_nothing_fixpoint(history: FixpointHistory) -> None:
    note(history)
    reasoner, totals = new_reasoner(history), Totals()
    for change in history.changes:
        change = totals.fitting(change)
        before = everything(reasoner)
        try:
            promised = changes_of(reasoner.dry_run(**change.arguments()))
        except ZedlogError:
            promised = None
        assert everything(reasoner) == before
        try:
            assert changes_of(reasoner.apply(**change.arguments())) == promised
        except ZedlogError:
            assert promised is None
            continue
        totals = totals.with_(change)
    kept = totals.as_change()
    gone = Change(tuple((f, -w) for f, w in kept.facts), tuple((t, -w) for t, w in kept.rules))
    reasoner.apply(**gone.arguments())
    assert not any(any(part.values()) for part in reasoner.state().values())
    assert math.isfinite(reasoner.memory())
    reasoner.check_invariants()


DEEP = (
    "rank(x, sum(k)) :- e(x, _), k = 0.15.",
    "rank(y, sum(k)) :- rank(x, c), e(x, y), out(x, n), k = 0.85 * (c / n).",
    "out(x, sum(k)) :- e(x, y), k = 1.0.",
    "high(x) :- rank(x, r), r > 0.9, !b(x).",
    "fans(y, count(x)) :- high(x), e(x, y).",
    "fans(y, count(x)) :- fans(x, n), n >= 2, e(x, y).",
    "share(y, sum(k)) :- fans(x, n), n >= 2, e(x, y), k = 0.1.",
    "rank(y, sum(k)) :- share(x, c), e(x, y), k = 0.01 * c.",
)
DEEP_LIMITS = {
    "rank": Fixpoint(1e-4, 120),
    "out": Fixpoint(),
    "fans": Fixpoint(0.0, 120),
    "share": Fixpoint(1e-3, 120),
}


@pytest.mark.parametrize("seed", range(6 if FULL else 1))
def test_oracle_fixpoint_of_many_heights(seed: int) -> None:
    """Four relations that feed each other over dozens of heights, while edges come and go."""
    rng = random.Random(seed)
    columns = {"rank": "float", "out": "float", "fans": "number", "share": "float"}
    declarations = [
        f".decl {name}(x: number, v: {kind}) fixpoint(tolerance={DEEP_LIMITS[name].tolerance}, "
        f"max_height={DEEP_LIMITS[name].max_height})"
        for name, kind in columns.items()
    ]
    declarations += [".decl e(x: number, y: number)", ".decl b(x: number)", ".decl high(x: number)"]
    reasoner, totals = Reasoner(), Totals()
    reasoner.apply(declarations="\n".join(declarations))
    ring = [(i, (i + 1) % 8) for i in range(8)]
    chords = rng.sample([(i, j) for i in range(8) for j in range(8) if j != (i + 1) % 8], 14)
    change = Change(tuple((("e", row), 1) for row in (*ring, *chords[:8])), tuple((t, 1) for t in DEEP))
    for number in range(3):
        totals = totals.with_(change)
        result = reasoner.apply(**change.arguments())
        circuit = compile_circuit(totals.trees(), reasoner.relations(), fixpoints=DEEP_LIMITS)
        expected = iterated(circuit, totals.by_relation())
        assert expected.heights > 15
        state = reasoner.state()
        assert _filled(state["supports"]) == _filled(expected.supports)
        assert _filled(state["entries"]) == _filled(expected.entries)
        assert result.epoch == number + 2
        edges = [(("e", chords[8 + number]), 1), (("e", chords[number]), -1), (("b", (number,)), 1)]
        change = Change(tuple(edges), ((DEEP[5], -1 if number % 2 == 0 else 1),))
    assert_same_state(reasoner, restarted(reasoner))


def _filled(part: dict[str, Any]) -> dict[str, Any]:
    return {name: rows for name, rows in part.items() if rows}
