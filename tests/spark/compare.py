"""Two reasoners, one on Spark and one resident: the same state, and the same told of an epoch."""

from __future__ import annotations

from engine import Reasoner
from engine.epoch import EpochResult

Rows = dict[str, dict[tuple[int, ...], tuple[int, bool, int, bool, bool]]]


def assert_same_state(spark: Reasoner, resident: Reasoner) -> None:
    """Facts, supports and entries, tuple by tuple; Spark keeps no indexes."""
    ours, theirs = spark.state(), resident.state()
    for part in ("facts", "supports", "entries"):
        assert ours[part] == theirs[part], part


def assert_same_epoch(spark: EpochResult, resident: EpochResult) -> None:
    """Every row that a publisher gets, with weights and flags."""
    assert spark.epoch == resident.epoch
    assert _rows(spark) == _rows(resident)
    assert spark.record.placement == "spark"


def _rows(result: EpochResult) -> Rows:
    told: Rows = {}
    for name, change in result.record.relations.items():
        keys = list(map(tuple, change.codes.tolist()))
        assert len(set(keys)) == len(keys), "a tuple is told twice"
        values = zip(
            change.asserted.tolist(),
            change.derived.tolist(),
            change.present.tolist(),
            change.was_asserted.tolist(),
            change.was_derived.tolist(),
            strict=True,
        )
        told[name] = dict(zip(keys, values, strict=True))
    return told
