"""The shapes of bodies and answers about history and sources; see service/models.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, StrictInt, StrictStr

from service.models import Column, RelationChanges, Row, Strict
from service.validation import must

Message = Annotated[
    StrictStr,
    Field(
        max_length=2_000,
        description="Why it is done: kept with the transaction, and shown by lists and histories.",
    ),
]


class SourceBody(Strict):
    """What a source asserts, by relation. In a relation that is not named it asserts nothing any more."""

    facts: Annotated[
        SkipValidation[dict[str, list[Row]]],
        Field(examples=[{"person": [["ann"], ["bob"]], "manager": [["ann", "bob"]]}]),
    ]
    message: Message | None = None


class RollbackBody(Strict):
    """Which epoch to go back to."""

    to: Annotated[
        StrictInt,
        Field(ge=0, le=2**63 - 1, description="The number of an epoch that is still kept.", examples=[7]),
        must("be an integer from 0 to 2^63 - 1"),
    ]
    message: Message | None = None


class TransactionShort(BaseModel):
    """A transaction that was part of an epoch: who asked for it, why, and for which source its facts count. `author` is
    null if the service asks for no tokens."""

    transaction: Annotated[str, Field(examples=["1735689600000-0"])]
    author: str | None
    message: str | None
    source: str | None


class ProblemShort(BaseModel):
    """Why a transaction was refused."""

    code: str
    message: str | None


class TransactionEntry(TransactionShort):
    """A transaction with its outcome. `facts`: how many tuples it sent for each relation; `rules`: how many changes of
    rules. `epoch`, `changes`: those of its epoch, which it may share with other transactions; null if it was refused.
    `time`: when its outcome was published, in seconds since 1970; null for an outcome of an older version."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["committed", "dry_run", "refused"]
    time: float | None
    epoch: int | None
    replaces: Literal["source", "relations"] | None
    rollback: Annotated[int | None, Field(description="The epoch to which it went back.")]
    facts: dict[str, int]
    rules: int
    declarations: Annotated[bool, Field(description="Whether it added or withdrew declarations.")]
    changes: dict[str, RelationChanges] | None
    problem: ProblemShort | None


class TransactionList(BaseModel):
    """Transactions, newest first. `before` is the parameter for the next page; null if there is none. A page may have
    fewer entries than `limit`, or none, and still have a next one: only so many transactions are looked at for one."""

    transactions: list[TransactionEntry]
    before: str | None


class SourceRelation(BaseModel):
    """What a source asserts of one relation."""

    relation: str
    facts: Annotated[int, Field(description="How many tuples it asserts.")]


class Source(BaseModel):
    """A source. `last_transaction`: the last one that is kept; null if none is among those that were looked at."""

    source: Annotated[str, Field(examples=["hr"])]
    relations: list[SourceRelation]
    facts: Annotated[int, Field(description="How many tuples it asserts in all.")]
    last_transaction: TransactionEntry | None


class SourceAt(Source):
    """A source, in one epoch."""

    epoch: int
    token: str


class Sources(BaseModel):
    """All sources of one epoch."""

    sources: list[Source]
    epoch: int
    token: str


class TupleEvent(BaseModel):
    """What an epoch did to a tuple. `change`: it `appeared` or `went`; or, while it was there, its weight changed, or
    whether a rule derives it (`changed`). `weight` (0: not asserted) and `derived` are as they were after the epoch.
    `transactions`: those of the epoch, the last one first, 20 at most; null if they are no longer kept."""

    epoch: int
    time: float
    tuple: Row
    change: Literal["appeared", "went", "changed"]
    weight: int
    derived: bool
    transactions: list[TransactionShort] | None


class FactHistory(BaseModel):
    """When tuples came and went, newest first, back to the epoch `oldest`, the oldest one that is kept."""

    relation: str
    columns: list[Column]
    events: list[TupleEvent]
    oldest: int
    epoch: int
    token: str
    cursor: str | None


class Blamed(BaseModel):
    """A tuple, and since when it has been there without interruption: since the epoch `since`, if `exact`; otherwise
    for longer, because `since` is the oldest epoch that is kept. `time` and `transactions` are of that epoch, null if
    it is not exact or they are no longer kept. `sources`: the weight that each source gives to it."""

    tuple: Row
    since: int
    exact: bool
    time: float | None
    weight: int
    derived: bool
    sources: dict[str, int]
    transactions: list[TransactionShort] | None


class Blame(BaseModel):
    """The tuples that are there now, in the order of `GET .../facts`. `more`: there are further ones than `limit`."""

    relation: str
    columns: list[Column]
    facts: list[Blamed]
    more: bool
    oldest: int
    epoch: int
    token: str
