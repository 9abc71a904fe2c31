"""What a reasoner takes up of a checkpoint, and what it refuses to take up; random histories are in tests/oracle."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.database.checkpoint import Checkpoint
from engine.errors import EvaluationCancelledError
from engine.maintenance.placement import Budget
from engine.resident.checkpoint import CheckpointUnusable, ResidentParts
from tests.oracle.subject import assert_same_state
from zedlog import Reasoner

CLOSURE = [("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)]


def made(*edges: tuple[Any, Any], rules: Any = CLOSURE) -> Reasoner:
    r = Reasoner("resident")
    r.apply(facts={"edge": [(edge, 1) for edge in edges]}, rules=rules)
    return r


def copied(checkpoint: Checkpoint) -> Checkpoint:
    """With arrays of its own, as from a file."""
    about, arrays = checkpoint.parts
    parts = ResidentParts(copy.deepcopy(about), [array.copy() for array in arrays])
    return replace(checkpoint, parts=parts)


def checkpoint_of(r: Reasoner) -> Checkpoint:
    checkpoint = r.checkpoint()
    assert checkpoint is not None
    return copied(checkpoint)


def test_a_checkpoint_is_not_changed_by_the_epochs_after_it() -> None:
    r = made(*((i, i + 1) for i in range(100)))
    checkpoint, state = checkpoint_of(r), r.export()
    for i in range(50):
        r.apply(facts={"edge": [((i, i + 1), -1), ((i, i + 1000), 2)]})
    other = Reasoner.resume(checkpoint, state)
    assert_same_state(other, made(*((i, i + 1) for i in range(100))))
    # What it took up is all it needs: it goes on to the same end.
    for i in range(50):
        other.apply(facts={"edge": [((i, i + 1), -1), ((i, i + 1000), 2)]})
    assert_same_state(other, r)


def test_a_relation_whose_types_changed() -> None:
    """It goes on under another key in the circuit: in the checkpoint, and between it and the snapshot."""
    r = Reasoner("resident")
    r.apply(facts={"n": [((1,), 1), ((2,), 1)]}, rules=[("m(x, x) :- n(x).", 1)])
    kept = [checkpoint_of(r)]
    for value in ("a", 1.5, "b", 7):
        held = [(row, -1) for row in r.facts("n")]
        r.apply(facts={"n": [*held, ((value,), 1)]})
        kept.append(checkpoint_of(r))
        state = r.export()
        for checkpoint in kept:
            other = Reasoner.resume(copied(checkpoint), state)
            assert_same_state(other, r)
            assert other.facts("m") == [(value, value)]
            other.apply(facts={"n": [((value,), 1)]})
            assert other.weighted("n") == [((value,), 2)]
            other.check_invariants()


def test_the_costs_of_bootstraps_come_back() -> None:
    """So the choice between update and bootstrap is the one of the reasoner that lived on."""
    r = made(*((i, i + 1) for i in range(60)))
    other = Reasoner.resume(checkpoint_of(r), r.export())
    assert other.effort() == r.effort() > 60 * 59 / 2
    gone = {"edge": [((i, i + 1), -1) for i in range(10, 50)]}
    one, two = r.apply(facts=gone), other.apply(facts=gone)
    assert (one.cost, one.strategy, one.reason) == (two.cost, two.strategy, two.reason)


def test_a_relation_of_equal_version_is_not_compared() -> None:
    """Its facts are not even read."""
    r = made((1, 2), (2, 3))
    checkpoint = replace(checkpoint_of(r), versions={"edge": "v1", "tc": "v1"})
    r.apply(facts={"other": [((1,), 1)]})
    state = r.export()

    class Facts(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            assert name == "other"
            return super().__getitem__(name)

    state = replace(state, facts=Facts(state.facts), versions={"edge": "v1", "tc": "v1", "other": "v1"})
    assert_same_state(Reasoner.resume(checkpoint, state), r)


def test_weights_that_changed() -> None:
    r = made((1, 2), (2, 3))
    checkpoint = checkpoint_of(r)
    r.apply(facts={"edge": [((1, 2), 4), ((2, 3), 2**62)]})
    other = Reasoner.resume(checkpoint, r.export())
    assert sorted(other.weighted("edge")) == [((1, 2), 5), ((2, 3), 2**62 + 1)]
    assert other.database.heaviest >= 2**62 + 1
    assert_same_state(other, r)


def refused(checkpoint: Checkpoint, r: Reasoner, **options: Any) -> str:
    with pytest.raises(CheckpointUnusable) as why:
        Reasoner.resume(checkpoint, r.export(), **options)
    return str(why.value)


def test_what_is_refused() -> None:
    r = made(("a", "b"), ("b", "c"))
    checkpoint = checkpoint_of(r)
    assert refused(replace(checkpoint, layout="x"), r) == "it was written by another version of Zedlog"
    assert refused(replace(checkpoint, incarnation="x"), r) == "it belongs to another database"
    newer = "it is of epoch 7, but the newest published epoch is 1"
    assert refused(replace(checkpoint, epoch=7), r) == newer
    other = "this version of Zedlog makes another circuit of its rules"
    assert refused(replace(checkpoint, rules=checkpoint.rules[:1]), r) == other
    other = "symbols that it has were forgotten since, or are other ones"
    assert refused(checkpoint, made(("b", "a"), ("c", "b"))) == other
    assert refused(checkpoint, made(("a", "b"))) == other
    assert refused(checkpoint, r, placement="spark").startswith("the state is to be on Spark")
    small = Budget(memory=1000)
    assert refused(checkpoint, r, budget=small) == "the state does not fit into the memory budget"


def test_arrays_of_another_form_are_refused() -> None:
    r = made((1, 2), (2, 3))
    checkpoint = checkpoint_of(r)
    about, arrays = checkpoint.parts
    wrong = [arrays[0].astype(np.int32), *arrays[1:]]
    form = "its arrays do not have the form of this version's"
    assert refused(replace(checkpoint, parts=ResidentParts(about, wrong)), r) == form
    assert refused(replace(checkpoint, parts=ResidentParts(about, arrays[:-1])), r) == form
    named = {**about, "relations": [{**one, "name": "x"} for one in about["relations"]]}
    text = "its relations and indexes are not those of its rules"
    assert refused(replace(checkpoint, parts=ResidentParts(named, arrays)), r) == text


def test_a_snapshot_that_says_otherwise_is_noticed() -> None:
    r = made((1, 2), (2, 3))
    checkpoint = checkpoint_of(r)
    state = replace(r.export(), counts={"edge": (2, 2), "tc": (4, 0)})
    with pytest.raises(CheckpointUnusable, match="tc would have 3 tuples, but the snapshot has 4"):
        Reasoner.resume(checkpoint, state)
    state = replace(state, counts={"tc": (3, 0)})
    with pytest.raises(CheckpointUnusable, match="edge would have 2 tuples, but the snapshot has 0"):
        Reasoner.resume(checkpoint, state)


def test_a_request_to_stop_is_heard() -> None:
    r = made(*((i, i + 1) for i in range(100)))
    checkpoint = checkpoint_of(r)
    r.apply(facts={"edge": [((-1, 0), 1)]})
    with pytest.raises(EvaluationCancelledError):
        Reasoner.resume(checkpoint, r.export(), budget=Budget(cancelled=lambda: True))
