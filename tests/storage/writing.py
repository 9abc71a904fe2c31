"""For storage tests: a dict model of relations, and the epoch records that change it.

The model is {relation: {tuple of codes: (asserted weight, derived)}}. Relations have number columns, so codes
are values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import redis

from engine.database.epoch import EpochRecord, RuleInfo
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.change import RelationChange
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.publisher import Publisher
from engine.storage.retention import Retention

State = tuple[int, bool]
Model = dict[str, dict[tuple[int, ...], State]]
GONE: State = (0, False)


def number_schema(relation: str, arity: int) -> Schema:
    return Schema(relation, tuple(Column(f"x{i}", ColumnType.NUMBER) for i in range(arity)))


def change(
    model: Model, relation: str, arity: int, states: Mapping[tuple[int, ...], State]
) -> RelationChange:
    """Put tuples into these states: changes the model, and says so as the reasoner would."""
    tuples = model.setdefault(relation, {})
    rows = [row for row, state in states.items() if tuples.get(row, GONE) != state]
    was = [tuples.get(row, GONE) for row in rows]
    present = [int(states[row] != GONE) - int(tuples.get(row, GONE) != GONE) for row in rows]
    for row in rows:
        tuples[row] = states[row]
        if states[row] == GONE:
            del tuples[row]
    return RelationChange(
        np.array(rows, np.int64).reshape(len(rows), arity),
        np.array([states[row][0] for row in rows], np.int64),
        np.array([states[row][1] for row in rows], np.bool_),
        np.array(present, np.int8),
        np.array([state[0] for state in was], np.int64),
        np.array([state[1] for state in was], np.bool_),
    )


def epoch_record(
    epoch: int,
    changes: Mapping[str, RelationChange],
    schemas: Mapping[str, Schema] | None = None,
    rules: tuple[RuleInfo, ...] = (),
    first_symbol: int = 0,
    symbols: Sequence[str] = (),
) -> EpochRecord:
    known = schemas or {name: number_schema(name, c.codes.shape[1]) for name, c in changes.items()}
    return EpochRecord(
        epoch=epoch,
        relations=changes,
        rules=rules,
        schemas=known,
        changed_schemas={name: known[name] for name in changes},
        declarations="",
        first_symbol=first_symbol,
        symbols=tuple(symbols),
        strategy="update",
        placement="resident",
        derivations=3,
        reason="a test",
        elapsed_ms=0.25,
    )


def new_publisher(
    client: redis.Redis, database: str, retention: Retention | None = None, url: str | None = None
) -> Publisher:
    # As if the last writer had died long ago.
    client.delete(Keys(database).lease)
    lease = Lease(client, database, 60.0)
    lease.take()
    return Publisher(client, database, lease, retention, url=url)
