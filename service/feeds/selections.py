"""Feeds of relations, perhaps with bound columns, and of queries that are one atom: what an epoch changed is in its
manifest already, and only has to be selected.

A filter is about names, `x=a`, and an atom about places. If the columns of a relation change so that a name moves to
another place, the feed ends, because its state would change without a tuple that appears or goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engine.data.values import Tuple, Value
from engine.errors import ChangeTooLargeError, MeaningChangedError, shown
from engine.language.schema import Column, Schema
from engine.language.syntax import Atom
from engine.storage.snapshot import ChangedRows, Position, Snapshot
from service.columns import bound_columns
from service.feeds.epochs import Epochs, Shared
from service.feeds.events import ANSWER, Event
from service.formats import describe_columns
from service.goal import schema_of, select

CHUNK = 5_000
"""Tuples in one event of a state."""

Events = Shared[tuple[Any, int], Event | None]
Chunk = tuple[str, tuple[Column, ...], list[Tuple]]


@dataclass(frozen=True, slots=True)
class Selected:
    """The tuples of a relation whose columns have the bound values; of them the columns `taken`."""

    bound: Mapping[int, Value]
    taken: tuple[int, ...]
    columns: tuple[Column, ...]


class Filter(Protocol):
    """What is selected."""

    @property
    def names(self) -> Mapping[str, str]:
        """Each relation, and the name under which it is told."""

    def of(self, schema: Schema) -> Selected:
        """The selection from tuples with this schema.

        Raises:
            ZedlogError: it does not fit.
        """

    def check(self, before: Mapping[str, Schema] | None, after: Mapping[str, Schema]) -> None:
        """Raise what ends the feed when the schemas change."""


@dataclass(frozen=True, slots=True)
class RelationFilter:
    """Relations, and columns by name that must have a value, as a URL has them."""

    relations: tuple[str, ...]
    where: tuple[tuple[str, str], ...]

    @property
    def names(self) -> Mapping[str, str]:
        return {relation: relation for relation in self.relations}

    def of(self, schema: Schema) -> Selected:
        bound = bound_columns(schema, self.where, frozenset())
        return Selected(bound, tuple(range(schema.arity)), schema.columns)

    def check(self, before: Mapping[str, Schema] | None, after: Mapping[str, Schema]) -> None:
        for relation in self.relations:
            new, old = after.get(relation), (before or {}).get(relation)
            if new is None:
                continue
            bound = self.of(new).bound
            if old is not None and len(old.columns) == len(new.columns):
                was = self.of(old).bound
                if was.keys() != bound.keys():
                    raise MeaningChangedError(
                        f"the columns of {shown(relation)} are other ones now, {new}, so that the bound columns mean "
                        "something else; begin again with the state (snapshot=true)",
                        relation=relation,
                    )


@dataclass(frozen=True, slots=True)
class GoalFilter:
    """An atom whose variables are all different, without `_`: each tuple is one row."""

    atom: Atom
    text: str

    @property
    def names(self) -> Mapping[str, str]:
        return {self.atom.relation: ANSWER}

    def of(self, schema: Schema) -> Selected:
        found = select(self.atom, self.text, {self.atom.relation: schema})
        return Selected(found.bound, found.answer, found.columns)

    def check(self, before: Mapping[str, Schema] | None, after: Mapping[str, Schema]) -> None:
        select(self.atom, self.text, after)


class SelectionState:
    """What a filter selects of one epoch; read page by page, when it is wanted."""

    def __init__(self, snapshot: Snapshot, filter: Filter) -> None:
        self._snapshot, self._filter = snapshot, filter

    async def chunks(self) -> AsyncIterator[Chunk]:
        snapshot = self._snapshot
        for relation, name in self._filter.names.items():
            schema = snapshot.schemas.get(relation)
            if schema is None:
                continue
            selected = self._filter.of(schema)
            after: Position | None = None
            while True:
                if any(schema.columns[i].type is None for i in selected.bound):
                    yield name, selected.columns, []
                    break
                page = await snapshot.facts(relation, selected.bound, limit=CHUNK, after=after)
                yield name, selected.columns, _taken(page.tuples, selected, schema)
                after = page.next
                if after is None:
                    break

    def close(self) -> None:
        """Nothing is held."""


class Selection:
    """A source of changes: what a filter selects of each epoch's changes. events: where those of all such sources are
    kept for a while. most: tuples of one event."""

    def __init__(self, epochs: Epochs, filter: Filter, most: int, events: Events) -> None:
        self._epochs, self._filter, self._most, self._events = epochs, filter, most, events

    async def begin(self, after: int | None, state: bool) -> tuple[int, SelectionState | None]:
        """Check that a feed can begin after an epoch, or after the newest; which one that is, and the state there if it
        is wanted.

        Raises:
            ZedlogError: the filter does not fit the relations; the epoch is no longer kept.
        """
        newest = await self._epochs.newest()
        epoch = newest.epoch if after is None else after
        base = newest if epoch == newest.epoch else await self._epochs.before(epoch + 1)
        if base is None:
            # What comes after it is still there, which is all that changes need.
            base = await self._epochs.snapshot(epoch if state else epoch + 1)
        for relation in self._filter.names:
            if relation not in base.schemas and relation not in newest.schemas:
                schema_of(newest.schemas, relation)
        self._filter.check(None, base.schemas)
        return epoch, SelectionState(base, self._filter) if state else None

    async def change(self, epoch: int) -> Event | None:
        """What an epoch changed; None if nothing of this."""
        return await self._events.get((self, epoch), lambda: self._change(epoch))

    async def close(self) -> None:
        """Nothing is held."""

    async def _change(self, epoch: int) -> Event | None:
        snapshot = await self._epochs.snapshot(epoch)
        columns = await self._columns(snapshot)
        changes: dict[str, dict[str, list[Tuple]]] = {}
        count = 0
        for relation, name in self._filter.names.items():
            if not snapshot.changed_count(relation):
                continue
            inserted: list[Tuple] = []
            deleted: list[Tuple] = []
            async for rows in self._epochs.changed(snapshot, relation):
                found, signs = await self._select(snapshot, rows, self._most - count)
                count += len(found)
                for row, sign in zip(found, signs, strict=True):
                    (inserted if sign > 0 else deleted).append(row)
            if inserted or deleted:
                changes[name] = {"inserted": inserted, "deleted": deleted}
        if not changes and not columns:
            return None
        return change_event(snapshot, changes, columns)

    async def _select(
        self, snapshot: Snapshot, rows: ChangedRows, most: int
    ) -> tuple[list[Tuple], list[int]]:
        selected = self._filter.of(rows.schema)
        mask = np.ones(len(rows.codes), np.bool_)
        for column, value in selected.bound.items():
            code = await snapshot.code(rows.schema, column, value)
            mask &= False if code is None else rows.codes[:, column] == code
        codes = rows.codes[mask]
        if len(codes) > most:
            raise too_large(snapshot, self._most)
        tuples: list[Tuple] = []
        for start in range(0, len(codes), CHUNK):
            # Let others in between.
            await asyncio.sleep(0)
            tuples += await snapshot.decode(codes[start : start + CHUNK], rows.schema.columns)
        return _taken(tuples, selected, rows.schema), rows.signs[mask].tolist()

    async def _columns(self, snapshot: Snapshot) -> dict[str, Any]:
        """The columns of relations that have other ones than before."""
        before = await self._epochs.before(snapshot.epoch)
        if before is None or before.schemas == snapshot.schemas:
            return {}
        self._filter.check(before.schemas, snapshot.schemas)
        changed: dict[str, Any] = {}
        for relation, name in self._filter.names.items():
            old, new = before.schemas.get(relation), snapshot.schemas.get(relation)
            if new is None:
                if old is not None:
                    changed[name] = None
                continue
            columns = self._filter.of(new).columns
            if old is None or self._filter.of(old).columns != columns:
                changed[name] = describe_columns(columns)
        return changed


def change_event(
    snapshot: Snapshot, changes: Mapping[str, Mapping[str, list[Tuple]]], columns: Mapping[str, Any]
) -> Event:
    """columns: of those names whose columns the epoch changed; None for a relation that is gone."""
    data = {"epoch": snapshot.epoch, "token": snapshot.token, "time": snapshot.time, "changes": changes}
    if columns:
        data["columns"] = columns
    count = sum(len(rows) for change in changes.values() for rows in change.values())
    return Event("change", data, snapshot.token, count)


def too_large(snapshot: Snapshot, most: int) -> ChangeTooLargeError:
    return ChangeTooLargeError(
        f"epoch {snapshot.epoch} changed more than the {most:,} tuples that one event may have; read its state instead "
        f"(after={snapshot.token}&snapshot=true) and go on from there",
        epoch=snapshot.epoch,
        token=snapshot.token,
        limit=most,
    )


def _taken(tuples: list[Tuple], selected: Selected, schema: Schema) -> list[Tuple]:
    if selected.taken == tuple(range(schema.arity)):
        return tuples
    return [tuple(row[i] for i in selected.taken) for row in tuples]
