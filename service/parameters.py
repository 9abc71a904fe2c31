"""The parameters that several calls share, declared once; and the check that a call gets no unknown ones.

A misspelt parameter is an error: `?dryrun=true` must not commit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutinefunction
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

from engine.data.sources import MAX_SOURCE
from engine.data.transaction import MAX_MESSAGE, PlacementName, Strategy
from engine.errors import did_you_mean, shown
from service.problems import InvalidParameterError, near
from service.settings import PAGE_LIMIT_CEILING, Settings

AtLeast = Annotated[
    str | None,
    Query(description="An epoch token from an earlier answer: wait until that epoch can be read."),
]
AsOf = Annotated[
    int | None, Query(ge=0, le=2**63 - 1, description="Read this epoch, if it is still retained.")
]
ShortenIris = Annotated[
    bool, Query(description="Write IRIs in symbols with the prefixes that the database declares: `rdf:type`.")
]
Limit = Annotated[
    int | None,
    Query(
        ge=1,
        le=PAGE_LIMIT_CEILING,
        description="Rows in a page (1000 unless the service is configured otherwise).",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A request that is repeated with the same key and the same body is applied only once; a dry run "
        "does not use up the key.",
    ),
]
PageCursor = Annotated[
    str | None,
    Query(
        min_length=1, description="The `cursor` of the previous page; all other parameters must be the same."
    ),
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
    """Raise InvalidParameterError for a query parameter that is given twice: one of its values would be ignored."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise InvalidParameterError(f"the parameter {shown(name)} is given twice", parameter=name)
        seen.add(name)


async def only_known_parameters(request: Request) -> None:
    """Raise InvalidParameterError for a query parameter that the call does not have, or that is given twice."""
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
    """How a transaction is to be answered, and whether it is a dry run."""

    wait: bool
    dry_run: bool
    return_delta: bool
    idempotency_key: str | None
    strategy: Strategy | None
    placement: PlacementName | None
    message: str | None = None


SourceName = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_SOURCE,
        description="The facts count for this source: they can be replaced or taken back with it.",
        examples=["hr"],
    ),
]


async def write_options(
    wait: Annotated[
        bool, Query(description="With `false`, answer 202 as soon as the transaction is in the log.")
    ] = True,
    dry_run: Annotated[bool, Query(description="Evaluate and report, but change nothing.")] = False,
    returning: Annotated[
        Literal["summary", "delta"],
        Query(alias="return", description="`delta` adds the tuples that appeared and disappeared."),
    ] = "summary",
    strategy: Annotated[
        Strategy | None,
        Query(
            description="How to evaluate it: `auto` (the engine chooses), `update` to its end, `bootstrap`, or `dred` "
            "(delete whatever lost a derivation, and derive again what has another one)."
        ),
    ] = None,
    placement: Annotated[
        PlacementName | None,
        Query(description="Where to evaluate this transaction; `auto` is the same as leaving it out."),
    ] = None,
    message: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=MAX_MESSAGE,
            description="Why it is done: kept with the transaction, and shown by lists and histories.",
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> WriteOptions:
    return WriteOptions(wait, dry_run, returning == "delta", idempotency_key, strategy, placement, message)


Write = Annotated[WriteOptions, Depends(write_options)]


class QuickRoute(APIRoute):
    """A route of which FastAPI sees only the parameters that a request has. It looks for each one that a call may have,
    which takes longer than the work of a short call; those that are left out have the defaults of the call's function
    anyway. Where none is left, the function and what it depends on are called without FastAPI.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        known: dict[frozenset[str], Callable[[Request], Coroutine[Any, Any, Response]]] = {}
        queries, headers = _query_parameters(self.dependant), _header_parameters(self.dependant)

        async def handle(request: Request) -> Response:
            given = (
                queries.intersection(request.query_params) if request.scope["query_string"] else frozenset()
            )
            given |= {name for name in headers if name in request.headers}
            handler = known.get(given)
            if handler is None:
                route = copy(self)
                route.dependant = _with_parameters(self.dependant, given)
                plain = self.body_field is None and _takes_nothing(route.dependant)
                handler = partial(_call, route.dependant) if plain else APIRoute.get_route_handler(route)
                known[given] = handler
            response: Response = await handler(request)
            return response

        return handle


def _with_parameters(dependant: Dependant, given: frozenset[str]) -> Dependant:
    """The same, with those query parameters and headers alone that are given, or required."""

    def kept(parameters: list[Any]) -> list[Any]:
        return [one for one in parameters if one.alias in given or one.field_info.is_required()]

    return replace(
        dependant,
        query_params=kept(dependant.query_params),
        header_params=kept(dependant.header_params),
        dependencies=[_with_parameters(other, given) for other in dependant.dependencies],
    )


def _takes_nothing(dependant: Dependant) -> bool:
    """Whether a function, and all that it depends on, are coroutine functions that take the request at the most."""
    taken = {name for name in Dependant.__slots__ if getattr(dependant, name)}
    plain = taken <= {"dependencies", "name", "call", "request_param_name", "use_cache", "path", "scope"}
    return plain and iscoroutinefunction(dependant.call) and all(map(_takes_nothing, dependant.dependencies))


async def _call(dependant: Dependant, request: Request) -> Any:
    """The function's result, with the results of what it depends on."""
    assert dependant.call is not None, "a dependency is a function"
    values: dict[str, Any] = {}
    for other in dependant.dependencies:
        result = await _call(other, request)
        if other.name is not None:
            values[other.name] = result
    if dependant.request_param_name is not None:
        values[dependant.request_param_name] = request
    return await dependant.call(**values)


def _header_parameters(dependant: Dependant) -> frozenset[str]:
    own = frozenset(parameter.alias for parameter in dependant.header_params)
    return own.union(*map(_header_parameters, dependant.dependencies))


def seconds_allowed(settings: Settings, asked: float | None) -> float:
    """The time that an evaluation has.

    Raises:
        InvalidParameterError: more is asked for than the service allows.
    """
    if asked is None:
        return settings.query_timeout
    if asked > settings.max_query_timeout:
        raise InvalidParameterError(
            f"timeout {asked} exceeds this service's maximum of {settings.max_query_timeout:g} s",
            maximum=settings.max_query_timeout,
        )
    return float(asked)
