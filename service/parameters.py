"""The parameters that several calls share, declared once; and the check that a call gets no others.

A misspelt parameter is an error: `?dryrun=true` must not commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from engine.data.transaction import PlacementName, Strategy
from engine.errors import did_you_mean, shown
from service.problems import InvalidParameterError, near
from service.settings import PAGE_LIMIT_CEILING

AtLeast = Annotated[
    str | None,
    Query(description="An epoch token, as an earlier answer gave it: wait until that epoch can be read."),
]
AsOf = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Read this epoch, while it is retained.")]
Limit = Annotated[
    int | None,
    Query(
        ge=1, le=PAGE_LIMIT_CEILING, description="Rows in a page (1000 where the service says nothing else)."
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A request that is repeated with the same key and the same body is applied once; a dry run leaves "
        "the key free.",
    ),
]
PageCursor = Annotated[
    str | None,
    Query(min_length=1, description="The `cursor` of the page before; all else must be as it was there."),
]


def own_parameters(request: Request) -> frozenset[str]:
    """The names of the query parameters that the request's route declares."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    return _query_parameters(route.dependant)


def _query_parameters(dependant: Dependant) -> frozenset[str]:
    own = frozenset(parameter.alias for parameter in dependant.query_params)
    return own.union(*map(_query_parameters, dependant.dependencies))


async def no_parameter_twice(request: Request) -> None:
    """Raise InvalidParameterError for a query parameter that comes twice: one of its values would be
    ignored."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise InvalidParameterError(f"the parameter {shown(name)} comes twice", parameter=name)
        seen.add(name)


async def only_known_parameters(request: Request) -> None:
    """Raise InvalidParameterError for a query parameter that the call does not have, or that comes twice."""
    if not request.query_params:
        return
    own = own_parameters(request)
    for name in request.query_params:
        if name not in own:
            having = f"it has {', '.join(sorted(own))}" if own else "it has none"
            raise InvalidParameterError(
                f"this call has no parameter {shown(name)}; {having}.{did_you_mean(near(name, own))}",
                parameter=name,
            )
    await no_parameter_twice(request)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a transaction is to be answered, and whether it only tries."""

    wait: bool
    dry_run: bool
    return_delta: bool
    idempotency_key: str | None
    strategy: Strategy | None
    placement: PlacementName | None


async def write_options(
    wait: Annotated[
        bool, Query(description="false: answer 202 as soon as the log has the transaction.")
    ] = True,
    dry_run: Annotated[bool, Query(description="Evaluate and report, then drop everything.")] = False,
    returning: Annotated[
        Literal["summary", "delta"],
        Query(alias="return", description="`delta` adds the tuples that appeared and went."),
    ] = "summary",
    strategy: Annotated[
        Strategy | None,
        Query(description="How to evaluate it: `auto` (the usual), `update` to its end, or `bootstrap`."),
    ] = None,
    placement: Annotated[
        PlacementName | None,
        Query(
            description="Where to evaluate it, for this transaction alone; `auto` is as if it were left out."
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> WriteOptions:
    return WriteOptions(wait, dry_run, returning == "delta", idempotency_key, strategy, placement)


Write = Annotated[WriteOptions, Depends(write_options)]
