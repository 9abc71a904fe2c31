"""What the log, the snapshot and the engine report to their callers: small immutable records.

They are plain data, the same on the writer's and on the readers' side. An `Outcome` is what became of one
transaction; its body is the JSON that answers the client, made once by the engine, so every reader and every
retry of the same transaction gets the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

OutcomeStatus = Literal["committed", "dry_run", "refused"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The log has the transaction. `replayed`: an earlier append with the same Idempotency-Key wrote it."""

    transaction_id: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction.

    `body` of `committed` and `dry_run`: epoch, token, changes {relation: {inserted, deleted}}, strategy,
    placement, cost {derivations}, elapsed_ms {engine}, and, where the transaction asked for it,
    delta {relation: {inserted: [tuple, ...], deleted: [tuple, ...]}}. `body` of `refused`: the error's
    `problem()`: code, message and its details.

    `meta`: what lists of transactions show (engine/storage/history.py); it is written with the outcome, and not read
    with it.
    """

    status: OutcomeStatus
    body: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Running:
    """What the engine evaluates now: the transactions `first` to `last` of the log, since `since` (seconds since 1970),
    for `seconds`. relations: those of the stratum that it is at; empty where the epoch has only just begun."""

    first: str
    last: str
    since: float
    seconds: float
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine as the readers see it.

    `running`: a live engine holds the lease and applies transactions now. `state`: `absent`, `recovering`, `running`,
    `stopped`, `failed` or `lost` (its heartbeat stopped without notice). `epoch`: the newest published one, -1 before
    the first. `lag`: transactions in the log that have no outcome yet. `error`: why it failed, or what it waits for.
    `evaluating`: what runs now, if anything does. `faults`: how many transactions have ever been refused because of
    faults of Zedlog itself. `fault`: the newest fault (time, first and last transaction, message, and whether it
    refused one). `recovered`: how the engine got its state at its start; None if it keeps no checkpoints.
    """

    running: bool
    state: str
    epoch: int
    lag: int
    error: str | None
    evaluating: Running | None = None
    faults: int = 0
    fault: dict[str, Any] | None = None
    recovered: str | None = None
