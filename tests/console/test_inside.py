"""The way from the console to the API: streamed, with the rights of the session as they are at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from service.console.client import Client, ServiceError
from service.console.inside import Inside
from zedlog.client.drivers import Waiting

App = Callable[[Any, Any, Any], Any]


def client(app: App, authorization: Callable[[], bytes | None] = lambda: None) -> Client:
    return Client(Inside(app, ("10.0.0.1", 8321), authorization))


async def body_of(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            return body


async def answer(send: Any, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


def test_a_request_arrives_as_it_was_sent() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope, body=await body_of(receive))
        await answer(send, 200, b'{"n": 1}')

    async def story() -> Any:
        async with client(app) as one:
            return await one.request("POST", "/v1/x y", params={"q": "a&b"}, json={"k": "v"})

    assert asyncio.run(story()) == {"n": 1}
    assert (seen["method"], seen["path"], seen["query_string"]) == ("POST", "/v1/x y", b"q=a%26b")
    assert seen["body"] == b'{"k":"v"}'
    assert seen["server"] == ("10.0.0.1", 8321)
    assert dict(seen["headers"])[b"host"] == b"localhost"


def test_the_token_is_looked_up_for_every_request() -> None:
    seen: list[bytes | None] = []
    tokens = iter([b"Bearer one", b"Bearer two", None])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]).get(b"authorization"))
        await answer(send, 200, b"{}")

    async def story() -> None:
        async with client(app, lambda: next(tokens)) as one:
            for _ in range(3):
                await one.request("GET", "/")

    asyncio.run(story())
    assert seen == [b"Bearer one", b"Bearer two", None]


def test_a_refusal_has_the_code_and_the_text() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(
            send, 422, b'{"code": "syntax_error", "detail": "no", "line": 2}', b"application/problem+json"
        )

    async def story() -> None:
        async with client(app) as one:
            await one.request("GET", "/")

    with pytest.raises(ServiceError, match="no") as caught:
        asyncio.run(story())
    assert (caught.value.status, caught.value.code, caught.value.problem["line"]) == (422, "syntax_error", 2)


def test_an_answer_without_an_end_is_read_as_it_comes_and_its_sender_is_told_when_the_reader_leaves() -> None:
    told = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await body_of(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    async def story() -> None:
        async with client(app) as one:
            async with one.stream("GET", "/feed") as found:
                assert await anext(found.aiter_bytes()) == b"first"
                assert not told.is_set()
            assert told.is_set()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_an_app_that_goes_on_after_that_is_ended() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await asyncio.sleep(0)
        finally:
            ended.set()

    async def story() -> None:
        async with client(app) as one, one.stream("GET", "/feed") as found:
            await anext(found.aiter_bytes())
        assert ended.is_set()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_slow_reader_slows_the_sender() -> None:
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent += 1

    async def story() -> int:
        async with client(app) as one, one.stream("GET", "/") as found:
            await asyncio.sleep(0.05)
            assert sent < 100
            return sum([len(chunk) async for chunk in found.aiter_bytes()])

    assert asyncio.run(story()) == 1000


@pytest.mark.parametrize("begun", [False, True])
def test_what_the_app_raises_is_raised(begun: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("broken")

    async def story() -> None:
        async with client(app) as one:
            await one.request("GET", "/")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(story())


def test_giving_up_while_the_app_works_ends_the_work() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def story() -> None:
        async with client(app) as one:
            task = asyncio.create_task(one.request("GET", "/"))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(ended.wait(), 30)

    asyncio.run(story())
    assert isinstance(client(app).driver, Waiting)
