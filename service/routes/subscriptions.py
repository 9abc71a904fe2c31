"""`/v1/subscriptions`: named positions in the changes, for consumers that must not miss one while they are away."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from engine.errors import (
    EpochNotRetainedError,
    InvalidTokenError,
    LimitReachedError,
    SubscriptionConflictError,
    UnknownSubscriptionError,
)
from engine.storage.client import format_token, parse_token
from engine.storage.snapshot import Snapshot
from engine.storage.subscriptions import Subscription, unknown_subscription
from service import models
from service.access.roles import needs
from service.body import read_json
from service.context import Service, service_of
from service.describe import BODY_ERRORS, json_body, problems
from service.feeds.request import about, about_json, position
from service.formats import answers_json, json_response
from service.models import AckBody, SubscriptionBody, Subscriptions
from service.parameters import only_known_parameters
from service.principal import ForbiddenError, principal_of
from service.reading import prefixes_for
from service.routes.changes import FEED_ERRORS, STREAM, Follow, Heartbeat, LastEventId, answers_feed, stream
from service.routes.changes import Snapshot as WithState
from service.validation import read_as

router = APIRouter(tags=["changes"], dependencies=[Depends(only_known_parameters)])

Name = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="The subscription's name.",
        examples=["billing"],
    ),
]
_READER: dict[str, Any] = needs("reader")
_WRITER: dict[str, Any] = needs("writer")


@router.get(
    "/v1/subscriptions",
    summary="List the subscriptions",
    response_model=Subscriptions,
    responses=problems(*BODY_ERRORS, ForbiddenError),
    dependencies=[Depends(answers_json)],
    openapi_extra=_READER,
    operation_id="listSubscriptions",
)
async def list_subscriptions(request: Request) -> Response:
    """Those whose relations the caller may read: what each is about, its position, and whether it has a gap."""
    service, principal = service_of(request), principal_of(request)
    newest = await service.client.snapshot()
    found = [
        _described(one, newest)
        for one in await service.client.subscriptions.all()
        if all(map(principal.may_read, about_json(one.about).reads))
    ]
    return json_response({"subscriptions": found, "oldest": newest.oldest, "newest": newest.epoch})


@router.get(
    "/v1/subscriptions/{name}",
    summary="One subscription",
    response_model=models.Subscription,
    responses=problems(*BODY_ERRORS, UnknownSubscriptionError, ForbiddenError),
    dependencies=[Depends(answers_json)],
    openapi_extra=_READER,
    operation_id="getSubscription",
)
async def get_subscription(request: Request, name: Name) -> Response:
    """What it is about, its position, and whether it has a gap."""
    service = service_of(request)
    found = await _readable(request, service, name)
    return json_response(_described(found, await service.client.snapshot()))


@router.put(
    "/v1/subscriptions/{name}",
    summary="Make a subscription",
    response_model=models.Subscription,
    responses={
        201: {"model": models.Subscription, "description": "It is new."},
        **problems(
            *BODY_ERRORS, *FEED_ERRORS, InvalidTokenError, LimitReachedError, SubscriptionConflictError
        ),
    },
    dependencies=[Depends(answers_json)],
    openapi_extra={
        **json_body(
            SubscriptionBody,
            {
                "a relation": {"relations": ["tc"], "where": {"x": "a"}},
                "a query": {"query": "tc(x, x)", "limit": 1_000},
            },
        ),
        **_WRITER,
    },
    operation_id="putSubscription",
)
async def put_subscription(request: Request, name: Name) -> Response:
    """From now on the changes after its position are kept until they are acknowledged, for as many epochs as `limit`
    says, and as the engine allows (`--retain-subscribed-epochs`, `--retain-subscribed-bytes`). Sent again, it changes
    the limit only.
    """
    service = service_of(request)
    body = read_as(SubscriptionBody, await read_json(request, service.settings.max_body_bytes))
    wanted = about(body.relations, body.where.items(), body.query, await prefixes_for(service, body.query))
    principal_of(request).check_read(wanted.reads)
    await service.feeds.check(wanted)
    newest = await service.client.snapshot()
    epoch = newest.epoch
    if body.start is not None:
        epoch = position(body.start, newest.token.partition("-")[2])
        # Raises if it is not there.
        await service.client.snapshot(epoch)
    new = await service.client.subscriptions.put(name, wanted.to_json(), body.limit, epoch)
    found = await service.client.subscriptions.get(name)
    return json_response(_described(found, newest), 201 if new else 200)


@router.delete(
    "/v1/subscriptions/{name}",
    summary="Delete a subscription",
    response_model=models.Subscription,
    responses=problems(*BODY_ERRORS, UnknownSubscriptionError, ForbiddenError),
    dependencies=[Depends(answers_json)],
    openapi_extra=_WRITER,
    operation_id="deleteSubscription",
)
async def delete_subscription(request: Request, name: Name) -> Response:
    """Nothing is kept for it any more. Answers with what it was."""
    service = service_of(request)
    found = await _readable(request, service, name)
    newest = await service.client.snapshot()
    await service.client.subscriptions.delete(name)
    return json_response(_described(found, newest))


@router.post(
    "/v1/subscriptions/{name}/ack",
    summary="Acknowledge changes",
    response_model=models.Subscription,
    responses=problems(
        *BODY_ERRORS, UnknownSubscriptionError, InvalidTokenError, EpochNotRetainedError, ForbiddenError
    ),
    dependencies=[Depends(answers_json)],
    openapi_extra={**json_body(AckBody, {"an event's id": {"token": "7-5f2c09b1"}}), **_WRITER},
    operation_id="postAck",
)
async def post_ack(request: Request, name: Name) -> Response:
    """Everything up to this event has arrived and need not be kept. An older token than before changes nothing."""
    service = service_of(request)
    body = read_as(AckBody, await read_json(request, service.settings.max_body_bytes))
    await _readable(request, service, name)
    newest = await service.client.snapshot()
    epoch = parse_token(body.token, newest.token.partition("-")[2])
    if epoch > newest.epoch:
        raise EpochNotRetainedError(
            f"there is no epoch {epoch} yet: the newest is {newest.epoch}", epoch=epoch, newest=newest.epoch
        )
    await service.client.subscriptions.acknowledge(name, epoch)
    return json_response(_described(await service.client.subscriptions.get(name), newest))


@router.get(
    "/v1/subscriptions/{name}/changes",
    summary="Follow a subscription",
    response_class=Response,
    responses={200: STREAM, **problems(*FEED_ERRORS, UnknownSubscriptionError)},
    dependencies=[Depends(answers_feed)],
    openapi_extra=_READER,
    operation_id="getSubscriptionChanges",
)
async def get_subscription_changes(
    request: Request,
    name: Name,
    snapshot: WithState = False,
    follow: Follow = True,
    heartbeat: Heartbeat = None,
    last_event_id: LastEventId = None,
) -> Response:
    """The same as `GET /v1/changes`, from the acknowledged position on, or from `Last-Event-ID`, if that is later. What
    is not acknowledged comes again with the next request.
    """
    service = service_of(request)
    found = await _readable(request, service, name)
    start, state = found.epoch, snapshot
    if last_event_id is not None:
        came = position(last_event_id, await service.client.incarnation())
        if came >= start:
            start, state = came, False
    return await stream(request, about_json(found.about), start, heartbeat, follow=follow, state=state)


async def _readable(request: Request, service: Service, name: str) -> Subscription:
    """Raises UnknownSubscriptionError, also of one that the caller may not read."""
    found = await service.client.subscriptions.get(name)
    if not all(map(principal_of(request).may_read, about_json(found.about).reads)):
        raise unknown_subscription(name)
    return found


def _described(found: Subscription, newest: Snapshot) -> dict[str, Any]:
    incarnation = newest.token.partition("-")[2]
    return {
        "name": found.name,
        "relations": list(found.about.get("relations", ())),
        "where": dict(found.about.get("where", {})),
        "query": found.about.get("query"),
        "limit": found.limit,
        "created": found.created,
        "acknowledged": format_token(found.epoch, incarnation),
        "behind": max(0, newest.epoch - found.epoch),
        # What a query needs is the state at its position, too.
        "gap": found.epoch < newest.oldest - ("query" not in found.about),
    }
