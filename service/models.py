"""The shapes of bodies and answers: the API's description is made from them, and bodies are validated with them.

Tuples do not pass through a model, because a body may have many thousands: `Transaction.parse` checks them. Nor do
answers, which orjson writes; tests compare them with the models, so that the description stays true.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SkipValidation,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from service.validation import must

Int64 = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]
Value = StrictStr | StrictBool | Int64 | StrictFloat
Row = list[Value]
Weight = Annotated[
    StrictInt,
    Field(
        ge=-(2**63) + 1,
        le=2**63 - 1,
        description="Added to the present weight: +1 adds, -1 retracts. Must not be 0.",
        json_schema_extra={"not": {"const": 0}},
    ),
]
ColumnTypeName = Literal["symbol", "number", "float", "bool"]


class Strict(BaseModel):
    """An unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class FactChange(Strict):
    """Tuples of one relation, each with the same weight."""

    relation: Annotated[StrictStr, Field(min_length=1, examples=["edge"])]
    tuples: Annotated[SkipValidation[list[Row]], Field(examples=[[["a", "b"], ["b", "c"]]])]
    weight: Weight = 1


class RuleChange(Strict):
    """One clause; a body with `;` makes several rules, each with this weight."""

    rule: Annotated[StrictStr, Field(examples=["tc(x, y) :- edge(x, y)."])]
    weight: Weight = 1


class TransactionBody(Strict):
    """One atomic change: everything in it is applied in one epoch, or nothing."""

    facts: Annotated[list[FactChange], Field(fail_fast=True)] = []
    rules: Annotated[list[RuleChange], Field(fail_fast=True)] = []
    declarations: Annotated[
        StrictStr | Annotated[list[StrictStr], Field(fail_fast=True)],
        must("be program text, or a list of such texts"),
        Field(examples=[".decl edge(x: symbol, y: symbol)"]),
    ] = ""
    program: Annotated[
        StrictStr,
        Field(
            description="Program text: its declarations, facts and rules are added to the others.",
            examples=['edge("a", "b"). tc(x, y) :- edge(x, y).'],
        ),
    ] = ""
    undeclare: Annotated[
        list[StrictStr],
        Field(
            fail_fast=True,
            description="Relations whose declarations are withdrawn, before `declarations` are added; prefixes are "
            "named with their colon, `rdf:`.",
            examples=[["edge"]],
        ),
    ] = []
    mode: Annotated[
        Literal["zset", "set"],
        Field(
            description="With `set`, adding what is there, or retracting what is not there, has no effect."
        ),
    ] = "zset"
    message: Annotated[
        StrictStr | None,
        Field(
            max_length=2_000,
            description="Why it is done: kept with the transaction, and shown by lists and histories.",
            examples=["the new organisation"],
        ),
    ] = None
    source: Annotated[
        StrictStr | None,
        Field(
            max_length=200,
            description="The facts count for this source: they can be replaced or taken back with it.",
            examples=["hr"],
        ),
    ] = None
    replaces: Annotated[
        Literal["source", "relations"] | None,
        Field(
            description="What the source asserts becomes exactly `facts`: in all relations, or only in those that "
            "`facts` names."
        ),
    ] = None


class ProgramChange(Strict):
    """Program text: declarations, facts and rules; `weight` is that of each fact and each rule."""

    program: StrictStr
    weight: Weight = 1


class QueryBody(Strict):
    """A query, and which page of its answer to return."""

    # What the description says of lengths and maxima beyond this is checked where it is known: an empty query is an
    # error of its text, and a service may allow less than the largest page and time.
    query: Annotated[
        StrictStr,
        Field(
            json_schema_extra={"minLength": 1},
            description="One atom, or a conjunction with negation, conditions and aggregates, with or without a head.",
            examples=['tc("a", x), !edge("a", x)'],
        ),
    ]
    limit: (
        Annotated[
            StrictInt,
            Field(ge=1, json_schema_extra={"maximum": 100_000}),
            must("be an integer of at least 1"),
        ]
        | None
    ) = None
    cursor: StrictStr | None = None
    timeout: (
        Annotated[
            Annotated[StrictInt, Field(gt=0)] | Annotated[StrictFloat, Field(gt=0)],
            Field(
                json_schema_extra={"maximum": 60},
                description="Seconds that the query may take (10 unless the service is configured otherwise).",
            ),
            must("be a number of seconds above 0"),
        ]
        | None
    ) = None
    at_least: (
        Annotated[StrictStr, Field(description="An epoch token; wait until that epoch can be read.")] | None
    ) = None
    as_of: (
        Annotated[StrictInt, Field(ge=0, le=2**63 - 1), must("be an integer from 0 to 2^63 - 1")] | None
    ) = None
    prefixes: Annotated[
        StrictBool,
        Field(description="Write IRIs in symbols with the prefixes that the database declares: `rdf:type`."),
    ] = False


