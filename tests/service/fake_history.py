"""The kept transactions of the database in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.data.transaction import Transaction
from engine.storage.history import Told
from engine.storage.outcome import Outcome


class FakeHistory:
    """`told` has every transaction with its outcome, in the order of the log."""

    def __init__(self, reach: Callable[[], None]) -> None:
        self._reach = reach
        self.told: list[Told] = []

    def note(self, transaction_id: str, tx: Transaction, outcome: Outcome) -> None:
        meta: dict[str, Any] = {
            n: v for n in ("author", "message", "source") if (v := getattr(tx, n)) is not None
        }
        meta |= {"facts": {change.relation: len(change.tuples) for change in tx.facts}, "time": 1.5}
        if outcome.status == "refused":
            meta["problem"] = {"code": outcome.body["code"], "message": outcome.body["message"]}
        else:
            meta |= {"epoch": outcome.body["epoch"], "changes": outcome.body["changes"]}
        self.told.append(Told(transaction_id, outcome.status, meta))

    async def transactions(self, newest: str = "+", oldest: str = "-", limit: int = 1000) -> list[Told]:
        self._reach()
        place = _place(newest.removeprefix("("), (2**64, 0))
        low = _place(oldest, (0, 0))
        found = [
            told
            for told in reversed(self.told)
            if low <= _place(told.id, low) <= place and newest != f"({told.id}"
        ]
        return found[:limit]

    async def of_epoch(self, epoch: int) -> list[Told] | None:
        self._reach()
        return [told for told in self.told if told.epoch == epoch and told.status == "committed"] or None


def _place(text: str, end: tuple[int, int]) -> tuple[int, int]:
    left, dash, right = text.partition("-")
    return (int(left), int(right)) if left and dash else end
