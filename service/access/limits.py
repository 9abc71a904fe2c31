"""The limits of one token: requests a second, and bytes of a body. Each service process counts for itself."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.types import Message, Receive

from engine.errors import BodyTooLargeError, shown
from service.access.errors import RateLimitedError
from service.principal import Principal

_BUCKETS: Final = 10_000


class RateLimits:
    """A token bucket for each principal that has a rate: it holds a second's requests, at least one, and fills evenly.

    usual: the rate of principals without one of their own; None: they are not limited.
    """

    def __init__(self, usual: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._usual = usual
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """Count a request.

        Raises:
            RateLimitedError: the principal has made too many; `retry_after` is in seconds.
        """
        rate = principal.rate or (self._usual if principal.id else None)
        if rate is None:
            return
        now = self._clock()
        most = max(1.0, rate)
        left, then = self._buckets.get(principal.id, (most, now))
        left = min(most, left + (now - then) * rate)
        if left < 1:
            wait = math.ceil((1 - left) / rate)
            raise RateLimitedError(
                f"{shown(principal.name)} may make {rate:g} requests a second; try again in {wait} s",
                rate=rate,
                retry_after=wait,
            )
        self._buckets[principal.id] = left - 1, now
        self._buckets.move_to_end(principal.id)
        if len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)


def limited(receive: Receive, principal: Principal, declared: bytes) -> Receive:
    """`receive`, with the principal's limit of a body. declared: the header Content-Length, or nothing.

    Raises:
        BodyTooLargeError: the header says that the body is too large; what is received later may raise it too.
    """
    most = principal.body
    if most is None:
        return receive
    error = BodyTooLargeError(
        f"the body is larger than the {most} bytes that {shown(principal.name)} may send; send it as several "
        "transactions",
        limit=most,
    )
    if declared.isdigit() and int(declared) > most:
        raise error
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise error
        return message

    return counted