class SubscriptionBody(Strict):
    """What a subscription is about, relations or a query, and how much is kept for it."""

    relations: Annotated[list[StrictStr], Field(max_length=100, examples=[["tc"]])] = []
    where: Annotated[
        dict[str, StrictStr],
        Field(description="Columns that must have a value, as in a URL.", examples=[{"x": "a"}]),
    ] = {}
    query: StrictStr | None = None
    start: Annotated[
        StrictStr | None,
        Field(description="A token: the changes after it. Without it, those after the newest epoch."),
    ] = None
    limit: Annotated[
        StrictInt,
        Field(ge=1, le=1_000_000, description="The most epochs that are kept until they are acknowledged."),
        must("be an integer from 1 to 1000000"),
    ] = 10_000


class AckBody(Strict):
    """The token of the last event whose changes have arrived."""

    token: Annotated[StrictStr, Field(examples=["7-5f2c09b1"])]


class Subscription(BaseModel):
    """A named subscription. acknowledged: its position. behind: epochs that were committed after it. gap: changes after
    it are no longer kept."""

    name: str
    relations: list[str]
    where: dict[str, str]
    query: str | None
    limit: int
    created: float
    acknowledged: Annotated[str, Field(description="A token.")]
    behind: int
    gap: bool


class Subscriptions(BaseModel):
    """All subscriptions, by name, and the oldest and the newest epoch that can be read."""

    subscriptions: list[Subscription]
    oldest: int
    newest: int


class Problem(BaseModel):
    """An error, after RFC 9457. `code` is stable; other fields depend on it."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(examples=["/problems/syntax_error"])]
    title: Annotated[str, Field(examples=["Syntax error"])]
    status: Annotated[int, Field(examples=[422])]
    detail: str
    code: Annotated[str, Field(examples=["syntax_error"])]
    instance: Annotated[str, Field(examples=["/v1/rules"])]


class RelationChanges(BaseModel):
    """How many tuples of a relation appeared and disappeared."""

    inserted: int
    deleted: int


class RelationDelta(BaseModel):
    """The tuples of a relation that appeared and that disappeared."""

    inserted: list[Row]
    deleted: list[Row]


class ElapsedMs(BaseModel):
    """Milliseconds: `engine` for the epoch, `total` for the request."""

    model_config = ConfigDict(extra="allow")

    engine: float
    total: float | None = None


class TransactionResult(BaseModel):
    """What a committed transaction did, or what a dry run would do."""

    model_config = ConfigDict(extra="allow")

    transaction: Annotated[str, Field(examples=["1735689600000-0"])]
    epoch: Annotated[int, Field(examples=[7])]
    token: Annotated[str, Field(examples=["7-5f2c"])]
    changes: Annotated[dict[str, RelationChanges], Field(examples=[{"edge": {"inserted": 2, "deleted": 0}}])]
    strategy: Annotated[str, Field(examples=["update"])]
    placement: Annotated[
        str,
        Field(
            description="`resident`, `spark`, or `mixed` if some strata are on Spark and some are not.",
            examples=["resident"],
        ),
    ]
    cost: Annotated[
        dict[str, int],
        Field(
            description="Numbers of derivations: all that were enumerated; those among them in abandoned updates; "
            "those expected for updates; those expected for bootstraps of what changed.",
            examples=[{"derivations": 4, "abandoned": 0, "estimate": 4, "bootstrap": 6}],
        ),
    ]
    reason: Annotated[
        str, Field(description="Why this strategy and this placement.", examples=["maintained"])
    ] = ""
    elapsed_ms: ElapsedMs
    delta: Annotated[
        dict[str, RelationDelta] | None,
        Field(
            description="With `return=delta`: the tuples of each relation that appeared and that disappeared."
        ),
    ] = None
    delta_rows: Annotated[
        int | None,
        Field(
            description="In the place of `delta`: how many tuples it would have, which are more than the token may "
            "have in one answer."
        ),
    ] = None


class Pending(BaseModel):
    """The transaction is in the log and will be processed exactly once; `status_url` shows its outcome."""

    transaction: str
    status: Literal["pending"]
    status_url: str


class TransactionStatus(BaseModel):
    """The state of a transaction: it has `result` if it was applied, `problem` if it was refused."""

    transaction: str
    status: Literal["pending", "committed", "dry_run", "refused"]
    status_url: str
    result: TransactionResult | None = None
    problem: Problem | None = None


class Column(BaseModel):
    """A column; its type is null until something fixes it."""

    name: str
    type: ColumnTypeName | None


class TupleCounts(BaseModel):
    """Tuples present, how many of them are asserted, and how many are derived (some are both)."""

    all: int
    asserted: int
    derived: int


class Relation(BaseModel):
    """A relation's schema and size."""

    relation: str
    columns: list[Column]
    declared: bool
    counts: TupleCounts
    digest: Annotated[
        str | None,
        Field(
            description="128 bits of the contents, in hexadecimal: equal contents have equal digests, on every "
            "placement and after a restore. Null if a version without digests published the epoch.",
            examples=["3f0c9a1be7d2415590aa6b1c2d3e4f50"],
        ),
    ] = None


