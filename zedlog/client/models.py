"""What the service answers, as objects. A test compares each with the API's description (openapi/openapi.json).

A field that a newer service adds is kept and can be read; so this client works with it.
"""

from __future__ import annotations

from html import escape
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Value = str | bool | int | float
Row = tuple[Any, ...]


class Model(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Column(Model):
    """A column; its type is None until something fixes it."""

    name: str
    type: Literal["symbol", "number", "float", "bool"] | None


class TupleCounts(Model):
    """Tuples present, how many of them are asserted, and how many are derived (some are both)."""

    all: int
    asserted: int
    derived: int


class Relation(Model):
    """A relation's schema and size."""

    relation: str
    columns: list[Column]
    declared: bool
    counts: TupleCounts
    digest: str | None = None

    @property
    def name(self) -> str:
        return self.relation

    def __str__(self) -> str:
        columns = ", ".join(f"{column.name}: {column.type or '?'}" for column in self.columns)
        return f"{self.relation}({columns})"


class Rule(Model):
    """A rule as it was first written, and the canonical text that is its identity."""

    id: str
    rule: str
    canonical: str
    weight: int


class RelationChanges(Model):
    """How many tuples of a relation appeared and disappeared."""

    inserted: int
    deleted: int


class RelationDelta(Model):
    """The tuples of a relation that appeared and that disappeared."""

    inserted: list[Row]
    deleted: list[Row]


class ElapsedMs(Model):
    """Milliseconds: `engine` for the epoch, `total` for the request."""

    engine: float
    total: float | None = None


class Commit(Model):
    """What a committed transaction did, or what a dry run would do. `replayed`: this is the answer to an earlier
    request with the same key."""

    transaction: str
    epoch: int
    token: str
    changes: dict[str, RelationChanges]
    strategy: str
    placement: str
    cost: dict[str, int]
    reason: str = ""
    elapsed_ms: ElapsedMs
    delta: dict[str, RelationDelta] | None = None
    delta_rows: int | None = None
    replayed: bool = False

    def __str__(self) -> str:
        changed = [
            f"{name} +{c.inserted:,} -{c.deleted:,}"
            for name, c in sorted(self.changes.items())
            if c.inserted or c.deleted
        ]
        return f"epoch {self.epoch}: {', '.join(changed) or 'no tuple appeared or disappeared'}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


class Problem(Model):
    """An error, after RFC 9457. `code` is stable; other fields depend on it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str


class Running(Model):
    """What the engine is evaluating: the transactions `first` to `last` of the log, since `since` (seconds since 1970),
    for `seconds`."""

    first: str
    last: str
    since: float
    seconds: float
    relations: list[str]


class Fault(Model):
    """A bug of Zedlog itself that one of the transactions `first` to `last` triggered."""

    time: float
    first: str
    last: str
    refused: bool
    message: str


class Readiness(Model):
    """The storage can be reached and an engine serves the database, at this `epoch`; `lag` transactions wait."""

    running: Running | None
    faults: int
    last_fault: Fault | None
    status: str
    database: str
    engine: str
    epoch: int
    lag: int
    recovered: str | None
    audits: dict[str, Any]


class Stage(Model):
    """A part of a job's work: how much of it is done, and the seconds that it took."""

    name: str
    fraction: float
    seconds: float


class Job(Model):
    """An import, an export or a restore. It has `result` if it succeeded, `problem` if it failed or was cancelled.
    Times are seconds since 1970."""

    job: str
    kind: Literal["import", "export", "restore"]
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    cancelling: bool
    request: dict[str, Any]
    created: float
    started: float | None
    finished: float | None
    stages: list[Stage]
    transaction: str | None
    result: dict[str, Any] | None
    problem: Problem | None
    status_url: str
    events_url: str

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "running")


class Audit(Model):
    """An audit; `report` is there once it has ended, unless it failed, and then `why` says why."""

    audit: str
    kind: Literal["full", "start"]
    cause: Literal["request", "schedule", "start"]
    status: Literal["queued", "running", "passed", "differs", "failed"]
    requested: float
    started: float | None
    finished: float | None
    report: dict[str, Any] | None
    why: str | None
    status_url: str


class Subscription(Model):
    """A named subscription. acknowledged: its position, a token. behind: epochs that were committed after it. gap:
    changes after it are no longer kept."""

    name: str
    relations: list[str]
    where: dict[str, str]
    query: str | None
    limit: int
    created: float
    acknowledged: str
    behind: int
    gap: bool


class Token(Model):
    """An access token, without its text."""

    name: str
    id: str
    role: str
    reads: list[str] | None
    writes: list[str] | None
    rows: int | None
    rate: float | None
    body_bytes: int | None
    created: float
    expires: float | None
    expired: bool


class NewToken(Token):
    """A token just made. Its text, `token`, is never shown again."""

    token: str
