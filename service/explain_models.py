"""The bodies and answers of `POST /v1/explain`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from service.models import Row, Strict
from service.validation import must

MOST_SIZE = 5_000
MOST_CONTRIBUTIONS = 1_000
MOST_REPAIRS = 10
_EPOCH = must("be an integer from 0 to 2^63 - 1")
Epoch = Annotated[StrictInt, Field(ge=0, le=2**63 - 1), _EPOCH]


class ExplainBody(Strict):
    """What is to be explained, and how much of it."""

    tuple: (
        Annotated[
            StrictStr | Row,
            must('be a text such as \'tc("a", "d")\', or a list of values beside a relation'),
            Field(examples=['tc("a", "d")']),
        ]
        | None
    ) = None
    relation: Annotated[StrictStr, Field(min_length=1)] | None = None
    node: (
        Annotated[
            StrictStr, Field(description="The id of a node of an earlier answer, to be explained in turn.")
        ]
        | None
    ) = None
    all: Annotated[
        StrictBool, Field(description="List the ways in which the tuple is derived, a page at a time.")
    ] = False
    limit: (
        Annotated[
            StrictInt, Field(ge=1, json_schema_extra={"maximum": 1_000}), must("be an integer of at least 1")
        ]
        | None
    ) = None
    cursor: StrictStr | None = None
    size: Annotated[
        StrictInt,
        Field(ge=1, le=MOST_SIZE),
        must(f"be an integer from 1 to {MOST_SIZE}"),
        Field(description="The most tuples that a proof follows."),
    ] = 200
    contributions: Annotated[
        StrictInt,
        Field(ge=1, le=MOST_CONTRIBUTIONS),
        must(f"be an integer from 1 to {MOST_CONTRIBUTIONS}"),
        Field(description="How many contributions to an aggregate are listed."),
    ] = 10
    why_not: Annotated[
        StrictBool, Field(description="With `false`, a tuple that does not hold is not explained.")
    ] = True
    repairs: Annotated[
        StrictInt,
        Field(ge=0, le=MOST_REPAIRS),
        must(f"be an integer from 0 to {MOST_REPAIRS}"),
        Field(
            description="How many ways to make an absent tuple hold are looked for, each tried by a dry run."
        ),
    ] = 3
    origins: Annotated[
        StrictBool,
        Field(
            description="Say of each fact since when it has been there, and which transactions brought it."
        ),
    ] = False
    changed_at: Annotated[Epoch, Field(description="Why did the tuple come or go at this epoch?")] | None = (
        None
    )
    timeout: (
        Annotated[
            Annotated[StrictInt, Field(gt=0)] | Annotated[StrictFloat, Field(gt=0)],
            Field(json_schema_extra={"maximum": 60}, description="Seconds that the explanation may take."),
            must("be a number of seconds above 0"),
        ]
        | None
    ) = None
    at_least: (
        Annotated[StrictStr, Field(description="An epoch token; wait until that epoch can be read.")] | None
    ) = None
    as_of: Epoch | None = None


class Explanation(BaseModel):
    """An explanation; docs/http.md says which fields come when. `nodes` are the tuples of a proof by their ids, `rules`
    the attempts of an absent tuple, `derivations` a page of alternatives, `before` and `after` those of a change."""

    model_config = ConfigDict(extra="allow")

    epoch: int
    token: str
    root: str
    holds: bool | None = None
    complete: bool | None = None
    nodes: dict[str, dict[str, Any]] | None = None
    rules: list[dict[str, Any]] | None = None
    repairs: list[list[dict[str, Any]]] | None = None
    derivations: list[dict[str, Any]] | None = None
    cursor: str | None = None
    change: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    causes: list[dict[str, Any]] | None = None
