"""Two reasoners, one on Spark and one resident: the same state, and the same told of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.data.values import decode
from engine.database.epoch import EpochResult
from zedlog import Reasoner

Rows = dict[str, dict[tuple[Any, ...], tuple[int, bool, int, bool, bool]]]


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


def apply_both(spark: Reasoner, resident: Reasoner, change: Mapping[str, Any]) -> None:
    """Apply a change to both; they tell the same, by values: new symbols may have other codes."""
    ours, theirs = spark.apply(**change), resident.apply(**change)
    assert ours.epoch == theirs.epoch
    assert _rows(ours, spark) == _rows(theirs, resident)
    assert ours.record.placement == "spark"


def _rows(result: EpochResult, reasoner: Reasoner | None = None) -> Rows:
    told: Rows = {}
    for name, stored in result.record.relations.items():
        change = stored.here()
        counted = change.rows, change.inserted, change.deleted, change.heaviest, change.net
        assert counted == (stored.rows, stored.inserted, stored.deleted, stored.heaviest, stored.net), name
        keys = list(map(tuple, change.codes.tolist()))
        if reasoner is not None:
            types = [column.type for column in result.record.changed_schemas[name].columns]
            keys = decode(change.codes, types, reasoner.database.symbols)
        assert len(set(keys)) == len(keys), "a tuple is told twice"
        values = zip(
            change.asserted.tolist(),
            change.derived.tolist(),
            change.present.tolist(),
            change.was_asserted.tolist(),
            change.was_derived.tolist(),
            change.height.tolist(),
            change.was_height.tolist(),
            strict=True,
        )
        told[name] = dict(zip(keys, values, strict=True))
    return told
