"""Where the facts of an explanation come from: the sources that assert them, and the transactions that brought them.

In: facts of a pinned snapshot. Out: for each, JSON that is added to it. Always: of transactions that the principal may
not read, nothing is shown; the facts are of relations that it may read, and so are their sources.

Costs: one look-up for each source of a relation. The transactions, which are looked for only if they are wanted, cost
one way back through the kept epochs, as far as the youngest of them that explains all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.data.values import Tuple
from engine.explain.explainer import Fact
from engine.storage.client import DatabaseClient
from engine.storage.snapshot import Snapshot
from service.history import Transactions, asserted_since
from service.principal import Principal
from service.sources import sources_of_tuples

MOST = 200
"""Facts of one answer whose transactions are looked for."""


class Origins:
    """See the module. With `transactions`, also since when each fact has been there."""

    def __init__(
        self, client: DatabaseClient, snapshot: Snapshot, principal: Principal, transactions: bool
    ) -> None:
        self._client, self._snapshot = client, snapshot
        self._known = Transactions(client, principal) if transactions else None

    async def __call__(self, facts: Sequence[Fact]) -> list[dict[str, Any]]:
        """What is known of each of the facts."""
        keys = [(relation, tuple(values)) for relation, values, _ in facts]
        by_relation: dict[str, list[Tuple]] = {}
        for relation, values in keys:
            by_relation.setdefault(relation, []).append(values)
        sources = {
            relation: await sources_of_tuples(self._snapshot, relation, rows)
            for relation, rows in by_relation.items()
        }
        found: list[dict[str, Any]] = []
        for relation, values in keys:
            own = sources[relation].get(values)
            found.append({"sources": dict(sorted(own.items()))} if own else {})
        if self._known is not None:
            # Of a fact that only contributes to a fold, the epochs keep no history.
            there = [(key, told) for key, fact, told in zip(keys, facts, found, strict=True) if fact[2]]
            await self._tell_since(self._known, there[:MOST])
        return found

    async def _tell_since(
        self, known: Transactions, facts: Sequence[tuple[tuple[str, Tuple], dict[str, Any]]]
    ) -> None:
        epochs, oldest = await asserted_since(self._client, self._snapshot, [key for key, _ in facts])
        for key, told in facts:
            at = epochs.get(key)
            told["since"] = {
                "epoch": oldest if at is None else at.epoch,
                "exact": at is not None,
                "time": None if at is None else at.time,
                "transactions": None if at is None else await known.of(at.epoch),
            }
