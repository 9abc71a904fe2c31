"""What a feed of changes tells, as objects."""

from __future__ import annotations

from html import escape
from typing import Annotated, Any

from pydantic import Field

from zedlog.client.errors import Json
from zedlog.client.html import table
from zedlog.client.models import Column, Model, RelationDelta, Row

ANSWER = "answer"
"""The name that stands for a query where others have a relation's name."""
_SHOWN = 20


class Event(Model):
    """`epoch`, and its `token`, after which a feed can be begun again."""

    epoch: int
    token: str

    @property
    def position(self) -> str | None:
        """The token with which to come back; None between the parts of a state."""
        return self.token


class Snapshot(Event):
    """A part of the state at `epoch`. Part 0 begins the state: after a connection was lost it may come again, and then
    the parts before it are to be forgotten. After the `last` one come the changes."""

    relation: str | None
    columns: list[Column]
    tuples: list[Row]
    part: int
    last: bool

    @property
    def position(self) -> str | None:
        return self.token if self.last else None


class Change(Event):
    """What an epoch changed: by relation (`answer` for a query) the tuples that were inserted and deleted; `time` in
    seconds since 1970; `columns` of the relations whose columns it changed (None: the relation is gone)."""

    time: float
    changes: dict[str, RelationDelta]
    columns: Annotated[dict[str, list[Column] | None], Field(default_factory=dict)]

    @property
    def inserted(self) -> list[tuple[str, Row]]:
        """What appeared, as (relation, tuple)."""
        return [(name, row) for name, delta in sorted(self.changes.items()) for row in delta.inserted]

    @property
    def deleted(self) -> list[tuple[str, Row]]:
        """What went, as (relation, tuple)."""
        return [(name, row) for name, delta in sorted(self.changes.items()) for row in delta.deleted]

    def _repr_html_(self) -> str:
        signed = [("-", *one) for one in self.deleted] + [("+", *one) for one in self.inserted]
        rows = [(sign, f"{'' if name == ANSWER else name}{row}") for sign, name, row in signed[:_SHOWN]]
        more = f"<p><small>and {len(signed) - _SHOWN:,} more</small></p>" if len(signed) > _SHOWN else ""
        return f"{table(('', escape(f'epoch {self.epoch}')), rows)}{more}"


class Progress(Event):
    """Nothing changed up to this epoch."""


_KINDS: dict[str, type[Event]] = {"snapshot": Snapshot, "change": Change, "progress": Progress}


def event_of(event: Json) -> Event | None:
    """An event as an object; None for one of a kind that only a newer service knows."""
    kind = _KINDS.get(event["event"])
    fields: dict[str, Any] = {name: value for name, value in event.items() if name != "event"}
    return None if kind is None else kind.model_validate(fields)