class RelationAt(Relation):
    """A relation, in one epoch."""

    epoch: int
    token: str


class Relations(BaseModel):
    """All relations of one epoch."""

    relations: list[Relation]
    epoch: int
    token: str


class Rows(BaseModel):
    """A page of rows. `cursor` is null on the last page."""

    columns: list[Column]
    tuples: list[Row]
    epoch: int
    token: str
    cursor: str | None


class FactsPage(Rows):
    """A page of a relation's tuples; `weights` is present only with `domain=asserted`."""

    relation: str
    weights: list[int] | None = None


class QueryPage(Rows):
    """A page of a query's answers; `holds` is present only if the query has no variables."""

    holds: bool | None = None


class Rule(BaseModel):
    """A rule as it was first written, and the canonical text that is its identity."""

    id: Annotated[str, Field(examples=["r5f0c1d2e3a4b"])]
    rule: str
    canonical: str
    weight: int


class RuleAt(Rule):
    """A rule, in one epoch."""

    epoch: int
    token: str


class Rules(BaseModel):
    """All rules of one epoch."""

    rules: list[Rule]
    declarations: str
    epoch: int
    token: str


class Running(BaseModel):
    """What the engine is evaluating: the transactions `first` to `last` of the log, since `since` (seconds since 1970),
    for `seconds`. `relations`: those of the current stratum, once the epoch has lasted for a moment."""

    first: str
    last: str
    since: float
    seconds: float
    relations: list[str]


class Fault(BaseModel):
    """A bug of Zedlog itself that one of the transactions `first` to `last` triggered. `refused`: it was the only
    transaction, and is refused; otherwise each one is tried alone."""

    time: float
    first: str
    last: str
    refused: bool
    message: str


class Activity(BaseModel):
    """What is running, and the faults of Zedlog itself: how many transactions were refused because of them, and the
    newest fault."""

    running: Running | None
    faults: int
    last_fault: Fault | None


class Epochs(Activity):
    """Summaries of committed epochs, newest first. `before` is the parameter for the next page; null if there is
    none."""

    epochs: list[dict[str, Any]]
    before: int | None


class Health(BaseModel):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(Activity):
    """Redis can be reached and an engine serves the database. `recovered` says how the engine got its state when it
    started: from a checkpoint, or derived anew and why; null if it keeps no checkpoints. `audits` are the last
    self-audits: one that found differences does not make the service unready."""

    status: Literal["ready"]
    database: str
    engine: str
    epoch: int
    lag: int
    recovered: str | None
    audits: LastAudits


class AuditDifference(BaseModel):
    """One difference that an audit found. place: `memory` (of the engine) or `snapshot` (in Redis)."""

    kind: Annotated[str, Field(examples=["support"])]
    place: Literal["memory", "snapshot"]
    what: Annotated[str, Field(examples=["has another support at height 2"])]
    relation: str | None
    tuple: list[Any] | None
    expected: Any
    found: Any


class AuditReport(BaseModel):
    """What an audit compared and found. `differing` counts all differences; the first are named, at most `limit` of
    them. `uncompared` says what was left out, and why; `withheld`, how many named differences are in relations that you
    may not read.
    """

    epoch: int
    seconds: float
    relations: int
    tuples: int
    supports: int
    entries: int
    postings: int
    objects: int
    bytes: int
    differing: int
    limit: int
    differences: list[AuditDifference]
    uncompared: list[str]
    withheld: int


class Audit(BaseModel):
    """An audit. `kind` is `full`, or `start` for the comparison after a start; `report` is there once it has ended,
    unless it failed, and then `why` says why. Times are seconds since 1970.
    """

    audit: Annotated[str, Field(examples=["a1f0a2b3c4d5e6f70"])]
    kind: Literal["full", "start"]
    cause: Literal["request", "schedule", "start"]
    status: Literal["queued", "running", "passed", "differs", "failed"]
    requested: float
    started: float | None
    finished: float | None
    report: AuditReport | None
    why: str | None
    status_url: str


class Audits(BaseModel):
    """The newest audits first."""

    audits: list[Audit]


class LastAudit(BaseModel):
    """The summary of an audit that has ended."""

    id: str
    kind: str
    status: str
    finished: float
    epoch: int | None
    differing: int | None


class LastAudits(BaseModel):
    """The last audit of everything, and the last comparison after a start; null if there is none."""

    full: LastAudit | None
    start: LastAudit | None


class ProblemType(BaseModel):
    """What a code means."""

    type: str
    code: str
    title: str
    status: int
    description: str
