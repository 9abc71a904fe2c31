"""A feed as the answer to a request.

Always: an event is sent in parts, each within the time that a listener has for it, so no more than a part waits for one
that does not read; and the listener is closed however the answer ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from service.feeds.feeds import Listener
from service.feeds.selections import CHUNK

log = logging.getLogger("zedlog.service")

# When the service ends: for `end` to arrive.
_FAREWELL_SECONDS = 2.0


class FeedResponse(EventSourceResponse):
    """See the module. kind: the media type."""

    def __init__(self, listener: Listener, kind: str, send_timeout: float, cut_off: Any) -> None:
        super().__init__(
            self._parts(listener, kind),
            headers={"Zedlog-Token": listener.token},
            media_type=kind,
            ping=0,
            send_timeout=send_timeout,
            shutdown_event=cast(Any, _Shutdown(listener)),
            shutdown_grace_period=_FAREWELL_SECONDS,
        )
        self._listener, self._cut_off = listener, cut_off

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            self._cut_off.inc()
            log.warning(
                "a listener of %s took nothing for %g s at epoch %d and was cut off",
                scope["path"],
                self.send_timeout,
                self._listener.epoch,
            )
        finally:
            await self._listener.close()

    @staticmethod
    async def _parts(listener: Listener, kind: str) -> AsyncIterator[memoryview]:
        async for event in listener.events():
            if event.tuples > CHUNK:
                await asyncio.to_thread(event.encoded, kind)
            for part in event.parts(kind):
                yield part


class _Shutdown:
    """What the response sets when the service ends."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def set(self) -> None:
        self._listener.end()
