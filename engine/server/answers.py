"""Turns what the reasoner did with a transaction into the `Outcome` that its client gets.

The body is JSON-ready and complete: it is stored once, and every reader and every retry gets the same.
"""

from __future__ import annotations

from typing import Any

from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.errors import ZedlogError
from engine.storage.outcome import Outcome
from engine.storage.token import format_token


def answer(transaction: Transaction, result: EpochResult | ZedlogError, incarnation: str) -> Outcome:
    """The outcome of one transaction in the database with this incarnation id."""
    if isinstance(result, ZedlogError):
        problem = {"code": result.code, "message": str(result)}
        return Outcome("refused", result.problem(), {**_meta(transaction), "problem": problem})
    # A dry run's epoch will not be published; its token names the state that it looked at.
    readable = result.epoch - 1 if result.dry_run else result.epoch
    body: dict[str, Any] = {
        "epoch": result.epoch,
        "token": format_token(readable, incarnation),
        "changes": {name: {"inserted": i, "deleted": d} for name, (i, d) in result.counts.items()},
        "strategy": result.strategy,
        "placement": result.placement,
        "cost": result.cost,
        "reason": result.reason,
        "elapsed_ms": {"engine": round(result.elapsed_ms, 3)},
    }
    if transaction.return_delta:
        body["delta"] = {name: _delta(changes) for name, changes in sorted(result.changes.items()) if changes}
    meta = {**_meta(transaction), "epoch": result.epoch, "changes": body["changes"]}
    return Outcome("dry_run" if result.dry_run else "committed", body, meta)


def _meta(transaction: Transaction) -> dict[str, Any]:
    """What a transaction says of itself, and how much it asks for; without what it does not say."""
    facts: dict[str, int] = {}
    for change in transaction.facts:
        facts[change.relation] = facts.get(change.relation, 0) + len(change.tuples)
    for batch in transaction.batches:
        facts[batch.relation] = facts.get(batch.relation, 0) + sum(file.rows for file in batch.files)
    said = {
        "author": transaction.author,
        "message": transaction.message,
        "source": transaction.source,
        "replaces": transaction.replaces,
        "rollback": transaction.rollback,
        "facts": {relation: number for relation, number in facts.items() if number} or None,
        "rules": len(transaction.rules) or None,
        "declarations": True if transaction.declarations or transaction.undeclare else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _delta(changes: list[tuple[Any, int]]) -> dict[str, list[Any]]:
    return {
        "inserted": [row for row, weight in changes if weight > 0],
        "deleted": [row for row, weight in changes if weight < 0],
    }
