"""Files that a browser gets from the API through the console, with the rights of the person's session.

A browser that follows a link sends no token, only the console's cookie, which counts for the console's addresses alone.
So the link leads here, and this asks the API; the file passes through as it comes, and is held nowhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from service.console.client import ServiceError
from service.console.here import client_of
from service.console.login import trouble_page

BACKUP: Final = "/console/download/backup"
_HANDED_ON: Final = ("content-disposition", "zedlog-epoch", "zedlog-token")


async def backup(request: Request) -> Response:
    """The newest epoch as a zip."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(request))
        try:
            answer = await stack.enter_async_context(client.stream("GET", "/v1/backup"))
        except ServiceError as error:
            return HTMLResponse(trouble_page(error.code, error.detail), error.status)
        open_until_sent = stack.pop_all()
    headers = {name: answer.headers[name] for name in _HANDED_ON if name in answer.headers}
    # It is packed already.
    headers["content-encoding"] = "identity"

    async def portions() -> AsyncIterator[bytes]:
        async with open_until_sent:
            async for portion in answer.aiter_raw():
                yield portion

    return StreamingResponse(portions(), media_type=answer.headers["content-type"], headers=headers)
