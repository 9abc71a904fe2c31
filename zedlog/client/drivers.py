"""Two ways to do the same: waiting in the event loop, or blocking.

The client is written once, as coroutines that await nothing but a driver. The driver of `AsyncClient` waits in the
event loop. That of `Client` blocks inside its coroutines, which therefore never give up control: `finish` runs such a
coroutine to its end in one step, with no event loop, so a `Client` also works inside of one (as in a notebook).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")


class Driver(Protocol):
    """How requests go out and how time passes."""

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response: ...

    def stream(
        self, method: str, path: str, **options: Any
    ) -> AbstractAsyncContextManager[httpx.Response]: ...

    def portions(self, response: httpx.Response) -> AsyncIterator[bytes]: ...

    def lines(self, response: httpx.Response) -> AsyncIterator[str]: ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Waiting:
    """In the event loop."""

    def __init__(self, **options: Any) -> None:
        import httpx

        self._http = httpx.AsyncClient(**options)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        content = options.get("content")
        if isinstance(content, Iterable) and not isinstance(content, bytes):
            options["content"] = _in_a_thread(content)
        return await self._http.request(method, path, **options)

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        async with self._http.stream(method, path, **options) as response:
            if not response.is_success:
                await response.aread()
            yield response

    def portions(self, response: httpx.Response) -> AsyncIterator[bytes]:
        return response.aiter_bytes()

    def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        return response.aiter_lines()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


class Blocking:
    """In the thread that asks."""

    def __init__(self, **options: Any) -> None:
        import httpx

        self._http = httpx.Client(**options)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._http.request(method, path, **options)

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        with self._http.stream(method, path, **options) as response:
            if not response.is_success:
                response.read()
            yield response

    def portions(self, response: httpx.Response) -> AsyncIterator[bytes]:
        return _each(response.iter_bytes())

    def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        return _each(response.iter_lines())

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._http.close()


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _in_a_thread(portions: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Portions of a file, read beside the event loop."""
    import asyncio

    iterator = iter(portions)
    while (portion := await asyncio.to_thread(next, iterator, None)) is not None:
        yield portion


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that a blocking driver serves."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("a coroutine of the blocking client gave up control")


def each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator that a blocking driver serves."""
    try:
        while True:
            try:
                item = finish(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        finish(items.aclose())


def same(value: T) -> T:
    return value


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], wrap: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """A method of the blocking client: that of the core which it holds as `core`, run to its end."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(finish(method(self.core, *args, **kwargs)))

    return call


def calling(
    method: Callable[Concatenate[S, P], T], wrap: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """The same for a method that waits for nothing."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(method(self.core, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[S, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The same for a method that gives one item after the other."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each(method(self.core, *args, **kwargs))

    return call
