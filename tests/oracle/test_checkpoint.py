"""A checkpoint of any epoch, taken up at any later one, is the state of the reasoner that lived on, and goes on as it.

Each random history is applied to one reasoner. At one epoch its checkpoint is written to a file; at the same or a later
epoch a new reasoner is made of the file and of what the snapshot has then. It must have the state of the first one, and
that of a fresh bootstrap, and report the same changes for all epochs that follow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import event, given, note
from hypothesis import strategies as st

from engine.database.saved import SavedState
from engine.errors import ZedlogError
from engine.maintenance.placement import Budget
from engine.storage.checkpoint_file import read_checkpoint, write_checkpoint
from tests.oracle.fixpoint_programs import FixpointHistory, fixpoint_histories
from tests.oracle.programs import History, histories
from tests.oracle.stratified_programs import DialectHistory, dialect_histories
from tests.oracle.subject import assert_same_state, changes_of, restarted
from tests.oracle.test_master_property_dialect import share
from zedlog import Reasoner

Places = tuple[int, int]
places = st.tuples(st.integers(0, 8), st.integers(0, 4))
"""The epoch of the checkpoint, and how many epochs later it is taken up."""


def snapshot(reasoner: Reasoner, named: bool) -> SavedState:
    """What the snapshot has; named: with names for the contents of the relations, as the storage gives them."""
    state = reasoner.export()
    if not named:
        return state
    versions = {
        name: f"{sorted(reasoner.weighted(name))} {sorted(reasoner.facts(name, 'derived'))}"
        for name in state.counts
    }
    return replace(state, versions=versions)


def check(declarations: str, epochs: Iterable[dict[str, Any]], at: Places, named: bool) -> None:
    living = Reasoner(budget=Budget(height=300))
    living.apply(declarations=declarations)
    resumed: Reasoner | None = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        for number, arguments in enumerate(epochs):
            try:
                expected = living.apply(**arguments)
            except ZedlogError:
                expected = None
            if resumed is not None and expected is not None:
                assert changes_of(resumed.apply(**arguments)) == changes_of(expected)
            if number == at[0]:
                checkpoint = living.checkpoint(versions=snapshot(living, named).versions)
                assert checkpoint is not None
                write_checkpoint(path, checkpoint)
            if number == sum(at):
                state = snapshot(living, named)
                resumed = Reasoner.resume(read_checkpoint(path), state, budget=Budget(height=300))
                resumed.check_invariants()
                assert_same_state(living, resumed)
                assert_same_state(restarted(living), resumed)
                assert (resumed.epoch, resumed.rules()) == (living.epoch, living.rules())
                assert resumed.export().symbols == state.symbols
                weights = [w for name in resumed.relations() for _, w in resumed.weighted(name)]
                assert resumed.database.heaviest >= max(weights, default=0)
                event(f"taken up {at[1]} epochs later")
    if resumed is not None:
        resumed.check_invariants()
        assert_same_state(living, resumed)


@share(0.5)
@given(histories(), places, st.booleans())
def test_replay_from_a_checkpoint(history: History, at: Places, named: bool) -> None:
    note(history)
    epochs = [{"facts": e.fact_changes(), "rules": e.rule_changes()} for e in history.epochs]
    check(history.declarations() if history.declared else "", epochs, at, named)


@share(0.5)
@given(dialect_histories(), places, st.booleans())
def test_replay_from_a_checkpoint_dialect(history: DialectHistory, at: Places, named: bool) -> None:
    note(history)
    check(history.declarations(), [change.arguments() for change in history.changes], at, named)


@share(0.2)
@given(fixpoint_histories(), places, st.booleans())
def test_replay_from_a_checkpoint_fixpoint(history: FixpointHistory, at: Places, named: bool) -> None:
    note(history)
    check(history.declarations(), [change.arguments() for change in history.changes], at, named)
