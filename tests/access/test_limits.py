"""The limits of a token: requests a second, bytes of a body, rows of an answer."""

from __future__ import annotations

import pytest
from fastapi import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from engine.errors import BodyTooLargeError
from service.access.errors import RateLimitedError, UnauthorizedError
from service.access.limits import RateLimits
from service.access.tokens import revoke
from service.principal import LOCAL, Principal, principal_of, still
from tests.access.conftest import Guarded, Start
from tests.service.conftest import GRAPH, problem


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_second_and_fills_evenly() -> None:
    clock = Clock()
    limits = RateLimits(None, clock)
    kim, lee = Principal("kim", rate=4, id="k"), Principal("lee", rate=0.5, id="l")
    for _ in range(4):
        limits.take(kim)
    with pytest.raises(RateLimitedError, match='"kim" may make 4 requests a second; try again in 1 s'):
        limits.take(kim)
    # Another one is not concerned, and one in two seconds is possible, too.
    limits.take(lee)
    with pytest.raises(RateLimitedError) as caught:
        limits.take(lee)
    assert caught.value.detail["retry_after"] == 2
    clock.now = 0.5
    limits.take(kim)
    limits.take(kim)
    with pytest.raises(RateLimitedError):
        limits.take(kim)
    clock.now = 1_000
    for _ in range(4):
        limits.take(kim)
    with pytest.raises(RateLimitedError):
        limits.take(kim)


def test_a_refused_request_costs_nothing_so_waiting_helps() -> None:
    clock = Clock()
    limits = RateLimits(None, clock)
    kim = Principal("kim", rate=1, id="k")
    limits.take(kim)
    for _ in range(10):
        clock.now += 0.099
        with pytest.raises(RateLimitedError):
            limits.take(kim)
    clock.now += 0.02
    limits.take(kim)


def test_the_usual_rate_is_for_tokens_without_one_and_not_for_the_open_service() -> None:
    limits = RateLimits(1, Clock())
    for _ in range(5):
        limits.take(LOCAL)
    limits.take(Principal("kim", id="k"))
    with pytest.raises(RateLimitedError):
        limits.take(Principal("kim", id="k"))


def test_too_many_requests_are_told_when_to_come_again(start: Start) -> None:
    service = start()
    service.make("slow", "writer", rate=0.01)
    body = {"relation": "edge", "tuples": [["a", "b"]]}
    assert service.call("slow", "POST", "/v1/facts", json=body).status_code == 200
    answer = service.call("slow", "POST", "/v1/facts", json=body)
    problem(answer, 429, "rate_limited")
    assert 98 <= int(answer.headers["retry-after"]) <= 100
    assert len(service.database.log) == 1


def test_a_body_may_be_as_large_as_the_token_says(guarded: Guarded) -> None:
    guarded.make("small", "writer", body=60)
    fits = b'{"relation": "edge", "tuples": [["a", "b"]]}'
    assert len(fits) <= 60
    json = {"content-type": "application/json"}
    assert guarded.call("small", "POST", "/v1/facts", content=fits, headers=json).status_code == 200
    large = b" " * 30 + fits
    for path in ("/v1/facts", "/v1/uploads?name=x.csv", "/v1/query"):
        problem(guarded.call("small", "POST", path, content=large, headers=json), 413, "body_too_large")

    async def chunks() -> object:
        for start in range(0, len(large), 7):
            yield large[start : start + 7]

    # Without a Content-Length it is found while the body is read.
    answer = guarded.call("small", "POST", "/v1/facts", content=chunks(), headers=json)
    found = problem(answer, 413, "body_too_large")
    assert 'the 60 bytes that "small" may send' in found["detail"]
    assert guarded.call("writer", "POST", "/v1/facts", content=large, headers=json).status_code == 200
    assert BodyTooLargeError.code == found["code"]


def test_an_answer_has_as_many_rows_as_the_token_may_have(guarded: Guarded) -> None:
    assert guarded.call("writer", "POST", "/v1/transactions", json=GRAPH).status_code == 200
    guarded.make("few", "writer", rows=2)
    page = guarded.call("few", "GET", "/v1/relations/tc/facts").json()
    assert len(page["tuples"]) == 2
    assert page["cursor"]
    problem(guarded.call("few", "GET", "/v1/relations/tc/facts?limit=3"), 400, "invalid_parameter")
    query = {"query": "tc(x, y)"}
    assert len(guarded.call("few", "POST", "/v1/query", json=query).json()["tuples"]) == 2
    problem(guarded.call("few", "POST", "/v1/query", json={**query, "limit": 3}), 400, "invalid_parameter")
    export = {"relation": "tc", "path": "x.csv"}
    problem(guarded.call("few", "POST", "/v1/exports", json=export), 403, "forbidden")
    added = {"relation": "edge", "tuples": [["x", "y"], ["y", "z"]]}
    done = guarded.call("few", "POST", "/v1/facts?return=delta&dry_run=true", json=added).json()
    assert ("delta" in done, done["delta_rows"]) == (False, 5)
    one = {"relation": "other", "tuples": [["x"]]}
    assert guarded.call("few", "POST", "/v1/facts?return=delta", json=one).json()["delta"]["other"][
        "inserted"
    ] == [["x"]]


def test_a_request_that_lasts_asks_again_who_makes_it(guarded: Guarded) -> None:
    """As a feed does before each event: to a token that is revoked, nothing more is sent."""
    asked: list[str] = []

    async def ask(request: Request) -> PlainTextResponse:
        principal = principal_of(request)
        await still(request, principal)
        asked.append(principal.name)
        await revoke(guarded.database.tokens, "reader")
        guarded.app.state.service.tokens.forget()
        with pytest.raises(UnauthorizedError):
            await still(request, principal)
        return PlainTextResponse("done")

    guarded.app.router.routes.insert(0, Route("/v1/relations", ask))
    assert guarded.call("reader", "GET", "/v1/relations").text == "done"
    assert asked == ["reader"]
