"""History from what is kept: the transactions, and the changes of tuples in the epochs.

In: the snapshots of the epochs that are kept, and the outcomes of transactions. Out: JSON-ready entries. Always: of
transactions and relations that a principal may not read, nothing is shown.

Costs: a list looks at `LOOKED_AT` transactions at most. A history reads the manifest of each epoch from the newest back
to the one that is wanted, and of the changes only the blocks that may have the tuples.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from engine.data.values import Tuple, Value
from engine.errors import EpochNotRetainedError
from engine.language.schema import Schema
from engine.storage.client import DatabaseClient
from engine.storage.history import MOST, Told
from engine.storage.snapshot import Snapshot
from service.principal import Principal

LOOKED_AT = 20_000
"""Transactions that one answer looks at."""
_EPOCHS = 32
"""Manifests that are read together."""
_LOOKED_BACK = 1_000
"""Epochs in which the beginning of facts is looked for."""
_SHOWN = 20
"""Transactions that are shown of one epoch."""


async def kept(client: DatabaseClient, newest: str = "+", oldest: str = "-") -> AsyncIterator[Told]:
    """The transactions between two ids, newest first, `LOOKED_AT` at most."""
    for _ in range(0, LOOKED_AT, MOST):
        found = await client.history.transactions(newest, oldest)
        for told in found:
            yield told
        if len(found) < MOST:
            return
        newest = f"({found[-1].id}"


def short(told: Told) -> dict[str, Any]:
    """Who asked for a transaction, and why."""
    return {
        "transaction": told.id,
        **{name: told.meta.get(name) for name in ("author", "message", "source")},
    }


def entry(told: Told, principal: Principal) -> dict[str, Any] | None:
    """A transaction in a list; None if the principal may read none of the relations that it concerns."""
    meta = told.meta
    facts, changes = (_readable(meta.get(name), principal) for name in ("facts", "changes"))
    own = principal.reads is None or (meta.get("author") is not None and meta["author"] == principal.name)
    if not own and not facts and not changes:
        return None
    problem = meta.get("problem")
    if problem is not None and not own:
        # Its text may show tuples.
        problem = {"code": problem["code"], "message": None}
    return {
        **short(told),
        "status": told.status,
        "time": meta.get("time"),
        "epoch": told.epoch,
        "replaces": meta.get("replaces"),
        "rollback": meta.get("rollback"),
        "facts": facts or {},
        "rules": meta.get("rules", 0),
        "declarations": meta.get("declarations", False),
        "changes": changes,
        "problem": problem,
    }


def _readable(by_relation: Mapping[str, Any] | None, principal: Principal) -> dict[str, Any] | None:
    if by_relation is None:
        return None
    return {name: value for name, value in by_relation.items() if principal.may_read(name)}


async def epochs_back(client: DatabaseClient, newest: Snapshot) -> AsyncIterator[Snapshot]:
    """The snapshots of epochs from `newest` back to the oldest one that is kept."""
    yield newest
    epoch = newest.epoch - 1
    while epoch >= 0:
        wanted = range(epoch, max(epoch - _EPOCHS, -1), -1)
        found = await client.snapshots(wanted)
        for snapshot in found:
            yield snapshot
        if len(found) < len(wanted):
            return
        epoch -= len(wanted)


class Transactions:
    """The transactions of epochs, each looked up once."""

    def __init__(self, client: DatabaseClient, principal: Principal) -> None:
        self._client, self._principal = client, principal
        self._known: dict[int, list[dict[str, Any]] | None] = {}

    async def of(self, epoch: int) -> list[dict[str, Any]] | None:
        if epoch not in self._known:
            found = await self._client.history.of_epoch(epoch)
            if found is not None:
                seen = [told for told in found if entry(told, self._principal) is not None]
                self._known[epoch] = [short(told) for told in seen[:_SHOWN]]
            else:
                self._known[epoch] = None
        return self._known[epoch]


async def events(
    client: DatabaseClient, newest: Snapshot, relation: str, bound: Mapping[int, Value]
) -> AsyncIterator[tuple[Snapshot, int, Tuple, int, int, bool]]:
    """What epochs did to the tuples of a relation with the bound values, newest first: the epoch, the number of the
    event in it, the tuple, +1, -1 or 0, its weight and whether it is derived afterwards. The last epoch comes without
    events, too (the number is -1), so that a caller knows how far back it was looked.
    """
    async for snapshot in epochs_back(client, newest):
        try:
            changes = await snapshot.changes_of(relation, bound)
        except EpochNotRetainedError:
            # It went meanwhile, and so did all before it.
            return
        yield snapshot, -1, (), 0, 0, False
        # What went comes before what came, as it happened; the newest event is the first.
        for number, (values, present, weight, derived) in enumerate(reversed(changes)):
            yield snapshot, number, values, present, weight, derived


async def last_schema(client: DatabaseClient, newest: Snapshot, relation: str) -> Schema | None:
    """The schema of a relation in the newest epoch that has it; None if no epoch that is kept does."""
    async for snapshot in epochs_back(client, newest):
        schema = snapshot.schemas.get(relation)
        if schema is not None:
            return schema
    return None


async def since(
    client: DatabaseClient,
    newest: Snapshot,
    relation: str,
    bound: Mapping[int, Value],
    tuples: Iterable[Tuple],
) -> tuple[dict[Tuple, Snapshot], int]:
    """For each of the tuples, which are there now, the epoch in which it appeared last, if that is kept; and the oldest
    epoch that was looked at.
    """
    left = dict.fromkeys(tuples)
    found: dict[Tuple, Snapshot] = {}
    oldest = newest.epoch
    async for snapshot, _, values, present, _, _ in events(client, newest, relation, bound):
        if not left:
            break
        oldest = snapshot.epoch
        if present > 0 and values in left:
            del left[values]
            found[values] = snapshot
    return found, oldest


async def asserted_since(
    client: DatabaseClient, newest: Snapshot, facts: Iterable[tuple[str, Tuple]]
) -> tuple[dict[tuple[str, Tuple], Snapshot], int]:
    """For each of the facts, which are asserted now, the epoch since which it has been there as a fact without
    interruption, if that is kept; and the oldest epoch that was looked at. One way back through the epochs for all of
    them; of the changes only those of relations whose facts are still looked for are read.
    """
    left: dict[str, dict[Tuple, Snapshot | None]] = {}
    for relation, values in facts:
        left.setdefault(relation, {})[values] = None
    found: dict[tuple[str, Tuple], Snapshot] = {}
    oldest = newest.epoch
    async for snapshot in epochs_back(client, newest):
        for relation, waiting in list(left.items()):
            if not snapshot.changed_count(relation):
                continue
            try:
                changes = await snapshot.changes_among(relation, waiting.keys())
            except EpochNotRetainedError:
                # It went meanwhile, and so did all before it.
                return found, oldest
            for values, present, weight, _ in reversed(changes):
                if values not in waiting:
                    continue
                if weight:
                    waiting[values] = snapshot
                if present > 0 or not weight:
                    # Before this it was not there, or after this it was no fact: so the last change that left it a
                    # fact is what made it one.
                    began = waiting.pop(values)
                    if began is not None:
                        found[relation, values] = began
            if not waiting:
                del left[relation]
        oldest = snapshot.epoch
        if not left or newest.epoch - oldest >= _LOOKED_BACK:
            break
    return found, oldest


def matching(
    author: str | None, source: str | None, status: str | None, relation: str | None, epochs: tuple[int, int]
) -> Callable[[Told], bool]:
    """Whether a transaction is one that a list asks for."""
    low, high = epochs
    whole = (low, high) == (0, 2**63 - 1)

    def fits(told: Told) -> bool:
        return (
            (author is None or told.meta.get("author") == author)
            and (source is None or told.meta.get("source") == source)
            and (status is None or told.status == status)
            and (relation is None or relation in told.relations)
            and (whole or (told.epoch is not None and low <= told.epoch <= high))
        )

    return fits
