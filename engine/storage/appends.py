"""Appends to the log by many tasks of one event loop: those that come together are sent together.

In: appends that are ready to be sent. Out: what the script answers to each. Always: each is a run of the script of its
own, so what is wrong with one does not concern the others. All that are asked for in one round of the event loop take
one connection and one round trip, and the server, which does them one after the other, writes them to its disk
together. None waits for later ones.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio

from engine.errors import StorageUnavailableError
from engine.storage.connection import storage_errors
from engine.storage.log import Append
from engine.storage.scripts import APPEND_ONCE


class Appends:
    """The appends of one client."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._redis = client
        self._gathered: list[tuple[Append, asyncio.Future[Any]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, append: Append) -> Any:
        """What the script answers.

        Raises:
            StorageUnavailableError: Redis cannot be reached; where the connection broke before the answer, the
                transaction may have been written.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._flush)
        self._gathered.append((append, answer))
        with storage_errors():
            return await answer

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        task = asyncio.create_task(self._send(gathered), name="zedlog appends")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, gathered: list[tuple[Append, asyncio.Future[Any]]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for append, _ in gathered:
            pipeline.eval(APPEND_ONCE, len(append.keys), *append.keys, *append.args)
        try:
            with storage_errors():
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            answers = [error] * len(gathered)
        except asyncio.CancelledError:
            _settle(gathered, [StorageUnavailableError("the client has been closed")] * len(gathered))
            raise
        _settle(gathered, answers)


def _settle(gathered: list[tuple[Append, asyncio.Future[Any]]], answers: list[Any]) -> None:
    for (_, future), answer in zip(gathered, answers, strict=True):
        # Who asked for it may be gone.
        if not future.done():
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
